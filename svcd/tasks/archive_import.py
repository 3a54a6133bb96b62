"""Imports a dump or a snapshot into the data folder of a new instance.

A dump may come from svcd or from any version of the reference engine; an indexing process builds its indexes, within the memory
budget of indexing. A snapshot is unpacked as the data folder. svcd.cli.daemon decides when to import.
See docs/dumps.md#import-of-a-dump and #import-of-a-snapshot.
"""
from __future__ import annotations

import json
import os
import re
import sqlite3
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from svcd.base import logs, quantities
from svcd.base.errors import ApiError, quoted_name
from svcd.base.json_text import loads_wrapped
from svcd.index import schema
from svcd.index.connections import open_reader, open_writer, sync_tree, write_transaction
from svcd.instance import applied_log, network
from svcd.instance.data_folder import IndexRow, is_hidden
from svcd.instance.instance import Instance, add_features, set_network
from svcd.instance.queue import insert_batches, insert_tasks
from svcd.instance.rows import add_keys
from svcd.instance.task_records import ENQUEUED, STATUSES, Task
from svcd.instance.webhooks import MAX_WEBHOOKS
from svcd.rules.stored import INDEX_UID as RULES_INDEX_UID
from svcd.schema import settings as settings_table
from svcd.tasks import batching, dump_lines, old_dumps
from svcd.tasks.archive import VERSION
from svcd.tasks.indexing_client import IndexingProcess, IndexingProcessCrashed, IndexingProcessDied, MemoryBudget
from svcd.tasks.unpacking import (
    MALFORMED, ArchiveRefused, as_refusal, describe, is_fault_of_archive, new_data_folder, quoted_value, unpack)
from svcd.validation import checked_index_uid, decode_body

T = TypeVar("T")
Json = Mapping[str, Any]

# Uids of the steps of an import: below every task uid, so that the file is never ahead of an enqueued task.
_CREATION, _SETTINGS, _DOCUMENTS = -3, -2, -1
_MOST_JSON = 256 << 20  # bytes of an entry that is parsed as a whole; the synonyms of an index may take several MB
_MOST_UID = 100
_RULES_SUFFIX = RULES_INDEX_UID[RULES_INDEX_UID.index("_"):]  # each engine begins the name with its own
_NO_DOCUMENTS = "Corrupted dump."  # message of the reference engine for missing documents

# Entries of a snapshot.
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


# Dumps


def import_dump(path: Path, folder: Path, budget: MemoryBudget = MemoryBudget(), threads: int = 1,
                make_writer: Callable[[], Any] = IndexingProcess, networks: Sequence[str] = ()) -> None:
    """Create the data folder `folder`, which is absent or empty, from a dump. Raises ArchiveRefused, OSError.

    networks: private networks that embedders may call.
    """
    with new_data_folder(folder) as data, as_refusal(path, "dump"), closing(make_writer()) as writer:
        dump = data.with_name("dump")
        unpack(path, dump, "dump")
        _Import(dump, data, {"budget": budget._asdict(), "threads": threads, "networks": list(networks)}, writer).run()
        sync_tree(data)


