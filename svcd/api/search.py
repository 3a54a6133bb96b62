"""Search over HTTP: POST with a body, GET with a query string.

Knows every parameter with its check and code, and how they become one query of the engine; refuses to
know how documents are found and ranked. What this version can't do yet is refused with the code of its
parameter: a parameter is never without effect in silence.
"""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from svcd.api import features, performance
from svcd.api.context import Answer, Context, Text
from svcd.api.cutoff import Timer
from svcd.api.filters import allowed_filter, has_joins, narrowed, of_query_string, without_joins
from svcd.api.joins import has_foreign_keys, hydrated, one_state, read_joined
from svcd.api.portions import SEPARATOR, assembled
from svcd.api.routes import Fields, Route
from svcd.engine import steps
from svcd.engine.sorting import SortError, parse_rule, split_rules
from svcd.engine.request import Facets, Federation, IndexedQuery, SearchQuery
from svcd.errors import ApiError
from svcd.fields import (
    Field,
    Param,
    anything,
    any_object,
    array_of,
    boolean,
    nullable,
    number,
    object_of,
    one_of,
    parsed,
    positive_integer,
    query,
    string,
)
from svcd.fields.locales import locale, parse_locale
from svcd.jsontext import dumps, loads

if TYPE_CHECKING:
    from svcd.engine.pages import LongPage
    from svcd.http.message import Portions
    from svcd.store.index import IndexReader as Reader

_TAG = "Search"
_STRATEGIES = ("last", "all", "frequency")
_VECTORS = "_vectors"
_METADATA_HEADER = "Svc-Include-Metadata"
METADATA_HEADERS = {_METADATA_HEADER: "`true` or `1`, in any letter case, adds `metadata`: of each search, or in a merged "
                                      "answer a list of those of all."}


def _unit_interval(name: str) -> Callable[[float], float]:
    """A check of a number from 0 to 1."""

    def check(value: float) -> float:
        if 0.0 <= value <= 1.0:
            return value
        raise ValueError(f"the value of `{name}` is invalid, expected a float between `0.0` and `1.0`.")

    return check


def _unit_parser(name: str) -> Callable[[str], float]:
    check = _unit_interval(name)
    return lambda text: check(query.number(text))


_STRINGS = nullable(array_of(string))
_THRESHOLD = parsed(number, _unit_interval("rankingScoreThreshold"))
_RATIO = parsed(number, _unit_interval("semanticRatio"))
_HYBRID = object_of({
    "semanticRatio": Field(_RATIO, "invalid_search_semantic_ratio", default=0.5),
    "embedder": Field(string, "invalid_search_embedder", required=True),
})
PERSONALIZE = object_of({
    "userContext": Field(string, "invalid_search_personalize_user_context", required=True),
})

