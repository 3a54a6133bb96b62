"""Read JSON as strictly as serde_json, and print it in the same form.

`loads` and `decoded` use the decoder of the standard library, and check for texts that it accepts and serde_json rejects; error
messages come from svcd.base.json_scanner. `has_at_most` limits the number of values, and `is_too_deep` their depth, before any
value is built. `dumps` prints. `long_literals` and `unescaped` handle strings of many megabytes as bytes of a compact text: in a
Python string one wide character makes every character take four bytes.
"""
from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from io import BytesIO
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any, NamedTuple, NoReturn

from svcd.base.json_scanner import (
    EOF_LIST, EOF_VALUE, LIST_COMMA, MAX_DEPTH, TRAILING_CHARACTERS, TRAILING_COMMA, JsonError, fault_in, value_end,
)

JsonValue = Any

# The number of values in a text. A value takes many times the memory of its text, so a limit in bytes is not enough.

# Each value except the first begins after one of these bytes; names in objects are not counted.
_OPENERS = (b",", b"[", b"{")
# Values that are counted in one call, in which no other thread runs.
_AT_ONCE = 4096
_NO_OPENER = rb'[^",\[{]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^",\[{]*+)*+'


def has_at_most(encoded: bytes, most: int) -> bool:
    """Return whether a text has at most `most` values, by its commas and opening brackets.

    Raises JsonError when the text has a fault before the first value beyond `most`.
    """
    # Each value takes at least a byte.
    if len(encoded) <= most or sum(encoded.count(opener) for opener in _OPENERS) <= most:
        return True
    place, left = 0, most + 1
    while left:
        count = min(left, _AT_ONCE)
        found = _openers(count).match(encoded, place)
        if found is None:  # the others are inside strings
            return True
        place, left = found.end(), left - count
    fault = fault_in(encoded[:place])
    if fault is None or fault.is_eof:
        return False
    try:
        raise fault
    finally:
        del fault  # its traceback refers to this frame: the cycle would keep the text until the next garbage collection


@cache
def _openers(count: int) -> re.Pattern[bytes]:
    """Return a pattern that matches a text up to the beginning of the value that follows `count` further values."""
    return re.compile(rb"(?:%s[,\[{]){%d}+" % (_NO_OPENER, count), re.DOTALL)


# The depth of a text. The decoder of the standard library recurses on the stack of its thread. Since Python 3.12 only a constant
# of the interpreter bounds the recursion, and it is too large for the stack of a thread that answers requests (1 MB): the process
# would end with a segmentation fault. So svcd checks each external text before it decodes it.

# The deepest levels of a text that only svcd and its peers write (dumps, answers of services): it may wrap values with MAX_DEPTH
# levels. The decoder takes up to 210 bytes of the stack for a level: 84 kB, less than the 128 kB of a thread with musl.
MAX_WRAPPED_DEPTH = 400

_OPEN, _CLOSE = b"\x01", b"\xff"  # as signed bytes 1 and -1, so that their sum is the depth
_TO_STEPS = bytes.maketrans(b"[{]}", 2 * _OPEN + 2 * _CLOSE)
_NO_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'[{]}"')
_STRING_WITH_BRACKETS = re.compile(rb'"[^"]*"?')


def is_too_deep(encoded: bytes, most: int = MAX_DEPTH) -> bool:
    """Return whether a text of correct JSON values nests containers deeper than `most` levels.

    For an incorrect text the depth counts up to its fault; the result can be True even if that depth is within `most`.
    """
    if len(encoded) <= most or encoded.count(b"[") + encoded.count(b"{") <= most:
        return False
    if b'\\"' in encoded:
        encoded = encoded.replace(b"\\\\", b"").replace(b'\\"', b"")
    # With only quotes and brackets left, `""` is a string without brackets, or joins two strings.
    steps = encoded.translate(_TO_STEPS, _NO_STRUCTURE).replace(b'""', b"")
    if b'"' in steps:
        steps = _STRING_WITH_BRACKETS.sub(b"", steps)
    # Each round removes the innermost containers; while these are the majority, that is ten times faster than a sum.
    levels = 0
    while steps and 2 * len(fewer := steps.replace(_OPEN + _CLOSE, b"")) <= len(steps):
        steps, levels = fewer, levels + 1
    return levels + max(accumulate(memoryview(steps).cast("b"), initial=0)) > most


