"""Where a body begins and ends on the wire: announced lengths and chunks, read and written.

Knows RFC 9112 6 and 7; refuses to know sockets (a Wire gives the bytes) and what the bytes mean.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from svcd.http.message import PIECE, HttpError
from svcd.http.request_head import CHUNKED, FIELD_VALUE, TOKEN

# Chunk extensions and trailers are read and dropped. Nobody needs them, so little is read: others allow 16 kB of
# extensions in a whole body (Go), one line of 8 kB for each (Apache).
MOST_CHUNK_LINE = 4096
MOST_EXTENSIONS = 16384
MOST_TRAILER = 16384

# 15 hexadecimal digits: the number stays below 2^60.
CHUNK_LINE = re.compile(rf"([0-9A-Fa-f]{{1,15}}+)(?:[ \t]*+;({FIELD_VALUE}*+))?\r\n".encode("latin-1"))
TRAILER_LINE = re.compile(rf"{TOKEN}++:{FIELD_VALUE}*+\r\n".encode("latin-1"))
LAST_CHUNK = b"0\r\n\r\n"


class Wire(Protocol):
    """Bytes from the client. Raises Refused when they end or stop coming too early."""

    def take(self, most: int) -> bytes:
        """1 to `most` bytes."""

    def take_line(self, most: int) -> bytes:
        """The bytes up to and including LF, or `most` bytes without one."""


class SizedBody:
    """A body of an announced length; iterating gives its pieces."""

    __slots__ = ("_wire", "length", "remaining")

    def __init__(self, wire: Wire, length: int) -> None:
        self._wire = wire
        self.length: int | None = length
        self.remaining: int | None = length

    @property
    def is_over(self) -> bool:
        """The whole body was read."""
        return not self.remaining

    def __iter__(self) -> Iterator[bytes]:
        while self.remaining:
            piece = self._wire.take(min(self.remaining, PIECE))
            self.remaining -= len(piece)
            yield piece


class ChunkedBody:
    """A body in chunks; iterating gives their bytes. Raises Refused (400) where the chunks are malformed."""

    __slots__ = ("_wire", "_extensions", "length", "remaining", "is_over")

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._extensions = 0
        self.length: int | None = None
        self.remaining: int | None = None
        self.is_over = False

    def __iter__(self) -> Iterator[bytes]:
        while size := self._chunk_size():
            while size:
                piece = self._wire.take(min(size, PIECE))
                size -= len(piece)
                yield piece
            if self._wire.take_line(2) != b"\r\n":
                raise HttpError(400, "A chunk of the body is longer than its size says.")
        self._drop_trailer()
        self.is_over = True

    def _chunk_size(self) -> int:
        line = CHUNK_LINE.fullmatch(self._wire.take_line(MOST_CHUNK_LINE))
        if line is None:
            raise HttpError(400, "The size of a chunk of the body is malformed: expected hexadecimal digits.")
        self._extensions += len(line[2] or b"")
        if self._extensions > MOST_EXTENSIONS:
            raise HttpError(400, f"There are too many chunk extensions: at most {MOST_EXTENSIONS} bytes are read.")
        return int(line[1], 16)

    def _drop_trailer(self) -> None:
        size = 0
        while (line := self._wire.take_line(MOST_TRAILER)) != b"\r\n":
            size += len(line)
            if size >= MOST_TRAILER:
                raise HttpError(431, f"The trailer of the body is too long: at most {MOST_TRAILER} bytes are read.")
            if not TRAILER_LINE.fullmatch(line):
                raise HttpError(400, "The trailer of the body is malformed: expected `name: value`.")


FramedBody = SizedBody | ChunkedBody


def framed(wire: Wire, length: int) -> FramedBody:
    """The body as Head.length announces it."""
    return ChunkedBody(wire) if length == CHUNKED else SizedBody(wire, length)


def chunk(piece: bytes) -> bytes:
    """One chunk of an answer; the piece must not be empty, for that is the end."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)
