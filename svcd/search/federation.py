"""Many queries, one list: what each of them finds in its index, merged by how well it stands.

Knows relevance.md 10.2 to 10.5: the order of the work, which hits of which query are seen, and how they are
counted; refuses to know how one query finds its documents, how hits compare, what facets show, and that there are
other instances.
"""
from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cmp_to_key, reduce
from itertools import groupby
from operator import or_
from typing import Any, NamedTuple

from svcd.base import tracing
from svcd.base.bitmaps import DocIds, from_docids
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, loads
from svcd.facets.distribution import facets_of, subtract
from svcd.facets.fields import check_facets
from svcd.facets.merging import FacetOrders, Facets
from svcd.query.reader import Reader, Value
from svcd.query.sort_expressions import SortError, parse_rule
from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit
from svcd.ranking.scores import Detail, GeoSorted, Sorted
from svcd.search.compatibility import Compatibility, Incompatible, Ordered
from svcd.search.distinct import DistinctFilter
from svcd.search.hits import render_hits
from svcd.search.keyword import KeywordResult
from svcd.search.long_pages import LongPage, RepeatedValues, is_long, without_hits
from svcd.search.request import Federation, IndexedQuery, SearchResult
from svcd.search.search import Timer, cutoff_ms, ranking_limits, required_hits, search_one_index, showing_timer

_LOCAL = "execute local search"  # as opposed to that of other instances


class _Asked(NamedTuple):
    """A query with its place in the request, from 0."""

    number: int
    indexed: IndexedQuery


class _Results(NamedTuple):
    """What one query found."""

    asked: _Asked
    reader: Reader
    found: KeywordResult
    is_late: Callable[[], bool]  # for formatting

    def hits(self) -> list[MergedHit]:
        """The hits, ready to be merged."""
        position, standing = self.position, merge_keys(self.asked.indexed.weight)
        return [MergedHit(hit, standing(hit.details), position, self) for hit in self.found.ranking.hits]

    @property
    def position(self) -> int:
        """The number that the hits show, which also decides between equal ones."""
        position = self.asked.indexed.position
        return self.asked.number if position is None else position


def federated(
    read: Callable[[str], Reader], queries: Sequence[IndexedQuery], federation: Federation, timer: Timer
) -> SearchResult:
    """The wanted page of the merged list.

    read: index uid -> its reader, asked for once for each index. Raises what it raises, what an index refuses of a
    query, and invalid_multi_search_query_ranking_rules; the place of the query in the request opens the message.
    """
    tracing.begin("partition queries")
    by_index: dict[str, list[_Asked]] = {}
    for number, indexed in enumerate(queries):
        by_index.setdefault(indexed.index_uid, []).append(_Asked(number, indexed))
    tracing.end()
    compatibility, facets = Compatibility(), FederatedFacets(federation)
    lists, total = [], 0
    for index_uid in sorted(by_index):
        asked = by_index[index_uid]
        with _inside(asked[0].number):
            reader = read(index_uid)
            facets.open(index_uid, reader)
        results = _results(reader, asked, federation, compatibility, timer)
        hits, counted = _of_index(reader, results, federation)
        with _inside(asked[0].number), tracing.span(_LOCAL):
            facets.count(index_uid, reader, counted)
        lists.append(hits)
        total += counted.bit_count()
    facets.check_others(by_index, read)
    tracing.begin("merge results")
    first, end = federation.window()
    hits, rejected = _apart(merged(lists), federation.distinct if len(lists) > 1 else None)
    _reject(rejected, facets)
    return SearchResult(_page(hits[first:end]), federation.pagination(total - len(rejected)), facets.counted)


def _reject(hits: Iterable[MergedHit], facets: FederatedFacets) -> None:
    for each in hits:
        facets.reject(each.within.asked.indexed.index_uid, each.within.reader, each.hit.docid)


@contextmanager
def _inside(number: int) -> Iterator[None]:
    """What is refused in this block is told of one query."""
    try:
        yield
    except ApiError as error:
        raise error.inside(f"Inside `.queries[{number}]`") from None


