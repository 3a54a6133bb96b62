"""The search routes.

Declares every search parameter with its check and error code, turns a body or a query string into a query, and writes the
answer.
"""
from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.admission import SearchQueue, Timer
from svcd.api.bodies import MAX_SEARCH_VALUES
from svcd.api.filters import (
    allowed_filter,
    filter_of_query_string,
    has_foreign_keys,
    has_joins,
    hydrate_hits,
    index_snapshot,
    read_joined,
    resolve_joins,
    with_bearer_filter,
)
from svcd.api.routes import DEGRADED, PERSONALIZED, Context, Fields, HandlerResult, Route, Text
from svcd.api.streaming import SEPARATOR, joined_body
from svcd.base import tracing
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.facets.distribution import Facets
from svcd.http.message import MEMORY_STEP, BodyMemory
from svcd.ranking.sort import SortError, parse_rule, split_rules
from svcd.search.request import Federation, Hybrid, IndexedQuery, Reranking, SearchQuery, SearchResult
from svcd.validation import bounds, features
from svcd.validation import (
    Field,
    Param,
    any_object,
    anything,
    array_of,
    boolean,
    nullable,
    number,
    object_of,
    one_of,
    parsed,
    positive_integer,
    string,
    text_of,
)
from svcd.validation import query_strings as query
from svcd.validation.names import LOCALES, locale, parse_locale
from svcd.vectors.vector import single

if TYPE_CHECKING:
    from svcd.http.message import Portions
    from svcd.index.reader import IndexReader as Reader
    from svcd.search.hits import LongPage

PERFORMANCE_DETAILS = "performanceDetails"
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_TAG = "Search"
_PATH = "/indexes/{index_uid}/search"
_STRATEGIES = ("last", "all", "frequency")
_METADATA_HEADER = "Svc-Include-Metadata"
METADATA_HEADERS = {_METADATA_HEADER: "`true` or `1`, in any letter case, adds `metadata`: of each search, or in a merged "
                                      "answer a list of those of all."}


# How long each step of a search took, as the member `performanceDetails` of an answer shows it


def measured(is_asked: Any) -> AbstractContextManager[None]:
    """Measure the steps of the search in this block, if is_asked; not those of other searches of the request."""
    outer = tracing.recorder()
    # The wait in the queue is shared by all searches of a request, so it counts for each.
    durations = None if outer is None else outer.durations
    return tracing.recording(tracing.Recorder(time.perf_counter_ns, durations) if is_asked else None)


def timed_slot(searches: SearchQueue, is_long: bool = False) -> AbstractContextManager[None]:
    """A slot of the search queue, with the wait for it measured. is_long: for many searches."""
    tracing.begin("wait in queue")
    return searches.long_slot() if is_long else searches.slot()


def performance_details() -> dict[str, str] | None:
    """Path of a step -> its duration, in the order in which they ended; None when nothing is measured."""
    measuring = tracing.recorder()
    if measuring is None:
        return None
    return {path: duration(nanoseconds) for path, nanoseconds in measuring.durations.items()}


def duration(nanoseconds: int) -> str:
    """In the largest unit of which it has at least one, with two decimals: `1.23ms`."""
    size, unit = next((each for each in _UNITS if nanoseconds >= each[0]), _UNITS[-1])
    return f"{nanoseconds / size:.2f}{unit}"


# Parameters


def unit_interval(name: str) -> Callable[[float], float]:
    """A function that checks that a number is from 0 to 1."""

    def check(value: float) -> float:
        if 0.0 <= value <= 1.0:
            return value
        raise ValueError(f"the value of `{name}` is invalid, expected a float between `0.0` and `1.0`.")

    return check


def unit_parser(name: str) -> Callable[[str], float]:
    """A function that reads such a number from a query string."""
    check = unit_interval(name)
    return lambda text: check(query.number(text))


