"""Caches the hits of searches until their index changes (docs/http.md#search-cache).

While people type, many type the same prefixes, and every visitor of a page asks for the same first list.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable

from svcd.index.read_transaction import Cache

LIMIT_BYTES = 8 << 20
_MAX_BYTES = 64 << 10  # of one answer

Parts = tuple[bytes, ...]  # UTF-8: in a str, one character outside Latin-1 would double the memory


class SearchCache:
    """The cache of one process; least recently used entries are evicted first. Thread-safe."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._cache = Cache(limit)

    def get(self, state: Hashable, asked: str, make: Callable[[], tuple[Parts, bool]]) -> Parts:
        """The parts of an answer.

        state: of the index, different after each write. asked: everything else that the answer depends on. make:
        computes (parts, may they be cached?); a search that was cut off must not be.
        """
        held = self._cache.peek((state, asked))
        if held is not None:
            return held[1:]
        parts, is_whole = make()
        if is_whole and sum(map(len, parts)) <= _MAX_BYTES:
            self._cache.put((state, asked), (asked, *parts))  # the key takes memory, too
        return parts
