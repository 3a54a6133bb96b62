"""How much one request may ask for where the program, not its reader, pays for each item (docs/search.md#bounds).

Each bound is far above what clients send. The worst request that a bound accepts takes about the default `searchCutoffMs` on one
core, with an index of 36,000 films. Beyond it a request is refused with the code of the field.
"""
from __future__ import annotations

from typing import NamedTuple


class Bound(NamedTuple):
    """The number of items that is accepted. items: what is counted, as messages name it."""

    most: int
    items: str

    def refusal(self, found: int) -> str:
        """The sentence of an error. found: how many there are."""
        return f"expected at most {self.most} {self.items}, but found {found}"


# Each name costs some microseconds, for each portion of a long page again.
NAMES = Bound(10_000, "elements")
# Each expression is a ranking rule, which runs inside of the one before it.
SORT = Bound(100, "elements")
# Each identifier is looked up in the index: 4 us.
IDS = Bound(100_000, "elements")
# A query of which only the first 65,536 characters are looked at, but which the answer repeats.
TEXT = Bound(1_000_000, "characters")
# Numbers of a vector: the largest models make 8,192.
VECTOR = Bound(100_000, "elements")

# Queries of a multi-search. A page sends one for each list that it shows, so a dozen.
QUERIES = Bound(1000, "queries")

# Outlines of a filter are compared with geometries by one point for each kilometre: 15 us. The equator has 40,000 km.
OUTLINES = Bound(200_000, "km of outlines in `_geoRadius`, `_geoBoundingBox` and `_geoPolygon`")

# The sum over a filter, that is all texts of its array: 15 us each. What a condition costs is in svcd.filters.cost.
FILTER_COST = 100_000
