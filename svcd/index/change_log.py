"""The log of changed documents in an index file, for followers (docs/storage.md#change-log).

The table exists only with `--changes-keep`. Each row names a document that a transaction changed; it is part of this
transaction, so the log and the documents never differ, whenever svcd is killed. A log that missed a transaction, because the
option was off, begins anew.

A follower may continue after a row that the log still has. The moment of the row proves it: another index has other moments,
and so has the same index after a backup was restored and written to. So svcd refuses a follower of an index that was swapped,
restored or created again, where it would miss changes.
"""
from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from svcd.index.batch_outcomes import BatchOutcomes
from svcd.index.connections import meta, set_meta

# The generation that the log reaches, in the table meta.
_LOGGED = "logged_generation"
# In place of a docid: all documents were deleted; the beginning of a log (less the generation before it).
_ALL, _START = -1, -2
_CREATE = ("CREATE TABLE IF NOT EXISTS document_changes (moment INTEGER, docid INTEGER, document_id TEXT, is_deletion INTEGER, "
           "PRIMARY KEY (moment, docid)) WITHOUT ROWID")
# Not INSERT OR REPLACE, as for documents (svcd.index.writer). A batch may change a document twice.
_ADD = ("INSERT INTO document_changes(moment, docid, document_id, is_deletion) VALUES (?, ?, ?, ?) ON CONFLICT (moment, docid) "
        "DO UPDATE SET is_deletion = excluded.is_deletion")
# The newest of the old rows stays: a follower that has read it misses nothing.
_TRIM = ("DELETE FROM document_changes WHERE (moment, docid) < (SELECT moment, docid FROM document_changes WHERE moment < ? "
         "ORDER BY moment DESC, docid DESC LIMIT 1)")
_NEWEST = "SELECT moment, docid FROM document_changes ORDER BY moment DESC, docid DESC LIMIT 1"
_AFTER = ("SELECT moment, docid, document_id, is_deletion FROM document_changes WHERE (moment, docid) > (?, ?) "
          "ORDER BY moment, docid LIMIT ?")
_POSITION = re.compile(r"(\d{1,18}|[1-8]\d{18}):(-?\d{1,18})", re.ASCII)


class Position(NamedTuple):
    """The position right after a row."""

    moment: int
    docid: int

    def __str__(self) -> str:
        return f"{self.moment}:{self.docid}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse the text of str(), or 0 for the beginning of an index. Raises ValueError."""
        match = _POSITION.fullmatch(f"0:{_START}" if text == "0" else text)
        if match is None:
            raise ValueError(f"`{text}` is not a position: expected the `seq` of a change, or `0` for the beginning of the index")
        return cls(int(match[1]), int(match[2]))


class Change(NamedTuple):
    """A change of a document. document_id: None when all documents were deleted."""

    position: Position
    document_id: str | None
    is_deletion: bool


class ChangeLog:
    """Writes the log inside the transactions of a batch.

    moment: when the newest task of the batch was enqueued. keep: nanoseconds after which rows are deleted.
    """

    def __init__(self, connection: sqlite3.Connection, moment: int, keep: int) -> None:
        self._connection = connection
        self._given, self._oldest = moment, moment - keep
        self._moment = moment

    def begin(self) -> None:
        """Begin a transaction."""
        self._connection.execute(_CREATE)
        newest = _newest_row(self._connection)
        if newest is None:
            newest = _start(self._connection)
            self._connection.execute("DELETE FROM document_changes")
            self._connection.execute(_ADD, (*newest, None, False))
        self._moment = max(self._given, newest.moment + 1)  # a batch may have several transactions

    def add(self, changes: Iterable[tuple[int, str | None, bool]]) -> None:
        """Log changes: (docid, document id, whether it is a deletion)."""
        self._connection.executemany(_ADD, ((self._moment, *change) for change in changes))

    def clear(self) -> None:
        """Log the deletion of all documents."""
        self.add([(_ALL, None, True)])

    def end(self, generation: int) -> None:
        """End a transaction, which makes this generation."""
        self._connection.execute(_TRIM, (self._oldest,))
        set_meta(self._connection, _LOGGED, generation)


def _newest_row(connection: sqlite3.Connection) -> Position | None:
    """Return the position of the newest row; None if there is no log, or if it misses a transaction."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'document_changes'").fetchone():
        return None
    row = connection.execute(_NEWEST).fetchone()
    return Position(*row) if row and meta(connection, _LOGGED) == meta(connection, "generation") else None


def _start(connection: sqlite3.Connection) -> Position:
    """Return the position at which a log would begin now: 0 in a new file."""
    applied = BatchOutcomes.parse(meta(connection, "batch_outcomes"))
    return Position(applied.enqueued_at or 0 if applied else 0, _START - (meta(connection, "generation") or 0))


def newest(connection: sqlite3.Connection) -> Position:
    """Return the position after all changes so far."""
    return _newest_row(connection) or _start(connection)


def changes_after(connection: sqlite3.Connection, since: Position, most: int) -> list[Change] | None:
    """Return the first `most` changes after a position; None if the log cannot tell all of them."""
    if since == newest(connection):
        return []
    if _newest_row(connection) is None or not connection.execute(
            "SELECT 1 FROM document_changes WHERE moment = ? AND docid = ?", since).fetchone():
        return None
    return [Change(Position(moment, docid), document_id, bool(is_deletion))
            for moment, docid, document_id, is_deletion in connection.execute(_AFTER, (*since, most))]