class _Import:
    """The import of one dump, unpacked in `dump`, into the folder `data`."""

    def __init__(self, dump: Path, data: Path, means: Mapping[str, Any], writer: Any) -> None:
        """means: the members `budget`, `threads` and `networks` of the requests to the indexing process."""
        self._dump, self._data, self._means, self._writer = dump, data, means, writer

    def run(self) -> None:
        version = self._object("metadata.json", {}).get("dumpVersion")
        if not isinstance(version, str) or version not in (VERSION, *old_dumps.VERSIONS):
            found = f"the version {quoted_name(version)}" if isinstance(version, str) else "no version"
            raise ArchiveRefused(f"the dump has {found}, expected V1 to {VERSION}")
        if version != VERSION:
            malformed = f"the dump is not a valid dump of version {version}"
            try:
                old_dumps.convert_to_version_6(self._dump, version)
            except MALFORMED as error:
                raise ArchiveRefused(f"{malformed}: {describe(error)}") from error
            except OSError as error:
                if not is_fault_of_archive(error):
                    raise
                place = os.path.relpath(error.filename, self._dump) if error.filename else ""
                raise ArchiveRefused(f"{malformed}: {quoted_name(place)} is missing, exists twice, or is not a file of its "
                                     "kind") from error
        self._data.mkdir()
        try:
            uid = dump_lines.uid_of(self._read("instance_uid.uuid", _MOST_UID).decode().strip())
            (self._data / "instance-uid").write_text(uid)
        except FileNotFoundError:
            pass
        except MALFORMED as error:
            raise ArchiveRefused(f"instance_uid.uuid of the dump: {describe(error)}") from None
        instance = Instance(self._data)
        try:
            self._restore(instance)
        except sqlite3.IntegrityError as error:
            raise ArchiveRefused("the dump has two indexes, tasks, batches or keys of the same uid") from error
        finally:
            instance.close()

    def _restore(self, instance: Instance) -> None:
        webhooks = self._object("webhooks.json", {}).get("webhooks", {})
        try:
            if len(webhooks.items()) > MAX_WEBHOOKS:
                raise ArchiveRefused(f"webhooks.json of the dump has more than {MAX_WEBHOOKS} webhooks")
            for uuid, row in webhooks.items():
                instance.webhooks.create(dump_lines.webhook_of(uuid, row))
        except MALFORMED as error:
            raise ArchiveRefused(f"webhooks.json of the dump: {describe(error)}") from error
        if files := sorted(self._dump.glob("chat-completions-settings/*.json")):
            from svcd.chat import workspace
        for file in files:
            name = str(file.relative_to(self._dump))
            try:
                uid, stored = workspace.from_dump(file.name, self._object(name))
            except MALFORMED as error:
                raise ArchiveRefused(f"{quoted_name(name)} of the dump: {describe(error)}") from error
            instance.chat_workspaces.put(uid, stored)
        with instance.queue.finishing() as connection:
            add_keys(connection, self._lines("keys.jsonl", dump_lines.key_of))
            flags = self._object("experimental-features.json", {})
            add_features(connection, {"legacySearch": None} | {  # null when a dump does not have it (recorded)
                name: bool(is_on) for name, is_on in flags.items() if is_on is not None})
            if dumped := self._object("network.json", {}):
                try:  # without the name of this instance: its operator gives it a new name
                    set_network(connection, replace(network.from_json(dumped), self_name=None).as_json())
                except ApiError as error:
                    raise ArchiveRefused(f"network.json of the dump: {describe(error)}") from error
            for folder in sorted(self._dump.glob("indexes/*/")):
                if not is_hidden(folder.name):
                    instance.create_index(connection, self._index(instance, folder))
                elif folder.name.endswith(_RULES_SUFFIX):  # other hidden indexes are not imported
                    instance.create_index(connection, self._index(instance, folder, RULES_INDEX_UID))
            insert_batches(connection, self._lines("batches/queue.jsonl", dump_lines.batch_of))
            insert_tasks(connection, (
                self._with_payload(instance, task) for task in self._lines("tasks/queue.jsonl", dump_lines.task_of)))

    def _index(self, instance: Instance, folder: Path, hidden_uid: str | None = None) -> IndexRow:
        """Build one index. hidden_uid: the uid of a hidden index of svcd; None to use the uid in the dump."""
        place = folder.relative_to(self._dump)
        about = self._object(str(place / "metadata.json"))
        try:
            index_uid = hidden_uid or checked_index_uid(about["uid"])
            row = IndexRow(index_uid, str(uuids.uuid4()), dump_lines.moment_of(about["createdAt"]), quantities.now(),
                           dump_lines.primary_key_of(about))
            settings = self._json(str(place / "settings.json"))
            for embedder in (settings.get("embedders") or {}).values() if isinstance(settings, dict) else ():
                if isinstance(embedder, dict) and embedder.get("source") == "huggingFace" and "pooling" not in embedder:
                    embedder["pooling"] = "forceMean"  # the default when the dump was made; today's differs
            change = decode_body(settings, settings_table.FIELDS)
            settings_table.validate(change)
        except (ApiError, *MALFORMED) as error:
            raise ArchiveRefused(f"{place} of the dump: {describe(error)}") from error
        documents = folder / "documents.jsonl"
        if not documents.is_file():
            raise ArchiveRefused(f"the dump has no entry `{place}/documents.jsonl`")
        steps: list[tuple[int, str, str, Mapping[str, Any], Path | None]] = [
            (_CREATION, "indexCreation", "indexCreation", {"primaryKey": row.primary_key}, None)]
        if change:
            steps.append((_SETTINGS, batching.SETTINGS, "settingsUpdate", {"settings": change}, None))
        if documents.stat().st_size:
            content = {"method": "replace", "primaryKey": row.primary_key, "isImport": True}
            steps.append((_DOCUMENTS, batching.DOCUMENTS, "documentAdditionOrUpdate", content, documents))
        answer: dict[str, Any] = {}
        path = instance.index_path(row.uuid)
        for step in steps:
            answer = self._done(place, path, row.uid, *step)
        logs.info("index imported", index_uid=row.uid, documents=answer["stats"].get("documents", 0))
        return row._replace(primary_key=answer["primaryKey"], stats=answer["stats"])

    def _done(self, place: Path, path: Path, index_uid: str, uid: int, shape: str, kind: str,
              content: Mapping[str, Any], payload: Path | None) -> dict[str, Any]:
        """Apply one step in the indexing process; return its answer. Raises ArchiveRefused when the step fails."""
        task = {"uid": uid, "kind": kind, "content": content, "payload": str(payload) if payload else None,
                "payload_bytes": payload.stat().st_size if payload else 0}
        request = {"do": "batch", "path": str(path), "indexUid": index_uid, "shape": shape, **self._means, "tasks": [task]}
        try:
            answer = self._writer.run(request, lambda *_: None)  # an import shows no progress
        except IndexingProcessDied as error:
            raise ArchiveRefused(f"{place} of the dump could not be indexed: {error}") from error
        except IndexingProcessCrashed as error:
            if payload:
                self._check_documents(place, payload)
            logs.failure("bug", str(error))
            raise ArchiveRefused(f"{place} of the dump could not be indexed because of a bug in svcd; see its log") from error
        (outcome,) = answer["outcomes"]
        if outcome["error"]:
            if payload and outcome["error"]["code"] == "io_error":
                self._check_documents(place, payload)  # names the line, unlike the error of the task
            raise ArchiveRefused(f"{place} of the dump: {outcome['error']['message']}")
        return answer

    def _check_documents(self, place: Path, documents: Path) -> None:
        """Raise ArchiveRefused with the number of the first line that is not a document."""
        for _ in self._lines(str(place / documents.name), dump_lines.document_of):
            pass

    def _with_payload(self, instance: Instance, task: Task) -> Task:
        """Move the documents of an enqueued import into the payload folder; return the task with its payload."""
        if task.kind != "documentAdditionOrUpdate" or task.status != ENQUEUED:
            return task
        documents = self._dump / "tasks" / "update_files" / f"{task.uid}.jsonl"
        if not documents.exists():
            if (task.details or {}).get("receivedDocuments"):
                raise ArchiveRefused(f"{_NO_DOCUMENTS} Task {task.uid} waits, and its documents are missing.")
            documents.parent.mkdir(parents=True, exist_ok=True)
            documents.touch()
        payload = instance.queue.payload_folder / str(uuids.uuid4())
        documents.replace(payload)
        with payload.open("rb") as file:
            os.fsync(file.fileno())
        return replace(task, payload=payload.name, payload_bytes=payload.stat().st_size)

    # Entries

    def _json(self, name: str, absent: Any = None) -> Any:
        """Return the JSON value of an entry; `absent` when it is missing. Raises ArchiveRefused."""
        try:
            return loads_wrapped(self._read(name))
        except FileNotFoundError:
            if absent is None:
                raise ArchiveRefused(f"the dump has no entry `{name}`") from None
            return absent
        except ValueError as error:
            raise ArchiveRefused(f"{name} of the dump is not JSON: {describe(error)}") from error

    def _object(self, name: str, absent: Json | None = None) -> Json:
        value = self._json(name, absent)
        if not isinstance(value, dict):
            raise ArchiveRefused(f"{name} of the dump is {quoted_value(value)}, expected an object")
        return value

    def _read(self, name: str, most: int = _MOST_JSON) -> bytes:
        """Return the bytes of a small entry. Raises FileNotFoundError; ArchiveRefused when it is a folder or too large."""
        path = self._dump / name
        if path.exists() and (not path.is_file() or path.stat().st_size > most):
            raise ArchiveRefused(f"{quoted_name(name)} of the dump is not a file of {most} bytes or fewer")
        return path.read_bytes()

    def _lines(self, name: str, read: Callable[[Any], T]) -> Iterator[T]:
        path = self._dump / name
        if not path.exists():
            return
        if not path.is_file():
            raise ArchiveRefused(f"{quoted_name(name)} of the dump is not a file")
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield read(loads_wrapped(line))
                except MALFORMED as error:
                    raise ArchiveRefused(f"{name} of the dump, line {number}: {describe(error)}") from error


