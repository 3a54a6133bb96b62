"""Imports a snapshot: unpacks it as the data folder of a new instance, and checks it.

An SQLite file is accepted when quick_check passes and it has exactly the tables of svcd; rows that name files are checked
too, because they could lead out of the folder. See docs/dumps.md#import-of-a-snapshot.
"""
from __future__ import annotations

import json
import re
import sqlite3
import uuid as uuids
from contextlib import closing
from pathlib import Path, PurePosixPath

from svcd.index import schema
from svcd.index.connections import open_reader, open_writer, sync_tree
from svcd.instance.data_folder import IndexRow
from svcd.instance.instance import Instance
from svcd.instance.task_records import ENQUEUED, STATUSES
from svcd.tasks.unpacking import ArchiveRefused, as_refusal, new_data_folder, quoted_name, unpack
from svcd.validation import checked_index_uid

_VERSION, _UID, _INSTANCE = "VERSION", "instance-uid", "instance.sqlite"
# A folder packed by hand, not by POST /snapshots, may have logs beside the files.
_ENTRY = re.compile(r"VERSION|instance-uid|instance\.sqlite(-wal)?|indexes/[0-9a-f-]{36}\.sqlite(-wal)?|payloads/[\w-]{1,100}",
                    re.ASCII)
_RELEASE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){1,3}([-+.]?[A-Za-z0-9.+-]{1,40})?", re.ASCII)
_PAYLOAD = re.compile(r"[\w-]{1,100}", re.ASCII)
_MOST_TEXT = 200  # bytes of VERSION and instance-uid

# The first row that svcd cannot have written: `task` or `batch`, and its uid.
_ODD_ROW = """
    SELECT 'task', uid FROM tasks WHERE NOT (
        json_valid(ifnull(details, 'null')) AND json_valid(ifnull(error, 'null')) AND json_valid(ifnull(content, 'null'))
        AND status IN (SELECT value FROM json_each(?)) AND typeof(kind) = 'text' AND typeof(enqueued_at) = 'integer'
        AND typeof(started_at) IN ('integer', 'null') AND typeof(finished_at) IN ('integer', 'null'))
    UNION ALL SELECT 'batch', uid FROM batches WHERE NOT (
        json_valid(ifnull(details, 'null')) AND json_valid(ifnull(stats, 'null')) AND typeof(started_at) = 'integer'
        AND typeof(finished_at) IN ('integer', 'null'))
    LIMIT 1"""


def import_snapshot(path: Path, folder: Path) -> None:
    """Create the data folder `folder`, absent or empty, from a snapshot of this or an older svcd.

    Raises ArchiveRefused, schema.NewerFormat, OSError.
    """
    with new_data_folder(folder) as data, as_refusal(path, "snapshot"):
        unpack(path, data, "snapshot", _is_known)
        _check(path, data)
        sync_tree(data)


def _is_known(name: PurePosixPath) -> bool:
    """Is it an entry of a snapshot? Others are not extracted."""
    return _ENTRY.fullmatch(str(name)) is not None


def _check(path: Path, data: Path) -> None:
    """Check the unpacked folder, and upgrade it by opening it. Raises ArchiveRefused, schema.NewerFormat."""
    version = _text(data, _VERSION)
    if not (data / _INSTANCE).is_file():
        writer = f", but of version {quoted_name(version)}" if version else ""
        raise ArchiveRefused(f"{path} is no snapshot of svcd{writer}: it has no entry `{_INSTANCE}`. What another engine "
                             "holds comes in through one of its dumps, by --import-dump")
    if version is not None and not _RELEASE.fullmatch(version):
        raise ArchiveRefused(f"{_VERSION} of the snapshot is {quoted_name(version)}, expected that of an svcd, such as 1.0.0")
    uid = _text(data, _UID)
    if uid is not None and not _is_uuid(uid):
        raise ArchiveRefused(f"{_UID} of the snapshot is {quoted_name(uid)}, expected a UUID")
    _check_file(data / _INSTANCE, _INSTANCE, schema.INSTANCE)
    _check_rows(data)
    with closing(Instance(data)) as instance:
        instance.keys.read()
        for row in instance.list_indexes()[0]:
            _check_index(instance, row)