class TooDeep(ValueError):
    """The text nests containers too deeply to be decoded."""


def loads_wrapped(text: str | bytes) -> JsonValue:
    """Decode a text written by svcd or one of its peers. Raises TooDeep beyond MAX_WRAPPED_DEPTH, and ValueError."""
    encoded = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if is_too_deep(encoded, MAX_WRAPPED_DEPTH):
        raise TooDeep(f"nested deeper than {MAX_WRAPPED_DEPTH} levels")
    return json.loads(text.decode("utf-8", "surrogatepass") if isinstance(text, bytes) else text)


# Reading. The decoder of the standard library differs from serde_json for NaN, Infinity, integers beyond 64 bits, `-0`,
# doubles that overflow, lone surrogates and depth; cheap checks find texts in which that may matter.

_MIN_I64, _MAX_U64 = -(2**63), 2**64 - 1
_SURE_DIGITS = 18  # an integer of up to 18 digits always fits into 64 bits

# Digits are mapped to 0, other characters of numbers are kept, everything else becomes a space. Searches for a few fixed strings
# then tell whether a text may have a number that the fast decoder reads differently.
_SHAPE = bytes(b"0"[0] if chr(byte).isdigit() and byte < 128 else byte if byte in b"+-.eE" else b" "[0] for byte in range(256))
_ODD_SHAPES = (b"0" * (_SURE_DIGITS + 1), b"-0 ", b"0e000", b"0E000", b"0e+000", b"0E+000")
_BLOCK = 1 << 20  # bytes that are checked at a time, so that a long text is not copied as a whole
_PAIR = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _Refused(ValueError):
    """Only the decoder of the standard library accepts the text as JSON."""


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
    """Return the value of a JSON text. Raises JsonError with the message, line and column of serde_json.

    A repeated key has its last value, at the place of the first. Integers beyond 64 bits and `-0` become floats.
    """
    try:
        return decoded(text)
    except ValueError:
        pass  # leave the block first: the traceback refers to a second copy of the text
    encoded = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    raise fault_in(encoded) or ValueError("the scanner finds no fault in a text that the decoder refuses")


def decoded(source: str | bytes) -> JsonValue:
    """Return the value like loads(), but raise ValueError without the message of serde_json for a fault."""
    text, encoded = (source.decode(), source) if isinstance(source, bytes) else (source, source.encode())
    if is_too_deep(encoded):
        raise _Refused
    try:
        value = quick.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer with more digits than int() accepts
        value = careful.decode(text)
    if has_odd_numbers(encoded):
        value = careful.decode(text)
    if has_lone_surrogate(text):
        raise _Refused
    return value


def decoded_together(texts: Sequence[bytes]) -> list[JsonValue]:
    """Decode all texts in two thirds of the time of decoded(). A value that needs closer checks raises ValueError for all."""
    encoded = b"[%s]" % b",".join(texts)
    if is_too_deep(encoded, MAX_DEPTH + 1):
        raise _Refused
    text = encoded.decode()
    values: list[JsonValue] = quick.decode(text)
    is_one_of_each = len(values) == len(texts)
    if not is_one_of_each or has_odd_numbers(encoded) or has_lone_surrogate(text):
        raise _Refused
    return values


def has_odd_numbers(encoded: bytes) -> bool:
    """Return whether a text may have a number that only the `careful` decoder reads as serde_json does."""
    if encoded.endswith(b"-0"):
        return True
    for start in range(0, len(encoded), _BLOCK):  # blocks overlap by more than the longest shape
        shape = encoded[start:start + _BLOCK + 2 * _SURE_DIGITS].translate(_SHAPE)
        for odd in _ODD_SHAPES:  # any() takes three times as long, and each document is checked
            if odd in shape:
                return True
    return False


