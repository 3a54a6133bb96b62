"""Opens SQLite files: one connection that writes, any number that only read, and a pool of readers.

SQLite before 3.51.3 can corrupt a write-ahead log that two connections reset at the same time, so exactly one connection per
file writes or checkpoints. Readers open the file read-only: their descriptor cannot take the exclusive lock that SQLite needs
for the checkpoint of a last close, so they never touch the log. See docs/storage.md#wal-and-the-one-writer-rule.
"""
from __future__ import annotations

import errno
import os
import sqlite3
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from svcd.base import machine
from svcd.index.disk_space import lacks_room
from svcd.index.schema import define_checksum, row_checksum

PAGE_SIZE = 8192
# Readers use a memory map of the kernel's page cache, which does not count as memory of svcd. The size is the most that SQLite
# allows; on 32-bit systems a part of the address space.
MAP_BYTES = 0x7FFF_0000 if sys.maxsize > 1 << 32 else 1 << 28
READER_CACHE_KIB = 512
BUSY_MS = 10_000
# Seconds to wait for a reader when too many are open. A thread that already has one waits less: other threads may wait for it.
WAIT_S, HOLDER_WAIT_S = 10.0, 0.5
# Idle readers that close_spare() leaves alone: opening one takes a millisecond.
SPARE_READERS = 8
# On a disk that failed, or became read-only, the shared index of the log cannot be created either.
_NO_SHARED_INDEX = (sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_SHMLOCK)
_FULL_DISK_ATTEMPTS, _FULL_DISK_PAUSE_S = 100, 0.002


def open_writer(path: Path, *, cache_kib: int = 2048) -> sqlite3.Connection:
    """Open the writing connection of a file, created if absent; a commit is on disk when it returns."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
    # Some builds of SQLite overwrite freed pages with zeros by default, which makes the log as large as the deleted data.
    _prepare(connection, f"page_size = {PAGE_SIZE}", "journal_mode = WAL", "synchronous = FULL", "secure_delete = FAST",
             f"cache_size = -{cache_kib}", f"mmap_size = {MAP_BYTES}")
    define_checksum(connection)
    return connection


def _prepare(connection: sqlite3.Connection, *pragmas: str) -> None:
    """Run the pragmas of a new connection, or close it: the next attempt must not find the file open, as on a full disk."""
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
    except UnicodeDecodeError as error:  # the message cites a damaged statement of a table
        connection.close()
        raise sqlite3.DatabaseError(error.object.decode(errors="replace")) from None
    except BaseException:
        connection.close()
        raise


class FullDiskReader(sqlite3.Connection):
    """A reader without shared index of the log, for which the disk had no room; it reads the log by itself.

    It sees the same commits as other readers, later ones too. But each transaction starts with an empty cache, so the pool does
    not keep it.
    """


def keep_log(path: Path) -> None:
    """Create a database's missing log files: the last writer removes them, and on a full disk a reader cannot create them."""
    for suffix in ("-wal", "-shm"):
        try:
            Path(f"{path}{suffix}").touch()
        except OSError as error:  # on a full disk they cannot be created
            if not lacks_room(error):
                raise


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot change the file. Raises sqlite3.OperationalError when the file is absent."""
    try:
        return _reader(path, "mode=ro", sqlite3.Connection)
    except sqlite3.OperationalError as error:
        if not lacks_room(error) and error.sqlite_errorcode not in _NO_SHARED_INDEX:
            raise
    for attempt in range(_FULL_DISK_ATTEMPTS):
        try:
            # The attempt above left an empty file for the shared index; this mode does not write to it.
            return _reader(path, "mode=ro&readonly_shm=1", FullDiskReader)
        except sqlite3.OperationalError as error:
            # While another thread has the file open with the call above, SQLite shares its view with this connection.
            if not lacks_room(error) and error.sqlite_errorcode not in _NO_SHARED_INDEX or attempt == _FULL_DISK_ATTEMPTS - 1:
                raise
            time.sleep(_FULL_DISK_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


def _reader(path: Path, how: str, kind: type[sqlite3.Connection]) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, factory=kind,
                                 check_same_thread=False, timeout=BUSY_MS / 1000, cached_statements=64)
    _prepare(connection, "query_only = ON", f"cache_size = -{READER_CACHE_KIB}", f"mmap_size = {MAP_BYTES}")
    return connection


def delete_copy(path: Path) -> None:
    """Delete a copy, if it exists, with the journal that a killed process may have left. Raises OSError."""
    for suffix in ("-journal", "-wal", "-shm", ""):  # a journal that outlived its file would be rolled back into the next one
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def copy_file(path: Path, target: Path) -> None:
    """Copy a committed state of a file to `target`, which is overwritten; the writer of the file may continue meanwhile."""
    delete_copy(target)
    with closing(open_reader(path)) as reader, closing(sqlite3.connect(target, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = OFF")  # after a crash an incomplete copy is thrown away anyway
        reader.backup(copy)


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run the block in a transaction: commit durably at its end, roll back on an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def meta(connection: sqlite3.Connection, key: str) -> Any:
    """Return a value of the table `meta` of an index file, or None."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def set_meta(connection: sqlite3.Connection, key: str, value: object) -> None:
    """Store a value in the table `meta`."""
    connection.execute("INSERT OR REPLACE INTO meta(key, value, checksum) VALUES (?, ?, ?)",
                       (key, value, row_checksum(key, value)))


