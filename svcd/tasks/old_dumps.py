"""Converts dumps of versions 1 to 5 to version 6, inside the folder where they were unpacked.

Lists of tasks are read line by line. A malformed dump raises one of unpacking.MALFORMED, or OSError for a missing file. Values
that name files are checked first, because such a name could lead out of the folder. See docs/dumps.md#older-dumps.
"""
from __future__ import annotations

import json
import re
import shutil
import uuid as uuids
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from svcd.base.errors import ERRORS, error_object
from svcd.base.json_text import loads_wrapped
from svcd.base.quantities import SECOND, now, parse_rfc3339, rfc3339
from svcd.schema.settings import SETTINGS, ranking_rules
from svcd.tasks.unpacking import Malformed, quoted_value
from svcd.validation import FieldError

Json = dict[str, Any]
T = TypeVar("T")

_NEW = "modern"  # the folder in which version 6 is built
_ENQUEUED, _SUCCEEDED, _FAILED = "enqueued", "succeeded", "failed"
_RENAMED_CODES = {
    "invalid_min_word_length_for_typo": "invalid_settings_typo_tolerance",
    "primary_key_inference_failed": "index_primary_key_no_candidate_found",
    "invalid_filter": "invalid_settings_filterable_attributes",
    "invalid_sort": "invalid_settings_sortable_attributes",
    "invalid_geo_field": "invalid_document_geo_field",
    "invalid_ranking_rule": "invalid_settings_ranking_rules",
    "missing_parameter": "bad_request",
    "immutable_field": "bad_request",
    # Versions 1 to 3 use names from the source of the reference engine, version 3 in CamelCase.
    "create_index": "index_creation_failed",
    "missing_primary_key": "index_primary_key_no_candidate_found",
    "primary_key_already_present": "index_primary_key_already_exists",
    "filter": "invalid_settings_filterable_attributes",
    "sort": "invalid_settings_sortable_attributes",
    "invalid_store": "invalid_store_file",
    "invalid_token": "invalid_api_key",
    "retrieve_document": "unretrievable_document",
    "dump_already_in_progress": "dump_already_processing",
}
_ABORTED = "This task was aborted in an earlier version."
_DIRECTION = re.compile(r"^(asc|desc)\((.*)\)$")
_WORD = re.compile("(?<=[a-z])(?=[A-Z])")
_FILE_NAME = re.compile("[A-Za-z0-9_-]{1,400}", re.ASCII)


def convert_to_version_6(folder: Path, version: str) -> None:
    """Convert an unpacked dump in place. version: `V1` to `V5`."""
    new = folder / _NEW
    (new / "indexes").mkdir(parents=True)
    (new / "tasks" / "update_files").mkdir(parents=True)
    (new / "keys.jsonl").touch()
    _READERS[version](folder, new)
    for entry in folder.iterdir():
        if entry.name != _NEW:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for entry in new.iterdir():
        entry.replace(folder / entry.name)


# Shared by all versions

def _safe_name(name: Any) -> str:
    """Return a uid that is safe as the name of a file or folder. Raises Malformed for any other value."""
    if type(name) is int or isinstance(name, str) and _FILE_NAME.fullmatch(name):
        return str(name)
    raise Malformed(f"{quoted_value(name)} is not a uid")


def _first(values: Iterable[T]) -> T:
    """Return the first value. Raises Malformed for no values (StopIteration would end a calling generator silently)."""
    for value in values:
        return value
    raise Malformed("an object is empty")


def _lines(path: Path) -> Iterator[Any]:
    if path.exists():
        with path.open("rb") as lines:
            yield from (loads_wrapped(line) for line in lines if line.strip())


def _lines_backwards(path: Path) -> Iterator[Any]:
    """Yield the parsed lines of a file in reverse order, with one in memory at a time."""
    with path.open("rb") as lines:
        places = [0]
        for line in lines:
            places.append(places[-1] + len(line))
        for place in reversed(places[:-1]):
            lines.seek(place)
            line = lines.readline()
            if line.strip():
                yield loads_wrapped(line)


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False))


