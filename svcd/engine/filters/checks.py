"""What the settings of an index let a filter do: which fields, and by which operators (relevance.md 5.3, 5.6).

Knows the refusals; refuses to know documents.
"""
from __future__ import annotations

from svcd.engine.field_values import GEO
from svcd.engine.filterable import Filterable, FilterableRule
from svcd.engine.filters.errors import FilterError
from svcd.engine.filters.tree import (
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
    parts_of,
)

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
