"""Joins a cluster before the daemon opens the data folder: checks that the folder belongs to the cluster, and copies a peer's
folder if the log no longer reaches back far enough.

The record `cluster` beside the log has the uid of the cluster, and names the first node if it brought data that the log lacks.

A copy of a data folder is a snapshot (svcd.tasks.archive_import unpacks it) of one state of all files. It opens a read
transaction on each file, one after the other, while batches may end. It repeats this until no index is ahead of the list of
tasks: the node that continues from there with the log then neither loses an entry nor applies one twice.
"""
from __future__ import annotations

import gzip
import http.client
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from svcd import __version__
from svcd.base import logs, machine
from svcd.base.json_text import loads_wrapped
from svcd.cluster.log import Log, Trimmed, Unavailable
from svcd.cluster.members import CLUSTER, NODES
from svcd.index import schema
from svcd.index.connections import open_reader, open_writer, write_transaction
from svcd.instance import applied_log
from svcd.instance.applied_log import Position
from svcd.instance.instance import Instance, lock_folder
from svcd.instance.unlisted_files import stored_outcomes

_CONTENT = ("tasks", "indexes", "webhooks", "features", "network", "chat_workspaces")
_READ_S = 600.0  # limit for a peer to begin to send a copy
_INSTANCE = "instance.sqlite"
_LOOKS = 5
_WAIT_S = 30.0  # for which a new node waits for the log
_BLOCK = 1 << 20
# Copies: level of gzip, folder, and how often a copy is tried.
_LEVEL = 1
_FOLDER = "cluster-copies"
_TRIES, _PAUSE_S = 200, 0.05

Unpack = Callable[[Path, Path], None]


class CannotJoin(RuntimeError):
    """The data folder belongs to another cluster, or this node could not copy a peer's folder."""


def join(log: Log, folder: Path, name: str, master_key: str, unpack: Unpack) -> Position:
    """Make the data folder part of this cluster; return the position from which to apply the log.

    While the log cannot be reached, it accepts a folder that was part of a cluster before, so that the node can answer searches.
    unpack: turns a snapshot into a data folder (path, folder). Raises CannotJoin, OSError, and for a new node Unavailable.
    """
    position = applied_log.position_of(folder / _INSTANCE)
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            return _joined(log, folder, name, master_key, unpack, position)
        except Unavailable as failure:
            if position is not None:
                logs.warn("the log of the cluster cannot be reached; searches are answered, writes refused", reason=str(failure))
                return position
            if time.monotonic() > until:
                raise
            time.sleep(1)


def _joined(log: Log, folder: Path, name: str, master_key: str, unpack: Unpack, position: Position | None) -> Position:
    # The record and the last entry are asked for again when an expected one is missing: a server may not know yet that it has
    # lost the lead, and a new leader may not have all entries of its predecessor yet.
    for _ in range(_LOOKS):
        record = log.records(CLUSTER).get(CLUSTER)
        if record is not None or position is None and not log.last():
            break
        time.sleep(1)
    if record is None:
        seed = {"uid": str(uuids.uuid4()), "seed": name if position is None and _has_content(folder) else None}
        if position is not None or log.last():
            raise CannotJoin("the log has no record of its cluster, though it, or this data folder, has been used in one")
        log.compare_and_set(CLUSTER, json.dumps(seed).encode(), 0)
        record = log.records(CLUSTER)[CLUSTER]
    cluster = loads_wrapped(record.value)
    if position is not None and position.log != cluster["uid"]:
        raise CannotJoin(f"the data folder {folder} is of another cluster: name an empty one with --db-path")
    if position is not None:
        for _ in range(_LOOKS):
            last = log.last()
            if last >= position.applied:
                break
            time.sleep(1)
        if position.applied > last:
            raise CannotJoin(f"the data folder {folder} has entries that the log has lost: begin a new log, with another name in "
                             "its address, and this node first")
    # The data of the first node is older than all entries: if the log has entries, this is a different folder.
    if position is None and _has_content(folder) and (cluster["seed"] != name or log.last()):
        raise CannotJoin(f"the data folder {folder} has data of its own, which the cluster does not have: name an empty one with "
                         "--db-path, or begin a new cluster with this node")
    if position is None and _has_content(folder):
        return _set(folder, Position(cluster["uid"]))
    if position is None and cluster["seed"] is not None or not _reaches(log, 0 if position is None else position.applied):
        _copy_a_peer(log, folder, name, master_key, unpack)
        position = applied_log.position_of(folder / _INSTANCE)
        if position is None or position.log != cluster["uid"]:
            raise CannotJoin("the copy of a peer is not of this cluster")
        return position
    return position or _set(folder, Position(cluster["uid"]))


def _reaches(log: Log, applied: int) -> bool:
    """Return whether the log still has all entries after `applied`."""
    try:
        log.read(applied, 1, 0)
    except Trimmed:
        return False
    return True


def _has_content(folder: Path) -> bool:
    path = folder / _INSTANCE
    if not machine.file_exists(path):
        return False
    with closing(open_reader(path)) as reader:
        return _has_rows(reader)


def _set(folder: Path, position: Position) -> Position:
    folder.mkdir(parents=True, exist_ok=True)
    with closing(open_writer(folder / _INSTANCE)) as connection:
        schema.prepare(connection, schema.INSTANCE)
        with write_transaction(connection):
            if not position.applied and not _has_rows(connection):  # the log brings new keys
                connection.execute("DELETE FROM keys")
            applied_log.set_position(connection, position)
    return position


def _has_rows(connection: Any) -> bool:
    return any(connection.execute(f"SELECT EXISTS (SELECT 1 FROM {table})").fetchone()[0] for table in _CONTENT)


