"""Answers that go on: pieces as they come, as many at once as there are places, an end whoever brings it about.

Knows server-sent events (WHATWG HTML 9.2) and lines of JSON; refuses to know what is told.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack

from svcd.http.message import PORTION, HttpError, Portions

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


# Answers around a list: whole where they are small, in portions where they are large.
#
# Knows when an answer is large, how many of those there may be at once, and that what they are read from is kept to the
# last portion; refuses to know what the list is of.


# An answer up to this many bytes is made at once: it has a length, and is gone with one send.
WHOLE = 1 << 18
SEPARATOR = b","


def assembled(parts: Iterable[bytes], *, expected: int, places: ConcurrencyLimit, held: ExitStack) -> bytes | Portions:
    """The body of an answer that is these parts in a row, made when they are asked for; the rest is as for listed()."""
    return listed(b"", parts, bytes, expected=expected, places=places, held=held, separator=b"")


def separated(elements: Iterable[bytes]) -> Iterator[bytes]:
    """What stands between the brackets of a list, in parts."""
    between = b""
    for element in elements:
        yield between + element
        between = SEPARATOR


def listed(before: bytes, elements: Iterable[bytes], behind: Callable[[], bytes], *, expected: int, places: ConcurrencyLimit,
           held: ExitStack, separator: bytes = SEPARATOR) -> bytes | Portions:
    """The body of an answer: a list between what stands before and behind it.

    elements: texts of the list, made when they are asked for; behind: asked for after the last. expected: bytes of all, as
    far as can be known; where it is too few, that shows when so many are made. held: what they are read from; a large
    answer takes it over, and gives it back with its last portion or when the client has left. Raises a refusal with
    status 503 when there is no place for one more large answer.
    """
    pieces = _pieces(before, elements, behind, separator)
    made: list[bytes] = []
    if expected <= WHOLE:
        if _is_all(pieces, made):
            return b"".join(made)
    places.require()
    release = held.pop_all()
    release.callback(places.leave)
    return Portions(_first(made, pieces), _closing(pieces, release))


def _is_all(pieces: Iterator[bytes], made: list[bytes]) -> bool:
    """Make pieces until they are too much for a small answer; True when they are not."""
    size = 0
    for piece in pieces:
        made.append(piece)
        size += len(piece)
        if size > WHOLE:
            return False
    return True


def _pieces(before: bytes, elements: Iterable[bytes], behind: Callable[[], bytes], separator: bytes) -> Generator[bytes]:
    """All of it in pieces of PORTION bytes and more, as much more as an element has."""
    waiting, size = [before], 0
    between = b""
    for element in elements:
        waiting += between, element
        between = separator
        size += len(element)
        if size >= PORTION:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join((*waiting, behind()))


def _first(made: list[bytes], pieces: Iterable[bytes]) -> Generator[bytes]:
    """What is made already, which is not kept, then the rest."""
    made.reverse()
    while made:
        yield made.pop()
    yield from pieces


def _closing(pieces: Generator[bytes], release: ExitStack) -> Callable[[], None]:
    def close() -> None:
        try:
            pieces.close()  # it reads from what is released
        finally:
            release.close()

    return close
