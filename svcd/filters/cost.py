"""The costs of the conditions of a filter, and the bounds of their sum (docs/filters-and-facets.md#cost)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import pi, sin

from svcd.filters.lexer import FilterError, fail
from svcd.filters.tree import (BETWEEN, CONTAINS, EQUAL, GREATER, GREATER_OR_EQUAL, LESS, LESS_OR_EQUAL, STARTS_WITH, BoundingBox,
                               Comparison, Condition, Foreign, In, Not, Polygon, Radius, Token)
from svcd.geo.sphere import RADIUS_M, Point, distance
from svcd.validation.bounds import FILTER_COST, OUTLINES

LISTED = 1  # a value of a list is looked up together with hundreds of others in one statement
POINT = 2  # a point of a polygon is two numbers and an edge
ORDINARY = 5  # one set of documents, taken from all of them
RANGE = 100  # the sets of a range of values, hundreds in a field of many texts
SCAN = 1000  # all texts of a field, the places of an index, or another index

# Other operators are ORDINARY.
_BY_OPERATOR: Mapping[str, int] = {
    EQUAL: 2, CONTAINS: SCAN, **dict.fromkeys((LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, BETWEEN, STARTS_WITH), RANGE)}

_TOO_LARGE = (
    f"The filter is too large: its conditions cost more than {FILTER_COST}. A value in `IN [..]` costs {LISTED}, `=` and a point"
    f" of a polygon {POINT}, `<`, `<=`, `>`, `>=`, `TO` and `STARTS WITH` {RANGE}, `CONTAINS`, `_geoRadius`, `_geoBoundingBox`,"
    f" `_geoPolygon` and `_foreign` {SCAN}, other conditions {ORDINARY}.")


class Cost:
    """Adds up the costs of the conditions of one filter. left: the cost that is still allowed."""

    def __init__(self) -> None:
        self.left = FILTER_COST

    def add(self, cost: int) -> None:
        """Add a cost. Raises FilterError if the sum is too large."""
        self.left -= cost
        if self.left < 0:
            raise too_large()


def too_large() -> FilterError:
    """Return the error for a filter that costs too much."""
    return FilterError(_TOO_LARGE)


def cost_of(condition: Condition) -> int:
    """Return the cost of a condition that does not combine others, or of a list with one value."""
    if isinstance(condition, Not):
        return cost_of(condition.part)
    if isinstance(condition, Comparison):
        return comparison_cost(condition.operator)
    if isinstance(condition, Polygon):
        return SCAN + POINT * len(condition.points)
    if isinstance(condition, (Radius, BoundingBox, Foreign)):
        return SCAN
    return LISTED if isinstance(condition, In) else ORDINARY


def comparison_cost(operator: str) -> int:
    """Return the cost of a comparison."""
    return _BY_OPERATOR.get(operator, ORDINARY)


class Outlines:
    """Adds up the lengths of the outlines that one filter compares with geometries."""

    def __init__(self) -> None:
        self._metres = 0.0

    def add_circle(self, radius: float, place: Token) -> None:
        """Add a circle. Raises FilterError if the sum is too long; place: the first token of the condition."""
        self._add(2 * pi * RADIUS_M * abs(sin(radius / RADIUS_M)), place)

    def add_polygon(self, points: Sequence[Point], place: Token) -> None:
        """Add a polygon. Raises FilterError if the sum is too long; place: the first token of the condition."""
        self._add(sum(distance(left, right) for left, right in pairwise([*points, points[0]])), place)

    def _add(self, metres: float, place: Token) -> None:
        self._metres += metres
        if self._metres > OUTLINES.most * 1000:
            fail(f"The filter is too large: {OUTLINES.refusal(round(self._metres / 1000))}.", place)