def _text(data: Path, name: str) -> str | None:
    """The text of a short file; None when it is missing."""
    path = data / name
    if not path.is_file():
        return None
    with path.open("rb") as file:
        text = file.read(_MOST_TEXT + 1).decode(errors="replace")
    return text if len(text) > _MOST_TEXT else text.strip()


def _is_uuid(text: str) -> bool:
    try:
        return str(uuids.UUID(text)) == text.lower()
    except (AttributeError, TypeError, ValueError):
        return False


def _check_file(path: Path, place: str, kind: schema.Kind) -> None:
    """Raise ArchiveRefused when a file is not of svcd, NewerFormat when it is too new; upgrade an older one."""
    try:
        with closing(open_reader(path)) as reader:
            (format_,), (found,) = (reader.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "quick_check(1)"))
        if format_ < 1:
            raise ArchiveRefused(f"{place} of the snapshot is no file of svcd: it is empty, or another program made it")
        if found != "ok":
            raise ArchiveRefused(f"{place} of the snapshot is damaged")
        with closing(open_writer(path)) as writer:
            schema.prepare(writer, kind)
            odd = schema.difference(writer, kind)
    except schema.NewerFormat as newer:
        raise schema.NewerFormat(str(newer).replace(str(path), f"{place} of the snapshot")) from None
    except sqlite3.DatabaseError as error:
        raise ArchiveRefused(f"{place} of the snapshot cannot be read: {error}") from error
    if odd:
        raise ArchiveRefused(f"{place} of the snapshot has not the tables of svcd: {quoted_name(odd)} is missing or another one")


def _check_rows(data: Path) -> None:
    """Raise ArchiveRefused when instance.sqlite has rows that svcd cannot show, or that lead out of the folder."""
    with closing(open_reader(data / _INSTANCE)) as reader:
        odd = reader.execute(_ODD_ROW, (json.dumps(STATUSES),)).fetchone()
        payloads = reader.execute("SELECT uid, payload FROM tasks WHERE status = ? AND payload IS NOT NULL", (ENQUEUED,))
        lacking = next((uid for uid, payload in payloads if not _PAYLOAD.fullmatch(str(payload))
                        or not (data / "payloads" / str(payload)).is_file()), None)
        malformed_uuids = [uuid for (uuid,) in reader.execute("SELECT uuid FROM indexes") if not _is_uuid(uuid)]
    if odd:
        raise ArchiveRefused(f"{_INSTANCE} of the snapshot has a {odd[0]} that svcd cannot read, of the uid {odd[1]}")
    if lacking is not None:
        raise ArchiveRefused(f"the snapshot lacks the documents of the task {lacking}, which waits")
    if malformed_uuids:
        raise ArchiveRefused(f"{_INSTANCE} of the snapshot names a file of an index {quoted_name(str(malformed_uuids[0]))}, "
                             "expected a UUID")


def _check_index(instance: Instance, row: IndexRow) -> None:
    path = instance.index_path(row.uuid)
    if not path.is_file():
        raise ArchiveRefused(f"the snapshot lacks the file of the index {quoted_name(str(row.uid))}")
    _check_file(path, f"indexes/{path.name}", schema.INDEX)
    checked_index_uid(row.uid)
    with closing(open_writer(path)) as writer:  # a reader would leave a log behind
        stored = writer.execute("SELECT value FROM meta WHERE key = 'settings'").fetchone()
    if stored and not isinstance(json.loads(stored[0]), dict):
        raise ArchiveRefused(f"indexes/{path.name} of the snapshot has settings that are no object")
