"""Decoded sets and lists kept between searches, limited in bytes, thrown away when an index changes."""
from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

# What one entry costs beside its value: key, links of the two dictionaries.
_ENTRY_BYTES = 200


def _bytes_of(value: Any) -> int:
    """About what a value holds: containers to the second level."""
    if isinstance(value, tuple):
        return sys.getsizeof(value) + sum(map(_bytes_of, value))
    if isinstance(value, list):
        return sys.getsizeof(value) + sum(map(sys.getsizeof, value))
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(map(sys.getsizeof, value.values()))
    return sys.getsizeof(value)


class Cache:
    """The least recently used entry goes first once `limit` bytes are held; safe for many threads.

    limit: may be set anew; what is too much then goes with the next entry.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()  # guards _entries and _held

    def peek(self, key: Hashable) -> Any:
        """The value of a key, None when it is not held."""
        with self._lock:
            held = self._entries.get(key)
            if held is None:
                return None
            self._entries.move_to_end(key)
            return held[0]

    def put(self, key: Hashable, value: Any) -> None:
        """Hold a value in the place of what the key had; one that takes all the room is not worth the others."""
        size = _bytes_of(value) + _ENTRY_BYTES
        with self._lock:
            self._held -= self._entries.pop(key, (None, 0))[1]
            if size > self.limit:
                return
            self._held += size
            self._entries[key] = value, size
            while self._held > self.limit:
                self._held -= self._entries.popitem(last=False)[1][1]

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made when it is not held. Two threads may both make it; both get the same kind."""
        held: T | None = self.peek(key)
        if held is None:
            held = make()
            self.put(key, held)
        return held

    def forget(self, is_stale: Callable[[Hashable], bool]) -> None:
        """Drop the entries whose key is stale."""
        with self._lock:
            for key in [key for key in self._entries if is_stale(key)]:
                self._held -= self._entries.pop(key)[1]
