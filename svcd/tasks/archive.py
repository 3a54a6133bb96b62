"""Dumps and snapshots as files: what is in them, written once through from the data folder as it is.

Runs in the indexing process, while no index is written: the daemon sees to that (svcd.tasks.runner). Knows the
entries of both kinds; refuses to know when they are made, and how they get their names (svcd.tasks.archive_tasks).
Nothing is held as a whole: documents go from the table into the archive, lists of unknown length by way of a file.

The queue goes on meanwhile: tasks come in, and waiting ones may be canceled, with which their documents go. So their
documents are taken first, and the state of the queue in which none of them was missing is the one that is written.
"""
from __future__ import annotations

import errno
import gzip
import io
import json
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from svcd import INTERFACE_VERSION, __version__
from svcd.base import times
from svcd.base.errors import ApiError, error_object
from svcd.base.json_text import dumps
from svcd.base.times import rfc3339
from svcd.index.connections import copy_file, open_reader
from svcd.index.disk_space import lacks_room
from svcd.instance.data_folder import DataFolderReader, missing_file_error
from svcd.instance.queue import stored_batches, stored_tasks
from svcd.instance.task_records import ENQUEUED, SUCCEEDED, Batch, Task
from svcd.schema.settings import SETTINGS
from svcd.tasks import dump_lines, views

Progress = Callable[[str, int, int], None]  # step, finished, total

VERSION = "V6"
_MODE, _FOLDER_MODE = 0o644, 0o755
# Films on one core: level 2 packs 93 MB/s to 26 %, level 6, that of the reference engine, 34 MB/s to 22 %.
_LEVEL = 2
_IN_MEMORY = 1 << 20  # bytes of a list that need no file on their way
_REPORTED = 1000  # documents between two reports of progress


