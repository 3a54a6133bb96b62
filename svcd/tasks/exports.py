"""The daemon's side of an export: the task, the request to the process that exports, the files that record its progress.

svcd.tasks.export is the side of the process. See docs/export.md.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from svcd.base.quantities import message_size
from svcd.instance.instance import Instance
from svcd.instance.task_records import Task
from svcd.validation.urls import redacted_secret, redacted_url

KIND = "export"
FOLDER = "exports"
# A target accepts bodies up to its own limit, which is usually the same as the limit of this instance.
_MARGIN, _LEAST_BYTES = 1 << 20, 20 << 20
_ALL = {"*": {"filter": None, "overrideSettings": False}}


def task_content(url: str, api_key: str | None, payload_bytes: int | None,
                 indexes: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return the content of a task. indexes: pattern -> options; None exports all indexes."""
    patterns = {pattern: {"filter": options.get("filter"), "overrideSettings": options.get("overrideSettings", False)}
                for pattern, options in (_ALL if indexes is None else indexes).items()}
    return {"url": url, "apiKey": api_key, "payloadSize": payload_bytes,
            "indexes": {pattern: patterns[pattern] for pattern in sorted(patterns, key=str.encode)}}


def task_details(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of an enqueued task."""
    details: dict[str, Any] = {"url": redacted_url(content["url"])}
    if content["apiKey"] is not None:
        details["apiKey"] = redacted_secret(content["apiKey"])
    if content["payloadSize"] is not None:
        details["payloadSize"] = message_size(content["payloadSize"])
    return details | {"indexes": content["indexes"]}


def export_request(task: Task, instance: Instance, payload_limit: int, networks: Sequence[str]) -> dict[str, Any]:
    """Return the request to the process that exports.

    payload_limit: largest body in bytes that this instance accepts; networks: private networks that may be called.
    """
    content = task.content
    given = content["payloadSize"]
    return {"do": KIND, "folder": str(instance.path), "record": str(_record_path(instance, task)), "url": content["url"],
            "apiKey": content["apiKey"], "payloadBytes": max(payload_limit - _MARGIN, _LEAST_BYTES) if given is None else given,
            "indexes": content["indexes"], "features": instance.features(), "networks": list(networks)}


def _record_path(instance: Instance, task: Task) -> Path:
    # The moment tells tasks of the same uid in different queues apart.
    return instance.path / FOLDER / f"{task.uid}-{task.enqueued_at}.sqlite"


def discard_records(instance: Instance, kept: Iterable[Task] = ()) -> None:
    """Delete the records of exports. kept: tasks whose records stay."""
    folder = instance.path / FOLDER
    names = {_record_path(instance, task).name for task in kept}
    for path in folder.iterdir() if folder.exists() else ():
        if path.name.removesuffix("-wal") not in names:
            path.unlink(missing_ok=True)