def _write_lines(path: Path, values: Iterable[Any]) -> None:
    with path.open("w") as lines:
        lines.writelines(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def _write_index(new: Path, uid: str, old: Path, primary_key: str | None, settings: Any, created_at: str | None,
                 updated_at: str | None) -> None:
    """Write an index with the documents in the folder `old`. Without dates it gets the present moment."""
    folder = new / "indexes" / _safe_name(uid)
    folder.mkdir()
    some = updated_at or created_at or rfc3339(now())
    _write(folder / "metadata.json", {"uid": uid, "primaryKey": primary_key, "createdAt": created_at or some, "updatedAt": some})
    _write(folder / "settings.json", _settings(settings))
    documents = old / "documents.jsonl"
    if documents.exists():
        documents.replace(folder / "documents.jsonl")
    else:
        (folder / "documents.jsonl").touch()


def _settings(settings: Json) -> Json:
    """Return settings in the form of version 6.

    `asc(x)` of versions 1 and 2 becomes `x:asc`; unknown ranking rules are dropped; filterableAttributes was a map in 0.21.
    """
    settings = dict(settings)
    if isinstance(settings.get("filterableAttributes"), dict):
        settings["filterableAttributes"] = list(settings["filterableAttributes"])
    if settings.get("rankingRules") is not None:
        rules = []
        for rule in settings["rankingRules"]:
            rule = _DIRECTION.sub(r"\2:\1", rule)
            with suppress(FieldError):
                ranking_rules.decode([rule], "")
                rules.append(rule)
        settings["rankingRules"] = rules
    return settings


def _task(uid: int, index_uid: str | None, status: str, kind: Any, details: Json | None, enqueued_at: str,
          started_at: str | None = None, finished_at: str | None = None, error: Any = None) -> Json:
    """Return the line of a task. error: gets today's codes; old forms are {message, code, ...}, {msg, code} and texts."""
    if error is not None:
        error = error if isinstance(error, dict) else {"message": str(error)}
        code = _WORD.sub("_", error.get("code") or error.get("errorCode") or "").lower()
        code = _RENAMED_CODES.get(code, code)
        error = dict(error_object(code if code in ERRORS else "unretrievable_error_code",
                                  error.get("message") or error.get("msg") or ""))
    line = {"uid": uid, "batchUid": None, "indexUid": index_uid, "status": status, "type": kind, "details": details,
            "error": error, "enqueuedAt": enqueued_at, "startedAt": started_at, "finishedAt": finished_at}
    return {name: value for name, value in line.items() if value is not None or name in ("batchUid", "indexUid")}


def _counted(count: int | None, status: str) -> int | None:
    """Return a counter for details: None while enqueued, 0 when failed."""
    return 0 if status == _FAILED else None if status == _ENQUEUED else count


def _import(status: str, primary_key: str | None, method: str, received: int, indexed: int | None,
            may_create: bool = True) -> tuple[Any, Json]:
    counts = {"received_documents": received, "indexed_documents": _counted(indexed, status)}
    return ({"documentImport": {"primary_key": primary_key, "method": method, "documents_count": received,
                                "allow_index_creation": may_create}}, {"DocumentAdditionOrUpdate": counts})


def _deletion(status: str, ids: Iterable[Any] | None, deleted: int | None) -> tuple[Any, Json]:
    """Return `type` and details of a deletion. ids: None deletes all documents."""
    if ids is None:
        return "documentClear", {"ClearAll": {"deleted_documents": _counted(deleted, status)}}
    listed = [str(each) for each in ids]
    return ({"documentDeletion": {"documents_ids": listed}},
            {"DocumentDeletion": {"provided_ids": len(listed), "deleted_documents": _counted(deleted, status)}})


def _settings_change(settings: Any, is_deletion: bool = False, may_create: bool = True) -> tuple[Any, Json]:
    settings = _settings(settings)
    return ({"settings": {"settings": settings, "is_deletion": is_deletion, "allow_index_creation": may_create}},
            {"SettingsUpdate": {"settings": settings}})


# Versions 4 and 5

def _read_v4_v5(folder: Path, new: Path) -> None:
    uid_file = folder / "instance-uid"
    if uid_file.exists():
        uid_file.replace(new / "instance_uid.uuid")
    # Version 4 has parts of the secrets instead of uids; each key gets a new uid.
    _write_lines(new / "keys.jsonl", ({
        "name": None, "description": None, "uid": str(uuids.uuid4()),
        **{name: value for name, value in line.items() if name != "id"},
        "actions": [action for action in line["actions"] if action != "dumps.get"]} for line in _lines(folder / "keys")))
    dates: dict[str, tuple[str, str]] = {}
    updates = folder / "updates"
    if (updates / "data.jsonl").exists():  # newest first
        tasks = (_v5_task(line, updates, new, dates) for line in _lines_backwards(updates / "data.jsonl"))
        _write_lines(new / "tasks" / "queue.jsonl", tasks)
    for line in _lines(folder / "index_uuids" / "data.jsonl"):
        old = folder / "indexes" / _safe_name(line["index_meta"]["uuid"])
        meta = loads_wrapped((old / "meta.json").read_bytes())
        _write_index(new, line["uid"], old, meta.get("primary_key"), meta["settings"], *dates.get(line["uid"], (None, None)))


def _v5_task(line: Json, updates: Path, new: Path, dates: dict[str, tuple[str, str]]) -> Json:
    """Convert one task. dates: index -> creation of its first finished task, end of its last one; is updated."""
    content, events = line["content"], line["events"]
    name, value = (content, {}) if isinstance(content, str) else _first(content.items())
    index_uid = line.get("index_uid") or (value.get("index_uid") if isinstance(value, dict) else None)
    moments = {event: moment for each in events for event, moment in each.items()}
    end = moments.get("Succeeded") or moments.get("Succeded") or moments.get("Failed")
    status = _FAILED if "Failed" in moments else _SUCCEEDED if end else _ENQUEUED
    result = end.get("result") if end and status == _SUCCEEDED else None
    kind, details = _v5_content(name, value, status, _first(result.values()) if isinstance(result, dict) else {})
    finished_at = end["timestamp"] if end else None
    if index_uid is not None and finished_at:
        dates[index_uid] = dates[index_uid][0] if index_uid in dates else moments["Created"], finished_at
    if name == "DocumentAddition" and status == _ENQUEUED:
        documents = updates / "updates_files" / _safe_name(value["content_uuid"])
        if documents.exists():
            documents.replace(new / "tasks" / "update_files" / f"{_safe_name(line['id'])}.jsonl")
    return _task(line["id"], index_uid, status, kind, details, moments["Created"],
                 moments.get("Processing") if end else None, finished_at, end.get("error") if end else None)


def _v5_content(name: str, value: Any, status: str, result: Json) -> tuple[Any, Json | None]:
    if name == "DocumentAddition":
        return _import(status, value["primary_key"], value["merge_strategy"], value["documents_count"],
                       result.get("indexed_documents"), value["allow_index_creation"])
    if name == "DocumentDeletion":
        deletion = value.get("deletion", value) if isinstance(value, dict) else value
        return _deletion(status, None if deletion == "Clear" else deletion["Ids"], result.get("deleted_documents"))
    if name == "SettingsUpdate":
        return _settings_change(value["settings"], value["is_deletion"], value["allow_index_creation"])
    if name == "IndexDeletion":
        return "indexDeletion", {"ClearAll": {"deleted_documents": _counted(result.get("deleted_documents"), status)}}
    if name == "Dump":
        return {"dumpCreation": {"keys": [], "instance_uid": None}}, {"Dump": {"dump_uid": value["uid"]}}
    kind = {"IndexCreation": "indexCreation", "IndexUpdate": "indexUpdate"}[name]
    return {kind: {"primary_key": value["primary_key"]}}, {"IndexInfo": {"primary_key": value["primary_key"]}}


# Versions 2 and 3

def _read_v2_v3(folder: Path, new: Path) -> None:
    uids = {line["uuid"]: line["uid"] for line in _lines(folder / "index_uuids" / "data.jsonl")}
    dates: dict[str, tuple[str, str]] = {}
    updates = folder / "updates"
    _write_lines(new / "tasks" / "queue.jsonl", (
        _v3_task(number, uids.get(line["uuid"]), line["update"], updates, new, dates)
        for number, line in enumerate(_lines(updates / "data.jsonl"))))
    for uuid, uid in uids.items():
        old = next(path for name in (_safe_name(uuid), f"index-{uuid}") if (path := folder / "indexes" / name).exists())
        meta = loads_wrapped((old / "meta.json").read_bytes())
        _write_index(new, uid, old, meta.get("primary_key"), meta["settings"], *dates.get(uid, (None, None)))


_V3_STATUSES = {"enqueued": _ENQUEUED, "processing": _ENQUEUED, "processed": _SUCCEEDED, "failed": _FAILED, "aborted": _FAILED}


def _v3_task(uid: int, index_uid: str | None, update: Json, updates: Path, new: Path, dates: dict[str, tuple[str, str]]) -> Json:
    status = _V3_STATUSES[update["status"]]
    success = update.get("success")
    result = _first(success.values()) if isinstance(success, dict) else {}
    name, value = _v3_meta(update["meta"])
    if name == "DocumentAddition":
        kind, details = _import(status, value.get("primary_key"), value["method"], 0, result.get("nb_documents"))
        if status == _ENQUEUED:
            received = _take_documents(updates, value.get("content_uuid") or update.get("content"), new, uid)
            kind, details = _import(status, value.get("primary_key"), value["method"], received, None)
    elif name == "Settings":
        kind, details = _settings_change(value)
    else:
        kind, details = _deletion(status, value, result.get("deleted"))
    finished_at = update.get("processedAt") or update.get("failedAt") or update.get("abortedAt")
    if index_uid is not None and finished_at:
        known = (*dates.get(index_uid, ()), finished_at)
        dates[index_uid] = min(known, key=parse_rfc3339), max(known, key=parse_rfc3339)
    # In version 3 the members of an error are members of the update.
    error = update.get("error") or ({name: update.get(name) for name in ("msg", "code")} if "msg" in update else None)
    error = {"message": _ABORTED} if update["status"] == "aborted" else error
    return _task(uid, index_uid, status, kind, details, update["enqueuedAt"],
                 update.get("startedProcessingAt") if status != _ENQUEUED else None, finished_at, error)


def _v3_meta(meta: Any) -> tuple[str, Any]:
    """Return operation and content of an update, in the names of version 3."""
    if isinstance(meta, str):  # "ClearDocuments"
        return "DeleteDocuments", None
    if "type" not in meta:
        name, value = _first(meta.items())
        return name, value
    rest = {name: value for name, value in meta.items() if name != "type"}
    return {"DocumentsAddition": ("DocumentAddition", rest), "Settings": ("Settings", rest),
            "ClearDocuments": ("DeleteDocuments", None),
            "DeleteDocuments": ("DeleteDocuments", rest.get("ids"))}[meta["type"]]


def _take_documents(updates: Path, uuid: str | None, new: Path, uid: int) -> int:
    """Move the documents of an enqueued update: a file of lines (version 3) or one list (2). Return their number."""
    target = new / "tasks" / "update_files" / f"{uid}.jsonl"
    if uuid is None:
        return 0
    listed, lines = updates / "update_files" / f"update_{_safe_name(uuid)}", updates / "updates_files" / uuid
    if listed.exists():
        documents = loads_wrapped(listed.read_bytes())
        _write_lines(target, documents)
        return len(documents)
    if lines.exists():
        lines.replace(target)
        with target.open("rb") as file:
            return sum(1 for _ in file)
    return 0


# Version 1

def _read_v1(folder: Path, new: Path) -> None:
    indexes = loads_wrapped((folder / "metadata.json").read_bytes())["indexes"]
    lines = (line for index in indexes for line in _v1_tasks(index["uid"], folder / _safe_name(index["uid"]) / "updates.jsonl"))
    _write_lines(new / "tasks" / "queue.jsonl", ({**line, "uid": uid} for uid, line in enumerate(lines)))
    for index in indexes:
        old = folder / index["uid"]
        _write_index(new, index["uid"], old, index.get("primaryKey"),
                     _v1_settings(loads_wrapped((old / "settings.json").read_bytes())), index["createdAt"],
                     index["updatedAt"])


def _v1_settings(settings: Json) -> Json:
    settings = dict(settings)
    if "attributesForFaceting" in settings:
        faceted = settings.pop("attributesForFaceting")
        settings |= {"filterableAttributes": faceted, "sortableAttributes": faceted}
    return settings


def _v1_tasks(index_uid: str, path: Path) -> Iterator[Json]:
    """Convert finished updates. Drop enqueued updates, and updates of the undocumented type `Customs`."""
    for update in _lines(path):
        about = update["type"]
        if update["status"] == "enqueued" or about["name"] == "Customs":
            continue
        status = _SUCCEEDED if update["status"] == "processed" else _FAILED
        error = {"message": update.get("error"), "code": update.get("errorCode")} if status == _FAILED else None
        kind, details = _V1_TYPES[about["name"]](status, about)
        started_at = parse_rfc3339(update["processedAt"]) - round(update["duration"] * SECOND)
        yield _task(0, index_uid, status, kind, details, update["enqueuedAt"], rfc3339(started_at), update["processedAt"], error)


def _v1_change(_status: str, about: Json) -> tuple[Any, Json]:
    """A change of settings; members are `Nothing`, `Clear` or {"Update": value}, in snake_case."""
    given = {re.sub("_(.)", lambda letter: letter[1].upper(), name):
             value["Update"] if isinstance(value, dict) else None
             for name, value in (about.get("settings") or {}).items() if value != "Nothing"}
    if rules := given.get("rankingRules"):
        given["rankingRules"] = [_v1_rule(rule) for rule in rules]
    change = _v1_settings(given)
    return _settings_change({setting.name: change[setting.name] for setting in SETTINGS if setting.name in change})


def _v1_rule(rule: str | Json) -> str:
    """Convert a ranking rule: `Typo` -> `typo`, {"Desc": "price"} -> `desc(price)`."""
    if isinstance(rule, str):
        return rule[:1].lower() + rule[1:]
    ((direction, attribute),) = rule.items()
    return f"{direction.lower()}({attribute})"


_V1_TYPES: Mapping[str, Callable[[str, Json], tuple[Any, Json]]] = {
    "ClearAll": lambda status, about: _deletion(status, None, None),
    "DocumentsAddition": lambda status, about: _import(status, None, "ReplaceDocuments", 0, about.get("number")),
    "DocumentsPartial": lambda status, about: _import(status, None, "UpdateDocuments", 0, about.get("number")),
    "DocumentsDeletion": lambda status, about: _deletion(status, (), about.get("number")),
    "Settings": _v1_change,
}

_READERS: Mapping[str, Callable[[Path, Path], None]] = {
    "V1": _read_v1, "V2": _read_v2_v3, "V3": _read_v2_v3, "V4": _read_v4_v5, "V5": _read_v4_v5}
VERSIONS = frozenset(_READERS)
