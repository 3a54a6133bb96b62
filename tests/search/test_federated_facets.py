"""Facets of a federated search (docs/search.md#facets-of-a-federation). What must hold:

1. Each index counts what its queries found together, for the requested patterns; other indexes count nothing.
2. A hit that `distinct` rejects is not counted, whichever list rejects it; one rejected within its own index has no part
   in the order and limit of values and in the range of numbers either.
3. An error names the index, after the first query of it; for an index without a query it says so.
4. Merged facets must be ordered alike, which is checked before an index is searched, and for indexes without a query too.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.search.federation import federated
from svcd.search.request import Federation, IndexedQuery, SearchQuery, SearchResult
from tests.support.dict_reader import DictReader
from tests.support.searching import never

COLORED = [{"id": 1, "title": "sun", "color": ["Red", "blue"]}, {"id": 2, "title": "night", "color": "red"},
           {"id": 3, "title": "sunny", "color": 7}]


def colored(**settings: Any) -> DictReader:
    return DictReader(COLORED, {"searchableAttributes": ["title"], "filterableAttributes": ["color"], **settings})


INDEXES = {"a": colored(), "b": colored(), "none": colored(filterableAttributes=[]),
           "count": colored(faceting={"maxValuesPerFacet": 100, "sortFacetValuesBy": {"color": "count"}})}


def missing_or(index_uid: str) -> DictReader:
    if index_uid not in INDEXES:
        raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
    return INDEXES[index_uid]


def counted(*queries: tuple[str, str], patterns: Any = ("color",), **federation: Any) -> SearchResult:
    """queries: (index, text). patterns: of every index of the queries, or those of each index."""
    facets = patterns if isinstance(patterns, dict) else {uid: patterns for uid, _ in queries}
    asked = [IndexedQuery(uid, SearchQuery(q=q)) for uid, q in queries]
    return federated(missing_or, asked, Federation(facets=facets, **federation), never)


def refusal(*queries: tuple[str, str], **federation: Any) -> tuple[int, str, str]:
    with pytest.raises(ApiError) as refused:
        counted(*queries, **federation)
    return refused.value.status, refused.value.code, refused.value.message


def test_each_index_counts_what_its_queries_found_together() -> None:
    facets = counted(("b", "night"), ("a", "sun"), ("a", "night"), ("count", "sun"), patterns={"a": ["*"], "b": ["color"]}).facets
    assert list(facets) == ["a", "b"]
    assert facets["a"].distribution == {"color": {"7": 1, "blue": 1, "Red": 2}}
    assert facets["a"].stats == {"color": {"min": 7.0, "max": 7.0}}
    assert facets["b"].distribution == {"color": {"red": 1}}


def test_rejected_hits_are_not_counted() -> None:
    answer = counted(("a", "sun"), ("a", "night"), distinct="color")
    assert len(answer.hits) == 2
    assert answer.facets["a"].distribution == {"color": {"7": 1, "blue": 1, "Red": 1}}
    both = counted(("a", "sun"), ("b", "night"), distinct="color")
    assert [both.facets[uid].distribution for uid in ("a", "b")] == [{"color": {"7": 1, "blue": 1, "Red": 1}}, {"color": {}}]


def test_hits_that_their_index_rejects_count_for_nothing() -> None:
    numbers = [{"id": 1, "title": "sun", "by": "x", "n": 1}, {"id": 2, "title": "night", "by": "x", "n": [2, 9]},
               {"id": 3, "title": "night", "by": "y", "n": [3, 4]}, {"id": 4, "title": "night", "by": "z", "n": 4}]
    reader = DictReader(numbers, {"searchableAttributes": ["title"], "filterableAttributes": ["by", "n"],
                                  "faceting": {"maxValuesPerFacet": 2, "sortFacetValuesBy": {"n": "count"}}})
    asked = [IndexedQuery("a", SearchQuery(q=q)) for q in ("sun", "night")]
    answer = federated({"a": reader}.__getitem__, asked, Federation(facets={"a": ["n"]}, distinct="by"), never)
    assert answer.pagination["estimatedTotalHits"] == len(answer.hits) == 3
    assert answer.facets["a"].distribution == {"n": {"4": 2, "3": 1}}
    assert answer.facets["a"].stats == {"n": {"min": 1.0, "max": 4.0}}


def test_a_page_of_hits_is_not_what_is_counted() -> None:
    assert counted(("a", "sun"), ("a", "night"), limit=0).facets == counted(("a", "sun"), ("a", "night")).facets


NOT_FILTERABLE = "Invalid facet distribution: Pattern `color` is not filterable. This index does not have configured filterable attributes."


def test_what_is_refused_names_the_index() -> None:
    assert refusal(("a", "sun"), ("none", "sun"), ("none", "night")) == (
        400, "invalid_search_facets", f"Inside `.queries[1]`: Inside `.federation.facetsByIndex.none`: {NOT_FILTERABLE}")


@pytest.mark.parametrize(("index_uid", "code", "reason"), [
    ("none", "invalid_search_facets", NOT_FILTERABLE), ("nowhere", "index_not_found", "Index `nowhere` not found."),
])
def test_an_index_without_query_is_checked_too(index_uid: str, code: str, reason: str) -> None:
    assert refusal(("a", "sun"), patterns={index_uid: ["color"]}) == (
        400, code, f"Inside `.federation.facetsByIndex.{index_uid}`: {reason}\n"
                   f" - Note: index `{index_uid}` is not used in queries")


def test_an_index_without_query_counts_nothing() -> None:
    assert list(counted(("a", "sun"), patterns={"a": ["color"], "b": ["color"]}).facets) == ["a"]


def test_orders_are_compared_only_to_be_merged() -> None:
    assert len(counted(("a", "sun"), ("count", "sun")).facets) == 2
    status, code, message = refusal(("count", "sun"), ("a", "sun"), merges_facets=True)
    assert (status, code) == (400, "invalid_multi_search_facet_order")
    assert message.startswith("Inside `.queries[0]`: Inside `.federation.facetsByIndex.count`: Inconsistent order for values "
                              "in facet `color`: index `a` orders alphabetically, but index `count` orders by count.\n")


def test_orders_of_indexes_without_query_are_compared() -> None:
    status, code, message = refusal(("a", "sun"), patterns={"a": ["color"], "count": ["color"]}, merges_facets=True)
    assert (status, code) == (400, "invalid_multi_search_facet_order")
    assert message.startswith("Inside `.federation.facetsByIndex.count`: Inconsistent order for values in facet `color`: ")
    assert message.endswith("\n - Note: index `count` is not used in queries")
