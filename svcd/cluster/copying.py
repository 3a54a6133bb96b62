"""Copies of a data folder for nodes that are new, or have been away for longer than the log reaches back.

A copy is a snapshot (svcd.tasks.archive_import unpacks it) of one state of all files. It opens a read transaction on each file,
one after the other, while batches may end. It repeats this until no index is ahead of the list of tasks: the node that continues
from there with the log then neither loses an entry nor applies one twice.
"""
from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO

from svcd import __version__
from svcd.index.connections import open_reader
from svcd.instance import applied_log
from svcd.instance.instance import Instance
from svcd.instance.unlisted_files import stored_outcomes

_LEVEL = 1
_FOLDER = "cluster-copies"
_TRIES, _PAUSE_S = 200, 0.05


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
