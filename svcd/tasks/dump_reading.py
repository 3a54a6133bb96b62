"""The lines of a dump of version 6 as keys, tasks and batches: the other way of svcd.tasks.dump_lines.

Members that the format allows to be absent are filled in. Refuses to know files. A line that is none of the format
raises KeyError, TypeError or ValueError. Source: dumps.md 2.1, 2.2, 2.4.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from svcd.auth.actions import ACTIONS
from svcd.store.keys import KeyRow
from svcd.store.records import CANCELED, ENQUEUED, Batch, Task
from svcd.tasks import roaring
from svcd.tasks.batching import UNSPECIFIED
from svcd.tasks.dump_lines import MEMBERS, METHODS
from svcd.times import parse_rfc3339

Json = Mapping[str, Any]

# svcd runs no tasks of these kinds: those that waited can only be shown.
_NEVER_RUN = frozenset(("export", "upgradeDatabase", "networkTopologyChange", "dsrUpdate", "dsrClear"))


def _moment(text: str | None) -> int | None:
    return None if text is None else parse_rfc3339(text)


def key_of(line: Json) -> KeyRow:
    """A key. ValueError for an action that there is not."""
    unknown = [action for action in line["actions"] if action not in ACTIONS]
    if unknown:
        raise ValueError(f"the action `{unknown[0]}` is unknown")
    return KeyRow(line["uid"], line["actions"], line["indexes"], parse_rfc3339(line["created_at"]),
                  parse_rfc3339(line["updated_at"]), line.get("name"), line.get("description"),
                  _moment(line.get("expires_at")))


def batch_of(line: Json) -> Batch:
    """A batch that ended."""
    enqueued = line.get("enqueuedAt") or {}
    stats = line["stats"]
    return Batch(line["uid"], parse_rfc3339(line["startedAt"]), line.get("stopReason") or UNSPECIFIED,
                 line.get("details") or {}, stats, _moment(line.get("finishedAt")),
                 earliest_enqueued_at=_moment(enqueued.get("earliest")),
                 latest_enqueued_at=_moment(enqueued.get("oldest")))


def task_of(line: Json) -> Task:
    """A task, without its payload."""
    kind, content = _content(line["type"])
    status = line["status"]
    if status == ENQUEUED and kind in _NEVER_RUN:
        status = CANCELED
    return Task(
        line["uid"], kind, line["indexUid"], status, parse_rfc3339(line["enqueuedAt"]), line.get("batchUid"),
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
