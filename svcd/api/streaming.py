"""Answers that go on: pieces as they come, as many at once as there are places, an end whoever brings it about.

Knows server-sent events (WHATWG HTML 9.2) and lines of JSON; refuses to know what is told.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Generator

from svcd.http.message import HttpError

EVENTS, LINES = "text/event-stream", "application/x-ndjson"
# Without a word for this long, proxies take a connection for dead; 60 s is the least that is usual.
HEARTBEAT_S = 15.0
_RETRY_AFTER_S = 10
HEADERS = (("Cache-Control", "no-store"), ("X-Accel-Buffering", "no"))  # the second: to nginx


class StreamBody:
    """The body of such an answer. at_end is called once, also where no piece was ever asked for."""

    def __init__(self, pieces: Generator[bytes], at_end: Callable[[], None]) -> None:
        self._pieces = pieces
        self._at_end: Callable[[], None] | None = at_end

    def __iter__(self) -> StreamBody:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        """End it."""
        self._pieces.close()
        at_end, self._at_end = self._at_end, None
        if at_end:
            at_end()


class ConcurrencyLimit:
    """How many may be held at once: each holds a thread, or a state of an index. noun: what they are, as refusals say."""

    def __init__(self, most: int, noun: str = "streams") -> None:
        self._most = most
        self._noun = noun
        self._free = threading.Semaphore(most)

    def take(self) -> bool:
        """True, and leave() must follow, if there is one."""
        return self._free.acquire(blocking=False)

    def require(self) -> None:
        """As take(). Raises a refusal with status 503 if there is none."""
        if not self.take():
            raise HttpError(503, f"All {self._most} {self._noun} of this instance are in use: end one, or try again later.",
                          (("Retry-After", str(_RETRY_AFTER_S)),))

    def leave(self) -> None:
        """Give a place back."""
        self._free.release()


def event(text: str, position: object = None) -> bytes:
    """A server-sent event. text: on one line; position: what a client names to go on behind it."""
    head = "" if position is None else f"id: {position}\n"
    return f"{head}data: {text}\n\n".encode()


def first_event_id(position: object) -> bytes:
    """What a client names to go on, should it lose the connection before the first event. Nothing is dispatched."""
    return f"id: {position}\n\n".encode()


def heartbeat() -> bytes:
    """A comment, so that everybody on the way sees that the connection lives."""
    return b":\n\n"
