"""Check a filter before it is evaluated: the settings must allow its fields and operators, the instance its features; and the
costs of its conditions are bounded.

Source: docs/filters-and-facets.md#permissions-in-the-settings, docs/filters-and-facets.md#cost.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import pi, sin
from typing import Any, NamedTuple

from svcd.base.errors import ApiError
from svcd.filters.lexer import FilterError, fail, shown_place
from svcd.filters.tree import (
    BETWEEN, CONTAINS, EQUAL, GREATER, GREATER_OR_EQUAL, LESS, LESS_OR_EQUAL, NOT_EQUAL, SHARD, STARTS_WITH, VECTORS,
    BoundingBox, Comparison, Condition, Foreign, In, Not, Polygon, Radius, Token, VectorExists, parts_of,
)
from svcd.geo.sphere import RADIUS_M, Point, distance
from svcd.schema.attributes import Filterable, FilterableRule
from svcd.schema.field_values import GEO
from svcd.validation.bounds import FILTER_COST, OUTLINES
from svcd.validation.messages import name_list
from svcd.validation.names import FEATURES, feature_not_enabled

Flags = Callable[[], Mapping[str, bool | None]]  # None, which a dump may contain, means off

GEOJSON = "_geojson"
EQUALITY = frozenset({EQUAL, NOT_EQUAL})
COMPARISON = frozenset({LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, BETWEEN})

_NOT_FILTERABLE = "Attribute `{attribute}` is not filterable. {available}"
_NONE = "This index does not have configured filterable attributes."
_SOME = "Available filterable attribute patterns are: {patterns}."
_NOT_ALLOWED = (
    "Filter operator `{operator}` is not allowed for the attribute `{field}`.\n"
    "  - Note: allowed operators: {allowed}.\n"
    "  - Note: field `{field}` matched rule #{number} in `filterableAttributes`\n"
    "  - Hint: enable {features} in rule #{number} by modifying the features.filter object\n"
    "  - Hint: prepend another rule matching `{field}` with appropriate filter features before rule #{number}")


def check_fields(filterable: Filterable, condition: Condition) -> None:
    """Check that all fields are filterable. Raises FilterError for the last field in the text that is not."""
    pending = [condition]
    while pending:
        condition = pending.pop()
        if isinstance(condition, (Comparison, In)):
            field = condition.field
            if field.text not in filterable and field.text not in (SHARD, VECTORS):
                raise not_filterable(filterable, field.text, field)
        elif not isinstance(condition, Foreign):
            pending += parts_of(condition)


def check_geo(filterable: Filterable, condition: Condition, place: Token) -> None:
    """Check that `_geo` or `_geojson` is filterable; `_geojson` for a polygon. Raises FilterError."""
    needed = (GEOJSON,) if isinstance(condition, Polygon) else (GEO, GEOJSON)
    if not any(map(filterable.names, needed)):
        raise not_filterable(filterable, "/".join(needed), place)


def not_filterable(filterable: Filterable, attribute: str, place: Token) -> FilterError:
    """Return the error for an attribute that is not filterable; it lists the patterns that are."""
    patterns = filterable.patterns()
    available = _SOME.format(patterns=name_list(patterns)) if patterns else _NONE
    return FilterError(_NOT_FILTERABLE.format(attribute=attribute, available=available), place)


def is_allowed(rule: FilterableRule, operator: str) -> bool:
    """Return whether a rule that allows filtering allows this operator."""
    if operator in EQUALITY:
        return rule.equality
    return rule.comparison if operator in COMPARISON else True


def not_allowed(rule: FilterableRule, field: str, operator: str) -> FilterError:
    """Return the error for an operator that the rule of a field does not allow."""
    allowed = ["OR", "AND", "NOT", *(["=", "!=", "IN"] if rule.equality else []),
               *(["<", ">", "<=", ">=", "TO"] if rule.comparison else []), "IS EMPTY", "IS NULL", "EXISTS"]
    features = "equality" if operator in EQUALITY else "comparison"
    return FilterError(_NOT_ALLOWED.format(operator=operator, field=field, allowed=", ".join(allowed),
                                           number=rule.number, features=features))


# Experimental features

class FeatureRequirement(NamedTuple):
    """An experimental feature that a filter needs.

    flag: name of the feature. action: the start of the error message when the feature is off. shown_place: of the first
    part of the filter that needs it.
    """

    flag: str
    action: str
    shown_place: str


_ACTIONS = {  # flag -> action, in the order in which features are checked
    "containsFilter": "Using `CONTAINS` in a filter",
    "foreignKeys": "using a foreign filter",
    "network": "using a shard filter",
    "multimodal": "using a vector filter",
}
_SHARD_FILTER = "network", lambda condition: condition.field if condition.field.text == SHARD else None
_REQUIREMENTS: dict[type[Condition], Sequence[tuple[str, Callable[[Any], Token | None]]]] = {
    Comparison: (("containsFilter", lambda condition: condition.keyword), _SHARD_FILTER), In: (_SHARD_FILTER,),
    Foreign: (("foreignKeys", lambda condition: condition.field),),
    VectorExists: (("multimodal", lambda condition: condition.name),),
}


def feature_requirements(condition: Condition) -> Iterator[FeatureRequirement]:
    """Yield the features that a filter needs, each once, with the first place that needs it."""
    places: dict[str, str] = {}
    pending = [(condition, 0)]
    while pending:
        condition, shown_from = pending.pop()
        shown_from = condition.start if isinstance(condition, Foreign) else shown_from
        for flag, place_in in _REQUIREMENTS.get(type(condition), ()):
            place = place_in(condition)
            if place is not None and flag not in places:
                places[flag] = shown_place(place, shown_from)
        if parts := parts_of(condition):
            pending += [(part, shown_from) for part in reversed(parts)]
    yield from (FeatureRequirement(flag, action, places[flag]) for flag, action in _ACTIONS.items() if flag in places)


def check_features(condition: Condition | None, flags: Flags) -> None:
    """Check that all features that a filter needs are on. Raises feature_not_enabled for the first disabled feature.

    flags: returns the features; called only if one is needed.
    """
    for needed in feature_requirements(condition) if condition is not None else ():
        if not flags().get(needed.flag):
            refusal = feature_not_enabled(FEATURES[needed.flag], needed.action)
            raise ApiError(refusal.code, f"{refusal.message}\n{needed.shown_place}")


# Costs (docs/filters-and-facets.md#cost)

LISTED = 1  # a value of a list is looked up together with hundreds of others in one statement
POINT = 2  # a point of a polygon is two numbers and an edge
ORDINARY = 5  # one set of documents, taken from all of them
RANGE = 100  # the sets of a range of values, hundreds in a field of many texts
SCAN = 1000  # all texts of a field, the places of an index, or another index

# Other operators are ORDINARY.
COST_BY_OPERATOR: Mapping[str, int] = {
    EQUAL: 2, CONTAINS: SCAN, **dict.fromkeys((LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, BETWEEN, STARTS_WITH), RANGE)}

TOO_LARGE = (
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
            raise FilterError(TOO_LARGE)


def cost_of(condition: Condition) -> int:
    """Return the cost of a condition that does not combine others, or of a list with one value."""
    if isinstance(condition, Not):
        return cost_of(condition.part)
    if isinstance(condition, Comparison):
        return COST_BY_OPERATOR.get(condition.operator, ORDINARY)
    if isinstance(condition, Polygon):
        return SCAN + POINT * len(condition.points)
    if isinstance(condition, (Radius, BoundingBox, Foreign)):
        return SCAN
    return LISTED if isinstance(condition, In) else ORDINARY


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
