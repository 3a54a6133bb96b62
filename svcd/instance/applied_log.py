"""The part of the replicated log in instance.sqlite: how far the log is applied, and the batches that have begun.

The state of a node follows from the entries up to `applied`; both are written in the same transaction. A batch begins with an
entry of the log; from then on every node runs it, and keeps its row until it has run the batch and has read from the log how the
batch ended. See docs/cluster.md#entries.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from svcd.base import machine
from svcd.index.connections import open_reader


class ClusterStopped(Exception):
    """The node stops; a batch that has begun continues after the next start."""


class Position(NamedTuple):
    """How far a log is applied. log: its uid. term: of the newest lease. moment: of the newest change; it never decreases."""

    log: str
    applied: int = 0
    term: int = 0
    moment: int = 0


class BegunBatch(NamedTuple):
    """A batch that the log has begun. end: its end as the log has it; None before."""

    uid: int
    tasks: Sequence[int]
    shape: str
    strategy: str
    started_at: int
    end: Mapping[str, Any] | None = None


def position(connection: sqlite3.Connection) -> Position | None:
    """Return the position; None in a data folder outside any cluster."""
    row = connection.execute("SELECT log, applied, term, moment FROM log_position").fetchone()
    return Position(*row) if row else None


def position_of(path: Path) -> Position | None:
    """Return the position in a closed instance.sqlite; None without the file, outside any cluster, and in older formats."""
    if not machine.file_exists(path):
        return None
    with closing(open_reader(path)) as reader:
        is_there = reader.execute("SELECT 1 FROM sqlite_master WHERE name = 'log_position'").fetchone()
        return position(reader) if is_there else None


def set_position(connection: sqlite3.Connection, at: Position) -> None:
    """Inside a transaction: store the position."""
    connection.execute("INSERT OR REPLACE INTO log_position(id, log, applied, term, moment) VALUES (0, ?, ?, ?, ?)",
                       (at.log, at.applied, at.term, at.moment))


def begun_batches(connection: sqlite3.Connection) -> list[BegunBatch]:
    """Return the batches that have begun and not ended on this node, oldest first."""
    return [BegunBatch(uid, numbers(json.loads(tasks)), shape, strategy, started_at, json.loads(end) if end else None)
            for uid, tasks, shape, strategy, started_at, end in connection.execute(
                "SELECT uid, tasks, shape, strategy, started_at, end FROM begun_batches ORDER BY uid")]


def add_begun(connection: sqlite3.Connection, batch: BegunBatch) -> None:
    """Inside a transaction: store a batch that has begun."""
    connection.execute("INSERT INTO begun_batches(uid, tasks, shape, strategy, started_at) VALUES (?, ?, ?, ?, ?)",
                       (batch.uid, json.dumps(ranges(batch.tasks)), batch.shape, batch.strategy, batch.started_at))


def set_end(connection: sqlite3.Connection, uid: int, end: Mapping[str, Any]) -> bool:
    """Inside a transaction: store the end of a batch. Return False for an unknown batch, and for a second end."""
    return bool(connection.execute("UPDATE begun_batches SET end = ? WHERE uid = ? AND end IS NULL",
                                   (json.dumps(end), uid)).rowcount)


def remove_begun(connection: sqlite3.Connection, uid: int) -> None:
    """Inside a transaction: remove a batch that has ended on this node."""
    connection.execute("DELETE FROM begun_batches WHERE uid = ?", (uid,))


def next_batch(connection: sqlite3.Connection) -> int:
    """Return the uid of the next batch, above all batches that ended here or have begun: the same on every node."""
    highest = [connection.execute(f"SELECT max({column}) FROM {table}").fetchone()[0]
               for column, table in (("uid", "batches"), ("batch_uid", "tasks"), ("uid", "begun_batches"))]
    return 1 + max((each for each in highest if each is not None), default=-1)


def leave(connection: sqlite3.Connection) -> None:
    """Inside a transaction: leave the cluster."""
    connection.execute("DELETE FROM log_position")
    connection.execute("DELETE FROM begun_batches")


def ranges(uids: Iterable[int]) -> list[list[int]]:
    """Return ascending numbers as pairs of first and last, so that a batch of many tasks takes few bytes in the log."""
    found: list[list[int]] = []
    for uid in uids:
        if found and uid == found[-1][1] + 1:
            found[-1][1] = uid
        else:
            found.append([uid, uid])
    return found


def numbers(pairs: Iterable[Sequence[int]]) -> list[int]:
    """Return the numbers in pairs of first and last, the inverse of ranges()."""
    return [uid for first, last in pairs for uid in range(first, last + 1)]
