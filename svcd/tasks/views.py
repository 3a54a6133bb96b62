"""How one task is shown: in lists, in single answers, and in the notices that webhooks get.

Knows the members of a task and their order; refuses to know where the task comes from and who asked.
Source: tasks.md 4.
"""
from __future__ import annotations

from functools import lru_cache
from typing import Any

from svcd.jsontext import dumps
from svcd.store.records import Task
from svcd.times import iso_duration, rfc3339_micro


# The tasks of a batch share the moments of its beginning and its end: half of the work of showing them.
_SHARED = 8


@lru_cache(_SHARED)
def moment(nanoseconds: int | None) -> str | None:
    """A moment that may not have come yet."""
    return None if nanoseconds is None else rfc3339_micro(nanoseconds)


@lru_cache(_SHARED)
def duration(started: int | None, finished: int | None) -> str | None:
    """From one moment to another, once both have come."""
    return None if started is None or finished is None else iso_duration(finished - started)


def task_view(task: Task) -> dict[str, Any]:
    """One task as an object of JSON."""
    view: dict[str, Any] = {
        "uid": task.uid,
        "batchUid": task.batch_uid,
        "indexUid": task.index_uid,
        "status": task.status,
        "type": task.kind,
        "canceledBy": task.canceled_by,
    }
    if task.details is not None:
        view["details"] = task.details
    view |= {
        "error": task.error,
        "duration": duration(task.started_at, task.finished_at),
        "enqueuedAt": rfc3339_micro(task.enqueued_at),
        "startedAt": moment(task.started_at),
        "finishedAt": moment(task.finished_at),
    }
    if task.custom_metadata is not None:
        view["customMetadata"] = task.custom_metadata
    return view


def task_line(task: Task) -> str:
    """One task as a line of NDJSON, without its end."""
    return dumps(task_view(task))
