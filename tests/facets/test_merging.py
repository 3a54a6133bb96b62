"""What must hold of facets of several indexes:

1. Counts are added up by the text of a value, fields are in byte order.
2. Values are ordered by text or by count, and then cut.
3. All indexes must order a facet alike; the error names the first that differs.
4. Statistics span all indexes.
5. The values of a rejected hit are subtracted.
"""
from __future__ import annotations

import pytest

from svcd.base.errors import ApiError
from svcd.facets.distribution import ALPHA, COUNT, FacetOrders, Facets, merged_facets, subtract_values

LEFT = {"genre": {"Drama": 2, "drama": 1, "Noir": 3}, "a": {"10": 1}}
RIGHT = {"genre": {"Noir": 1, "Western": 3}, "Z": {}}


@pytest.mark.parametrize(
    ("order", "most", "genres"),
    [
        (ALPHA, None, [("Drama", 2), ("Noir", 4), ("Western", 3), ("drama", 1)]),
        (COUNT, None, [("Noir", 4), ("Western", 3), ("Drama", 2), ("drama", 1)]),
        (ALPHA, 2, [("Drama", 2), ("Noir", 4)]),
        (COUNT, 2, [("Noir", 4), ("Western", 3)]),
        (COUNT, 0, []),
    ],
)
def test_counts_are_added_up_and_ordered(order: str, most: int | None, genres: list[tuple[str, int]]) -> None:
    left, right = Facets(LEFT, {}, {"genre": order, "a": ALPHA}), Facets(RIGHT, {}, {"genre": order, "Z": ALPHA})
    merged = merged_facets([left, right], most).distribution
    assert list(merged) == ["Z", "a", "genre"]
    assert list(merged["genre"].items()) == genres


def test_equal_counts_stand_by_text() -> None:
    orders = {"a": COUNT}
    merged = merged_facets([Facets({"a": {"y": 1, "x": 2}}, {}, orders), Facets({"a": {"z": 2, "w": 1}}, {}, orders)])
    assert list(merged.distribution["a"]) == ["x", "z", "w", "y"]


def test_nothing_merges_to_nothing() -> None:
    assert merged_facets([]) == Facets()


def test_statistics_span_all_indexes() -> None:
    stats = [{"b": {"min": 1.0, "max": 2.0}}, {"a": {"min": 0.0, "max": 0.0}}, {"b": {"min": -1.0, "max": 1.0}}]
    merged = merged_facets(Facets({}, each) for each in stats).stats
    assert list(merged.items()) == [("a", {"min": 0.0, "max": 0.0}), ("b", {"min": -1.0, "max": 2.0})]


def test_orders_must_agree() -> None:
    orders = FacetOrders()
    for index_uid, facet, order in (("a", "x", ALPHA), ("a", "y", COUNT), ("b", "x", ALPHA)):
        orders.add(index_uid, facet, order)
    with pytest.raises(ApiError) as refused:
        orders.add("c", "y", ALPHA)
    assert refused.value.code == "invalid_multi_search_facet_order"
    assert refused.value.message == (
        "Inconsistent order for values in facet `y`: index `a` orders by count, but index `c` orders alphabetically.\n"
        " - Hint: Remove `federation.mergeFacets` or change `faceting.sortFacetValuesBy` to be consistent in settings.")


def test_a_rejected_hit_takes_its_values_away() -> None:
    counts = {"a": 2, "b": 1}
    subtract_values(counts, ["a", "b", "c"])
    assert counts == {"a": 1}
