"""Operators: rows for what they do with operands of each pair of types.

Integers have 64 bits and never wrap; an integer beside a float counts as one. Values of different types are
not equal, and none is less than another. Source: the language's book; the words of overflow are its own.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

from svcd.rhai.builtins import ANY, Builtin, Taker, pure
from svcd.rhai.errors import FunctionError
from svcd.rhai.values import MAX_INT, MIN_INT, Char, Pointer, Range, Value, type_name

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}
_TEXT_KINDS = (str, Char)


# Integers


def _checked(result: int, told: str) -> int:
    if MIN_INT <= result <= MAX_INT:
        return result
    raise FunctionError(told)


def _add(machine: Taker, x: int, y: int) -> int:
    result = x + y
    return result if MIN_INT <= result <= MAX_INT else _checked(result, f"Addition overflow: {x} + {y}")


def _subtract(machine: Taker, x: int, y: int) -> int:
    return _checked(x - y, f"Subtraction overflow: {x} - {y}")


def _multiply(machine: Taker, x: int, y: int) -> int:
    return _checked(x * y, f"Multiplication overflow: {x} * {y}")


def _divide(machine: Taker, x: int, y: int) -> int:
    """Towards zero."""
    if y == 0:
        raise FunctionError(f"Division by zero: {x} / {y}")
    quotient = abs(x) // abs(y)
    return _checked(quotient if (x < 0) == (y < 0) else -quotient, f"Division overflow: {x} / {y}")


def _remainder(machine: Taker, x: int, y: int) -> int:
    """With the sign of x."""
    if y == 0 or x == MIN_INT and y == -1:
        raise FunctionError(f"Modulo division by zero or overflow: {x} % {y}")
    rest = abs(x) % abs(y)
    return -rest if x < 0 else rest


def _power(machine: Taker, x: int, y: int) -> int:
    if y < 0:
        raise FunctionError(f"Integer raised to a negative power: {x} ** {y}")
    told = f"Exponential overflow: {x} ** {y}"
    if y > 64 and abs(x) > 1:  # nothing so large is worked out
        raise FunctionError(told)
    return _checked(x ** (y if abs(x) > 1 else min(y, 2 + y % 2)), told)


def _shift_left(machine: Taker, x: int, y: int) -> int:
    if y < 0:
        return _shift_right(machine, x, min(-y, MAX_INT))
    shifted = (x << y) & (2**64 - 1) if y < 64 else 0
    return shifted - 2**64 if shifted > MAX_INT else shifted


def _shift_right(machine: Taker, x: int, y: int) -> int:
    return _shift_left(machine, x, -y) if y < 0 else x >> min(y, 63)


# Floats


def _float_divide(machine: Taker, x: float, y: float) -> float:
    if y:
        return _float(operator.truediv, x, y)
    if not x or math.isnan(x):
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def _float_remainder(machine: Taker, x: float, y: float) -> float:
    return math.nan if not y or math.isinf(x) else math.fmod(x, y)


def _float_power(machine: Taker, x: float, y: float) -> float:
    try:
        result = math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 else math.inf
    except ValueError:
        return math.inf if not x else math.nan
    return result


def _float(act: Callable[[float, float], float], x: float, y: float) -> float:
    return act(float(x), float(y))


def _of_floats(act: Callable[[float, float], float]) -> Callable[..., float]:
    return lambda machine, x, y: _float(act, x, y)


_INTEGER: dict[str, Callable[..., int]] = {
    "+": _add, "-": _subtract, "*": _multiply, "/": _divide, "%": _remainder, "**": _power, "<<": _shift_left,
    ">>": _shift_right, "&": lambda machine, x, y: x & y, "|": lambda machine, x, y: x | y,
    "^": lambda machine, x, y: x ^ y,
}
_FLOAT: dict[str, Callable[..., float]] = {
    "+": _of_floats(operator.add), "-": _of_floats(operator.sub), "*": _of_floats(operator.mul), "/": _float_divide,
    "%": _float_remainder, "**": _float_power,
}


def _numbers() -> Iterator[Builtin]:
    for name, act in _INTEGER.items():
        yield pure(name, (int, int), act)
    for kinds in ((float, float), (float, int), (int, float)):
        for name, work in _FLOAT.items():
            yield pure(name, kinds, work)
    yield pure("-", (int,), lambda machine, x: _checked(-x, f"Negation overflow: -{x}"))
    yield pure("-", (float,), lambda machine, x: -x)
    yield pure("+", (int,), lambda machine, x: x)
    yield pure("+", (float,), lambda machine, x: x)
    for name, of_booleans in (("&", operator.and_), ("|", operator.or_), ("^", operator.xor)):
        yield pure(name, (bool, bool), lambda machine, x, y, act=of_booleans: act(x, y))
    yield pure("!", (bool,), lambda machine, x: not x)


# Texts and containers


def _join(machine: Taker, x: Value, y: Value) -> str:
    left = x if type(x) is str else machine.shown(x)
    right = y if type(y) is str else machine.shown(y)
    machine.room_for_text(len(left) + len(right))
    return machine.text(left + right)


def _without(machine: Taker, text: str, part: str) -> str:
    machine.read(text)
    return machine.text(text.replace(part, "") if part else text)


def _concatenate(machine: Taker, x: list[Value], y: list[Value]) -> list[Value]:
    machine.room_for_elements(len(x) + len(y))
    return [*machine.own(x), *machine.own(y)]


def _mix(machine: Taker, x: dict[str, Value], y: dict[str, Value]) -> dict[str, Value]:
    together = {**machine.own(x), **machine.own(y)}
    machine.room_for_members(len(together))
    return together


def _joins() -> Iterator[Builtin]:
    for kind in _TEXT_KINDS:
        yield pure("+", (kind, ANY), _join)
        yield pure("+", (ANY, kind), _join)
    for one in _TEXT_KINDS:
        for other in _TEXT_KINDS:
            yield pure("+", (one, other), _join)
        yield pure("-", (str, one), _without)
    yield pure("+", (list, list), _concatenate)
    yield pure("+", (dict, dict), _mix)


# Comparison


def is_equal(machine: Taker, x: Value, y: Value) -> bool:
    """`==`: arrays and object maps by what they hold, numbers by value, anything else of another type never."""
    kind, other = type(x), type(y)
    if kind is list and other is list:
        machine.charge(len(x) >> 3)
        return len(x) == len(y) and _all_equal(machine, x, y)
    if kind is dict and other is dict:
        machine.charge(len(x))
        return x.keys() == y.keys() and _all_equal(machine, [x[name] for name in x], [y[name] for name in x])
    if kind is not other and {kind, other} not in ({int, float}, {str, Char}):
        return False
    if kind is str and len(x) == len(y):
        machine.read(x)
    return kind is not Pointer and bool(x == y)


def _all_equal(machine: Taker, xs: list[Value], ys: list[Value]) -> bool:
    for x, y in zip(xs, ys):
        if not is_equal(machine, x, y):
            return False
    return True


def _is_different(machine: Taker, x: Value, y: Value) -> bool:
    return not is_equal(machine, x, y)


def _ordering(name: str) -> Callable[[Taker, Value, Value], bool]:
    compare = _ORDER[name]

    def of_same(machine: Taker, x: Value, y: Value) -> bool:
        if isinstance(x, str):
            machine.read(x if len(x) < len(y) else y)
        return compare(x, y)

    return of_same


def _comparisons() -> Iterator[Builtin]:
    yield pure("==", (ANY, ANY), is_equal)
    yield pure("!=", (ANY, ANY), _is_different)
    comparable = [(kind, kind) for kind in (int, float, bool, str, Char)]
    for name in ("<", "<=", ">", ">="):
        for kinds in (*comparable, (int, float), (float, int), (str, Char), (Char, str)):
            yield pure(name, kinds, _ordering(name))
        yield pure(name, (ANY, ANY), _unordered(name))


def _unordered(name: str) -> Callable[[Taker, Value, Value], bool]:
    def of_others(machine: Taker, x: Value, y: Value) -> bool:
        if type(x) is not type(y) or x is None:
            return False
        raise FunctionError(f"Function not found: {name} ({type_name(x)}, {type_name(y)})")

    return of_others


# Membership


def _has_element(machine: Taker, array: list[Value], wanted: Value) -> bool:
    machine.charge(len(array) >> 3)
    for element in array:
        if is_equal(machine, element, wanted):
            return True
    return False


def _has_part(machine: Taker, text: str, part: str) -> bool:
    machine.read(text)
    return part in text


def _contains() -> Iterator[Builtin]:
    yield pure("contains", (list, ANY), _has_element)
    yield pure("contains", (dict, str), lambda machine, members, name: name in members)
    yield pure("contains", (str, str), _has_part)
    yield pure("contains", (str, Char), _has_part)
    yield pure("contains", (Range, int), lambda machine, numbers, number: number in numbers.values())


def _ranges() -> Iterator[Builtin]:
    yield pure("..", (int, int), lambda machine, start, end: Range(start, end))
    yield pure("..=", (int, int), lambda machine, start, end: Range(start, end, True))


OPERATORS = (*_numbers(), *_joins(), *_comparisons(), *_contains(), *_ranges())
