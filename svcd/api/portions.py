"""Answers around a list: whole where they are small, in portions where they are large.

Knows when an answer is large, how many of those there may be at once, and that what they are read from is kept to the
last portion; refuses to know what the list is of.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack

from svcd.api.streaming import Places
from svcd.http.message import PORTION, Portions

# An answer up to this many bytes is made at once: it has a length, and is gone with one send.
WHOLE = 1 << 18
SEPARATOR = b","


def assembled(parts: Iterable[bytes], *, expected: int, places: Places, held: ExitStack) -> bytes | Portions:
    """The body of an answer that is these parts in a row, made when they are asked for; the rest is as for listed()."""
    return listed(b"", parts, bytes, expected=expected, places=places, held=held, separator=b"")


def listed(before: bytes, elements: Iterable[bytes], behind: Callable[[], bytes], *, expected: int, places: Places,
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
