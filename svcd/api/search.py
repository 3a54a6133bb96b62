"""The search routes: one query on one index.

svcd.api.search_parameters turns a body or a query string into the query, svcd.api.answers makes the text of the answer.
"""
from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from svcd.api.answers import (
    METADATA_HEADERS, AnswerBuilder, AnswerParts, measured, milliseconds_since, parts_of, text_after_hits, timed_slot, uuid7,
    wants_metadata,
)
from svcd.api.bodies import MAX_SEARCH_VALUES
from svcd.api.context import Context, Headers
from svcd.api.filters import has_joins, hydrate_hits, index_snapshot
from svcd.api.routes import OF_STATE, Fields, HandlerResult, Route, Text
from svcd.api.search_parameters import (
    FIELDS, PARAMS, BearerQuery, check_available, check_sort, from_query_string, page_of, personalized, query_of,
    with_joins_resolved,
)
from svcd.api.search_services import SearchEmbedding
from svcd.api.traffic import DEGRADED, PERSONALIZED
from svcd.base import tracing
from svcd.search.request import Federation, no_embedding

if TYPE_CHECKING:
    from svcd.index.reader import IndexReader as Reader
    from svcd.search.hits import LongPage

_TAG = "Search"
_PATH = "/indexes/{index_uid}/search"


def add_answer(answer: AnswerBuilder, ctx: Context, asked: BearerQuery, body: Mapping[str, Any], request_uid: str,
               head: str = "") -> Headers:
    """Append the answer to one query on one index; return its headers.

    body: the parameters that the query was made from. head: JSON text of members that come before the hits. Raises
    index_not_found and the errors of the search itself.
    """
    indexed, index_uid, started = asked.indexed, asked.indexed.index_uid, time.monotonic()
    if body.get("useNetwork"):
        from svcd.api.remote_search import add_network_answer  # loaded with the first search over a network

        add_network_answer(answer, ctx, indexed, body, request_uid, head)
        return ()
    long_page: list[LongPage] = []
    with tracing.span("search"), answer.reading(ctx, index_uid) as (reader, keep):
        parts = AnswerParts(*ctx.services.search_cache.get(reader.state, asked.cache_key,
                                                   lambda: _run_search(ctx, asked, body, reader, long_page)))
        primary_key = reader.primary_key
        if long_page:
            keep()
    has_metadata = wants_metadata(ctx)
    rest = text_after_hits(ctx, has_metadata, body, parts, milliseconds_since(started), request_uid, index_uid, primary_key)
    answer.add(f'{{{head}"hits":['.encode(), parts.hits)
    for page in long_page:
        answer.add_hits(ctx, page, {index_uid: reader}, index_uid)
    answer.add(rest)
    return parts.headers(has_metadata)


def _run_search(ctx: Context, asked: BearerQuery, body: Mapping[str, Any], reader: Reader, long_page: list[LongPage]
                ) -> tuple[tuple[bytes, ...], bool]:
    """Run one search: (the parts of its answer as a plain tuple, which the cache can send, and may they be cached?).

    long_page: an empty list that receives the hits instead, when there are too many to be formatted at once.
    """
    # Loading these modules takes a fifth of the start time; a daemon that only indexes never needs them.
    from svcd.search.hits import LongPage
    from svcd.search.search import search

    check_sort(body)
    indexed, index_uid, timer = asked.indexed, asked.indexed.index_uid, ctx.timer()
    embedding = SearchEmbedding(ctx.services.embedding, timer) if body.get("hybrid") else None
    # An empty list of facets is the same as none: no facetDistribution in the answer.
    federation = Federation(**page_of(body), facets={index_uid: body["facets"]} if body.get("facets") else {})
    personalize = body.get("personalize")
    ordering = personalize and personalized(ctx, personalize, [body.get("q")], timer, {index_uid: reader})
    found = search({index_uid: reader}, [with_joins_resolved(ctx, indexed, reader)], federation, timer,
                   embedding or no_embedding, ordering)
    if timer.has_run_out:
        ctx.services.traffic.count_search(DEGRADED)
    if isinstance(found.hits, LongPage):
        long_page.append(found.hits)
        return tuple(parts_of((), found, index_uid)), False
    hits = hydrate_hits(ctx, found.hits, {index_uid: reader}, index_uid)
    # Documents of other indexes change without a write to this one. The service may order the hits of the same user differently
    # next time, and each search counts as a call to it.
    is_lasting = not (timer.has_run_out or embedding and embedding.has_failed or has_joins(indexed.query.filter)
                      or reader.settings.foreign_keys or ordering or body.get("showPerformanceDetails"))
    parts = parts_of(hits, found, index_uid)
    return tuple(parts._replace(etag=ctx.etag(reader.state, asked.cache_key).encode()) if is_lasting else parts), is_lasting


def _search(ctx: Context, body: Mapping[str, Any]) -> HandlerResult:
    """Run one query on the index of the path."""
    services, index_uid = ctx.services, ctx.index_uid
    if body.get("personalize") is not None:
        services.traffic.count_search(PERSONALIZED)
    asked = query_of(ctx, index_uid, body)
    check_available(body, services.data_folder.features)
    if not body.get("useNetwork"):  # if its hits are cached, it computes nothing, and takes no slot of the search queue
        started, now = time.monotonic(), services.data_folder.index_state(index_uid)
        has_metadata = wants_metadata(ctx)
        if now is not None and "if-none-match" in ctx.request.headers and not has_metadata:
            ctx.tagged(ctx.etag(now.state, asked.cache_key))
        cached = services.search_cache.peek(now.state, asked.cache_key) if now else None
        if now is not None and cached is not None:
            parts = AnswerParts(*cached)
            rest = text_after_hits(ctx, has_metadata, body, parts, milliseconds_since(started), uuid7(), index_uid,
                                   now.primary_key)
            return HandlerResult(200, Text(b"".join((b'{"hits":[', parts.hits, rest))), parts.headers(has_metadata))
    with ExitStack() as held:
        answer = AnswerBuilder(held)
        with measured(body.get("showPerformanceDetails")), timed_slot(services.searches):
            held.enter_context(index_snapshot(ctx, [index_uid]))
            headers = add_answer(answer, ctx, asked, body, uuid7())
        return HandlerResult(200, Text(answer.body(ctx)), headers)


ROUTES = (
    Route("POST", _PATH, lambda ctx: _search(ctx, ctx.body), "search", {200: "SearchAnswer"}, "Search with a body", _TAG,
          body=Fields(FIELDS, most_values=MAX_SEARCH_VALUES), joins_rules=True, headers=METADATA_HEADERS, etag=OF_STATE),
    Route("GET", _PATH, lambda ctx: _search(ctx, from_query_string(ctx.query)), "search", {200: "SearchAnswer"},
          "Search with a query string", _TAG, query=PARAMS, joins_rules=True, headers=METADATA_HEADERS, etag=OF_STATE),
)
