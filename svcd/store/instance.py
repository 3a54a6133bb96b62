"""The data folder: which indexes there are, the features, the queue, and how the files lie.

    LOCK              held while a daemon uses the folder
    VERSION           the svcd that wrote it last
    instance-uid      a random UUID, made once
    instance.sqlite   the queue and the list of indexes
    indexes/          <uuid>.sqlite, one file an index; its name is a row elsewhere
    payloads/         uploads of tasks that have not ended

Rows of indexes change only inside Queue.finishing(), together with the end of the tasks that change
them; a file without a row was never committed and goes at the next start.
"""
from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from svcd import __version__
from svcd.errors import ApiError
from svcd.store import schema
from svcd.store.cache import Cache
from svcd.store.connections import ReadPool, open_writer, write_transaction
from svcd.store.queue import Queue

if TYPE_CHECKING:
    from svcd.store.index import IndexReader, Value

CACHE_BYTES = 64 << 20
LOCK_PATIENCE_S = 2.0
_ROW = "uid, uuid, created_at, updated_at, primary_key, stats"


class FolderInUse(RuntimeError):
    """Another daemon has the data folder."""


@dataclass(frozen=True)
class IndexRow:
    """One index as the instance lists it. stats: documents, bytes, fields (name -> documents)."""

    uid: str
    uuid: str
    created_at: int
    updated_at: int
    primary_key: str | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)


