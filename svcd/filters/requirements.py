"""What the settings of an index let a filter do: which fields, and by which operators (relevance.md 5.3, 5.6).

Knows the refusals; refuses to know documents.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from svcd.filters.errors import FilterError, shown_place
from svcd.filters.tree import (
    BETWEEN,
    EQUAL,
    GREATER,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    NOT_EQUAL,
    SHARD,
    VECTORS,
    Comparison,
    Condition,
    Foreign,
    In,
    Polygon,
    Token,
    VectorExists,
    parts_of,
)
from svcd.schema.attributes import Filterable, FilterableRule
from svcd.schema.field_values import GEO

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
    """Refuse a field that may not be filtered by; of several the last one. Raises FilterError."""
    waiting = [condition]
    while waiting:
        condition = waiting.pop()
        if isinstance(condition, (Comparison, In)):
            field = condition.field
            if field.text not in filterable and field.text not in (SHARD, VECTORS):
                raise not_filterable(filterable, field.text, field)
        elif not isinstance(condition, Foreign):
            waiting += parts_of(condition)


def check_geo(filterable: Filterable, condition: Condition, place: Token) -> None:
    """Refuse a geo condition on an index that keeps no points and no shapes, a polygon on one without shapes."""
    needed = (GEOJSON,) if isinstance(condition, Polygon) else (GEO, GEOJSON)
    if not any(map(filterable.names, needed)):
        raise not_filterable(filterable, "/".join(needed), place)


def not_filterable(filterable: Filterable, attribute: str, place: Token) -> FilterError:
    """The refusal of an attribute, with what there is to filter by."""
    patterns = filterable.patterns()
    available = _SOME.format(patterns=", ".join(f"`{pattern}`" for pattern in patterns)) if patterns else _NONE
    return FilterError(_NOT_FILTERABLE.format(attribute=attribute, available=available), place)


def is_allowed(rule: FilterableRule, operator: str) -> bool:
    """May a field of this rule, which is filterable, be used with the operator?"""
    if operator in EQUALITY:
        return rule.equality
    return rule.comparison if operator in COMPARISON else True


def not_allowed(rule: FilterableRule, field: str, operator: str) -> FilterError:
    """The refusal of an operator."""
    allowed = ["OR", "AND", "NOT", *(["=", "!=", "IN"] if rule.equality else []),
               *(["<", ">", "<=", ">=", "TO"] if rule.comparison else []), "IS EMPTY", "IS NULL", "EXISTS"]
    features = "equality" if operator in EQUALITY else "comparison"
    return FilterError(_NOT_ALLOWED.format(operator=operator, field=field, allowed=", ".join(allowed),
                                           number=rule.number, features=features))


# Which parts of a filter need a feature, and where they stand (relevance.md 5.3).
#
# Knows the words of the refusals; refuses to know which features are on.


class FeatureRequirement(NamedTuple):
    """flag: of the feature. action: the words that open the refusal without it. shown_place: of what needs it."""

    flag: str
    action: str
    shown_place: str


def _contains(condition: Comparison) -> Token | None:
    return condition.keyword


def _shard(condition: Comparison | In) -> Token | None:
    return condition.field if condition.field.text == SHARD else None


_ACTIONS = {  # by flag, in the order in which they are checked
    "containsFilter": "Using `CONTAINS` in a filter",
    "foreignKeys": "using a foreign filter",
    "network": "using a shard filter",
    "multimodal": "using a vector filter",
}
_NEEDS: dict[type[Condition], Sequence[tuple[str, Callable[[Any], Token | None]]]] = {
    Comparison: (("containsFilter", _contains), ("network", _shard)),
    In: (("network", _shard),),
    Foreign: (("foreignKeys", lambda condition: condition.field),),
    VectorExists: (("multimodal", lambda condition: condition.name),),
}


def feature_requirements(condition: Condition) -> Iterator[FeatureRequirement]:
    """The features that a filter needs, each once, with the first place that needs it."""
    found: dict[str, str] = {}
    waiting = [(condition, 0)]
    while waiting:
        condition, since = waiting.pop()
        since = condition.start if isinstance(condition, Foreign) else since
        for flag, place_in in _NEEDS.get(type(condition), ()):
            place = place_in(condition)
            if place is not None and flag not in found:
                found[flag] = shown_place(place, since)
        if below := parts_of(condition):
            waiting += [(part, since) for part in reversed(below)]
    yield from (FeatureRequirement(flag, action, found[flag]) for flag, action in _ACTIONS.items() if flag in found)
