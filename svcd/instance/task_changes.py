"""What happened to tasks and batches, in the order in which it did, and who waits to hear of it.

Nothing is kept for this: the moments of a task stand in its row and no two changes share one, but for the tasks of
one batch. So the past is read from the table, from any point of it: whoever is slow, or comes back after a day or a
restart, misses nothing, and costs no memory meanwhile. Refuses to know what a task looked like at a change.

Threads: any may notify or listen; `_lock` guards the listeners.
"""
from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from svcd.base.wakeup import WakeupPipe

# The changes of a task, in the order in which they happen; a batch has the last two.
TO_ENQUEUED, TO_PROCESSING, TO_FINISHED = range(3)
_COLUMNS = ("enqueued_at", "started_at", "finished_at")
_FARTHEST = (1 << 63) - 1
_POSITION = re.compile(r"([0-9]{1,19})(?:-([0-2])-([0-9]{1,19}))?", re.ASCII)
# Each part is read from the index of its column, which ends with the uid.
_PART = ("SELECT * FROM (SELECT {column} AS moment, {step} AS step, uid FROM tasks WHERE {column} <= ? "
         "AND ({column}, uid) > (?, ?) ORDER BY {column}, uid LIMIT ?)")
_OF_TASKS = " UNION ALL ".join(_PART.format(column=column, step=step) for step, column in enumerate(_COLUMNS))
# Batches have no index of their own moments, and tasks of one end together.
_OF_BATCHES = ("SELECT uid, started_at, finished_at FROM batches WHERE uid IN "
               "(SELECT batch_uid FROM tasks WHERE finished_at >= ? AND finished_at <= ? GROUP BY finished_at)")


class Position(NamedTuple):
    """A point in the order of changes: the change of one task or batch, which itself lies before it."""

    moment: int
    step: int = TO_FINISHED
    uid: int = _FARTHEST

    def __str__(self) -> str:
        return str(self.moment) if self[1:] == (TO_FINISHED, _FARTHEST) else f"{self.moment}-{self.step}-{self.uid}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Of str(), or of a bare moment, nanoseconds since 1970: behind all that happened up to it. ValueError."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError(f"`{text}` is no position: expected the id of an event, or `0` for the beginning")
        moment = min(int(match[1]), _FARTHEST)
        return cls(moment) if match[2] is None else cls(moment, int(match[2]), min(int(match[3]), _FARTHEST))


def of_tasks(connection: sqlite3.Connection, since: Position, until: int, most: int) -> list[Position]:
    """The first changes of tasks behind `since` and up to a moment, in their order; those of ended tasks whole."""
    values: list[int] = []
    for step in range(len(_COLUMNS)):
        uid = since.uid if step == since.step else -1 if step > since.step else _FARTHEST
        values += [until, since.moment, uid, most]
    rows = connection.execute(f"{_OF_TASKS} ORDER BY moment, step, uid LIMIT ?", [*values, most])
    return [Position(*row) for row in rows]


def of_batches(connection: sqlite3.Connection, since: Position, until: int) -> Iterator[Position]:
    """The changes of ended batches behind `since` and up to a moment."""
    for uid, started_at, finished_at in connection.execute(_OF_BATCHES, (since.moment, until)):
        for change in (Position(started_at, TO_PROCESSING, uid), Position(finished_at, TO_FINISHED, uid)):
            if since < change and change.moment <= until:
                yield change


def uids_of(changes: Iterable[Position]) -> str:
    """Their uids, each once, as JSON for a query."""
    return json.dumps(sorted({change.uid for change in changes}))


class Listeners:
    """Those who wait for a change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_all: list[WakeupPipe] = []
        self._of_close: list[WakeupPipe] = []
        self._of_ends: dict[int, list[WakeupPipe]] = {}
        self.is_closed = False  # svcd stops: nobody shall wait any longer

    @contextmanager
    def when_ended(self, uid: int) -> Iterator[WakeupPipe]:
        """A wakeup that rings when a task has ended, if that is still to come."""
        wakeup = WakeupPipe()
        with self._lock:
            self._of_ends.setdefault(uid, []).append(wakeup)
            self._set_if_closed(wakeup)
        try:
            yield wakeup
        finally:
            with self._lock:
                self._of_ends[uid].remove(wakeup)
                if not self._of_ends[uid]:
                    del self._of_ends[uid]
            wakeup.close()

    def add(self, has_changes: bool = True) -> WakeupPipe:
        """A wakeup that rings at every change, until remove(). Without changes: when svcd stops."""
        wakeup = WakeupPipe()
        with self._lock:
            (self._of_all if has_changes else self._of_close).append(wakeup)
            self._set_if_closed(wakeup)
        return wakeup

    def remove(self, wakeup: WakeupPipe) -> None:
        """It is heard no longer."""
        with self._lock:
            (self._of_all if wakeup in self._of_all else self._of_close).remove(wakeup)
        wakeup.close()

    def _set_if_closed(self, wakeup: WakeupPipe) -> None:
        if self.is_closed:
            wakeup.set()

    def notify(self, ended: Sequence[int] = ()) -> None:
        """Something changed, and can be read; ended: uids of the tasks that are finished since."""
        if not (self._of_all or self._of_ends):  # nearly always: nobody listens
            return
        with self._lock:
            for wakeup in self._of_all:
                wakeup.set()
            for uid in ended if self._of_ends else ():
                for wakeup in self._of_ends.get(uid, ()):
                    wakeup.set()

    def close(self) -> None:
        """Nothing more will be told: let everybody go."""
        self.is_closed = True
        with self._lock:
            for wakeups in (self._of_all, self._of_close, *self._of_ends.values()):
                for wakeup in wakeups:
                    wakeup.set()
