"""How long a search may rank: a timer for each, and how many of them have run out.

Refuses to know what a search does with what it has found by then.
Threads: a timer is of one thread; `_lock` guards the count.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable

_lock = threading.Lock()
_ran_out = 0


def timer(milliseconds: int) -> Callable[[], bool]:
    """The question whether so many milliseconds have passed since now."""
    end = time.monotonic() + milliseconds / 1000
    is_counted = False

    def is_over() -> bool:
        nonlocal is_counted
        if time.monotonic() < end:
            return False
        if not is_counted:
            is_counted = True
            _count()
        return True

    return is_over


def _count() -> None:
    global _ran_out
    with _lock:
        _ran_out += 1


def ran_out() -> int:
    """How many searches of this process were told that their time is over."""
    return _ran_out
