"""API keys on disk, without their secrets, which are derived from the master key.

Each change increments a revision number, so that a process that caches keys can check with one row whether its cache is
current. What actions mean is decided in svcd.auth.
"""
from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from svcd.index.connections import ReadPool, write_transaction

_COLUMNS = "uid, actions, indexes, created_at, updated_at, name, description, expires_at"
# Keys of one moment are ordered by insertion.
_NEWEST_FIRST = "ORDER BY created_at DESC, rowid DESC"
_REVISION = "SELECT number FROM revisions WHERE subject = 'keys'"
_MOST_ROWS = 2**63 - 1


@dataclass(frozen=True)
class KeyRow:
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
        """How often the keys were changed; to be checked before cached keys are used."""
        found = self._readers.rows(self._path, _REVISION)
        return found[0][0] if found else 0

    def read(self) -> tuple[int, list[KeyRow]]:
        """The revision, and all keys of it, newest first."""
        with self._readers.transaction(self._path) as connection:
            return _revision(connection), _rows(connection, _NEWEST_FIRST)

    def get(self, uid: str) -> KeyRow | None:
        """The key with a uid, or None."""
        with self._readers.transaction(self._path) as connection:
            return next(iter(_rows(connection, "WHERE uid = ?", [uid])), None)

    def page(self, offset: int, limit: int) -> tuple[list[KeyRow], int]:
        """A page of the keys, newest first, and their total."""
        wanted = [min(limit, _MOST_ROWS), min(offset, _MOST_ROWS)]
        with self._readers.transaction(self._path) as connection:
            (total,) = connection.execute("SELECT count(*) FROM keys").fetchone()
            return _rows(connection, f"{_NEWEST_FIRST} LIMIT ? OFFSET ?", wanted), total


class KeyWriter(KeyReader):
    """Reads and writes keys; a change is on disk when the call returns."""

    def __init__(self, path: str, readers: ReadPool, writer: sqlite3.Connection, lock: threading.RLock) -> None:
        """lock: guards `writer`, which others use too."""
        super().__init__(path, readers)
        self.before_removal: Callable[[], None] = lambda: None  # frees reserved space, so that keys can be deleted on a full disk
        self._writer = writer
        self._lock = lock

    def add(self, row: KeyRow) -> bool:
        """Store a key; False, without change, when its uid exists."""
        with self._lock, write_transaction(self._writer) as connection:
            if _rows(connection, "WHERE uid = ?", [row.uid]):
                return False
            insert_key(connection, row)
            return True

    def add_to_empty(self, rows: Iterable[KeyRow]) -> None:
        """Store keys, in this order, if none exist."""
        with self._lock, write_transaction(self._writer) as connection:
            if not _rows(connection, "LIMIT 1"):
                for row in rows:
                    insert_key(connection, row)

    def update(self, uid: str, changes: Mapping[str, str | None], updated_at: int) -> KeyRow | None:
        """Change `name` or `description` of a key; the row afterwards, or None when there is no such key.

        changes: the members that change.
        """
        with self._lock, write_transaction(self._writer) as connection:
            found = _rows(connection, "WHERE uid = ?", [uid])
            if not found:
                return None
            row = replace(found[0], updated_at=updated_at, **changes)  # type: ignore[arg-type]  # both take a text or None
            connection.execute("UPDATE keys SET name = ?, description = ?, updated_at = ? WHERE uid = ?",
                               (row.name, row.description, updated_at, uid))
            _count_change(connection)
            return row

    def remove(self, uid: str) -> bool:
        """Delete a key; False when there is no such key."""
        self.before_removal()
        with self._lock, write_transaction(self._writer) as connection:
            is_gone = bool(connection.execute("DELETE FROM keys WHERE uid = ?", (uid,)).rowcount)
            if is_gone:
                _count_change(connection)
            return is_gone


def _revision(connection: sqlite3.Connection) -> int:
    row = connection.execute(_REVISION).fetchone()
    return row[0] if row else 0


def _count_change(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO revisions(subject, number) VALUES ('keys', 1) "
                       "ON CONFLICT(subject) DO UPDATE SET number = number + 1")


def insert_key(connection: sqlite3.Connection, row: KeyRow) -> None:
    """Insert a key whose uid is not stored yet."""
    expires_at = None if row.expires_at is None else str(row.expires_at)
    connection.execute(f"INSERT INTO keys({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                       (row.uid, json.dumps(list(row.actions)), json.dumps(list(row.indexes)), row.created_at,
                        row.updated_at, row.name, row.description, expires_at))
    _count_change(connection)


def _rows(connection: sqlite3.Connection, rest: str, values: Sequence[Any] = ()) -> list[KeyRow]:
    """rest: SQL after the table name: condition, order, limit."""
    return [KeyRow(uid, json.loads(actions), json.loads(indexes), created_at, updated_at, name, description,
                   None if expires_at is None else int(expires_at))
            for uid, actions, indexes, created_at, updated_at, name, description, expires_at
            in connection.execute(f"SELECT {_COLUMNS} FROM keys {rest}", values)]
