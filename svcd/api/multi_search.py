"""The multi-search route: several searches in one request, answered separately or merged into one list.

Checks the request in a fixed order: permissions of all queries, then per query its filter, members that only the
federation may have, remotes, parameters that are not supported. Merging is in svcd.search.federation.
"""
from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from svcd.api.admission import REQUEST_S, Timer
from svcd.api.answers import (
    METADATA_HEADERS, AnswerBuilder, facet_members, measured, metadata, semantic_members, shown_vector, timed_slot, uuid7,
    wants_metadata,
)
from svcd.api.context import ANSWER_MEMORY, Context
from svcd.api.filters import has_joins, hydrate_hits, index_snapshot
from svcd.api.routes import Fields, HandlerResult, Route, Text
from svcd.api.search import add_answer
from svcd.api.search_parameters import FIELDS, PAGE_FIELDS, check_available, page_of, personalized, query_of, with_joins_resolved
from svcd.api.search_services import SearchEmbedding
from svcd.api.traffic import DEGRADED
from svcd.base import tracing
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.base.quantities import message_size
from svcd.facets.distribution import merged_facets
from svcd.search.request import Federation, IndexedQuery, SearchResult
from svcd.validation import (
    ABSENT, Field, array_of, bounds, index_uid, map_of, nullable, number, object_of, parsed, positive_integer, string,
)
from svcd.validation.names import parse_index_uid, require_feature

if TYPE_CHECKING:
    from svcd.api.remote_search import NetworkSearch
    from svcd.index.reader import IndexReader as Reader

T = TypeVar("T")
R = TypeVar("R")

Query = Mapping[str, Any]

# More queries than a page sends: few such requests run at once.
MANY = 16
# Bytes of the answers to all queries of a request, without the long pages, which are made while the client reads them.
MAX_ANSWER = ANSWER_MEMORY // 2


def _weight(value: float) -> float:
    if value >= 0.0:
        return value
    raise ValueError("the value of `weight` is invalid, expected a positive float (>= 0.0).")


_FEDERATION_OPTIONS = object_of({
    "weight": Field(parsed(number, _weight), "invalid_multi_search_weight", default=1.0,
                    about="Factor on the ranking scores of this query."),
    "remote": Field(nullable(string), "invalid_multi_search_remote"),
    "queryPosition": Field(nullable(positive_integer), "invalid_multi_search_query_position"),
})
# Without the defaults that a single search has: in a federation, giving these members at all is an error.
_QUERY = object_of({
    "indexUid": Field(index_uid, "invalid_index_uid", required=True, missing_code="missing_index_uid"),
    **FIELDS,
    **{name: FIELDS[name]._replace(check=nullable(FIELDS[name].check), default=ABSENT)
       for name in ("offset", "limit", "showPerformanceDetails")},
    "federationOptions": Field(nullable(_FEDERATION_OPTIONS), "invalid_multi_search_federation_options"),
})


def _by_index_uid(by_index: Mapping[str, Any]) -> Mapping[str, Any]:
    for uid in by_index:
        parse_index_uid(uid)
    return by_index


_FEDERATION = object_of({
    **{name: FIELDS[name] for name in ("limit", "offset", "page", "hitsPerPage")},
    "facetsByIndex": Field(parsed(map_of(nullable(array_of(string))), _by_index_uid), "invalid_multi_search_facets_by_index",
                           about="Index uid -> patterns of the facets to count."),
    "mergeFacets": Field(nullable(object_of({
        "maxValuesPerFacet": Field(nullable(positive_integer), "invalid_multi_search_max_values_per_facet"),
    })), "invalid_multi_search_merge_facets"),
    "distinct": FIELDS["distinct"]._replace(about="Attribute whose values the merged hits show once each."),
    **{name: FIELDS[name] for name in ("showPerformanceDetails", "personalize")},
})

_BODY = Fields({
    "queries": Field(array_of(_QUERY, bound=bounds.QUERIES), required=True),
    "federation": Field(nullable(_FEDERATION), about="Merge the results into one list."),
})


def _inside(place: int, check: Callable[[], R]) -> R:
    """The result of `check`; the position of the query is put before the message of its errors."""
    try:
        return check()
    except ApiError as error:
        raise error.inside(f"Inside `.queries[{place}]`") from None


