"""Builtins for strings, characters and numbers.

Positions count characters; negative ones count from the end. Builtins that change a string return (new string, result),
because Python strings are immutable. Where Python raises for a number, the result is that of IEEE 754. Arithmetic is in
`operators`.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import partial

from svcd.base import json_text
from svcd.rhai import values
from svcd.rhai.operators import without
from svcd.rhai.values import (
    ANY, MAX_INT, MIN_INT, Builtin, Char, FunctionError, Range, Runtime, Value, float_text, pure, replacing,
)

Change = tuple[str, Value]  # (new string, result)
_KINDS = (str, Char)
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_FLOAT = re.compile(r"[+-]?(?:inf(?:inity)?|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)", re.I | re.A)
_LONGEST = 64  # digits that a 64-bit number can have, in base 2


def start_of(start: int, length: int) -> int:
    """The index that a start position means: negative counts from the end; clamped to 0..length."""
    return max(start + length, 0) if start < 0 else min(start, length)


def span(start: int, length: int, wanted: int) -> tuple[int, int]:
    """(first, end) of a slice of at most `wanted` elements."""
    first = start_of(start, length)
    return first, first + min(max(wanted, 0), length - first)


def range_span(numbers: Range, length: int) -> tuple[int, int]:
    """(first, end) of the slice that a range selects."""
    start = max(numbers.start, 0)
    return span(start, length, max(numbers.end, 0) + numbers.is_inclusive - start)


# Strings: parts


def _sub_string(runtime: Runtime, text: str, start: int | Range, wanted: int = values.STRING_LENGTH) -> str:
    first, last = range_span(start, len(text)) if isinstance(start, Range) else span(start, len(text), wanted)
    return runtime.new_text(text[first:last])


def _set(runtime: Runtime, text: str, index: int, character: Char) -> Change:
    if not -len(text) <= index < len(text):
        return text, None
    at = index % len(text)
    return runtime.new_text(text[:at] + character + text[at + 1:]), None


def chars(runtime: Runtime, text: str) -> list[Value]:
    """The characters of a string, as an array."""
    runtime.check_array_length(len(text))
    runtime.charge(len(text))
    return [Char(letter) for letter in text]


# Strings: splitting


def _pieces(runtime: Runtime, pieces: list[str]) -> list[Value]:
    runtime.charge(len(pieces))
    return runtime.new_array(list(pieces))


def _split(runtime: Runtime, text: str, part: str, most: int | None = None, *, is_reversed: bool = False) -> list[Value]:
    runtime.scanned(text)
    count = values.ARRAY_LENGTH if most is None else min(max(most, 1) - 1, values.ARRAY_LENGTH)
    if part:
        return _pieces(runtime, text.rsplit(part, count)[::-1] if is_reversed else text.split(part, count))
    runtime.check_array_length(len(text) + 2)
    return _pieces(runtime, ["", *text, ""])


def _split_at(runtime: Runtime, text: str, index: int) -> list[Value]:
    at = start_of(index, len(text))
    return [runtime.new_text(text[:at]), runtime.new_text(text[at:])]


# Strings: changes


def _of_letter(act: Callable[[str], str], letter: Char) -> Char:
    return Char(act(letter)) if len(act(letter)) == 1 else letter


def _replace(runtime: Runtime, text: str, old: str, new: str) -> Change:
    runtime.scanned(text)
    runtime.check_text_length(len(text) + text.count(old) * (len(new) - len(old)))
    return runtime.new_text(text.replace(old, new)), None


def _append(runtime: Runtime, text: str, more: Value) -> Change:
    added = runtime.to_text(more)
    runtime.check_text_length(len(text) + len(added))
    runtime.charge(len(text) >> values.COPIED_SHIFT)
    return text + added, None


def _pad(runtime: Runtime, text: str, length: int, filling: str) -> Change:
    runtime.check_text_length(length)
    if length <= len(text) or not filling:
        return text, None
    missing = length - len(text)
    return runtime.new_text(text + filling * -(-missing // len(filling))), None


def _pop_many(runtime: Runtime, text: str, count: int) -> Change:
    at = max(len(text) - max(count, 0), 0)
    return runtime.new_text(text[:at]), text[at:]


def _parse_json(runtime: Runtime, text: str) -> Value:
    runtime.charge(len(text))  # the value may take many times the memory of the text
    try:
        return runtime.copied(json_text.loads(text))
    except ValueError as error:
        raise FunctionError(f"Syntax error: {error}") from None


def _string_rows() -> Iterator[Builtin]:
    kinds: tuple[type, ...]
    yield pure("len", (str,), lambda runtime, text: len(text))
    yield pure("is_empty", (str,), lambda runtime, text: not text)
    yield pure("bytes", (str,), lambda runtime, text: len(runtime.new_text(text).encode()))
    yield pure("get", (str, int), lambda runtime, text, at: Char(text[at]) if -len(text) <= at < len(text) else None)
    yield pure("chars", (str,), chars)
    yield pure("to_chars", (str,), chars)
    for kinds in ((str, int), (str, int, int), (str, Range)):
        yield pure("chars", kinds, lambda runtime, *part: chars(runtime, _sub_string(runtime, *part)))
        yield pure("sub_string", kinds, _sub_string)
        yield replacing("crop", kinds, lambda runtime, *part: (_sub_string(runtime, *part), None))
    yield pure("split", (str,), lambda runtime, text: _pieces(runtime, runtime.scanned(text).split(None, values.ARRAY_LENGTH)))
    yield pure("split", (str, int), _split_at)
    yield pure("parse_json", (str,), _parse_json)
    yield pure("min", (str, str), lambda runtime, x, y: min(runtime.scanned(x), y))
    yield pure("max", (str, str), lambda runtime, x, y: max(runtime.scanned(x), y))
    # Charged by the new length: a sharp s becomes two letters.
    for name, act in (("upper", str.upper), ("lower", str.lower)):
        yield pure(f"to_{name}", (str,), lambda runtime, text, act=act: runtime.new_text(act(text)))
        yield pure(f"to_{name}", (Char,), lambda runtime, letter, act=act: _of_letter(act, letter))
        yield replacing(f"make_{name}", (str,), lambda runtime, text, act=act: (runtime.new_text(act(text)), None))
        yield replacing(f"make_{name}", (Char,), lambda runtime, letter, act=act: (_of_letter(act, letter), None))
    for kind in _KINDS:
        yield pure("starts_with", (str, kind), lambda runtime, text, part: text.startswith(runtime.scanned(part)))
        yield pure("ends_with", (str, kind), lambda runtime, text, part: text.endswith(runtime.scanned(part)))
        yield pure("index_of", (str, kind), lambda runtime, text, part: runtime.scanned(text).find(part))
        yield pure("index_of", (str, kind, int), lambda runtime, text, part, start: runtime.scanned(text).find(
            part, start_of(start, len(text))))
        for kinds in ((str, kind), (str, kind, int)):
            yield pure("split", kinds, _split)
            yield pure("split_rev", kinds, partial(_split, is_reversed=True))
    yield replacing("trim", (str,), lambda runtime, text: (runtime.new_text(text.strip()), None))
    yield replacing("clear", (str,), lambda runtime, text: ("", None))
    yield replacing("truncate", (str, int), lambda runtime, text, length: (runtime.new_text(text[:max(length, 0)]), None))
    yield replacing("set", (str, int, Char), _set)
    yield replacing("append", (str, ANY), _append)
    yield replacing("+=", (str, ANY), _append)
    yield replacing("pop", (str,), lambda runtime, text: (runtime.new_text(text[:-1]), Char(text[-1]) if text else None))
    yield replacing("pop", (str, int), _pop_many)
    for kind in _KINDS:
        yield replacing("remove", (str, kind), lambda runtime, text, part: (without(runtime, text, part), None))
        yield replacing("pad", (str, int, kind), _pad)
        for other in _KINDS:
            yield replacing("replace", (str, kind, other), _replace)
    yield pure("to_string", (ANY,), lambda runtime, value: runtime.to_text(value))
    yield pure("to_debug", (ANY,), lambda runtime, value: runtime.to_text(value, is_bare=False))
    yield pure("print", (ANY,), lambda runtime, value: None)
    yield pure("debug", (ANY,), lambda runtime, value: None)


STRING_BUILTINS = tuple(_string_rows())


# Numbers: rounding, roots, conversions


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


# Numbers: parsing, ranges


def _parse_int(runtime: Runtime, text: str, radix: int = 10) -> int:
    if not 2 <= radix <= 36:
        raise FunctionError(f"Invalid radix: '{radix}'")
    runtime.scanned(text)
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
    raise FunctionError(f"Error parsing integer number '{text[:values.QUOTED_LENGTH]}': {reason}")


def _parse_float(runtime: Runtime, text: str) -> float:
    runtime.scanned(text)
    digits = text.strip()
    if len(digits) <= values.QUOTED_LENGTH and _FLOAT.fullmatch(digits):
        return float(digits)
    reason = "invalid float literal" if digits else "cannot parse float from empty string"
    raise FunctionError(f"Error parsing floating-point number '{text[:values.QUOTED_LENGTH]}': {reason}")


def _range(runtime: Runtime, start: int, end: int, step: int = 1) -> Range:
    if step == 0:
        raise FunctionError("step value cannot be zero")
    return Range(start, end, step=step)


def _number_rows() -> Iterator[Builtin]:
    yield pure("abs", (int,), _absolute)
    yield pure("is_odd", (int,), lambda runtime, number: number % 2 == 1)
    yield pure("is_even", (int,), lambda runtime, number: number % 2 == 0)
    for name, base in (("to_hex", "x"), ("to_octal", "o"), ("to_binary", "b")):  # the 64 bits of the two's complement
        yield pure(name, (int,), lambda runtime, number, base=base: format(number & (2**64 - 1), base))
    yield pure("to_int", (int,), lambda runtime, number: number)
    yield pure("to_int", (Char,), lambda runtime, character: ord(character))
    yield pure("to_float", (int,), lambda runtime, number: float(number))
    yield pure("range", (int, int), _range)
    yield pure("range", (int, int, int), _range)
    yield pure("range", (Range, int), lambda runtime, numbers, step: _range(runtime, numbers.start, numbers.end, step))
    yield pure("abs", (float,), lambda runtime, number: abs(number))
    yield pure("to_int", (float,), _to_int)
    yield pure("to_float", (float,), lambda runtime, number: number)
    yield pure("floor", (float,), lambda runtime, number: number if math.isinf(number) else number // 1)
    yield pure("ceiling", (float,), _rounded(lambda number: float(abs(math.ceil(number)))))
    yield pure("round", (float,), _rounded(_half_away))
    yield pure("int", (float,), _rounded(lambda number: float(abs(math.trunc(number)))))
    yield pure("fraction", (float,), lambda runtime, number: math.modf(number)[0] if math.isfinite(number) else math.nan)
    yield pure("is_nan", (float,), lambda runtime, number: math.isnan(number))
    yield pure("is_finite", (float,), lambda runtime, number: math.isfinite(number))
    yield pure("is_infinite", (float,), lambda runtime, number: math.isinf(number))
    for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "sqrt", "exp"):
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
    for kind in (int, float):
        yield pure("sign", (kind,), _sign)
        yield pure("is_zero", (kind,), lambda runtime, number: number == 0)
        yield pure("min", (kind, kind), lambda runtime, x, y: x if x < y else y)
        yield pure("max", (kind, kind), lambda runtime, x, y: x if x > y else y)
    for kinds in ((int, float), (float, int)):
        yield pure("min", kinds, lambda runtime, x, y: float(x if x < y else y))
        yield pure("max", kinds, lambda runtime, x, y: float(x if x > y else y))
    yield pure("parse_int", (str,), _parse_int)
    yield pure("parse_int", (str, int), _parse_int)
    yield pure("parse_float", (str,), _parse_float)


NUMBER_BUILTINS = tuple(_number_rows())
PROPERTIES = {
    str: ("len", "is_empty", "chars", "bytes"),
    int: ("is_odd", "is_even", "is_zero"),
    float: ("floor", "ceiling", "round", "int", "fraction", "is_nan", "is_finite", "is_infinite", "is_zero"),
}
