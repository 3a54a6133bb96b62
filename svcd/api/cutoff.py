"""How long a search may rank and format: a timer for each, and how many of them have run out.

Refuses to know what a search does with what it has found by then.
Threads: a timer is of one thread; `_lock` guards the count.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable

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


def ran_out() -> int:
    """How many searches of this process were told that their time is over."""
    return _ran_out
