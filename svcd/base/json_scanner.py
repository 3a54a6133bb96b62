"""Find the fault in a JSON text, with the message and position that serde_json reports.

The scanner follows the grammar and serde_json's order of checks and builds no values. It works on bytes, because serde_json
counts columns in bytes. Regular expressions skip obviously correct parts, so that the scanner finds a fault at the end of a long
text in linear time.

serde_json reads in two modes, which differ in a few places:
parse  a value is built: a trailing comma has its own message;
skim   a value is only skipped (the documents of a payload): no message for a trailing comma, a control character is reported
       before it, a key missing at the end of the text belongs to the object.
When skimming, serde_json accepts lone surrogates, numbers out of range and any depth. This scanner does not, because such a
document could not be read again.
"""
from __future__ import annotations

import math
import re
from functools import cache
from typing import NoReturn

MAX_DEPTH = 127  # serde_json has a budget of 128 levels and fails when none is left

EOF_LIST = "EOF while parsing a list"
EOF_OBJECT = "EOF while parsing an object"
EOF_STRING = "EOF while parsing a string"
EOF_VALUE = "EOF while parsing a value"
COLON = "expected `:`"
CONTROL = "control character (\\u0000-\\u001F) found while parsing a string"
ESCAPE = "invalid escape"
HEX_END = "unexpected end of hex escape"
IDENT = "expected ident"
KEY = "key must be a string"
LIST_COMMA = "expected `,` or `]`"
LONE = "lone leading surrogate in hex escape"
NUMBER = "invalid number"
OBJECT_COMMA = "expected `,` or `}`"
RANGE = "number out of range"
RECURSION = "recursion limit exceeded"
TRAILING_CHARACTERS = "trailing characters"
TRAILING_COMMA = "trailing comma"
UNICODE = "invalid unicode code point"
VALUE = "expected value"

_MAX_EXPONENT = 2**31 - 1  # serde_json keeps an exponent in an i32

# What is repeated is an atomic group. Python before 3.11.5 (Debian 12 has 3.11.2) takes a step that fails halfway for a step of a
# possessive repetition otherwise.
_WS = rb"[ \t\n\r]*+"
_HEX = rb"[0-9a-fA-F]"
_ESCAPED = (rb'(?>\\(?:["\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F]' + _HEX + rb"{3}|[dD](?:[0-7]" + _HEX + rb"{2}"
            rb"|[89abAB]" + _HEX + rb"{2}\\u[dD][c-fC-F]" + _HEX + rb"{2}))))")
_STRING = rb'"(?:[^"\\\x00-\x1f]++|' + _ESCAPED + rb')*+"'
# Numbers too short to overflow a double; others are checked one by one.
_TAME = rb"-?(?:0|[1-9][0-9]{0,17}+)(?:(?>\.[0-9]++))?+(?:(?>[eE][+-]?[0-9]{1,2}+))?+(?![0-9.eE])"
_SCALAR = rb"(?:" + _STRING + rb"|" + _TAME + rb"|true|false|null)"
# Values that are skipped in one call of a pattern, in which no other thread runs.
_AT_ONCE = rb"{0,1000}+"


def _flat(levels: int) -> bytes:
    """Return the pattern of a scalar or of a container with at most `levels` levels."""
    if not levels:
        return rb"(?:" + _SCALAR + rb")"
    value = _flat(levels - 1)
    member = _STRING + _WS + rb":" + _WS + value
    return (rb"(?:" + _SCALAR
            + rb"|\[" + _WS + rb"(?:(?>" + value + _WS + rb"(?:," + _WS + rb"(?!\])|(?=\]))))" + _AT_ONCE + rb"\]"
            + rb"|\{" + _WS + rb"(?:(?>" + member + _WS + rb"(?:," + _WS + rb"(?!\})|(?=\}))))" + _AT_ONCE + rb"\})")


# Each further level doubles the time to compile the pattern, and deeper texts are rarer.
_FLAT_LEVELS = 3
_FLAT = _flat(_FLAT_LEVELS)

_CLOSERS = {ord("["): ord("]"), ord("{"): ord("}")}
_LITERALS = {ord("n"): b"null", ord("t"): b"true", ord("f"): b"false"}
_ESCAPES = frozenset(b'"\\/bfnrt')
_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _ZERO, _DOT = b'"\\,:-0.'
_OBJECT_END = ord("}")
_NUMBER_STARTS = frozenset(b"-0123456789")
_DIGITS = frozenset(b"0123456789")
_EXPONENTS = frozenset(b"eE")
_SIGNS = frozenset(b"+-")
_NOTHING = -1  # the "byte" after the last one


class JsonError(ValueError):
    """The fault of a JSON text: the message of serde_json, the line (from 1) and the column in bytes.

    index: the number of bytes that serde_json has read when it reports the fault.
    """

    def __init__(self, message: str, line: int, column: int, index: int = 0) -> None:
        super().__init__(f"{message} at line {line} column {column}")
        self.message = message
        self.line = line
        self.column = column
        self.index = index

    @property
    def is_eof(self) -> bool:
        """Return whether the only fault is the early end of the text."""
        return self.message.startswith("EOF")

    def shifted(self, lines: int, columns: int) -> JsonError:
        """Return the same fault in a longer text that begins with `lines` line ends and then `columns` bytes."""
        return JsonError(self.message, self.line + lines, self.column + (columns if self.line == 1 else 0))


