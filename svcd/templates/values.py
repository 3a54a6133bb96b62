"""Values in templates: how they are written, looked up and compared.

A value is JSON (None is `nil`), a range `(1..3)`, or one of the states EMPTY and BLANK, which stand for `empty` and `blank`.
"""
from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

from svcd.templates import limits
from svcd.templates.errors import TemplateError


class State(Enum):
    """A literal that equals every value in that state."""

    EMPTY = "empty"
    BLANK = "blank"
    MISSING = "missing"  # no value at all: what get() answers for an index that does not exist


EMPTY, BLANK, MISSING = State.EMPTY, State.BLANK, State.MISSING
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def is_array(value: Any) -> bool:
    """True for arrays and ranges."""
    return isinstance(value, (list, tuple, range))


def is_scalar(value: Any) -> bool:
    """True for text, numbers and booleans."""
    return isinstance(value, (str, int, float))


def is_truthy(value: Any) -> bool:
    """All values except nil and false are true."""
    return value is not None and value is not False


def type_name(value: Any) -> str:
    """The word for its type in messages."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "boolean"
    names = ((int, "whole number"), (float, "fractional number"), (str, "string"), (Mapping, "object"))
    return next((name for kind, name in names if isinstance(value, kind)), "array")


# Writing


def text_of(value: Any, depth: int = limits.NESTING) -> str:
    """The value as an output writes it: nil is nothing, elements of arrays and members of objects follow each other without
    anything between them, numbers have no exponent. Raises TemplateError beyond the limit of nesting."""
    if isinstance(value, str):
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float_text(value)
    if not depth:
        raise TemplateError("liquid: Value is nested too deeply\n")
    if isinstance(value, Mapping):
        return "".join([part for key, member in value.items() for part in (key, text_of(member, depth - 1))])
    if isinstance(value, range):
        return f"{value.start}..{value.stop - 1}"
    if isinstance(value, (list, tuple)):
        return "".join([text_of(element, depth - 1) for element in value])
    return ""


def _float_text(value: float) -> str:
    """The shortest decimal number that is read as this one, without exponent: `1`, `0.1`, `0.0000001`."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    text = repr(value)
    if "e" in text:
        text = format(Decimal(text), "f")
    return text.removesuffix(".0")


def source_of(value: Any, depth: int = limits.NESTING) -> str:
    """The value as messages show it: text in quotes, nil by its name."""
    if value is None:
        return "nil"
    if isinstance(value, str):
        return f'"{value}"'
    if not depth:
        return "..."
    if isinstance(value, Mapping):
        return "{" + "".join(f'"{key}": {source_of(member, depth - 1)}, ' for key, member in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + "".join(f"{source_of(element, depth - 1)}, " for element in value) + "]"
    return text_of(value)


# Looking up


def get(value: Any, index: Any) -> Any:
    """An element of an array (from its end, if negative), a member of an object, or `size`, `first`, `last`; else MISSING."""
    if isinstance(value, Mapping):
        name = index if isinstance(index, str) else text_of(index)
        if name in value:
            return value[name]
        return len(value) if name == "size" else MISSING
    if is_array(value):
        return _element(value, index)
    return len(text_of(value)) if index == "size" and is_scalar(value) else MISSING


def _element(array: Sequence[Any], index: Any) -> Any:
    if isinstance(index, str):
        if index == "size":
            return len(array)
        index = {"first": 0, "last": -1}.get(index, index)
    if isinstance(index, str) and _WHOLE_NUMBER.fullmatch(index):
        index = int(index)
    if not isinstance(index, int) or isinstance(index, bool) or not -len(array) <= index < len(array):
        return MISSING
    return array[index]


def find(root: Any, path: Sequence[Any]) -> Any:
    """The value at a path; path[0] is the name of the variable whose value is root.

    Raises TemplateError with the indexes that there are.
    """
    value = root
    for place in range(1, len(path)):
        inner = get(value, path[place])
        if inner is MISSING:
            raise unknown_index(path, place, value)
        value = inner
    return value


def unknown_variable(name: str) -> TemplateError:
    """A variable that does not exist."""
    return TemplateError(f"liquid: Unknown variable\n  with:\n    requested variable={name}\n")


def unknown_index(path: Sequence[Any], place: int, parent: Any) -> TemplateError:
    """An index that the value before it does not have. place: which one of the path."""
    if isinstance(parent, Mapping):
        available = ", ".join(parent)
    elif is_array(parent):
        available = ", ".join(([f"0..{len(parent) - 1}"] if len(parent) else []) + ["first", "last"])
    else:
        available = ""
    variable = ".".join(map(text_of, path[:place]))
    return TemplateError("liquid: Unknown index\n  with:\n"
                         f"    variable={variable}\n    requested index={text_of(path[place])}\n"
                         f"    available indexes={available}\n")


# Comparing


def _is_in_state(value: Any, state: State) -> bool:
    if state is EMPTY:
        return value is EMPTY or ((isinstance(value, (str, Mapping)) or is_array(value)) and not value)
    if isinstance(value, str):
        return not value.strip()
    return value in (None, False, BLANK) if is_scalar(value) or value is None else not value or value is BLANK


def equal(left: Any, right: Any, depth: int = limits.NESTING) -> bool:
    """`==`. Numbers are compared by value; true equals everything except nil and false."""
    if isinstance(left, State) or isinstance(right, State):
        return _is_in_state(right, left) if isinstance(left, State) else _is_in_state(left, right)
    if left is None or right is None:
        return left is right
    if is_array(left) and is_array(right):
        return len(left) == len(right) and all(_equal_inside(a, b, depth) for a, b in zip(left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return len(left) == len(right) and all(
            key in right and _equal_inside(member, right[key], depth) for key, member in left.items())
    if not (is_scalar(left) and is_scalar(right)):
        return False
    if isinstance(left, bool) or isinstance(right, bool):
        return is_truthy(left) == is_truthy(right)
    return bool(left == right)


def _equal_inside(left: Any, right: Any, depth: int) -> bool:
    if not depth:
        raise TemplateError("liquid: Value is nested too deeply\n")
    return equal(left, right, depth - 1)


def order(left: Any, right: Any) -> int | None:
    """-1, 0 or 1: less, equal or greater; None: they have no order."""
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(left, bool) or isinstance(right, bool):
        return (left > right) - (left < right) if isinstance(left, bool) and isinstance(right, bool) else None
    if isinstance(left, (int, float)) and isinstance(right, (int, float)) and left == left and right == right:
        return (left > right) - (left < right)
    return None


def contains(left: Any, right: Any) -> bool:
    """`contains`: part of a text, element of an array, name of a member. Raises TemplateError for nil."""
    if is_scalar(left):
        return text_of(right) in text_of(left)
    if isinstance(left, Mapping):
        return is_scalar(right) and text_of(right) in left
    if is_array(left):
        return any(equal(element, right) for element in left)
    raise TemplateError(f"liquid: Expected string | array | object, found `{type_name(left)}`\n")
