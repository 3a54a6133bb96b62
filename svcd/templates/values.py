"""Write, look up and compare values in templates.

A value is JSON (None is `nil`), a range `(1..3)`, or one of the states EMPTY and BLANK, the values of `empty` and `blank`.
Functions that iterate over elements take `charge`, which counts them (svcd.templates.limits).
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from svcd.templates.limits import NESTING, Charge, TemplateError


class State(Enum):
    """A literal that equals every value in that state."""

    EMPTY = "empty"
    BLANK = "blank"
    MISSING = "missing"  # no value: the result of get() for an index that does not exist


EMPTY, BLANK, MISSING = State.EMPTY, State.BLANK, State.MISSING
SHOWN = 200
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def is_array(value: Any) -> bool:
    """Return whether a value is an array or a range."""
    return isinstance(value, (list, tuple, range))


def is_scalar(value: Any) -> bool:
    """Return whether a value is text, a number or a boolean."""
    return isinstance(value, (str, int, float))


def is_truthy(value: Any) -> bool:
    """Return whether a value is neither nil nor false."""
    return value is not None and value is not False


def type_name(value: Any) -> str:
    """Return the name of a value's type for messages."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "boolean"
    names = ((int, "whole number"), (float, "fractional number"), (str, "string"), (Mapping, "object"))
    return next((name for kind, name in names if isinstance(value, kind)), "array")


def text_of(value: Any, charge: Charge, depth: int = NESTING) -> str:
    """Return the text that an output writes: nothing for nil, elements of arrays and members of objects without separators,
    numbers without exponent. Raises TemplateError beyond the limits."""
    if is_scalar(value) or value is None:
        return scalar_text(value)
    if isinstance(value, range):
        return f"{value.start}..{value.stop - 1}"
    if isinstance(value, State):
        return ""
    charge(len(value))
    inside = _deeper(depth)
    if isinstance(value, Mapping):
        return "".join([part for key, member in value.items() for part in (key, text_of(member, charge, inside))])
    return "".join([text_of(element, charge, inside) for element in value])


def _deeper(depth: int) -> int:
    if not depth:
        raise TemplateError("liquid: Value is nested too deeply\n")
    return depth - 1


