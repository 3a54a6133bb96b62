"""The data folder of the daemon: opens and locks it; writes the list of indexes, keys, features, network; owns queue and outbox.

    LOCK              locked while a daemon uses the folder
    VERSION           the version of svcd that wrote the folder last
    instance-uid      a random UUID, created once
    instance.sqlite   queue, list of indexes, keys, features, network, webhooks, outbox
    indexes/          <uuid>.sqlite, one file per index
    payloads/         uploaded documents of unfinished tasks
    query-log.sqlite  searches and clicks, with --query-log (svcd.querylog)
    reserve           disk space kept for operations that free space (svcd.index.disk_space)
    unclaimed/        index files newer than instance.sqlite, which does not name them

Rows of indexes change only inside Queue.finishing(), in the transaction that ends the tasks that change them. The next start
handles files without a row. See docs/tasks-and-batches.md#instancesqlite.
"""
from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import threading
import time
import uuid as uuids
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from svcd import __version__
from svcd.base import logs, machine
from svcd.index import schema
from svcd.index.batch_outcomes import BatchOutcomes
from svcd.index.connections import keep_log, open_writer
from svcd.index.disk_space import PART_BYTES, Reserve, lacks_room
from svcd.instance.data_folder import INDEX_COLUMNS, DataFolderReader, IndexRow, is_hidden
from svcd.instance.queue import Queue
from svcd.instance.rates import Rates
from svcd.instance.rows import KeyWriter, Row, RowWriter, always
from svcd.instance.unlisted_files import UNREADABLE, reconcile, remove_index_file, stored_outcomes
from svcd.instance.webhooks import Outbox, Webhooks

if TYPE_CHECKING:
    from svcd.instance.chat_workspaces import ChatWorkspaces
    from svcd.instance.network import Network

_LARGE_INDEXES = """
    SELECT uid, uuid, json_extract(stats, '$.documents') AS documents FROM indexes WHERE documents >= ? ORDER BY uid"""
_INSERT_INDEX = f"INSERT INTO indexes({INDEX_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
LOCK_TIMEOUT_S = 2.0


class FolderInUse(RuntimeError):
    """Another daemon uses the data folder."""


