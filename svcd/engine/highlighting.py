"""Texts with tags around their matches: short ones at once, long ones in pieces as they are asked for.

Refuses to know how matches are found, and which part of a text is shown.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from svcd.engine.long_texts import PIECE
from svcd.engine.matching import Match
from svcd.jsontext import dumps
from svcd.jsontext.literals import Unescaped


class Tags(NamedTuple):
    """What stands around each match."""

    before: str
    behind: str


def spread(part: Callable[[int, int], str], matches: Sequence[Match], start: int, end: int, tags: Tags) -> Iterator[str]:
    """The parts of a text from start to end with the matches there in tags, those across a border clipped."""
    for match in matches:
        first, last = max(match.start, start), min(match.end, end)
        yield part(start, first)
        yield tags.before
        yield part(first, last)
        yield tags.behind
        start = last
    yield part(start, end)


class MarkedText(NamedTuple):
    """A part of a long text with the matches there in tags, and markers at its ends: a `long_texts.LongValue`."""

    source: Unescaped
    matches: Sequence[Match]
    start: int
    end: int
    tags: Tags
    before: str
    behind: str

    @property
    def size(self) -> int:
        return self.end - self.start + len(self.matches) * sum(map(len, self.tags))

    def pieces(self) -> Iterator[bytes]:
        """As it stands in a literal; of the order of PIECE bytes each."""
        opening, closing = (_escaped(tag) for tag in self.tags)
        waiting, size = [_escaped(self.before)], 0
        place = self.start
        for match in self.matches:
            first, last = max(match.start, place), min(match.end, self.end)
            for part in self._parts(place, first):
                waiting.append(part)
                size += len(part)
                if size >= PIECE:
                    yield b"".join(waiting)
                    waiting, size = [], 0
            waiting += opening, self.source.escaped(first, last), closing
            size += len(opening) + last - first + len(closing)
            place = last
        yield b"".join(waiting)
        yield from self._parts(place, self.end)
        yield _escaped(self.behind)

    def _parts(self, start: int, end: int) -> Iterator[bytes]:
        for place in range(start, end, PIECE):
            yield self.source.escaped(place, min(place + PIECE, end))


def _escaped(text: str) -> bytes:
    return dumps(text)[1:-1].encode()