class _Patterns:
    """The patterns, compiled for the first faulty text, because a start does not need them."""

    def __init__(self) -> None:
        self.blank = re.compile(_WS).match
        self.flat = re.compile(_FLAT).match
        self.items = re.compile(rb"(?:(?>" + _WS + _FLAT + _WS + rb",))" + _AT_ONCE).match
        self.members = re.compile(rb"(?:(?>" + _WS + _STRING + _WS + rb":" + _WS + _FLAT + _WS + rb",))" + _AT_ONCE).match
        self.sound = re.compile(rb'(?:[^"\\\x00-\x1f]++|' + _ESCAPED + rb")*+").match
        self.digits = re.compile(rb"[0-9]*+").match
        self.hex4 = re.compile(_HEX + rb"{4}").match


_patterns = cache(_Patterns)


def fault_in(text: bytes) -> JsonError | None:
    """Return the fault that serde_json reports for a text that should be one JSON value; None for a correct text."""
    try:
        scanner = _Scanner(text, 0, skim=False)
        scanner.walk()
        scanner.blank()
        if scanner.at < len(text):
            scanner.fail(TRAILING_CHARACTERS, 1)
    except JsonError as error:
        return error.with_traceback(None)  # its frames would keep the text in memory until the next garbage collection
    return None


def value_end(text: bytes, start: int = 0, *, skim: bool = False) -> int:
    """Return the offset of the end of the value that begins at `start` or after the blanks there. Raises JsonError."""
    scanner = _Scanner(text, start, skim=skim)
    scanner.walk()
    return scanner.at


def _first_bad_byte(text: bytes, start: int) -> int:
    """Return the offset of the first byte from `start` on that is not UTF-8; the length of the text if all bytes are."""
    if text.isascii():
        return len(text)
    try:
        text[start:].decode()
    except UnicodeDecodeError as error:
        return start + error.start
    return len(text)


