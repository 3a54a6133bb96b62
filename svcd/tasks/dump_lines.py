"""Writes and reads keys, tasks and batches as lines of a dump of version 6. See docs/dumps.md#version-6.

The readers fill in optional members, and check the type of each member that is stored unchanged. A malformed line raises one of
unpacking.MALFORMED.
"""
from __future__ import annotations

import json
import uuid as uuids
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any

from svcd.auth.keys import ACTIONS
from svcd.base import roaring_format
from svcd.base.errors import quoted_name
from svcd.base.quantities import message_size, parse_rfc3339, parse_size, rfc3339
from svcd.base.roaring_format import lows_of
from svcd.instance.rows import KeyRow
from svcd.instance.task_records import CANCELED, ENQUEUED, PROCESSING, STATUSES, Batch, Task
from svcd.instance.webhooks import Webhook, merged_headers
from svcd.rules.stored import INDEX_UID as RULES_INDEX_UID
from svcd.tasks.batching import UNSPECIFIED
from svcd.tasks.exports import task_content
from svcd.tasks.unpacking import Malformed, quoted_value

Json = dict[str, Any]
Line = Mapping[str, Any]

METHODS = {"replace": "ReplaceDocuments", "update": "UpdateDocuments"}


def pack_bitmap(numbers: Iterable[int]) -> bytes:
    """Return the bytes of a set of task uids below 2^32, without run containers (docs/dumps.md#roaring-bitmaps)."""
    return roaring_format.write([(high, [number & 0xFFFF for number in group]) for high, group
                                 in groupby(sorted(set(numbers)), key=lambda number: number >> 16)], may_have_runs=False)


def unpack_bitmap(content: bytes) -> list[int]:
    """Return the numbers of a set, ascending. Raises Malformed."""
    try:
        containers, _, _ = roaring_format.read(content)
    except ValueError as fault:
        raise Malformed(str(fault).replace("documents", "tasks")) from None
    return [high << 16 | low for high, lows in containers for low in (lows_of(lows) if isinstance(lows, int) else lows)]


def _moment(nanoseconds: int | None) -> str | None:
    """Return a moment with all its digits (responses have fewer, but a dump must be exact), or None."""
    return None if nanoseconds is None else rfc3339(nanoseconds)


