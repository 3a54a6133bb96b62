"""Federated search: runs several queries and merges their hits into one list (docs/search.md#federation).

For each index in byte order of uid: check that the queries can be merged, run them, merge their lists, count facets; then
merge the lists of all indexes, and cut the page.
"""
from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cmp_to_key
from typing import Any, NamedTuple

from svcd.base import tracing
from svcd.base.docids import DocIds, union_of
from svcd.base.errors import ApiError
from svcd.base.json_text import loads
from svcd.facets.distribution import FacetOrders, Facets, facets_of, subtract
from svcd.facets.fields import check_facets
from svcd.query.reader import Reader
from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit
from svcd.ranking.scores import Detail, GeoSorted, Sorted
from svcd.ranking.sort import SortError, parse_rule
from svcd.search.compatibility import Compatibility, Incompatible, QueryOrder
from svcd.search.hits import (
    LongPage,
    RepeatedValues,
    average_hit_size,
    federation_member,
    is_long,
    page_of_texts,
    plain_documents,
    render_hits,
    reranked,
    without_ranking_hits,
)
from svcd.search.keyword import DistinctFilter, Found
from svcd.search.kinds import Kind, Search
from svcd.search.request import Embed, Federation, IndexedQuery, Reranking, SearchResult, no_embedding
from svcd.search.score_values import Compared, by_score, by_value, compared_values
from svcd.search.search import Timer, count_semantic, cutoff_ms, formatting_timer, ranking_limits, required_hits
from svcd.search.stored_strings import LongStrings

_LOCAL = "execute local search"  # the name of the tracing span


class _NumberedQuery(NamedTuple):
    """A query with its index in the request, from 0."""

    number: int
    indexed: IndexedQuery


class _QueryResult(NamedTuple):
    """What one query found. is_formatting_over: is the time for formatting over?"""

    query: _NumberedQuery
    reader: Reader
    found: Found
    is_formatting_over: Callable[[], bool]

    def hits(self) -> list[MergedHit]:
        """The hits with their merge keys."""
        position, key = self.position, merge_keys(self.query.indexed.weight)
        return [MergedHit(hit, key(hit.details), position, self) for hit in self.found.ranking.hits]

    @property
    def position(self) -> int:
        """The query number that the hits report; it also decides between equal hits."""
        position = self.query.indexed.position
        return self.query.number if position is None else position


def federated(
    read: Callable[[str], Reader], queries: Sequence[IndexedQuery], federation: Federation, timer: Timer,
    embed: Embed = no_embedding, reranking: Reranking | None = None,
) -> SearchResult:
    """Run several queries, and return the requested page of their merged hits.

    read: index uid -> its reader, called once for each index. embed: makes vectors of queries; reranking: orders the hits of the
    page. Raises what read raises, the codes of search parameters, and invalid_multi_search_query_ranking_rules; messages begin
    with the number of the query.
    """
    tracing.begin("partition queries")
    by_index: dict[str, list[_NumberedQuery]] = {}
    for number, indexed in enumerate(queries):
        by_index.setdefault(indexed.index_uid, []).append(_NumberedQuery(number, indexed))
    tracing.end()
    compatibility, facets = Compatibility(), FederatedFacets(federation)
    lists, total = [], 0
    found: list[_QueryResult] = []
    for index_uid in sorted(by_index):
        numbered = by_index[index_uid]
        with _query_error_context(numbered[0].number):
            reader = read(index_uid)
            facets.open(index_uid, reader)
        results = _run_queries(reader, numbered, federation, compatibility, timer, embed)
        found += results
        hits, counted = _merge_index(reader, results, federation)
        with _query_error_context(numbered[0].number), tracing.span(_LOCAL):
            facets.count(index_uid, reader, counted)
        lists.append(hits)
        total += len(counted)
    facets.check_others(by_index, read)
    tracing.begin("merge results")
    first, end = federation.window
    hits, rejected = _split_distinct(merged(lists), federation.distinct if len(lists) > 1 else None)
    _reject(rejected, facets)
    is_semantic = any(each.found.is_semantic for each in found)
    semantic_hits = count_semantic(each.hit for each in hits[first:end]) if is_semantic else None
    if reranking is not None:
        hits = reranked(hits, federation.window, reranking, lambda some: _plain_documents(some, reranking.shows_source))
    return SearchResult(_page(hits[first:end]), federation.pagination(total - len(rejected)), facets.counted, semantic_hits,
                        _query_vectors(found))


