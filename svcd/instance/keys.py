"""API keys on disk, without their secrets, which are derived from the master key.

Each change increments a revision number, so that a process that caches keys reads one row to know whether its cache is current.
svcd.auth defines the actions.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svcd.index.connections import ReadPool
from svcd.instance import rows
from svcd.instance.rows import Row, RowChange, RowWriter, always

_TABLE = "keys"
# Keys created at the same moment are ordered by insertion.
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
        return self._rows.change(_TABLE, row.uid, lambda before: before or _stored(row)) is None

    def add_to_empty(self, rows: Iterable[KeyRow]) -> None:
        """Store keys, in this order, if no key exists."""
        if not self.page(0, 1)[1]:
            self._rows.change_all([(_TABLE, row.uid, always(_stored(row))) for row in rows])

    def update(self, uid: str, changes: Mapping[str, str | None], updated_at: int) -> KeyRow | None:
        """Change `name` or `description` of a key. Return the new row, or None when the key does not exist.

        changes: the members that change.
        """
        def changed(before: Row | None) -> Row | None:
            return None if before is None else {**before, **changes, "updated_at": updated_at}

        before = self._rows.change(_TABLE, uid, changed)
        return None if before is None else _key_row(uid, changed(before) or before)

    def remove(self, uid: str) -> bool:
        """Delete a key. Return whether it existed."""
        self.before_removal()
        return self._rows.change(_TABLE, uid, lambda before: None) is not None


def insert_key(connection: sqlite3.Connection, row: KeyRow) -> None:
    """Inside a transaction: insert a key. Raises IntegrityError when its uid is stored already."""
    if not rows.apply(connection, [RowChange(_TABLE, row.uid, None, _stored(row))]):
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
    _, columns = rows.TABLES[_TABLE]
    return [_key_row(uid, dict(zip(columns, row, strict=True)))
            for uid, *row in connection.execute(f"SELECT uid, {', '.join(columns)} FROM keys {rest}", values)]
