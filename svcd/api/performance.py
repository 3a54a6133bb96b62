"""`performanceDetails`: how long each step of a search took, as the answer shows it."""
from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

from svcd.api.admission import SearchQueue
from svcd.base import tracing

NAME = "performanceDetails"
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def measured(is_asked: Any) -> AbstractContextManager[None]:
    """Measure the steps of the search in this block, if is_asked; not those of other searches of the request."""
    outer = tracing.recorder()
    # The wait in the queue is shared by all searches of a request, so it counts for each.
    durations = None if outer is None else outer.durations
    return tracing.recording(tracing.Recorder(time.perf_counter_ns, durations) if is_asked else None)


def timed_slot(searches: SearchQueue) -> AbstractContextManager[None]:
    """A slot of the search queue, with the wait for it measured."""
    tracing.begin("wait in queue")
    return searches.slot()


def details() -> dict[str, str] | None:
    """Path of a step -> its duration, in the order in which they ended; None when nothing is measured."""
    measuring = tracing.recorder()
    if measuring is None:
        return None
    return {path: duration(nanoseconds) for path, nanoseconds in measuring.durations.items()}


def duration(nanoseconds: int) -> str:
    """In the largest unit of which it has at least one, with two decimals: `1.23ms`."""
    size, unit = next((each for each in _UNITS if nanoseconds >= each[0]), _UNITS[-1])
    return f"{nanoseconds / size:.2f}{unit}"
