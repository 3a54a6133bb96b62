"""`performanceDetails`: how long the steps of a search took, as its answer shows it (relevance.md 11.3).

Knows the clock and the text of a duration; refuses to know which steps there are.
"""
from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

from svcd.api.admission import SearchQueue
from svcd.base import tracing

NAME = "performanceDetails"
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def measured(is_asked: Any) -> AbstractContextManager[None]:
    """The steps of a search that ends in this block are measured, if it is asked for; and no other search's."""
    outer = tracing.recorder()
    # What all searches of a request waited for is part of each of them.
    durations = None if outer is None else outer.durations
    return tracing.recording(tracing.Recorder(time.perf_counter_ns, durations) if is_asked else None)


def place_in(searches: SearchQueue) -> AbstractContextManager[None]:
    """A place in the queue, its wait measured."""
    tracing.begin("wait in queue")
    return searches.place()


def details() -> dict[str, str] | None:
    """Path of a step -> its duration, in the order in which they ended; None when nothing is measured."""
    measuring = tracing.recorder()
    if measuring is None:
        return None
    return {path: duration(nanoseconds) for path, nanoseconds in measuring.durations.items()}


def duration(nanoseconds: int) -> str:
    """In the largest unit that it reaches, with two decimals: `1.23ms`."""
    size, unit = next((each for each in _UNITS if nanoseconds >= each[0]), _UNITS[-1])
    return f"{nanoseconds / size:.2f}{unit}"