FIELDS: Mapping[str, Field] = {  # in the order in which messages list them
    "q": Field(nullable(string), "invalid_search_q", about="The text to search; without it, all documents."),
    "offset": Field(positive_integer, "invalid_search_offset", default=0),
    "limit": Field(positive_integer, "invalid_search_limit", default=20),
    "page": Field(nullable(positive_integer), "invalid_search_page", about="Page number, from 1."),
    "hitsPerPage": Field(nullable(positive_integer), "invalid_search_hits_per_page"),
    "attributesToRetrieve": Field(_STRINGS, "invalid_search_attributes_to_retrieve"),
    "attributesToCrop": Field(_STRINGS, "invalid_search_attributes_to_crop"),
    "cropLength": Field(positive_integer, "invalid_search_crop_length", default=10),
    "cropMarker": Field(string, "invalid_search_crop_marker", default="…"),
    "attributesToHighlight": Field(_STRINGS, "invalid_search_attributes_to_highlight"),
    "highlightPreTag": Field(string, "invalid_search_highlight_pre_tag", default="<em>"),
    "highlightPostTag": Field(string, "invalid_search_highlight_post_tag", default="</em>"),
    "showMatchesPosition": Field(boolean, "invalid_search_show_matches_position", default=False),
    "filter": Field(anything, "invalid_search_filter"),
    "sort": Field(_STRINGS, "invalid_search_sort"),
    "distinct": Field(nullable(string), "invalid_search_distinct"),
    "facets": Field(_STRINGS, "invalid_search_facets"),
    "matchingStrategy": Field(one_of(*_STRATEGIES), "invalid_search_matching_strategy", default="last"),
    "attributesToSearchOn": Field(_STRINGS, "invalid_search_attributes_to_search_on"),
    "rankingScoreThreshold": Field(nullable(_THRESHOLD), "invalid_search_ranking_score_threshold"),
    "locales": Field(nullable(array_of(locale)), "invalid_search_locales"),
    "hybrid": Field(nullable(_HYBRID), "invalid_search_hybrid_query"),
    "vector": Field(nullable(array_of(number)), "invalid_search_vector"),
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
    return Param.list_of(query.text, code)


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
    "sort": Param(query.text, "invalid_search_sort"),
    "distinct": Param(query.text, "invalid_search_distinct"),
    "facets": _texts("invalid_search_facets"),
    "matchingStrategy": Param(query.choice(*_STRATEGIES), "invalid_search_matching_strategy", default="last",
                              schema={"type": "string", "enum": list(_STRATEGIES)}),
    "attributesToSearchOn": _texts("invalid_search_attributes_to_search_on"),
    "rankingScoreThreshold": Param(_unit_parser("rankingScoreThreshold"), "invalid_search_ranking_score_threshold",
                                   schema={"type": "number"}),
    "locales": Param.list_of(parse_locale, "invalid_search_locales"),
    "hybridEmbedder": Param(query.text, "invalid_search_embedder"),
    "hybridSemanticRatio": Param(_unit_parser("semanticRatio"), "invalid_search_semantic_ratio",
                                 schema={"type": "number"}),
    "vector": Param.list_of(query.number, "invalid_search_vector"),
    "retrieveVectors": _flag("invalid_search_retrieve_vectors"),
    "personalizeUserContext": Param(query.text, "invalid_search_personalize_user_context"),
    "useNetwork": Param(query.boolean, "invalid_search_use_network"),
    "showRankingScore": _flag("invalid_search_show_ranking_score"),
    "showRankingScoreDetails": _flag("invalid_search_show_ranking_score_details"),
    "showPerformanceDetails": _flag("invalid_search_show_performance_details"),
}

_NOT_YET = ("hybrid", "vector", "retrieveVectors", "media", "useNetwork")
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
    body["sort"] = None if body["sort"] is None else split_rules(body["sort"])
    body["filter"] = of_query_string(body["filter"], "invalid_search_filter")
    return body


def _check_sort(body: Mapping[str, Any]) -> None:
    """Raise invalid_search_sort for what no version could understand; it is told of no index, but one must be there."""
    try:
        for rule in body.get("sort") or ():
            parse_rule(rule)
    except SortError as error:
        raise ApiError("invalid_search_sort", str(error)) from None


def check_available(body: Mapping[str, Any], flags: Callable[[], Mapping[str, bool | None]]) -> None:
    """Refuse what needs a feature that is off, and what this version does not have.

    flags: gives the features; asked only when one is needed, for searches are many.
    Raises feature_not_enabled, or the code of the first such parameter.
    """
    if body.get("personalize") is not None:
        raise features.not_enabled(features.PERSONALIZATION, "reranking search results")
    if body.get("hybrid") is None and (body.get("vector") is not None or body.get("media") is not None):
        message = "Invalid request: missing `hybrid` parameter when `vector` or `media` are present."
        raise ApiError("missing_search_hybrid", message)
    for name in _NOT_YET:
        if name in _GATED and body.get(name) is not None:  # naming it is enough, be it to say no
            features.require(flags(), *_GATED[name])
        if not body.get(name):  # null, false and empty ask for nothing
            continue
        raise ApiError(FIELDS[name].code or "bad_request",
                       f"Invalid value at `.{name}`: this version of svcd does not have `{name}` yet.")


def uuid7() -> str:
    """A fresh UUID of version 7: it begins with the time, so that later ones sort behind."""
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
}
_PAGE_FIELDS = {"offset": "offset", "limit": "limit", "page": "page", "hitsPerPage": "hits_per_page"}


