"""The JSON form of a filter: a text, or lists of texts that stand for AND and OR (relevance.md 5.1).

Knows which nesting of lists is one, what counts as no filter at all, and how two are joined; refuses to know the
grammar and the codes of routes.
"""
from __future__ import annotations

from typing import Any

from svcd.engine.field_values import WHITE_SPACE
from svcd.errors import ApiError
from svcd.jsontext import dumps

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