class Instance(DataFolderReader):
    """Opens a data folder for writing; creates it when absent. Raises FolderInUse, schema.NewerFormat, OSError."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, start=str(uuids.uuid4()))
        self._changing = 0  # number of changing() blocks in progress
        self._changes = [0]
        self.on_features: Callable[[], None] = lambda: None  # called after each change of features
        self.on_network: Callable[[], None] = lambda: None  # called after each change of the network
        self.on_removal: Callable[[str], None] = lambda uuid: None  # called after the files of an index are deleted
        (path / "indexes").mkdir(parents=True, exist_ok=True)
        (path / "payloads").mkdir(exist_ok=True)
        self._lock_file = lock_folder(path / "LOCK")
        self.lock_descriptor = self._lock_file.fileno()  # a child process that inherits it shares the lock
        self._lock = threading.RLock()  # guards _writer; shared with queue, keys, webhooks and outbox
        self.reserve = Reserve(path)
        with ExitStack() as undone:  # if a part cannot be opened, for example because it is damaged
            undone.callback(self._lock_file.close)
            self._writer = self._open_writer()
            undone.callback(self._writer.close)
            undone.callback(super().close)
            uid_file = path / "instance-uid"
            if not machine.file_exists(uid_file):
                _write_text(uid_file, str(uuids.uuid4()))
            try:
                self.uid = str(uuids.UUID(uid_file.read_text().strip()))
            except ValueError:
                raise RuntimeError(
                    f"{uid_file} is damaged: expected a UUID; delete the file, and svcd creates a new one") from None
            _write_text(path / "VERSION", f"{__version__}\n")
            self.queue = Queue(path / "instance.sqlite", self._writer, self._lock, self._readers, path / "payloads", self.reserve)
            self.rates = Rates()
            self.rows = RowWriter(self._writer, self._lock)
            self.rows.on_change = self.row_changed
            self.webhooks = Webhooks(self._writer, self._lock, self.rows)
            self.outbox = Outbox(path / "instance.sqlite", self._writer, self._lock, self._readers,
                                 lambda: [webhook.uuid for webhook in self.webhooks.all()])
            self.keys: KeyWriter = KeyWriter(self._instance_path, self._readers, self.rows)
            self.keys.before_removal = self.webhooks.before_removal = self.reserve.make_way
            self.use_features(self._stored_features())
            self.use_network(_stored_network(self._writer))
            # index uid -> uuid of a file that enqueued tasks created for an index without row; see reconcile().
            self._unlisted = reconcile(path, self._writer)
            self.queue.remove_orphaned_payloads()
            undone.pop_all()

    def _open_writer(self) -> sqlite3.Connection:
        """Open the writing connection; on a full disk, use space of the reserve."""
        path = self.path / "instance.sqlite"
        try:
            return _open_prepared(path)
        except sqlite3.OperationalError as error:
            if not lacks_room(error):
                raise
            if not self.reserve.give_up(PART_BYTES):
                raise OSError(errno.ENOSPC, "the disk is full and the reserve is used up; a start needs about 100 KB",
                              str(self.path)) from None
        return _open_prepared(path)

    @cached_property
    def chat_workspaces(self) -> ChatWorkspaces:
        """The chat workspaces."""
        from svcd.instance.chat_workspaces import ChatWorkspaces  # imported late: few instances have any

        return ChatWorkspaces(self._instance_path, self._readers, self.rows, self.reserve.make_way)

    def keep_reserve(self) -> None:
        """Keep a reserve of disk space from now on, sized for the largest index."""
        self.reserve.keep(max((size for _, size in _sizes(self.path / "indexes")), default=0))

    def close(self) -> None:
        """Close every file and unlock the folder."""
        super().close()
        with self._lock:
            self._writer.close()
        keep_log(self.path / "instance.sqlite")
        self._lock_file.close()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Mark a block in which this process, or an indexing process for it, may change indexes or their list."""
        with self._lock:
            self._changing += 1
            if self._changing == 1:
                self._changes[0] += 1
        try:
            yield
        finally:
            with self._lock:
                self._changing -= 1
                if not self._changing:
                    self._changes[0] += 1

    def share_changes(self, changes: memoryview[int]) -> None:
        """Count the changes from now on in memory that all processes share."""
        with self._lock:
            changes[0] = self._changes[0]
            super().share_changes(changes)

    def create_index(self, connection: sqlite3.Connection, row: IndexRow) -> None:
        """Inside finishing(): list an index whose file is committed."""
        self._unlisted.pop(row.uid, None)
        connection.execute(_INSERT_INDEX, (
            row.uid, row.uuid, row.created_at, row.updated_at, row.primary_key, json.dumps(row.stats)))

    def update_index(self, connection: sqlite3.Connection, index_uid: str, *, updated_at: int,
                     primary_key: str | None, stats: Mapping[str, Any]) -> None:
        """Inside finishing(): update the row of an index to the state of its file."""
        connection.execute("UPDATE indexes SET updated_at = ?, primary_key = ?, stats = ? WHERE uid = ?",
                           (updated_at, primary_key, json.dumps(stats), index_uid))

    def delete_index(self, connection: sqlite3.Connection, index_uid: str) -> None:
        """Inside finishing(): unlist an index; call remove_file() after the commit."""
        connection.execute("DELETE FROM indexes WHERE uid = ?", (index_uid,))

    def rename_indexes(self, connection: sqlite3.Connection, names: Mapping[str, str]) -> None:
        """Inside finishing(): rename indexes together, so that two can exchange names. names: old uid -> new uid."""
        rows = connection.execute(f"SELECT {INDEX_COLUMNS} FROM indexes WHERE uid IN (SELECT value FROM json_each(?))",
                                  (json.dumps(list(names)),)).fetchall()
        connection.executemany("DELETE FROM indexes WHERE uid = ?", [(row[0],) for row in rows])
        connection.executemany(_INSERT_INDEX, [(names[row[0]], *row[1:]) for row in rows])

    def remove_file(self, uuid: str) -> None:
        """Delete the files of an unlisted index; running searches keep their open descriptors."""
        path = self.index_path(uuid)
        self._unlisted = {index_uid: other for index_uid, other in self._unlisted.items() if other != uuid}
        self.forget(uuid)
        remove_index_file(path)
        self.on_removal(uuid)

    def uuid_of(self, index_uid: str) -> str | None:
        """Return the uuid of an index, or of the unlisted file that was created for it; None without either."""
        row = self.index(index_uid)
        return row.uuid if row else self._unlisted.get(index_uid)

    def discard_unlisted_files(self, kept: Collection[str]) -> None:
        """Delete unlisted files. kept: indexes whose files stay."""
        for index_uid, uuid in list(self._unlisted.items()):
            if index_uid not in kept:
                self.remove_file(uuid)

    def batch_outcomes(self, uuid: str) -> BatchOutcomes | None:
        """Return the outcomes that an index file holds of its newest batch, or None."""
        try:
            with self._readers.transaction(self.index_path(uuid)) as connection:
                return stored_outcomes(connection)
        except (sqlite3.DatabaseError, *UNREADABLE):  # the file is missing or damaged; the next batch of the index reports it
            return None

    def stale_indexes(self) -> list[str]:
        """Return the uids of the indexes whose postings should be materialized; reads each large index."""
        with self.read_instance() as connection:
            large = connection.execute(_LARGE_INDEXES, (schema.LEAST_DOCUMENTS,)).fetchall()
        stale: list[str] = []
        for uid, uuid, documents in large:
            if is_hidden(uid):
                continue
            from svcd.index.materialized import is_stale  # imported late: most starts find no index that is large enough

            with suppress(sqlite3.DatabaseError, *UNREADABLE):  # the file is lost or damaged
                with self._readers.transaction(self.index_path(uuid)) as connection:
                    if is_stale(connection, documents):
                        stale.append(uid)
        return stale

    def force_feature(self, feature: str) -> None:
        """Switch a feature on in memory only, as launch options do."""
        with self._lock:
            self.use_features({**self._features, feature: True})
        self.on_features()

    def update_features(self, changes: Mapping[str, bool]) -> dict[str, bool | None]:
        """Switch features, durably. Return the new state of all features."""
        self.rows.change_all([("features", name, always({"enabled": int(enabled)})) for name, enabled in changes.items()])
        return self.features()

    def row_changed(self, table: str, key: Any) -> None:
        """Read a changed row into memory again, and call the callback for it."""
        if table == "features":
            with self._lock:
                self.use_features({**self._features, key: self._stored_features().get(key)})
            self.on_features()
        elif table == "network":
            with self._lock:
                self.use_network(_stored_network(self._writer))
            self.on_network()
        elif table == "webhooks":
            self.webhooks.reload(key)

    def _stored_features(self) -> dict[str, bool | None]:
        return {name: None if enabled is None else bool(enabled)
                for name, enabled in self._writer.execute("SELECT name, enabled FROM features")}

    def update_network(self, change: Callable[[Network], Network]) -> Network:
        """Replace the network by `change(network)`, durably; exceptions of `change` pass through."""
        made: list[Network] = []

        def changed(before: Row | None) -> Row:
            from svcd.instance.network import Network, from_json  # imported late: most instances are in no network

            made.append(change(Network() if before is None else from_json(json.loads(before["value"]))))
            return {"value": json.dumps(made[-1].as_json(), ensure_ascii=False)}

        self.rows.change("network", 0, changed)
        return made[-1]

    def database_size(self) -> int:
        """Return the bytes of all files in the folder, including logs and payloads, without the reserve."""
        return sum(size for name, size in _sizes(self.path) if name != str(self.reserve.path))

    def used_database_size(self) -> int:
        """Return the bytes of the SQLite files, without their logs."""
        return sum(size for name, size in _sizes(self.path) if name.endswith(".sqlite"))


