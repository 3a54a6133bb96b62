"""A task or a batch as it was at one of its changes, made from what became of it. Pure functions.

Knows which members of details are known only at the end; refuses to know where tasks are kept.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from svcd.store.changes import TO_ENQUEUED, TO_FINISHED
from svcd.store.records import ENQUEUED, PROCESSING, Batch, Task
from svcd.tasks.kinds import KINDS

# What an end adds to details, besides the counters of KINDS (tasks.md 5).
_NULL_BEFORE = {"dumpUid"}
_ABSENT_BEFORE = {"preCompactionSize", "postCompactionSize"}
_COUNTERS = {name for kind in KINDS.values() for name in kind.failed}


def task_at(task: Task, step: int) -> Task:
    """The task right after a change (TO_ENQUEUED and the others); the task itself for its last one."""
    if step == TO_FINISHED:
        return task
    before = replace(task, details=_before_end(task.details), canceled_by=None, error=None, finished_at=None)
    if step == TO_ENQUEUED:
        return replace(before, status=ENQUEUED, batch_uid=None, started_at=None)
    return replace(before, status=PROCESSING)


def batch_at(batch: Batch, step: int) -> Batch:
    """The batch right after a change."""
    if step == TO_FINISHED or batch.finished_at is None:
        return batch
    stats = {name: value for name, value in batch.stats.items() if name in ("totalNbTasks", "types", "indexUids")}
    stats["status"] = {PROCESSING: batch.stats.get("totalNbTasks", 0)}
    order = sorted(stats, key=list(batch.stats).index)  # answers have one order of members
    return replace(batch, finished_at=None, details=_before_end(batch.details) or {},
                   stats={name: stats[name] for name in order})


def _before_end(details: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if details is None:
        return None
    return {name: None if name in _COUNTERS or name in _NULL_BEFORE else value
            for name, value in details.items() if name not in _ABSENT_BEFORE}
