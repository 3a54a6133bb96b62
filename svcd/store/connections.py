"""How files are opened: one connection that writes, any number that only read.

SQLite before 3.51.3 can corrupt a write-ahead log that two connections reset at once, so exactly one
connection per file writes or checkpoints. Readers open the file read-only: their descriptor can't take
the exclusive lock that the checkpoint of a last close needs, so they leave the log alone.
"""
from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE_SIZE = 8192
# The kernel's page cache serves reads through the map: nothing of it is svcd's own memory.
MAP_BYTES = 1 << 30
READER_CACHE_KIB = 512
BUSY_MS = 10_000


def open_writer(path: Path, *, cache_kib: int = 2048) -> sqlite3.Connection:
    """The writing connection of a file, made when absent; a commit is on disk when it returns."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    connection.execute(f"PRAGMA mmap_size = {MAP_BYTES}")
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that can't change the file; sqlite3.OperationalError when it is absent."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None,
                                 check_same_thread=False, timeout=BUSY_MS / 1000, cached_statements=64)
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
    connection.execute(f"PRAGMA mmap_size = {MAP_BYTES}")
    return connection


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All of it or nothing, durable when the block ends."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


class ReadPool:
    """Idle readers of many files, the longest unused closed beyond `limit`.

    A connection is lent to one thread at a time. Files are opened on use, so 10,000 indexes that
    nobody asks cost no descriptor.
    """

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._idle: OrderedDict[tuple[Path, int], sqlite3.Connection] = OrderedDict()
        self._lock = threading.Lock()  # guards _idle and _serial
        self._serial = 0

    @contextmanager
    def transaction(self, path: Path) -> Iterator[sqlite3.Connection]:
        """A connection inside one read transaction: it sees one state of the file until the block ends."""
        connection = self._take(path) or open_reader(path)
        try:
            connection.execute("BEGIN")
            yield connection
        except sqlite3.Error:
            connection.close()
            raise
        except BaseException:  # the caller's own: the connection is sound
            connection.execute("ROLLBACK")
            self._give_back(path, connection)
            raise
        connection.execute("ROLLBACK")
        self._give_back(path, connection)

    def forget(self, path: Path) -> None:
        """Close the idle readers of a file that is about to go."""
        with self._lock:
            gone = [self._idle.pop(key) for key in [key for key in self._idle if key[0] == path]]
        for connection in gone:
            connection.close()

    def close(self) -> None:
        """Close all idle readers."""
        with self._lock:
            gone, self._idle = list(self._idle.values()), OrderedDict()
        for connection in gone:
            connection.close()

    def _take(self, path: Path) -> sqlite3.Connection | None:
        with self._lock:
            key = next((key for key in reversed(self._idle) if key[0] == path), None)
            return self._idle.pop(key) if key else None

    def _give_back(self, path: Path, connection: sqlite3.Connection) -> None:
        if not path.exists():  # deleted while it was read: its space is given back only when nobody holds it
            connection.close()
            return
        with self._lock:
            self._serial += 1
            self._idle[path, self._serial] = connection
            surplus = self._idle.popitem(last=False)[1] if len(self._idle) > self._limit else None
        if surplus:
            surplus.close()
