"""How files are opened: one connection that writes, any number that only read.

SQLite before 3.51.3 can corrupt a write-ahead log that two connections reset at once, so exactly one
connection per file writes or checkpoints. Readers open the file read-only: their descriptor can't take
the exclusive lock that the checkpoint of a last close needs, so they leave the log alone.
"""
from __future__ import annotations

import errno
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from svcd.store.room import lacks_room

PAGE_SIZE = 8192
# The kernel's page cache serves reads through the map: nothing of it is svcd's own memory.
MAP_BYTES = 1 << 30
READER_CACHE_KIB = 512
BUSY_MS = 10_000
_MAKESHIFT_ATTEMPTS, _MAKESHIFT_PAUSE_S = 100, 0.002


def open_writer(path: Path, *, cache_kib: int = 2048) -> sqlite3.Connection:
    """The writing connection of a file, made when absent; a commit is on disk when it returns."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # Some systems build SQLite so that it writes zeros over all that is freed: a log as large as what is deleted.
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        connection.execute(f"PRAGMA mmap_size = {MAP_BYTES}")
    except BaseException:  # a full disk, say: who tries again must find nothing of this
        connection.close()
        raise
    return connection


class Makeshift(sqlite3.Connection):
    """A reader that found no room on the disk for the shared index of the log, and reads the log by itself.

    It sees what others see, and a writer that comes meanwhile; but each transaction begins with an empty cache, so it is
    not kept.
    """


def keep_log(path: Path) -> None:
    """Have the files of the log of a database exist, if empty: the last writer takes them away, and on a full disk
    nobody may be able to make them again, who only wants to read."""
    for suffix in ("-wal", "-shm"):
        try:
            Path(f"{path}{suffix}").touch()
        except OSError as error:  # while there is no room, there is none
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that can't change the file; sqlite3.OperationalError when it is absent."""
    try:
        return _reader(path, "mode=ro", sqlite3.Connection)
    except sqlite3.OperationalError as error:
        if not lacks_room(error):
            raise
    for attempt in range(_MAKESHIFT_ATTEMPTS):
        try:
            # The first attempt has left an empty file for the index of the log, which is not written to now.
            return _reader(path, "mode=ro&readonly_shm=1", Makeshift)
        except sqlite3.OperationalError as error:
            # While another thread has the file open as above, SQLite shares its view with this one.
            if not lacks_room(error) or attempt == _MAKESHIFT_ATTEMPTS - 1:
                raise
            time.sleep(_MAKESHIFT_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


def _reader(path: Path, how: str, kind: type[sqlite3.Connection]) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, factory=kind,
                                 check_same_thread=False, timeout=BUSY_MS / 1000, cached_statements=64)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
        connection.execute(f"PRAGMA mmap_size = {MAP_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def copy_file(path: Path, target: Path) -> None:
    """Write one committed state of a file to another, which is overwritten; who writes the file may go on."""
    target.unlink(missing_ok=True)
    with closing(open_reader(path)) as reader, closing(sqlite3.connect(target, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = OFF")  # a copy that a crash cuts short is of no use to anybody
        reader.backup(copy)


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
    """Idle readers of many files, those of the longest unused file closed beyond `limit`.

    A connection is lent to one thread at a time. Files are opened on use, so 10,000 indexes that
    nobody asks cost no descriptor. Paths are texts here: every search asks twice.
    """

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._idle: OrderedDict[str, list[sqlite3.Connection]] = OrderedDict()
        self._count = 0
        self._gone: set[str] = set()
        self._lock = threading.Lock()  # guards all of these

    @contextmanager
    def transaction(self, path: Path | str) -> Iterator[sqlite3.Connection]:
        """A connection inside one read transaction: it sees one state of the file until the block ends."""
        connection = self.begin(path)
        try:
            yield connection
        finally:
            self.end(path, connection)

    def begin(self, path: Path | str) -> sqlite3.Connection:
        """A connection inside a read transaction; end() has to follow. OperationalError when there is no file."""
        connection = self._take(str(path)) or open_reader(Path(path))
        connection.execute("BEGIN")
        return connection

    def end(self, path: Path | str, connection: sqlite3.Connection) -> None:
        """End the transaction of begin(); whatever went wrong in it, the connection is sound or closed then."""
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            connection.close()
        else:
            self._give_back(str(path), connection)

    def forget(self, path: Path) -> None:
        """Close the idle readers of a file that is about to go; those in use are closed when they end."""
        with self._lock:
            self._gone.add(str(path))
            gone = self._idle.pop(str(path), [])
            self._count -= len(gone)
        for connection in gone:
            connection.close()

    def close(self) -> None:
        """Close all idle readers."""
        with self._lock:
            idle, self._idle, self._count = self._idle, OrderedDict(), 0
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def _take(self, path: str) -> sqlite3.Connection | None:
        with self._lock:
            connections = self._idle.get(path)
            if not connections:
                return None
            self._count -= 1
            return connections.pop()

    def _give_back(self, path: str, connection: sqlite3.Connection) -> None:
        surplus: sqlite3.Connection | None = None
        with self._lock:
            if path in self._gone or isinstance(connection, Makeshift):  # its space is given back when nobody holds it
                surplus = connection
            else:
                self._idle.setdefault(path, []).append(connection)
                self._idle.move_to_end(path)
                self._count += 1
                surplus = self._longest_unused() if self._count > self._limit else None
        if surplus:
            surplus.close()

    def _longest_unused(self) -> sqlite3.Connection:
        while not (connections := next(iter(self._idle.values()))):
            self._idle.popitem(last=False)
        self._count -= 1
        return connections.pop(0)
