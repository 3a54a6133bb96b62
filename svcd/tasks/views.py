"""Tasks and batches as responses show them: joined details, stats, the JSON of a task, earlier states. Pure functions.

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
    """Join the details of a batch's tasks in one object.

    Numbers are added, filters and swaps concatenated, settings merged (the later task wins); of other texts the first is kept.
    Null is ignored where another task has a value; a text that is null in all tasks is absent.
    """
    together: dict[str, Any] = {}
    for task in tasks:
        if task.kind == "settingsUpdate":
            for name, value in (task.details or {}).items():
                held = together.get(name)
                together[name] = {**held, **value} if isinstance(held, dict) and isinstance(value, dict) else value
            continue
        for name, value in (task.details or {}).items():
            if value is None:
                if name in _COUNTERS:
                    together.setdefault(name, None)
                continue
            held = together.get(name)
            together[name] = value if held is None else _JOINS.get(name, _first)(held, value)
    return together


def _first(held: Any, value: Any) -> Any:
    return held + value if isinstance(held, int) and isinstance(value, int) else held


_COUNTERS = {name for kind in KINDS.values() for name in kind.failed}
_JOINS: Mapping[str, Any] = {
    "originalFilter": lambda held, value: f"{held}&{value}",
    "swaps": lambda held, value: held + value,
    "upgradeTo": lambda held, value: value,
}


def batch_stats(tasks: Sequence[Task], trace: Mapping[str, int] | None = None, embedder_requests: Mapping[str, Any] | None = None,
                figures: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the `stats` of a batch.

    Of a finished batch: trace: step path -> nanoseconds; embedder_requests: None without requests; figures: further members.
    """
    counts: dict[str, Any] = {
        "totalNbTasks": len(tasks), "status": dict(Counter(task.status for task in tasks)),
        "types": dict(Counter(task.kind for task in tasks)),
        "indexUids": dict(Counter(task.index_uid for task in tasks if task.index_uid is not None))}
    if trace is not None:
        counts["progressTrace"] = {path: duration_text(spent) for path, spent in trace.items()}
    counts |= figures or {}
    if embedder_requests is not None:
        counts["embedderRequests"] = embedder_requests
    return counts


_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "µs": 1_000, "ns": 1}  # largest first


def duration_text(nanoseconds: int) -> str:
    """Return a duration such as `1.23ms` or `4.56s`: in the largest unit that gives at least 1, with two decimals."""
    for unit, size in _UNITS.items():
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f}{unit}"
    return f"{nanoseconds:.2f}ns"


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration_text(), with the precision of its two decimals."""
    figure = text.rstrip("nµms")
    return round(float(figure) * _UNITS[text.removeprefix(figure)])


# One task as JSON, in lists, single responses and notices. The order of the members is part of the interface.

# The tasks of a batch share their start and end; to format these is half the cost of showing a task, so texts are cached.
_SHARED = 8


@lru_cache(_SHARED)
def moment_text(nanoseconds: int | None) -> str | None:
    """Return a moment as RFC 3339 text; None for a moment that has not come."""
    return None if nanoseconds is None else rfc3339_micro(nanoseconds)


@lru_cache(_SHARED)
def elapsed_text(started: int | None, finished: int | None) -> str | None:
    """Return the ISO 8601 duration between two moments; None until both have come."""
    return None if started is None or finished is None else iso_duration(finished - started)


def task_view(task: Task) -> dict[str, Any]:
    """Return a task as a JSON object."""
    view: dict[str, Any] = {"uid": task.uid, "batchUid": task.batch_uid, "indexUid": task.index_uid, "status": task.status,
                            "type": task.kind, "canceledBy": task.canceled_by}
    if task.details is not None:
        view["details"] = task.details
    view |= {"error": task.error, "duration": elapsed_text(task.started_at, task.finished_at),
             "enqueuedAt": rfc3339_micro(task.enqueued_at), "startedAt": moment_text(task.started_at),
             "finishedAt": moment_text(task.finished_at)}
    if task.custom_metadata is not None:
        view["customMetadata"] = task.custom_metadata
    return view


def task_line(task: Task) -> str:
    """Return a task as a line of NDJSON, without newline."""
    return dumps(task_view(task))


# Task history for event streams: earlier states of a task or batch, derived from its present state.

# Members of details that are known only at the end, besides the counters of KINDS.
_NULL_BEFORE = {"dumpUid"}
_ABSENT_BEFORE = {"preCompactionSize", "postCompactionSize"}


def task_at(task: Task, step: int) -> Task:
    """Return the task right after a change. step: TO_ENQUEUED, TO_PROCESSING or TO_FINISHED (the task itself)."""
    if step == TO_FINISHED:
        return task
    before = replace(task, details=_before_end(task.details), canceled_by=None, error=None, finished_at=None)
    if step == TO_ENQUEUED:
        return replace(before, status=ENQUEUED, batch_uid=None, started_at=None)
    return replace(before, status=PROCESSING)


def batch_at(batch: Batch, step: int) -> Batch:
    """Return the batch right after a change. step: TO_PROCESSING or TO_FINISHED."""
    if step == TO_FINISHED or batch.finished_at is None:
        return batch
    stats = {name: value for name, value in batch.stats.items() if name in ("totalNbTasks", "types", "indexUids")}
    stats["status"] = {PROCESSING: batch.stats.get("totalNbTasks", 0)}
    order = sorted(stats, key=list(batch.stats).index)  # members keep their order
    return replace(batch, finished_at=None, details=_before_end(batch.details) or {}, stats={name: stats[name] for name in order})


def _before_end(details: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if details is None:
        return None
    before: dict[str, Any] = {name: None if name in _COUNTERS or name in _NULL_BEFORE else value
                              for name, value in details.items() if name not in _ABSENT_BEFORE}
    if "indexes" in before:  # of an export, whose numbers of documents are known at the end
        before["indexes"] = {index_uid: {name: value for name, value in options.items() if name != "matched_documents"}
                             for index_uid, options in before["indexes"].items()}
    return before
