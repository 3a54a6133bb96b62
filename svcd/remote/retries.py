"""Repeats calls to other hosts after temporary failures, with growing random pauses, for at most a quarter of an hour."""
from __future__ import annotations

import random
import time
from collections.abc import Callable

from svcd.remote import Undelivered
from svcd.remote.client import Answer

# Statuses of a host that is busy or temporarily unavailable.
PASSING = frozenset((408, 429, 500, 502, 503, 504))
MOST_S = 15 * 60.0
_FIRST_S, _GROWTH, _LONGEST_S, _JITTER = 0.5, 1.5, 60.0, 0.5

Pause = Callable[[float], object]


def repeated(call: Callable[[], Answer], is_passing: Callable[[Answer], bool], pause: Pause = time.sleep,
             clock: Callable[[], float] = time.monotonic) -> Answer:
    """Return the response of call(), repeating it while it fails or its response is a temporary failure.

    Once a further pause would exceed MOST_S, returns the last response or raises the last failure. pause: waits a number of
    seconds; an exception that it raises ends the repetition. Raises Undelivered, at once if it is final.
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
