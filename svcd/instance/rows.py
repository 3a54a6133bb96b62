"""Changes of the small tables of instance.sqlite: keys, webhooks, features, network, chat workspaces.

A change holds a row before and after it. On a single node both are read and written under one lock, so the change always takes
effect. In a cluster (svcd.cluster) the change goes through the replicated log, and takes effect on every node if the row has not
changed meanwhile; otherwise it is computed again. Values of rows are SQLite values: texts, integers, null.
"""
from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svcd.index.connections import write_transaction

Row = dict[str, Any]

# table -> its key, and its other columns
TABLES: Mapping[str, tuple[str, Sequence[str]]] = {
    "keys": ("uid", ("name", "description", "actions", "indexes", "expires_at", "created_at", "updated_at")),
    "webhooks": ("uuid", ("url", "headers")),
    "features": ("name", ("enabled",)),
    "network": ("id", ("value",)),
    "chat_workspaces": ("uid", ("settings",)),
}
# Processes cache rows of these tables until the number of changes of the table grows.
_COUNTED = ("keys",)


@dataclass(frozen=True)
class RowChange:
    """One row before and after a change: column -> value; None where the row does not exist. key: the value of its key."""

    table: str
    key: Any
    before: Row | None
    after: Row | None


# Old row -> new row; may raise.
Compute = Callable[[Row | None], Row | None]


def always(row: Row) -> Compute:
    """Return a change that sets a row, whatever its old value."""
    return lambda before: row


def read_row(connection: sqlite3.Connection, table: str, key: Any) -> Row | None:
    """Return the columns of a row except its key, or None."""
    name, columns = TABLES[table]
    found = connection.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {name} = ?", (key,)).fetchone()
    return dict(zip(columns, found, strict=True)) if found else None


def apply(connection: sqlite3.Connection, changes: Sequence[RowChange]) -> bool:
    """Inside a transaction: make all changes, or none when a row has changed since. Return whether they took effect."""
    if any(read_row(connection, change.table, change.key) != change.before for change in changes):
        return False
    for change in changes:
        name, columns = TABLES[change.table]
        if change.after is None:
            connection.execute(f"DELETE FROM {change.table} WHERE {name} = ?", (change.key,))
            if change.table == "webhooks":
                connection.execute("DELETE FROM outbox WHERE webhook = ?", (change.key,))
        else:  # an update in place, because rows of keys are ordered by their insertion
            connection.execute(
                f"INSERT INTO {change.table}({name}, {', '.join(columns)}) VALUES (?{', ?' * len(columns)}) ON CONFLICT({name}) "
                f"DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in columns)}",
                (change.key, *(change.after[column] for column in columns)))
        if change.table in _COUNTED:
            connection.execute("INSERT INTO revisions(subject, number) VALUES (?, 1) "
                               "ON CONFLICT(subject) DO UPDATE SET number = number + 1", (change.table,))
    return True


class RowWriter:
    """Changes rows; a change is durable when the call returns.

    replicate: sends changes through the log of a cluster, and returns whether they took effect; None on a single node.
    on_change: called with table and key after a change, outside the lock, before change() returns; in a cluster, svcd.cluster
    calls it.
    """

    def __init__(self, writer: sqlite3.Connection, lock: threading.RLock) -> None:
        """lock: guards `writer`, which other objects use, too."""
        self.replicate: Callable[[Sequence[RowChange]], bool] | None = None
        self.on_change: Callable[[str, Any], None] = lambda table, key: None
        self._writer = writer
        self._lock = lock

    def change(self, table: str, key: Any, compute: Compute) -> Row | None:
        """Replace a row by `compute(row)`, which may raise. Return the old row."""
        return self.change_all([(table, key, compute)])[0]

    def change_all(self, wanted: Sequence[tuple[str, Any, Compute]]) -> list[Row | None]:
        """Replace several rows, given as (table, key, compute), in one transaction. Return the old rows."""
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