def _copy_a_peer(log: Log, folder: Path, name: str, master_key: str, unpack: Unpack) -> None:
    """Replace the data folder by a copy of another node's folder."""
    peers = [loads_wrapped(record.value) for key, record in log.records(NODES).items() if key != NODES + name]
    reasons = []
    for peer in sorted(peers, key=lambda peer: -int(peer["applied"])):
        try:
            with tempfile.TemporaryDirectory(dir=folder.absolute().parent, prefix=".svcd-copy-") as made:
                _download(peer["url"], master_key, Path(made) / "copy")
                unpack(Path(made) / "copy", Path(made) / "data")
                _replace(folder, Path(made) / "data")
            logs.info("copied the data folder of another node", node=peer["url"])
            return
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            reasons.append(f"{peer['url']}: {error}")
    raise CannotJoin("the log no longer has all that this node lacks, and no other node gave a copy of its data: "
                     + ("; ".join(reasons) or "there is no other node"))


def _replace(folder: Path, copy: Path) -> None:
    """Replace a data folder by a copy. Raises FolderInUse."""
    if not machine.file_exists(folder):
        copy.replace(folder)
        return
    with lock_folder(folder / "LOCK"):  # a daemon may use it
        shutil.rmtree(folder)
        copy.replace(folder)


def _download(url: str, master_key: str, path: Path) -> None:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    with closing(kind(parts.hostname or "", parts.port, timeout=_READ_S)) as connection:
        connection.request("GET", "/cluster/copy", headers={"Authorization": f"Bearer {master_key}"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"status {answer.status}: {answer.read(1000).decode(errors='replace')}")
        with path.open("wb") as file:
            shutil.copyfileobj(answer, file, _BLOCK)


# Copies of this node's data folder


class Busy(Exception):
    """The files changed too often to be copied."""


@contextmanager
def copy_of(instance: Instance) -> Iterator[IO[bytes]]:
    """Yield a snapshot of the instance as an open file, which is deleted after the block. Raises Busy, OSError."""
    (instance.path / _FOLDER).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=instance.path / _FOLDER) as made, ExitStack() as stack:
        folder = Path(made)
        files = _held(instance, folder, stack)
        with (folder / "copy").open("w+b") as file:
            with (gzip.GzipFile("", "wb", _LEVEL, file) as packed,
                  tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as tar):
                for name, text in (("VERSION", f"{__version__}\n"), ("instance-uid", instance.uid)):
                    (folder / "text").write_text(text)
                    tar.add(folder / "text", name)
                for name, reader in files.items():
                    _add_file(tar, name, reader, folder / "page-by-page")
                for payload in sorted((folder / "payloads").iterdir()):
                    tar.add(payload, f"payloads/{payload.name}")
            stack.close()
            file.seek(0)
            yield file


def remove_leftovers(data_folder: Path) -> None:
    """Delete the copies that a killed daemon left."""
    shutil.rmtree(data_folder / _FOLDER, ignore_errors=True)


def _add_file(tar: tarfile.TarFile, name: str, reader: sqlite3.Connection, target: Path) -> None:
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = OFF")
        reader.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # a single file without log
    tar.add(target, name)


def _held(instance: Instance, folder: Path, stack: ExitStack) -> Mapping[str, sqlite3.Connection]:
    """Return open read transactions of one state, by name in the copy; links payloads of enqueued tasks into the folder."""
    for _ in range(_TRIES):
        attempt = ExitStack()
        try:
            shutil.rmtree(folder / "payloads", ignore_errors=True)
            files = _try_to_hold(instance, folder, attempt)
        except OSError:  # a payload or an index vanished meanwhile
            files = None
        except BaseException:
            attempt.close()
            raise
        if files is not None:
            stack.push(attempt)
            return files
        attempt.close()
        time.sleep(_PAUSE_S)
    raise Busy("the files change too fast to be copied; try again when less is written")


def _try_to_hold(instance: Instance, folder: Path, stack: ExitStack) -> Mapping[str, sqlite3.Connection] | None:
    listed = stack.enter_context(_reading(instance.path / "instance.sqlite"))
    files = {"instance.sqlite": listed}
    for uid, uuid in listed.execute("SELECT uid, uuid FROM indexes").fetchall():
        try:
            reader = stack.enter_context(_reading(instance.index_path(uuid)))
        except sqlite3.OperationalError:
            return None
        if _is_ahead(reader, listed, uid):
            return None
        files[f"indexes/{uuid}.sqlite"] = reader
    (folder / "payloads").mkdir()
    for (payload,) in listed.execute("SELECT payload FROM tasks WHERE status = 'enqueued' AND payload IS NOT NULL").fetchall():
        os.link(instance.queue.payload_folder / payload, folder / "payloads" / payload)
    return files


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the transaction begins with its first read
        yield reader


def _is_ahead(reader: sqlite3.Connection, listed: sqlite3.Connection, index_uid: str) -> bool:
    """Return whether an index is ahead of the list of tasks by more than the first batch that the list has as not ended."""
    outcomes = stored_outcomes(reader)
    if outcomes is None:
        return False
    row = listed.execute("SELECT status FROM tasks WHERE uid = ?", (outcomes.last,)).fetchone()
    if row is None:  # newer than all listed tasks, or deleted
        newest = listed.execute("SELECT max(uid) FROM tasks").fetchone()[0]
        return newest is None or outcomes.last > newest
    if row[0] != "enqueued":
        return False
    for batch in applied_log.begun_batches(listed):
        (first,) = listed.execute("SELECT index_uid FROM tasks WHERE uid = ?", (batch.tasks[0],)).fetchone()
        if first == index_uid:
            return outcomes.last not in batch.tasks
    return True