def key_line(row: KeyRow) -> Json:
    """Return the line of a key, without its secret, which follows from uid and master key."""
    return {
        "description": row.description, "name": row.name, "uid": row.uid, "actions": list(row.actions),
        "indexes": list(row.indexes), "expires_at": _moment(row.expires_at), "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at)}


def batch_line(batch: Batch) -> Json:
    """Return the line of a finished batch."""
    line: Json = {
        "uid": batch.uid, "details": batch.details, "stats": batch.stats, "startedAt": rfc3339(batch.started_at),
        "finishedAt": _moment(batch.finished_at), "enqueuedAt": None, "stopReason": batch.strategy}
    if batch.earliest_enqueued_at is not None and batch.latest_enqueued_at is not None:
        # `oldest` is the reference engine's name for the latest moment.
        line["enqueuedAt"] = {"earliest": rfc3339(batch.earliest_enqueued_at), "oldest": rfc3339(batch.latest_enqueued_at)}
    return line


def task_line(task: Task) -> Json:
    """Return the line of a task with its content; null members are left out, except batchUid and indexUid."""
    line: Json = {"uid": task.uid, "batchUid": task.batch_uid, "indexUid": task.index_uid, "status": task.status,
                  "type": TYPES[task.kind](task)}
    others = {
        "canceledBy": task.canceled_by, "details": _details(task), "error": task.error, "enqueuedAt": rfc3339(task.enqueued_at),
        "startedAt": _moment(task.started_at), "finishedAt": _moment(task.finished_at), "customMetadata": task.custom_metadata}
    return line | {name: value for name, value in others.items() if value is not None}


# The `type` of a line, with the content of the task

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


def _query_and_tasks(task: Task) -> Json:
    return {"query": (task.details or {}).get("originalFilter") or "", "tasks": list(pack_bitmap(task.content.get("uids") or ()))}


def _export(task: Task) -> Json:
    content = task.content
    size = content.get("payloadSize")
    return {"export": {"url": content["url"], "api_key": content.get("apiKey"),
                       "payload_size": None if size is None else message_size(size), "indexes": content["indexes"]}}


def _rule_change(task: Task) -> Json:
    uid, update = task.content["uid"], task.content.get("update")
    return {"deletion": uid} if update is None else {"createOrUpdate": {"rule_id": uid, "update": update}}


TYPES: Mapping[str, Callable[[Task], str | Json]] = {  # kind -> `type` of the line
    "documentAdditionOrUpdate": _import,
    "documentEdition": lambda task: {
        "documentEdition": {name: task.content.get(name) for name in ("filter", "context", "function")}},
    "documentDeletion": _deletion,
    "settingsUpdate": lambda task: {"settings": {
        "settings": task.content["settings"], "is_deletion": bool(task.content.get("reset")),
        "allow_index_creation": task.content.get("mayCreateIndex", True)}},
    "indexCreation": lambda task: {"indexCreation": {"primary_key": task.content.get("primaryKey")}},
    "indexDeletion": lambda task: "indexDeletion",
    "indexUpdate": lambda task: {"indexUpdate": {
        "primary_key": task.content.get("primaryKey"), "uid": task.content.get("newIndexUid")}},
    "indexSwap": lambda task: {"indexSwap": {"swaps": task.content["swaps"]}},
    "taskCancelation": lambda task: {"taskCancelation": _query_and_tasks(task)},
    "taskDeletion": lambda task: {"tasksDeletion": _query_and_tasks(task)},
    "dumpCreation": lambda task: {
        "dumpCreation": {"keys": task.content.get("keys") or [], "instance_uid": task.content.get("instanceUid")}},
    "snapshotCreation": lambda task: "snapshotCreation",
    "export": _export,
    "indexCompaction": lambda task: {"indexCompaction": {"index_uid": task.index_uid}},
    "dsrUpdate": lambda task: {"dsrUpdate": _rule_change(task)},
    "dsrClear": lambda task: "dsrClear",
}


# Details of tasks

_NAMES: Mapping[str, str] = {  # kind -> name of its details; the name for deletions depends on their members
    "documentAdditionOrUpdate": "DocumentAdditionOrUpdate", "documentEdition": "DocumentEdition",
    "indexCreation": "IndexInfo", "indexUpdate": "IndexInfo", "indexDeletion": "ClearAll", "indexSwap": "IndexSwap",
    "taskCancelation": "TaskCancelation", "taskDeletion": "TaskDeletion", "dumpCreation": "Dump",
    "dsrClear": "ClearAll",
    "export": "Export",
}
MEMBERS = {
    "primaryKey": "primary_key", "receivedDocuments": "received_documents", "indexedDocuments": "indexed_documents",
    "deletedDocuments": "deleted_documents", "editedDocuments": "edited_documents", "providedIds": "provided_ids",
    "originalFilter": "original_filter", "matchedTasks": "matched_tasks", "canceledTasks": "canceled_tasks",
    "deletedTasks": "deleted_tasks", "dumpUid": "dump_uid", "newIndexUid": "new_index_uid", "oldIndexUid": "old_index_uid",
    "apiKey": "api_key", "payloadSize": "payload_size", "movedDocuments": "moved_documents",
    "preCompactionSize": "pre_compaction_size", "postCompactionSize": "post_compaction_size"}


def _details(task: Task) -> Json | None:
    if task.details is None:
        return None
    if task.kind == "settingsUpdate":
        return {"SettingsUpdate": {"settings": task.details}}
    members = {MEMBERS.get(name, name): value for name, value in task.details.items()}
    if task.kind == "indexCompaction":
        return {"IndexCompaction": {"index_uid": task.index_uid, "pre_compaction_size": None,
                                    "post_compaction_size": None} | members}
    if task.kind == "dsrUpdate":
        return {"DsrUpdate": _rule_change(task)}
    if task.kind != "documentDeletion":
        return {_NAMES[task.kind]: members}
    if task.content.get("all"):
        return {"ClearAll": members}
    if "filter" in task.content:
        return {"DocumentDeletionByFilter": {name: members[name] for name in ("original_filter", "deleted_documents")}}
    return {"DocumentDeletion": {name: members[name] for name in ("provided_ids", "deleted_documents")}}


# Reading

# Kinds that svcd shows but does not run: enqueued tasks of these kinds become canceled.
_NEVER_RUN = frozenset(("upgradeDatabase", "networkTopologyChange"))


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_LARGEST = 2**63 - 1  # of an INTEGER column
_OPTIONAL = "?"  # prefix of members that may be absent or null
Members = Mapping[str, Callable[[Any], bool]]  # name -> whether a value has the right type
_TASK: Members = {
    "uid": _is_number, "?indexUid": _is_text, "status": STATUSES.__contains__, "?batchUid": _is_number, "?canceledBy": _is_number,
    "?details": _is_object, "?error": _is_object, "?customMetadata": _is_text}
_BATCH: Members = {
    "uid": _is_number, "stats": _is_object, "?details": _is_object, "?stopReason": _is_text, "?enqueuedAt": _is_object}
_WEBHOOK: Members = {"url": _is_text, "?headers": lambda value: _is_object(value) and all(map(_is_text, value.values()))}
_KEY: Members = {
    "uid": _is_text, "actions": _is_list_of_texts, "indexes": _is_list_of_texts, "?name": _is_text, "?description": _is_text}


def _check(line: Any, members: Members) -> None:
    """Check the types of members. Raises Malformed, or KeyError for a missing member."""
    if not isinstance(line, dict):
        raise Malformed(f"{quoted_value(line)} is not an object")
    for spelled, is_right in members.items():
        name = spelled.removeprefix(_OPTIONAL)
        is_absent = name != spelled and line.get(name) is None
        if not is_absent and not is_right(line[name]):
            raise Malformed(f"`{name}` cannot be {quoted_value(line[name])}")


def moment_of(text: Any) -> int:
    """Return the nanoseconds of an RFC 3339 text. Raises Malformed."""
    try:
        moment = parse_rfc3339(text)
    except (TypeError, ValueError):
        raise Malformed(f"{quoted_value(text)} is not a date and time") from None
    if abs(moment) > _LARGEST:
        raise Malformed(f"{quoted_value(text)} is not between the years 1678 and 2262")
    return moment


def _optional_moment(text: Any) -> int | None:
    return None if text is None else moment_of(text)


def uid_of(text: Any) -> str:
    """Return a UUID in canonical form. Raises Malformed."""
    try:
        return str(uuids.UUID(text))
    except (AttributeError, TypeError, ValueError):
        raise Malformed(f"{quoted_value(text)} is not a UUID") from None


def key_of(line: Line) -> KeyRow:
    """Read a key. Raises Malformed for an unknown action."""
    _check(line, _KEY)
    unknown = [action for action in line["actions"] if action not in ACTIONS]
    if unknown:
        raise Malformed(f"the action {quoted_name(unknown[0])} is unknown")
    expires_at = line.get("expires_at")
    return KeyRow(uid_of(line["uid"]), line["actions"], line["indexes"], moment_of(line["created_at"]),
                  moment_of(line["updated_at"]), line.get("name"), line.get("description"),
                  None if expires_at is None else parse_rfc3339(expires_at))  # may be beyond 2262


def webhook_of(uuid: str, row: Line) -> Webhook:
    """Read a webhook of webhooks.json."""
    _check(row, _WEBHOOK)
    return Webhook(uid_of(uuid), row["url"], merged_headers(row.get("headers") or {}))


def primary_key_of(about: Line) -> str | None:
    """Return the primary key in the metadata of an index."""
    _check(about, {"?primaryKey": _is_text})
    return about.get("primaryKey")


def document_of(line: Any) -> None:
    """Raise Malformed when a line is not a document."""
    _check(line, {})


def batch_of(line: Line) -> Batch:
    """Read a finished batch."""
    _check(line, _BATCH)
    enqueued = line.get("enqueuedAt") or {}
    stats = line["stats"]
    return Batch(line["uid"], moment_of(line["startedAt"]), line.get("stopReason") or UNSPECIFIED,
                 line.get("details") or {}, stats, _optional_moment(line.get("finishedAt")),
                 earliest_enqueued_at=_optional_moment(enqueued.get("earliest")),
                 latest_enqueued_at=_optional_moment(enqueued.get("oldest")))


def task_of(line: Line) -> Task:
    """Read a task, without payload."""
    _check(line, _TASK)
    ((name, value),) = ((line["type"], {}),) if isinstance(line["type"], str) else line["type"].items()
    kind, content = _CONTENTS[name](value)
    status = ENQUEUED if line["status"] == PROCESSING else line["status"]  # the process that ran it is gone
    if status == ENQUEUED and kind in _NEVER_RUN:
        status = CANCELED
    index_uid = RULES_INDEX_UID if kind in ("dsrUpdate", "dsrClear") else line["indexUid"]
    return Task(
        line["uid"], kind, index_uid, status, moment_of(line["enqueuedAt"]), line.get("batchUid"),
        line.get("canceledBy"), _read_details(kind, line.get("details")), line.get("error"), content,
        custom_metadata=line.get("customMetadata"), started_at=_optional_moment(line.get("startedAt")),
        finished_at=_optional_moment(line.get("finishedAt")))


def _of_kind(kind: str, read: Callable[[Line], dict[str, Any]]) -> Callable[[Line], tuple[str, dict[str, Any]]]:
    return lambda value: (kind, read(value))


def _nothing(_value: Line) -> dict[str, Any]:
    return {}


def _tasks(value: Line) -> dict[str, Any]:
    return {"uids": unpack_bitmap(bytes(value["tasks"]))}


def _rule_content(value: Line) -> dict[str, Any]:
    if "deletion" in value:
        return {"uid": value["deletion"]}
    change = value["createOrUpdate"]
    return {"uid": change["rule_id"], "update": change["update"]}


_METHODS = {name: method for method, name in METHODS.items()}
_CONTENTS: Mapping[str, Callable[[Line], tuple[str, dict[str, Any]]]] = {  # type -> kind and content
    "documentImport": _of_kind("documentAdditionOrUpdate", lambda value: {
        "method": _METHODS[value["method"]], "primaryKey": value.get("primary_key"), "mayCreate": True,
        "mayCreateIndex": value.get("allow_index_creation", True)}),
    "documentDeletion": _of_kind("documentDeletion", lambda value: {"ids": value["documents_ids"]}),
    "documentClear": _of_kind("documentDeletion", lambda value: {"all": True}),
    "documentDeletionByFilter": _of_kind("documentDeletion", lambda value: {"filter": value["filter"]}),
    "documentEdition": _of_kind("documentEdition", lambda value: {
        "filter": value.get("filter"), "context": value.get("context"), "function": value["function"]}),
    "settings": _of_kind("settingsUpdate", lambda value: {
        "settings": value["settings"], "mayCreateIndex": value.get("allow_index_creation", True),
        "reset": value.get("is_deletion", False)}),
    "indexCreation": _of_kind("indexCreation", lambda value: {"primaryKey": value.get("primary_key")}),
    "indexDeletion": _of_kind("indexDeletion", _nothing),
    "indexUpdate": _of_kind("indexUpdate", lambda value: {
        "primaryKey": value.get("primary_key"), **({"newIndexUid": value["uid"]} if value.get("uid") else {})}),
    "indexSwap": _of_kind("indexSwap", lambda value: {
        "swaps": [{"indexes": swap["indexes"], "rename": bool(swap.get("rename"))} for swap in value["swaps"]]}),
    "taskCancelation": _of_kind("taskCancelation", _tasks),
    "tasksDeletion": _of_kind("taskDeletion", _tasks),
    "dumpCreation": _of_kind("dumpCreation", lambda value: {
        "keys": value.get("keys") or [], "instanceUid": value.get("instance_uid")}),
    "snapshotCreation": _of_kind("snapshotCreation", _nothing),
    "indexCompaction": _of_kind("indexCompaction", _nothing),
    "dsrUpdate": _of_kind("dsrUpdate", _rule_content),
    "dsrClear": _of_kind("dsrClear", _nothing),
    "export": _of_kind("export", lambda value: task_content(
        value["url"], value.get("api_key"), parse_size(size) if isinstance(size := value.get("payload_size"), str) else size,
        value.get("indexes"))),
    **{kind: _of_kind(kind, dict) for kind in sorted(_NEVER_RUN)},
}

_MEMBER_NAMES = {snake: camel for camel, snake in MEMBERS.items()}
# Members of details that are absent while they are null.
_ABSENT = ("index_uid", "new_index_uid", "old_index_uid", "api_key", "payload_size", "pre_compaction_size",
           "post_compaction_size")


def _read_details(kind: str, details: Line | None) -> dict[str, Any] | None:
    if details is None:
        return None
    ((name, members),) = details.items()
    if kind == "settingsUpdate":
        return dict(members["settings"])
    if kind == "upgradeDatabase":
        return {f"upgrade{end.capitalize()}": f"v{'.'.join(map(str, members[end]))}" for end in ("from", "to")}
    if kind == "dsrUpdate":
        update = _rule_content(members).get("update")
        return {"updatedRules": 1} if update is None else {"rule": update, "updatedRules": 1}
    shown = {_MEMBER_NAMES.get(member, member): value for member, value in members.items()
             if member not in _ABSENT or member != "index_uid" and value is not None}
    if kind == "documentDeletion" and name != "ClearAll":
        return {"providedIds": 0, "deletedDocuments": None, "originalFilter": None} | shown
    return shown
