"""One answer on its way to a client that takes it at its own pace.

Knows what of it was taken, and makes the next piece when all before it was; refuses to know which thread does so, and
who else is served.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from svcd.http.limits import Limits
from svcd.http.message import Portions, Response
from svcd.http.response_writer import EncodedResponse
from svcd.http.sockets import WRITABLE, Transport, wait

# Up to here head and body leave in one send; above, copying them together costs more than the second call.
ONE_SEND = 262144
# Bytes after which an answer in portions gives way to those of others.
TURN = 262144


class Delivery:
    """response: the one that is sent; another one than was given when that failed before its first byte.

    sent: bytes of its body that were taken.
    """

    def __init__(self, response: Response, transport: Transport, limits: Limits, write: Callable[[Response], EncodedResponse],
                 instead: Callable[[Exception, bool], Response]) -> None:
        """write: the bytes of a response. instead: the answer in place of one that failed, told whether that has begun."""
        self.response = response
        self.sent = 0
        self._transport, self._limits = transport, limits
        self._write, self._instead = write, instead
        self._body = response.body
        self._may_leave = isinstance(response.body, (bytes, Portions))  # the thread, while the client takes nothing
        self._pieces: Iterator[bytes] | None = None  # None: nothing was made yet
        self._head = b""
        self._unsent = memoryview(b"")
        self._size = 0  # of the piece that is being sent
        self._has_begun = False
        self._until = 0.0

    @property
    def is_in_portions(self) -> bool:
        """It takes long to make, so that threads which answer requests should not."""
        return isinstance(self._body, Portions)

    def go_on(self) -> int:
        """Send what the client takes; 0 when that was the rest, else what to wait for (READABLE, WRITABLE).

        Of a body whose pieces may wait for something, all is sent here. Raises OSError when the client is gone, takes
        nothing for too long, or must not take what it has for the whole.
        """
        left = TURN
        while True:
            awaited = self._send()
            if awaited:
                return awaited
            if left <= 0 and self._may_leave:
                return WRITABLE
            if not self._make():
                return 0
            left -= len(self._unsent)

    def deadline(self) -> float:
        """When (monotonic) the client must have taken more."""
        now = time.monotonic()
        self._until = self._until or now + self._limits.answer_waits_s
        return min(now + self._limits.write_stall_s, self._until + self.sent / self._limits.answer_rate)

    def close(self) -> None:
        """What it was made from is needed no more."""
        self._unsent = memoryview(b"")
        close = getattr(self._body, "close", None)
        if close:
            close()

    def _send(self) -> int:
        """What was made; 0 when all of it is taken, else what to wait for."""
        transport = self._transport
        while self._unsent:
            self._has_begun = True
            taken = transport.send(self._unsent)
            self._unsent = self._unsent[taken:]
            if taken:
                continue
            if self._may_leave:
                return transport.awaited
            if not wait(transport.sock, transport.awaited, self._limits.write_stall_s):
                raise TimeoutError("the client does not take its answer")
        self.sent += self._size
        self._size = 0
        return 0

    def _make(self) -> bool:
        """The next bytes to send; False when there are no more."""
        try:
            return self._next()
        except OSError:
            raise
        except Exception as broken:
            self.response = self._instead(broken, self._has_begun)
            if self._has_begun:
                # The rest is missing: the client must not take what it has for the whole.
                raise ConnectionAbortedError from broken
            self._pieces = None
            return self._next()

    def _next(self) -> bool:
        if self._pieces is None:
            self._open()
        assert self._pieces is not None
        piece = next(self._pieces, None)
        if piece is None and not self._head:
            return False
        # The head waits for the first piece: until that is made, a failure can still become an error answer.
        self._size = len(piece or b"")
        self._unsent, self._head = memoryview(self._head + piece if piece else self._head), b""
        return True

    def _open(self) -> None:
        """Head and pieces of the response."""
        response = self.response
        if isinstance(response.body, Portions):
            response = replace(response, body=_whole_if_short(response.body))
        answer = self._write(response)
        self._head = answer.head
        if answer.stream is not None:
            self._pieces = answer.stream
        elif len(answer.body) <= ONE_SEND:
            self._pieces = iter((answer.body,))
        else:
            self._pieces = iter((b"", answer.body))


def _whole_if_short(portions: Portions) -> bytes | Portions:
    """The body at once when it has one piece alone, so that its length is told as that of other small ones."""
    first = next(portions, b"")
    second = next(portions, None)
    return first if second is None else Portions(_rest(portions, [second, first]))


def _rest(portions: Portions, made: list[bytes]) -> Generator[bytes]:
    while made:
        yield made.pop()  # and hold it no longer
    yield from portions
