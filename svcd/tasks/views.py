"""How tasks and batches are shown: joined details, stats, the JSON of a task, earlier states. Pure functions.

See docs/tasks-and-batches.md#details.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from svcd.base.json_text import dumps
from svcd.base.quantities import iso_duration, rfc3339_micro
from svcd.instance.task_changes import TO_ENQUEUED, TO_FINISHED
from svcd.instance.task_records import ENQUEUED, PROCESSING, Batch, Task
from svcd.tasks.batching import KINDS


def joined_details(tasks: Iterable[Task]) -> dict[str, Any]:
    """The details of a batch's tasks as one object.

    Numbers are added, filters and swaps concatenated, settings merged with the later task winning; of any other text the
    first is kept. Null is ignored where another task has a value; a text that is null in all tasks is absent.
    """
    together: dict[str, Any] = {}
    for task in tasks:
        if task.kind == "settingsUpdate":
            _merge(together, task.details or {})
            continue
        for name, value in (task.details or {}).items():
            if value is None:
                if name in _COUNTERS:
                    together.setdefault(name, None)
                continue
            held = together.get(name)
            together[name] = value if held is None else _JOINS.get(name, _first)(held, value)
    return together


def _merge(together: dict[str, Any], settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        held = together.get(name)
        together[name] = {**held, **value} if isinstance(held, dict) and isinstance(value, dict) else value


def _first(held: Any, value: Any) -> Any:
    return held + value if isinstance(held, int) and isinstance(value, int) else held


_COUNTERS = {name for kind in KINDS.values() for name in kind.failed}
_JOINS: Mapping[str, Any] = {
    "originalFilter": lambda held, value: f"{held}&{value}",
    "swaps": lambda held, value: held + value,
    "upgradeTo": lambda held, value: value,
}


def batch_stats(
    tasks: Sequence[Task], trace: Mapping[str, int] | None = None, embedder_requests: Mapping[str, Any] | None = None,
    figures: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The `stats` of a batch.

    trace: step path -> nanoseconds; embedder_requests: None without any; figures: further members; all of a finished batch.
    """
    counts: dict[str, Any] = {
        "totalNbTasks": len(tasks),
        "status": dict(Counter(task.status for task in tasks)),
        "types": dict(Counter(task.kind for task in tasks)),
        "indexUids": dict(Counter(task.index_uid for task in tasks if task.index_uid is not None)),
    }
    if trace is not None:
        counts["progressTrace"] = {path: duration_text(spent) for path, spent in trace.items()}
    counts |= figures or {}
    if embedder_requests is not None:
        counts["embedderRequests"] = embedder_requests
    return counts


_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "µs": 1_000, "ns": 1}  # largest first


def duration_text(nanoseconds: int) -> str:
    """`1.23ms`, `4.56s`: in the largest unit of which there is at least one, with two decimals."""
    for unit, size in _UNITS.items():
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f}{unit}"
    return f"{nanoseconds:.2f}ns"


def parse_duration(text: str) -> int:
    """The nanoseconds of a duration_text(), with the precision of its two decimals."""
    figure = text.rstrip("nµms")
    return round(float(figure) * _UNITS[text.removeprefix(figure)])


# One task as JSON, in lists, single responses and notices. The order of the members is part of the interface.

# The tasks of a batch share start and end, whose formatting is half of the cost of showing them.
_SHARED = 8


@lru_cache(_SHARED)
def moment_text(nanoseconds: int | None) -> str | None:
    """A moment as RFC 3339 text; None when it has not come."""
    return None if nanoseconds is None else rfc3339_micro(nanoseconds)


@lru_cache(_SHARED)
def elapsed_text(started: int | None, finished: int | None) -> str | None:
    """The ISO 8601 duration between two moments; None until both have come."""
    return None if started is None or finished is None else iso_duration(finished - started)


def task_view(task: Task) -> dict[str, Any]:
    """One task as a JSON object."""
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
        "duration": elapsed_text(task.started_at, task.finished_at),
        "enqueuedAt": rfc3339_micro(task.enqueued_at),
        "startedAt": moment_text(task.started_at),
        "finishedAt": moment_text(task.finished_at),
    }
    if task.custom_metadata is not None:
        view["customMetadata"] = task.custom_metadata
    return view


def task_line(task: Task) -> str:
    """One task as a line of NDJSON, without newline."""
    return dumps(task_view(task))


# Task history: a task or batch as it was at one of its changes, derived from its present state, for event streams.

# Members of details that are known only at the end, besides the counters of KINDS.
_NULL_BEFORE = {"dumpUid"}
_ABSENT_BEFORE = {"preCompactionSize", "postCompactionSize"}


def task_at(task: Task, step: int) -> Task:
    """The task right after a change. step: TO_ENQUEUED, TO_PROCESSING or TO_FINISHED (the task itself)."""
    if step == TO_FINISHED:
        return task
    before = replace(task, details=_before_end(task.details), canceled_by=None, error=None, finished_at=None)
    if step == TO_ENQUEUED:
        return replace(before, status=ENQUEUED, batch_uid=None, started_at=None)
    return replace(before, status=PROCESSING)


def batch_at(batch: Batch, step: int) -> Batch:
    """The batch right after a change. step: TO_PROCESSING or TO_FINISHED."""
    if step == TO_FINISHED or batch.finished_at is None:
        return batch
    stats = {name: value for name, value in batch.stats.items() if name in ("totalNbTasks", "types", "indexUids")}
    stats["status"] = {PROCESSING: batch.stats.get("totalNbTasks", 0)}
    order = sorted(stats, key=list(batch.stats).index)  # members keep their order
    return replace(batch, finished_at=None, details=_before_end(batch.details) or {},
                   stats={name: stats[name] for name in order})


def _before_end(details: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if details is None:
        return None
    return {name: None if name in _COUNTERS or name in _NULL_BEFORE else _without_matches(value) if name == "indexes" else value
            for name, value in details.items() if name not in _ABSENT_BEFORE}


def _without_matches(indexes: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The indexes of an export without the numbers of documents, which are known at the end."""
    return {index_uid: {name: value for name, value in options.items() if name != "matched_documents"}
            for index_uid, options in indexes.items()}