_NAMES = nullable(array_of(string, bound=bounds.NAMES))
_THRESHOLD = parsed(number, unit_interval("rankingScoreThreshold"))
_RATIO = parsed(number, unit_interval("semanticRatio"))
_HYBRID = object_of({
    "semanticRatio": Field(_RATIO, "invalid_search_semantic_ratio", default=0.5),
    "embedder": Field(string, "invalid_search_embedder", required=True),
})
PERSONALIZE = object_of({
    "userContext": Field(text_of(bounds.TEXT), "invalid_search_personalize_user_context", required=True),
})

FIELDS: Mapping[str, Field] = {  # in the order in which messages list them
    "q": Field(nullable(text_of(bounds.TEXT)), "invalid_search_q", about="The text to search; without it, all documents."),
    "offset": Field(positive_integer, "invalid_search_offset", default=0),
    "limit": Field(positive_integer, "invalid_search_limit", default=20),
    "page": Field(nullable(positive_integer), "invalid_search_page", about="Page number, from 1."),
    "hitsPerPage": Field(nullable(positive_integer), "invalid_search_hits_per_page"),
    "attributesToRetrieve": Field(_NAMES, "invalid_search_attributes_to_retrieve"),
    "attributesToCrop": Field(_NAMES, "invalid_search_attributes_to_crop"),
    "cropLength": Field(positive_integer, "invalid_search_crop_length", default=10),
    "cropMarker": Field(string, "invalid_search_crop_marker", default="…"),
    "attributesToHighlight": Field(_NAMES, "invalid_search_attributes_to_highlight"),
    "highlightPreTag": Field(string, "invalid_search_highlight_pre_tag", default="<em>"),
    "highlightPostTag": Field(string, "invalid_search_highlight_post_tag", default="</em>"),
    "showMatchesPosition": Field(boolean, "invalid_search_show_matches_position", default=False),
    "filter": Field(anything, "invalid_search_filter"),
    "sort": Field(nullable(array_of(string, bound=bounds.SORT)), "invalid_search_sort"),
    "distinct": Field(nullable(string), "invalid_search_distinct"),
    "facets": Field(_NAMES, "invalid_search_facets"),
    "matchingStrategy": Field(one_of(*_STRATEGIES), "invalid_search_matching_strategy", default="last"),
    "attributesToSearchOn": Field(_NAMES, "invalid_search_attributes_to_search_on"),
    "rankingScoreThreshold": Field(nullable(_THRESHOLD), "invalid_search_ranking_score_threshold"),
    "locales": Field(nullable(array_of(locale, bound=bounds.NAMES)), "invalid_search_locales"),
    "hybrid": Field(nullable(_HYBRID), "invalid_search_hybrid_query"),
    "vector": Field(nullable(array_of(number, bound=bounds.VECTOR)), "invalid_search_vector"),
    "retrieveVectors": Field(boolean, "invalid_search_retrieve_vectors", default=False),
    "media": Field(nullable(any_object), "invalid_search_media"),
    "personalize": Field(nullable(PERSONALIZE), "invalid_search_personalize"),
    "useNetwork": Field(nullable(boolean), "invalid_search_use_network"),
    "showRankingScore": Field(boolean, "invalid_search_show_ranking_score", default=False),
    "showRankingScoreDetails": Field(boolean, "invalid_search_show_ranking_score_details", default=False),
    "showPerformanceDetails": Field(boolean, "invalid_search_show_performance_details", default=False),
}


def _flag(code: str) -> Param:
    return Param(query.boolean, code, default=False)


def _texts(code: str) -> Param:
    return Param.list_of(query.text, code, bound=bounds.NAMES)


