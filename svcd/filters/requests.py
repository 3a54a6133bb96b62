"""The JSON form of a filter: a text, or lists of texts that stand for AND and OR (relevance.md 5.1).

Knows which nesting of lists is one, what counts as no filter at all, and how two are joined; refuses to know the
grammar and the codes of routes.
"""
from __future__ import annotations

from typing import Any

from svcd.base.bitmaps import DocIds
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.filters.canonical_text import canonical_condition
from svcd.filters.errors import FilterError, shown_place
from svcd.filters.evaluation import evaluate
from svcd.filters.parser import parse
from svcd.filters.tree import And, Condition, Or
from svcd.query.reader import Reader
from svcd.schema.field_values import WHITE_SPACE

# What may stand at each level, from the outside to the inside.
_LEVELS = ("String, Array", "String, [String]", "String")


def check_shape(value: Any, code: str, level: int = 0) -> None:
    """Raise `code` unless the value is a text, a list of texts, or a list of lists of texts."""
    if isinstance(value, str):
        return
    if not isinstance(value, list) or level + 1 == len(_LEVELS):
        found = f"expected {_LEVELS[level]}, found: {dumps(value)}"
        raise ApiError(code, f"Invalid syntax for the filter parameter: `{found}`.")
    for part in value:
        check_shape(part, code, level + 1)


def is_empty(value: Any) -> bool:
    """Whether a filter of right shape asks for nothing."""
    return not value.strip(WHITE_SPACE) if isinstance(value, str) else all(is_empty(part) for part in value)


def combine(request_filter: Any, rule_filter: Any) -> Any:
    """A filter of right shape that asks for both of two: the request's, then that of a rule. None asks for nothing."""
    if request_filter is None or rule_filter is None:
        return rule_filter if request_filter is None else request_filter
    return [*_as_list(request_filter), *_as_list(rule_filter)]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# The doors of filters: JSON in, documents out, errors with the code of the route.
#
# Knows which text errors refer to: that of the user, or the canonical one of searches; refuses to know routes.


_OPERATOR_CODE = "invalid_search_filter"


def read_filter(value: Any, code: str) -> Condition | None:
    """The tree of a filter as a request has it; None when it asks for nothing. Raises `code`."""
    if value is None:
        return None
    check_shape(value, code)
    try:
        return parse_filter(value)
    except FilterError as error:
        raise ApiError(code, error.message) from None


def parse_filter(value: Any) -> Condition | None:
    """The tree of a filter of right shape; None when it asks for nothing. Raises FilterError."""
    if isinstance(value, str):
        return parse(value)
    parts = [parse(part) if isinstance(part, str) else _joined(Or, map(parse, part)) for part in value]
    return _joined(And, parts)


def _joined(join: Any, parts: Any) -> Condition | None:
    """What has nothing in it contributes nothing; one alone needs no join."""
    conditions = [part for part in parts if part is not None]
    return join(conditions) if len(conditions) > 1 else next(iter(conditions), None)


def filter_docids(reader: Reader, condition: Condition | None, code: str, *, is_rewritten: bool = False,
             since: int = 0) -> DocIds:
    """The documents that meet a filter; all of them without one.

    Raises `code`; for an operator that a field or `_shard` does not allow, and for an unknown shard, the code of
    searches on every route (relevance.md 5.6); these alone have no place in the text.
    is_rewritten: errors show the filter in canonical form, as those of searches do; else from `since` on.
    """
    if condition is None:
        return reader.all_docids()
    try:
        return evaluate(reader, condition)
    except FilterError as error:
        if error.place is None:
            raise ApiError(_OPERATOR_CODE, error.sentence) from None
        if is_rewritten:
            raise ApiError(code, f"{error.sentence}\n{shown_place(canonical_condition(condition, error.place))}") from None
        error.since = since
        raise ApiError(code, error.message) from None
