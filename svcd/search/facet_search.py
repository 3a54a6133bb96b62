"""A facet search on one index: which documents count, and which values of a field a query finds among them.

Knows relevance.md 6.4, 2: the documents are those that an ordinary search would count; refuses to know how
documents and values are found.
"""
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
    """The values that a facet query finds, counted over the documents of an ordinary query.

    is_exhaustive: apply `distinct` to all documents, not only to those of the first page. Raises facet_search_disabled,
    invalid_facet_search_facet_name and the codes of search parameters.
    """
    check_enabled(reader.settings)
    # The search refuses what it can't do before the name of the field is looked at.
    found = keyword_search(reader, query, _wanted(reader, query, is_exhaustive), timer(cutoff_ms(reader)))
    return search_values(reader, facet, found.ranking.counted)


def _wanted(reader: Reader, query: SearchQuery, is_exhaustive: bool) -> RankingLimits:
    """How much must be ranked; nothing where ranking can't take a document from what is counted."""
    is_thinned = query.ranking_score_threshold is not None or reader.settings.distinct_attribute is not None
    if not is_thinned:
        return RankingLimits(0)
    # A page before the first has no hits, and an exact total.
    federation = Federation(page=0) if is_exhaustive else Federation()
    return ranking_limits(reader, query, federation, order_alone=query.ranking_score_threshold is None)