_PARAMS: Mapping[str, Param] = {  # in the order in which messages list them
    "q": Param(query.text, "invalid_search_q"),
    "offset": Param(query.positive_integer, "invalid_search_offset", default=0),
    "limit": Param(query.positive_integer, "invalid_search_limit", default=20),
    "page": Param(query.positive_integer, "invalid_search_page"),
    "hitsPerPage": Param(query.positive_integer, "invalid_search_hits_per_page"),
    "attributesToRetrieve": _texts("invalid_search_attributes_to_retrieve"),
    "attributesToCrop": _texts("invalid_search_attributes_to_crop"),
    "cropLength": Param(query.positive_integer, "invalid_search_crop_length", default=10),
    "cropMarker": Param(query.text, "invalid_search_crop_marker", default="…"),
    "attributesToHighlight": _texts("invalid_search_attributes_to_highlight"),
    "highlightPreTag": Param(query.text, "invalid_search_highlight_pre_tag", default="<em>"),
    "highlightPostTag": Param(query.text, "invalid_search_highlight_post_tag", default="</em>"),
    "showMatchesPosition": _flag("invalid_search_show_matches_position"),
    "filter": Param(query.text, "invalid_search_filter"),
    "sort": Param(split_rules, "invalid_search_sort"),
    "distinct": Param(query.text, "invalid_search_distinct"),
    "facets": _texts("invalid_search_facets"),
    "matchingStrategy": Param(query.choice(*_STRATEGIES), "invalid_search_matching_strategy", default="last",
                              schema={"type": "string", "enum": list(_STRATEGIES)}),
    "attributesToSearchOn": _texts("invalid_search_attributes_to_search_on"),
    "rankingScoreThreshold": Param(unit_parser("rankingScoreThreshold"), "invalid_search_ranking_score_threshold",
                                   schema={"type": "number"}),
    "locales": Param.list_of(parse_locale, "invalid_search_locales", bound=bounds.NAMES,
                             schema={"type": "string", "enum": list(LOCALES)}),
    "hybridEmbedder": Param(query.text, "invalid_search_embedder"),
    "hybridSemanticRatio": Param(unit_parser("semanticRatio"), "invalid_search_semantic_ratio",
                                 schema={"type": "number"}),
    "vector": Param.list_of(query.number, "invalid_search_vector", bound=bounds.VECTOR),
    "retrieveVectors": _flag("invalid_search_retrieve_vectors"),
    "personalizeUserContext": Param(query.text, "invalid_search_personalize_user_context"),
    "useNetwork": Param(query.boolean, "invalid_search_use_network"),
    "showRankingScore": _flag("invalid_search_show_ranking_score"),
    "showRankingScoreDetails": _flag("invalid_search_show_ranking_score_details"),
    "showPerformanceDetails": _flag("invalid_search_show_performance_details"),
}

_GATED = {  # parameter: (feature that it needs, the words that open the refusal)
    "media": ("multimodal", "passing `media` in a search query"),
    "useNetwork": ("network", "passing `useNetwork` in a search query"),
}