def write_archive(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Write what the runner asks for; {"error"}: None, or why the machine refused. What was written so far stays."""
    partial = Path(request["partial"])
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        _WRITERS[request["archive"]](request, partial, progress)
    except ApiError as error:
        return {"error": dict(error.as_json())}
    except (OSError, sqlite3.OperationalError) as error:
        return {"error": dict(error_object(_code_of(error), f"The {request['archive']} could not be written to "
                                                            f"`{partial.parent}`: {_reason(error)}."))}
    return {"error": None}


def _code_of(error: OSError | sqlite3.OperationalError) -> str:
    is_full = lacks_room(error) if isinstance(error, sqlite3.OperationalError) else error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "no_space_left_on_device" if is_full else "io_error"


def _reason(error: OSError | sqlite3.OperationalError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class _Archive:
    """A tar that grows by one entry after another."""

    def __init__(self, tar: tarfile.TarFile, folder: Path) -> None:
        """folder: where a list may stand until its length is known."""
        self._tar = tar
        self._folder = folder
        self._now = times.now() // times.SECOND

    def add_folder(self, name: str) -> None:
        entry = self._entry(name, 0)
        entry.type, entry.mode = tarfile.DIRTYPE, _FOLDER_MODE
        self._tar.addfile(entry)

    def add_text(self, name: str, text: str) -> None:
        content = text.encode()
        self.add_stream(name, len(content), io.BytesIO(content))

    def add_json(self, name: str, value: Any) -> None:
        self.add_text(name, dumps(value))

    def add_lines(self, name: str, values: Iterable[Any]) -> None:
        """One JSON value a line."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(self._folder)) as lines:
            for value in values:
                lines.write(dumps(value).encode() + b"\n")
            size = lines.tell()
            lines.seek(0)
            self.add_stream(name, size, lines)

    def add_file(self, name: str, path: Path) -> None:
        """A file as it is. Raises FileNotFoundError before anything is written."""
        with path.open("rb") as file:
            self.add_stream(name, os.fstat(file.fileno()).st_size, file)

    def add_stream(self, name: str, size: int, content: Any) -> None:
        """content: something with read(bytes)."""
        self._tar.addfile(self._entry(name, size), content)

    def _entry(self, name: str, size: int) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = size, _MODE, self._now
        return entry


@contextmanager
def _written(path: Path) -> Iterator[_Archive]:
    """An archive that is whole and on disk when the block ends."""
    with path.open("wb") as file:
        with (gzip.GzipFile("", "wb", _LEVEL, file) as packed,
              tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as tar):
            yield _Archive(tar, path.parent)
        file.flush()
        os.fsync(file.fileno())


class _Joined:
    """Lines as something to read from, a few at a time."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._rest = b""

    def read(self, size: int) -> bytes:
        pieces, held = [self._rest], len(self._rest)
        while held < size and (line := next(self._lines, None)) is not None:
            pieces.append(f"{line}\n".encode())
            held += len(pieces[-1])
        joined = b"".join(pieces)
        self._rest = joined[size:]
        return joined[:size]


# Dumps

def _write_dump(request: Mapping[str, Any], path: Path, progress: Progress) -> None:
    folder = Path(request["folder"])
    progress("start the dump creation", 0, 1)
    with closing(DataFolderReader(folder)) as library, _written(path) as archive:
        archive.add_json("metadata.json", {"dumpVersion": VERSION, "dbVersion": INTERFACE_VERSION,
                                           "dumpDate": rfc3339(request["batch"]["started_at"])})
        if request["instanceUid"] is not None:  # not even that is known of the dumps that waited in an old dump
            archive.add_text("instance_uid.uuid", request["instanceUid"])
        progress("dump the api keys", 0, 1)
        archive.add_lines("keys.jsonl", request["keys"])
        _add_queue(archive, folder, request, progress)
        _add_indexes(archive, library, progress)
        progress("dump the experimental features", 0, 1)
        archive.add_json("experimental-features.json", request["features"])
        progress("dump the webhooks", 0, 1)
        archive.add_json("webhooks.json", {"webhooks": request["webhooks"]})
        progress("compress the dump", 0, 1)


def _add_queue(archive: _Archive, folder: Path, request: Mapping[str, Any], progress: Progress) -> None:
    progress("dump the tasks", 0, 1)
    for name in ("tasks", "tasks/update_files", "batches"):
        archive.add_folder(name)
    own = Batch(**request["batch"])
    with closing(open_reader(folder / "instance.sqlite")) as connection:
        added: set[str] = set()
        missing: set[int] = set()
        while True:
            connection.execute("BEGIN")
            missing = _add_payloads(archive, folder, added, "tasks/update_files/{uid}.jsonl", _payloads(connection), missing)
            if not missing:
                break
            connection.execute("ROLLBACK")
        ended: list[Task] = []
        archive.add_lines("tasks/queue.jsonl", _task_lines(connection, own, ended))
        progress("dump the batches", 0, 1)
        archive.add_lines("batches/queue.jsonl", _batch_lines(connection, own, ended))
        connection.execute("ROLLBACK")


def _payloads(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    """Uid and file of the waiting tasks that have documents."""
    return connection.execute("SELECT uid, payload FROM tasks WHERE status = ? AND payload IS NOT NULL ORDER BY uid",
                              (ENQUEUED,)).fetchall()


def _add_payloads(archive: _Archive, folder: Path, added: set[str], name: str,
                  payloads: Iterable[tuple[int, str]], before: set[int]) -> set[int]:
    """Add the documents of waiting tasks, but for those of `added`; the tasks whose documents were gone.

    before: those of the look before this one. A task whose documents went because it was canceled waits no longer
    at the next look. Raises io_error for one that still does, and for what cannot be read.
    """
    missing: set[int] = set()
    for uid, payload in payloads:
        if payload in added:
            continue
        try:
            archive.add_file(name.format(uid=uid, payload=payload), folder / "payloads" / payload)
            added.add(payload)
        except FileNotFoundError as error:
            if uid in before:
                raise _unreadable(uid, error) from None
            missing.add(uid)
        except PermissionError as error:
            raise _unreadable(uid, error) from None
    return missing


def _unreadable(uid: int, error: OSError) -> ApiError:
    return ApiError("io_error", f"The documents of task {uid}, which waits, cannot be read: {_reason(error)}. Cancel it, or "
                                "let it end, and try again.")


def _task_lines(connection: sqlite3.Connection, own: Batch, ended: list[Task]) -> Iterator[dict[str, Any]]:
    """All tasks; the one of the dump, which `ended` gets too, as it will be."""
    for task in stored_tasks(connection):
        if task.status == ENQUEUED and task.uid == own.details["taskUid"]:
            task = replace(task, status=SUCCEEDED, batch_uid=own.uid, details={"dumpUid": own.details["dumpUid"]},
                           started_at=own.started_at, finished_at=times.now())
            ended.append(task)
        yield dump_lines.task_line(task)


def _batch_lines(connection: sqlite3.Connection, own: Batch, ended: list[Task]) -> Iterator[dict[str, Any]]:
    yield from map(dump_lines.batch_line, stored_batches(connection))
    for task in ended:
        yield dump_lines.batch_line(replace(own, details=task.details or {}, stats=views.batch_stats([task]),
                                            finished_at=task.finished_at))


def _add_indexes(archive: _Archive, library: DataFolderReader, progress: Progress) -> None:
    archive.add_folder("indexes")
    rows, _ = library.list_indexes()
    total = sum(row.stats.get("documents", 0) for row in rows)
    finished = 0
    progress("dump the indexes", finished, total)
    for row in rows:
        place = f"indexes/{row.uid}"
        archive.add_folder(place)
        archive.add_json(f"{place}/metadata.json", {
            "uid": row.uid, "primaryKey": row.primary_key, "createdAt": rfc3339(row.created_at),
            "updatedAt": rfc3339(row.updated_at)})
        with library.read(row.uid) as reader:
            archive.add_json(f"{place}/settings.json", _settings(reader.stored_settings))
            texts = _told(reader.texts(), lambda count: progress("dump the indexes", finished + count, total))  # noqa: B023
            archive.add_stream(f"{place}/documents.jsonl", reader.bytes_of_lines(), _Joined(texts))
        finished += row.stats.get("documents", 0)


def _settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting as it is in effect, secrets in clear.

    What needs a feature is left out until it is set, for older versions refuse settings that they do not know.
    """
    return {setting.name: setting.resolved(stored) for setting in SETTINGS
            if setting.feature is None or setting.name in stored}


def _told(texts: Iterator[str], tell: Callable[[int], None]) -> Iterator[str]:
    for count, text in enumerate(texts, 1):
        if count % _REPORTED == 0:
            tell(count)
        yield text


# Snapshots

def _write_snapshot(request: Mapping[str, Any], path: Path, progress: Progress) -> None:
    folder, copy = Path(request["folder"]), Path(request["copy"])
    progress("start the snapshot creation", 0, 1)
    with closing(DataFolderReader(folder)) as library, _written(path) as archive:
        archive.add_text("VERSION", f"{__version__}\n")
        archive.add_text("instance-uid", request["instanceUid"])
        for name in ("indexes", "payloads"):
            archive.add_folder(name)
        rows, _ = library.list_indexes()
        for place, row in enumerate(rows):
            progress("snapshot the indexes", place, len(rows))
            if not library.index_path(row.uuid).exists():
                raise missing_file_error(row.uid)
            copy_file(library.index_path(row.uuid), copy)
            archive.add_file(f"indexes/{row.uuid}.sqlite", copy)
        progress("snapshot the index scheduler", 0, 1)
        _add_instance(archive, folder, copy, request["taskUids"], progress)
        copy.unlink()
        progress("create the tarball", 0, 1)


def _add_instance(archive: _Archive, folder: Path, copy: Path, own: Iterable[int], progress: Progress) -> None:
    """The file of the queue without the tasks of the snapshot, and the documents of those that wait in it."""
    added: set[str] = set()
    missing: set[int] = set()
    while True:
        copy_file(folder / "instance.sqlite", copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            connection.execute("DELETE FROM tasks WHERE uid IN (SELECT value FROM json_each(?))",
                               (json.dumps(list(own)),))
            payloads = _payloads(connection)
        progress("snapshot the update files", 0, len(payloads))
        missing = _add_payloads(archive, folder, added, "payloads/{payload}", payloads, missing)
        if not missing:
            break
    archive.add_file("instance.sqlite", copy)


_WRITERS: Mapping[str, Callable[[Mapping[str, Any], Path, Progress], None]] = {
    "dump": _write_dump, "snapshot": _write_snapshot,
}
