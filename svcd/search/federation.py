"""Run a federated search: several queries, with their hits merged into one list (docs/search.md#federation).

For each index in byte order of uid: check that the queries can be merged, run them, merge their lists, count facets; then
wait for remotes, merge the lists of all indexes and remotes, and cut the page.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from svcd.base import tracing
from svcd.base.docids import DocIds, union_of
from svcd.base.errors import ApiError
from svcd.query.reader import Reader
from svcd.ranking.sort import SortError, parse_rule
from svcd.search.compatibility import Compatibility, Incompatible, QueryOrder
from svcd.search.federated_facets import FederatedFacets
from svcd.search.federated_page import LOCAL, FederatedPage, MergedHit, NumberedQuery, QueryResult
from svcd.search.hits import reranked
from svcd.search.keyword import DistinctFilter
from svcd.search.merge_order import merged
from svcd.search.request import Embed, Federation, IndexedQuery, Reranking, SearchResult, no_embedding
from svcd.search.search import Kind, Search, Timer, ranking_limits, required_hits, start_clocks

if TYPE_CHECKING:
    from svcd.search.remote_hits import RemoteHit, RemoteResult, Remotes

# The most hits that the queries of a request may rank together, because all are held until they are merged. A single query of
# each index is always allowed.
MAX_RANKED = 200_000

H = TypeVar("H", bound="MergedHit | RemoteHit")


def federated(
    read: Callable[[str], Reader], queries: Sequence[IndexedQuery], federation: Federation, timer: Timer,
    embed: Embed = no_embedding, remotes: Remotes | None = None, reranking: Reranking | None = None,
) -> SearchResult:
    """Run several queries, and return the requested page of their merged hits.

    read: index uid -> its reader, called once for each index. embed: makes vectors of queries. remotes: may be None.
    reranking: orders the hits of the page, except pins. Raises the errors of `read`, the codes of search parameters, and
    invalid_multi_search_query_ranking_rules; messages begin with the number of the query.
    """
    tracing.begin("partition queries")
    by_index: dict[str, list[NumberedQuery]] = {}
    for number, indexed in enumerate(queries):
        by_index.setdefault(indexed.index_uid, []).append(NumberedQuery(number, indexed))
    tracing.end()
    compatibility, facets = Compatibility(), FederatedFacets(federation)
    lists: list[Sequence[MergedHit | RemoteHit]] = []
    found: list[QueryResult] = []
    total = ranked = 0
    for index_uid in sorted(by_index):
        numbered = by_index[index_uid]
        with _error_context(numbered[0], federation):
            reader = read(index_uid)
            facets.open(index_uid, reader)
        ranked += len(numbered) * required_hits(reader, federation)
        if ranked > MAX_RANKED and len(numbered) > 1:
            raise ApiError("invalid_search_limit", (
                f"The queries together rank more than {MAX_RANKED} hits: each ranks those up to the end of the page. Lower "
                "`limit` and `offset` (or `page` and `hitsPerPage`) of `.federation`, or send fewer queries at once."))
        results = _run_queries(reader, numbered, federation, compatibility, timer, embed)
        found += results
        hits, counted = _merge_index(reader, results, federation)
        with _error_context(numbered[0], federation), tracing.span(LOCAL):
            facets.count(index_uid, reader, counted)
        lists.append(hits)
        total += len(counted)
    facets.check_others(by_index, read)
    remote_results = [] if remotes is None else remotes.wait()
    tracing.begin("merge results")
    facets.add_remote(each.facets for each in remote_results)
    lists += [each.hits for each in remote_results]
    kept, rejected = _split_distinct(merged(lists), federation.distinct if len(lists) > 1 else None)
    for hit in rejected:
        _reject(hit, facets)
    first, end = federation.window
    pins: list[tuple[int, MergedHit | RemoteHit]] = [pin for each in found for pin in each.pins()]
    pins += [pin for each in remote_results for pin in each.pins()]
    pages = FederatedPage(federation, remotes)
    if reranking is not None:
        kept = reranked(kept, federation.window, reranking, lambda some: pages.plain_documents(some, reranking.shows_source))
    if pins:
        from svcd.search.pins import by_position, placed  # imported late: few instances use search rules

        kept = placed(kept, by_position(pins), end)
    page = kept[first:end]
    total += sum(each.total for each in remote_results) - len(rejected)
    semantic_hits = sum(hit.is_semantic for hit in page) if any(each.found.is_semantic for each in found) else None
    return SearchResult(pages.texts(page), federation.pagination(total), facets.counted, semantic_hits,
                        _query_vectors(found, remote_results))


def _query_vectors(results: Iterable[QueryResult], remotes: Iterable[RemoteResult]) -> Mapping[int, Sequence[float]]:
    """Return query number -> its vector, for queries that retrieve vectors."""
    vectors: dict[int, Sequence[float]] = {number: vector for each in remotes for number, vector in each.query_vectors.items()}
    for each in results:
        if each.query.indexed.query.retrieve_vectors and each.found.vector is not None:
            vectors[each.query.position] = each.found.vector
    return dict(sorted(vectors.items()))


@contextmanager
def _error_context(query: NumberedQuery, federation: Federation) -> Iterator[None]:
    """Name the query in the messages of errors in this block, unless it is a single search."""
    try:
        yield
    except ApiError as error:
        raise error if federation.is_single else error.inside(f"Inside `.queries[{query.position}]`") from None


# One index


@tracing.span(LOCAL)
def _run_queries(
    reader: Reader, queries: Sequence[NumberedQuery], federation: Federation, compatibility: Compatibility, timer: Timer,
    embed: Embed,
) -> list[QueryResult]:
    """Run the queries of one index, in the order of the request."""
    expired, budget = start_clocks(reader, timer)
    results = []
    for numbered in queries:
        with _error_context(numbered, federation):
            indexed, query = numbered.indexed, numbered.indexed.query
            if federation.distinct is not None:
                query = replace(query, distinct=federation.distinct)
            wanted = Search.of(reader, query, embed)
            try:
                sort = None if query.sort is None else list(map(parse_rule, query.sort))
                compatibility.add(QueryOrder(
                    numbered.position, indexed.index_uid, reader.settings.ranking_rules, sort,
                    query.matching_strategy == "all", bool(query.q), wanted.kind is Kind.SEMANTIC))
            except SortError as error:
                raise ApiError("invalid_search_sort", str(error)) from None
            except Incompatible as error:
                raise ApiError("invalid_multi_search_query_ranking_rules", str(error)) from None
            found = wanted.run(ranking_limits(reader, query, federation), expired, indexed.index_uid)
            results.append(QueryResult(numbered, reader, found, budget))
    return results


@tracing.span(LOCAL)
def _merge_index(reader: Reader, results: Sequence[QueryResult], federation: Federation) -> tuple[list[MergedHit], DocIds]:
    """Merge the hits of one index, each document once.

    Returns (the hits; the documents that any query found, less the hits that `distinct` rejected).
    """
    hits = _deduplicated(merged(each.hits() for each in results))
    kept, rejected = _split_distinct(hits, federation.distinct, required_hits(reader, federation))
    counted = union_of(each.found.ranking.counted for each in results)
    return kept, counted - DocIds([each.hit.docid for each in rejected])


def _deduplicated(hits: Iterable[MergedHit]) -> Iterator[MergedHit]:
    """Yield the hits without later hits of the same document."""
    seen: set[int] = set()
    for each in hits:
        if each.hit.docid not in seen:
            seen.add(each.hit.docid)
            yield each


# All lists


def _reject(hit: MergedHit | RemoteHit, facets: FederatedFacets) -> None:
    """Subtract a hit that `distinct` rejected from the facets."""
    if isinstance(hit, MergedHit):
        facets.reject(hit.source.query.indexed.index_uid, hit.source.reader, hit.hit.docid)
    else:
        facets.reject_remote(hit.index_uid, hit.parts())


def _split_distinct(hits: Iterable[H], field: str | None, limit: int | None = None) -> tuple[list[H], list[H]]:
    """Split hits into (the first `limit` hits that share no value of the field, the hits among them that were rejected)."""
    distinct = None if field is None else DistinctFilter(field)
    kept: list[H] = []
    rejected: list[H] = []
    for each in hits:
        if len(kept) == limit:
            break
        is_kept = distinct is None or distinct.accepts(each.parts())
        (kept if is_kept else rejected).append(each)
    return kept, rejected
