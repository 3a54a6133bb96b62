"""Runs a search of one query: ranks as many documents as its page needs, renders the hits, and counts facets (docs/search.md).

Also: facet search, over the documents that such a search counts.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from svcd.base import tracing
from svcd.base.docids import DocIds
from svcd.base.json_text import loads
from svcd.facets.distribution import Facets, facets_of
from svcd.facets.fields import check_enabled, check_facets
from svcd.facets.value_search import FacetHit, FacetQuery, search_values
from svcd.query.reader import Reader
from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit, RankingLimits
from svcd.ranking.scores import VectorSorted
from svcd.search.hits import federation_member, paged, plain_documents, render_hits, reranked, shows_matches
from svcd.search.keyword import DistinctFilter, Found, filtered_docids, keyword_search
from svcd.search.kinds import Kind, Search
from svcd.search.matches import FormattingBudget
from svcd.search.request import Embed, Federation, IndexedQuery, Reranking, SearchQuery, SearchResult, no_embedding
from svcd.search.stored_strings import LongStrings

__all__ = ["FacetHit", "FacetQuery", "Federation", "IndexedQuery", "SearchQuery", "SearchResult", "facet_search", "search"]

DEFAULT_CUTOFF_MS = 1500
# The share of the time limit after which formatting ends. Writing takes some time, too: a third of a second for 20 MB of text.
_FORMATTING_PERCENT = 75

_LOCAL = "execute local search"  # the name of the tracing span
# Starts a clock for so many milliseconds; returns a predicate: have they passed?
Timer = Callable[[int], Callable[[], bool]]


def search(
    readers: Mapping[str, Reader], queries: Sequence[IndexedQuery], federation: Federation, timer: Timer,
    embed: Embed = no_embedding, reranking: Reranking | None = None,
) -> SearchResult:
    """Run one query, and return the requested page.

    readers: index uid -> reader, of the index of the query; queries: exactly one; embed: makes vectors of queries; reranking:
    orders the hits of the page. Raises the codes of search parameters, with messages that begin with the index, and
    invalid_search_facets.
    """
    (indexed,) = queries
    reader, query = readers[indexed.index_uid], indexed.query
    expired, budget = timer(cutoff_ms(reader)), formatting_budget(reader, timer)
    with tracing.span(_LOCAL):
        wanted = Search.of(reader, query, embed)
        is_order_enough = reranking is None and _needs_order_only(wanted)
        found = wanted.run(ranking_limits(reader, query, federation, is_order_enough), expired, indexed.index_uid)
        hits: Sequence[Hit] = found.ranking.hits
        rejected: Sequence[Hit] = ()
        pins: Sequence[tuple[int, Hit]] = ()
        if query.rules is not None:
            from svcd.search.pins import split  # imported late: most instances have no search rules

            hits, pins = split(hits)
        if query.distinct is not None:
            hits, rejected = _split_distinct(reader, query.distinct, hits)
    first, end = federation.window
    if reranking is not None:
        check_facets(reader.settings, federation.facets.get(indexed.index_uid) or ())  # before the service is asked
        hits = reranked(hits, federation.window, reranking,
                        lambda some: _documents(reader, indexed, found, some, reranking.shows_source))
    with tracing.span(_LOCAL):
        if pins:
            from svcd.search.pins import by_position, placed

            hits = placed(hits, by_position(pins), end)
        long_strings, ranked = LongStrings(), hits[first:end]
        page = paged(reader, query, found, ranked, long_strings,
                     lambda found, some: render_hits(reader, query, found, some, budget, long_strings))
        counted = found.ranking.counted - DocIds([hit.docid for hit in rejected])
        return SearchResult(
            page, federation.pagination(len(counted)), _facets(indexed.index_uid, reader, federation, counted),
            count_semantic(ranked) if found.is_semantic else None,
            {0: found.vector} if query.retrieve_vectors and found.vector is not None else {}, ranked,
        )


def _documents(reader: Reader, indexed: IndexedQuery, found: Found, hits: Sequence[Hit], shows_source: bool) -> list[str]:
    """The documents of hits as a reranking gets them."""
    members = [federation_member(indexed.index_uid, 0, scores.score(hit.details)) for hit in hits] if shows_source else ()
    return plain_documents(reader, indexed.query, found, hits, members)


def count_semantic(hits: Iterable[Hit]) -> int:
    """How many of the hits were found by their vectors."""
    return sum(any(isinstance(detail, VectorSorted) for detail in hit.details) for hit in hits)


def cutoff_ms(reader: Reader) -> int:
    """The time limit of a search of this index in milliseconds (docs/search.md#time-limit)."""
    cutoff = reader.settings.search_cutoff_ms
    return DEFAULT_CUTOFF_MS if cutoff is None else cutoff


def formatting_budget(reader: Reader, timer: Timer) -> FormattingBudget:
    """Start the clock of formatting; returns what may be formatted until its time is over."""
    return FormattingBudget(timer(cutoff_ms(reader) * _FORMATTING_PERCENT // 100))


def required_hits(reader: Reader, federation: Federation) -> int:
    """The number of hits of an index that the page needs: up to its end, at most maxTotalHits."""
    return min(federation.window[1], reader.settings.max_total_hits)


def ranking_limits(reader: Reader, query: SearchQuery, federation: Federation, order_only: bool = False) -> RankingLimits:
    """How far one query must be ranked for the page."""
    most, required = reader.settings.max_total_hits, required_hits(reader, federation)
    threshold = query.ranking_score_threshold
    # The exact total of a page-numbered request needs all scores for the threshold, but no more than maxTotalHits.
    to_the_end = federation.is_paged and threshold is not None and required < most
    return RankingLimits(required, threshold, to_the_end, order_only, federation.is_paged)


def _facets(index_uid: str, reader: Reader, federation: Federation, counted: DocIds) -> dict[str, Facets]:
    """The facets of the counted documents, by index uid."""
    patterns = federation.facets.get(index_uid)
    return {} if patterns is None else {index_uid: facets_of(reader, patterns, counted)}


def _split_distinct(reader: Reader, field: str, hits: Sequence[Hit]) -> tuple[list[Hit], list[Hit]]:
    """(hits that share no value of the field in their documents, the others)."""
    texts = reader.documents([hit.docid for hit in hits])
    distinct = DistinctFilter(field)
    kept: list[Hit] = []
    rejected: list[Hit] = []
    for hit, text in zip(hits, texts):
        (kept if distinct.accepts(loads(text)) else rejected).append(hit)
    return kept, rejected


def _needs_order_only(wanted: Search) -> bool:
    """May ranking skip rules for a bucket of one document? Not if scores, a threshold, vectors or matched words need them.

    Matched words show what the rules derived. With proximity by attribute, later buckets depend on the skipped rules.
    """
    reader, query = wanted.reader, wanted.query
    if wanted.kind is not Kind.KEYWORD:
        return False
    is_scored = query.show_ranking_score or query.show_ranking_score_details
    is_rejecting = query.ranking_score_threshold is not None
    return not (is_scored or is_rejecting or reader.settings.is_proximity_by_attribute or shows_matches(query))


# Facet search (docs/search.md#facet-search-over-a-query)


def facet_search(
    reader: Reader, facet: FacetQuery, query: SearchQuery, is_exhaustive: bool, timer: Timer
) -> list[FacetHit]:
    """The values that a facet query matches, with their counts over the documents of an ordinary query.

    is_exhaustive: apply `distinct` to all documents, not only to those of the first page. Of a search by vectors all documents
    count that the filter leaves, and no vector is needed. Raises facet_search_disabled, invalid_facet_search_facet_name and the
    codes of search parameters.
    """
    kind = Search.of(reader, query, no_embedding).kind
    check_enabled(reader.settings)
    # First the search: its errors come before those of the facet name.
    if kind is not Kind.KEYWORD:
        return search_values(reader, facet, filtered_docids(reader, query))
    limits = _limits_for_facet_search(reader, query, is_exhaustive)
    result = keyword_search(reader, query, limits, timer(cutoff_ms(reader)))
    return search_values(reader, facet, result.ranking.counted)


def _limits_for_facet_search(reader: Reader, query: SearchQuery, is_exhaustive: bool) -> RankingLimits:
    """How far to rank: not at all if ranking cannot exclude a document from the count."""
    can_exclude = query.ranking_score_threshold is not None or reader.settings.distinct_attribute is not None
    if not can_exclude:
        return RankingLimits(0)
    # Page 0 has no hits, but an exact total.
    federation = Federation(page=0) if is_exhaustive else Federation()
    return ranking_limits(reader, query, federation, order_only=query.ranking_score_threshold is None)
