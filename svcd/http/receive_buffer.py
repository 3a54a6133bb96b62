"""What has arrived from one client and was not read yet, and the waiting for more of a body.

Knows a transport and its buffer; refuses to know what the bytes mean.
"""
from __future__ import annotations

import time
from collections.abc import Callable

from svcd.http.limits import Limits
from svcd.http.message import INCOMPLETE, PIECE, HttpError
from svcd.http.sockets import Transport, wait


class ReceiveBuffer:
    """The Wire (svcd.http.framing) of the bodies on one connection.

    buffer: bytes received and not read; whoever reads heads takes them from its front.
    is_broken: nothing more can be read, whatever was announced.
    """

    __slots__ = ("buffer", "is_broken", "awaits_continue", "_transport", "_limits", "_invite", "_waited", "_received")

    def __init__(self, transport: Transport, limits: Limits, invite: Callable[[], None]) -> None:
        """invite: tells a client that waits for `100 Continue` to send its body."""
        self.buffer = bytearray()
        self.is_broken = False
        self.awaits_continue = False
        self._transport = transport
        self._limits = limits
        self._invite = invite
        self._waited = 0.0
        self._received = 0

    def begin_body(self, awaits_continue: bool) -> None:
        """From here on the bytes belong to a new body. awaits_continue: the client sends it when invited."""
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

    def take(self, most: int) -> bytes:
        """1 to `most` bytes of the body. Raises Refused when the client ends or takes too long."""
        return self._cut(most) if self.buffer else self._from_client(most)

    def take_line(self, most: int) -> bytes:
        """The bytes up to and including LF, or `most` bytes without one. Raises Refused as take()."""
        end = self.buffer.find(b"\n", 0, most) + 1
        while not end and len(self.buffer) < most:
            self.buffer += self._from_client(PIECE)
            end = self.buffer.find(b"\n", 0, most) + 1
        return self._cut(end or most)

    def _cut(self, most: int) -> bytes:
        piece = bytes(self.buffer[:most])
        del self.buffer[:most]
        return piece

    def _from_client(self, most: int) -> bytes:
        try:
            piece = self._await_piece(most)
        except OSError:
            piece = b""
        if not piece:
            self.is_broken = True
            raise HttpError(400, INCOMPLETE)
        self._received += len(piece)
        return piece

    def _await_piece(self, most: int) -> bytes:
        if self.awaits_continue:
            self.awaits_continue = False
            self._invite()
        while (piece := self._transport.receive(most)) is None:
            self._wait()
        return piece

    def _wait(self) -> None:
        """Wait for the client as long as it may take: a byte now and then must not hold a thread for ever."""
        limits = self._limits
        patience = limits.body_waits_s + self._received / limits.body_rate - self._waited
        started = time.monotonic()
        if not wait(self._transport.sock, self._transport.awaited, min(limits.body_stall_s, patience)):
            self.is_broken = True
            raise HttpError(408, "The body of the request took too long to arrive.")
        self._waited += time.monotonic() - started