def _query_vectors(results: Iterable[_QueryResult]) -> dict[int, array[float]]:
    """Number of a query -> its vector, of those that retrieve vectors."""
    vectors = {each.query.number: each.found.vector for each in results if each.query.indexed.query.retrieve_vectors}
    return {number: vector for number, vector in sorted(vectors.items()) if vector is not None}


def _reject(hits: Iterable[MergedHit], facets: FederatedFacets) -> None:
    for each in hits:
        facets.reject(each.source.query.indexed.index_uid, each.source.reader, each.hit.docid)


@contextmanager
def _query_error_context(number: int) -> Iterator[None]:
    """Errors in this block name the query in their message."""
    try:
        yield
    except ApiError as error:
        raise error.inside(f"Inside `.queries[{number}]`") from None


# One index


@tracing.span(_LOCAL)
def _run_queries(
    reader: Reader, queries: Sequence[_NumberedQuery], federation: Federation, compatibility: Compatibility, timer: Timer,
    embed: Embed,
) -> list[_QueryResult]:
    """Run the queries of one index, in the order of the request."""
    expired, is_formatting_over = timer(cutoff_ms(reader)), formatting_timer(reader, timer)
    results = []
    for each in queries:
        with _query_error_context(each.number):
            wanted = _search_of(reader, each.indexed, federation, embed)
            _check_order(reader, each, wanted.kind, compatibility)
            limits = ranking_limits(reader, wanted.query, federation)
            found = wanted.run(limits, expired, each.indexed.index_uid)
            results.append(_QueryResult(each, reader, found, is_formatting_over))
    return results


def _search_of(reader: Reader, indexed: IndexedQuery, federation: Federation, embed: Embed) -> Search:
    query = indexed.query
    if federation.distinct is not None:
        query = replace(query, distinct=federation.distinct)
    return Search.of(reader, query, embed)


def _check_order(reader: Reader, numbered: _NumberedQuery, kind: Kind, compatibility: Compatibility) -> None:
    """Raise invalid_multi_search_query_ranking_rules, or invalid_search_sort for a wrong sort expression."""
    index_uid, query = numbered.indexed.index_uid, numbered.indexed.query
    rules, is_all = reader.settings.ranking_rules, query.matching_strategy == "all"
    try:
        sort = None if query.sort is None else list(map(parse_rule, query.sort))
        compatibility.add(QueryOrder(numbered.number, index_uid, rules, sort, is_all, bool(query.q), kind is Kind.SEMANTIC))
    except SortError as error:
        raise ApiError("invalid_search_sort", str(error)) from None
    except Incompatible as error:
        raise ApiError("invalid_multi_search_query_ranking_rules", str(error)) from None


@tracing.span(_LOCAL)
def _merge_index(reader: Reader, results: Sequence[_QueryResult], federation: Federation) -> tuple[list[MergedHit], DocIds]:
    """(merged hits of one index, each document once; the documents that any query found, less the hits that `distinct`
    rejected)."""
    hits = _deduplicated(merged(each.hits() for each in results))
    kept, rejected = _split_distinct(hits, federation.distinct, required_hits(reader, federation))
    counted = union_of(each.found.ranking.counted for each in results)
    return kept, counted - DocIds([each.hit.docid for each in rejected])


def _deduplicated(hits: Iterable[MergedHit]) -> Iterator[MergedHit]:
    """The hits without later hits of the same document."""
    seen: set[int] = set()
    for each in hits:
        if each.hit.docid not in seen:
            seen.add(each.hit.docid)
            yield each


# Pages


def _split_distinct(
    hits: Iterable[MergedHit], field: str | None, limit: int | None = None
) -> tuple[list[MergedHit], list[MergedHit]]:
    """(the first `limit` hits that share no value of the field, the hits among them that were rejected)."""
    distinct = None if field is None else DistinctFilter(field)
    kept: list[MergedHit] = []
    rejected: list[MergedHit] = []
    for each in hits:
        if len(kept) == limit:
            break
        is_kept = distinct is None or distinct.accepts(_document(each))
        (kept if is_kept else rejected).append(each)
    return kept, rejected