def _renamed(body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The given parameters under the names of the engine; what is not given keeps the engine's default."""
    return {field: body[name] for name, field in names.items() if body.get(name) is not None}


def wants_metadata(ctx: Context) -> bool:
    """Does the request ask for `metadata`?"""
    return (ctx.request.headers.get(_METADATA_HEADER) or "").lower() in ("true", "1")


def metadata(text: str | None, index_uid: str, primary_key: str | None) -> dict[str, str]:
    """What tells one query from others in the logs of who asks."""
    members = {"query": text, "queryUid": uuid7(), "indexUid": index_uid, "primaryKey": primary_key}
    return {name: value for name, value in members.items() if value is not None}


def without_vectors(hit: str) -> str:
    """Vectors stay inside unless they are asked for, which no search can do in this version.

    `_formatted` keeps them, as the recordings do (search_multiple_params).
    """
    if f'"{_VECTORS}"' not in hit:
        return hit
    shown = loads(hit)
    shown.pop(_VECTORS, None)
    return dumps(shown)


def query_of(
    ctx: Context, index_uid: str, body: Mapping[str, Any], weight: float = 1.0, position: int | None = None
) -> IndexedQuery:
    """The query of the engine that a body asks for. Raises what reading its filter does.

    Every search on behalf of a bearer is made here, where the filter of a tenant token is joined to its own.
    """
    value = narrowed(body.get("filter"), ctx.permission.search_filter(index_uid), "invalid_search_filter")
    condition = allowed_filter(value, "invalid_search_filter", ctx.instance.features)
    query = SearchQuery(**_renamed(body, _QUERY_FIELDS), filter=condition)
    return IndexedQuery(index_uid, query, weight, position)


def without_joins_of(ctx: Context, indexed: IndexedQuery, reader: Reader) -> IndexedQuery:
    """The query with the documents of other indexes in the place of what its filter asks of them."""
    condition = indexed.query.filter
    found = without_joins(condition, indexed.index_uid, reader, lambda other: read_joined(ctx, other))
    return indexed if found is condition else replace(indexed, query=replace(indexed.query, filter=found))


def page_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The members of Federation that say which hits are wanted."""
    return _renamed(body, _PAGE_FIELDS)


def milliseconds_since(started: float) -> int:
    """How long something took that began at a time of the monotonic clock."""
    return int((time.monotonic() - started) * 1000)


def facet_members(facets: Facets | None) -> dict[str, Any]:
    """The members of an answer that count values."""
    return {} if facets is None else {"facetDistribution": facets.distribution, "facetStats": facets.stats}


class Answered:
    """The JSON text of an answer that is being put together.

    held: what is still to be read when it is complete. expected: bytes of what is not made yet, as far as can be known.
    """

    def __init__(self, held: ExitStack) -> None:
        self.held = held
        self.expected = 0
        self._parts: list[Iterable[bytes]] = []
        self._readers: dict[str, Reader] = {}

    def add(self, *texts: bytes) -> None:
        """Text that is there."""
        self._parts.append(texts)

    def add_hits(self, ctx: Context, hits: LongPage, readers: Mapping[str, Reader], index_uid: str | None = None) -> None:
        """Hits that are made when the answer is sent; the rest is as for hydrated(). The readers stay until then."""
        def parts() -> Iterator[bytes]:
            between = b""
            for portion in hits.portions():
                for hit in hydrated(ctx, [without_vectors(hit) for hit in portion], readers, index_uid):
                    yield between
                    yield from hits.long_texts.pieces(hit)
                    between = SEPARATOR

        self._parts.append(parts())
        self.expected += hits.expected_bytes

    @contextmanager
    def reading(self, ctx: Context, index_uid: str) -> Iterator[tuple[Reader, Callable[[], None]]]:
        """An index, and what is to be called in this block if it is read from afterwards. An answer that has many parts of
        one index reads them all from one state."""
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
        """All of it. Raises a refusal with status 503 when it is large, and there are too many of those."""
        if not self.expected:
            return b"".join(chain.from_iterable(self._parts))
        return assembled(chain.from_iterable(self._parts), expected=self.expected, places=ctx.large, held=self.held)


def add_answer(answered: Answered, ctx: Context, asked: IndexedQuery, body: Mapping[str, Any], request_uid: str,
               head: str = "") -> None:
    """Put the answer to one query on one index behind what is there.

    body: what the query was made of. head: the text of members before the hits. Raises index_not_found and the refusals
    of the engine.
    """
    started = time.monotonic()
    rule = ctx.permission.search_filter(asked.index_uid)
    long_page: list[LongPage] = []
    with steps.within("search"), answered.reading(ctx, asked.index_uid) as (reader, keep):
        hits, rest = ctx.answers.get(reader.state, dumps([body, rule]), lambda: _found(ctx, asked, body, reader, long_page))
        primary_key = reader.primary_key
        if long_page:
            keep()
    # All of it is JSON already, so it is put in place as it is.
    before = f'{{{head}"hits":['
    between = f'],"query":{dumps(body.get("q") or "")},"processingTimeMs":{milliseconds_since(started)},'
    behind = f',"requestUid":"{request_uid}"'
    if wants_metadata(ctx):
        behind += f',"metadata":{dumps(metadata(body.get("q"), asked.index_uid, primary_key))}'
    if (details := performance.details()) is not None:
        behind += f',"{performance.NAME}":{dumps(details)}'
    answered.add(before.encode(), hits)
    for page in long_page:
        answered.add_hits(ctx, page, {asked.index_uid: reader}, asked.index_uid)
    answered.add(between.encode(), rest, behind.encode(), b"}")


def _found(ctx: Context, asked: IndexedQuery, body: Mapping[str, Any], reader: Reader, long_page: list[LongPage]
           ) -> tuple[tuple[bytes, bytes], bool]:
    """The hits and the members behind them, as JSON; and whether the next one may have them until the index changes.

    long_page: is given the hits instead, when they are too many to be shown at once.
    """
    # A fifth of the time to start, which a daemon that only indexes, or just started, need not pay.
    from svcd.engine.pages import LongPage
    from svcd.engine.search import search

    _check_sort(body)
    index_uid, timer = asked.index_uid, Timer()
    # Without any pattern there are no facets (relevance.md 6.1).
    federation = Federation(**page_of(body), facets={index_uid: body["facets"]} if body.get("facets") else {})
    found = search({index_uid: reader}, [without_joins_of(ctx, asked, reader)], federation, timer)
    rest = dumps({**found.pagination, **facet_members(found.facets.get(index_uid))})
    if isinstance(found.hits, LongPage):
        long_page.append(found.hits)
        return (b"", rest[1:-1].encode()), False
    hits = hydrated(ctx, [without_vectors(hit) for hit in found.hits], {index_uid: reader}, index_uid)
    is_lasting = not (timer.has_run_out or has_joins(asked.query.filter) or has_foreign_keys(reader)
                      or body.get("showPerformanceDetails"))
    return (",".join(hits).encode(), rest[1:-1].encode()), is_lasting


def _search(ctx: Context, body: Mapping[str, Any]) -> Answer:
    """Run one query on the index of the path."""
    asked = query_of(ctx, ctx.index_uid, body)
    check_available(body, ctx.instance.features)
    with ExitStack() as held:
        answered = Answered(held)
        with performance.measured(body.get("showPerformanceDetails")), performance.place_in(ctx.searches):
            held.enter_context(one_state(ctx, [ctx.index_uid]))
            add_answer(answered, ctx, asked, body, uuid7())
        return Answer(200, Text(answered.body(ctx)))


def search_with_post(ctx: Context) -> Answer:
    """Search with the parameters of the body."""
    return _search(ctx, ctx.body)


def search_with_url_query(ctx: Context) -> Answer:
    """Search with the parameters of the query string."""
    return _search(ctx, from_query_string(ctx.query))


_PATH = "/indexes/{index_uid}/search"

ROUTES = (
    Route("POST", _PATH, search_with_post, "search", {200: "SearchAnswer"}, "Search with a body", _TAG,
          body=Fields(FIELDS), joins_rules=True, headers=METADATA_HEADERS),
    Route("GET", _PATH, search_with_url_query, "search", {200: "SearchAnswer"}, "Search with a query string", _TAG,
          query=_PARAMS, joins_rules=True, headers=METADATA_HEADERS),
)
