"""Many queries, one list: what each of them finds in its index, merged by how well it stands.

Knows relevance.md 10.2 to 10.5: the order of the work, which hits of which query are seen, and how they are
counted; refuses to know how one query finds its documents, how hits compare, what facets show, and that there are
other instances.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from svcd.bitsets import from_docids
from svcd.engine import steps
from svcd.engine.compatibility import Compatibility, Incompatible, Ordered
from svcd.engine.distinct import Apart
from svcd.engine.federated_facets import FederatedFacets
from svcd.engine.hits import shown
from svcd.engine.keyword import Found
from svcd.engine.long_texts import LongTexts
from svcd.engine.merging import MergedHit, Standing, merged, standings
from svcd.engine.pages import Few, LongPage, is_long, made, without_hits
from svcd.engine.ranking.buckets import Hit
from svcd.engine.reader import DocIds, Reader
from svcd.engine.request import Answer, Federation, IndexedQuery
from svcd.engine.search import Timer, cutoff_ms, found_in, required_hits, showing_timer, wanted_of
from svcd.engine.sorting import SortError, parse_rule
from svcd.errors import ApiError
from svcd.jsontext import dumps, loads


_LOCAL = "execute local search"  # as opposed to that of other instances


class _Asked(NamedTuple):
    """A query with its place in the request, from 0."""

    number: int
    indexed: IndexedQuery


class _Results(NamedTuple):
    """What one query found."""

    asked: _Asked
    reader: Reader
    found: Found
    is_late: Callable[[], bool]  # for formatting

    def hits(self) -> list[MergedHit]:
        """The hits, ready to be merged."""
        position, standing = self.position, standings(self.asked.indexed.weight)
        return [MergedHit(hit, standing(hit.details), position, self) for hit in self.found.ranking.hits]

    @property
    def position(self) -> int:
        """The number that the hits show, which also decides between equal ones."""
        position = self.asked.indexed.position
        return self.asked.number if position is None else position


def federated(
    read: Callable[[str], Reader], queries: Sequence[IndexedQuery], federation: Federation, timer: Timer
) -> Answer:
    """The wanted page of the merged list.

    read: index uid -> its reader, asked for once for each index. Raises what it raises, what an index refuses of a
    query, and invalid_multi_search_query_ranking_rules; the place of the query in the request opens the message.
    """
    steps.begin("partition queries")
    by_index: dict[str, list[_Asked]] = {}
    for number, indexed in enumerate(queries):
        by_index.setdefault(indexed.index_uid, []).append(_Asked(number, indexed))
    steps.end()
    compatibility, facets = Compatibility(), FederatedFacets(federation)
    lists, total = [], 0
    for index_uid in sorted(by_index):
        asked = by_index[index_uid]
        with _inside(asked[0].number):
            reader = read(index_uid)
            facets.open(index_uid, reader)
        results = _results(reader, asked, federation, compatibility, timer)
        hits, counted = _of_index(reader, results, federation)
        with _inside(asked[0].number), steps.within(_LOCAL):
            facets.count(index_uid, reader, counted)
        lists.append(hits)
        total += counted.bit_count()
    facets.check_others(by_index, read)
    steps.begin("merge results")
    first, end = federation.window()
    hits, rejected = _apart(merged(lists), federation.distinct if len(lists) > 1 else None)
    _reject(rejected, facets)
    return Answer(_page(hits[first:end]), federation.pagination(total - len(rejected)), facets.counted)


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


@steps.within(_LOCAL)
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
    rules, is_all = reader.settings["rankingRules"], query.matching_strategy == "all"
    try:
        sort = None if query.sort is None else list(map(parse_rule, query.sort))
        compatibility.add(Ordered(asked.number, index_uid, rules, sort, is_all, bool(query.q)))
    except SortError as error:
        raise ApiError("invalid_search_sort", str(error)) from None
    except Incompatible as error:
        raise ApiError("invalid_multi_search_query_ranking_rules", str(error)) from None


def _found(reader: Reader, indexed: IndexedQuery, federation: Federation, expired: Callable[[], bool]) -> Found:
    query = indexed.query
    if federation.distinct is not None:
        query = replace(query, distinct=federation.distinct)
    return found_in(indexed.index_uid, reader, query, wanted_of(reader, query, federation), expired)


@steps.within(_LOCAL)
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
    apart = None if field is None else Apart(field)
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

    long_texts = LongTexts()
    if not is_long(len(hits), size):
        return made(_shown(hits, long_texts), long_texts)
    docids, scores = array("I", (each.hit.docid for each in hits)), array("d", (each.standing.score for each in hits))
    details = Few([each.hit.details if _shows_scores(each.within) else () for each in hits])
    within = {each.within.asked.number: each.within._replace(found=without_hits(each.within.found)) for each in hits}
    numbers = array("I", (each.within.asked.number for each in hits))

    def hit(place: int) -> MergedHit:
        results = within[numbers[place]]
        return MergedHit(Hit(docids[place], details[place]), Standing((), scores[place]), results.position, results)

    def shown_between(first: int, end: int) -> Sequence[str]:
        long_texts.forget()
        return _shown(list(map(hit, range(first, end))), long_texts)

    return LongPage(len(hits), size(), shown_between, long_texts)


def _shows_scores(results: _Results) -> bool:
    query = results.asked.indexed.query
    return query.show_ranking_score or query.show_ranking_score_details


@steps.within(_LOCAL)
def _shown(hits: Sequence[MergedHit], long_texts: LongTexts) -> list[str]:
    """The JSON texts of the hits, each as its own query wants it."""
    places: dict[int, list[int]] = {}  # number of a query: the places of its hits
    for place, each in enumerate(hits):
        places.setdefault(each.within.asked.number, []).append(place)
    texts = [""] * len(hits)
    for among in places.values():
        results = hits[among[0]].within
        found = shown(results.reader, results.asked.indexed.query, results.found, [hits[place].hit for place in among],
                      results.is_late, long_texts, [_origin(hits[place]) for place in among])
        for place, text in zip(among, found):
            texts[place] = text
    return texts


def _origin(merged_hit: MergedHit) -> str:
    """The member that tells which query found the hit, and how well it stands."""
    origin = {"indexUid": merged_hit.within.asked.indexed.index_uid, "queriesPosition": merged_hit.number,
              "weightedRankingScore": merged_hit.standing.score}
    return dumps({"_federation": origin})[1:-1]
