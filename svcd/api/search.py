"""The search routes: one query on one index, and the JSON text of its answer (AnswerBuilder).

svcd.api.search_parameters turns a body or a query string into the query.
"""
from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.answer_members import (
    METADATA_HEADERS, PERFORMANCE_DETAILS, facet_members, measured, metadata, milliseconds_since, performance_details,
    semantic_members, shown_vector, timed_slot, uuid7, wants_metadata,
)
from svcd.api.bodies import MAX_SEARCH_VALUES
from svcd.api.context import Context
from svcd.api.filters import has_foreign_keys, has_joins, hydrate_hits, index_snapshot
from svcd.api.routes import Fields, HandlerResult, Route, Text
from svcd.api.search_parameters import (
    FIELDS, PARAMS, BearerQuery, check_available, check_sort, from_query_string, page_of, personalized, query_of,
    with_joins_resolved,
)
from svcd.api.streaming import SEPARATOR, joined_body
from svcd.api.traffic import DEGRADED, PERSONALIZED
from svcd.base import tracing
from svcd.base.json_text import dumps
from svcd.http.message import MEMORY_STEP, BodyMemory
from svcd.search.request import Federation, IndexedQuery, SearchResult

if TYPE_CHECKING:
    from svcd.http.message import Portions
    from svcd.index.reader import IndexReader as Reader
    from svcd.search.hits import LongPage

_TAG = "Search"
_PATH = "/indexes/{index_uid}/search"


class AnswerBuilder:
    """Collects the JSON text of an answer.

    held: closes the readers that a large answer still needs after its handler has returned. expected: estimated bytes
    of the hits that are formatted only when they are sent; size: bytes of encoded text.
    """

    def __init__(self, held: ExitStack, memory: BodyMemory | None = None) -> None:
        """memory: shared by all answers that may hold much encoded text; the answer returns its part when it is sent."""
        self.held = held
        self.expected = self.size = 0
        self._memory = memory
        self._taken = 0  # bytes of it
        self._parts: deque[Iterable[bytes]] = deque()
        self._readers: dict[str, Reader] = {}

    def add(self, *texts: bytes) -> None:
        """Append encoded text. Raises a 503 if other answers use all of the memory."""
        self._parts.append(texts)
        if self._memory is None:
            return
        self.size += sum(map(len, texts))
        while self.size > self._taken + MEMORY_STEP:  # the first step is free
            self._memory.take(MEMORY_STEP)
            self.held.callback(self._memory.release, MEMORY_STEP)
            self._taken += MEMORY_STEP

    def add_hits(self, ctx: Context, hits: LongPage, readers: Mapping[str, Reader], index_uid: str | None = None) -> None:
        """Append hits that are formatted when the answer is sent; other arguments: see hydrate_hits()."""
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

        A reader that was kept is used again, so that all parts of an answer come from one snapshot of the index.
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

        def parts() -> Iterator[bytes]:
            while self._parts:  # each part is dropped when the next one is read
                yield from self._parts.popleft()

        return joined_body(parts(), expected=self.expected + self.size, limit=ctx.services.large_answers, held=self.held)


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
        parts = _Parts(*ctx.services.search_cache.get(reader.state, asked.cache_key,
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
    """The cached parts of an answer, as JSON texts: joining them saves parsing and encoding every hit.

    hits: without the brackets. of_query, of_page, last: members, each with the comma before it.
    """

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
    now = ctx.services.data_folder.index_state(ctx.index_uid)
    parts = ctx.services.search_cache.peek(now.state, asked.cache_key) if now else None
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
    embedding = ctx.services.embedding.for_search(timer)
    # An empty list of facets is the same as none: no facetDistribution in the answer.
    federation = Federation(**page_of(body), facets={index_uid: body["facets"]} if body.get("facets") else {})
    personalize = body.get("personalize")
    ordering = personalize and personalized(ctx, personalize, [body.get("q")], timer, {index_uid: reader})
    found = search({index_uid: reader}, [with_joins_resolved(ctx, asked, reader)], federation, timer, embedding, ordering)
    if timer.has_run_out:
        ctx.services.traffic.count_search(DEGRADED)
    if isinstance(found.hits, LongPage):
        long_page.append(found.hits)
        return tuple(_parts((), found, index_uid)), False
    hits = hydrate_hits(ctx, found.hits, {index_uid: reader}, index_uid)
    # The service may order the hits of the same user differently next time, and each search counts as a call to it.
    is_lasting = not (timer.has_run_out or embedding.has_failed or has_joins(asked.query.filter) or has_foreign_keys(reader)
                      or ordering or body.get("showPerformanceDetails"))
    return tuple(_parts(hits, found, index_uid)), is_lasting


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


def _search(ctx: Context, body: Mapping[str, Any]) -> HandlerResult:
    """Run one query on the index of the path."""
    if body.get("personalize") is not None:
        ctx.services.traffic.count_search(PERSONALIZED)
    asked = query_of(ctx, ctx.index_uid, body)
    check_available(body, ctx.services.data_folder.features)
    if not body.get("useNetwork") and (cached := _cached_answer(ctx, asked, body)) is not None:
        return HandlerResult(200, Text(cached))
    with ExitStack() as held:
        answer = AnswerBuilder(held)
        with measured(body.get("showPerformanceDetails")), timed_slot(ctx.services.searches):
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
          query=PARAMS, joins_rules=True, headers=METADATA_HEADERS),
)
