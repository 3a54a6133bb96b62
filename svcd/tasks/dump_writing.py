"""Keys, tasks and batches as the lines of a dump of version 6.

Knows the names and the order of members there; refuses to know files and archives. Source: dumps.md 2.1, 2.2, 2.4.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from svcd.base.times import rfc3339
from svcd.instance.keys import KeyRow
from svcd.instance.task_records import Batch, Task
from svcd.tasks import roaring

Json = dict[str, Any]

METHODS = {"replace": "ReplaceDocuments", "update": "UpdateDocuments"}


def _moment(nanoseconds: int | None) -> str | None:
    """A moment that may not have come: with all its digits, unlike in answers, for a dump loses nothing."""
    return None if nanoseconds is None else rfc3339(nanoseconds)


def key_line(row: KeyRow) -> Json:
    """A key. Its value is not part of it: it follows from the uid and the master key."""
    return {
        "description": row.description, "name": row.name, "uid": row.uid, "actions": list(row.actions),
        "indexes": list(row.indexes), "expires_at": _moment(row.expires_at),
        "created_at": rfc3339(row.created_at), "updated_at": rfc3339(row.updated_at),
    }


def batch_line(batch: Batch) -> Json:
    """A batch that ended."""
    line: Json = {
        "uid": batch.uid, "details": batch.details, "stats": batch.stats, "startedAt": rfc3339(batch.started_at),
        "finishedAt": _moment(batch.finished_at), "enqueuedAt": None, "stopReason": batch.strategy,
    }
    if batch.earliest_enqueued_at is not None and batch.latest_enqueued_at is not None:
        # `oldest` is the reference engine's word for the latest.
        line["enqueuedAt"] = {"earliest": rfc3339(batch.earliest_enqueued_at),
                              "oldest": rfc3339(batch.latest_enqueued_at)}
    return line


def task_line(task: Task) -> Json:
    """A task with its content; what is absent is left out, but for the batch and the index."""
    line: Json = {"uid": task.uid, "batchUid": task.batch_uid, "indexUid": task.index_uid, "status": task.status,
                  "type": TYPES[task.kind](task)}
    others = {
        "canceledBy": task.canceled_by, "details": _details(task), "error": task.error,
        "enqueuedAt": rfc3339(task.enqueued_at), "startedAt": _moment(task.started_at),
        "finishedAt": _moment(task.finished_at), "customMetadata": task.custom_metadata,
    }
    return line | {name: value for name, value in others.items() if value is not None}


# What is to be done

def _import(task: Task) -> Json:
    content = task.content
    return {"documentImport": {
        "primary_key": content.get("primaryKey"), "method": METHODS[content["method"]],
        "documents_count": (task.details or {}).get("receivedDocuments") or 0,
        "allow_index_creation": content.get("mayCreateIndex", True)}}


def _deletion(task: Task) -> str | Json:
    content = task.content
    if content.get("all"):
        return "documentClear"
    if "filter" in content:
        return {"documentDeletionByFilter": {"filter": content["filter"]}}
    ids = content["ids"]
    listed = json.loads(ids) if isinstance(ids, str) else ids
    return {"documentDeletion": {"documents_ids": [str(each) for each in listed]}}


def _edition(task: Task) -> Json:
    return {"documentEdition": {name: task.content.get(name) for name in ("filter", "context", "function")}}


def _settings(task: Task) -> Json:
    content = task.content
    return {"settings": {"settings": content["settings"], "is_deletion": bool(content.get("reset")),
                         "allow_index_creation": content.get("mayCreateIndex", True)}}


def _of_tasks(name: str) -> Callable[[Task], Json]:
    return lambda task: {name: {"query": (task.details or {}).get("originalFilter") or "",
                                "tasks": list(roaring.packed(task.content.get("uids") or ()))}}


def _dump(task: Task) -> Json:
    return {"dumpCreation": {"keys": task.content.get("keys") or [], "instance_uid": task.content.get("instanceUid")}}


TYPES: Mapping[str, Callable[[Task], str | Json]] = {  # kind: what the line says is to be done
    "documentAdditionOrUpdate": _import,
    "documentEdition": _edition,
    "documentDeletion": _deletion,
    "settingsUpdate": _settings,
    "indexCreation": lambda task: {"indexCreation": {"primary_key": task.content.get("primaryKey")}},
    "indexDeletion": lambda task: "indexDeletion",
    "indexUpdate": lambda task: {"indexUpdate": {"primary_key": task.content.get("primaryKey"), "uid": None}},
    "indexSwap": lambda task: {"indexSwap": {"swaps": task.content["swaps"]}},
    "taskCancelation": _of_tasks("taskCancelation"),
    "taskDeletion": _of_tasks("tasksDeletion"),
    "dumpCreation": _dump,
    "snapshotCreation": lambda task: "snapshotCreation",
    "indexCompaction": lambda task: {"indexCompaction": {"index_uid": task.index_uid}},
}


# What it shows

_NAMES: Mapping[str, str] = {  # kind: what its details are called; the three deletions differ by their members
    "documentAdditionOrUpdate": "DocumentAdditionOrUpdate", "documentEdition": "DocumentEdition",
    "indexCreation": "IndexInfo", "indexUpdate": "IndexInfo", "indexDeletion": "ClearAll", "indexSwap": "IndexSwap",
    "taskCancelation": "TaskCancelation", "taskDeletion": "TaskDeletion", "dumpCreation": "Dump",
}
MEMBERS = {
    "primaryKey": "primary_key", "receivedDocuments": "received_documents", "indexedDocuments": "indexed_documents",
    "deletedDocuments": "deleted_documents", "editedDocuments": "edited_documents", "providedIds": "provided_ids",
    "originalFilter": "original_filter", "matchedTasks": "matched_tasks", "canceledTasks": "canceled_tasks",
    "deletedTasks": "deleted_tasks", "dumpUid": "dump_uid",
    "newIndexUid": "new_index_uid", "oldIndexUid": "old_index_uid", "apiKey": "api_key", "payloadSize": "payload_size",
    "movedDocuments": "moved_documents", "preCompactionSize": "pre_compaction_size",
    "postCompactionSize": "post_compaction_size",
}


def _details(task: Task) -> Json | None:
    if task.details is None:
        return None
    if task.kind == "settingsUpdate":
        return {"SettingsUpdate": {"settings": task.details}}
    members = {MEMBERS.get(name, name): value for name, value in task.details.items()}
    if task.kind == "indexCompaction":
        return {"IndexCompaction": {"index_uid": task.index_uid, "pre_compaction_size": None,
                                    "post_compaction_size": None} | members}
    if task.kind == "documentDeletion":
        return _deletion_details(task, members)
    return {_NAMES[task.kind]: members}


def _deletion_details(task: Task, members: Json) -> Json:
    if task.content.get("all"):
        return {"ClearAll": members}
    if "filter" in task.content:
        return {"DocumentDeletionByFilter": {name: members[name] for name in ("original_filter", "deleted_documents")}}
    return {"DocumentDeletion": {name: members[name] for name in ("provided_ids", "deleted_documents")}}