def _stored_network(connection: sqlite3.Connection) -> Mapping[str, Any] | None:
    row = connection.execute("SELECT value FROM network").fetchone()
    return None if row is None else json.loads(row[0])


def _open_prepared(path: Path) -> sqlite3.Connection:
    """Open instance.sqlite for writing, after the upgrade of all listed index files.

    The format of instance.sqlite tells whether these are upgraded, even after a crash.
    """
    connection = open_writer(path)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        is_old = 0 < version < schema.FORMAT
        for uuid, index_uid in connection.execute("SELECT uuid, uid FROM indexes ORDER BY uid").fetchall() if is_old else ():
            file = path.parent / "indexes" / f"{uuid}.sqlite"
            if machine.file_exists(file):
                try:
                    with closing(open_writer(file)) as index:
                        schema.prepare(index, schema.INDEX)
                except sqlite3.DatabaseError as error:
                    if isinstance(error, sqlite3.OperationalError):  # for example a full disk: the next start tries again
                        raise
                    logs.warn("the file of an index is damaged, and cannot be upgraded", index=index_uid, failure=str(error))
                keep_log(file)
        schema.prepare(connection, schema.INSTANCE)
    except BaseException:
        connection.close()
        raise
    return connection


def _sizes(folder: Path | str) -> Iterator[tuple[str, int]]:
    """Yield path and bytes of each file in a folder and its subfolders; ten thousand indexes have thirty thousand files."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(entry.path)
                elif entry.is_file():
                    yield entry.path, entry.stat().st_size
            except FileNotFoundError:  # a log that was deleted in between
                pass


def lock_folder(path: Path) -> IO[str]:
    """Lock the folder. Waits LOCK_TIMEOUT_S: the indexing process of a daemon that was just killed may outlive it."""
    file = path.open("w")
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.close()
                raise FolderInUse(f"the data folder {path.parent} is in use by another svcd; stop it, or start with another "
                                  "--db-path") from None
            time.sleep(0.01)


def _write_text(path: Path, text: str) -> None:
    """Write a small file atomically."""
    if machine.file_exists(path) and path.read_bytes() == text.encode():
        return
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


# Restoring rows of another instance, for imports of dumps. Call each function inside Queue.finishing(), and open the instance
# again before using it: its state in memory was read before.


def add_features(connection: sqlite3.Connection, features: Mapping[str, bool | None]) -> None:
    """Insert the state of features; None if the dump does not say."""
    connection.executemany("INSERT OR REPLACE INTO features(name, enabled) VALUES (?, ?)", list(features.items()))


def set_network(connection: sqlite3.Connection, network: Mapping[str, Any]) -> None:
    """Store the network. network: as Network.as_json()."""
    connection.execute("INSERT OR REPLACE INTO network(id, value) VALUES (0, ?)",
                       (json.dumps(network, ensure_ascii=False),))
