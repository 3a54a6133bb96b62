"""What was asked of this process, as figures for the anonymous usage report.

Refuses to know what a request adds (svcd.api.usage_notes), when a report is made, and where it goes. Nothing is kept of
a request: what a client wrote is looked at, counted, and forgotten; the distinct names of facets and remotes stay as
hashes until the report.

Threads: every request thread comes here; `_lock` guards the state, and is held for a few additions only.
"""
from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from svcd import logs
from svcd.api import cutoff
from svcd.api.usage_kinds import NAMES
from svcd.api.usage_notes import noted
from svcd.remote.usage_figures import TIME_BOUNDS_MS, State, agent, joined, nothing

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.api.routes import Route
    from svcd.http.message import Request

# Distinct names that are told apart until the next report.
_MOSTNAMES = 10_000
_known_agent = lru_cache(maxsize=256)(agent)


class Usage:
    """What was asked of this process since the last report."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = nothing()
        self._cut_off = cutoff.ran_out()
        self._names: set[tuple[str, int]] = set()

    def answered(self, request: Request, status: int, seconds: float) -> None:
        """One more request was answered."""
        bucket = bisect_left(TIME_BOUNDS_MS, seconds * 1000)
        program = _known_agent((request.headers.get("user-agent") or "")[:100])
        with self._lock:
            state = self._state
            state["requests.total_received"] += 1
            state["requests.total_succeeded" if status < 400 else "requests.total_failed"] += 1
            state["requests.99th_response_time"][bucket] += 1
            agents = state["user_agent"]
            agents[program] = agents.get(program, 0) + 1

    def note(self, route: Route, ctx: Context) -> None:
        """A request was understood, and is answered: also when what it adds cannot be found out."""
        note = noted((route.method, route.path))
        if note is None:
            return
        try:
            with self._lock:
                note(self._state, ctx)
                if NAMES in self._state:
                    self._count_names()
        except Exception as bug:
            logs.failure("usage was not counted", bug, route=route.path)

    def _count_names(self) -> None:
        for figure, name in self._state.pop(NAMES):
            seen = (figure, hash(name))
            if seen not in self._names and len(self._names) < _MOSTNAMES:
                self._names.add(seen)
                self._state[figure] += 1

    def take(self) -> State:
        """What was counted, and begin anew."""
        with self._lock:
            taken, self._state = self._state, nothing()
            cut_off, self._cut_off = self._cut_off, cutoff.ran_out()
            self._names.clear()
        taken["requests.total_degraded"] = self._cut_off - cut_off
        return taken


def sum_of(states: Sequence[State]) -> State:
    """Of several processes."""
    total = nothing()
    for state in states:
        total = joined(total, state)
    return total
