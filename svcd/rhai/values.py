"""The values of the language: their types, text form, comparison, and conversion to JSON.

`()` is None; integers (64 bits), floats, booleans, strings, arrays and object maps are Python's own types; Char, Range and
FnPointer are defined here. Types are tested with type(), because Char is a subclass of str and bool of int.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from svcd.base import json_text
from svcd.rhai.errors import FunctionError

Value = Any

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
# Floats beyond these magnitudes are written with an exponent.
_MOST_PLAIN, _LEAST_PLAIN = 1e13, 1e-13


class Char(str):
    """One character."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Range:
    """Integers from start to end, which is part of it if is_inclusive; step is never 0."""

    start: int
    end: int
    is_inclusive: bool = False
    step: int = 1

    def values(self) -> range:
        """The integers, as a lazy range."""
        beyond = 1 if self.step > 0 else -1
        return range(self.start, self.end + beyond * self.is_inclusive, self.step)

    def __str__(self) -> str:
        return f"{self.start}..{'=' * self.is_inclusive}{self.end}"


class FnPointer:
    """A function as a value. parameters: their number, None if only the name is known (`Fn("name")`)."""

    __slots__ = ("curried", "name", "parameters", "run")

    def __init__(self, name: str, run: Any, parameters: int | None, curried: tuple[Value, ...] = ()) -> None:
        self.name = name
        self.run = run
        self.parameters = parameters
        self.curried = curried

    def __str__(self) -> str:
        return f"Fn({self.name})"


_TYPE_NAMES = {
    type(None): "()", bool: "bool", int: "i64", float: "f64", str: "string", Char: "char", list: "array", dict: "map",
    Range: "range", FnPointer: "Fn",
}


def type_name(value: Value) -> str:
    """The result of type_of()."""
    if type(value) is Range and value.is_inclusive:
        return "range="
    return _TYPE_NAMES[type(value)]


def mismatch(value: Value, expected: str) -> FunctionError:
    """The error for a value of the wrong type."""
    return FunctionError(f"Data type incorrect: {type_name(value)} (expecting {expected})")


# Text form


def pieces(value: Value, *, is_bare: bool = False) -> Iterator[str]:
    """The text form of a value, in pieces. Strings are quoted and `()` is written out, unless is_bare."""
    kind = type(value)
    if is_bare and (value is None or isinstance(value, str)):
        yield str(value or "")
        return
    if kind is list:
        yield "["
        for at, element in enumerate(value):
            yield ", " if at else ""
            yield from pieces(element)
        yield "]"
    elif kind is dict:
        yield "#{"
        for at, name in enumerate(sorted(value)):
            yield f"{', ' if at else ''}{json_text.dumps(name)}: "
            yield from pieces(value[name])
        yield "}"
    else:
        yield _scalar(value)


def _scalar(value: Value) -> str:
    if value is None:
        return "()"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    if type(value) is Char:
        return f"'{value}'"
    return json_text.dumps(value) if isinstance(value, str) else str(value)


def float_text(number: float) -> str:
    """`1.0`, `0.25`, `2e13`: the shortest digits that read back, with an exponent for very large and small numbers."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    if number == 0:
        return "0.0"
    if not _LEAST_PLAIN <= abs(number) <= _MOST_PLAIN:
        sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
        first, *others = map(str, digits)
        point = "." if others else ""
        return f"{'-' * sign}{first}{point}{''.join(others)}e{int(exponent) + len(digits) - 1}"
    text = repr(number)
    return format(Decimal(text), "f") if "e" in text else text


# Comparison


def is_same(left: Value, right: Value) -> bool:
    """Are two JSON values identical? 1, 1.0 and true differ; the order of members does not matter."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(is_same(left[name], right[name]) for name in left)
    return bool(left == right)


# JSON


def as_json(value: Value, depth: int = 0) -> Value:
    """A value as JSON: members sorted by name, NaN and infinities as null.

    Raises FunctionError for function pointers and ranges, and for nesting beyond the limit of JSON texts.
    """
    kind = type(value)
    if depth == json_text.MAX_DEPTH and (kind is dict or kind is list):
        raise FunctionError("Depth of value too large", is_limit=True)
    if kind is dict:
        return {name: as_json(value[name], depth + 1) for name in sorted(value)}
    if kind is list:
        return [as_json(element, depth + 1) for element in value]
    if kind is Char:
        return str(value)
    if kind is float and not math.isfinite(value):
        return None
    if kind is FnPointer or kind is Range:
        raise mismatch(value, "a value that a document can hold")
    return value
