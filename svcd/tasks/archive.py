"""Writes dumps and snapshots in the indexing process, to files or (snapshots) to an object store.

The runner lets no process write an index meanwhile. Memory stays small: documents are streamed from their table, and lists of
unknown length go through a temporary file.

The queue does change meanwhile: tasks arrive, and a cancelation deletes the payloads of waiting tasks. So the payloads are
copied first, until a state of the queue is found whose payloads are all copied; that state is written.
See docs/dumps.md#consistency.
"""
from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from svcd import INTERFACE_VERSION, __version__
from svcd.base import machine, quantities
from svcd.base.errors import ApiError, error_object
from svcd.base.json_text import dumps
from svcd.base.quantities import rfc3339
from svcd.index.connections import copy_file, open_reader
from svcd.index.disk_space import lacks_room
from svcd.instance.data_folder import DataFolderReader, missing_file_error
from svcd.instance.queue import stored_batches, stored_tasks
from svcd.instance.task_records import ENQUEUED, SUCCEEDED, Batch, Task
from svcd.tasks import dump_lines, views
from svcd.tasks.stored_documents import settings_in_effect, texts_with_vectors

Progress = Callable[[str, int, int], None]  # step, finished, total

VERSION = "V6"
_MODE, _FOLDER_MODE = 0o644, 0o755
# Measured with films on one core: level 2 compresses 93 MB/s to 26 %, level 6 (reference engine) 34 MB/s to 22 %.
_LEVEL = 2
_IN_MEMORY = 1 << 20  # bytes of a list up to which no temporary file is used
_REPORTED = 1000  # documents between two progress reports
_CHAT = "chat"