class Instance:
    """Opens a data folder, made when absent. One daemon at a time: FolderInUse, schema.NewerFormat, OSError.

    resolve_settings fills defaults in, sort_value says what a document is sorted by: the engine's, which the store
    does not know.
    """

    def __init__(self, path: Path,
                 resolve_settings: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
                 sort_value: Callable[[Mapping[str, Any], str, bool], Value] = lambda *_: None) -> None:
        self.path = path
        self._resolve_settings = resolve_settings
        self._sort_value = sort_value
        (path / "indexes").mkdir(parents=True, exist_ok=True)
        (path / "payloads").mkdir(exist_ok=True)
        self._lock_file = _lock(path / "LOCK")
        self._cache = Cache(CACHE_BYTES)
        self._readers = ReadPool()
        self._lock = threading.RLock()  # guards _writer; shared with the queue
        self._writer = open_writer(path / "instance.sqlite")
        try:
            schema.prepare(self._writer, schema.INSTANCE)
        except BaseException:
            self._lock_file.close()
            raise
        self.uid = _instance_uid(path / "instance-uid")
        _write_text(path / "VERSION", f"{__version__}\n")
        self.queue = Queue(path / "instance.sqlite", self._writer, self._lock, self._readers, path / "payloads")
        self._features = self._stored_features()
        self._remove_orphans()

    def close(self) -> None:
        """Close every file and let the folder go."""
        self._readers.close()
        with self._lock:
            self._writer.close()
        self._lock_file.close()

    def _remove_orphans(self) -> None:
        known = {row[0] for row in self._writer.execute("SELECT uuid FROM indexes")}
        for file in (self.path / "indexes").iterdir():
            if file.name.split(".")[0] not in known:
                file.unlink(missing_ok=True)
        self.queue.remove_orphaned_payloads()

    # Indexes

    def index_path(self, uuid: str) -> Path:
        """Where the file of an index lies."""
        return self.path / "indexes" / f"{uuid}.sqlite"

    def index(self, index_uid: str) -> IndexRow | None:
        """The row of an index, or None."""
        with self._reading() as connection:
            row = connection.execute(f"SELECT {_ROW} FROM indexes WHERE uid = ?", (index_uid,)).fetchone()
        return _index_row(row) if row else None

    def require_index(self, index_uid: str) -> IndexRow:
        """The row of an index; index_not_found when there is none."""
        row = self.index(index_uid)
        if row is None:
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        return row

    def list_indexes(self, offset: int = 0, limit: int | None = None,
                     is_allowed: Callable[[str], bool] | None = None) -> tuple[list[IndexRow], int]:
        """A page of the indexes by uid, and how many there are; those a caller may not see count in neither."""
        with self._reading() as connection:
            rows = [_index_row(row) for row in connection.execute(f"SELECT {_ROW} FROM indexes ORDER BY uid")
                    if is_allowed is None or is_allowed(row[0])]
        return rows[offset:None if limit is None else offset + limit], len(rows)

    def use_engine(self, resolve_settings: Callable[[Mapping[str, Any]], Mapping[str, Any]],
                   sort_value: Callable[[Mapping[str, Any], str, bool], Value]) -> None:
        """What the constructor takes, given later: before any index is read."""
        self._resolve_settings, self._sort_value = resolve_settings, sort_value

    @contextmanager
    def read(self, index_uid: str) -> Iterator[IndexReader]:
        """One state of an index, from the first read to the last; index_not_found when there is none."""
        from svcd.store.index import IndexReader  # a start, which reads no index, need not wait for it

        with ExitStack() as stack:
            uuid, connection = self._opened(stack, index_uid)
            yield IndexReader(connection, uuid, self._cache, self._resolve_settings, self._sort_value)

    def _opened(self, stack: ExitStack, index_uid: str) -> tuple[str, sqlite3.Connection]:
        """The uuid of an index and a read transaction of its file, which may go and come anew meanwhile."""
        row = self.require_index(index_uid)
        while True:
            try:
                return row.uuid, stack.enter_context(self._readers.transaction(self.index_path(row.uuid)))
            except sqlite3.OperationalError:
                again = self.require_index(index_uid)
                if again.uuid == row.uuid:
                    raise  # it is there: something else is wrong
                row = again

    def create_index(self, connection: sqlite3.Connection, row: IndexRow) -> None:
        """Inside finishing(): an index whose file is committed comes into being."""
        connection.execute(f"INSERT INTO indexes({_ROW}) VALUES (?, ?, ?, ?, ?, ?)",
                           (row.uid, row.uuid, row.created_at, row.updated_at, row.primary_key, json.dumps(row.stats)))

    def update_index(self, connection: sqlite3.Connection, index_uid: str, *, updated_at: int,
                     primary_key: str | None, stats: Mapping[str, Any]) -> None:
        """Inside finishing(): what the list shows of an index follows its file."""
        connection.execute("UPDATE indexes SET updated_at = ?, primary_key = ?, stats = ? WHERE uid = ?",
                           (updated_at, primary_key, json.dumps(stats), index_uid))

    def delete_index(self, connection: sqlite3.Connection, index_uid: str) -> None:
        """Inside finishing(): an index is no more; remove_file() follows the commit."""
        connection.execute("DELETE FROM indexes WHERE uid = ?", (index_uid,))

    def rename_indexes(self, connection: sqlite3.Connection, names: Mapping[str, str]) -> None:
        """Inside finishing(): old name -> new name, all at once, so that two may change places."""
        rows = connection.execute(f"SELECT {_ROW} FROM indexes WHERE uid IN (SELECT value FROM json_each(?))",
                                  (json.dumps(list(names)),)).fetchall()
        connection.executemany("DELETE FROM indexes WHERE uid = ?", [(row[0],) for row in rows])
        connection.executemany(f"INSERT INTO indexes({_ROW}) VALUES (?, ?, ?, ?, ?, ?)",
                               [(names[row[0]], *row[1:]) for row in rows])

    def remove_file(self, uuid: str) -> None:
        """Delete the files of an index that has no row any more; searches under way read them to their end."""
        path = self.index_path(uuid)
        self._readers.forget(path)
        self._cache.forget(lambda key: isinstance(key, tuple) and key[0] == uuid)
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    def last_applied(self, uuid: str) -> int:
        """The uid of the newest task whose effect the file of an index has committed; -1 when there is none."""
        try:
            with self._readers.transaction(self.index_path(uuid)) as connection:
                row = connection.execute("SELECT value FROM meta WHERE key = 'applied'").fetchone()
        except sqlite3.OperationalError:  # it was never made
            return -1
        return json.loads(row[0])["last"] if row else -1

    @property
    def lock_descriptor(self) -> int:
        """The descriptor whose lock says that the folder is in use; a process that holds it shares the lock."""
        return self._lock_file.fileno()

    def _reading(self) -> Any:
        return self._readers.transaction(self.path / "instance.sqlite")

    # Features and figures

    def features(self) -> dict[str, bool]:
        """The features that were ever switched, by name."""
        return dict(self._features)

    def is_enabled(self, feature: str) -> bool:
        """True when a feature is on."""
        return self._features.get(feature, False)

    def force_feature(self, feature: str) -> None:
        """Switch a feature on until it is switched otherwise; a restart knows nothing of it."""
        with self._lock:
            self._features = {**self._features, feature: True}

    def update_features(self, changes: Mapping[str, bool]) -> dict[str, bool]:
        """Switch features, durably; all of them as they are then."""
        with self._lock, write_transaction(self._writer) as connection:
            connection.executemany("INSERT OR REPLACE INTO features(name, enabled) VALUES (?, ?)",
                                   [(name, int(enabled)) for name, enabled in changes.items()])
            # One object replaces another: who reads without the lock sees all of a change, or nothing of it.
            features = self._features = {**self._features, **changes}
        return dict(features)

    def _stored_features(self) -> dict[str, bool]:
        return {name: bool(enabled) for name, enabled in self._writer.execute("SELECT name, enabled FROM features")}

    def database_size(self) -> int:
        """Bytes that the folder's files hold, logs and uploads included."""
        return sum(_size(file) for file in self.path.rglob("*"))

    def used_database_size(self) -> int:
        """Bytes of the databases alone."""
        return sum(_size(file) for file in self.path.rglob("*.sqlite"))

    def last_update(self) -> int | None:
        """When an index changed last, or None."""
        with self._reading() as connection:
            return connection.execute("SELECT max(updated_at) FROM indexes").fetchone()[0]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:  # a log that went meanwhile
        return 0


def _index_row(row: tuple[Any, ...]) -> IndexRow:
    return IndexRow(*row[:5], stats=json.loads(row[5]))


def _lock(path: Path) -> IO[str]:
    """Take the folder. Waits a little: the indexing process of a daemon that was just killed may outlive it."""
    file = path.open("w")
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.close()
                raise FolderInUse(f"the data folder {path.parent} is in use by another svcd") from None
            time.sleep(0.01)


def _instance_uid(path: Path) -> str:
    if not path.exists():
        _write_text(path, str(uuids.uuid4()))
    return path.read_text().strip()


def _write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    if path.exists() and path.read_text() == text:
        return
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
