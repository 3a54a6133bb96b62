"""JSON as the interface speaks it: read as strictly as serde_json reads, printed as serde_json prints.

Knows the text form alone; refuses to know what a value means, and which error code a fault becomes.
`reading` is the quick way in, `scanner` finds the exact words and place of a fault, `bounds` what is
too much before it is built, `writing` is the way out.
"""
from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any, NoReturn

from svcd.base.json_scanner import (
    EOF_LIST,
    EOF_VALUE,
    LIST_COMMA,
    MAX_DEPTH,
    TRAILING_CHARACTERS,
    TRAILING_COMMA,
    JsonError,
    fault_in,
    value_end,
)

# How many values a JSON text holds, told before any of them is built.
#
# Knows that a value takes many times the room of its text, so that a limit in bytes is none in memory; refuses
# to know which number is too many for whom.


_OPENERS = (b",", b"[", b"{")  # but for the first, a value begins behind each; names in objects are not counted
_NO_OPENER = rb'[^",\[{]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^",\[{]*+)*+'


def has_at_most(encoded: bytes, most: int) -> bool:
    """Whether not more than so many values are in a text, its commas and opening brackets being counted.

    Raises JsonError when the text is wrong before there are too many.
    """
    if sum(encoded.count(opener) for opener in _OPENERS) <= most:
        return True
    found = _beyond(most).match(encoded)
    if found is None:  # the rest of them are in strings
        return True
    fault = fault_in(encoded[:found.end()])
    if fault is None or fault.is_eof:
        return False
    try:
        raise fault
    finally:
        del fault  # its traceback holds this frame: the ring would keep the text until the next collection


@cache
def _beyond(most: int) -> re.Pattern[bytes]:
    """Matches a text up to where one value too many begins."""
    return re.compile(rb"(?:%s[,\[{]){%d}+" % (_NO_OPENER, most + 1), re.DOTALL)


# The quick way in: the decoder of the standard library, with cheap checks for what it lets through.
#
# Knows which texts that decoder reads otherwise than serde_json: NaN, Infinity, integers beyond 64 bits,
# `-0`, doubles too large, lone surrogates, depth. Refuses to word a fault: that is the scanner's.


JsonValue = Any

_MIN_I64, _MAX_U64 = -(2**63), 2**64 - 1
_SURE_DIGITS = 18  # an integer of so many digits fits in any case

# Digits become 0, what matters in a number stays, all else becomes a blank: then four searches for
# fixed texts tell whether a number may be in here that the decoder would read otherwise.
_SHAPE = bytes(
    b"0"[0] if chr(byte).isdigit() and byte < 128 else byte if byte in b"+-.eE" else b" "[0] for byte in range(256)
)
_ODD_SHAPES = (b"0" * (_SURE_DIGITS + 1), b"-0 ", b"0e000", b"0E000", b"0e+000", b"0E+000")
_BLOCK = 1 << 20  # bytes that are looked at together: a long text shall not be held once more
_PAIR = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _Refused(ValueError):
    """The text holds what only the decoder of the standard library takes for JSON."""


def _refuse(constant: str) -> NoReturn:
    raise _Refused(constant)


def _integer(digits: str) -> int | float:
    if digits == "-0":
        return -0.0
    if len(digits) <= _SURE_DIGITS:
        return int(digits)
    if len(digits) <= 20 and _MIN_I64 <= (number := int(digits)) <= _MAX_U64:
        return number
    return _double(digits)


