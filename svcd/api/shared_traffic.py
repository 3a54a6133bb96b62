"""Counters of requests in memory that two processes share: one counts, the other reads, even after the first was killed.

A region of REGION_BYTES has three parts: the number of rows, the directory (one line of JSON for each row), and the
figures of all rows. A row (method, path, status) has one figure, the number of answered requests; a row (method, path) has the
figures of a Timing; a row (kind of search) has one figure, the number of these searches. A row exists once the number of rows
includes it. So a process that ends while it adds a row leaves nothing half-written, and its successor continues to count.
"""
from __future__ import annotations

import json
from typing import Any, cast

from svcd.api.traffic import BOUNDS_S, Timing, Traffic

REGION_BYTES = 16 << 10
_HEADER_BYTES, _DIRECTORY_BYTES = 8, 8 << 10
_BUCKETS = len(BOUNDS_S) + 1
_Key = tuple[Any, ...]


class _SharedTiming(Timing):
    """A Timing whose figures are in shared memory: the count of each bucket, then the seconds."""

    __slots__ = ("_figures",)

    def __init__(self, figures: memoryview[float]) -> None:
        self._figures = figures
        self.by_bucket = cast("list[int]", figures[:_BUCKETS])  # only its items are read and set

    @property
    def seconds(self) -> float:
        return self._figures[_BUCKETS]

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._figures[_BUCKETS] = value


class SharedTraffic(Traffic):
    """The counters of the process that answers searches, over all its restarts.

    There are few rows, because only searches are counted, by the paths that routes declare. Requests for which no row has room
    are not counted.
    """

    def __init__(self, memory: memoryview) -> None:
        """memory: REGION_BYTES, zero at first. Only one process at a time may count in it; any may read it."""
        super().__init__()
        self._row_count = memory[:_HEADER_BYTES].cast("q")
        self._directory = memory[_HEADER_BYTES:_DIRECTORY_BYTES]
        self._figures = memory[_DIRECTORY_BYTES:].cast("d")
        self._rows: dict[_Key, memoryview[float]] = {}
        self._used_bytes = self._used_figures = 0
        for line in bytes(self._directory).split(b"\n", self._row_count[0])[:self._row_count[0]]:
            self._place(tuple(json.loads(line)), len(line) + 1)

    def timing(self, method: str, path: str) -> Timing:
        with self._lock:
            figures = self._row((method, path))
        return Timing() if figures is None else _SharedTiming(figures)

    def count(self, method: str, path: str, status: int) -> None:
        with self._lock:
            figures = self._row((method, path, status))
            if figures is not None:
                figures[0] += 1

    def count_search(self, kind: str) -> None:
        with self._lock:
            figures = self._row((kind,))
            if figures is not None:
                figures[0] += 1

    def searches(self, kind: str) -> int:
        with self._lock:
            figures = self._rows.get((kind,))
            return 0 if figures is None else int(figures[0])

    def answered(self) -> dict[tuple[str, str, int], int]:
        with self._lock:
            return {(key[0], key[1], key[2]): int(figures[0]) for key, figures in self._rows.items() if len(key) == 3}

    def timings(self) -> dict[tuple[str, str], Timing]:
        with self._lock:
            return {(key[0], key[1]): Timing([int(count) for count in figures[:_BUCKETS]], figures[_BUCKETS])
                    for key, figures in self._rows.items() if len(key) == 2}

    def _row(self, key: _Key) -> memoryview[float] | None:
        """The figures of a row, which is added if it is new; None if the region is full. The caller holds the lock."""
        figures = self._rows.get(key)
        if figures is not None:
            return figures
        line = json.dumps(key).encode() + b"\n"
        begin = self._used_bytes
        if begin + len(line) > len(self._directory) or self._used_figures + _size(key) > len(self._figures):
            return None
        self._directory[begin:begin + len(line)] = line
        figures = self._place(key, len(line))
        self._row_count[0] += 1  # last: from here on other processes see the row
        return figures

    def _place(self, key: _Key, line_bytes: int) -> memoryview[float]:
        first = self._used_figures
        self._used_bytes += line_bytes
        self._used_figures += _size(key)
        self._rows[key] = figures = self._figures[first:self._used_figures]
        return figures


def _size(key: _Key) -> int:
    """The number of figures of a row."""
    return _BUCKETS + 1 if len(key) == 2 else 1
