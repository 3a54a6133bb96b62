"""Vectors of the latest queries, so that one that is searched again is not sent again."""
from __future__ import annotations

import threading
from array import array
from collections import OrderedDict

# Longer queries are not kept: they are seldom repeated, and the number of entries is all that is limited.
MOST_BYTES = 2000


class QueryCache:
    """At most `entries` vectors, the least recently used ones are dropped. Any thread may call."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, array[float]] = OrderedDict()

    def get(self, text: str) -> array[float] | None:
        """The vector of a text, if it is there."""
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
            return self._kept.get(text)

    def put(self, text: str, vector: array[float]) -> None:
        """Keep the vector of a text."""
        if self._entries < 1 or len(text.encode("utf-8", "replace")) > MOST_BYTES:
            return
        with self._lock:
            self._kept[text] = vector
            self._kept.move_to_end(text)
            if len(self._kept) > self._entries:
                self._kept.popitem(last=False)