def _double(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _Refused(digits[:20])
    return number


quick = json.JSONDecoder(parse_constant=_refuse)
careful = json.JSONDecoder(parse_constant=_refuse, parse_int=_integer, parse_float=_double)


def loads(text: str | bytes) -> JsonValue:
    """The value of a JSON text; JsonError with serde's words, line and column for a faulty one.

    Of equal keys the last value wins, at the place of the first. Integers beyond 64 bits and `-0` are floats.
    """
    try:
        return decoded(text)
    except (ValueError, RecursionError):
        pass  # its traceback holds a second copy of the text, which the scanner can do without
    encoded = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    raise fault_in(encoded) or ValueError("the scanner finds no fault in what the decoder refuses")


def decoded(source: str | bytes) -> JsonValue:
    """As `loads`, but a faulty text is a ValueError or RecursionError in no particular words.

    Decoded first and checked afterwards, so that long nonsense costs no check.
    """
    text = source.decode() if isinstance(source, bytes) else source
    try:
        value = quick.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of more digits than int() takes
        value = careful.decode(text)
    encoded = source if isinstance(source, bytes) else source.encode()
    if has_odd_numbers(encoded):
        value = careful.decode(text)
    if has_lone_surrogate(text) or is_too_deep(value, encoded):
        raise _Refused
    return value


def has_odd_numbers(encoded: bytes) -> bool:
    """Whether only the `careful` decoder is sure to read the numbers of this text as serde_json does."""
    if encoded.endswith(b"-0"):
        return True
    for start in range(0, len(encoded), _BLOCK):  # blocks overlap by more than the longest shape
        shape = encoded[start:start + _BLOCK + 2 * _SURE_DIGITS].translate(_SHAPE)
        if any(odd in shape for odd in _ODD_SHAPES):
            return True
    return False


def has_lone_surrogate(text: str) -> bool:
    """Whether an escape in a text that is right otherwise stands for half a character."""
    if "\\ud" not in text and "\\uD" not in text:
        return False
    unescaped = text.replace("\\\\", "  ")  # from now on each backslash begins an escape
    return _SURROGATE.search(_PAIR.sub("", unescaped)) is not None


def is_too_deep(value: JsonValue, encoded: bytes) -> bool:
    """Whether containers are nested deeper than serde_json's budget allows."""
    if encoded.count(b"[") + encoded.count(b"{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


# The way out: values printed as serde_json prints them, compact, in plain UTF-8.
#
# Knows how serde_json writes floats (shortest digits, always told from integers); refuses NaN and infinity.


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
_encode = _encoder.encode
# Strings are matched whole, so that nothing inside them is taken for a number.
_STRING_OR_EXPONENT = re.compile(r'"(?:[^"\\]++|\\.)*+"|(-?)([0-9])(?:\.([0-9]+))?e([+-][0-9]+)')
_EXPONENT = re.compile(r"[0-9]e[+-][0-9]")


def dumps(value: Any) -> str:
    """The compact JSON text of a value."""
    return _printed(_encode(value))


def _printed(text: str) -> str:
    if ("e-" not in text and "e+" not in text) or not _EXPONENT.search(text):  # the former is a hundred times quicker
        return text
    return _STRING_OR_EXPONENT.sub(_number, text)


def dumps_begin(value: Any, size: int) -> str:
    """At least so many characters of the compact JSON text of a value, or all of it."""
    if isinstance(value, str):
        return dumps(value[:size])
    length, pieces = 0, []
    for piece in _encoder.iterencode(value):
        pieces.append(piece[:2 * size])
        length += len(pieces[-1])
        if length >= 2 * size:  # twice, for numbers become shorter
            return _printed("".join(pieces))
    return dumps(value)


def _number(match: re.Match[str]) -> str:
    """`1e+16` as `1e16`, `1e-07` as `1e-7`; `1e-05` is written out, as the last before exponents begin."""
    sign, digit, decimals, exponent = match.groups()
    if exponent is None:
        return match[0]
    if exponent == "-05":
        return f"{sign}0.0000{digit}{decimals or ''}"
    return f"{sign}{digit}{'.' if decimals else ''}{decimals or ''}e{int(exponent)}"


__all__ = [
    "EOF_LIST",
    "EOF_VALUE",
    "LIST_COMMA",
    "MAX_DEPTH",
    "TRAILING_CHARACTERS",
    "TRAILING_COMMA",
    "JsonError",
    "careful",
    "decoded",
    "dumps",
    "dumps_begin",
    "fault_in",
    "has_at_most",
    "has_lone_surrogate",
    "has_odd_numbers",
    "is_too_deep",
    "loads",
    "quick",
    "value_end",
]