# one index


@tracing.span(_LOCAL)
def _results(
    reader: Reader, asked: Sequence[_Asked], federation: Federation, compatibility: Compatibility, timer: Timer
) -> list[_Results]:
    """What the queries of one index find, in the order of the request."""
    expired, is_late = timer(cutoff_ms(reader)), showing_timer(reader, timer)
    results = []
    for each in asked:
        with _inside(each.number):
            _check_order(reader, each, compatibility)
            results.append(_Results(each, reader, _found(reader, each.indexed, federation, expired), is_late))
    return results


def _check_order(reader: Reader, asked: _Asked, compatibility: Compatibility) -> None:
    """Raise invalid_multi_search_query_ranking_rules, and invalid_search_sort for what is no sort expression."""
    index_uid, query = asked.indexed.index_uid, asked.indexed.query
    rules, is_all = reader.settings.ranking_rules, query.matching_strategy == "all"
    try:
        sort = None if query.sort is None else list(map(parse_rule, query.sort))
        compatibility.add(Ordered(asked.number, index_uid, rules, sort, is_all, bool(query.q)))
    except SortError as error:
        raise ApiError("invalid_search_sort", str(error)) from None
    except Incompatible as error:
        raise ApiError("invalid_multi_search_query_ranking_rules", str(error)) from None


def _found(reader: Reader, indexed: IndexedQuery, federation: Federation, expired: Callable[[], bool]) -> KeywordResult:
    query = indexed.query
    if federation.distinct is not None:
        query = replace(query, distinct=federation.distinct)
    return search_one_index(indexed.index_uid, reader, query, ranking_limits(reader, query, federation), expired)


@tracing.span(_LOCAL)
def _of_index(reader: Reader, results: Sequence[_Results], federation: Federation) -> tuple[list[MergedHit], DocIds]:
    """The best hits of one index, each document once; and the documents that any of its queries found, but for those
    among the best that `distinct` leaves out."""
    hits = _each_once(merged(each.hits() for each in results))
    kept, rejected = _apart(hits, federation.distinct, required_hits(reader, federation))
    counted = reduce(or_, (each.found.ranking.counted for each in results))
    return kept, counted & ~from_docids([each.hit.docid for each in rejected])


def _each_once(hits: Iterable[MergedHit]) -> Iterator[MergedHit]:
    """Of a document that several queries found, the best hit."""
    seen: set[int] = set()
    for each in hits:
        if each.hit.docid not in seen:
            seen.add(each.hit.docid)
            yield each


# lists


def _apart(
    hits: Iterable[MergedHit], field: str | None, limit: int | None = None
) -> tuple[list[MergedHit], list[MergedHit]]:
    """The first hits that share no value of a field, and those before them that do (10.5)."""
    apart = None if field is None else DistinctFilter(field)
    kept: list[MergedHit] = []
    rejected: list[MergedHit] = []
    for each in hits:
        if len(kept) == limit:
            break
        is_kept = apart is None or apart.takes(_document(each))
        (kept if is_kept else rejected).append(each)
    return kept, rejected


def _document(merged_hit: MergedHit) -> Mapping[str, Any]:
    (text,) = merged_hit.within.reader.documents([merged_hit.hit.docid])
    document: Mapping[str, Any] = loads(text)
    return document


def _page(hits: Sequence[MergedHit]) -> Sequence[str]:
    """The JSON texts of the hits of a page. Of a long one little is held until it is shown."""
    readers: Collection[Reader] = {id(each.within.reader): each.within.reader for each in hits}.values()

    def size() -> int:
        return max(reader.average_document_size() for reader in readers)

    if not is_long(len(hits), size):
        return _shown(hits)
    docids, scores = array("I", (each.hit.docid for each in hits)), array("d", (each.standing.score for each in hits))
    details = RepeatedValues([each.hit.details if _shows_scores(each.within) else () for each in hits])
    within = {each.within.asked.number: each.within._replace(found=without_hits(each.within.found)) for each in hits}
    numbers = array("I", (each.within.asked.number for each in hits))

    def made(place: int) -> MergedHit:
        results = within[numbers[place]]
        return MergedHit(Hit(docids[place], details[place]), MergeKey((), scores[place]), results.position, results)

    return LongPage(len(hits), size(), lambda first, end: _shown(list(map(made, range(first, end)))))


