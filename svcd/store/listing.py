"""Filters of tasks and batches as SQL conditions. Knows columns, runs nothing.

"Processing" is not stored: the caller says which tasks and batches run now.
"""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from svcd.store.records import ENQUEUED, PROCESSING, TaskFilter

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