def _document(merged_hit: MergedHit) -> Mapping[str, Any]:
    (text,) = merged_hit.source.reader.documents([merged_hit.hit.docid])
    document: Mapping[str, Any] = loads(text)
    return document


def _page(hits: Sequence[MergedHit]) -> Sequence[str]:
    """The JSON texts of a page; a long page holds docids and scores only, and is rendered on access."""
    sources: Collection[_QueryResult] = {each.source.query.number: each.source for each in hits}.values()

    def size() -> int:
        return max(average_hit_size(source.reader, source.query.indexed.query) for source in sources)

    long_strings = LongStrings()
    if not is_long(len(hits), size):
        return page_of_texts(_render(hits, long_strings), long_strings)
    docids, scores = array("I", (each.hit.docid for each in hits)), array("d", (each.key.score for each in hits))
    details = RepeatedValues([each.hit.details if _shows_scores(each.source) else () for each in hits])
    light = {each.query.number: each._replace(found=without_ranking_hits(each.found)) for each in sources}
    numbers = array("I", (each.source.query.number for each in hits))

    def hit_at(place: int) -> MergedHit:
        result = light[numbers[place]]
        return MergedHit(Hit(docids[place], details[place]), MergeKey((), scores[place]), result.position, result)

    def render_between(first: int, end: int) -> Sequence[str]:
        long_strings.clear()
        return _render(list(map(hit_at, range(first, end))), long_strings)

    return LongPage(len(hits), size(), render_between, long_strings)


def _shows_scores(result: _QueryResult) -> bool:
    query = result.query.indexed.query
    return query.show_ranking_score or query.show_ranking_score_details


@tracing.span(_LOCAL)
def _render(hits: Sequence[MergedHit], long_strings: LongStrings) -> list[str]:
    """The JSON texts of hits, each rendered by the options of its own query."""
    return _by_query(hits, lambda result, some: render_hits(
        result.reader, result.query.indexed.query, result.found, [each.hit for each in some], result.is_formatting_over,
        long_strings, list(map(_federation_member, some))))


def _plain_documents(hits: Sequence[MergedHit], shows_source: bool) -> list[str]:
    """The documents of hits as a reranking gets them."""
    return _by_query(hits, lambda result, some: plain_documents(
        result.reader, result.query.indexed.query, result.found, [each.hit for each in some],
        list(map(_federation_member, some)) if shows_source else ()))


def _by_query(hits: Sequence[MergedHit], render: Callable[[_QueryResult, Sequence[MergedHit]], Sequence[str]]) -> list[str]:
    """The texts of hits in their order; render: makes those of the hits of one query."""
    places: dict[int, list[int]] = {}  # number of a query -> the places of its hits
    for place, each in enumerate(hits):
        places.setdefault(each.source.query.number, []).append(place)
    texts = [""] * len(hits)
    for among in places.values():
        rendered = render(hits[among[0]].source, [hits[place] for place in among])
        for place, text in zip(among, rendered):
            texts[place] = text
    return texts


def _federation_member(merged_hit: MergedHit) -> str:
    return federation_member(merged_hit.source.query.indexed.index_uid, merged_hit.number, merged_hit.key.score)


# Merge order (docs/search.md#merge-order). Merged lists are compatible, so keys mostly have the same kinds in the same places.

class MergeKey(NamedTuple):
    """What orders a hit among others: entries that are compared one by one, and its weighted score."""

    compared: tuple[Compared, ...]
    score: float


class MergedHit(NamedTuple):
    """A hit of one of the queries.

    number: of the query; decides between equal hits. source: the _QueryResult that it comes from.
    """

    hit: Hit
    key: MergeKey
    number: int
    source: Any


def merge_keys(weight: float) -> Callable[[tuple[Detail, ...]], MergeKey]:
    """A function from score details to merge keys, for the hits of one query; cached, since buckets share their details."""
    known: dict[tuple[Detail, ...], MergeKey] = {}

    def key(details: tuple[Detail, ...]) -> MergeKey:
        found = known.get(details)
        if found is None:
            found = known[details] = MergeKey(compared_values(details, weight), scores.score(details) * weight)
        return found

    return key


