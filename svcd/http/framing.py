"""Bodies on the wire: announced lengths and chunks (RFC 9112 6 and 7), and the buffer of received bytes.

What is malformed is rejected as in docs/http.md#malformed-requests.
"""
from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from svcd.http.limits import Limits
from svcd.http.message import INCOMPLETE, PIECE, HttpError
from svcd.http.request_head import CHUNKED, FIELD_VALUE, TOKEN
from svcd.http.sockets import Transport, wait

# Chunk extensions and trailers are read and dropped. Clients do not use them, so the limits are low: Go allows 16 kB of
# extensions in a whole body, Apache one line of 8 kB for each chunk.
MAX_CHUNK_LINE = 4096
MAX_EXTENSIONS = 16384
MAX_TRAILER = 16384

# 15 hexadecimal digits: the number stays below 2^60.
CHUNK_LINE = re.compile(rf"([0-9A-Fa-f]{{1,15}}+)(?:[ \t]*+;({FIELD_VALUE}*+))?\r\n".encode("latin-1"))
TRAILER_LINE = re.compile(rf"{TOKEN}++:{FIELD_VALUE}*+\r\n".encode("latin-1"))
LAST_CHUNK = b"0\r\n\r\n"


class Wire(Protocol):
    """Bytes from the client. Raises HttpError when they end too early (400) or stop coming (408)."""

    def take(self, max_bytes: int) -> bytes:
        """1 to `most` bytes."""

    def take_line(self, max_bytes: int) -> bytes:
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
    """A body in chunks; iterating gives their bytes. Raises HttpError (400, 431) for malformed chunks."""

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
        line = CHUNK_LINE.fullmatch(self._wire.take_line(MAX_CHUNK_LINE))
        if line is None:
            raise HttpError(400, "The size of a chunk of the body is malformed: expected hexadecimal digits.")
        self._extensions += len(line[2] or b"")
        if self._extensions > MAX_EXTENSIONS:
            raise HttpError(400, f"There are too many chunk extensions: at most {MAX_EXTENSIONS} bytes are read.")
        return int(line[1], 16)

    def _drop_trailer(self) -> None:
        size = 0
        while (line := self._wire.take_line(MAX_TRAILER)) != b"\r\n":
            size += len(line)
            if size >= MAX_TRAILER:
                raise HttpError(431, f"The trailer of the body is too long: at most {MAX_TRAILER} bytes are read.")
            if not TRAILER_LINE.fullmatch(line):
                raise HttpError(400, "The trailer of the body is malformed: expected `name: value`.")


FramedBody = SizedBody | ChunkedBody


def framed(wire: Wire, length: int) -> FramedBody:
    """The body as Head.length announces it."""
    return ChunkedBody(wire) if length == CHUNKED else SizedBody(wire, length)


def chunk(piece: bytes) -> bytes:
    """One chunk of an answer. The piece must not be empty: an empty chunk marks the end."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


# Received bytes that were not read yet, and waiting for more of a body.


class ReceiveBuffer:
    """The Wire (svcd.http.framing) of the bodies on one connection.

    buffer: bytes received and not read yet; the reader of heads takes them from its front.
    is_broken: nothing more can be read, although more was announced.
    """

    __slots__ = ("buffer", "is_broken", "awaits_continue", "_transport", "_limits", "_send_continue", "_waited", "_received")

    def __init__(self, transport: Transport, limits: Limits, send_continue: Callable[[], None]) -> None:
        """send_continue: sends `100 Continue` to a client that waits for it before it sends its body."""
        self.buffer = bytearray()
        self.is_broken = False
        self.awaits_continue = False
        self._transport = transport
        self._limits = limits
        self._send_continue = send_continue
        self._waited = 0.0
        self._received = 0

    def begin_body(self, awaits_continue: bool) -> None:
        """From here on the bytes belong to a new body. awaits_continue: the client waits for `100 Continue`."""
        self.awaits_continue = awaits_continue
        self._waited = 0.0
        self._received = 0

    def fill(self) -> int | None:
        """Receive once, without waiting: how many bytes came, 0 at the end, None when there are none now."""
        piece = self._transport.receive(PIECE)
        if piece is None:
            return None
        self.buffer += piece
        return len(piece)

    def take(self, max_bytes: int) -> bytes:
        """1 to `most` bytes of the body. Raises HttpError: 400 if the client ends early, 408 if it is too slow."""
        return self._disconnect_all(max_bytes) if self.buffer else self._from_client(max_bytes)

    def take_line(self, max_bytes: int) -> bytes:
        """The bytes up to and including LF, or `most` bytes without one. Raises HttpError as take()."""
        end = self.buffer.find(b"\n", 0, max_bytes) + 1
        while not end and len(self.buffer) < max_bytes:
            self.buffer += self._from_client(PIECE)
            end = self.buffer.find(b"\n", 0, max_bytes) + 1
        return self._disconnect_all(end or max_bytes)

    def _disconnect_all(self, max_bytes: int) -> bytes:
        piece = bytes(self.buffer[:max_bytes])
        del self.buffer[:max_bytes]
        return piece

    def _from_client(self, max_bytes: int) -> bytes:
        try:
            piece = self._await_piece(max_bytes)
        except OSError:
            piece = b""
        if not piece:
            self.is_broken = True
            raise HttpError(400, INCOMPLETE)
        self._received += len(piece)
        return piece

    def _await_piece(self, max_bytes: int) -> bytes:
        if self.awaits_continue:
            self.awaits_continue = False
            self._send_continue()
        while (piece := self._transport.receive(max_bytes)) is None:
            self._wait()
        return piece

    def _wait(self) -> None:
        """Wait for the client within the limits: a byte now and then must not hold a thread for ever."""
        limits = self._limits
        patience = limits.body_waits_s + self._received / limits.body_rate - self._waited
        started = time.monotonic()
        if not wait(self._transport.sock, self._transport.blocked_on, min(limits.body_stall_s, patience)):
            self.is_broken = True
            raise HttpError(408, "The body of the request took too long to arrive.")
        self._waited += time.monotonic() - started
