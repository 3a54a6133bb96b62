"""Operators: the builtins for each operator and pair of operand types.

Integers have 64 bits and raise an error on overflow; an integer beside a float is converted to one. Values of different
types are unequal, and not ordered. The wording of errors is Rhai's.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

from svcd.rhai.values import (
    ANY, MAX_INT, MIN_INT, Builtin, Char, FnPointer, FunctionError, Range, Runtime, Value, pure, type_name,
)

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}
_TEXT_KINDS = (str, Char)


# Integers


def _checked(result: int, message: str) -> int:
    if MIN_INT <= result <= MAX_INT:
        return result
    raise FunctionError(message)


def _add(runtime: Runtime, x: int, y: int) -> int:
    result = x + y
    return result if MIN_INT <= result <= MAX_INT else _checked(result, f"Addition overflow: {x} + {y}")


def _divide(runtime: Runtime, x: int, y: int) -> int:
    """Rounds towards zero."""
    if y == 0:
        raise FunctionError(f"Division by zero: {x} / {y}")
    quotient = abs(x) // abs(y)
    return _checked(quotient if (x < 0) == (y < 0) else -quotient, f"Division overflow: {x} / {y}")


def _remainder(runtime: Runtime, x: int, y: int) -> int:
    """Has the sign of x."""
    if y == 0 or x == MIN_INT and y == -1:
        raise FunctionError(f"Modulo division by zero or overflow: {x} % {y}")
    rest = abs(x) % abs(y)
    return -rest if x < 0 else rest


def _power(runtime: Runtime, x: int, y: int) -> int:
    if y < 0:
        raise FunctionError(f"Integer raised to a negative power: {x} ** {y}")
    message = f"Exponential overflow: {x} ** {y}"
    if y > 64 and abs(x) > 1:  # overflows for certain: do not compute it
        raise FunctionError(message)
    return _checked(x ** (y if abs(x) > 1 else min(y, 2 + y % 2)), message)


def _shift_left(runtime: Runtime, x: int, y: int) -> int:
    if y < 0:
        return _shift_right(runtime, x, min(-y, MAX_INT))
    shifted = (x << y) & (2**64 - 1) if y < 64 else 0
    return shifted - 2**64 if shifted > MAX_INT else shifted


def _shift_right(runtime: Runtime, x: int, y: int) -> int:
    return _shift_left(runtime, x, -y) if y < 0 else x >> min(y, 63)


# Floats


def _float_divide(runtime: Runtime, x: float, y: float) -> float:
    if y:
        return x / y
    if not x or math.isnan(x):
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def _float_power(runtime: Runtime, x: float, y: float) -> float:
    try:
        result = math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 else math.inf
    except ValueError:
        return math.inf if not x else math.nan
    return result


_INTEGER: dict[str, Callable[..., int]] = {
    "+": _add, "/": _divide, "%": _remainder, "**": _power, "<<": _shift_left, ">>": _shift_right,
    "-": lambda runtime, x, y: _checked(x - y, f"Subtraction overflow: {x} - {y}"),
    "*": lambda runtime, x, y: _checked(x * y, f"Multiplication overflow: {x} * {y}"),
    "&": lambda runtime, x, y: x & y, "|": lambda runtime, x, y: x | y, "^": lambda runtime, x, y: x ^ y,
}
_FLOAT: dict[str, Callable[..., float]] = {
    "+": lambda runtime, x, y: x + y, "-": lambda runtime, x, y: x - y, "*": lambda runtime, x, y: x * y,
    "/": _float_divide, "%": lambda runtime, x, y: math.nan if not y or math.isinf(x) else math.fmod(x, y), "**": _float_power,
}


# Texts and containers


def _join(runtime: Runtime, x: Value, y: Value) -> str:
    left = x if type(x) is str else runtime.to_text(x)
    right = y if type(y) is str else runtime.to_text(y)
    runtime.check_text_length(len(left) + len(right))
    return runtime.new_text(left + right)


def without(runtime: Runtime, text: str, part: str) -> str:
    """Return a text without the occurrences of a part."""
    return runtime.scanned(text).replace(part, "") if part else runtime.scanned(text)


def _concatenate(runtime: Runtime, x: list[Value], y: list[Value]) -> list[Value]:
    runtime.check_array_length(len(x) + len(y))
    return [*runtime.copied(x), *runtime.copied(y)]


def _mix(runtime: Runtime, x: dict[str, Value], y: dict[str, Value]) -> dict[str, Value]:
    together = {**runtime.copied(x), **runtime.copied(y)}
    runtime.check_map_length(len(together))
    return together


# Comparison


def is_equal(runtime: Runtime, x: Value, y: Value) -> bool:
    """`==`: arrays and object maps by content, int and float by value; values of other different types are unequal."""
    kind, other = type(x), type(y)
    if kind is list and other is list:
        runtime.charge(len(x) >> 3)
        return len(x) == len(y) and _all_equal(runtime, x, y)
    if kind is dict and other is dict:
        runtime.charge(len(x))
        return x.keys() == y.keys() and _all_equal(runtime, [x[name] for name in x], [y[name] for name in x])
    if kind is not other and {kind, other} not in ({int, float}, {str, Char}):
        return False
    if kind is str and len(x) == len(y):
        runtime.scanned(x)
    return kind is not FnPointer and bool(x == y)


def _all_equal(runtime: Runtime, xs: list[Value], ys: list[Value]) -> bool:
    for x, y in zip(xs, ys):  # not all(): a generator would take one more frame of Python's stack per level
        if not is_equal(runtime, x, y):
            return False
    return True


def _ordering(name: str) -> Callable[[Runtime, Value, Value], bool]:
    compare = _ORDER[name]

    def of_same(runtime: Runtime, x: Value, y: Value) -> bool:
        if isinstance(x, str):
            runtime.scanned(x if len(x) < len(y) else y)
        return compare(x, y)

    return of_same


def _unordered(name: str) -> Callable[[Runtime, Value, Value], bool]:
    def of_others(runtime: Runtime, x: Value, y: Value) -> bool:
        if type(x) is not type(y) or x is None:
            return False
        raise FunctionError(f"Function not found: {name} ({type_name(x)}, {type_name(y)})")

    return of_others


# Membership and ranges


def _has_element(runtime: Runtime, array: list[Value], wanted: Value) -> bool:
    runtime.charge(len(array) >> 3)
    return any(is_equal(runtime, element, wanted) for element in array)


# The table


def _rows() -> Iterator[Builtin]:
    kinds: tuple[type, ...]
    for name, act in _INTEGER.items():
        yield pure(name, (int, int), act)
    for kinds in ((float, float), (float, int), (int, float)):
        for name, work in _FLOAT.items():
            yield pure(name, kinds, work)
    yield pure("-", (int,), lambda runtime, x: _checked(-x, f"Negation overflow: -{x}"))
    yield pure("-", (float,), lambda runtime, x: -x)
    yield pure("+", (int,), lambda runtime, x: x)
    yield pure("+", (float,), lambda runtime, x: x)
    for name, of_booleans in (("&", operator.and_), ("|", operator.or_), ("^", operator.xor)):
        yield pure(name, (bool, bool), lambda runtime, x, y, act=of_booleans: act(x, y))
    yield pure("!", (bool,), lambda runtime, x: not x)
    for kind in _TEXT_KINDS:
        yield pure("+", (kind, ANY), _join)
        yield pure("+", (ANY, kind), _join)
    for one in _TEXT_KINDS:
        for other in _TEXT_KINDS:
            yield pure("+", (one, other), _join)
        yield pure("-", (str, one), lambda runtime, text, part: runtime.new_text(without(runtime, text, part)))
    yield pure("+", (list, list), _concatenate)
    yield pure("+", (dict, dict), _mix)
    yield pure("==", (ANY, ANY), is_equal)
    yield pure("!=", (ANY, ANY), lambda runtime, x, y: not is_equal(runtime, x, y))
    comparable = [(kind, kind) for kind in (int, float, bool, str, Char)]
    for name in ("<", "<=", ">", ">="):
        for kinds in (*comparable, (int, float), (float, int), (str, Char), (Char, str)):
            yield pure(name, kinds, _ordering(name))
        yield pure(name, (ANY, ANY), _unordered(name))
    yield pure("contains", (list, ANY), _has_element)
    yield pure("contains", (dict, str), lambda runtime, members, name: name in members)
    for kind in _TEXT_KINDS:
        yield pure("contains", (str, kind), lambda runtime, text, part: part in runtime.scanned(text))
    yield pure("contains", (Range, int), lambda runtime, numbers, number: number in numbers.values())
    yield pure("..", (int, int), lambda runtime, start, end: Range(start, end))
    yield pure("..=", (int, int), lambda runtime, start, end: Range(start, end, True))


OPERATORS = tuple(_rows())