def _each(queries: Iterable[T], check: Callable[[T], R]) -> list[R]:
    """The results of a check for each query, in their order."""
    return [_inside(place, partial(check, query)) for place, query in enumerate(queries)]


# Separate answers


def _separate(answer: AnswerBuilder, ctx: Context, queries: Sequence[Query]) -> None:
    request_uid = uuid7()
    asked = _each(queries, lambda query: query_of(ctx, query["indexUid"], query))  # all filters are parsed before any search runs
    answer.add(b'{"results":[')
    for place, (query, each) in enumerate(zip(queries, asked)):
        ctx.services.searches.yield_turn()
        answer.add(b"," if place else b"")
        try:
            if query.get("federationOptions") is not None:
                raise ApiError("invalid_multi_search_federation_options",
                               "Using `federationOptions` is not allowed in a non-federated search.\n"
                               " - Hint: remove `federationOptions` from the query or add `federation` to the request.")
            check_available(query, ctx.services.data_folder.features)
            with measured(query.get("showPerformanceDetails")):
                add_answer(answer, ctx, each, query, request_uid, f'"indexUid":{dumps(each.indexed.index_uid)},')
        except ApiError as error:
            raise error.inside(f"Inside `.queries[{place}]`") from None
        if answer.size > MAX_ANSWER:
            raise ApiError("bad_request", f"The answers to the first {place + 1} of {len(queries)} queries have more than "
                                          f"{message_size(MAX_ANSWER)}: lower `limit` or `attributesToRetrieve`, or send fewer "
                                          "queries at once.")
    answer.add(b"]}")


# Merged answers


def _refusal(option: str, member: str, *hints: str) -> str:
    """The message for an option that only the whole request may set, not one of its queries."""
    first = f"remove `{member}` from the query or remove `federation` from the request"
    lines = [f"Using {option} is not allowed in federated queries.", f" - Hint: {first}", *hints]
    return "\n".join(lines)


def _check_separate(query: Query, has_distinct: bool) -> None:
    """Reject members of a query that only the federation as a whole may set."""
    given = [name for name in PAGE_FIELDS if query.get(name) is not None]
    if given:
        raise ApiError("invalid_multi_search_query_pagination", _refusal(
            "pagination options", given[0],
            " - Hint: pass `federation.limit` and `federation.offset` for pagination in federated search"))
    if query.get("facets"):
        listed = json.dumps(query["facets"], ensure_ascii=False)
        raise ApiError("invalid_multi_search_query_facets", _refusal(
            "facet options", "facets",
            f" - Hint: pass `federation.facetsByIndex.{query['indexUid']}: {listed}` for facets in federated search"))
    if query.get("personalize") is not None:
        raise ApiError("invalid_multi_search_query_personalization", _refusal(
            "`.personalize`", "personalize", " - Hint: pass `federation.personalize` for personalization in federated search"))
    if query.get("useNetwork") and _options(query).get("remote") is not None:
        raise ApiError("invalid_multi_search_federation_options",
                       "Using `.useNetwork` is not allowed as the same time as `.federationOptions.remote`.\n"
                       "  - Hint: to perform an explicit query against a remote, remove `.useNetwork`.\n"
                       "  - Hint: to automatically perform queries against the entire network, remove "
                       "`.federationOptions.remote`.")
    if query.get("showPerformanceDetails") is not None:
        raise ApiError("invalid_multi_search_query_show_performance_details",
                       _refusal("`.showPerformanceDetails`", "showPerformanceDetails"))
    if has_distinct and query.get("distinct") is not None:
        raise ApiError("invalid_multi_search_distinct",
                       "Using `distinct` options is not allowed in federated queries when it also appears in "
                       "`.federation.distinct`.\n - Hint: remove `distinct` from the query or remove `federation` from the "
                       "request\n  - Note: `distinct` at the query level is discouraged in federated search.")


_REMOTE_SEARCH = "Performing a remote federated search"


def _options(query: Query) -> Mapping[str, Any]:
    return query.get("federationOptions") or {}


