"""Embeddings that services returned for a batch that is not committed yet, in a file beside the index file.

A batch is one transaction, which is lost when the process is killed; embeddings that were paid for must not be lost with it. So
each response is committed here at once and looked up when the batch runs again. The file is deleted after the batch commits. A
power cut may lose it. See docs/storage.md#kept-embeddings.
"""
from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from svcd.index.disk_space import lacks_room
from svcd.index.read_transaction import placeholders, statement_portions
from svcd.vectors.vector import from_bytes, to_bytes

# Suffixes of the file and of its journal, appended to the name of the index file.
SUFFIXES = ("-embeddings", "-embeddings-journal")

# How a batch handles embeddings. In a cluster only the leader asks services, and shares the results. A dry run only counts.
ALONE, SHARE, AWAIT, COUNT = "alone", "share", "await", "count"

_KEY_BYTES = 16
# Without syncing: the data survives the death of the process. The journal undoes incomplete writes.
_PREPARE = ("PRAGMA journal_mode = DELETE", "PRAGMA synchronous = OFF",
            "CREATE TABLE IF NOT EXISTS embeddings(number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL)",
            "CREATE TABLE IF NOT EXISTS failures(key BLOB PRIMARY KEY, fault TEXT NOT NULL, reason TEXT NOT NULL)")


def path_of(index_path: Path) -> Path:
    """Return the path of the file beside the file of an index."""
    return index_path.with_name(index_path.name + SUFFIXES[0])


class KeptEmbeddings:
    """The file of one index, opened for each access. A full disk keeps nothing; an unreadable file (a power cut) is deleted."""

    def __init__(self, index_path: Path) -> None:
        self._files = [index_path.with_name(index_path.name + suffix) for suffix in SUFFIXES]

    def find(self, keys: Iterable[bytes]) -> dict[bytes, array[float]]:
        """Return the kept vectors among these keys."""
        found: dict[bytes, array[float]] = {}
        if not self._files[0].exists():
            return found
        try:
            with self._opened() as connection:
                for portion in statement_portions(list(keys)):
                    rows = connection.execute(
                        f"SELECT key, vector FROM embeddings WHERE key IN ({placeholders(portion)})", portion)
                    found.update((key, from_bytes(stored, len(stored) // 4)[0]) for key, stored in rows)
        except sqlite3.DatabaseError:
            self.discard()
        return found

    def keep(self, keys: Sequence[bytes], vectors: Sequence[array[float]]) -> None:
        """Keep vectors; they are stored when this returns."""
        try:
            with self._opened() as connection:
                connection.executemany("INSERT OR IGNORE INTO embeddings(key, vector) VALUES (?, ?)",
                                       [(key, to_bytes([vector])) for key, vector in zip(keys, vectors)])
        except sqlite3.DatabaseError as error:
            if not lacks_room(error):
                self.discard()

    def keep_failure(self, keys: Sequence[bytes], fault: str, reason: str) -> None:
        """Keep the reason why inputs could not be embedded, for other nodes of a cluster."""
        with self._opened() as connection:
            connection.executemany("INSERT OR REPLACE INTO failures(key, fault, reason) VALUES (?, ?, ?)",
                                   [(key, fault, reason) for key in keys])

    def failure(self, keys: Sequence[bytes]) -> tuple[str, str] | None:
        """Return the kept fault and reason of one of these keys, or None."""
        if not self._files[0].exists():
            return None
        with self._opened() as connection:
            for key in keys:
                row = connection.execute("SELECT fault, reason FROM failures WHERE key = ?", (key,)).fetchone()
                if row:
                    return row[0], row[1]
        return None

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction and close it, since batches end in many ways and must not leave it open."""
        with closing(sqlite3.connect(self._files[0])) as connection, connection:
            for statement in _PREPARE:
                connection.execute(statement)
            yield connection

    def discard(self) -> None:
        """Delete the file; the batch is committed."""
        for file in self._files:
            file.unlink(missing_ok=True)


def embedding_key(identity: str, given: Any) -> bytes:
    """Return the key of an input. identity: everything that the vectors of an embedder depend on."""
    content = json.dumps([identity, given], ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()