def has_lone_surrogate(text: str) -> bool:
    """Return whether an otherwise correct text has an escape of half a surrogate pair."""
    if "\\ud" not in text and "\\uD" not in text:
        return False
    unescaped = text.replace("\\\\", "  ")  # now each backslash begins an escape
    return _SURROGATE.search(_PAIR.sub("", unescaped)) is not None


# Printing as serde_json does: compact, UTF-8, floats with the fewest digits and never as integers. NaN and infinity fail.

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
# Called thousands of times a second: JSONEncoder.encode() makes such a function in each call, which takes a third of its time.
_make_chunks: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]  # None in some Pythons; the stubs lack it
_chunks = _make_chunks and _make_chunks(None, _encoder.default, encode_basestring, None, ":", ",", False, False, False)
# The pattern matches strings as a whole, so that nothing inside them looks like a number.
_STRING_OR_EXPONENT = re.compile(r'"(?:[^"\\]++|\\.)*+"|(-?)([0-9])(?:\.([0-9]+))?e([+-][0-9]+)')
_EXPONENT = re.compile(r"[0-9]e[+-][0-9]")


def dumps(value: Any) -> str:
    """Return the compact JSON text of a value."""
    text = "".join(_chunks(value, 0)) if _chunks else _encoder.encode(value)
    # The first test is a hundred times faster than the pattern.
    return _printed(text) if "e-" in text or "e+" in text else text


def _printed(text: str) -> str:
    return _STRING_OR_EXPONENT.sub(_number, text) if _EXPONENT.search(text) else text


def unexpected(value: Any) -> str:
    """Return the words of serde_json for a value of an unexpected type: "boolean `true`", "sequence"."""
    if value is None or isinstance(value, (list, dict)):
        return "null" if value is None else "sequence" if isinstance(value, list) else "map"
    text = dumps(value)
    if isinstance(value, str):
        return f"string {text}"
    return f"{'boolean' if isinstance(value, bool) else 'integer' if isinstance(value, int) else 'floating point'} `{text}`"


def dumps_begin(value: Any, size: int) -> str:
    """Return at least the first `size` characters of the compact JSON text of a value, or all of it."""
    if isinstance(value, str):
        return dumps(value[:size])
    length, pieces = 0, []
    for piece in _encoder.iterencode(value):
        pieces.append(piece[:2 * size])
        length += len(pieces[-1])
        if length >= 2 * size:  # twice the size, because numbers become shorter
            return _printed("".join(pieces))
    return dumps(value)


def _number(match: re.Match[str]) -> str:
    """Write an exponent as serde_json does: `1e+16` as `1e16`, `1e-07` as `1e-7`, and `1e-05` without exponent."""
    sign, digit, decimals, exponent = match.groups()
    if exponent is None:
        return match[0]
    if exponent == "-05":
        return f"{sign}0.0000{digit}{decimals or ''}"
    return f"{sign}{digit}{'.' if decimals else ''}{decimals or ''}e{int(exponent)}"


# Long string literals of JSON texts in UTF-8: their places, their texts, and the escaped form of parts.

_NAMED = ((b"\n", b"\\n"), (b'"', b'\\"'), (b"\t", b"\\t"), (b"\r", b"\\r"), (b"\b", b"\\b"), (b"\f", b"\\f"))
_CONTROLS = tuple((bytes([code]), b"\\u%04x" % code) for code in range(0x20) if bytes([code]) not in b"\n\t\r\b\f")
_BACKSLASH, _ESCAPED_BACKSLASH = b"\\", b"\\\\"
_ESCAPES = ((_BACKSLASH, _ESCAPED_BACKSLASH), *_NAMED, *_CONTROLS)
_LONGEST_ESCAPE = 6
# Bytes per step of a search: at the beginning of a literal, and at most.
_LEAST_PIECE = 256
_PIECE = 1 << 20
_NO_TEXT = b"\xff"  # never in UTF-8: represents a backslash until all other escapes are replaced


