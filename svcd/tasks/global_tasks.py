"""Tasks that change only instance.sqlite: cancelation, deletion, swaps; and the automatic clean-up.

Each runs inside the transaction that ends it. See docs/tasks-and-batches.md#cancelation-and-deletion and #swaps.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from svcd.base import quantities
from svcd.base.errors import ApiError
from svcd.instance.instance import Instance
from svcd.instance.queue import Queue, RunningBatch
from svcd.instance.task_records import CANCELED, ENQUEUED, FAILED, FINISHED, SUCCEEDED, Task, TaskFilter
from svcd.tasks.batching import failed_details
from svcd.tasks.indexing_client import Progress

MAX_TASKS = 1_000_000
CLEAN_UP_SIZE = 100_000


def indexes_of(task: Task) -> Sequence[str]:
    """The uids of the indexes that a task names."""
    if task.kind == "indexSwap":
        return [index_uid for swap in task.content["swaps"] for index_uid in swap["indexes"]]
    return [task.index_uid] if task.index_uid is not None else []


def run(instance: Instance, connection: sqlite3.Connection, running: RunningBatch, progress: Progress) -> list[Task]:
    """Run a batch of global tasks; returns the tasks that end with it, canceled ones included."""
    ended: list[Task] = []
    for task in running.tasks.values():
        try:
            shown, others = _ACTIONS[task.kind](instance, connection, task, progress)
        except ApiError as error:
            ended.append(replace(task, status=FAILED, error=dict(error.as_json()),
                                 details=failed_details(task.kind, task.details)))
            continue
        ended += [replace(task, status=SUCCEEDED, details={**(task.details or {}), **shown}), *others]
    return ended


def _cancel(instance: Instance, connection: sqlite3.Connection, task: Task,
            progress: Progress) -> tuple[dict[str, Any], list[Task]]:
    progress("retrieving tasks", 0, 1)
    others = [each for each in instance.queue.tasks_of(task.content["uids"])
              if each.status == ENQUEUED and each.uid != task.uid]
    progress("updating tasks", 0, len(others))
    canceled = [replace(each, status=CANCELED, canceled_by=task.uid, batch_uid=task.batch_uid,
                        details=failed_details(each.kind, each.details)) for each in others]
    return {"canceledTasks": len(canceled)}, canceled


def _delete(instance: Instance, connection: sqlite3.Connection, task: Task,
            progress: Progress) -> tuple[dict[str, Any], list[Task]]:
    progress("deleting tasks", 0, len(task.content["uids"]))
    return {"deletedTasks": instance.queue.delete(connection, task.content["uids"])}, []


def _swap(instance: Instance, connection: sqlite3.Connection, task: Task,
          progress: Progress) -> tuple[dict[str, Any], list[Task]]:
    progress("ensuring correctness of the swap", 0, 1)
    names: dict[str, str] = {}
    taken: list[tuple[str, str]] = []
    missing: list[str] = []
    for swap in task.content["swaps"]:
        (left, right), is_rename = swap["indexes"], swap.get("rename", False)
        names |= {left: right, right: left}
        if is_rename and instance.index(right):
            taken.append((left, right))
        missing += [each for each in ([left] if is_rename else [left, right]) if not instance.index(each)]
    _check_swaps(sorted(missing), taken)
    progress("swapping the indexes", 0, 1)
    instance.rename_indexes(connection, names)
    progress("update the tasks", 0, 1)
    instance.queue.rename_indexes(connection, names, task.uid)
    return {}, []


def _check_swaps(missing: Sequence[str], taken: Sequence[tuple[str, str]]) -> None:
    if missing:
        raise ApiError("index_not_found", f"{'Index' if len(missing) == 1 else 'Indexes'} {_quoted_uids(missing)} not found.")
    if len(taken) == 1:
        (left, right), = taken
        raise ApiError("index_already_exists", f"Cannot rename `{left}` to `{right}` as the index already exists. "
                                               f"Hint: You can remove `{right}` first and then do your remove.")
    if taken:
        which = _quoted_uids(sorted(right for _, right in taken))
        raise ApiError("index_already_exists",
                       "The following indexes are being renamed but cannot because their new name conflicts with an "
                       f"already existing index: {which}. Renaming doesn't overwrite the other index name.")


def _quoted_uids(index_uids: Sequence[str]) -> str:
    return ", ".join(f"`{index_uid}`" for index_uid in index_uids)


_Action = Callable[[Instance, sqlite3.Connection, Task, Progress], tuple[dict[str, Any], list[Task]]]
_ACTIONS: dict[str, _Action] = {"taskCancelation": _cancel, "taskDeletion": _delete, "indexSwap": _swap}


def remove_payloads(queue: Queue, ended: Sequence[Task]) -> None:
    """After the commit: delete the payloads of tasks that ended."""
    for task in ended:
        queue.remove_payload(task.payload)


def clean_up(queue: Queue) -> None:
    """When MAX_TASKS are stored, enqueue the deletion of the oldest CLEAN_UP_SIZE finished ones."""
    if queue.count_at_most(MAX_TASKS) < MAX_TASKS or "taskDeletion" in queue.enqueued_kinds():
        return
    before = quantities.now()
    wanted = TaskFilter(statuses=FINISHED, before_enqueued_at=before)
    uids = queue.matching(wanted)[:CLEAN_UP_SIZE]
    if uids:
        newest = queue.task(uids[-1])
        moment = quantities.rfc3339_micro(newest.enqueued_at if newest else before)
        queue.enqueue("taskDeletion", None, content={"uids": uids}, details={
            "matchedTasks": len(uids), "deletedTasks": None,
            "originalFilter": f"?beforeEnqueuedAt={moment}&statuses=succeeded,failed,canceled"})
