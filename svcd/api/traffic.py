"""Counts requests and their durations by method, declared path and status, for `/metrics`.

Counters of several processes can be summed. Threads: every request thread comes here; `_lock` guards all counters.
"""
from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

# Upper bounds of the histogram in seconds: those that existing dashboards expect.
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


class Timing:
    """Histogram of the durations of one method and path. Only Traffic changes it."""

    __slots__ = ("by_bucket", "seconds")

    def __init__(self, by_bucket: list[int] | None = None, seconds: float = 0.0) -> None:
        """by_bucket: how many requests fell between two bounds; the last, beyond all of them."""
        self.by_bucket = by_bucket or [0] * (len(BOUNDS_S) + 1)
        self.seconds = seconds

    def cumulative(self) -> list[int]:
        """How many requests took at most each of BOUNDS_S; the last: how many there were."""
        return list(accumulate(self.by_bucket))


class Traffic:
    """The counters of one instance, since its start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered: dict[tuple[str, str, int], int] = {}
        self._timings: dict[tuple[str, str], Timing] = {}

    def timing(self, method: str, path: str) -> Timing:
        """The histogram of one method and path; from now on it is shown, even while it is empty."""
        with self._lock:
            return self._timings.setdefault((method, path), Timing())

    def count(self, method: str, path: str, status: int) -> None:
        """One more request was answered."""
        key = (method, path, status)
        with self._lock:
            self._answered[key] = self._answered.get(key, 0) + 1

    def note(self, timing: Timing, seconds: float) -> None:
        """Add the duration of one request."""
        bucket = bisect_left(BOUNDS_S, seconds)
        with self._lock:
            timing.by_bucket[bucket] += 1
            timing.seconds += seconds

    def answered(self) -> dict[tuple[str, str, int], int]:
        """(method, path, status) -> requests."""
        with self._lock:
            return dict(self._answered)

    def timings(self) -> dict[tuple[str, str], Timing]:
        """(method, path) -> how long requests took, as copies."""
        with self._lock:
            return {key: Timing(list(timing.by_bucket), timing.seconds) for key, timing in self._timings.items()}

    def as_json(self) -> dict[str, Any]:
        """All counters, as add_json() reads them."""
        return {
            "answered": [[*key, count] for key, count in self.answered().items()],
            "timings": [[*key, timing.by_bucket, timing.seconds] for key, timing in self.timings().items()],
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


@dataclass(frozen=True, slots=True)
class Report:
    """Counters of another process of this instance. traffic: as Traffic.as_json(); running, waiting: searches."""

    traffic: Mapping[str, Any]
    running: int
    waiting: int

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> Report:
        """From a JSON object that has these members, among others."""
        return cls(said["traffic"], said["running"], said["waiting"])


def sum_of(own: Traffic, reports: Iterable[Report]) -> Traffic:
    """The counters of all processes."""
    total = Traffic()
    for counters in (own.as_json(), *(report.traffic for report in reports)):
        total.add_json(counters)
    return total
