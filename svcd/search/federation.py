"""Run a federated search: several queries, with their hits merged into one list (docs/search.md#federation).

For each index in byte order of uid: check that the queries can be merged, run them, merge their lists, count facets; then
wait for remotes, merge the lists of all indexes and remotes, cut the page, and render each hit by the options of its own query.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from svcd.base import tracing
from svcd.base.docids import DocIds, union_of
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, loads
from svcd.base.quantities import shown_number
from svcd.facets.distribution import FacetOrders, Facets, check_facets, facets_of, merged_facets, subtract, subtract_values
from svcd.query.reader import Reader
from svcd.ranking.bucket_sort import Hit
from svcd.ranking.scores import VectorSorted
from svcd.ranking.sort import SortError, parse_rule
from svcd.schema.field_values import normal_form
from svcd.schema.index_settings import Faceting
from svcd.schema.ranking_rules import BM25, with_bm25
from svcd.search.compatibility import Compatibility, Incompatible, QueryOrder
from svcd.search.hits import LongPage, LongStrings, RepeatedValues, page_of_texts
from svcd.search.keyword import DistinctFilter, Found, by_position, placed, split_pins, values_at
from svcd.search.merge_order import MergeKey, merge_keys, merged
from svcd.search.remote_hits import (FEDERATION, WEIGHTED_SCORE, ExtraDocuments, RemoteHit, RemoteResult, Remotes,
                                     members_for_caller)
from svcd.search.request import Embed, Federation, FormattingBudget, IndexedQuery, Reranking, SearchResult, no_embedding
from svcd.search.search import (LOCAL, MAX_PAGE_BYTES, Kind, Search, Timer, average_hit_size, federation_member, plain_documents,
                                ranking_limits, render_hits, required_hits, reranked, start_clocks, without_ranking_hits)

# The most hits that the queries of a request may rank together, because all are held until they are merged. A single query of
# each index is always allowed.
MAX_RANKED = 200_000

H = TypeVar("H", bound="MergedHit | RemoteHit")


def federated(read: Callable[[str], Reader], queries: Sequence[IndexedQuery], federation: Federation, timer: Timer,
              embed: Embed = no_embedding, remotes: Remotes | None = None, reranking: Reranking | None = None) -> SearchResult:
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
        with _error_context(numbered[0].place, federation.is_single):
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
        with _error_context(numbered[0].place, federation.is_single), LOCAL:
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
        if isinstance(hit, MergedHit):
            facets.reject(hit.source.query.indexed.index_uid, hit.source.reader, hit.hit.docid)
        else:
            facets.reject_remote(hit.index_uid, hit.parts())
    first, end = federation.window
    pins: list[tuple[int, MergedHit | RemoteHit]] = [pin for each in found for pin in each.pins()]
    pins += [pin for each in remote_results for pin in each.pins()]
    pages = FederatedPage(federation, remotes)
    if reranking is not None:
        kept = reranked(kept, federation.window, reranking, lambda some: pages.plain_documents(some, reranking.shows_source))
    if pins:
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
def _error_context(place: str, is_single: bool, note: str = "") -> Iterator[None]:
    """Name a place in the messages of errors in this block, unless it is a single search. note: the end of these messages."""
    try:
        yield
    except ApiError as error:
        if is_single:
            raise
        located = error.inside(f"Inside `{place}`")
        located.message += note
        raise located from None


# One index


@LOCAL
def _run_queries(reader: Reader, queries: Sequence[NumberedQuery], federation: Federation, compatibility: Compatibility,
                 timer: Timer, embed: Embed) -> list[QueryResult]:
    """Run the queries of one index, in the order of the request."""
    expired, budget = start_clocks(reader, timer)
    results = []
    for numbered in queries:
        with _error_context(numbered.place, federation.is_single):
            indexed, query = numbered.indexed, numbered.indexed.query
            if federation.distinct is not None:
                query = query._replace(distinct=federation.distinct)
            wanted = Search(reader, query, embed)
            try:
                sort = None if query.sort is None else list(map(parse_rule, query.sort))
                strategy = query.matching_strategy or reader.settings.default_matching_strategy
                rules = reader.settings.ranking_rules
                rules = with_bm25(rules) if strategy == BM25 else rules
                compatibility.add(QueryOrder(numbered.position, indexed.index_uid, rules, sort,
                                             strategy in ("all", BM25), bool(query.q), wanted.kind is Kind.SEMANTIC))
            except SortError as error:
                raise ApiError("invalid_search_sort", str(error)) from None
            except Incompatible as error:
                raise ApiError("invalid_multi_search_query_ranking_rules", str(error)) from None
            found = wanted.run(ranking_limits(reader, query, federation), expired, indexed.index_uid)
            results.append(QueryResult(numbered, reader, found, budget))
    return results


@LOCAL
def _merge_index(reader: Reader, results: Sequence[QueryResult], federation: Federation) -> tuple[list[MergedHit], DocIds]:
    """Merge the hits of one index, each document once.

    Returns (the hits; the documents that any query found, less the hits that `distinct` rejected).
    """
    seen: set[int] = set()

    def each_once() -> Iterator[MergedHit]:
        for hit in merged(each.hits() for each in results):
            if hit.hit.docid not in seen:
                seen.add(hit.hit.docid)
                yield hit

    kept, rejected = _split_distinct(each_once(), federation.distinct, required_hits(reader, federation))
    counted = union_of(each.found.ranking.counted for each in results)
    return kept, counted - DocIds([each.hit.docid for each in rejected])


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


# The page


class NumberedQuery(NamedTuple):
    """A query with its number among the queries that run here, from 0."""

    number: int
    indexed: IndexedQuery

    @property
    def position(self) -> int:
        """The query number that hits and messages report; it also decides between equal hits."""
        return self.number if self.indexed.position is None else self.indexed.position

    @property
    def place(self) -> str:
        """The query in messages."""
        return f".queries[{self.position}]"


class QueryResult(NamedTuple):
    """The result of one query. budget: for formatting its hits."""

    query: NumberedQuery
    reader: Reader
    found: Found
    budget: FormattingBudget

    def hits(self) -> list[MergedHit]:
        """Return the organic hits, with their merge keys."""
        position, key = self.query.position, merge_keys(self.query.indexed.weight)
        return [MergedHit(hit, key(hit.details), position, self) for hit in self._split()[0]]

    def pins(self) -> list[tuple[int, MergedHit]]:
        """Return the pinned hits with the positions that their rules ask for; nothing compares them with other hits."""
        key, number = MergeKey((), self.query.indexed.weight), self.query.position
        return [(position, MergedHit(hit, key, number, self)) for position, hit in self._split()[1]]

    def _split(self) -> tuple[Sequence[Hit], Sequence[tuple[int, Hit]]]:
        if self.query.indexed.query.rules is None:
            return self.found.ranking.hits, ()
        return split_pins(self.found.ranking.hits)


class MergedHit(NamedTuple):
    """A hit of one of the queries.

    number: of the query; decides between equal hits. source: the QueryResult that the hit comes from.
    """

    hit: Hit
    key: MergeKey
    number: int
    source: Any

    @property
    def is_semantic(self) -> bool:
        """Whether the hit was found by its vector."""
        return any(isinstance(detail, VectorSorted) for detail in self.hit.details)

    def parts(self) -> list[Mapping[str, Any]]:
        """Return its document."""
        (text,) = self.source.reader.documents([self.hit.docid])
        return [loads(text)]


class FederatedPage:
    """The hits of a page as JSON texts. federation, remotes: of the search."""

    def __init__(self, federation: Federation, remotes: Remotes | None) -> None:
        self._federation = federation
        self._remote = {} if remotes is None else {"remote": remotes.own_name}

    def texts(self, hits: Sequence[MergedHit | RemoteHit]) -> Sequence[str]:
        """Return the texts of hits of this instance and of remotes."""
        own = [hit for hit in hits if isinstance(hit, MergedHit)]
        if len(own) == len(hits):
            return self._own_texts(own)
        rendered = iter(self._own_texts(own))
        return [next(rendered) if isinstance(hit, MergedHit) else hit.text() for hit in hits]

    def _own_texts(self, hits: Sequence[MergedHit]) -> Sequence[str]:
        """Return the JSON texts of a page; a long page holds docids and scores only, and is rendered on access."""
        sources: Collection[QueryResult] = {each.source.query.number: each.source for each in hits}.values()
        size = 0
        if len(hits) > 1:
            size = max(average_hit_size(source.reader, source.query.indexed.query) for source in sources)
        long_strings = LongStrings()
        if len(hits) * size <= MAX_PAGE_BYTES:
            return page_of_texts(self._render(hits, long_strings), long_strings)
        docids, scores = array("I", (each.hit.docid for each in hits)), array("d", (each.key.score for each in hits))
        needs_details = set()  # numbers of queries
        for each in sources:
            query = each.query.indexed.query
            if self._federation.is_proxied or query.show_ranking_score or query.show_ranking_score_details:
                needs_details.add(each.query.number)
        details = RepeatedValues([each.hit.details if each.source.query.number in needs_details else () for each in hits])
        light = {each.query.number: each._replace(found=without_ranking_hits(each.found)) for each in sources}
        numbers = array("I", (each.source.query.number for each in hits))

        def hit_at(place: int) -> MergedHit:
            result = light[numbers[place]]
            return MergedHit(Hit(docids[place], details[place]), MergeKey((), scores[place]), result.query.position, result)

        def render_between(first: int, end: int) -> Sequence[str]:
            long_strings.clear()
            return self._render(list(map(hit_at, range(first, end))), long_strings)

        return LongPage(len(hits), size, render_between, long_strings)

    @LOCAL
    def _render(self, hits: Sequence[MergedHit], long_strings: LongStrings) -> list[str]:
        """Return the JSON texts of hits, each rendered by the options of its own query."""
        def render(result: QueryResult, some: Sequence[MergedHit]) -> Sequence[str]:
            index_uid, query, weight = result.query.indexed.index_uid, result.query.indexed.query, result.query.indexed.weight
            own = {"indexUid": index_uid, "queriesPosition": result.query.position}
            members = [{**own, WEIGHTED_SCORE: each.key.score, **self._remote} for each in some]
            if self._federation.is_proxied:  # the caller needs the values to compare the hits by
                extra = ExtraDocuments(result.reader, index_uid, query, self._federation)
                for member, each in zip(members, some):
                    member.update(members_for_caller(each.hit.details, weight, extra.of(each.hit.docid)))
            texts = [dumps({FEDERATION: member})[1:-1] for member in members]
            found = [each.hit for each in some]
            return render_hits(result.reader, query, result.found, found, result.budget, long_strings, texts)

        return _by_query(hits, render)

    def plain_documents(self, hits: Sequence[MergedHit | RemoteHit], shows_source: bool) -> list[str]:
        """Return the documents of hits as a reranking gets them. shows_source: with the member `_federation`."""
        own = iter(_by_query([hit for hit in hits if isinstance(hit, MergedHit)], lambda result, some: plain_documents(
            result.reader, result.query.indexed.query, result.found, [each.hit for each in some],
            [federation_member(result.query.indexed.index_uid, each.number, each.key.score) for each in some]
            if shows_source else ())))
        return [next(own) if isinstance(hit, MergedHit) else hit.plain_document(shows_source) for hit in hits]


def _by_query(hits: Sequence[MergedHit], render: Callable[[QueryResult, Sequence[MergedHit]], Sequence[str]]) -> list[str]:
    """Return the texts of hits in their order. render: makes the texts of the hits of one query."""
    places: dict[int, list[int]] = {}  # number of a query -> the places of its hits
    for place, each in enumerate(hits):
        places.setdefault(each.source.query.number, []).append(place)
    texts = [""] * len(hits)
    for among in places.values():
        rendered = render(hits[among[0]].source, [hits[place] for place in among])
        for place, text in zip(among, rendered):
            texts[place] = text
    return texts


# Facets (docs/search.md#facets-of-a-federation)

class FederatedFacets:
    """Counts the facets of a federated search, index by index. counted: index uid -> its facets.

    Call open() when an index is opened, count() with the documents found, check_others() once, add_remote() if there are remotes,
    and finally reject() or reject_remote() for each hit that is dropped.
    """

    def __init__(self, federation: Federation) -> None:
        self.counted: dict[str, Facets] = {}
        self._patterns = federation.facets
        self._orders = FacetOrders() if federation.merges_facets else None
        self._is_single = federation.is_single
        self._faceting: dict[str, Faceting] = {}

    def open(self, index_uid: str, reader: Reader) -> None:
        """Register an index. Raises invalid_multi_search_facet_order if merged facets have another order in it."""
        with _error_context(f".federation.facetsByIndex.{index_uid}", self._is_single):
            self._check_order(index_uid, reader)

    def count(self, index_uid: str, reader: Reader, docids: DocIds) -> None:
        """Count the values of the documents that the queries of an index found. Raises invalid_search_facets."""
        patterns = self._patterns.get(index_uid)
        if patterns is not None:
            with _error_context(f".federation.facetsByIndex.{index_uid}", self._is_single):
                self.counted[index_uid] = facets_of(reader, patterns, docids)

    def check_others(self, opened: Mapping[str, Any], read: Callable[[str], Reader]) -> None:
        """Check the facets of indexes without a query; these indexes must exist. Raises as open() and count()."""
        for index_uid in sorted(self._patterns.keys() - opened.keys()):
            note = f"\n - Note: index `{index_uid}` is not used in queries"
            with _error_context(f".federation.facetsByIndex.{index_uid}", self._is_single, note):
                reader = read(index_uid)
                self._check_order(index_uid, reader)
                check_facets(reader.settings, self._patterns[index_uid] or ())

    def add_remote(self, remotes: Iterable[Mapping[str, Facets]]) -> None:
        """Add the counts of remotes; the values of an index that exists here get its order and its limit."""
        by_index: dict[str, list[Facets]] = {}
        for remote in remotes:
            for index_uid, facets in remote.items():
                by_index.setdefault(index_uid, []).append(facets)
        for index_uid, several in by_index.items():
            if index_uid in self.counted:
                several.insert(0, self.counted[index_uid])
            faceting = self._faceting.get(index_uid)
            if faceting is None:
                self.counted[index_uid] = merged_facets(several)
                continue
            for facets in several:
                facets.orders = {field: faceting.order_of(field) for field in facets.distribution}
            self.counted[index_uid] = merged_facets(several, faceting.max_values)
        self.counted = dict(sorted(self.counted.items()))

    def reject(self, index_uid: str, reader: Reader, docid: int) -> None:
        """Subtract the values of a document that was counted, then rejected by distinct."""
        if index_uid in self.counted:
            subtract(self.counted[index_uid], reader, docid)

    def reject_remote(self, index_uid: str, documents: Iterable[Any]) -> None:
        """Subtract the values of a rejected hit of a remote. documents: the parts of its document that are known here."""
        if index_uid not in self.counted:
            return
        parts = list(documents)
        for field, shown in self.counted[index_uid].distribution.items():
            # Values as a distribution shows them, except that texts are in normal form.
            values = {normal_form(value) if isinstance(value, str) else ("true" if value else "false")
                      if isinstance(value, bool) else shown_number(float(value)) for value in values_at(parts, field)}
            subtract_values(shown, [text for text in shown if text in values or normal_form(text) in values])

    def _check_order(self, index_uid: str, reader: Reader) -> None:
        self._faceting[index_uid] = reader.settings.faceting
        if self._orders is not None:
            for pattern in self._patterns.get(index_uid) or ():
                self._orders.add(index_uid, pattern, reader.settings.faceting.order_of(pattern))
