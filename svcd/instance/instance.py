"""The data folder as the daemon has it: it writes the rows of indexes, keys, features, the queue; how the files lie.

    LOCK              held while a daemon uses the folder
    VERSION           the svcd that wrote it last
    instance-uid      a random UUID, made once
    instance.sqlite   the queue, the list of indexes, the keys, the webhooks and what they are still to be told
    indexes/          <uuid>.sqlite, one file an index; its name is a row elsewhere
    payloads/         uploads of tasks that have not ended
    reserve           room that is kept for what frees room (see svcd.index.disk_space)
    unclaimed/        files of indexes that are newer than instance.sqlite, and that it does not name (see strays)

Rows of indexes change only inside Queue.finishing(), together with the end of the tasks that change
them; what becomes of a file without a row, the next start decides.
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
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from svcd import __version__
from svcd.index import schema
from svcd.index.batch_outcomes import BatchOutcomes
from svcd.index.connections import keep_log, open_writer, write_transaction
from svcd.index.disk_space import PART_BYTES, Reserve, lacks_room
from svcd.instance import unlisted_files
from svcd.instance.data_folder import INDEX_COLUMNS, DataFolderReader, IndexRow
from svcd.instance.keys import KeyRow, KeyWriter, insert_key
from svcd.instance.outbox import Outbox
from svcd.instance.queue import Queue
from svcd.instance.task_records import Batch, Task
from svcd.instance.webhooks import Webhooks

LOCK_TIMEOUT_S = 2.0


class FolderInUse(RuntimeError):
    """Another daemon has the data folder."""


class Instance(DataFolderReader):
    """Opens a data folder, made when absent. One daemon at a time: FolderInUse, schema.NewerFormat, OSError."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.on_features: Callable[[], None] = lambda: None  # called after each change of them
        self.on_removal: Callable[[str], None] = lambda uuid: None  # called after the files of an index went
        (path / "indexes").mkdir(parents=True, exist_ok=True)
        (path / "payloads").mkdir(exist_ok=True)
        self._lock_file = _lock(path / "LOCK")
        self._lock = threading.RLock()  # guards _writer; shared with the queue and the keys
        self.reserve = Reserve(path)
        try:
            self._writer = self._opened_writer()
        except BaseException:
            self._lock_file.close()
            raise
        self.uid = _instance_uid(path / "instance-uid")
        _write_text(path / "VERSION", f"{__version__}\n")
        self.queue = Queue(path / "instance.sqlite", self._writer, self._lock, self._readers, path / "payloads",
                           self.reserve)
        self.webhooks = Webhooks(self._writer, self._lock)
        self.outbox = Outbox(path / "instance.sqlite", self._writer, self._lock, self._readers,
                             lambda: [webhook.uuid for webhook in self.webhooks.all()])
        self.keys: KeyWriter = KeyWriter(self._instance_path, self._readers, self._writer, self._lock)
        self.keys.before_removal = self.webhooks.before_removal = self.reserve.make_way
        self.use_features(self._stored_features())
        # Files that enqueued tasks have made, by the name of the index that has no row yet.
        self._unlisted = unlisted_files.reconcile(path, self._writer)
        self.queue.remove_orphaned_payloads()

    def _opened_writer(self) -> sqlite3.Connection:
        """The writer of instance.sqlite, on a full disk with the room of the reserve."""
        path = self.path / "instance.sqlite"
        try:
            return _prepared_writer(path)
        except sqlite3.OperationalError as error:
            if not lacks_room(error):
                raise
            if not self.reserve.give_up(PART_BYTES):
                raise OSError(errno.ENOSPC, "there is no room left on the disk, and no reserve; some 100 KB are needed "
                                            "to begin with", str(self.path)) from None
        return _prepared_writer(path)

    def keep_reserve(self) -> None:
        """Have room kept for what frees room from now on; and again what the largest index needs."""
        self.reserve.keep(max((_size(file) for file in (self.path / "indexes").iterdir()), default=0))

    def close(self) -> None:
        """Close every file and let the folder go."""
        super().close()
        with self._lock:
            self._writer.close()
        keep_log(self.path / "instance.sqlite")
        self._lock_file.close()


    # Rows of indexes

    def create_index(self, connection: sqlite3.Connection, row: IndexRow) -> None:
        """Inside finishing(): an index whose file is committed comes into being."""
        self._unlisted.pop(row.uid, None)
        connection.execute(f"INSERT INTO indexes({INDEX_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
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
        rows = connection.execute(f"SELECT {INDEX_COLUMNS} FROM indexes WHERE uid IN (SELECT value FROM json_each(?))",
                                  (json.dumps(list(names)),)).fetchall()
        connection.executemany("DELETE FROM indexes WHERE uid = ?", [(row[0],) for row in rows])
        connection.executemany(f"INSERT INTO indexes({INDEX_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                               [(names[row[0]], *row[1:]) for row in rows])

    def remove_file(self, uuid: str) -> None:
        """Delete the files of an index that has no row any more; searches under way read them to their end."""
        path = self.index_path(uuid)
        self._unlisted = {index_uid: other for index_uid, other in self._unlisted.items() if other != uuid}
        self.forget(uuid)
        unlisted_files.remove_index_file(path)
        self.on_removal(uuid)

    def uuid_of(self, index_uid: str) -> str | None:
        """The uuid of an index, or of the file that was made for it before its row could be; None when there is neither."""
        row = self.index(index_uid)
        return row.uuid if row else self._unlisted.get(index_uid)

    def discard_unlisted_files(self, kept: Collection[str]) -> None:
        """Delete the files that were made for indexes without a row, but for those of some indexes."""
        for index_uid, uuid in list(self._unlisted.items()):
            if index_uid not in kept:
                self.remove_file(uuid)

    def applied(self, uuid: str) -> BatchOutcomes | None:
        """What the file of an index has committed of its newest batch; None when there is none."""
        try:
            with self._readers.transaction(self.index_path(uuid)) as connection:
                return unlisted_files.stored_outcomes(connection)
        except sqlite3.OperationalError:  # it was never made
            return None

    @property
    def lock_descriptor(self) -> int:
        """The descriptor whose lock says that the folder is in use; a process that holds it shares the lock."""
        return self._lock_file.fileno()

    # Features and figures

    def force_feature(self, feature: str) -> None:
        """Switch a feature on until it is switched otherwise; a restart knows nothing of it."""
        with self._lock:
            self.use_features({**self._features, feature: True})
        self.on_features()

    def update_features(self, changes: Mapping[str, bool]) -> dict[str, bool | None]:
        """Switch features, durably; all of them as they are then."""
        with self._lock:
            with write_transaction(self._writer) as connection:
                connection.executemany("INSERT OR REPLACE INTO features(name, enabled) VALUES (?, ?)",
                                       [(name, int(enabled)) for name, enabled in changes.items()])
            self.use_features({**self._features, **changes})
            features = self.features()
        self.on_features()
        return features

    def _stored_features(self) -> dict[str, bool | None]:
        return {name: None if enabled is None else bool(enabled)
                for name, enabled in self._writer.execute("SELECT name, enabled FROM features")}

    def database_size(self) -> int:
        """Bytes that the folder's files hold, logs and uploads included, the reserve left out."""
        return sum(_size(file) for file in self.path.rglob("*") if file != self.reserve.path)

    def used_database_size(self) -> int:
        """Bytes of the databases alone."""
        return sum(_size(file) for file in self.path.rglob("*.sqlite"))


def _prepared_writer(path: Path) -> sqlite3.Connection:
    connection = open_writer(path)
    try:
        schema.prepare(connection, schema.INSTANCE)
    except BaseException:
        connection.close()
        raise
    return connection


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:  # a log that went meanwhile
        return 0


def _lock(path: Path) -> IO[str]:
    """Take the folder. Waits a little: the indexing process of a daemon that was just killed may outlive it."""
    file = path.open("w")
    deadline = time.monotonic() + LOCK_TIMEOUT_S
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


# What an instance held elsewhere, written into one that is new: tasks, batches, keys, features with what they were.
#
# Each function is called inside Queue.finishing(). The instance is opened again before it is used: what it keeps in
# memory was read before. Refuses to know where the rows come from.


def add_tasks(connection: sqlite3.Connection, tasks: Iterable[Task]) -> None:
    """Tasks with their uids; the payloads of those that wait lie in the folder of payloads already."""
    connection.executemany(
        "INSERT INTO tasks(uid, batch_uid, index_uid, status, kind, canceled_by, details, error, content, payload, "
        "payload_bytes, custom_metadata, enqueued_at, started_at, finished_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((task.uid, task.batch_uid, task.index_uid, task.status, task.kind, task.canceled_by, _text(task.details),
          _text(task.error), _text(task.content), task.payload, task.payload_bytes, task.custom_metadata,
          task.enqueued_at, task.started_at, task.finished_at) for task in tasks))


def add_batches(connection: sqlite3.Connection, batches: Iterable[Batch]) -> None:
    """Batches that ended, with their uids."""
    connection.executemany(
        "INSERT INTO batches(uid, details, stats, strategy, started_at, finished_at, earliest_enqueued_at, "
        "latest_enqueued_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        ((batch.uid, _text(batch.details), _text(batch.stats), batch.strategy, batch.started_at, batch.finished_at,
          batch.earliest_enqueued_at, batch.latest_enqueued_at) for batch in batches))


def add_keys(connection: sqlite3.Connection, rows: Iterable[KeyRow]) -> None:
    """Keys, the oldest first."""
    for row in rows:
        insert_key(connection, row)


def add_features(connection: sqlite3.Connection, features: Mapping[str, bool | None]) -> None:
    """Features as they were switched; None for one that nobody ever switched, and that says so."""
    connection.executemany("INSERT OR REPLACE INTO features(name, enabled) VALUES (?, ?)", list(features.items()))


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)
