"""What searches found, kept for those who ask the same before the index changes.

As people type, many type the same beginnings, and every visitor of a page asks for the same first list: on a small
box what was found once should not be found again. Nothing is kept of a search that ran out of time, and nothing
that would push out many others. Refuses to know what an answer says.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable

from svcd.index.read_transaction import Cache

LIMIT_BYTES = 8 << 20
_MAX_BYTES = 64 << 10  # of one answer

Parts = tuple[bytes, ...]  # of JSON: as text, one odd character would double what they take


class SearchCache:
    """Answers of one process, the least recently used of them going first. Safe for many threads."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._cache = Cache(limit)

    def get(self, state: Hashable, asked: str, make: Callable[[], tuple[Parts, bool]]) -> Parts:
        """The parts of an answer.

        state: of the index, another one after each write. asked: all that the answer depends on besides. make: finds
        it, and says whether it is whole.
        """
        held = self._cache.peek((state, asked))
        if held is not None:
            return held[1:]
        parts, is_whole = make()
        if is_whole and sum(map(len, parts)) <= _MAX_BYTES:
            self._cache.put((state, asked), (asked, *parts))  # the question counts as well
        return parts
