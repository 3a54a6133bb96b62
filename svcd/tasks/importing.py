"""A dump, of svcd or of any version of the reference engine, made into the data folder of a new instance.

Indexes are built by an indexing process, within the memory that indexing may use. Refuses to know archives and how
the folder gets its name (svcd.tasks.unpacking), and when a dump is imported (svcd.cli.first_start).
Source: dumps.md 2 and 3.
"""
from __future__ import annotations

import json
import os
import shutil
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from svcd import logs, times
from svcd.engine import settings as settings_table
from svcd.errors import ApiError
from svcd.fields import checked_index_uid, decode_body
from svcd.store import restoring
from svcd.store.instance import IndexRow, Instance
from svcd.store.records import ENQUEUED, Task
from svcd.store.webhooks import Webhook, merged_headers
from svcd.tasks import batching, dump_reading, old_dumps
from svcd.tasks.archive import VERSION
from svcd.tasks.budget import Budget
from svcd.tasks.unpacking import ArchiveRefused, growing, unpack
from svcd.tasks.writer_process import WriterCrashed, WriterDied, WriterProcess

T = TypeVar("T")

# The steps of an import are older than every task: the first one that waits has its turn after it.
_CREATION, _SETTINGS, _DOCUMENTS = -3, -2, -1
_NO_DOCUMENTS = "Corrupted dump."  # the words of the reference engine for documents that lack


def import_dump(path: Path, folder: Path, budget: Budget = Budget(),
                make_writer: Callable[[], Any] = WriterProcess) -> None:
    """Make the data folder, which is absent or empty, from a dump. Raises ArchiveRefused, OSError."""
    with growing(folder) as data, closing(make_writer()) as writer:
        dump = data.with_name("dump")
        unpack(path, dump, "dump")
        _Import(dump, data, budget, writer).run()