class _Scanner:
    """One pass over one text; `at` is the offset of the next byte."""

    def __init__(self, text: bytes, start: int, *, skim: bool) -> None:
        self.text = text
        self.at = start
        self.skim = skim
        self.bad_byte = _first_bad_byte(text, start)
        self.closers = bytearray()  # the closing brackets of the containers around `at`
        self.patterns = _patterns()

    def fail(self, message: str, seen: int = 0) -> NoReturn:
        """Raise JsonError at the current offset. seen: 1 where serde_json counts the byte that it has only peeked at."""
        index = min(self.at + seen, len(self.text))
        line_start = self.text.rfind(b"\n", 0, index) + 1
        raise JsonError(message, 1 + self.text.count(b"\n", 0, line_start), index - line_start, index)

    def peek(self) -> int:
        return self.text[self.at] if self.at < len(self.text) else _NOTHING

    def blank(self) -> None:
        self.at = self.patterns.blank(self.text, self.at).end()  # type: ignore[union-attr]  # matches anywhere

    # values

    def walk(self) -> None:
        """Skip one value with all it contains."""
        self.blank()
        while True:
            is_ended = self.value()
            if is_ended and not self.next_value():
                break
        if self.at > self.bad_byte:  # possible only when skimming
            self.fail(UNICODE)

    def value(self) -> bool:
        """Skip a value (True), or enter a container whose first value comes next (False)."""
        byte = self.peek()
        if byte == _QUOTE:  # checked before the patterns: a string may be megabytes long and unterminated
            self.string()
            return True
        flat = self.patterns.flat(self.text, self.at, self.bad_byte) if self.is_shallow() else None
        if flat:
            self.at = flat.end()
            return True
        if byte in _CLOSERS:
            return not self.entered(byte)
        if byte == _NOTHING:
            self.fail(EOF_VALUE)
        if byte in _NUMBER_STARTS:
            self.number()
        elif byte in _LITERALS:
            self.literal(_LITERALS[byte])
        else:
            self.fail(VALUE, 1)
        return True

    def is_shallow(self) -> bool:
        return len(self.closers) + _FLAT_LEVELS <= MAX_DEPTH

    def entered(self, byte: int) -> bool:
        """Enter a container. Returns True if a value must follow, False if it was empty and is closed."""
        if len(self.closers) == MAX_DEPTH:
            self.fail(RECURSION, 1)
        self.closers.append(_CLOSERS[byte])
        self.at += 1
        if self.skipped():
            self.after_comma()
            return True
        self.blank()
        if self.peek() == self.closers[-1]:
            self.at += 1
            self.closers.pop()
            return False
        if self.at == len(self.text):
            self.fail(self.cut_off())
        if self.is_object():
            self.key()
        return True

    def next_value(self) -> bool:
        """Move to the next value in the enclosing containers; returns False when all of them are closed."""
        while self.closers:
            self.blank()
            byte = self.peek()
            if byte == _COMMA:
                self.at += 1
                self.skipped()
                self.after_comma()
                return True
            if byte == _NOTHING:
                self.fail(self.cut_off())
            if byte != self.closers[-1]:
                self.fail(OBJECT_COMMA if self.is_object() else LIST_COMMA, 1)
            self.at += 1
            self.closers.pop()
        return False

    def skipped(self) -> bool:
        """Skip all items or members that are obviously correct and end with a comma; returns whether it skipped any."""
        start = self.at
        if self.is_shallow():
            run = self.patterns.members if self.is_object() else self.patterns.items
            last = max(start, self.bad_byte)
            while (end := run(self.text, self.at, last).end()) > self.at:  # type: ignore[union-attr]  # matches anywhere
                self.at = end
        return self.at > start

    def after_comma(self) -> None:
        """Move to the value that must follow a comma."""
        self.blank()
        byte = self.peek()
        is_object = self.is_object()
        if byte == _NOTHING:
            self.fail(EOF_OBJECT if is_object and self.skim else EOF_VALUE)
        if byte == self.closers[-1] and not self.skim:
            self.fail(TRAILING_COMMA, 1)
        if is_object:
            self.key()

    def key(self) -> None:
        """Skip a key and its colon."""
        if self.peek() != _QUOTE:
            self.fail(KEY, 1)
        self.string()
        self.blank()
        byte = self.peek()
        if byte != _COLON:
            self.fail(EOF_OBJECT) if byte == _NOTHING else self.fail(COLON, 1)
        self.at += 1
        self.blank()

    def is_object(self) -> bool:
        return self.closers[-1] == _OBJECT_END

    def cut_off(self) -> str:
        return EOF_OBJECT if self.is_object() else EOF_LIST

    # scalars

    def literal(self, name: bytes) -> None:
        for expected in name:
            byte = self.peek()
            if byte == _NOTHING:
                self.fail(EOF_VALUE)
            self.at += 1
            if byte != expected:
                self.fail(IDENT)

    def string(self) -> None:
        """Skip a string with its quotes."""
        self.at += 1
        while True:
            self.at = self.patterns.sound(self.text, self.at).end()  # type: ignore[union-attr]  # matches anywhere
            byte = self.peek()
            if byte == _NOTHING:
                self.fail(EOF_STRING)
            if byte not in (_QUOTE, _BACKSLASH):
                self.fail(CONTROL, 0 if self.skim else 1)
            self.at += 1
            if byte == _QUOTE:
                break
            self.escape()
        if not self.skim and self.at > self.bad_byte:
            self.fail(UNICODE)

    def escape(self) -> None:
        byte = self.peek()
        if byte == _NOTHING:
            self.fail(EOF_STRING)
        self.at += 1
        if byte in _ESCAPES:
            return
        if byte != ord("u"):
            self.fail(ESCAPE)
        unit = self.hex4()
        if 0xDC00 <= unit <= 0xDFFF:
            self.fail(LONE)
        if not 0xD800 <= unit <= 0xDBFF:
            return
        for expected in b"\\u":
            if self.peek() == _NOTHING:
                self.fail(EOF_STRING)
            if self.peek() != expected:
                self.fail(HEX_END, 1)
            self.at += 1
        if not 0xDC00 <= self.hex4() <= 0xDFFF:
            self.fail(LONE)

    def hex4(self) -> int:
        digits = self.text[self.at : self.at + 4]
        self.at += len(digits)
        if len(digits) < 4:
            self.fail(EOF_STRING)
        if not self.patterns.hex4(digits):
            self.fail(ESCAPE)
        return int(digits, 16)

    # numbers

    def number(self) -> None:
        """Skip a number; a number too large for a double is a fault."""
        start = self.at
        if self.peek() == _MINUS:
            self.at += 1
        if self.peek() != _ZERO:
            self.some_digits()
        else:
            self.at += 1
            if self.peek() in _DIGITS:
                self.fail(NUMBER, 1)
        if self.peek() == _DOT:
            self.at += 1
            self.some_digits()
        if self.peek() in _EXPONENTS:
            self.exponent(start)
        if math.isinf(float(self.text[start : self.at])):
            self.fail(RANGE)

    def some_digits(self) -> None:
        byte = self.peek()
        if byte in _DIGITS:
            self.at = self.patterns.digits(self.text, self.at).end()  # type: ignore[union-attr]  # matches anywhere
        elif byte == _NOTHING and not self.skim:
            self.fail(EOF_VALUE)
        else:
            self.fail(NUMBER, 1)

    def exponent(self, start: int) -> None:
        """Skip an exponent; serde_json fails at the digit with which it exceeds an i32."""
        significand = self.text[start : self.at]
        self.at += 1
        is_negative = self.peek() == _MINUS
        if self.peek() in _SIGNS:
            self.at += 1
        first = self.at
        self.some_digits()
        digits = self.text[first : self.at].lstrip(b"0")
        zeros = self.at - first - len(digits)
        if is_negative or not significand.strip(b"-0.") or len(digits) < 10:
            return
        needed = 10 if int(digits[:10]) > _MAX_EXPONENT else 11
        if len(digits) >= needed:
            self.at = first + zeros + needed
            self.fail(RANGE)
