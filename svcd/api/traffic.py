"""The counters of one process for `/metrics`: requests and their durations by method, declared path and status (Traffic), the
same in memory that two processes share (SharedTraffic), and the searches and tokens of chats (ChatTraffic).

Threads: every request thread counts; each class has a `_lock` that guards its counters.
"""
from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from svcd.chat.chunks import Usage

# Upper bounds of the histogram in seconds, as existing dashboards expect them.
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

# Searches with their own counters: ordered for a user, and cut off by their time limit.
SEARCH_KINDS = PERSONALIZED, DEGRADED = "personalized", "degraded"


class Timing:
    """Histogram of the durations of one method and path. Only Traffic changes it."""

    __slots__ = ("by_bucket", "seconds")

    def __init__(self, by_bucket: list[int] | None = None, seconds: float = 0.0) -> None:
        """by_bucket: number of requests between two bounds, and last beyond all bounds."""
        self.by_bucket = by_bucket or [0] * (len(BOUNDS_S) + 1)
        self.seconds = seconds

    def cumulative(self) -> list[int]:
        """Number of requests that took at most each of BOUNDS_S; last, the number of all requests."""
        return list(accumulate(self.by_bucket))


class Traffic:
    """The counters of one process since its start; the counters of other processes can be added."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered: dict[tuple[str, str, int], int] = {}
        self._timings: dict[tuple[str, str], Timing] = {}
        self._searches = dict.fromkeys(SEARCH_KINDS, 0)

    def timing(self, method: str, path: str) -> Timing:
        """The histogram of one method and path; `/metrics` shows it from now on, even while it is empty."""
        with self._lock:
            return self._timings.setdefault((method, path), Timing())

    def count(self, method: str, path: str, status: int) -> None:
        """Count an answered request."""
        key = (method, path, status)
        with self._lock:
            self._answered[key] = self._answered.get(key, 0) + 1

    def note(self, timing: Timing, seconds: float) -> None:
        """Add the duration of one request."""
        bucket = bisect_left(BOUNDS_S, seconds)
        with self._lock:
            timing.by_bucket[bucket] += 1
            timing.seconds += seconds

    def count_search(self, kind: str) -> None:
        """Count a search. kind: PERSONALIZED or DEGRADED."""
        with self._lock:
            self._searches[kind] += 1

    def searches(self, kind: str) -> int:
        """Number of searches of a kind."""
        return self._searches[kind]

    def answered(self) -> dict[tuple[str, str, int], int]:
        """(method, path, status) -> number of requests."""
        with self._lock:
            return dict(self._answered)

    def timings(self) -> dict[tuple[str, str], Timing]:
        """(method, path) -> histogram of durations, as copies."""
        with self._lock:
            return {key: Timing(list(timing.by_bucket), timing.seconds) for key, timing in self._timings.items()}

    def as_json(self) -> dict[str, Any]:
        """All counters, in the form that add_json() reads."""
        return {
            "answered": [[*key, count] for key, count in self.answered().items()],
            "timings": [[*key, timing.by_bucket, timing.seconds] for key, timing in self.timings().items()],
            "searches": {kind: self.searches(kind) for kind in SEARCH_KINDS},
        }

    def add_json(self, counters: Mapping[str, Any]) -> None:
        """Add the counters of another process."""
        with self._lock:
            for method, path, status, count in counters["answered"]:
                key = (method, path, status)
                self._answered[key] = self._answered.get(key, 0) + count
            for method, path, by_bucket, seconds in counters["timings"]:
                timing = self._timings.setdefault((method, path), Timing())
                timing.by_bucket = [own + more for own, more in zip(timing.by_bucket, by_bucket, strict=True)]
                timing.seconds += seconds
            for kind, count in counters["searches"].items():
                self._searches[kind] += count


class Report(NamedTuple):
    """Counters of another process of this instance. traffic: as Traffic.as_json(); running, waiting: searches."""

    traffic: Mapping[str, Any]
    running: int
    waiting: int


def sum_of(own: Traffic, reports: Iterable[Report]) -> Traffic:
    """The counters of all processes."""
    total = Traffic()
    for counters in (own.as_json(), *(report.traffic for report in reports)):
        total.add_json(counters)
    return total


# Chats

TokensOf = tuple[str, str]  # workspace, model of the request
# Most pairs of workspace and model that are counted: clients choose the name of the model.
MOST_PAIRS = 1000


class ChatTraffic:
    """The counters of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[TokensOf, tuple[int, int, int]] = {}
        self.searches = 0  # without an error

    def count_search(self) -> None:
        """Count a search."""
        with self._lock:
            self.searches += 1

    def count_tokens(self, pair: TokensOf, usage: Usage) -> None:
        """Add the tokens reported by a service."""
        with self._lock:
            prompt, completion, total = self._tokens.get(pair, (0, 0, 0))
            if pair in self._tokens or len(self._tokens) < MOST_PAIRS:
                self._tokens[pair] = (prompt + usage.prompt, completion + usage.completion, total + usage.total)

    def tokens(self) -> Mapping[TokensOf, tuple[int, int, int]]:
        """(workspace, model) -> numbers of tokens: of prompts, of completions, of both."""
        with self._lock:
            return dict(self._tokens)


# Counters of requests in memory that two processes share: one counts, the other reads, even after the first was killed.
#
# A region of REGION_BYTES has three parts: the number of rows, the directory (one line of JSON for each row), and the
# figures of all rows. A row (method, path, status) has one figure, the number of answered requests; a row (method, path) has the
# figures of a Timing; a row (kind of search) has one figure, the number of these searches. A row exists once the number of rows
# includes it. So a process that ends while it adds a row leaves nothing half-written, and its successor continues to count.

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