def _check_remote(ctx: Context, query: Query) -> None:
    """Raise feature_not_enabled, and invalid_multi_search_remote for an unknown name."""
    remote, position = _options(query).get("remote"), _options(query).get("queryPosition")
    if remote is not None:
        require_feature(ctx.services.data_folder.features(), "network", _REMOTE_SEARCH)
        network = ctx.services.data_folder.network()
        if remote != network.self_name and remote not in network.remotes:
            raise ApiError("invalid_multi_search_remote",
                           f"Invalid `.federation_options.remote`: remote `{remote}` is not registered")
    if position is not None:
        require_feature(ctx.services.data_folder.features(), "network", "Using `federationOptions.queryPosition`")


def _network_search(ctx: Context, queries: Sequence[Query], asked: Sequence[IndexedQuery], given: Mapping[str, Any],
                    federation: Federation, timer: Timer) -> NetworkSearch | None:
    """Start the calls to other instances; None if no query uses the network."""
    if not any(query.get("useNetwork") or _options(query).get("remote") is not None for query in queries):
        return None
    from svcd.api.remote_search import NetworkQuery, NetworkSearch  # loaded with the first search over a network

    several = [NetworkQuery(query, indexed, _options(query).get("remote")) for query, indexed in zip(queries, asked)]
    passed_on = {"showPerformanceDetails": bool(given.get("showPerformanceDetails")), "personalize": given.get("personalize")}
    return NetworkSearch(ctx, several, federation, timer, passed_on)


def _opened(ctx: Context, index_uid: str, stack: ExitStack) -> Reader:
    return stack.enter_context(ctx.read(index_uid))


def _checked_queries(ctx: Context, queries: Sequence[Query], has_distinct: bool) -> list[IndexedQuery]:
    """The queries of a federation, checked in the order that clients expect, with their joins resolved.

    has_distinct: the federation as a whole has `distinct`.
    """
    if ctx.is_proxied:
        require_feature(ctx.services.data_folder.features(), "network", _REMOTE_SEARCH)
    asked = _each(queries, lambda query: query_of(ctx, query["indexUid"], query, _options(query).get("weight", 1.0),
                                                  _options(query).get("queryPosition")).indexed)
    _each(queries, lambda query: _check_separate(query, has_distinct))
    _each(queries, lambda query: _check_remote(ctx, query))
    _each(queries, lambda query: check_available(query, ctx.services.data_folder.features))
    for place, each in enumerate(asked):
        if has_joins(each.query.filter):
            with ExitStack() as stack:
                reader = _inside(place, partial(_opened, ctx, each.index_uid, stack))
                asked[place] = with_joins_resolved(ctx, each, reader)  # its errors do not name the query: clients expect that
    return asked


@tracing.span("search")
def _run_federation(answer: AnswerBuilder, ctx: Context, queries: Sequence[Query],
                    federation: Mapping[str, Any]) -> dict[str, Any]:
    """Append the hits, and return the other members of the answer."""
    from svcd.search.federation import federated  # lazily, as in svcd.api.search
    from svcd.search.hits import LongPage

    started = time.monotonic()
    asked = _checked_queries(ctx, queries, federation.get("distinct") is not None)
    timer = ctx.timer()
    wanted = Federation(**page_of(federation), distinct=federation.get("distinct"), facets=federation.get("facetsByIndex") or {},
                        merges_facets=federation.get("mergeFacets") is not None, is_proxied=ctx.is_proxied)
    network = _network_search(ctx, queries, asked, federation, wanted, timer)
    readers: dict[str, Reader] = {}
    with ExitStack() as stack:

        def read(uid: str) -> Reader:
            readers[uid] = _opened(ctx, uid, stack)
            return readers[uid]

        # If another instance sends the request, that instance orders the hits for the user.
        personalize = None if wanted.is_proxied else federation.get("personalize")
        ordering = personalize and personalized(ctx, personalize, [query.get("q") for query in queries], timer, readers)
        embedding = SearchEmbedding(ctx.services.embedding, timer)
        local, remotes = (asked, None) if network is None else (network.local, network.remotes)
        found = federated(read, local, wanted, timer, embedding, remotes, ordering)
        if timer.has_run_out:
            ctx.services.traffic.count_search(DEGRADED)
        hydrated = {} if wanted.is_proxied else readers  # the calling instance adds documents of other indexes
        primary_keys = {uid: reader.primary_key for uid, reader in readers.items()}
        if isinstance(found.hits, LongPage):
            answer.add_hits(ctx, found.hits, hydrated)
            for reader in readers.values():
                stack.callback(reader.close)
            answer.held.push(stack.pop_all())
        else:
            answer.add(",".join(hydrate_hits(ctx, found.hits, hydrated)).encode())
    members = _members_beside_hits(found, queries, federation)
    elapsed_s = time.monotonic() - started
    members["processingTimeMs"] = int(elapsed_s * 1000) if network is None else network.milliseconds(elapsed_s)
    if ctx.services.query_log is not None and not wanted.is_proxied:
        total = found.pagination.get("estimatedTotalHits", found.pagination.get("totalHits", 0))
        for query in queries:
            ctx.services.query_log.note(members["requestUid"], query["indexUid"], query.get("q"), total,
                                        members["processingTimeMs"], ctx.permission.key_uid, ctx.person)
    if wants_metadata(ctx):
        members["metadata"] = [_metadata(query, primary_keys, network) for query in queries]
    if network is not None:
        members.update(network.error_members())
    return {**members, **semantic_members(found)}


