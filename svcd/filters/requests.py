"""Filters of requests: JSON in, documents out, errors with the code of the route.

A filter is a text, or a list (AND) of texts and of lists (OR) of texts.
Source: docs/filters-and-facets.md#json-form.
"""
from __future__ import annotations

from typing import Any

from svcd.base.bitmaps import DocIds
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.filters.canonical_text import canonical_token
from svcd.filters.errors import FilterError, shown_place
from svcd.filters.evaluation import evaluate
from svcd.filters.parser import parse
from svcd.filters.tree import And, Condition, Or
from svcd.query.reader import Reader
from svcd.schema.field_values import WHITE_SPACE

# The JSON types that each level of nesting may have, outermost first, as the message names them.
_LEVELS = ("String, Array", "String, [String]", "String")


def check_shape(value: Any, code: str, level: int = 0) -> None:
    """Check that a value is a text, or a list of texts and of lists of texts. Raises `code`."""
    if isinstance(value, str):
        return
    if not isinstance(value, list) or level + 1 == len(_LEVELS):
        found = f"expected {_LEVELS[level]}, found: {dumps(value)}"
        raise ApiError(code, f"Invalid syntax for the filter parameter: `{found}`.")
    for part in value:
        check_shape(part, code, level + 1)


def is_empty(value: Any) -> bool:
    """Is a filter of valid shape without any condition?"""
    return not value.strip(WHITE_SPACE) if isinstance(value, str) else all(is_empty(part) for part in value)


def combine(request_filter: Any, rule_filter: Any) -> Any:
    """The conjunction of two filters of valid shape or None (no filter): of the request, then of a tenant token.

    The order matters for which error is reported first.
    """
    if request_filter is None or rule_filter is None:
        return rule_filter if request_filter is None else request_filter
    return [*_as_list(request_filter), *_as_list(rule_filter)]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# Operators that are not allowed have this code on every route, as their messages have no place.
_OPERATOR_CODE = "invalid_search_filter"


def read_filter(value: Any, code: str) -> Condition | None:
    """The condition tree of a filter in JSON form; None when it has no condition. Raises `code`."""
    if value is None:
        return None
    check_shape(value, code)
    try:
        return parse_filter(value)
    except FilterError as error:
        raise ApiError(code, error.message) from None


def parse_filter(value: Any) -> Condition | None:
    """The condition tree of a filter of valid shape; None when it has no condition. Raises FilterError."""
    if isinstance(value, str):
        return parse(value)
    parts = [parse(part) if isinstance(part, str) else _combined(Or, map(parse, part)) for part in value]
    return _combined(And, parts)


def _combined(operator: Any, parts: Any) -> Condition | None:
    """Blank parts (None) contribute nothing, and a single condition stands for itself."""
    conditions = [part for part in parts if part is not None]
    return operator(conditions) if len(conditions) > 1 else next(iter(conditions), None)


def filter_docids(reader: Reader, condition: Condition | None, code: str, *, is_rewritten: bool = False,
                  shown_from: int = 0) -> DocIds:
    """The documents that meet a filter; all documents without one.

    Raises `code`, but invalid_search_filter for an operator that a field or `_shard` does not allow and for an unknown
    shard. is_rewritten: errors show the filter in canonical form, as those of searches do; else as it was written, from
    the index `shown_from` on.
    """
    if condition is None:
        return reader.all_docids()
    try:
        return evaluate(reader, condition)
    except FilterError as error:
        if error.place is None:
            raise ApiError(_OPERATOR_CODE, error.sentence) from None
        if is_rewritten:
            raise ApiError(code, f"{error.sentence}\n{shown_place(canonical_token(condition, error.place))}") from None
        error.shown_from = shown_from
        raise ApiError(code, error.message) from None
