"""Check a filter before it is evaluated: the settings must allow its fields and operators, the instance its features.

Source: docs/filters-and-facets.md#permissions-in-the-settings.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.base.errors import ApiError
from svcd.filters.lexer import FilterError, shown_place
from svcd.filters.tree import (BETWEEN, EQUAL, GREATER, GREATER_OR_EQUAL, LESS, LESS_OR_EQUAL, NOT_EQUAL, SHARD, VECTORS,
                               Comparison, Condition, Foreign, In, Polygon, Token, VectorExists, parts_of)
from svcd.schema.attributes import Filterable, FilterableRule
from svcd.schema.field_values import GEO
from svcd.validation.features import FEATURES, not_enabled
from svcd.validation.messages import name_list

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


def _contains(condition: Comparison) -> Token | None:
    return condition.keyword


def _shard(condition: Comparison | In) -> Token | None:
    return condition.field if condition.field.text == SHARD else None


_ACTIONS = {  # flag -> action, in the order in which features are checked
    "containsFilter": "Using `CONTAINS` in a filter",
    "foreignKeys": "using a foreign filter",
    "network": "using a shard filter",
    "multimodal": "using a vector filter",
}
_REQUIREMENTS: dict[type[Condition], Sequence[tuple[str, Callable[[Any], Token | None]]]] = {
    Comparison: (("containsFilter", _contains), ("network", _shard)),
    In: (("network", _shard),),
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
            refusal = not_enabled(FEATURES[needed.flag], needed.action)
            raise ApiError(refusal.code, f"{refusal.message}\n{needed.shown_place}")
