"""Changes of the small tables of instance.sqlite: keys, webhooks, features, network, workspaces of chats.

A change says what a row is afterwards, and what it was before. On one machine both are read and written under one lock, so it
always takes effect. Where several nodes share a log (svcd.cluster) it goes through the log, and takes effect on every node if the
row is still what it was; otherwise it is computed anew. Values of rows are those of SQLite: texts, whole numbers, null.
"""
from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svcd.index.connections import write_transaction

Row = dict[str, Any]

# table: its key, and its other columns
TABLES: Mapping[str, tuple[str, Sequence[str]]] = {
    "keys": ("uid", ("name", "description", "actions", "indexes", "expires_at", "created_at", "updated_at")),
    "webhooks": ("uuid", ("url", "headers")),
    "features": ("name", ("enabled",)),
    "network": ("id", ("value",)),
    "chat_workspaces": ("uid", ("settings",)),
}
# Processes keep what they read of these tables for as long as the number of its changes is the same.
_COUNTED = ("keys",)


@dataclass(frozen=True)
class RowChange:
    """One row before and after: column -> value, None where there is no such row. key: the value of its key."""

    table: str
    key: Any
    before: Row | None
    after: Row | None


# Makes a row of what it was; may raise.
Compute = Callable[[Row | None], Row | None]


def always(row: Row) -> Compute:
    """A change to this row, whatever it was."""
    return lambda before: row


def read_row(connection: sqlite3.Connection, table: str, key: Any) -> Row | None:
    """The columns of a row but for its key, or None."""
    name, columns = TABLES[table]
    found = connection.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {name} = ?", (key,)).fetchone()
    return dict(zip(columns, found, strict=True)) if found else None


def apply(connection: sqlite3.Connection, changes: Sequence[RowChange]) -> bool:
    """Inside a transaction: make all changes, or none when a row is not what it was before. Did they take effect?"""
    if any(read_row(connection, change.table, change.key) != change.before for change in changes):
        return False
    for change in changes:
        _write(connection, change)
    return True


def _write(connection: sqlite3.Connection, change: RowChange) -> None:
    name, columns = TABLES[change.table]
    if change.after is None:
        connection.execute(f"DELETE FROM {change.table} WHERE {name} = ?", (change.key,))
        if change.table == "webhooks":
            connection.execute("DELETE FROM outbox WHERE webhook = ?", (change.key,))
    else:  # an update in place: rows of keys are ordered by their insertion
        connection.execute(
            f"INSERT INTO {change.table}({name}, {', '.join(columns)}) VALUES (?{', ?' * len(columns)}) ON CONFLICT({name}) "
            f"DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in columns)}",
            (change.key, *(change.after[column] for column in columns)))
    if change.table in _COUNTED:
        connection.execute("INSERT INTO revisions(subject, number) VALUES (?, 1) "
                           "ON CONFLICT(subject) DO UPDATE SET number = number + 1", (change.table,))


class RowWriter:
    """Changes rows, durably when a call returns.

    replicate: sends changes through the log of a cluster, and tells whether they took effect; None on a single node.
    on_change: called with table and key after a change, outside the lock, before the change returns; by svcd.cluster when
    there is a log.
    """

    def __init__(self, writer: sqlite3.Connection, lock: threading.RLock) -> None:
        """lock: guards `writer`, which others use too."""
        self.replicate: Callable[[Sequence[RowChange]], bool] | None = None
        self.on_change: Callable[[str, Any], None] = lambda table, key: None
        self._writer = writer
        self._lock = lock

    def change(self, table: str, key: Any, compute: Compute) -> Row | None:
        """Replace a row by what `compute` makes of it; it may raise. Returns the row as it was before."""
        return self.change_all([(table, key, compute)])[0]

    def change_all(self, wanted: Sequence[tuple[str, Any, Compute]]) -> list[Row | None]:
        """The same for several rows at once: (table, key, compute)."""
        if self.replicate is None:
            with self._lock, write_transaction(self._writer) as connection:
                changes = _computed(connection, wanted)
                apply(connection, _effective(changes))
            for change in _effective(changes):
                self.on_change(change.table, change.key)
            return [change.before for change in changes]
        while True:
            with self._lock:
                changes = _computed(self._writer, wanted)
            if not _effective(changes) or self.replicate(_effective(changes)):
                return [change.before for change in changes]


def _effective(changes: Sequence[RowChange]) -> list[RowChange]:
    return [change for change in changes if change.before != change.after]


def _computed(connection: sqlite3.Connection, wanted: Sequence[tuple[str, Any, Compute]]) -> list[RowChange]:
    changes = []
    for table, key, compute in wanted:
        before = read_row(connection, table, key)
        changes.append(RowChange(table, key, before, compute(before)))
    return changes