def scalar_text(value: str | float | None) -> str:
    """Return the output of text, numbers, booleans and nil."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    # The shortest decimal number that is read as this one, without exponent: `1`, `0.1`, `0.0000001`.
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    text = repr(value)
    if "e" not in text:
        return text.removesuffix(".0")
    mantissa, exponent = text.removeprefix("-").split("e")  # `-1.5e-07` becomes `-0.00000015`
    whole, _, fraction = mantissa.partition(".")
    digits, places = whole + fraction, len(whole) + int(exponent)
    plain = f"0.{'0' * -places}{digits}" if places <= 0 else digits.ljust(places, "0")
    return "-" * text.startswith("-") + plain


def source_of(value: Any) -> str:
    """Return the text of a value for messages: text in quotes, nil by its name, cut after SHOWN characters."""
    shown = ""
    for part in _source_parts(value, NESTING):
        shown += part[:SHOWN + 1]
        if len(shown) > SHOWN:
            return shown[:SHOWN] + "…"
    return shown


def _source_parts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from ('"', value, '"')
    elif not isinstance(value, (Mapping, list, tuple)) or not depth:
        yield "nil" if value is None else scalar_text(value) if is_scalar(value) else "..."
    elif isinstance(value, Mapping):
        yield "{"
        for key, member in value.items():
            yield f'"{key}": '
            yield from _source_parts(member, depth - 1)
            yield ", "
        yield "}"
    else:
        yield "["
        for element in value:
            yield from _source_parts(element, depth - 1)
            yield ", "
        yield "]"


def get(value: Any, index: Any) -> Any:
    """Return an element of an array (negative: from its end), a member of an object, `size`, `first`, `last`; or MISSING."""
    if isinstance(value, Mapping):
        name = scalar_text(index)
        if name in value:
            return value[name]
        return len(value) if name == "size" else MISSING
    if not is_array(value):
        return len(scalar_text(value)) if index == "size" and is_scalar(value) else MISSING
    if isinstance(index, str):
        if index == "size":
            return len(value)
        index = {"first": 0, "last": -1}.get(index, index)
    if isinstance(index, str) and _WHOLE_NUMBER.fullmatch(index):
        index = int(index)
    if not isinstance(index, int) or isinstance(index, bool) or not -len(value) <= index < len(value):
        return MISSING
    return value[index]


def find(root: Any, path: Sequence[Any]) -> Any:
    """Return the value at a path; path[0] names the variable of root. Raises TemplateError with the existing indexes."""
    value = root
    for place in range(1, len(path)):
        inner = get(value, path[place])
        if inner is MISSING:
            available = ", ".join(value) if isinstance(value, Mapping) else ""
            if is_array(value):
                available = ", ".join(([f"0..{len(value) - 1}"] if len(value) else []) + ["first", "last"])
            variable = ".".join(map(scalar_text, path[:place]))
            raise TemplateError(f"liquid: Unknown index\n  with:\n    variable={variable}\n"
                                f"    requested index={scalar_text(path[place])}\n    available indexes={available}\n")
        value = inner
    return value


def unknown_variable(name: str) -> TemplateError:
    """Return the error for a variable that does not exist."""
    return TemplateError(f"liquid: Unknown variable\n  with:\n    requested variable={name}\n")


def _is_in_state(value: Any, state: State) -> bool:
    if state is EMPTY:
        return value is EMPTY or ((isinstance(value, (str, Mapping)) or is_array(value)) and not value)
    if isinstance(value, str):
        return not value.strip()
    return value in (None, False, BLANK) if is_scalar(value) or value is None else not value or value is BLANK


def equal(left: Any, right: Any, charge: Charge, depth: int = NESTING) -> bool:
    """Evaluate `==`. Numbers compare by value; true equals all except nil and false. Raises TemplateError beyond limits."""
    if isinstance(left, State) or isinstance(right, State):
        return _is_in_state(right, left) if isinstance(left, State) else _is_in_state(left, right)
    if left is None or right is None:
        return left is right
    if is_array(left) and is_array(right):
        inside = _deeper(depth)
        charge(len(left))
        return len(left) == len(right) and all(equal(a, b, charge, inside) for a, b in zip(left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        inside = _deeper(depth)
        charge(len(left))
        return len(left) == len(right) and all(
            key in right and equal(member, right[key], charge, inside) for key, member in left.items())
    if not (is_scalar(left) and is_scalar(right)):
        return False
    if isinstance(left, bool) or isinstance(right, bool):
        return is_truthy(left) == is_truthy(right)
    if isinstance(left, str) and isinstance(right, str):
        charge(min(len(left), len(right)) // 1024)
    return bool(left == right)


def order(left: Any, right: Any) -> int | None:
    """Return -1, 0 or 1 for less, equal or greater; None for values without an order."""
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(left, bool) or isinstance(right, bool):
        return (left > right) - (left < right) if isinstance(left, bool) and isinstance(right, bool) else None
    if isinstance(left, (int, float)) and isinstance(right, (int, float)) and left == left and right == right:
        return (left > right) - (left < right)
    return None


def contains(left: Any, right: Any, charge: Charge) -> bool:
    """Evaluate `contains`: part of a text, element of an array, name of a member. Raises TemplateError for nil, beyond limits."""
    if is_scalar(left):
        text = scalar_text(left)
        charge(len(text) // 64)
        return text_of(right, charge) in text
    if isinstance(left, Mapping):
        return is_scalar(right) and scalar_text(right) in left
    if is_array(left):
        charge(len(left))
        return any(equal(element, right, charge) for element in left)
    raise TemplateError(f"liquid: Expected string | array | object, found `{type_name(left)}`\n")
