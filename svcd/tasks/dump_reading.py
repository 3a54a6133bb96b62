"""The lines of a dump of version 6 as keys, webhooks, tasks and batches: the other way of svcd.tasks.dump_writing.

Members that the format allows to be absent are filled in, those that are stored as they are have their type checked.
Refuses to know files. A line that is none of the format raises one of malformed.MALFORMED. Source: dumps.md 2.1, 2.2, 2.4.
"""
from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Mapping
from typing import Any

from svcd.auth.actions import ACTIONS
from svcd.base.times import parse_rfc3339
from svcd.instance.keys import KeyRow
from svcd.instance.task_records import CANCELED, ENQUEUED, PROCESSING, STATUSES, Batch, Task
from svcd.instance.webhooks import Webhook, merged_headers
from svcd.tasks import roaring
from svcd.tasks.batching import UNSPECIFIED
from svcd.tasks.dump_writing import MEMBERS, METHODS
from svcd.tasks.malformed import Malformed, named, shown

Json = Mapping[str, Any]

# svcd runs no tasks of these kinds: those that waited can only be shown.
_NEVER_RUN = frozenset(("export", "upgradeDatabase", "networkTopologyChange", "dsrUpdate", "dsrClear"))


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_map_of_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


_LARGEST = 2**63 - 1  # that a column holds
_OPTIONAL = "?"  # begins the names of members that may be absent or null
_TASK: Mapping[str, Callable[[Any], bool]] = {
    "uid": _is_number, "?indexUid": _is_text, "status": STATUSES.__contains__, "?batchUid": _is_number,
    "?canceledBy": _is_number, "?details": _is_object, "?error": _is_object, "?customMetadata": _is_text,
}
_BATCH: Mapping[str, Callable[[Any], bool]] = {"uid": _is_number, "stats": _is_object, "?details": _is_object,
                                               "?stopReason": _is_text, "?enqueuedAt": _is_object}
_WEBHOOK: Mapping[str, Callable[[Any], bool]] = {"url": _is_text, "?headers": _is_map_of_texts}
_KEY: Mapping[str, Callable[[Any], bool]] = {
    "uid": _is_text, "actions": _is_list_of_texts, "indexes": _is_list_of_texts, "?name": _is_text,
    "?description": _is_text,
}


def _check(line: Any, members: Mapping[str, Callable[[Any], bool]]) -> None:
    """Raise Malformed, or KeyError where a member lacks."""
    if not isinstance(line, dict):
        raise Malformed(f"{shown(line)} is no object")
    for spelled, is_right in members.items():
        name = spelled.removeprefix(_OPTIONAL)
        is_absent = name != spelled and line.get(name) is None
        if not is_absent and not is_right(line[name]):
            raise Malformed(f"`{name}` cannot be {shown(line[name])}")


def moment_of(text: Any) -> int:
    """Nanoseconds of a date-time. Raises Malformed."""
    try:
        moment = parse_rfc3339(text)
    except (TypeError, ValueError):
        raise Malformed(f"{shown(text)} is no date and time") from None
    if abs(moment) > _LARGEST:
        raise Malformed(f"{shown(text)} is no moment between the years 1678 and 2262")
    return moment


def _moment(text: Any) -> int | None:
    return None if text is None else moment_of(text)


def uid_of(text: Any) -> str:
    """A UUID in its usual spelling. Raises Malformed."""
    try:
        return str(uuids.UUID(text))
    except (AttributeError, TypeError, ValueError):
        raise Malformed(f"{shown(text)} is no UUID") from None


def key_of(line: Json) -> KeyRow:
    """A key. Malformed for an action that there is not."""
    _check(line, _KEY)
    unknown = [action for action in line["actions"] if action not in ACTIONS]
    if unknown:
        raise Malformed(f"the action {named(unknown[0])} is unknown")
    expires_at = line.get("expires_at")
    return KeyRow(uid_of(line["uid"]), line["actions"], line["indexes"], moment_of(line["created_at"]),
                  moment_of(line["updated_at"]), line.get("name"), line.get("description"),
                  None if expires_at is None else parse_rfc3339(expires_at))  # may be any year


def webhook_of(uuid: str, row: Json) -> Webhook:
    """A webhook of the map of them."""
    _check(row, _WEBHOOK)
    return Webhook(uid_of(uuid), row["url"], merged_headers(row.get("headers") or {}))