def merged(lists: Iterable[Iterable[MergedHit]]) -> Iterator[MergedHit]:
    """Merge sorted lists lazily, best hits first."""
    return heapq.merge(*lists, key=cmp_to_key(_compare_hits))  # type: ignore[arg-type]  # only the sign of the result is used


def _compare_hits(left: MergedHit, right: MergedHit) -> float:
    """Negative if the left hit is better."""
    return compare(left.key, right.key) or left.number - right.number


def compare(left: MergeKey, right: MergeKey) -> float:
    """Negative if the left key is better, positive if the right one is, 0 if they are equal."""
    for mine, other in zip(left.compared, right.compared):
        if not _is_comparable(mine, other):
            # Entries of different kinds: the longer key is better, then the larger score.
            return len(right.compared) - len(left.compared) or right.score - left.score
        order = _COMPARISONS[type(mine)](mine, other)
        if order:
            return order
    return len(right.compared) - len(left.compared)


def _is_comparable(left: Compared, right: Compared) -> bool:
    if type(left) is not type(right):
        return False
    return isinstance(left, float) or left.ascending == right.ascending  # type: ignore[union-attr]  # both are of one type


def _by_distance(left: GeoSorted, right: GeoSorted) -> float:
    """The larger distance is better in both directions, a quirk of the reference engine; no distance is worst."""
    if left.metres is None or right.metres is None:
        return (left.metres is None) - (right.metres is None)
    return by_score(left.metres, right.metres)


_COMPARISONS: dict[type, Callable[[Any, Any], float]] = {float: by_score, Sorted: by_value, GeoSorted: _by_distance}


# Facets (docs/search.md#facets-of-a-federation)


class FederatedFacets:
    """Counts the facets of a federated search, index by index. counted: index uid -> its facets.

    Call open() when an index is opened, count() with the documents found, reject() for each hit that is dropped later.
    """

    def __init__(self, federation: Federation) -> None:
        self.counted: dict[str, Facets] = {}
        self._patterns = federation.facets
        self._orders = FacetOrders() if federation.merges_facets else None

    def open(self, index_uid: str, reader: Reader) -> None:
        """Raises invalid_multi_search_facet_order if merged facets are ordered differently in this index."""
        with _facets_error_context(index_uid):
            self._check_order(index_uid, reader)

    def count(self, index_uid: str, reader: Reader, docids: DocIds) -> None:
        """Count the values of the documents that the queries of an index found. Raises invalid_search_facets."""
        patterns = self._patterns.get(index_uid)
        if patterns is not None:
            with _facets_error_context(index_uid):
                self.counted[index_uid] = facets_of(reader, patterns, docids)

    def reject(self, index_uid: str, reader: Reader, docid: int) -> None:
        """Subtract the values of a document that was counted, but rejected by distinct."""
        if index_uid in self.counted:
            subtract(self.counted[index_uid], reader, docid)

    def check_others(self, opened: Mapping[str, Any], read: Callable[[str], Reader]) -> None:
        """Check the facets of indexes without a query; such an index must exist too. Raises as open() and count()."""
        for index_uid in sorted(self._patterns.keys() - opened.keys()):
            with _facets_error_context(index_uid, f"\n - Note: index `{index_uid}` is not used in queries"):
                reader = read(index_uid)
                self._check_order(index_uid, reader)
                check_facets(reader.settings, self._patterns[index_uid] or ())

    def _check_order(self, index_uid: str, reader: Reader) -> None:
        if self._orders is not None:
            for pattern in self._patterns.get(index_uid) or ():
                self._orders.add(index_uid, pattern, reader.settings.faceting.order_of(pattern))


@contextmanager
def _facets_error_context(index_uid: str, note: str = "") -> Iterator[None]:
    """Errors in this block name the facets of the index in their message."""
    try:
        yield
    except ApiError as error:
        located = error.inside(f"Inside `.federation.facetsByIndex.{index_uid}`")
        located.message += note
        raise located from None
