"""How many searches run at once, and which of the others wait.

Knows places and their limits; refuses to know what a search is.
Threads: every request thread comes here; `_lock` guards the count of running searches and the list of
waiting ones. A place that a search leaves goes to the one that came last, whose client is surely still there.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from svcd.errors import ApiError

_RETRY_AFTER_S = 10


class _Waiting:
    """One search that waits for a place, until it is let in or turned away."""

    __slots__ = ("woken", "is_let_in")

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.is_let_in = False


class SearchQueue:
    """Places for searches. parallel: running at once; capacity: waiting; patience_s: how long one waits.

    processes: how many have such places; each has its part of them, and requests go to who has less to do.
    """

    def __init__(self, parallel: int, capacity: int = 1000, patience_s: float = 60.0, *, processes: int = 1) -> None:
        self._parallel = max(-(-parallel // processes), 1)
        self.capacity = capacity
        self._own_capacity = -(-capacity // processes)
        self._patience_s = patience_s
        self._running = 0
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()

    @property
    def running(self) -> int:
        """Searches that hold a place."""
        return self._running

    @property
    def waiting(self) -> int:
        """Searches that wait for one."""
        return len(self._waiting)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place. Raises too_many_search_requests when turned away."""
        waiting = self._enter()
        if waiting is not None:
            waiting.woken.wait(self._patience_s)
            if not self._was_let_in(waiting):
                raise self._turned_away()
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> _Waiting | None:
        """None when there is a place; otherwise what to wait on."""
        with self._lock:
            if self._running < self._parallel:
                self._running += 1
                return None
            if not self.capacity:
                raise self._turned_away()
            if len(self._waiting) >= self._own_capacity:
                # A random one, so that under load no client is refused for being early or late.
                self._waiting.pop(_any_place(len(self._waiting))).woken.set()
            waiting = _Waiting()
            self._waiting.append(waiting)
            return waiting

    def _was_let_in(self, waiting: _Waiting) -> bool:
        with self._lock:
            if not waiting.is_let_in and waiting in self._waiting:
                self._waiting.remove(waiting)
            return waiting.is_let_in

    def _leave(self) -> None:
        with self._lock:
            if not self._waiting:
                self._running -= 1
                return
            following = self._waiting.pop()
            following.is_let_in = True
            following.woken.set()

    def _turned_away(self) -> ApiError:
        return ApiError(
            "too_many_search_requests",
            f"Too many search requests running at the same time: {self.capacity}. Retry after {_RETRY_AFTER_S}s.",
            (("Retry-After", str(_RETRY_AFTER_S)),),
        )


def _any_place(count: int) -> int:
    """A random number below `count`; the module `random` would cost the start more than all of this one."""
    return int.from_bytes(os.urandom(4), "big") % count
