"""Limits on the items of one request whose cost the program pays, not the reader of its answer (docs/search.md#bounds).

Each bound is far above real requests. The worst request that a bound accepts takes about the default `searchCutoffMs` on one
core, with an index of 36,000 films. A larger request is refused with the code of the field.
"""
from __future__ import annotations

from typing import NamedTuple


class Bound(NamedTuple):
    """The number of items that is accepted. items: the noun for them in messages."""

    most: int
    items: str

    def refusal(self, found: int) -> str:
        """Return the sentence of an error. found: the number of items."""
        return f"expected at most {self.most} {self.items}, but found {found}"


# Each name costs some microseconds, and again for each portion of a long page.
NAMES = Bound(10_000, "elements")
# Each expression is a ranking rule, which runs inside the previous one.
SORT = Bound(100, "elements")
# Each identifier is looked up in the index: 4 us.
IDS = Bound(100_000, "elements")
# A query: only its first 65,536 characters are used, but the answer repeats all of it.
TEXT = Bound(1_000_000, "characters")
# Numbers of a vector: the largest models produce 8,192.
VECTOR = Bound(100_000, "elements")

# Queries of a multi-search. A page sends one for each list that it shows, about a dozen.
QUERIES = Bound(1000, "queries")

# Outlines of a filter are compared with geometries by one point for each kilometre: 15 us. The equator has 40,000 km.
OUTLINES = Bound(200_000, "km of outlines in `_geoRadius`, `_geoBoundingBox` and `_geoPolygon`")

# The sum over a filter (all texts of its array): 15 us per unit. svcd.filters.requirements has the cost of each condition.
FILTER_COST = 100_000
