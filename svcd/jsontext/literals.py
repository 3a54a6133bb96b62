"""String literals of JSON texts in UTF-8: the long ones found, what they stand for, and how that is written.

For strings of many megabytes, of which no copy in Python's own strings is made: one wide character lets those take four
bytes for each. Knows compact texts as svcd.jsontext.writing prints them; refuses to know what strings are of.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import NamedTuple

_NAMED = ((b"\n", b"\\n"), (b'"', b'\\"'), (b"\t", b"\\t"), (b"\r", b"\\r"), (b"\b", b"\\b"), (b"\f", b"\\f"))
_CONTROLS = tuple((bytes([code]), b"\\u%04x" % code) for code in range(0x20) if bytes([code]) not in b"\n\t\r\b\f")
_BACKSLASH, _ESCAPED_BACKSLASH = b"\\", b"\\\\"
_ESCAPES = ((_BACKSLASH, _ESCAPED_BACKSLASH), *_NAMED, *_CONTROLS)
_LONGEST_ESCAPE = 6
# Bytes that are looked at together: of the beginning of a literal, and at most.
_LEAST_PIECE = 256
_PIECE = 1 << 20
_NO_TEXT = b"\xff"  # in no text in UTF-8: stands for a backslash until all else is replaced


class Literal(NamedTuple):
    """Where a string stands in a JSON text, without its quotes: in bytes."""

    start: int
    end: int


def long_literals(source: bytes, least: int) -> Iterator[Literal]:
    """The values (not the names of members) in a JSON text that are strings of so many bytes and more."""
    start = source.find(b'"') + 1
    while start:
        end = _end(source, start)
        if end - start >= least and source[end + 1:end + 2] != b":":
            yield Literal(start, end)
        start = source.find(b'"', end + 1) + 1


def _end(source: bytes, start: int) -> int:
    """Where the quote is that ends a literal."""
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
    raise ValueError("no JSON text")


class Unescaped(NamedTuple):
    """What a literal stands for. escapes: those that a part of it may need, as (byte, how it is written)."""

    text: bytes
    escapes: Sequence[tuple[bytes, bytes]]

    def escaped(self, start: int, end: int) -> bytes:
        """A part as it stands in a literal."""
        part = self.text[start:end]
        for byte, escape in self.escapes:
            part = part.replace(byte, escape)
        return part


def unescaped(source: bytes, literal: Literal) -> Unescaped:
    """What a literal in a JSON text stands for; made in pieces, for it may be half as long as what is written."""
    text, found = BytesIO(), set()
    place = literal.start
    while place < literal.end:
        start, place = place, _cut(source, place, min(place + _PIECE, literal.end))
        piece, escapes = _unescaped(source[start:place])
        text.write(piece)
        found.update(escapes)
    return Unescaped(text.getvalue(), [escape for escape in _ESCAPES if escape in found])


def _cut(source: bytes, start: int, place: int) -> int:
    """The nearest place from this one on that is not inside of an escape, as none goes on beyond the start."""
    last = source.rfind(_BACKSLASH, max(place - _LONGEST_ESCAPE, start), place)
    run = source[start:last + 1]
    if last < 0 or (len(run) - len(run.rstrip(_BACKSLASH))) % 2 == 0:
        return place
    return max(place, last + (_LONGEST_ESCAPE if source[last + 1:last + 2] == b"u" else 2))


def _unescaped(piece: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """What a piece stands for, and the escapes in it: each kind is replaced at once, however many there are."""
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
