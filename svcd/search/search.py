"""Run a search of one query: rank the documents that its page needs, render the hits, count facets (docs/search.md).

The module also decides whether a query is ranked by words, by vectors or by both, and runs facet searches.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from svcd.base import tracing
from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.base.json_text import loads
from svcd.facets.distribution import check_facets, facets_of
from svcd.facets.value_search import FacetHit, FacetQuery, check_enabled, search_values
from svcd.query.reader import Reader
from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit, RankingLimits
from svcd.ranking.scores import VectorSorted
from svcd.search.hits import federation_member, paged, plain_documents, reranked, shows_matches
from svcd.search.hybrid import hybrid_search
from svcd.search.keyword import DistinctFilter, Found, filtered_docids, keyword_search
from svcd.search.request import (Embed, Federation, FormattingBudget, IndexedQuery, Reranking, SearchQuery, SearchResult,
                                 no_embedding)
from svcd.search.semantic import QueryTarget, semantic_search

__all__ = ["FacetHit", "FacetQuery", "Federation", "IndexedQuery", "SearchQuery", "SearchResult", "facet_search", "search"]

DEFAULT_CUTOFF_MS = 1500
# Formatting ends after this share of the time limit. Writing the response also takes time: a third of a second for 20 MB of text.
_FORMATTING_PERCENT = 75

_LOCAL = "execute local search"  # the name of the tracing span
# Starts a clock for a number of milliseconds; returns a predicate: whether the time has passed.
Timer = Callable[[int], Callable[[], bool]]


class Kind(Enum):
    """The kind of a search: by words, by vectors, or by both (docs/search.md#kinds-of-search)."""

    KEYWORD = "keyword"
    SEMANTIC = "semantic"
    HYBRID = "hybrid"


def kind_of(query: SearchQuery) -> Kind:
    """Return the kind of a search. Raises missing_search_hybrid, invalid_search_media_and_vector."""
    if query.media is not None and query.vector is not None:
        raise ApiError("invalid_search_media_and_vector", "Invalid request: both `media` and `vector` parameters are present.")
    if query.hybrid is None:
        if query.media is not None or query.vector is not None:
            raise ApiError("missing_search_hybrid",
                           "Invalid request: missing `hybrid` parameter when `vector` or `media` are present.")
        return Kind.KEYWORD
    if query.hybrid.ratio == 0 or query.q is None and query.vector is None and query.media is None:
        return Kind.KEYWORD
    return Kind.SEMANTIC if query.hybrid.ratio == 1 or query.q is None else Kind.HYBRID


class Search(NamedTuple):
    """A query on one index, with its kind. target: the vector to compare documents with; None for a search by words."""

    reader: Reader
    query: SearchQuery
    kind: Kind
    target: QueryTarget | None

    @classmethod
    def of(cls, reader: Reader, query: SearchQuery, embed: Embed) -> Search:
        """Prepare the search of a query. Raises as kind_of() and QueryTarget() do."""
        kind = kind_of(query)
        if kind is Kind.KEYWORD or query.hybrid is None:
            return cls(reader, query, kind, None)
        return cls(reader, query, kind, QueryTarget(reader, query, query.hybrid, embed))

    def run(self, limits: RankingLimits, expired: Callable[[], bool], index_uid: str) -> Found:
        """Rank the documents. Raises vector_embedding_error, and the codes of search parameters, whose messages begin with the
        index."""
        # Embedding stays outside the `try`: its error does not name the index. A hybrid search ignores that error.
        target = self.target.get(is_needed=True) if self.target is not None and self.kind is Kind.SEMANTIC else None
        try:
            if target is not None:
                return semantic_search(self.reader, self.query, target, limits, expired)
            if self.target is not None:
                return hybrid_search(self.reader, self.query, self.target, limits, expired)
            return keyword_search(self.reader, self.query, limits, expired)
        except ApiError as error:
            raise error.inside(f"Index `{index_uid}`") from None


def search(
    readers: Mapping[str, Reader], queries: Sequence[IndexedQuery], federation: Federation, timer: Timer,
    embed: Embed = no_embedding, reranking: Reranking | None = None,
) -> SearchResult:
    """Run one query, and return the requested page.

    readers: index uid -> reader, for the index of the query; queries: exactly one; embed: makes vectors of queries; reranking:
    orders the hits of the page. Raises the codes of search parameters, with messages that begin with the index, and
    invalid_search_facets.
    """
    (indexed,) = queries
    reader, query = readers[indexed.index_uid], indexed.query
    expired, budget = start_clocks(reader, timer)
    with tracing.span(_LOCAL):
        wanted = Search.of(reader, query, embed)
        # Ranking skips rules for a bucket of one document if nothing depends on them. Scores, a threshold and vectors do; so
        # do matched words, which the rules derive. With proximity by attribute, the order of later buckets does.
        is_order_enough = reranking is None and wanted.kind is Kind.KEYWORD and not (
            query.show_ranking_score or query.show_ranking_score_details or query.ranking_score_threshold is not None
            or reader.settings.is_proximity_by_attribute or shows_matches(query))
        found = wanted.run(ranking_limits(reader, query, federation, is_order_enough), expired, indexed.index_uid)
        hits: Sequence[Hit] = found.ranking.hits
        counted = found.ranking.counted
        pins: Sequence[tuple[int, Hit]] = ()
        if query.rules is not None:
            from svcd.search.pins import split  # imported late: few instances use search rules

            hits, pins = split(hits)
        if query.distinct is not None:
            hits, rejected = _split_distinct(reader, query.distinct, hits)
            counted -= DocIds([hit.docid for hit in rejected])
    first, end = federation.window
    patterns = federation.facets.get(indexed.index_uid)
    if reranking is not None:
        check_facets(reader.settings, patterns or ())  # before svcd calls the service that orders the hits

        def documents(some: Sequence[Hit]) -> list[str]:
            shown = [federation_member(indexed.index_uid, 0, scores.score(hit.details)) for hit in some]
            return plain_documents(reader, query, found, some, shown if reranking.shows_source else ())

        hits = reranked(hits, federation.window, reranking, documents)
    with tracing.span(_LOCAL):
        if pins:
            from svcd.search.pins import by_position, placed

            hits = placed(hits, by_position(pins), end)
        ranked = hits[first:end]
        page = paged(reader, query, found, ranked, budget)
        return SearchResult(
            page, federation.pagination(len(counted)),
            {} if patterns is None else {indexed.index_uid: facets_of(reader, patterns, counted)},
            count_semantic(ranked) if found.is_semantic else None,
            {0: found.vector} if query.retrieve_vectors and found.vector is not None else {}, ranked,
        )


def count_semantic(hits: Iterable[Hit]) -> int:
    """Count the hits that were found by their vectors."""
    return sum(any(isinstance(detail, VectorSorted) for detail in hit.details) for hit in hits)


def cutoff_ms(reader: Reader) -> int:
    """Return the time limit of a search of this index in milliseconds (docs/search.md#time-limit)."""
    cutoff = reader.settings.search_cutoff_ms
    return DEFAULT_CUTOFF_MS if cutoff is None else cutoff


def start_clocks(reader: Reader, timer: Timer) -> tuple[Callable[[], bool], FormattingBudget]:
    """Start the clocks of a search; return (a predicate: whether its time has passed, the budget for formatting, which ends
    earlier)."""
    cutoff = cutoff_ms(reader)
    return timer(cutoff), FormattingBudget(timer(cutoff * _FORMATTING_PERCENT // 100))


def required_hits(reader: Reader, federation: Federation) -> int:
    """Return the number of hits of an index that the page needs: up to its end, at most maxTotalHits."""
    return min(federation.window[1], reader.settings.max_total_hits)


def ranking_limits(reader: Reader, query: SearchQuery, federation: Federation, order_only: bool = False) -> RankingLimits:
    """Return how far the documents of one query must be ranked for the page."""
    most = reader.settings.max_total_hits
    required, threshold = min(federation.window[1], most), query.ranking_score_threshold
    # The exact total of a page-numbered request needs all scores for the threshold, up to maxTotalHits hits.
    to_the_end = federation.is_paged and threshold is not None and required < most
    return RankingLimits(required, threshold, to_the_end, order_only, federation.is_paged)


def _split_distinct(reader: Reader, field: str, hits: Sequence[Hit]) -> tuple[list[Hit], list[Hit]]:
    """Split hits into (the hits that share no value of the field with an earlier hit, the rest)."""
    texts = reader.documents([hit.docid for hit in hits])
    distinct = DistinctFilter(field)
    kept: list[Hit] = []
    rejected: list[Hit] = []
    for hit, text in zip(hits, texts):
        (kept if distinct.accepts(loads(text)) else rejected).append(hit)
    return kept, rejected


# Facet search (docs/search.md#facet-search-over-a-query)


def facet_search(
    reader: Reader, facet: FacetQuery, query: SearchQuery, is_exhaustive: bool, timer: Timer
) -> list[FacetHit]:
    """Return the values that a facet query matches, with their counts over the documents of an ordinary query.

    is_exhaustive: apply `distinct` to all documents, not only to the first page. A search by vectors counts all
    documents of the filter, and needs no vector. Raises facet_search_disabled, invalid_facet_search_facet_name and the codes of
    search parameters.
    """
    kind = Search.of(reader, query, no_embedding).kind
    check_enabled(reader.settings)
    # The search runs first: its errors come before errors about the facet name.
    if kind is not Kind.KEYWORD:
        return search_values(reader, facet, filtered_docids(reader, query))
    has_threshold = query.ranking_score_threshold is not None
    if has_threshold or reader.settings.distinct_attribute is not None:
        # Page 0 is empty, but has an exact total.
        federation = Federation(page=0) if is_exhaustive else Federation()
        limits = ranking_limits(reader, query, federation, order_only=not has_threshold)
    else:
        limits = RankingLimits(0)  # ranking excludes no document from the count
    result = keyword_search(reader, query, limits, timer(cutoff_ms(reader)))
    return search_values(reader, facet, result.ranking.counted)