def _shows_scores(results: _Results) -> bool:
    query = results.asked.indexed.query
    return query.show_ranking_score or query.show_ranking_score_details


@tracing.span(_LOCAL)
def _shown(hits: Sequence[MergedHit]) -> list[str]:
    """The JSON texts of the hits, each as its own query wants it."""
    places: dict[int, list[int]] = {}  # number of a query: the places of its hits
    for place, each in enumerate(hits):
        places.setdefault(each.within.asked.number, []).append(place)
    texts = [""] * len(hits)
    for among in places.values():
        results = hits[among[0]].within
        found = render_hits(results.reader, results.asked.indexed.query, results.found, [hits[place].hit for place in among],
                      results.is_late, [_origin(hits[place]) for place in among])
        for place, text in zip(among, found):
            texts[place] = text
    return texts


def _origin(merged_hit: MergedHit) -> str:
    """The member that tells which query found the hit, and how well it stands."""
    origin = {"indexUid": merged_hit.within.asked.indexed.index_uid, "queriesPosition": merged_hit.number,
              "weightedRankingScore": merged_hit.standing.score}
    return dumps({"_federation": origin})[1:-1]


# Hits of several lists in one order: how two of them compare, and lists that are merged by that.
#
# Knows relevance.md 10.4; refuses to know where lists come from. Two lists that are merged are compatible
# (`compatibility`), so that their hits mostly have values of the same kinds in the same places.


_EPSILON = 2.0 ** -52

# A weighted score, the value of a field or a distance.
Compared = float | Sorted | GeoSorted


class MergeKey(NamedTuple):
    """Where a hit stands: what is compared, place by place, and the weighted score of all of it."""

    compared: tuple[Compared, ...]
    score: float


class MergedHit(NamedTuple):
    """A hit of one of the queries.

    number: of the query; decides between equal hits. within: the query's own results, for those who show the hit.
    """

    hit: Hit
    standing: MergeKey
    number: int
    within: Any


def merge_keys(weight: float) -> Callable[[tuple[Detail, ...]], MergeKey]:
    """details -> standing, for the hits of one query; hits of one bucket share it."""
    known: dict[tuple[Detail, ...], MergeKey] = {}

    def standing(details: tuple[Detail, ...]) -> MergeKey:
        found = known.get(details)
        if found is None:
            found = known[details] = MergeKey(_compared(details, weight), scores.score(details) * weight)
        return found

    return standing


def _compared(details: Sequence[Detail], weight: float) -> tuple[Compared, ...]:
    """Neighbouring ranks come to one score; values of fields and distances stand as they are."""
    compared: list[Compared] = []
    for is_sorted, run in groupby(details, lambda detail: isinstance(detail, (Sorted, GeoSorted))):
        compared += run if is_sorted else [scores.score(run) * weight]  # type: ignore[arg-type]  # noqa: B031 (read once)
    return tuple(compared)


def merged(lists: Iterable[Iterable[MergedHit]]) -> Iterator[MergedHit]:
    """The hits of all lists, best first, as they are asked for. Each list is in order."""
    return heapq.merge(*lists, key=cmp_to_key(_order))  # type: ignore[arg-type]  # only its sign is looked at


def _order(left: MergedHit, right: MergedHit) -> float:
    """Below 0 when the left one is better."""
    return compare(left.standing, right.standing) or left.number - right.number