def from_query_string(values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a GET request under the names and in the forms of a body.

    Raises invalid_search_hybrid_query and missing_search_hybrid for halves of a hybrid search.
    """
    body = dict(values)
    embedder, ratio = body.pop("hybridEmbedder"), body.pop("hybridSemanticRatio")
    context = body.pop("personalizeUserContext")
    if embedder is None and ratio is not None:
        message = "`hybridEmbedder` is mandatory when `hybridSemanticRatio` is present"
        raise ApiError("invalid_search_hybrid_query", message)
    if embedder is None and body["vector"] is not None:
        raise ApiError("missing_search_hybrid", "`hybridEmbedder` is mandatory when `vector` is present")
    body["hybrid"] = None if embedder is None else {"embedder": embedder, "semanticRatio": 0.5 if ratio is None else ratio}
    body["personalize"] = None if context is None else {"userContext": context}
    body["filter"] = filter_of_query_string(body["filter"], "invalid_search_filter")
    return body


def check_sort(body: Mapping[str, Any]) -> None:
    """Raise invalid_search_sort for a malformed expression. The message names no index, yet a missing index comes first."""
    try:
        for rule in body.get("sort") or ():
            parse_rule(rule)
    except SortError as error:
        raise ApiError("invalid_search_sort", str(error)) from None


def check_available(body: Mapping[str, Any], flags: Callable[[], Mapping[str, bool | None]]) -> None:
    """Reject parameters that need a feature that is off.

    flags: returns the features; called only if one is needed, because this runs in every search.
    Raises feature_not_enabled, or the code of the first such parameter.
    """
    for name, gate in _GATED.items():
        if body.get(name) is not None:  # even `false` needs the feature
            features.require(flags(), *gate)


def uuid7() -> str:
    """A new UUID of version 7: it begins with the time, so that later ones sort after earlier ones."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x7000 << 64 | 0x8000 << 48
    digits = f"{value:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_QUERY_FIELDS = {  # parameter: field of SearchQuery
    "q": "q",
    "sort": "sort",
    "distinct": "distinct",
    "attributesToRetrieve": "attributes_to_retrieve",
    "attributesToCrop": "attributes_to_crop",
    "cropLength": "crop_length",
    "cropMarker": "crop_marker",
    "attributesToHighlight": "attributes_to_highlight",
    "highlightPreTag": "highlight_pre_tag",
    "highlightPostTag": "highlight_post_tag",
    "showMatchesPosition": "show_matches_position",
    "matchingStrategy": "matching_strategy",
    "attributesToSearchOn": "attributes_to_search_on",
    "rankingScoreThreshold": "ranking_score_threshold",
    "locales": "locales",
    "showRankingScore": "show_ranking_score",
    "showRankingScoreDetails": "show_ranking_score_details",
    "vector": "vector",
    "media": "media",
    "retrieveVectors": "retrieve_vectors",
}
_PAGE_FIELDS = {"offset": "offset", "limit": "limit", "page": "page", "hitsPerPage": "hits_per_page"}