# Snapshots. An SQLite file is accepted when quick_check passes and its tables are exactly those of svcd. Rows that name files are
# checked too, because such a name could lead out of the folder.


def import_snapshot(path: Path, folder: Path, keeps_cluster: bool = False) -> None:
    """Create the data folder `folder`, absent or empty, from a snapshot of this or an older svcd.

    keeps_cluster: whether a snapshot of a cluster node makes the folder a cluster node, too.
    Raises ArchiveRefused, schema.NewerFormat, OSError.
    """
    with new_data_folder(folder) as data, as_refusal(path, "snapshot"):
        unpack(path, data, "snapshot", lambda name: _ENTRY.fullmatch(str(name)) is not None)
        _check(path, data)
        if not keeps_cluster and applied_log.position_of(data / _INSTANCE) is not None:
            with closing(open_writer(data / _INSTANCE)) as connection, write_transaction(connection):
                applied_log.leave(connection)
        sync_tree(data)


def _check(path: Path, data: Path) -> None:
    """Check the unpacked folder, and upgrade it by opening it. Raises ArchiveRefused, schema.NewerFormat."""
    version = _text(data, _VERSION)
    if not (data / _INSTANCE).is_file():
        origin = f", but of version {quoted_name(version)}" if version else ""
        raise ArchiveRefused(f"{path} is not a snapshot of svcd{origin}: it lacks the entry `{_INSTANCE}`. To import the data of "
                             "another engine, use one of its dumps and --import-dump")
    if version is not None and not _RELEASE.fullmatch(version):
        raise ArchiveRefused(f"{_VERSION} of the snapshot is {quoted_name(version)}, expected a version of svcd, such as 1.0.0")
    uid = _text(data, _UID)
    if uid is not None and not _is_uuid(uid):
        raise ArchiveRefused(f"{_UID} of the snapshot is {quoted_name(uid)}, expected a UUID")
    _check_file(data / _INSTANCE, _INSTANCE, schema.INSTANCE)
    with closing(open_reader(data / _INSTANCE)) as reader:
        odd = reader.execute(_ODD_ROW, (json.dumps(STATUSES),)).fetchone()
        payloads = reader.execute("SELECT uid, payload FROM tasks WHERE status = ? AND payload IS NOT NULL", (ENQUEUED,))
        lacking = next((uid for uid, payload in payloads if not _PAYLOAD.fullmatch(str(payload))
                        or not (data / "payloads" / str(payload)).is_file()), None)
        malformed_uuids = [uuid for (uuid,) in reader.execute("SELECT uuid FROM indexes") if not _is_uuid(uuid)]
    if odd:
        raise ArchiveRefused(f"{_INSTANCE} of the snapshot has a {odd[0]} that svcd cannot read, with uid {odd[1]}")
    if lacking is not None:
        raise ArchiveRefused(f"the snapshot lacks the documents of the task {lacking}, which waits")
    if malformed_uuids:
        raise ArchiveRefused(f"{_INSTANCE} of the snapshot names a file of an index {quoted_name(str(malformed_uuids[0]))}, "
                             "expected a UUID")
    with closing(Instance(data)) as instance:
        instance.keys.read()
        instance.network()
        for row in instance.list_indexes(with_hidden=True)[0]:
            file = instance.index_path(row.uuid)
            if not file.is_file():
                raise ArchiveRefused(f"the snapshot lacks the file of the index {quoted_name(str(row.uid))}")
            _check_file(file, f"indexes/{file.name}", schema.INDEX)
            if row.uid != RULES_INDEX_UID:
                checked_index_uid(row.uid)
            with closing(open_writer(file)) as writer:  # a reader would leave a write-ahead log in the folder
                stored = writer.execute("SELECT value FROM meta WHERE key = 'settings'").fetchone()
            if stored and not isinstance(loads_wrapped(stored[0]), dict):
                raise ArchiveRefused(f"indexes/{file.name} of the snapshot has settings that are not an object")


def _text(data: Path, name: str) -> str | None:
    """Return the text of a short file; None when it is missing."""
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
    """Upgrade a file of an older svcd. Raises NewerFormat for a newer file, ArchiveRefused for a file of another program."""
    try:
        with closing(open_reader(path)) as reader:
            (format_,), (found,) = (reader.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "quick_check(1)"))
        if format_ < 1:
            raise ArchiveRefused(f"{place} of the snapshot is not a file of svcd: it is empty, or another program wrote it")
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
        raise ArchiveRefused(f"{place} of the snapshot has other tables than svcd: {quoted_name(odd)} is missing or different")
