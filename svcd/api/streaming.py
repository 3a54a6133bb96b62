"""Bodies that are not built at once: event streams (docs/http.md#streams) and large answers in portions.

Server-sent events follow WHATWG HTML 9.2. A ConcurrencyLimit bounds the number of such answers.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack

from svcd.http.message import PORTION, HttpError, Portions

EVENTS, LINES = "text/event-stream", "application/x-ndjson"
# Proxies close connections that are silent, the strictest usual ones after 60 s.
HEARTBEAT_S = 15.0
_RETRY_AFTER_S = 10
# An answer of up to this many bytes is built at once: it gets a Content-Length, and leaves with one send.
WHOLE = 1 << 18
SEPARATOR = b","
HEADERS = (("Cache-Control", "no-store"), ("X-Accel-Buffering", "no"))  # the second: to nginx


class StreamBody:
    """The body of a stream. at_end is called once, even if no piece was ever requested."""

    def __init__(self, pieces: Generator[bytes], at_end: Callable[[], None]) -> None:
        self._pieces = pieces
        self._at_end: Callable[[], None] | None = at_end

    def __iter__(self) -> StreamBody:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        """Stop the generator and call at_end."""
        self._pieces.close()
        at_end, self._at_end = self._at_end, None
        if at_end:
            at_end()


class ConcurrencyLimit:
    """A limit on answers at the same time that each hold a thread or a snapshot. noun: their name in the error."""

    def __init__(self, limit: int, noun: str = "streams") -> None:
        self._limit = limit
        self._noun = noun
        self._free = threading.Semaphore(limit)

    def try_acquire(self) -> bool:
        """True if below the limit; release() must follow then."""
        return self._free.acquire(blocking=False)

    def acquire(self) -> None:
        """As try_acquire(). Raises a 503 with Retry-After at the limit."""
        if not self.try_acquire():
            raise HttpError(503, f"All {self._limit} {self._noun} of this instance are in use: end one, or try again later.",
                          (("Retry-After", str(_RETRY_AFTER_S)),))

    def release(self) -> None:
        """Undo one try_acquire() or acquire()."""
        self._free.release()


def event(text: str, position: object = None) -> bytes:
    """A server-sent event. text: one line; position: the id with which a client resumes after it."""
    head = "" if position is None else f"id: {position}\n"
    return f"{head}data: {text}\n\n".encode()


# Large answers: made in portions as their client reads them (docs/http.md#delivery-of-answers)


def list_body(prefix: bytes, elements: Iterable[bytes], suffix: Callable[[], bytes], *, expected: int, limit: ConcurrencyLimit,
              held: ExitStack, separator: bytes = SEPARATOR) -> bytes | Portions:
    """The body of an answer with a list: bytes if it is small, Portions if it is large.

    prefix: text before the list. elements: texts of the list, generated on demand. suffix: called after the last
    element. expected: estimated bytes of all elements; an answer that turns out larger becomes Portions as well. held:
    closes the readers of the elements; a large answer takes it over and closes it with its last portion or when the
    client has left. Raises a 503 if too many large answers are being sent.
    """
    pieces = _pieces(prefix, elements, suffix, separator)
    made: list[bytes] = []
    if expected <= WHOLE:
        size = 0
        for piece in pieces:
            made.append(piece)
            size += len(piece)
            if size > WHOLE:
                break
        else:
            return b"".join(made)
    limit.acquire()
    release = held.pop_all()
    release.callback(limit.release)

    def all_pieces() -> Generator[bytes]:
        made.reverse()
        while made:
            yield made.pop()  # dropped when it is sent
        yield from pieces

    def close() -> None:
        try:
            pieces.close()  # before the release of the readers that the generator uses
        finally:
            release.close()

    return Portions(all_pieces(), close)


def _pieces(prefix: bytes, elements: Iterable[bytes], suffix: Callable[[], bytes], separator: bytes) -> Generator[bytes]:
    """The whole text in pieces of at least PORTION bytes; a piece ends with an element."""
    waiting, size = [prefix], 0
    between = b""
    for element in elements:
        waiting += between, element
        between = separator
        size += len(element)
        if size >= PORTION:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join((*waiting, suffix()))