class _Import:
    """One dump, unpacked in `dump`, on its way into the folder `data`."""

    def __init__(self, dump: Path, data: Path, budget: Budget, writer: Any) -> None:
        self._dump, self._data, self._budget, self._writer = dump, data, budget, writer

    def run(self) -> None:
        version = self._json("metadata.json", {}).get("dumpVersion")
        if version in old_dumps.VERSIONS:
            try:
                old_dumps.modernise(self._dump, version)
            except (KeyError, StopIteration, TypeError, ValueError) as error:
                raise ArchiveRefused(f"the dump is none of its version {version}: {_words(error)}") from None
        elif version != VERSION:
            raise ArchiveRefused(f"the dump has version {version}, expected V1 to {VERSION}")
        self._data.mkdir()
        uid = self._dump / "instance_uid.uuid"
        if uid.exists():
            shutil.copyfile(uid, self._data / "instance-uid")
        instance = Instance(self._data)
        try:
            self._restore(instance)
        finally:
            instance.close()

    def _restore(self, instance: Instance) -> None:
        for uuid, row in self._json("webhooks.json", {}).get("webhooks", {}).items():
            instance.webhooks.create(Webhook(uuid, row["url"], merged_headers(row.get("headers") or {})))
        with instance.queue.finishing() as connection:
            restoring.add_keys(connection, self._lines("keys.jsonl", dump_reading.key_of))
            restoring.add_features(connection, self._features())
            for folder in sorted(self._dump.glob("indexes/*/")):
                if not folder.name.startswith("."):  # hidden: rules, which svcd does not have
                    instance.create_index(connection, self._index(instance, folder))
            restoring.add_batches(connection, self._lines("batches/queue.jsonl", dump_reading.batch_of))
            restoring.add_tasks(connection, (
                self._with_payload(instance, task) for task in self._lines("tasks/queue.jsonl", dump_reading.task_of)))

    def _features(self) -> Mapping[str, bool | None]:
        flags = {name: bool(is_on) for name, is_on in self._json("experimental-features.json", {}).items()
                 if is_on is not None}
        # The recordings show null for this one where a dump does not have it.
        return {"legacySearch": None} | flags

    def _index(self, instance: Instance, folder: Path) -> IndexRow:
        place = folder.relative_to(self._dump)
        about = self._json(str(place / "metadata.json"))
        try:
            row = IndexRow(checked_index_uid(about["uid"]), str(uuids.uuid4()), times.parse_rfc3339(about["createdAt"]),
                           times.now(), about.get("primaryKey"))
            change = decode_body(_completed(self._json(str(place / "settings.json"))), settings_table.FIELDS)
            settings_table.validate(change)
        except (ApiError, KeyError, TypeError, ValueError) as error:
            raise ArchiveRefused(f"{place} of the dump: {_words(error)}") from None
        documents = folder / "documents.jsonl"
        steps = [(_CREATION, "indexCreation", "indexCreation", {"primaryKey": row.primary_key}, None)]
        if change:
            steps.append((_SETTINGS, batching.SETTINGS, "settingsUpdate", {"settings": change}, None))
        if documents.stat().st_size:
            content = {"method": "replace", "primaryKey": row.primary_key}
            steps.append((_DOCUMENTS, batching.DOCUMENTS, "documentAdditionOrUpdate", content, documents))
        answer: dict[str, Any] = {}
        path = instance.index_path(row.uuid)
        for step in steps:
            answer = self._done(place, path, row.uid, *step)
        if answer["needsDenseSets"]:
            self._writer.run({"path": str(path), "denseSets": True}, _silently)
        logs.info("index imported", index_uid=row.uid, documents=answer["stats"].get("documents", 0))
        return replace(row, primary_key=answer["primaryKey"], stats=answer["stats"])

    def _done(self, place: Path, path: Path, index_uid: str, uid: int, shape: str, kind: str,
              content: Mapping[str, Any], payload: Path | None) -> dict[str, Any]:
        """The answer of the indexing process to one step. Raises ArchiveRefused when it fails."""
        task = {"uid": uid, "kind": kind, "content": content, "payload": str(payload) if payload else None,
                "payload_bytes": payload.stat().st_size if payload else 0}
        request = {"path": str(path), "indexUid": index_uid, "shape": shape, "budget": asdict(self._budget),
                   "tasks": [task]}
        try:
            answer = self._writer.run(request, _silently)
        except (WriterDied, WriterCrashed) as error:
            raise ArchiveRefused(f"{place} of the dump could not be indexed: {error}") from None
        (outcome,) = answer["outcomes"]
        if outcome["error"]:
            raise ArchiveRefused(f"{place} of the dump: {outcome['error']['message']}")
        return answer

    def _with_payload(self, instance: Instance, task: Task) -> Task:
        """A task that waits gets its documents, and all that waits a place in the queue of svcd."""
        if task.kind != "documentAdditionOrUpdate" or task.status != ENQUEUED:
            return task
        documents = self._dump / "tasks" / "update_files" / f"{task.uid}.jsonl"
        if not documents.exists():
            if (task.details or {}).get("receivedDocuments"):
                raise ArchiveRefused(f"{_NO_DOCUMENTS} Task {task.uid} waits, and its documents are not there.")
            documents.parent.mkdir(parents=True, exist_ok=True)
            documents.touch()
        payload = instance.queue.payload_folder / str(uuids.uuid4())
        documents.replace(payload)
        with payload.open("rb") as file:
            os.fsync(file.fileno())
        return replace(task, payload=payload.name, payload_bytes=payload.stat().st_size)

    # Entries

    def _json(self, name: str, absent: Any = None) -> Any:
        """The value of an entry. Raises ArchiveRefused when it is none, or is needed and not there."""
        try:
            return json.loads((self._dump / name).read_bytes())
        except FileNotFoundError:
            if absent is None:
                raise ArchiveRefused(f"the dump has no entry `{name}`") from None
            return absent
        except ValueError as error:
            raise ArchiveRefused(f"{name} of the dump is not JSON: {error}") from None

    def _lines(self, name: str, read: Callable[[Any], T]) -> Iterator[T]:
        path = self._dump / name
        if not path.exists():
            return
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield read(json.loads(line))
                except (KeyError, TypeError, ValueError) as error:
                    raise ArchiveRefused(f"{name} of the dump, line {number}: {_words(error)}") from None


def _completed(settings: Any) -> Any:
    """Settings with what was the default when the dump was written, where that is another one today."""
    for embedder in (settings.get("embedders") or {}).values() if isinstance(settings, dict) else ():
        if isinstance(embedder, dict) and embedder.get("source") == "huggingFace" and "pooling" not in embedder:
            embedder["pooling"] = "forceMean"
    return settings


def _words(error: Exception) -> str:
    return f"{error} is missing or unknown" if isinstance(error, KeyError) else str(error)


def _silently(_step: str, _finished: int, _total: int) -> None:
    """Nobody follows an import."""