def _renamed(body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The given parameters under the names of the engine; what is not given keeps the engine's default."""
    return {field: body[name] for name, field in names.items() if body.get(name) is not None}


def wants_metadata(ctx: Context) -> bool:
    """True if the request asks for `metadata` by its header."""
    return (ctx.header("Include-Metadata") or "").lower() in ("true", "1")


def metadata(text: str | None, index_uid: str, primary_key: str | None, remote: str | None = None) -> dict[str, str]:
    """The `metadata` of one query; members without a value are left out. remote: the instance that was asked."""
    members = {"query": text, "queryUid": uuid7(), "indexUid": index_uid, "primaryKey": primary_key, "remote": remote}
    return {name: value for name, value in members.items() if value is not None}


class BearerQuery(NamedTuple):
    """A query with the filter of its bearer. cache_key: what the answer depends on, except the state of the index."""

    indexed: IndexedQuery
    cache_key: str


def query_of(
    ctx: Context, index_uid: str, body: Mapping[str, Any], weight: float = 1.0, position: int | None = None,
    has_pins: bool = True
) -> BearerQuery:
    """The query that a body asks for. has_pins: do search rules apply to it? Raises invalid_search_filter, invalid_api_key.

    The only place where the filter of a tenant token is joined to that of a search (docs/http.md#tenant-tokens).
    """
    bearer_filter = ctx.permission.search_filter(index_uid)
    value = with_bearer_filter(body.get("filter"), bearer_filter, "invalid_search_filter")
    condition = allowed_filter(value, "invalid_search_filter", ctx.instance.features)
    query = SearchQuery(**_renamed(body, _QUERY_FIELDS), filter=condition, hybrid=_hybrid(body.get("hybrid")))
    # Bearers with other filters get other hits. Python's form of JSON values tells them apart, and takes less time than JSON.
    cache_key = repr((body, bearer_filter))
    if has_pins and ctx.instance.is_enabled("dynamicSearchRules") and (active := ctx.active_rules()) is not None:
        pinning = active.of_query(index_uid)
        if pinning is not None:
            query, cache_key = replace(query, rules=pinning.rules), cache_key + pinning.cache_key
    return BearerQuery(IndexedQuery(index_uid, query, weight, position), cache_key)


def _hybrid(given: Mapping[str, Any] | None) -> Hybrid | None:
    return None if given is None else Hybrid(given["embedder"], given["semanticRatio"])


def with_joins_resolved(ctx: Context, indexed: IndexedQuery, reader: Reader) -> IndexedQuery:
    """The query with every `_foreign` condition of its filter replaced by the matching values of this index."""
    condition = indexed.query.filter
    found = resolve_joins(condition, indexed.index_uid, reader, lambda other: read_joined(ctx, other))
    return indexed if found is condition else replace(indexed, query=replace(indexed.query, filter=found))


def page_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The members of Federation that say which hits are wanted."""
    return _renamed(body, _PAGE_FIELDS)


def milliseconds_since(started: float) -> int:
    """Milliseconds since a time of the monotonic clock."""
    return int((time.monotonic() - started) * 1000)


def facet_members(facets: Facets | None) -> dict[str, Any]:
    """The members of an answer that count values."""
    return {} if facets is None else {"facetDistribution": facets.distribution, "facetStats": facets.stats}


# Answers


class AnswerBuilder:
    """Collects the JSON text of an answer.

    held: closes the readers that a large answer still needs after its handler has returned. expected: estimated bytes
    of the hits that are formatted only when they are sent; size: bytes of the text that is ready.
    """

    def __init__(self, held: ExitStack, memory: BodyMemory | None = None) -> None:
        """memory: for text that is ready, of all answers that may have much of it; given back when the answer is sent."""
        self.held = held
        self.expected = self.size = 0
        self._memory = memory
        self._taken = 0  # bytes of it
        self._parts: deque[Iterable[bytes]] = deque()
        self._readers: dict[str, Reader] = {}

    def add(self, *texts: bytes) -> None:
        """Append text that is ready. Raises a 503 if other answers take all of the memory."""
        self._parts.append(texts)
        if self._memory is None:
            return
        self.size += sum(map(len, texts))
        while self.size > self._taken + MEMORY_STEP:  # the first step is free
            self._memory.take(MEMORY_STEP)
            self.held.callback(self._memory.release, MEMORY_STEP)
            self._taken += MEMORY_STEP

    def add_hits(self, ctx: Context, hits: LongPage, readers: Mapping[str, Reader], index_uid: str | None = None) -> None:
        """Append hits that are formatted when the answer is sent; other arguments as of hydrate_hits()."""
        def parts() -> Iterator[bytes]:
            between = b""
            for portion in hits.portions():
                for hit in hydrate_hits(ctx, portion, readers, index_uid):
                    yield between
                    yield from hits.long_strings.pieces(hit)
                    between = SEPARATOR

        self._parts.append(parts())
        self.expected += hits.expected_bytes

    @contextmanager
    def reading(self, ctx: Context, index_uid: str) -> Iterator[tuple[Reader, Callable[[], None]]]:
        """(reader, keep): a reader, and a function to call in this block if the reader is needed after it.

        A reader that was kept is used again, so that all parts of an answer are of one snapshot of the index.
        """
        known = self._readers.get(index_uid)
        if known is not None:
            yield known, lambda: None
            return
        with ExitStack() as own:
            reader = own.enter_context(ctx.read(index_uid))

            def keep() -> None:
                own.callback(reader.close)
                self.held.push(own.pop_all())
                self._readers[index_uid] = reader

            yield reader, keep

    def body(self, ctx: Context) -> bytes | Portions:
        """The whole body. Raises a 503 if it is large and too many large answers are being sent."""
        if not self.expected and not self._taken:
            return b"".join(chain.from_iterable(self._parts))
        return joined_body(self._consumed(), expected=self.expected + self.size, limit=ctx.large_answers, held=self.held)

    def _consumed(self) -> Iterator[bytes]:
        """All text, each part dropped when the next one is asked for."""
        while self._parts:
            yield from self._parts.popleft()


def add_answer(answer: AnswerBuilder, ctx: Context, asked: BearerQuery, body: Mapping[str, Any], request_uid: str,
               head: str = "") -> None:
    """Append the answer to one query on one index.

    body: the parameters that the query was made from. head: JSON text of members that come before the hits. Raises
    index_not_found and the errors of the search itself.
    """
    if body.get("useNetwork"):
        from svcd.api.network_answer import network_answer  # loaded with the first search over a network

        answer.add(f"{{{head}{network_answer(ctx, asked.indexed, body, request_uid)[1:]}".encode())
        return
    started = time.monotonic()
    indexed = asked.indexed
    long_page: list[LongPage] = []
    with tracing.span("search"), answer.reading(ctx, indexed.index_uid) as (reader, keep):
        parts = _Parts(*ctx.search_cache.get(reader.state, asked.cache_key,
                                             lambda: _run_search(ctx, indexed, body, reader, long_page)))
        primary_key = reader.primary_key
        if long_page:
            keep()
    rest = _members(ctx, indexed.index_uid, primary_key, body, parts, started, request_uid)
    answer.add(f'{{{head}"hits":['.encode(), parts.hits)
    for page in long_page:
        answer.add_hits(ctx, page, {indexed.index_uid: reader}, indexed.index_uid)
    answer.add(rest)


class _Parts(NamedTuple):
    """What is cached of an answer, as JSON texts without the outer brackets: concatenating them saves a parse and a dump of
    every hit. The others are members with the comma before them: of the query, of the page, and at the end."""

    hits: bytes
    of_query: bytes
    of_page: bytes
    last: bytes


def _members(ctx: Context, index_uid: str, primary_key: str | None, body: Mapping[str, Any], parts: _Parts, started: float,
             request_uid: str) -> bytes:
    """The text of an answer after its hits."""
    query = f'],"query":{dumps(body.get("q") or "")}'
    elapsed = f',"processingTimeMs":{milliseconds_since(started)}'
    suffix = f',"requestUid":"{request_uid}"'
    if wants_metadata(ctx):
        suffix += f',"metadata":{dumps(metadata(body.get("q"), index_uid, primary_key))}'
    if (details := performance_details()) is not None:
        suffix += f',"{PERFORMANCE_DETAILS}":{dumps(details)}'
    return b"".join((query.encode(), parts.of_query, elapsed.encode(), parts.of_page, suffix.encode(), parts.last, b"}"))


def _cached_answer(ctx: Context, asked: BearerQuery, body: Mapping[str, Any]) -> bytes | None:
    """The answer if its hits are cached: nothing is computed, so it takes no slot of the search queue."""
    started = time.monotonic()
    now = ctx.instance.index_state(ctx.index_uid)
    parts = ctx.search_cache.peek(now.state, asked.cache_key) if now else None
    if now is None or parts is None:
        return None
    cached = _Parts(*parts)
    return b"".join((b'{"hits":[', cached.hits, _members(ctx, ctx.index_uid, now.primary_key, body, cached, started, uuid7())))


def _run_search(ctx: Context, asked: IndexedQuery, body: Mapping[str, Any], reader: Reader, long_page: list[LongPage]
                ) -> tuple[tuple[bytes, ...], bool]:
    """Run one search: (the parts of its answer as a plain tuple, which the cache can send, and may they be cached?).

    long_page: an empty list that receives the hits instead, when there are too many to be formatted at once.
    """
    # Loading these modules takes a fifth of the start time; a daemon that only indexes never needs them.
    from svcd.search.hits import LongPage
    from svcd.search.search import search

    check_sort(body)
    index_uid, timer = asked.index_uid, ctx.timer()
    embedding = ctx.embedding.for_search(timer)
    # An empty list of facets is the same as none: no facetDistribution in the answer.
    federation = Federation(**page_of(body), facets={index_uid: body["facets"]} if body.get("facets") else {})
    personalize = body.get("personalize")
    ordering = personalize and personalized(ctx, personalize, [body.get("q")], timer, {index_uid: reader})
    found = search({index_uid: reader}, [with_joins_resolved(ctx, asked, reader)], federation, timer, embedding, ordering)
    if timer.has_run_out:
        ctx.traffic.count_search(DEGRADED)
    if isinstance(found.hits, LongPage):
        long_page.append(found.hits)
        return tuple(_parts((), found, index_uid)), False
    hits = hydrate_hits(ctx, found.hits, {index_uid: reader}, index_uid)
    # The service may order the hits of the same user otherwise the next time, and each search counts as one of its calls.
    is_lasting = not (timer.has_run_out or embedding.has_failed or has_joins(asked.query.filter) or has_foreign_keys(reader)
                      or ordering or body.get("showPerformanceDetails"))
    return tuple(_parts(hits, found, index_uid)), is_lasting


def personalized(ctx: Context, personalize: Mapping[str, str], texts: Iterable[str | None], timer: Timer,
                 readers: Mapping[str, Reader]) -> Reranking:
    """The order for the user whom `personalize` describes. texts: the `q` of all queries; readers: filled before it is used."""
    from svcd.api.personalization import reranking  # only these searches need it
    from svcd.search.search import cutoff_ms

    return reranking(ctx, personalize["userContext"], texts, timer, lambda: max(map(cutoff_ms, readers.values()), default=0))


def _parts(hits: Iterable[str], found: SearchResult, index_uid: str) -> _Parts:
    vector = found.query_vectors.get(0)
    return _Parts(
        ",".join(hits).encode(),
        b"" if vector is None else _more_members({"queryVector": shown_vector(vector)}),
        _more_members({**found.pagination, **facet_members(found.facets.get(index_uid))}),
        b"" if found.semantic_hits is None else _more_members(semantic_members(found)),
    )


def _more_members(members: Mapping[str, Any]) -> bytes:
    return f",{dumps(members)[1:-1]}".encode() if members else b""


def semantic_members(found: SearchResult) -> dict[str, int]:
    """The last member of an answer: how many hits were found by their vectors; none if no query searched vectors."""
    return {} if found.semantic_hits is None else {"semanticHitCount": found.semantic_hits}


def shown_vector(vector: Sequence[float]) -> list[float]:
    """Numbers of single precision with as few digits as tell them apart from others: 0.1, not 0.10000000149011612."""
    return list(map(_shortest, vector))


def _shortest(number: float) -> float:
    return next((shown for digits in (6, 7, 8) if single(shown := float(f"{number:.{digits}g}")) == number), number)


def _search(ctx: Context, body: Mapping[str, Any]) -> HandlerResult:
    """Run one query on the index of the path."""
    if body.get("personalize") is not None:
        ctx.traffic.count_search(PERSONALIZED)
    asked = query_of(ctx, ctx.index_uid, body)
    check_available(body, ctx.instance.features)
    if not body.get("useNetwork") and (cached := _cached_answer(ctx, asked, body)) is not None:
        return HandlerResult(200, Text(cached))
    with ExitStack() as held:
        answer = AnswerBuilder(held)
        with measured(body.get("showPerformanceDetails")), timed_slot(ctx.searches):
            held.enter_context(index_snapshot(ctx, [ctx.index_uid]))
            add_answer(answer, ctx, asked, body, uuid7())
        return HandlerResult(200, Text(answer.body(ctx)))


def search_with_post(ctx: Context) -> HandlerResult:
    """Search with the parameters of the body."""
    return _search(ctx, ctx.body)


def search_with_url_query(ctx: Context) -> HandlerResult:
    """Search with the parameters of the query string."""
    return _search(ctx, from_query_string(ctx.query))


ROUTES = (
    Route("POST", _PATH, search_with_post, "search", {200: "SearchAnswer"}, "Search with a body", _TAG,
          body=Fields(FIELDS, most_values=MAX_SEARCH_VALUES), joins_rules=True, headers=METADATA_HEADERS),
    Route("GET", _PATH, search_with_url_query, "search", {200: "SearchAnswer"}, "Search with a query string", _TAG,
          query=_PARAMS, joins_rules=True, headers=METADATA_HEADERS),
)
