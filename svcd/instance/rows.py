"""Rows of the small tables of instance.sqlite (keys, webhooks, features, network, chat workspaces), their changes, and API keys.

A change holds a row before and after it. On a single node both are read and written under one lock, so the change always takes
effect. In a cluster (svcd.cluster) the change goes through the replicated log, and takes effect on every node if the row has not
changed meanwhile; otherwise it is computed again. Values of rows are SQLite values: texts, integers, null.

Keys are stored without their secrets, which are derived from the master key. Each change of keys increments a revision number, so
that a process that caches keys reads one row to know whether its cache is current. svcd.auth defines the actions.
"""
from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.index.connections import ReadPool, write_transaction

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


class RowChange(NamedTuple):
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


_KEYS = "keys"
# Keys created at the same moment are ordered by insertion.
_NEWEST_FIRST = "ORDER BY created_at DESC, rowid DESC"
_REVISION = "SELECT number FROM revisions WHERE subject = 'keys'"
_MOST_ROWS = 2**63 - 1


class KeyRow(NamedTuple):
    """One key. uid: lower-case hyphenated UUID; times are nanoseconds; expires_at None means never."""

    uid: str
    actions: Sequence[str]
    indexes: Sequence[str]
    created_at: int
    updated_at: int
    name: str | None = None
    description: str | None = None
    expires_at: int | None = None


class KeyReader:
    """Reads keys. path: of instance.sqlite."""

    def __init__(self, path: str, readers: ReadPool) -> None:
        self._path = path
        self._readers = readers

    def revision(self) -> int:
        """Return the number of changes of keys; check it before using cached keys."""
        found = self._readers.rows(self._path, _REVISION)
        return found[0][0] if found else 0

    def read(self) -> tuple[int, list[KeyRow]]:
        """Return the revision, and all keys, newest first."""
        with self._readers.transaction(self._path) as connection:
            found = connection.execute(_REVISION).fetchone()
            return found[0] if found else 0, _rows(connection, _NEWEST_FIRST)

    def get(self, uid: str) -> KeyRow | None:
        """Return the key with a uid, or None."""
        with self._readers.transaction(self._path) as connection:
            return next(iter(_rows(connection, "WHERE uid = ?", [uid])), None)

    def page(self, offset: int, limit: int) -> tuple[list[KeyRow], int]:
        """Return a page of the keys, newest first, and their total."""
        wanted = [min(limit, _MOST_ROWS), min(offset, _MOST_ROWS)]
        with self._readers.transaction(self._path) as connection:
            (total,) = connection.execute("SELECT count(*) FROM keys").fetchone()
            return _rows(connection, f"{_NEWEST_FIRST} LIMIT ? OFFSET ?", wanted), total


class KeyWriter(KeyReader):
    """Reads and writes keys; a change is on disk when the call returns."""

    def __init__(self, path: str, readers: ReadPool, rows: RowWriter) -> None:
        super().__init__(path, readers)
        self.before_removal: Callable[[], None] = lambda: None  # frees reserved space, so that keys can be deleted on a full disk
        self._rows = rows

    def add(self, row: KeyRow) -> bool:
        """Store a key. Return False, and change nothing, when its uid exists."""
        return self._rows.change(_KEYS, row.uid, lambda before: before or _stored(row)) is None

    def add_to_empty(self, rows: Iterable[KeyRow]) -> None:
        """Store keys, in this order, if no key exists."""
        if not self.page(0, 1)[1]:
            self._rows.change_all([(_KEYS, row.uid, always(_stored(row))) for row in rows])

    def update(self, uid: str, changes: Mapping[str, str | None], updated_at: int) -> KeyRow | None:
        """Change the given ones of `name` and `description` of a key. Return the new row, None for a missing key."""
        def changed(before: Row | None) -> Row | None:
            return None if before is None else {**before, **changes, "updated_at": updated_at}

        before = self._rows.change(_KEYS, uid, changed)
        return None if before is None else _key_row(uid, changed(before) or before)

    def remove(self, uid: str) -> bool:
        """Delete a key. Return whether it existed."""
        self.before_removal()
        return self._rows.change(_KEYS, uid, lambda before: None) is not None


def add_keys(connection: sqlite3.Connection, rows: Iterable[KeyRow]) -> None:
    """Inside a transaction: insert keys, oldest first. Raises IntegrityError when a uid is stored already."""
    for row in rows:
        if not apply(connection, [RowChange(_KEYS, row.uid, None, _stored(row))]):
            raise sqlite3.IntegrityError(f"the key {row.uid} already exists")


def _stored(row: KeyRow) -> Row:
    return {"name": row.name, "description": row.description, "actions": json.dumps(list(row.actions)),
            "indexes": json.dumps(list(row.indexes)), "expires_at": None if row.expires_at is None else str(row.expires_at),
            "created_at": row.created_at, "updated_at": row.updated_at}


def _key_row(uid: str, row: Row) -> KeyRow:
    return KeyRow(uid, json.loads(row["actions"]), json.loads(row["indexes"]), row["created_at"], row["updated_at"], row["name"],
                  row["description"], None if row["expires_at"] is None else int(row["expires_at"]))


def _rows(connection: sqlite3.Connection, rest: str, values: Sequence[Any] = ()) -> list[KeyRow]:
    """Read keys. rest: SQL after the table name: condition, order, limit."""
    _, columns = TABLES[_KEYS]
    return [_key_row(uid, dict(zip(columns, row, strict=True)))
            for uid, *row in connection.execute(f"SELECT uid, {', '.join(columns)} FROM keys {rest}", values)]
