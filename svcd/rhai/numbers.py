"""Builtins for numbers: rounding, roots, conversions, parsing and ranges.

Where Python raises, the result is that of IEEE 754. Arithmetic is in `operators`.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from svcd.rhai import errors
from svcd.rhai.builtins import Builtin, Runtime, pure
from svcd.rhai.errors import FunctionError
from svcd.rhai.values import MAX_INT, MIN_INT, Char, Range, float_text

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_FLOAT = re.compile(r"[+-]?(?:inf(?:inity)?|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)", re.I | re.A)
_LONGEST = 64  # digits that a 64-bit number can have, in base 2


def _sign(runtime: Runtime, number: float) -> int:
    if math.isnan(number):
        raise FunctionError("Sign of NaN is undefined")
    return (number > 0) - (number < 0)


def _absolute(runtime: Runtime, number: int) -> int:
    if number == MIN_INT:
        raise FunctionError(f"Negation overflow: -{number}")
    return abs(number)


def _to_int(runtime: Runtime, number: float) -> int:
    if math.isnan(number):
        return 0
    if not MIN_INT <= number <= MAX_INT:
        raise FunctionError(f"Integer overflow: to_int({float_text(number)})")
    return min(int(number), MAX_INT)


def _rounded(act: Callable[[float], float]) -> Callable[[Runtime, float], float]:
    """Apply act to finite numbers; NaN and infinities are unchanged."""
    return lambda runtime, number: math.copysign(act(number), number) if math.isfinite(number) else number


def _half_away(number: float) -> float:
    whole = math.floor(abs(number))
    return float(whole + (abs(number) - whole >= 0.5))


def _fraction(runtime: Runtime, number: float) -> float:
    return math.modf(number)[0] if math.isfinite(number) else math.nan


def _curve(act: Callable[..., float], beyond: float = math.nan) -> Callable[..., float]:
    """A function of floats; beyond: its value at 0 if Python raises there."""

    def work(runtime: Runtime, *numbers: float) -> float:
        try:
            return act(*numbers)
        except OverflowError:
            return math.copysign(math.inf, numbers[0]) if act is math.sinh else math.inf
        except (ValueError, ZeroDivisionError):
            return beyond if not numbers[0] else math.nan

    return work


def _min(runtime: Runtime, x: float, y: float) -> float:
    return x if x < y else y


def _max(runtime: Runtime, x: float, y: float) -> float:
    return x if x > y else y


def _digits(base: str) -> Callable[[Runtime, int], str]:
    """The 64 bits (two's complement) of a number in another base."""
    return lambda runtime, number: format(number & (2**64 - 1), base)


# Parsing


def _parse_int(runtime: Runtime, text: str, radix: int = 10) -> int:
    if not 2 <= radix <= 36:
        raise FunctionError(f"Invalid radix: '{radix}'")
    runtime.charge_scan(text)
    digits = text.strip().lower()
    bare = digits[1:] if digits[:1] in ("+", "-") else digits
    if not bare:
        reason = "invalid digit found in string" if digits else "cannot parse integer from empty string"
    elif not set(bare) <= set(_DIGITS[:radix]):
        reason = "invalid digit found in string"
    else:
        telling = bare.lstrip("0")[:_LONGEST + 1]  # a longer number overflows for certain: do not compute it
        number = int(telling or "0", radix) * (-1 if digits[0] == "-" else 1)
        if len(telling) <= _LONGEST and MIN_INT <= number <= MAX_INT:
            return number
        reason = f"number too {'small' if number < 0 else 'large'} to fit in target type"
    raise FunctionError(f"Error parsing integer number '{text[:errors.QUOTED_LENGTH]}': {reason}")


def _parse_float(runtime: Runtime, text: str) -> float:
    runtime.charge_scan(text)
    digits = text.strip()
    if len(digits) <= errors.QUOTED_LENGTH and _FLOAT.fullmatch(digits):
        return float(digits)
    reason = "invalid float literal" if digits else "cannot parse float from empty string"
    raise FunctionError(f"Error parsing floating-point number '{text[:errors.QUOTED_LENGTH]}': {reason}")


def _range(runtime: Runtime, start: int, end: int, step: int = 1) -> Range:
    if step == 0:
        raise FunctionError("step value cannot be zero")
    return Range(start, end, step=step)


def _of_integers() -> Iterator[Builtin]:
    yield pure("abs", (int,), _absolute)
    yield pure("is_odd", (int,), lambda runtime, number: number % 2 == 1)
    yield pure("is_even", (int,), lambda runtime, number: number % 2 == 0)
    yield pure("to_hex", (int,), _digits("x"))
    yield pure("to_octal", (int,), _digits("o"))
    yield pure("to_binary", (int,), _digits("b"))
    yield pure("to_int", (int,), lambda runtime, number: number)
    yield pure("to_int", (Char,), lambda runtime, character: ord(character))
    yield pure("to_float", (int,), lambda runtime, number: float(number))
    yield pure("range", (int, int), _range)
    yield pure("range", (int, int, int), _range)
    yield pure("range", (Range, int), lambda runtime, numbers, step: _range(runtime, numbers.start, numbers.end, step))


def _of_floats() -> Iterator[Builtin]:
    yield pure("abs", (float,), lambda runtime, number: abs(number))
    yield pure("to_int", (float,), _to_int)
    yield pure("to_float", (float,), lambda runtime, number: number)
    yield pure("floor", (float,), lambda runtime, number: number if math.isinf(number) else number // 1)
    yield pure("ceiling", (float,), _rounded(lambda number: float(abs(math.ceil(number)))))
    yield pure("round", (float,), _rounded(_half_away))
    yield pure("int", (float,), _rounded(lambda number: float(abs(math.trunc(number)))))
    yield pure("fraction", (float,), _fraction)
    yield pure("is_nan", (float,), lambda runtime, number: math.isnan(number))
    yield pure("is_finite", (float,), lambda runtime, number: math.isfinite(number))
    yield pure("is_infinite", (float,), lambda runtime, number: math.isinf(number))


def _curves() -> Iterator[Builtin]:
    for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh",
                 "sqrt", "exp"):
        yield pure(name, (float,), _curve(getattr(math, name)))
    yield pure("to_radians", (float,), _curve(math.radians))
    yield pure("to_degrees", (float,), _curve(math.degrees))
    yield pure("atan", (float, float), _curve(math.atan2))
    yield pure("hypot", (float, float), _curve(math.hypot))
    yield pure("ln", (float,), _curve(math.log, -math.inf))
    yield pure("log", (float,), _curve(math.log10, -math.inf))
    yield pure("log", (float, float), _curve(math.log, -math.inf))
    yield pure("PI", (), lambda runtime: math.pi)
    yield pure("E", (), lambda runtime: math.e)


def _of_both() -> Iterator[Builtin]:
    for kind in (int, float):
        yield pure("sign", (kind,), _sign)
        yield pure("is_zero", (kind,), lambda runtime, number: number == 0)
        yield pure("min", (kind, kind), _min)
        yield pure("max", (kind, kind), _max)
    for kinds in ((int, float), (float, int)):
        yield pure("min", kinds, lambda runtime, x, y: float(_min(runtime, x, y)))
        yield pure("max", kinds, lambda runtime, x, y: float(_max(runtime, x, y)))
    yield pure("parse_int", (str,), _parse_int)
    yield pure("parse_int", (str, int), _parse_int)
    yield pure("parse_float", (str,), _parse_float)


NUMBER_BUILTINS = (*_of_integers(), *_of_floats(), *_curves(), *_of_both())
PROPERTIES = {
    int: ("is_odd", "is_even", "is_zero"),
    float: ("floor", "ceiling", "round", "int", "fraction", "is_nan", "is_finite", "is_infinite", "is_zero"),
}
