"""How many searches run at once, and which of the others wait.

Knows places and their limits; refuses to know what a search is.
Threads: every request thread comes here; `_lock` guards the running searches and the list of waiting
ones. A place that a search leaves goes to the one that came last, whose client is surely still there.

One interpreter computes one search at a time: searches that take turns inside it only wait longer, each for all
(8 at once: 459 a second; one by one: 598). So each has the interpreter to itself for its head start, in which nearly all
end; a longer one gives way to others, up to the number that may run at once.
"""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from svcd.base.errors import ApiError

_RETRY_AFTER_S = 10


class _Visit:
    """One search: waiting while `begun` is None, running since then."""

    __slots__ = ("woken", "begun")

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.begun: float | None = None


class SearchQueue:
    """Places for searches. parallel: running at once; capacity: waiting; patience_s: how long one waits.

    head_start_s: how long a search has its process to itself. processes: how many have such places; each has its
    part of them, and requests go to who has less to do.
    """

    def __init__(self, parallel: int, capacity: int = 1000, patience_s: float = 60.0, *, head_start_s: float = 0.0,
                 processes: int = 1) -> None:
        self._parallel = max(-(-parallel // processes), 1)
        self.capacity = capacity
        self._own_capacity = -(-capacity // processes)
        self._patience_s = patience_s
        self._head_start_s = head_start_s
        self._begun: list[float] = []  # when each running search began, the newest last
        self._waiting: list[_Visit] = []
        self._lock = threading.Lock()

    @property
    def running(self) -> int:
        """Searches that hold a place."""
        return len(self._begun)

    @property
    def waiting(self) -> int:
        """Searches that wait for one."""
        return len(self._waiting)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place. Raises too_many_search_requests when turned away."""
        visit = self._enter()
        if visit.begun is None:
            self._wait(visit)
        if visit.begun is None:
            raise self._turned_away()
        try:
            yield
        finally:
            self._leave(visit.begun)

    def _has_room(self) -> bool:
        if len(self._begun) >= self._parallel:
            return False
        return not self._begun or time.monotonic() - self._begun[-1] >= self._head_start_s

    def _begin(self, visit: _Visit) -> None:
        visit.begun = time.monotonic()
        self._begun.append(visit.begun)

    def _enter(self) -> _Visit:
        """A search that runs if there is a place, or waits for one."""
        visit = _Visit()
        with self._lock:
            if self._has_room() or not self.capacity and len(self._begun) < self._parallel:
                self._begin(visit)
                return visit
            if not self.capacity:
                raise self._turned_away()
            if len(self._waiting) >= self._own_capacity:
                # A random one, so that under load no client is refused for being early or late.
                self._waiting.pop(_any_place(len(self._waiting))).woken.set()
            self._waiting.append(visit)
            return visit

    def _wait(self, visit: _Visit) -> None:
        """For a place that is left, or for the end of the head start of the newest that runs."""
        until = time.monotonic() + self._patience_s
        while (left := until - time.monotonic()) > 0:
            if visit.woken.wait(min(left, self._head_start_s or left)):
                break
            with self._lock:
                if visit in self._waiting and self._has_room():
                    self._let_in(visit)
        with self._lock:
            if visit in self._waiting:
                self._waiting.remove(visit)

    def _let_in(self, visit: _Visit) -> None:
        self._waiting.remove(visit)
        self._begin(visit)
        visit.woken.set()

    def _leave(self, begun: float) -> None:
        with self._lock:
            self._begun.remove(begun)
            if self._waiting and self._has_room():
                self._let_in(self._waiting[-1])

    def _turned_away(self) -> ApiError:
        return ApiError(
            "too_many_search_requests",
            f"Too many search requests running at the same time: {self.capacity}. Retry after {_RETRY_AFTER_S}s.",
            (("Retry-After", str(_RETRY_AFTER_S)),),
        )


def _any_place(count: int) -> int:
    """A random number below `count`; the module `random` would cost the start more than all of this one."""
    return int.from_bytes(os.urandom(4), "big") % count


# How long a search may rank and format: a timer for each, and how many of them have run out.
#
# Refuses to know what a search does with what it has found by then.
# Threads: a timer is of one thread; `_lock` guards the count.


_lock = threading.Lock()
_ran_out = 0


class Timer:
    """Called with milliseconds it gives the question whether they have passed since; for one search."""

    def __init__(self) -> None:
        self.has_run_out = False

    def __call__(self, milliseconds: int) -> Callable[[], bool]:
        end = time.monotonic() + milliseconds / 1000
        return lambda: time.monotonic() >= end and self._run_out()

    def _run_out(self) -> bool:
        if not self.has_run_out:
            self.has_run_out = True
            _count()
        return True


def _count() -> None:
    global _ran_out
    with _lock:
        _ran_out += 1


def degraded_searches() -> int:
    """How many searches of this process were told that their time is over."""
    return _ran_out
