"""The order of changes of tasks and batches, and how requests wait for the next change.

Changes are not logged: the moments of a task are columns of its row, and only the tasks of one batch share a moment. So
changes can be read from the table from any position: a client that is slow, or returns after a day or a restart, misses no
change and costs no memory. See docs/tasks-and-batches.md#changes.

A request polls its socket and a WakeupPipe together, because either may end the wait.

Threads: any thread may notify or listen; `_lock` guards the listeners.
"""
from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

# The changes of a task, in their order; a batch has the last two.
TO_ENQUEUED, TO_PROCESSING, TO_FINISHED = range(3)
_COLUMNS = ("enqueued_at", "started_at", "finished_at")
_FARTHEST = (1 << 63) - 1
_PIECE = 4096  # bytes that are read at once from a wake-up pipe
_POSITION = re.compile(r"([0-9]{1,19})(?:-([0-2])-([0-9]{1,19}))?", re.ASCII)
# The SQL index on its column, which ends with the uid, answers each part.
_PART = ("SELECT * FROM (SELECT {column} AS moment, {step} AS step, uid FROM tasks WHERE {column} <= ? "
         "AND ({column}, uid) > (?, ?) ORDER BY {column}, uid LIMIT ?)")
_OF_TASKS = " UNION ALL ".join(_PART.format(column=column, step=step) for step, column in enumerate(_COLUMNS))
# `batches` lacks an SQL index on moments. The tasks of a batch share its finished_at, so batches are found by their tasks.
_OF_BATCHES = ("SELECT uid, started_at, finished_at FROM batches WHERE uid IN "
               "(SELECT batch_uid FROM tasks WHERE finished_at >= ? AND finished_at <= ? GROUP BY finished_at)")


class Position(NamedTuple):
    """A point in the order of changes: right after the change `step` of the task or batch `uid` at `moment`."""

    moment: int
    step: int = TO_FINISHED
    uid: int = _FARTHEST

    def __str__(self) -> str:
        return str(self.moment) if self[1:] == (TO_FINISHED, _FARTHEST) else f"{self.moment}-{self.step}-{self.uid}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse the text of str(); a bare moment (nanoseconds since 1970) is after all its changes. Raises ValueError."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError(f"`{text}` is not a position: expected the id of an event, or `0` for the beginning")
        moment = min(int(match[1]), _FARTHEST)
        return cls(moment) if match[2] is None else cls(moment, int(match[2]), min(int(match[3]), _FARTHEST))


def of_tasks(connection: sqlite3.Connection, since: Position, until: int, most: int) -> list[Position]:
    """Return the first `most` stored changes of tasks after `since` up to the moment `until`, in order."""
    values: list[int] = []
    for step in range(len(_COLUMNS)):
        uid = since.uid if step == since.step else -1 if step > since.step else _FARTHEST
        values += [until, since.moment, uid, most]
    rows = connection.execute(f"{_OF_TASKS} ORDER BY moment, step, uid LIMIT ?", [*values, most])
    return [Position(*row) for row in rows]


def of_batches(connection: sqlite3.Connection, since: Position, until: int) -> Iterator[Position]:
    """Yield the changes of finished batches after `since` up to the moment `until`, in any order."""
    for uid, started_at, finished_at in connection.execute(_OF_BATCHES, (since.moment, until)):
        for change in (Position(started_at, TO_PROCESSING, uid), Position(finished_at, TO_FINISHED, uid)):
            if since < change and change.moment <= until:
                yield change


def uids_of(changes: Iterable[Position]) -> str:
    """Return the distinct uids of changes, as a JSON list for json_each()."""
    return json.dumps(sorted({change.uid for change in changes}))


class WakeupPipe:
    """A descriptor that is readable from set() until clear(), to wake a thread that polls it together with sockets."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._lock = threading.Lock()  # guards is_set and close(): the number of a closed descriptor may belong to another file
        self.is_set = False
        self._is_closed = False

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._reading

    def set(self) -> None:
        """Make the pipe readable. Never blocks; does nothing after close()."""
        with self._lock:
            if not (self.is_set or self._is_closed):
                self.is_set = True
                os.write(self._writing, b"!")

    def clear(self) -> None:
        """Make the pipe unreadable. Call this before looking for work: later work sets the pipe again."""
        with self._lock:
            if self.is_set:
                os.read(self._reading, _PIECE)
                self.is_set = False

    def close(self) -> None:
        """Close both ends of the pipe."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._reading)
                os.close(self._writing)


class Listeners:
    """Wake-up pipes of the requests that wait for a change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._for_changes: list[WakeupPipe] = []
        self._for_close: list[WakeupPipe] = []
        self._for_task_ends: dict[int, list[WakeupPipe]] = {}
        self.is_closed = False  # svcd stops, and no request may wait any longer

    @contextmanager
    def when_ended(self, uid: int) -> Iterator[WakeupPipe]:
        """Give a pipe that is set when the task `uid` ends, unless it has already ended."""
        wakeup = WakeupPipe()
        with self._lock:
            self._for_task_ends.setdefault(uid, []).append(wakeup)
            self._set_if_closed(wakeup)
        try:
            yield wakeup
        finally:
            with self._lock:
                self._for_task_ends[uid].remove(wakeup)
                if not self._for_task_ends[uid]:
                    del self._for_task_ends[uid]
            wakeup.close()

    def add(self, has_changes: bool = True) -> WakeupPipe:
        """Return a pipe that is set at every change (with `has_changes`) and when svcd stops, until remove()."""
        wakeup = WakeupPipe()
        with self._lock:
            (self._for_changes if has_changes else self._for_close).append(wakeup)
            self._set_if_closed(wakeup)
        return wakeup

    def remove(self, wakeup: WakeupPipe) -> None:
        """Close a pipe of add()."""
        with self._lock:
            (self._for_changes if wakeup in self._for_changes else self._for_close).remove(wakeup)
        wakeup.close()

    def _set_if_closed(self, wakeup: WakeupPipe) -> None:
        if self.is_closed:
            wakeup.set()

    def notify(self, ended: Sequence[int] = ()) -> None:
        """Wake the listeners; call this when the change can be read. ended: uids of the tasks that finished with it."""
        if not (self._for_changes or self._for_task_ends):  # the usual case: nobody listens
            return
        with self._lock:
            for wakeup in self._for_changes:
                wakeup.set()
            for uid in ended if self._for_task_ends else ():
                for wakeup in self._for_task_ends.get(uid, ()):
                    wakeup.set()

    def close(self) -> None:
        """Wake all listeners, because svcd stops."""
        self.is_closed = True
        with self._lock:
            for wakeups in (self._for_changes, self._for_close, *self._for_task_ends.values()):
                for wakeup in wakeups:
                    wakeup.set()
