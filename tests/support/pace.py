"""Limits in seconds that hold on a busy or slow machine, too: scaled by what a fixed piece of work takes there right now."""
from __future__ import annotations

import json
import time

# What the work took on an idle machine with two cores of 2023, on which the limits of the tests were set.
_USUAL_S = 0.045
_WORK = json.dumps([{"id": number, "title": f"film {number}", "genres": ["a", "b"]} for number in range(10_000)])
_TRIES = 3


def is_within(seconds: float, limit: float) -> bool:
    """Did something take at most `limit` seconds, or as much more as this machine is slower than the usual one?

    The machine is only measured when the limit itself does not hold: what is fast enough passes at once.
    """
    return seconds <= limit or seconds <= limit * slowness()


def slowness() -> float:
    """How many times longer than usual a fixed piece of work takes now, at least 1: the slowest of a few tries."""
    return max(1.0, *(_measured() / _USUAL_S for _ in range(_TRIES)))


def _measured() -> float:
    begin = time.perf_counter()
    for _ in range(2):
        json.dumps(json.loads(_WORK))
    return time.perf_counter() - begin