class ReadPool:
    """Readers of many files, each lent to one thread at a time; idle readers are kept for the next transaction.

    most_open: limit of open readers, lent or idle; None derives it from the limit of descriptors. At the limit the pool closes
    an idle reader of the least recently used file. Without idle readers, a thread without a reader waits until one is
    returned; a thread that has one waits only briefly, so that two threads do not wait for each other. most_idle: limit of idle
    readers. Files are opened on first use: 10,000 indexes that nobody searches cost no descriptor. Paths are strings: each search
    passes them twice, and building a Path costs more than the look-up.
    """

    def __init__(self, most_idle: int = 64, most_open: int | None = None) -> None:
        self._most_open = most_open or machine.reader_limit()
        self.most_held = self._most_open // 2  # by one request, so that other requests can continue
        self._most_idle = min(most_idle, self._most_open)
        self._idle: OrderedDict[str, list[sqlite3.Connection]] = OrderedDict()
        self._idle_count = 0
        self._lent: dict[int, int] = {}  # id of a connection: the thread that it was lent to
        self._closed = 0  # readers closed since close_spare() closed the rest: SQLite may still hold their descriptors
        self._opening = 0  # connections that are being opened
        self._deleted: set[str] = set()
        self._changed = threading.Condition(threading.Lock())  # guards all of these; notified when a reader is returned

    @contextmanager
    def transaction(self, path: Path | str) -> Iterator[sqlite3.Connection]:
        """Lend a connection in a read transaction: it sees one state of the file until the block ends."""
        connection = self.begin(path)
        try:
            yield connection
        finally:
            self.end(path, connection)

    def rows(self, path: str, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of one statement, run as its own read transaction. Raises the errors of begin()."""
        connection = self._take(path) or self._open_new(path)
        try:
            found = connection.execute(statement, parameters).fetchall()
        except BaseException:
            self._drop(connection)
            raise
        self._return(path, connection)
        return found

    def begin(self, path: Path | str) -> sqlite3.Connection:
        """Lend a connection in a read transaction, which end() must end.

        Raises sqlite3.OperationalError when the file does not exist, OSError (EMFILE) when no descriptor becomes free in time.
        """
        connection = self._take(str(path)) or self._open_new(str(path))
        connection.execute("BEGIN")
        return connection

    def end(self, path: Path | str, connection: sqlite3.Connection) -> None:
        """End the transaction of begin(). Afterwards the connection is usable or closed, whatever failed in it."""
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._drop(connection)
        else:
            self._return(str(path), connection)

    def paths(self) -> list[str]:
        """Return the files that have idle readers, the least recently used first."""
        with self._changed:
            return [path for path, connections in self._idle.items() if connections]

    def open(self, paths: Sequence[str]) -> None:
        """Open readers, so that the next transactions need not; files that cannot be opened are left out."""
        for path in paths[-SPARE_READERS:]:
            with suppress(sqlite3.Error, OSError):
                self.rows(path, "SELECT 1 FROM sqlite_schema LIMIT 1")

    def forget(self, path: Path) -> None:
        """Close the idle readers of a file that is about to be deleted; those in use are closed when they end."""
        with self._changed:
            self._deleted.add(str(path))
            idle = self._idle.pop(str(path), [])
            self._idle_count -= len(idle)
            self._changed.notify_all()
        _close_all(idle)

    def close_spare(self) -> None:
        """Close all idle readers if more than SPARE_READERS are idle or were closed, as after many concurrent clients.

        SQLite returns the descriptors of a file only when its last reader closes.
        """
        with self._changed:
            if self._idle_count + self._closed <= SPARE_READERS:
                return
            if not self._lent:
                self._closed = 0
        _close_all(self._all_idle())

    def close(self) -> None:
        """Close all idle readers."""
        _close_all(self._all_idle())

    def _take(self, path: str) -> sqlite3.Connection | None:
        with self._changed:
            connections = self._idle.get(path)
            if not connections:
                return None
            self._idle_count -= 1
            connection = connections.pop()
            self._lent[id(connection)] = threading.get_ident()
            return connection

    def _drop(self, connection: sqlite3.Connection) -> None:
        connection.close()
        with self._changed:
            del self._lent[id(connection)]
            self._closed += 1
            self._changed.notify_all()

    def _return(self, path: str, connection: sqlite3.Connection) -> None:
        surplus: sqlite3.Connection | None = None
        with self._changed:
            del self._lent[id(connection)]
            # The space of a deleted file is freed only when nobody has the file open.
            if path in self._deleted or isinstance(connection, FullDiskReader):
                surplus = connection
            else:
                self._idle.setdefault(path, []).append(connection)
                self._idle.move_to_end(path)
                self._idle_count += 1
                if self._idle_count > min(self._most_idle, self._most_open - len(self._lent) - self._opening):
                    surplus = self._least_recently_used()
            self._changed.notify_all()
        if surplus:
            surplus.close()

    def _least_recently_used(self) -> sqlite3.Connection:
        while not (connections := next(iter(self._idle.values()))):
            self._idle.popitem(last=False)
        self._idle_count -= 1
        self._closed += 1  # by the caller
        return connections.pop(0)

    @property
    def _open(self) -> int:
        return len(self._lent) + self._idle_count + self._opening

    def _open_new(self, path: str) -> sqlite3.Connection:
        """Open a connection with all its descriptors, lent to this thread."""
        with self._changed:
            is_holder = threading.get_ident() in self._lent.values()
        until = time.monotonic() + (HOLDER_WAIT_S if is_holder else WAIT_S)
        while True:
            self._make_room(until)
            connection: sqlite3.Connection | None = None
            is_open = False
            try:
                connection = open_reader(Path(path))
                # Opens the log too, so that the first transaction needs no further descriptor.
                connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
                is_open = True
                return connection
            except sqlite3.OperationalError as failure:
                if not _is_out_of_descriptors(failure, path):
                    raise
            finally:
                if connection and not is_open:
                    connection.close()
                with self._changed:
                    self._opening -= 1
                    if connection and is_open:
                        self._lent[id(connection)] = threading.get_ident()
                    else:
                        self._changed.notify_all()
            idle = self._all_idle()
            _close_all(idle)
            if idle:
                continue
            with self._changed:
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _make_room(self, until: float) -> None:
        """Count one more reader as being opened. At the limit, wait for idle readers and close them."""
        surplus: list[sqlite3.Connection] = []
        with self._changed:
            if threading.get_ident() not in self._lent.values():
                # After the timeout the caller tries anyway: the system decides whether a descriptor is free.
                self._changed.wait_for(lambda: self._idle_count or self._open < self._most_open,
                                       max(0.0, until - time.monotonic()))
            while self._open >= self._most_open and self._idle_count:
                surplus.append(self._least_recently_used())
            self._opening += 1
        _close_all(surplus)

    def _all_idle(self) -> list[sqlite3.Connection]:
        """Remove all idle readers from the pool and return them."""
        with self._changed:
            idle, self._idle, self._idle_count = self._idle, OrderedDict(), 0
        return [connection for connections in idle.values() for connection in connections]


def _is_out_of_descriptors(failure: sqlite3.OperationalError, path: str) -> bool:
    """Return whether SQLite, which only reports that it cannot open a file, lacked descriptors."""
    if failure.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CANTOPEN or not os.path.exists(path):
        return False
    spare: list[int] = []
    try:
        while len(spare) < machine.PER_READER:
            spare.append(os.open(os.devnull, os.O_RDONLY))
        return False
    except OSError:
        return True
    finally:
        for descriptor in spare:
            os.close(descriptor)


def _close_all(connections: Iterable[sqlite3.Connection]) -> None:
    for connection in connections:
        connection.close()


def table_sizes(connection: sqlite3.Connection) -> dict[str, int]:
    """Return table or index -> bytes of its pages; empty if SQLite was built without `dbstat`. Reads the whole file."""
    try:
        return dict(connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY name"))
    except sqlite3.OperationalError:
        return {}


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable; the writers of files sync their content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Make the names in a folder and all its subfolders durable."""
    for path in (folder, *folder.rglob("*")):
        sync_folder(path)