def write_archive(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Write the archive of a request (see svcd.tasks.global_tasks). Return {"error": None or error object}.

    After an error the incomplete file stays, until the runner deletes it.
    """
    partial = Path(request["partial"])
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        _WRITERS[request["archive"]](request, _opened_archive(request, partial), progress)
    except ApiError as error:
        return {"error": dict(error.as_json())}
    except (OSError, sqlite3.OperationalError) as error:
        reason = f"The {request['archive']} could not be written to `{partial.parent}`: {_reason(error)}."
        code = "no_space_left_on_device" if lacks_room(error, partial.parent) else "io_error"
        return {"error": dict(error_object(code, reason))}
    return {"error": None}


def _reason(error: OSError | sqlite3.OperationalError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class _Archive:
    """A tar file that is written entry by entry."""

    def __init__(self, tar: tarfile.TarFile, folder: Path) -> None:
        """folder: for temporary files of lists, because tar needs the size of an entry before its content."""
        self._tar, self._folder = tar, folder
        self._now = quantities.now() // quantities.SECOND

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
        """Add an entry with one JSON value per line."""
        self.add_texts(name, map(dumps, values))

    def add_texts(self, name: str, texts: Iterable[str]) -> None:
        """Add an entry of lines."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(self._folder)) as lines:
            for text in texts:
                lines.write(text.encode() + b"\n")
            size = lines.tell()
            lines.seek(0)
            self.add_stream(name, size, lines)

    def add_file(self, name: str, path: Path) -> None:
        """Add a file. Raises FileNotFoundError before anything is written."""
        with path.open("rb") as file:
            self.add_stream(name, os.fstat(file.fileno()).st_size, file)

    def add_stream(self, name: str, size: int, content: Any) -> None:
        """Add an entry of `size` bytes. content: an object with read(bytes)."""
        self._tar.addfile(self._entry(name, size), content)

    def _entry(self, name: str, size: int) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = size, _MODE, self._now
        return entry


@contextmanager
def _opened_archive(request: Mapping[str, Any], partial: Path) -> Iterator[_Archive]:
    """Open an archive in a file, or as an upload; when the block ends, it is complete and synced, or uploaded."""
    file: Any
    level, folder, is_upload = _LEVEL, partial.parent, bool(request.get("store"))
    with ExitStack() as stack:
        if is_upload:
            from svcd.remote.object_store import uploaded  # imported late: it loads the HTTP client

            level, folder = request["store"]["level"], Path(request["folder"])
            file = stack.enter_context(uploaded(request))
        else:
            file = stack.enter_context(partial.open("wb"))
        with (gzip.GzipFile("", "wb", level, file) as packed,
              tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as tar):
            yield _Archive(tar, folder)
        if not is_upload:
            file.flush()
            os.fsync(file.fileno())


_OpenArchive = AbstractContextManager[_Archive]


class _LineStream:
    """Adapts an iterator of lines to an object with read(size)."""

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

def _write_dump(request: Mapping[str, Any], opened: _OpenArchive, progress: Progress) -> None:
    folder = Path(request["folder"])
    progress("start the dump creation", 0, 1)
    with closing(DataFolderReader(folder)) as data_folder, opened as archive:
        archive.add_json("metadata.json", {"dumpVersion": VERSION, "dbVersion": INTERFACE_VERSION,
                                           "dumpDate": rfc3339(request["batch"]["started_at"])})
        if request["instanceUid"] is not None:  # None for a dump task that came with an imported older dump
            archive.add_text("instance_uid.uuid", request["instanceUid"])
        progress("dump the api keys", 0, 1)
        archive.add_lines("keys.jsonl", request["keys"])
        progress("dump the chat completion settings", 0, 1)
        if request["chats"]:
            from svcd.chat import workspace  # imported late: few instances have workspaces

            archive.add_folder("chat-completions-settings")
            for uid, stored in request["chats"].items():
                name, settings = workspace.dump_entry(uid, stored)
                archive.add_json(f"chat-completions-settings/{name}", settings)
        _add_queue(archive, folder, request, progress)
        _add_indexes(archive, data_folder, progress)
        progress("dump the experimental features", 0, 1)
        archive.add_json("experimental-features.json", request["features"])
        if request["network"] is not None:
            archive.add_json("network.json", request["network"])
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
            payloads = waiting_payloads(connection)
            missing = _add_payloads(archive, folder, added, "tasks/update_files/{uid}.jsonl", payloads, missing)
            if not missing:
                break
            connection.execute("ROLLBACK")
        ended: list[Task] = []
        archive.add_lines("tasks/queue.jsonl", _task_lines(connection, own, ended))
        progress("dump the batches", 0, 1)
        batches = chain(stored_batches(connection), (replace(
            own, details=task.details or {}, stats=views.batch_stats([task]), finished_at=task.finished_at) for task in ended))
        archive.add_lines("batches/queue.jsonl", map(dump_lines.batch_line, batches))
        connection.execute("ROLLBACK")


def waiting_payloads(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    """Return (uid, payload) of each enqueued task with a payload."""
    return connection.execute("SELECT uid, payload FROM tasks WHERE status = ? AND payload IS NOT NULL ORDER BY uid",
                              (ENQUEUED,)).fetchall()


def _add_payloads(archive: _Archive, folder: Path, added: set[str], name: str,
                  payloads: Iterable[tuple[int, str]], before: set[int]) -> set[int]:
    """Add the payloads that are not in `added` yet; return the uids of the tasks whose payload was missing.

    before: the result of the previous call. If a cancelation deleted the payload, the task is no longer enqueued at the next
    call. Raises io_error for a task that still is, and for an unreadable payload.
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
    """Yield all tasks. The task of this dump is yielded as it will end, and appended to `ended`."""
    for task in stored_tasks(connection):
        if task.status == ENQUEUED and task.uid == own.details["taskUid"]:
            task = replace(task, status=SUCCEEDED, batch_uid=own.uid, details={"dumpUid": own.details["dumpUid"]},
                           started_at=own.started_at, finished_at=quantities.now())
            ended.append(task)
        yield dump_lines.task_line(task)


def _add_indexes(archive: _Archive, data_folder: DataFolderReader, progress: Progress) -> None:
    archive.add_folder("indexes")
    rows, _ = data_folder.list_indexes(with_hidden=True)
    total = sum(row.stats.get("documents", 0) for row in rows)
    finished = 0
    progress("dump the indexes", finished, total)
    for row in rows:
        entry = f"indexes/{row.uid}"
        archive.add_folder(entry)
        archive.add_json(f"{entry}/metadata.json", {
            "uid": row.uid, "primaryKey": row.primary_key, "createdAt": rfc3339(row.created_at),
            "updatedAt": rfc3339(row.updated_at)})
        with data_folder.read(row.uid) as reader:
            # Older versions refuse unknown settings, so a setting that needs a feature is written only if it is set; `chat` is
            # in every dump.
            stored = reader.stored_settings
            archive.add_json(f"{entry}/settings.json", settings_in_effect(
                stored, lambda setting: setting.name in stored or setting.name == _CHAT))  # noqa: B023
            has_vectors = bool(reader.settings.embedders)
            texts = _with_progress(texts_with_vectors(reader, reader.all_docids()) if has_vectors else reader.texts(),
                                   lambda count: progress("dump the indexes", finished + count, total))  # noqa: B023
            if has_vectors:
                archive.add_texts(f"{entry}/documents.jsonl", texts)
            else:
                archive.add_stream(f"{entry}/documents.jsonl", reader.bytes_of_lines(), _LineStream(texts))
        finished += row.stats.get("documents", 0)


def _with_progress(texts: Iterator[str], report: Callable[[int], None]) -> Iterator[str]:
    for count, text in enumerate(texts, 1):
        if count % _REPORTED == 0:
            report(count)
        yield text


# Snapshots

def _write_snapshot(request: Mapping[str, Any], opened: _OpenArchive, progress: Progress) -> None:
    folder, copy = Path(request["folder"]), Path(request["copy"])
    progress("start the snapshot creation", 0, 1)
    with closing(DataFolderReader(folder)) as data_folder, opened as archive:
        archive.add_text("VERSION", f"{__version__}\n")
        archive.add_text("instance-uid", request["instanceUid"])
        for name in ("indexes", "payloads"):
            archive.add_folder(name)
        rows, _ = data_folder.list_indexes(with_hidden=True)
        for position, row in enumerate(rows):
            progress("snapshot the indexes", position, len(rows))
            if not machine.file_exists(data_folder.index_path(row.uuid)):
                raise missing_file_error(row.uid)
            copy_file(data_folder.index_path(row.uuid), copy)
            archive.add_file(f"indexes/{row.uuid}.sqlite", copy)
        progress("snapshot the index scheduler", 0, 1)
        # instance.sqlite without the snapshot's own tasks, and the payloads of the tasks that it holds as enqueued.
        own, added, missing, is_whole = json.dumps(list(request["taskUids"])), set[str](), set[int](), False
        while not is_whole:
            copy_file(folder / "instance.sqlite", copy)
            with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = DELETE")  # a single file without log
                connection.execute("DELETE FROM tasks WHERE uid IN (SELECT value FROM json_each(?))", (own,))
                payloads = waiting_payloads(connection)
            progress("snapshot the update files", 0, len(payloads))
            missing = _add_payloads(archive, folder, added, "payloads/{payload}", payloads, missing)
            is_whole = not missing
        archive.add_file("instance.sqlite", copy)
        copy.unlink()
        progress("create the tarball", 0, 1)


_WRITERS: Mapping[str, Callable[[Mapping[str, Any], _OpenArchive, Progress], None]] = {
    "dump": _write_dump, "snapshot": _write_snapshot}
