"""Repeats calls to other hosts that fail for a while: with growing, random pauses, for a quarter of an hour."""
from __future__ import annotations

import random
import time
from collections.abc import Callable

from svcd.remote import Undelivered
from svcd.remote.client import Answer

# Statuses of a host that is busy or away for a while.
PASSING = frozenset((408, 429, 500, 502, 503, 504))
MOST_S = 15 * 60.0
_FIRST_S, _GROWTH, _LONGEST_S, _JITTER = 0.5, 1.5, 60.0, 0.5

Pause = Callable[[float], object]


def repeated(call: Callable[[], Answer], is_passing: Callable[[Answer], bool], pause: Pause = time.sleep,
             clock: Callable[[], float] = time.monotonic) -> Answer:
    """The answer of call(), which is repeated while it fails or its answer is a passing failure.

    When another pause would exceed MOST_S, the last answer or failure counts. pause: waits so many seconds; what it raises ends
    the repetition. Raises Undelivered, at once when it is final.
    """
    began, longest = clock(), _FIRST_S
    while True:
        answer, failure = None, None
        try:
            answer = call()
        except Undelivered as undelivered:
            if undelivered.is_final:
                raise
            failure = undelivered
        if answer is not None and not is_passing(answer):
            return answer
        seconds = longest * random.uniform(1 - _JITTER, 1 + _JITTER)
        if clock() - began + seconds > MOST_S:
            if answer is None:
                raise failure or AssertionError
            return answer
        pause(seconds)
        longest = min(longest * _GROWTH, _LONGEST_S)
