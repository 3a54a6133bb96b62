"""One answer on its way to a client that takes it at its own pace.

Knows what of it was taken, and makes the next piece when all before it was; refuses to know which thread does so, and
who else is served.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from svcd.http.limits import Limits
from svcd.http.message import Portions, Response
from svcd.http.poller import Pollable, Poller
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
                 replacement: Callable[[Exception, bool], Response]) -> None:
        """write: the bytes of a response. instead: the answer in place of one that failed, told whether that has begun."""
        self.response = response
        self.sent = 0
        self._transport, self._limits = transport, limits
        self._write, self._replacement = write, replacement
        self._body = response.body
        self._can_wait = isinstance(response.body, (bytes, Portions))  # the thread, while the client takes nothing
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

    def send_more(self) -> int:
        """Send what the client takes; 0 when that was the rest, else what to wait for (READABLE, WRITABLE).

        Of a body whose pieces may wait for something, all is sent here. Raises OSError when the client is gone, takes
        nothing for too long, or must not take what it has for the whole.
        """
        left = TURN
        while True:
            blocked_on = self._send()
            if blocked_on:
                return blocked_on
            if left <= 0 and self._can_wait:
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
            if self._can_wait:
                return transport.blocked_on
            if not wait(transport.sock, transport.blocked_on, self._limits.write_stall_s):
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
            self.response = self._replacement(broken, self._has_begun)
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


# Where answers are taken by their clients: those that one send did not do for, and those too large to be made at once.
#
# One thread makes the next piece of whichever client has taken the last one, in turns, so that such answers hold none of
# the threads that answer requests, and that all of them together take no more of the interpreter than one of them. Refuses
# to know what an answer is.


class DeliveryThread:
    """A parking with a thread of its own, started with the first guest. turn: called with each whose event is there."""

    def __init__(self, turn: Callable[[Pollable], None], stack_size: int) -> None:
        self._turn = turn
        self._stack_size = stack_size
        self.poller = Poller()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # over _thread

    def register(self, pollable: Pollable, events: int) -> None:
        """As Parking.park(). Raises RuntimeError when there is no thread to be had, and nobody was parked."""
        if self._thread is None:
            self._start()
        self.poller.register(pollable, events)

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._work, name="http-lane", daemon=True)
            before = threading.stack_size(self._stack_size)
            try:
                thread.start()
            finally:
                threading.stack_size(before)
            self._thread = thread

    def _work(self) -> None:
        while (pollable := self.poller.next()) is not None:
            self._turn(pollable)

    def close(self, max_wait_s: float) -> None:
        """End the thread, and give back what is held of the system if it ends in time."""
        self.poller.close()
        if self._thread:
            self._thread.join(max_wait_s)
        if not self._thread or not self._thread.is_alive():
            self.poller.release()