def primary_key_of(about: Json) -> str | None:
    """What the metadata of an index say of it."""
    _check(about, {"?primaryKey": _is_text})
    return about.get("primaryKey")


def document_of(line: Any) -> None:
    """Nothing, but Malformed where a line is no document."""
    _check(line, {})


def batch_of(line: Json) -> Batch:
    """A batch that ended."""
    _check(line, _BATCH)
    enqueued = line.get("enqueuedAt") or {}
    stats = line["stats"]
    return Batch(line["uid"], moment_of(line["startedAt"]), line.get("stopReason") or UNSPECIFIED,
                 line.get("details") or {}, stats, _moment(line.get("finishedAt")),
                 earliest_enqueued_at=_moment(enqueued.get("earliest")),
                 latest_enqueued_at=_moment(enqueued.get("oldest")))


def task_of(line: Json) -> Task:
    """A task, without its payload."""
    _check(line, _TASK)
    kind, content = _content(line["type"])
    status = ENQUEUED if line["status"] == PROCESSING else line["status"]  # who ran it is gone
    if status == ENQUEUED and kind in _NEVER_RUN:
        status = CANCELED
    return Task(
        line["uid"], kind, line["indexUid"], status, moment_of(line["enqueuedAt"]), line.get("batchUid"),
        line.get("canceledBy"), _details(kind, line.get("details")), line.get("error"), content,
        custom_metadata=line.get("customMetadata"), started_at=_moment(line.get("startedAt")),
        finished_at=_moment(line.get("finishedAt")))


def _content(kind: str | Json) -> tuple[str, dict[str, Any]]:
    """A type of the format: a text, or an object of one member."""
    if isinstance(kind, str):
        return _CONTENTS[kind]({})
    ((name, value),) = kind.items()
    return _CONTENTS[name](value)


def _of_kind(kind: str, read: Callable[[Json], dict[str, Any]]) -> Callable[[Json], tuple[str, dict[str, Any]]]:
    return lambda value: (kind, read(value))


def _nothing(_value: Json) -> dict[str, Any]:
    return {}


def _primary_key(value: Json) -> dict[str, Any]:
    return {"primaryKey": value.get("primary_key")}


def _tasks(value: Json) -> dict[str, Any]:
    return {"uids": roaring.unpacked(bytes(value["tasks"]))}


_METHODS = {name: method for method, name in METHODS.items()}
_CONTENTS: Mapping[str, Callable[[Json], tuple[str, dict[str, Any]]]] = {  # type of the format: kind and content
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
    "indexCreation": _of_kind("indexCreation", _primary_key),
    "indexDeletion": _of_kind("indexDeletion", _nothing),
    "indexUpdate": _of_kind("indexUpdate", _primary_key),
    "indexSwap": _of_kind("indexSwap", lambda value: {
        "swaps": [{"indexes": swap["indexes"], "rename": bool(swap.get("rename"))} for swap in value["swaps"]]}),
    "taskCancelation": _of_kind("taskCancelation", _tasks),
    "tasksDeletion": _of_kind("taskDeletion", _tasks),
    "dumpCreation": _of_kind("dumpCreation", lambda value: {
        "keys": value.get("keys") or [], "instanceUid": value.get("instance_uid")}),
    "snapshotCreation": _of_kind("snapshotCreation", _nothing),
    "indexCompaction": _of_kind("indexCompaction", _nothing),
    **{kind: _of_kind(kind, dict) for kind in sorted(_NEVER_RUN)},
}

_NAMES = {snake: camel for camel, snake in MEMBERS.items()}
# Of details, members that are shown only once they are there.
_ABSENT = ("index_uid", "new_index_uid", "old_index_uid", "api_key", "payload_size", "pre_compaction_size",
           "post_compaction_size")


def _details(kind: str, details: Json | None) -> dict[str, Any] | None:
    if details is None:
        return None
    ((name, members),) = details.items()
    if kind == "settingsUpdate":
        return dict(members["settings"])
    if kind == "upgradeDatabase":
        return {f"upgrade{end.capitalize()}": f"v{'.'.join(map(str, members[end]))}" for end in ("from", "to")}
    shown = {_NAMES.get(member, member): value for member, value in members.items()
             if member not in _ABSENT or member != "index_uid" and value is not None}
    if kind == "documentDeletion" and name != "ClearAll":
        return {"providedIds": 0, "deletedDocuments": None, "originalFilter": None} | shown
    return shown
