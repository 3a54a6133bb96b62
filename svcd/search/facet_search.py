"""Facet search over the documents that an ordinary search would count (docs/search.md#facet-search-over-a-query)."""
from __future__ import annotations

from svcd.facets.fields import check_enabled
from svcd.facets.value_search import FacetHit, FacetQuery, search_values
from svcd.query.reader import Reader
from svcd.ranking.bucket_sort import RankingLimits
from svcd.search.keyword import keyword_search
from svcd.search.request import Federation, SearchQuery
from svcd.search.search import Timer, cutoff_ms, ranking_limits

__all__ = ["FacetHit", "FacetQuery", "facet_search"]


def facet_search(
    reader: Reader, facet: FacetQuery, query: SearchQuery, is_exhaustive: bool, timer: Timer
) -> list[FacetHit]:
    """The values that a facet query matches, with their counts over the documents of an ordinary query.

    is_exhaustive: apply `distinct` to all documents, not only to those of the first page. Raises facet_search_disabled,
    invalid_facet_search_facet_name and the codes of search parameters.
    """
    check_enabled(reader.settings)
    # First the search: its errors come before those of the facet name.
    result = keyword_search(reader, query, _limits(reader, query, is_exhaustive), timer(cutoff_ms(reader)))
    return search_values(reader, facet, result.ranking.counted)


def _limits(reader: Reader, query: SearchQuery, is_exhaustive: bool) -> RankingLimits:
    """How far to rank: not at all if ranking cannot exclude a document from the count."""
    can_exclude = query.ranking_score_threshold is not None or reader.settings.distinct_attribute is not None
    if not can_exclude:
        return RankingLimits(0)
    # Page 0 has no hits, but an exact total.
    federation = Federation(page=0) if is_exhaustive else Federation()
    return ranking_limits(reader, query, federation, order_only=query.ranking_score_threshold is None)