def _members_beside_hits(found: SearchResult, queries: Sequence[Query], federation: Mapping[str, Any]) -> dict[str, Any]:
    """The members that do not depend on where the search ran. The caller sets the time, whose place is among them."""
    vectors = {str(number): shown_vector(vector) for number, vector in found.query_vectors.items()}
    are_retrieved = any(query.get("retrieveVectors") for query in queries)
    merge, counts = federation.get("mergeFacets"), dict[str, Any]()
    if found.facets and merge is not None:
        tracing.begin("merge facets")
        counts = facet_members(merged_facets(found.facets.values(), merge.get("maxValuesPerFacet")))
    elif found.facets:
        counts["facetsByIndex"] = {uid: {"distribution": own.distribution, "stats": own.stats}
                                   for uid, own in found.facets.items()}
    return {
        **({"queryVectors": vectors} if are_retrieved else {}), "processingTimeMs": 0, **found.pagination, **counts,
        "requestUid": uuid7(),
    }


def _metadata(query: Query, primary_keys: Mapping[str, str | None], network: NetworkSearch | None) -> dict[str, str]:
    """The metadata of one query. primary_keys: of the indexes that this instance has searched."""
    index_uid, text = query["indexUid"], query.get("q")
    if network is None:
        return metadata(text, index_uid, primary_keys[index_uid])
    remote = _options(query).get("remote")
    return metadata(text, index_uid, network.primary_key(index_uid, remote, primary_keys), network.shown_name(remote))


def multi_search_with_post(ctx: Context) -> HandlerResult:
    """Run all queries. They share one slot of the search queue, and yield it to other searches between queries."""
    queries, federation = ctx.body["queries"], ctx.body.get("federation")
    is_measured = federation.get("showPerformanceDetails") if federation is not None else any(
        query.get("showPerformanceDetails") for query in queries)
    with ExitStack() as held:
        answer = AnswerBuilder(held, ctx.services.answer_memory)
        with measured(is_measured), timed_slot(ctx.services.searches, len(queries) > MANY):
            tracing.end()
            _each(queries, lambda query: ctx.permission.require(query["indexUid"]))
            by_index = (federation or {}).get("facetsByIndex") or {}
            # Facets of an index without a query would count nothing, but their errors would reveal the index and its attributes.
            for uid in sorted(by_index):
                try:
                    ctx.permission.require(uid)
                except ApiError as error:
                    raise error.inside(f"Inside `.federation.facetsByIndex.{uid}`") from None
            ctx.search_until = time.monotonic() + REQUEST_S
            held.enter_context(index_snapshot(ctx, [*(query["indexUid"] for query in queries), *by_index]))
            if federation is None:
                _separate(answer, ctx, queries)
            else:
                answer.add(b'{"hits":[')
                answer.end(_run_federation(answer, ctx, queries, federation))
        return HandlerResult(200, Text(answer.body(ctx)))


ROUTES = (
    Route("POST", "/multi-search", multi_search_with_post, "search", {200: "MultiSearchAnswer"},
          "Several searches at once, each for itself or merged", "Multi-search", body=_BODY, joins_rules=True,
          headers=METADATA_HEADERS),
)
