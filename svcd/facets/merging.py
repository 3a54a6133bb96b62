"""Merges the facets of several indexes: counts are added up, the orders of a facet must agree.

Source: docs/filters-and-facets.md#merging-across-indexes.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from svcd.base.errors import ApiError

ALPHA, COUNT = "alpha", "count"
_ORDER_TEXTS = {ALPHA: "alphabetically", COUNT: "by count"}


@dataclasses.dataclass(slots=True)
class Facets:
    """The facets of one index.

    distribution: field -> value as shown -> count. stats: field -> "min" and "max" of its numbers. orders: field ->
    `alpha` or `count`. Fields are in byte order, values in the order of their field.
    """

    distribution: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    stats: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    orders: dict[str, str] = dataclasses.field(default_factory=dict)


class FacetOrders:
    """The order of the values of each facet, which all indexes must have in common."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, str]] = {}  # facet: (the first index that has it, its order)

    def add(self, index_uid: str, facet: str, order: str) -> None:
        """Raises invalid_multi_search_facet_order. order: ALPHA or COUNT."""
        before, expected = self._first.setdefault(facet, (index_uid, order))
        if order != expected:
            raise ApiError(
                "invalid_multi_search_facet_order",
                f"Inconsistent order for values in facet `{facet}`: index `{before}` orders {_ORDER_TEXTS[expected]},"
                f" but index `{index_uid}` orders {_ORDER_TEXTS[order]}.\n"
                " - Hint: Remove `federation.mergeFacets` or change `faceting.sortFacetValuesBy` to be consistent in settings.",
            )


def merged_facets(by_index: Iterable[Facets], most: int | None = None) -> Facets:
    """Facets with counts added up by the value as shown, and the smallest and largest numbers of all indexes.

    most: how many values of a field are shown, None for all.
    """
    counted = list(by_index)
    orders = {field: order for facets in reversed(counted) for field, order in facets.orders.items()}
    totals: dict[str, dict[str, int]] = {}
    for facets in counted:
        for field, counts in facets.distribution.items():
            total = totals.setdefault(field, {})
            for text, count in counts.items():
                total[text] = total.get(text, 0) + count
    distribution = {field: _first(totals[field], orders[field], most) for field in sorted(totals)}
    return Facets(distribution, _merged_stats(counted), orders)


def _first(total: Mapping[str, int], order: str, most: int | None) -> dict[str, int]:
    """The first values in an order; equal counts ascend by text."""
    listed = sorted(total.items())
    if order == COUNT:
        listed.sort(key=lambda counted: -counted[1])
    return dict(listed[:most])


def _merged_stats(counted: Iterable[Facets]) -> dict[str, dict[str, float]]:
    merged: dict[str, dict[str, float]] = {}
    for facets in counted:
        for field, own in facets.stats.items():
            known = merged.setdefault(field, own)
            merged[field] = {"min": min(known["min"], own["min"]), "max": max(known["max"], own["max"])}
    return {field: merged[field] for field in sorted(merged)}


def subtract_values(counts: dict[str, int], texts: Iterable[str]) -> None:
    """Take a document with these values out of the counts; values that reach 0 are removed."""
    for text in texts:
        if text in counts:
            counts[text] -= 1
            if not counts[text]:
                del counts[text]
