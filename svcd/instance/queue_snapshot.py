"""The queue as it was at one moment, for lists that are read in portions while tasks go on.

Knows what of the queue may change between two portions: its file, what runs, and nothing else; refuses to know which
lists there are (svcd.instance.queue).
"""
from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from svcd.instance.queue import Queue, RunningBatch

_COUNT = "SELECT count(*) "


@contextmanager
def queue_snapshot(queue: Queue) -> Iterator[Queue]:
    """The queue as it is now, to be read from until the block ends; what writes is not there."""
    # Before the file is read, as it is for every list: what ends meanwhile has its end in the file.
    running = [RunningBatch(replace(one.batch), dict(one.tasks)) for one in queue.running()]
    with queue._reading() as connection:
        yield _Standing(connection, running)


class _Standing(Queue):
    """Lists of the queue over one transaction."""

    def __init__(self, connection: sqlite3.Connection, running: Sequence[RunningBatch]) -> None:
        # Not the constructor of the base: that would open the queue.
        self._connection = cast(sqlite3.Connection, _Counted(connection))
        self._stood = list(running)

    def running(self) -> list[RunningBatch]:
        return self._stood

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        yield self._connection


class _Counted:
    """A connection that counts rows once: each portion tells the total of them all, and it does not change."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._counts: dict[tuple[str, str], list[Any]] = {}

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """As of the connection."""
        if not sql.startswith(_COUNT):
            return self._connection.execute(sql, values)
        key = sql, repr(values)
        if key not in self._counts:
            self._counts[key] = self._connection.execute(sql, values).fetchall()
        return _Rows(self._counts[key])


class _Rows:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def fetchone(self) -> Any:
        """The first row."""
        return self._rows[0]
