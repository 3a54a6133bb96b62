"""Tasks and batches as the queue holds them, and the filters and pages of their lists."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

ENQUEUED = "enqueued"
PROCESSING = "processing"
SUCCEEDED = "succeeded"
FAILED = "failed"
CANCELED = "canceled"
STATUSES = (ENQUEUED, PROCESSING, SUCCEEDED, FAILED, CANCELED)
FINISHED = (SUCCEEDED, FAILED, CANCELED)

T = TypeVar("T")


@dataclass
class Task:
    """One task. Moments are nanoseconds; details are as answers show them, None when the kind has none.

    content: what is to be done, by kind. payload: name of a file in the payload folder, payload_bytes its size.
    """

    uid: int
    kind: str
    index_uid: str | None
    status: str
    enqueued_at: int
    batch_uid: int | None = None
    canceled_by: int | None = None
    details: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    content: dict[str, Any] = field(default_factory=dict)
    payload: str | None = None
    payload_bytes: int = 0
    custom_metadata: str | None = None
    started_at: int | None = None
    finished_at: int | None = None


@dataclass
class Batch:
    """One batch: progress is None unless it is running, stats are as answers show them."""

    uid: int
    started_at: int
    strategy: str
    details: dict[str, Any] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    finished_at: int | None = None
    progress: dict[str, Any] | None = None
    earliest_enqueued_at: int | None = None
    latest_enqueued_at: int | None = None


@dataclass(frozen=True)
class TaskFilter:
    """Conditions joined by AND, the values of one by OR; None is no condition. Bounds are exclusive."""

    uids: Sequence[int] | None = None
    batch_uids: Sequence[int] | None = None
    statuses: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    index_uids: Sequence[str] | None = None
    canceled_by: Sequence[int] | None = None
    before_enqueued_at: int | None = None
    after_enqueued_at: int | None = None
    before_started_at: int | None = None
    after_started_at: int | None = None
    before_finished_at: int | None = None
    after_finished_at: int | None = None

    def is_met_by(self, task: Task) -> bool:
        """True for a task of which the list would show the row, were it as this one."""
        wanted = ((self.uids, task.uid), (self.batch_uids, task.batch_uid), (self.statuses, task.status),
                  (self.kinds, task.kind), (self.index_uids, task.index_uid), (self.canceled_by, task.canceled_by))
        if any(values is not None and value not in values for values, value in wanted):
            return False
        bounds = ((self.before_enqueued_at, self.after_enqueued_at, task.enqueued_at),
                  (self.before_started_at, self.after_started_at, task.started_at),
                  (self.before_finished_at, self.after_finished_at, task.finished_at))
        return all(_lies_between(moment, before, after) for before, after, moment in bounds)


def _lies_between(moment: int | None, before: int | None, after: int | None) -> bool:
    """Both bounds are exclusive, None is none; a moment that is not there meets no bound."""
    if moment is None:
        return before is None and after is None
    return (before is None or moment < before) and (after is None or moment > after)


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list: total counts all matches, next_uid is where the following page begins."""

    results: list[T]
    total: int
    from_uid: int | None
    next_uid: int | None


# Filters of tasks and batches as SQL conditions. Knows columns, runs nothing.
#
# "Processing" is not stored: the caller says which tasks and batches run now.


Condition = tuple[str, list[Any]]

# Field of TaskFilter -> column, for a list of values.
_LISTS = {"uids": "uid", "batch_uids": "batch_uid", "kinds": "kind", "canceled_by": "canceled_by"}
# A swap belongs to no index, but matches the indexes that it names: it counts, and is not shown.
_SWAPS = ("uid IN (SELECT swapped.uid FROM tasks AS swapped, json_each(swapped.details, '$.swaps') AS pair, "
          "json_each(pair.value, '$.indexes') AS side WHERE swapped.kind = 'indexSwap' "
          "AND side.value IN (SELECT value FROM json_each(?)))")
# Field of TaskFilter -> condition on the date of a task, on those of a batch.
_DATES = {
    "before_enqueued_at": ("enqueued_at < ?", "earliest_enqueued_at < ?"),
    "after_enqueued_at": ("enqueued_at > ?", "latest_enqueued_at > ?"),
    "before_started_at": ("started_at < ?", "started_at < ?"),
    "after_started_at": ("started_at > ?", "started_at > ?"),
    "before_finished_at": ("finished_at < ?", "finished_at < ?"),
    "after_finished_at": ("finished_at > ?", "finished_at > ?"),
}


def _among(column: str, values: Sequence[Any]) -> Condition:
    # One parameter whatever the length: a filter may name a million uids.
    return f"{column} IN (SELECT value FROM json_each(?))", [json.dumps(list(values))]


def _status(statuses: Sequence[str], running: Mapping[int, int]) -> Condition:
    """A running task matches `processing` and no longer `enqueued`."""
    stored, values = _among("status", [s for s in statuses if s != PROCESSING])
    among_running, uids = _among("uid", list(running))
    if ENQUEUED in statuses and PROCESSING in statuses:
        return stored, values
    if PROCESSING in statuses:
        return f"({stored} OR {among_running})", values + uids
    return f"({stored} AND NOT {among_running})", values + uids


def task_condition(wanted: TaskFilter, running: Mapping[int, int], *, dates: bool = True) -> Condition:
    """The WHERE clause of a filter over the tasks. running: task of a running batch -> when that started."""
    parts: list[Condition] = [_among(column, getattr(wanted, name)) for name, column in _LISTS.items()
                              if getattr(wanted, name) is not None]
    if wanted.statuses is not None:
        parts.append(_status(wanted.statuses, running))
    if wanted.index_uids is not None:
        named, values = _among("index_uid", wanted.index_uids)
        parts.append((f"({named} OR {_SWAPS})", values * 2))
    if dates:
        parts += [_or_running(part, running) for part in _dates(wanted, 0)]
    return _joined(parts)


def of_indexes(index_uids: Sequence[str]) -> Condition:
    """The WHERE clause over the tasks of some indexes, those without index left out."""
    return _among("index_uid", index_uids)


def batch_condition(wanted: TaskFilter, running: Mapping[int, int]) -> Condition:
    """The WHERE clause over the batches: one of its tasks matches, and its own dates do."""
    of_tasks, values = task_condition(wanted, running, dates=False)
    parts = _dates(wanted, 1)
    if values:
        parts.append((f"uid IN (SELECT batch_uid FROM tasks WHERE {of_tasks})", values))
    return _joined(parts)


def _dates(wanted: TaskFilter, which: int) -> list[Condition]:
    return [(conditions[which], [getattr(wanted, name)]) for name, conditions in _DATES.items()
            if getattr(wanted, name) is not None]


def _or_running(date: Condition, running: Mapping[int, int]) -> Condition:
    """A condition on the start is true of running tasks by the start of their batch: it is not stored yet."""
    sql, (bound,) = date
    if not sql.startswith("started_at"):
        return date
    among, uids = _among("uid", [uid for uid, started_at in running.items()
                                 if (started_at < bound if "<" in sql else started_at > bound)])
    return f"({sql} OR {among})", [bound, *uids]


def _joined(parts: Sequence[Condition]) -> Condition:
    return " AND ".join(sql for sql, _ in parts) or "1", [value for _, values in parts for value in values]
