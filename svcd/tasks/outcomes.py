"""Outcomes of the tasks of a batch: puts the answer of the indexing process into the rows of the tasks."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from svcd.instance.queue import RunningBatch
from svcd.instance.task_records import FAILED, SUCCEEDED, Task
from svcd.tasks import views
from svcd.tasks.batching import failed_details
from svcd.tasks.indexing_client import Progress


def sealed_outcome(ended: Sequence[Task], progress: Progress) -> dict[str, Any]:
    """Return the outcome of a batch that the leader has run, for the log of the cluster."""
    return {"trace": progress.end(), "requests": progress.embedder_requests, "figures": progress.figures,
            "digest": digest(ended)}


def digest(ended: Sequence[Task]) -> str:
    """Return a digest of the outcomes of a batch, to compare the nodes of a cluster."""
    outcomes = [[task.uid, task.status, task.details, task.error] for task in sorted(ended, key=lambda task: task.uid)]
    return hashlib.sha256(json.dumps(outcomes, sort_keys=True).encode()).hexdigest()


def crash_message(crash: Exception) -> str:
    """Return the error message of tasks whose process crashed."""
    return f"An unexpected crash occurred when processing the task: {str(crash).strip().splitlines()[-1]}"


def describe(running: RunningBatch) -> None:
    """Fill in details and stats of a batch that starts."""
    running.batch.details = views.joined_details(running.tasks.values())
    running.batch.stats = views.batch_stats(list(running.tasks.values()))


def with_outcome(task: Task, outcome: dict[str, Any]) -> Task:
    """Return a task that ended. outcome: its new `details`, and its `error` or None."""
    if outcome["error"]:
        return failed_task(task, outcome["error"])
    shown = task.details if task.details is None else {**task.details, **outcome["details"]}
    return replace(task, status=SUCCEEDED, details=shown)


def failed_task(task: Task, error: Any) -> Task:
    """Return a task that failed. error: an error object."""
    return replace(task, status=FAILED, error=dict(error), details=failed_details(task.kind, task.details))