class Literal(NamedTuple):
    """The place of a string in a JSON text, without its quotes: offsets in bytes."""

    start: int
    end: int


def long_literals(source: bytes, least: int) -> Iterator[Literal]:
    """Yield the string values (not the names of members) of a JSON text that take at least `least` bytes."""
    start = source.find(b'"') + 1
    while start:
        end = _end(source, start)
        if end - start >= least and source[end + 1:end + 2] != b":":
            yield Literal(start, end)
        start = source.find(b'"', end + 1) + 1


def _end(source: bytes, start: int) -> int:
    """Return the offset of the quote that ends a literal."""
    end = source.find(b'"', start)
    if source.find(_BACKSLASH, start, end) < 0:
        return end
    place, size = start, _LEAST_PIECE
    while place < len(source):
        cut = _cut(source, place, min(place + size, len(source)))
        piece = source[place:cut].replace(_ESCAPED_BACKSLASH, b"--").replace(b'\\"', b"--")
        end = piece.find(b'"')
        if end >= 0:
            return place + end
        place, size = cut, min(size * 4, _PIECE)
    raise ValueError("not a JSON text")


class Unescaped(NamedTuple):
    """The text of a literal. escapes: the escapes that a part of it may need, as (byte, escape sequence)."""

    text: bytes
    escapes: Sequence[tuple[bytes, bytes]]

    def escaped(self, start: int, end: int) -> bytes:
        """Return a part of the text, escaped as in a literal."""
        part = self.text[start:end]
        for byte, escape in self.escapes:
            part = part.replace(byte, escape)
        return part


def unescaped(source: bytes, literal: Literal) -> Unescaped:
    """Return the text of a literal, made in pieces, so that no second copy of the whole literal is needed."""
    text, found = BytesIO(), set()
    place = literal.start
    while place < literal.end:
        start, place = place, _cut(source, place, min(place + _PIECE, literal.end))
        piece, escapes = _unescaped(source[start:place])
        text.write(piece)
        found.update(escapes)
    return Unescaped(text.getvalue(), [escape for escape in _ESCAPES if escape in found])


def _cut(source: bytes, start: int, place: int) -> int:
    """Return the first offset from `place` on outside of escape sequences. start: an earlier offset outside of them."""
    last = source.rfind(_BACKSLASH, max(place - _LONGEST_ESCAPE, start), place)
    run = source[start:last + 1]
    if last < 0 or (len(run) - len(run.rstrip(_BACKSLASH))) % 2 == 0:
        return place
    return max(place, last + (_LONGEST_ESCAPE if source[last + 1:last + 2] == b"u" else 2))


def _unescaped(piece: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the text of a piece and the escapes in it; one pass replaces all occurrences of one escape."""
    if _BACKSLASH not in piece:
        return piece, []
    text, found = piece.replace(_ESCAPED_BACKSLASH, _NO_TEXT), []
    for byte, escape in (*_NAMED, *(_CONTROLS if b"\\u00" in text else ())):
        if escape in text:
            found.append((byte, escape))
            text = text.replace(escape, byte)
    if _NO_TEXT in text:
        found.append(_ESCAPES[0])
        text = text.replace(_NO_TEXT, _BACKSLASH)
    return text, found


__all__ = [
    "EOF_LIST", "EOF_VALUE", "LIST_COMMA", "MAX_DEPTH", "TRAILING_CHARACTERS", "TRAILING_COMMA", "JsonError", "TooDeep",
    "careful", "decoded", "decoded_together", "dumps", "dumps_begin", "fault_in", "has_at_most", "has_lone_surrogate",
    "has_odd_numbers", "is_too_deep", "loads", "loads_wrapped", "quick", "unexpected", "value_end",
]
