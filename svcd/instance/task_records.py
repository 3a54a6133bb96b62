"""The records of tasks and batches, the filters of their lists as SQL, and pages of lists."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

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
    """One task. Times in nanoseconds; details as responses show them, None for kinds without details.

    content: the work to do, with members by kind. payload: name of a file in the payload folder; payload_bytes: its size.
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
    """One batch. Times in nanoseconds; details and stats as responses show them; progress: None unless the batch runs."""

    uid: int
    started_at: int
    strategy: str
    details: dict[str, Any] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    finished_at: int | None = None
    progress: dict[str, Any] | None = None
    earliest_enqueued_at: int | None = None
    latest_enqueued_at: int | None = None


class TaskFilter(NamedTuple):
    """Conditions joined by AND, with the values of each joined by OR; None sets no condition. Date bounds are exclusive."""

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
        """Return whether a list with this filter would show the task in its present state."""
        wanted = ((self.uids, task.uid), (self.batch_uids, task.batch_uid), (self.statuses, task.status),
                  (self.kinds, task.kind), (self.index_uids, task.index_uid), (self.canceled_by, task.canceled_by))
        if any(values is not None and value not in values for values, value in wanted):
            return False
        bounds = ((self.before_enqueued_at, self.after_enqueued_at, task.enqueued_at),
                  (self.before_started_at, self.after_started_at, task.started_at),
                  (self.before_finished_at, self.after_finished_at, task.finished_at))
        return all(before is None and after is None if moment is None  # a missing moment meets no bound
                   else (before is None or moment < before) and (after is None or moment > after)
                   for before, after, moment in bounds)


class Page(NamedTuple, Generic[T]):
    """A page of a list. total: number of matches; from_uid: first uid of the page; next_uid: first uid of the next page."""

    results: list[T]
    total: int
    from_uid: int | None
    next_uid: int | None


# Filters as SQL conditions over the tables `tasks` and `batches`. "Processing" is not stored, so callers pass the tasks
# of running batches. See docs/tasks-and-batches.md#filters-and-lists.

Condition = tuple[str, list[Any]]

# Field of TaskFilter -> column, for a list of values.
_LISTS = {"uids": "uid", "batch_uids": "batch_uid", "kinds": "kind", "canceled_by": "canceled_by"}
# The index_uid of a swap is null, so a filter of indexes never shows a swap; but the total of the list counts the swap for the
# indexes that it names (recorded behaviour).
_SWAPS = ("uid IN (SELECT swapped.uid FROM tasks AS swapped, json_each(swapped.details, '$.swaps') AS pair, "
          "json_each(pair.value, '$.indexes') AS side WHERE swapped.kind = 'indexSwap' "
          "AND side.value IN (SELECT value FROM json_each(?)))")
# Field of TaskFilter -> condition on the date of a task, condition on the dates of a batch.
_DATES = {
    "before_enqueued_at": ("enqueued_at < ?", "earliest_enqueued_at < ?"),
    "after_enqueued_at": ("enqueued_at > ?", "latest_enqueued_at > ?"),
    "before_started_at": ("started_at < ?", "started_at < ?"),
    "after_started_at": ("started_at > ?", "started_at > ?"),
    "before_finished_at": ("finished_at < ?", "finished_at < ?"),
    "after_finished_at": ("finished_at > ?", "finished_at > ?"),
}


def among(column: str, values: Sequence[Any]) -> Condition:
    """Return the WHERE clause over the rows whose column has one of some values."""
    # One parameter for any number of values: a filter may name a million uids.
    return f"{column} IN (SELECT value FROM json_each(?))", [json.dumps(list(values))]


def _status(statuses: Sequence[str], running: Mapping[int, int]) -> Condition:
    """Return the condition on statuses. A running task is stored as enqueued, but matches only `processing`."""
    stored, values = among("status", [s for s in statuses if s != PROCESSING])
    among_running, uids = among("uid", list(running))
    if ENQUEUED in statuses and PROCESSING in statuses:
        return stored, values
    if PROCESSING in statuses:
        return f"({stored} OR {among_running})", values + uids
    return f"({stored} AND NOT {among_running})", values + uids


def task_condition(wanted: TaskFilter, running: Mapping[int, int], *, dates: bool = True,
                   counts_swaps: bool = False) -> Condition:
    """Return the WHERE clause over tasks. running: uid -> start of its batch. counts_swaps: a swap matches its indexes."""
    parts: list[Condition] = [among(column, getattr(wanted, name)) for name, column in _LISTS.items()
                              if getattr(wanted, name) is not None]
    if wanted.statuses is not None:
        parts.append(_status(wanted.statuses, running))
    if wanted.index_uids is not None:
        named, values = among("index_uid", wanted.index_uids)
        parts.append((f"({named} OR {_SWAPS})", values * 2) if counts_swaps else (named, values))
    if dates:
        for sql, (bound,) in _dates(wanted, 0):
            if sql.startswith("started_at"):  # a running task starts with its batch, which is not stored yet
                running_among, uids = among("uid", [uid for uid, started_at in running.items()
                                             if (started_at < bound if "<" in sql else started_at > bound)])
                parts.append((f"({sql} OR {running_among})", [bound, *uids]))
            else:
                parts.append((sql, [bound]))
    return _all_of(parts)


def batch_condition(wanted: TaskFilter, running: Mapping[int, int]) -> Condition:
    """Return the WHERE clause over batches: the dates of the batch match, and at least one of its tasks does."""
    of_tasks, values = task_condition(wanted, running, dates=False)
    parts = _dates(wanted, 1)
    if values:
        parts.append((f"uid IN (SELECT batch_uid FROM tasks WHERE {of_tasks})", values))
    return _all_of(parts)


def _dates(wanted: TaskFilter, which: int) -> list[Condition]:
    return [(conditions[which], [getattr(wanted, name)]) for name, conditions in _DATES.items()
            if getattr(wanted, name) is not None]


def _all_of(parts: Sequence[Condition]) -> Condition:
    return " AND ".join(sql for sql, _ in parts) or "1", [value for _, values in parts for value in values]
