"""The JSON form of a filter, before anybody reads its text.

Knows which nesting of lists is one and what counts as no filter at all; refuses to know the grammar and
error codes of routes.
"""
from __future__ import annotations

from typing import Any

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
    return not value.strip() if isinstance(value, str) else all(is_empty(part) for part in value)
