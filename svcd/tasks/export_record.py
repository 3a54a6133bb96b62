"""The record of what the target of an export has acknowledged. An interrupted export does not send these documents again.

A row per document holds a digest of the text that was sent. So a later run knows which documents arrived, even if the index has
changed meanwhile: it sends a document again if its text has another digest, and skips it otherwise
(docs/export.md#interruptions).
"""
from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from svcd.base.docids import DocIds

_SCHEMA = """
CREATE TABLE IF NOT EXISTS indexes(
    number INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, state TEXT, is_new INTEGER NOT NULL, calls INTEGER NOT NULL,
    matched INTEGER);
CREATE TABLE IF NOT EXISTS documents(
    number INTEGER NOT NULL, docid INTEGER NOT NULL, digest INTEGER NOT NULL, PRIMARY KEY (number, docid)) WITHOUT ROWID;
"""
_COLUMNS = "number, uid, state, is_new, calls, matched"
_PORTION = 1000  # digests read together
_DIGEST_BYTES = 8


def digest(text: bytes) -> int:
    """Return a 64-bit digest of a text, as an integer that SQLite can store."""
    return int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest(), "little", signed=True)


@dataclass(frozen=True)
class IndexProgress:
    """Progress of one index.

    state: of the index when it was first read; "" when it has changed since, so that digests must be compared. is_new: whether
    the target did not have the index. calls: number of acknowledged calls before the documents. matched: number of exported
    documents; None until all are acknowledged.
    """

    number: int
    uid: str
    state: str
    is_new: bool
    calls: int = 0
    matched: int | None = None


class ExportRecord:
    """The record of one export. One thread uses it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None)
        # Without the shared memory of the log. A power cut may lose the newest rows; their documents are then sent again.
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def index(self, index_uid: str) -> IndexProgress | None:
        """Return the progress of an index; None before the first call for it."""
        row = self._connection.execute(f"SELECT {_COLUMNS} FROM indexes WHERE uid = ?", (index_uid,)).fetchone()
        return IndexProgress(row[0], row[1], row[2], bool(row[3]), row[4], row[5]) if row else None

    def begin(self, index_uid: str, state: str, is_new: bool) -> IndexProgress:
        """Record that the export of an index begins."""
        number = self._connection.execute("INSERT INTO indexes(uid, state, is_new, calls) VALUES (?, ?, ?, 0)",
                                          (index_uid, state, is_new)).lastrowid
        return IndexProgress(number or 0, index_uid, state, is_new)

    def update(self, progress: IndexProgress, **changes: object) -> IndexProgress:
        """Record the progress of an index. changes: fields of IndexProgress; returns the progress with them."""
        assignments = ", ".join(f"{name} = ?" for name in changes)
        self._connection.execute(f"UPDATE indexes SET {assignments} WHERE number = ?", (*changes.values(), progress.number))
        return replace(progress, **changes)  # type: ignore[arg-type]  # the callers name fields with their types

    def add(self, progress: IndexProgress, documents: Iterable[tuple[int, int]]) -> None:
        """Record acknowledged documents, given as (docid, digest), in one transaction."""
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT OR REPLACE INTO documents(number, docid, digest) VALUES (?, ?, ?)",
                                     [(progress.number, docid, each) for docid, each in documents])
        self._connection.execute("COMMIT")

    def docids(self, progress: IndexProgress) -> DocIds:
        """Return the acknowledged documents."""
        return DocIds([docid for (docid,) in self._connection.execute(
            "SELECT docid FROM documents WHERE number = ? ORDER BY docid", (progress.number,))])

    def digests(self, progress: IndexProgress) -> Digests:
        """Return the digests of the acknowledged documents, to be read in ascending order of docids."""
        return Digests(self._rows(progress.number))

    def _rows(self, number: int) -> Iterator[tuple[int, int]]:
        last, rows = -1, list[Sequence[int]]()
        while True:
            rows = self._connection.execute("SELECT docid, digest FROM documents WHERE number = ? AND docid > ? "
                                            "ORDER BY docid LIMIT ?", (number, last, _PORTION)).fetchall()
            if not rows:
                return
            yield from ((docid, each) for docid, each in rows)
            last = rows[-1][0]


class Digests:
    """Digests by ascending docid."""

    def __init__(self, rows: Iterator[tuple[int, int]]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def of(self, docid: int) -> int | None:
        """Return the digest of a document, or None. docid: larger than in the previous call."""
        while self._next is not None and self._next[0] < docid:
            self._next = next(self._rows, None)
        return self._next[1] if self._next is not None and self._next[0] == docid else None
