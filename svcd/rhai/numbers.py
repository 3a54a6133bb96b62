"""What the language can do with numbers: rounding, roots, conversions, and numbers read from texts.

Knows the rows alone; operators are in `operators`. Where Python would raise, the answer is the one of IEEE 754.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from svcd.rhai import errors
from svcd.rhai.builtins import Builtin, Taker, pure
from svcd.rhai.errors import FunctionError
from svcd.rhai.values import MAX_INT, MIN_INT, Char, Range, float_text

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_FLOAT = re.compile(r"[+-]?(?:inf(?:inity)?|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)", re.I | re.A)
_LONGEST = 64  # digits of a number, in the smallest base


def _sign(machine: Taker, number: float) -> int:
    if math.isnan(number):
        raise FunctionError("Sign of NaN is undefined")
    return (number > 0) - (number < 0)


def _absolute(machine: Taker, number: int) -> int:
    if number == MIN_INT:
        raise FunctionError(f"Negation overflow: -{number}")
    return abs(number)


def _to_int(machine: Taker, number: float) -> int:
    if math.isnan(number):
        return 0
    if not MIN_INT <= number <= MAX_INT:
        raise FunctionError(f"Integer overflow: to_int({float_text(number)})")
    return min(int(number), MAX_INT)


def _rounded(act: Callable[[float], float]) -> Callable[[Taker, float], float]:
    """act, for numbers that are finite; the others stay."""
    return lambda machine, number: math.copysign(act(number), number) if math.isfinite(number) else number


def _half_away(number: float) -> float:
    whole = math.floor(abs(number))
    return float(whole + (abs(number) - whole >= 0.5))


def _fraction(machine: Taker, number: float) -> float:
    return math.modf(number)[0] if math.isfinite(number) else math.nan


def _curve(act: Callable[..., float], beyond: float = math.nan) -> Callable[..., float]:
    """A function of floats; beyond: what it is where Python knows no number."""

    def work(machine: Taker, *numbers: float) -> float:
        try:
            return act(*numbers)
        except OverflowError:
            return math.copysign(math.inf, numbers[0]) if act is math.sinh else math.inf
        except (ValueError, ZeroDivisionError):
            return beyond if not numbers[0] else math.nan

    return work


def _least(machine: Taker, x: float, y: float) -> float:
    return x if x < y else y


def _greatest(machine: Taker, x: float, y: float) -> float:
    return x if x > y else y


def _digits(base: str) -> Callable[[Taker, int], str]:
    """The 64 bits of a number in another base."""
    return lambda machine, number: format(number & (2**64 - 1), base)


# From texts


def _parse_int(machine: Taker, text: str, radix: int = 10) -> int:
    if not 2 <= radix <= 36:
        raise FunctionError(f"Invalid radix: '{radix}'")
    machine.read(text)
    digits = text.strip().lower()
    bare = digits[1:] if digits[:1] in ("+", "-") else digits
    if not bare:
        reason = "invalid digit found in string" if digits else "cannot parse integer from empty string"
    elif not set(bare) <= set(_DIGITS[:radix]):
        reason = "invalid digit found in string"
    else:
        telling = bare.lstrip("0")[:_LONGEST + 1]  # more digits than any number has are not worked out
        number = int(telling or "0", radix) * (-1 if digits[0] == "-" else 1)
        if len(telling) <= _LONGEST and MIN_INT <= number <= MAX_INT:
            return number
        reason = f"number too {'small' if number < 0 else 'large'} to fit in target type"
    raise FunctionError(f"Error parsing integer number '{text[:errors.TOLD_LENGTH]}': {reason}")


def _parse_float(machine: Taker, text: str) -> float:
    machine.read(text)
    digits = text.strip()
    if len(digits) <= errors.TOLD_LENGTH and _FLOAT.fullmatch(digits):
        return float(digits)
    reason = "invalid float literal" if digits else "cannot parse float from empty string"
    raise FunctionError(f"Error parsing floating-point number '{text[:errors.TOLD_LENGTH]}': {reason}")


def _range(machine: Taker, start: int, end: int, step: int = 1) -> Range:
    if step == 0:
        raise FunctionError("step value cannot be zero")
    return Range(start, end, step=step)


def _of_integers() -> Iterator[Builtin]:
    yield pure("abs", (int,), _absolute)
    yield pure("is_odd", (int,), lambda machine, number: number % 2 == 1)
    yield pure("is_even", (int,), lambda machine, number: number % 2 == 0)
    yield pure("to_hex", (int,), _digits("x"))
    yield pure("to_octal", (int,), _digits("o"))
    yield pure("to_binary", (int,), _digits("b"))
    yield pure("to_int", (int,), lambda machine, number: number)
    yield pure("to_int", (Char,), lambda machine, character: ord(character))
    yield pure("to_float", (int,), lambda machine, number: float(number))
    yield pure("range", (int, int), _range)
    yield pure("range", (int, int, int), _range)
    yield pure("range", (Range, int), lambda machine, numbers, step: _range(machine, numbers.start, numbers.end, step))


def _of_floats() -> Iterator[Builtin]:
    yield pure("abs", (float,), lambda machine, number: abs(number))
    yield pure("to_int", (float,), _to_int)
    yield pure("to_float", (float,), lambda machine, number: number)
    yield pure("floor", (float,), lambda machine, number: number if math.isinf(number) else number // 1)
    yield pure("ceiling", (float,), _rounded(lambda number: float(abs(math.ceil(number)))))
    yield pure("round", (float,), _rounded(_half_away))
    yield pure("int", (float,), _rounded(lambda number: float(abs(math.trunc(number)))))
    yield pure("fraction", (float,), _fraction)
    yield pure("is_nan", (float,), lambda machine, number: math.isnan(number))
    yield pure("is_finite", (float,), lambda machine, number: math.isfinite(number))
    yield pure("is_infinite", (float,), lambda machine, number: math.isinf(number))


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
    yield pure("PI", (), lambda machine: math.pi)
    yield pure("E", (), lambda machine: math.e)


def _of_both() -> Iterator[Builtin]:
    for kind in (int, float):
        yield pure("sign", (kind,), _sign)
        yield pure("is_zero", (kind,), lambda machine, number: number == 0)
        yield pure("min", (kind, kind), _least)
        yield pure("max", (kind, kind), _greatest)
    for kinds in ((int, float), (float, int)):
        yield pure("min", kinds, lambda machine, x, y: float(_least(machine, x, y)))
        yield pure("max", kinds, lambda machine, x, y: float(_greatest(machine, x, y)))
    yield pure("parse_int", (str,), _parse_int)
    yield pure("parse_int", (str, int), _parse_int)
    yield pure("parse_float", (str,), _parse_float)


NUMBER_BUILTINS = (*_of_integers(), *_of_floats(), *_curves(), *_of_both())
PROPERTIES = {
    int: ("is_odd", "is_even", "is_zero"),
    float: ("floor", "ceiling", "round", "int", "fraction", "is_nan", "is_finite", "is_infinite", "is_zero"),
}