def compare(left: MergeKey, right: MergeKey) -> float:
    """Below 0 when the left one is better, above when the right one is, 0 when they stand equal."""
    for mine, other in zip(left.compared, right.compared):
        if not _is_comparable(mine, other):
            # Which has more left to be compared ranks higher, as far as can be known.
            return len(right.compared) - len(left.compared) or right.score - left.score
        order = _SCALES[type(mine)](mine, other)
        if order:
            return order
    return len(right.compared) - len(left.compared)


def _is_comparable(left: Compared, right: Compared) -> bool:
    if type(left) is not type(right):
        return False
    return isinstance(left, float) or left.ascending == right.ascending  # type: ignore[union-attr]  # both are of one type


def _by_score(left: float, right: float) -> float:
    return 0 if abs(left - right) <= _EPSILON else right - left


def _by_value(left: Sorted, right: Sorted) -> float:
    """Numbers, then texts, then what has no value, whatever the direction (3.13)."""
    if left.value == right.value:
        return 0
    kinds = _kind(left.value) - _kind(right.value)
    if kinds:
        return kinds
    is_smaller = left.value < right.value  # type: ignore[operator]  # both are of one kind, and there
    return -1 if is_smaller == left.ascending else 1


def _by_distance(left: GeoSorted, right: GeoSorted) -> float:
    """The larger distance is better whatever the direction: so does the reference engine; none is worst."""
    if left.metres is None or right.metres is None:
        return (left.metres is None) - (right.metres is None)
    return _by_score(left.metres, right.metres)


def _kind(value: Value | None) -> int:
    return 2 if value is None else int(isinstance(value, str))


_SCALES: dict[type, Callable[[Any, Any], float]] = {float: _by_score, Sorted: _by_value, GeoSorted: _by_distance}


# The facets of a federated search, counted index by index (relevance.md 10.7).
#
# Knows which indexes are asked for facets, in which order they are refused, and that hits are rejected after they are
# counted; refuses to know how values are counted, and how counts are merged and shown.


class FederatedFacets:
    """What one federated search counts. Told of each index when it is opened, and when its documents are known.

    counted: index uid -> its facets.
    """

    def __init__(self, federation: Federation) -> None:
        self.counted: dict[str, Facets] = {}
        self._asked = federation.facets
        self._orders = FacetOrders() if federation.merges_facets else None

    def open(self, index_uid: str, reader: Reader) -> None:
        """Raises invalid_multi_search_facet_order when facets that are to be merged are ordered otherwise here."""
        with _inside_federated_facets(index_uid):
            self._check_order(index_uid, reader)

    def count(self, index_uid: str, reader: Reader, docids: DocIds) -> None:
        """Count the values of the documents that the queries of an index found. Raises invalid_search_facets."""
        patterns = self._asked.get(index_uid)
        if patterns is not None:
            with _inside_federated_facets(index_uid):
                self.counted[index_uid] = facets_of(reader, patterns, docids)

    def reject(self, index_uid: str, reader: Reader, docid: int) -> None:
        """A document that was counted is not among the hits after all."""
        if index_uid in self.counted:
            subtract(self.counted[index_uid], reader, docid)

    def check_others(self, opened: Mapping[str, Any], read: Callable[[str], Reader]) -> None:
        """Refuse facets of indexes that no query has opened if they would be refused there; the index must exist."""
        for index_uid in sorted(self._asked.keys() - opened.keys()):
            with _inside_federated_facets(index_uid, f"\n - Note: index `{index_uid}` is not used in queries"):
                reader = read(index_uid)
                self._check_order(index_uid, reader)
                check_facets(reader.settings, self._asked[index_uid] or ())

    def _check_order(self, index_uid: str, reader: Reader) -> None:
        if self._orders is not None:
            for pattern in self._asked.get(index_uid) or ():
                self._orders.add(index_uid, pattern, reader.settings.faceting.order_of(pattern))


@contextmanager
def _inside_federated_facets(index_uid: str, note: str = "") -> Iterator[None]:
    """What is refused in this block is told of the facets of one index."""
    try:
        yield
    except ApiError as error:
        refused = error.inside(f"Inside `.federation.facetsByIndex.{index_uid}`")
        refused.message += note
        raise refused from None
