"""Dry runs: what a task would do now, without it. See docs/tasks-and-batches.md#dry-runs.

A task that reads its index runs in a process of its own, which cannot write the index (svcd.index.dry_writer): it neither delays
batches nor takes the time of searches. Tasks that wait in the queue are not considered.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from svcd.base.errors import ApiError
from svcd.instance.instance import Instance
from svcd.instance.task_records import ENQUEUED, PROCESSING, Task, TaskFilter
from svcd.tasks import batching, global_tasks
from svcd.tasks.batching import INDEX_DELETION, IndexState, Limits, Plan
from svcd.tasks.indexing_client import IndexingProcess, MemoryBudget
from svcd.tasks.jobs import with_outcome
from svcd.tasks.process_batches import rejection_of, shape_of, task_request

# Kinds of tasks with a dry run; others do not change documents, settings or names.
KINDS = ("documentAdditionOrUpdate", "documentEdition", "documentDeletion", "settingsUpdate", "indexCreation", "indexUpdate",
         "indexDeletion", "indexSwap")
_MOST_PROCESSES = 2  # further dry runs wait
_ABSENT = "absent"  # the name of the file of an index that does not exist


class DryRuns:
    """Answers what tasks would do. budget, networks: of indexing processes; threads: how many processes a batch may use."""

    def __init__(self, instance: Instance, budget: MemoryBudget, networks: Sequence[str], threads: int,
                 make_process: Callable[[], IndexingProcess] = IndexingProcess) -> None:
        self._instance, self._budget, self._networks, self._threads = instance, budget, list(networks), threads
        self._make_process = make_process
        self._processes = threading.BoundedSemaphore(_MOST_PROCESSES)

    def answer(self, task: Task) -> dict[str, Any]:
        """Return the outcome of a task that is not enqueued, as JSON. Raises bad_request for kinds without dry run."""
        if task.kind not in KINDS:
            raise ApiError("bad_request", f"`dryRun` is not available for tasks of type `{task.kind}`: expected a task of type "
                                          f"{', '.join(f'`{kind}`' for kind in KINDS)}.")
        if batching.is_renaming(task):
            return self._shown(task, self._renamed(task), global_tasks.indexes_of(task))
        index_uid = task.index_uid or ""
        row = self._instance.index(index_uid)
        plan = batching.plan_for_index(iter([task]), IndexState(row is not None, row.primary_key if row else None), Limits())
        assert plan
        if rejection := rejection_of(self._instance, index_uid, plan):
            found: Mapping[str, Any] = {"outcome": {"details": {}, "error": rejection}}
        elif plan.shape == INDEX_DELETION and row:
            count = row.stats.get("documents", 0)
            found = {"outcome": {"details": {"deletedDocuments": count}, "error": None}, "work": {"cleared": count},
                     "documents": {"deleted": count}, "bytesOnDisk": -self._instance.index_path(row.uuid).stat().st_size}
        else:
            found = self._counted(task, plan, row.uuid if row else _ABSENT)
        return self._shown(task, found, [index_uid])

    def _renamed(self, task: Task) -> Mapping[str, Any]:
        try:
            global_tasks.new_names(self._instance, task)
        except ApiError as error:
            return {"outcome": {"details": {}, "error": error.as_json()}}
        return {"outcome": {"details": {}, "error": None}}

    def _counted(self, task: Task, plan: Plan, uuid: str) -> Mapping[str, Any]:
        request = {"do": "dryRun", "path": str(self._instance.index_path(uuid)), "indexUid": task.index_uid,
                   "shape": shape_of(plan), "budget": self._budget._asdict(), "threads": self._threads,
                   "networks": self._networks, "task": task_request(task, self._instance.queue.payload_folder)}
        with self._processes:
            process = self._make_process()
            try:
                return process.run(request, lambda *_: None)
            finally:
                process.close()

    def _shown(self, task: Task, found: Mapping[str, Any], uids: Sequence[str | None]) -> dict[str, Any]:
        ended, work, vectors = with_outcome(task, found["outcome"]), found.get("work", {}), found.get("vectors", {})
        counts = dict.fromkeys(("added", "replaced", "rewritten", "deleted"), 0) | found.get("documents", {})
        named = (ended.details or {}).get("indexedDocuments") or 0
        counts["unchanged"] = max(0, named - counts["added"] - counts["replaced"])
        removed, slowdown = found.get("removed", {}), found.get("slowdown", 1.0)
        waiting = self._instance.queue.list_tasks(
            TaskFilter(index_uids=[uid for uid in uids if uid], statuses=[ENQUEUED, PROCESSING]), 0, None, False)
        return {
            "dryRun": True, "type": task.kind, "indexUid": task.index_uid, "status": ended.status, "error": ended.error,
            "details": ended.details or {}, "settings": found.get("changes", {}), "documents": counts,
            "madeAgain": {"words": work.get("words", 0), "values": work.get("values", 0), "locations": work.get("located", 0),
                          "wordCounts": work.get("wordCounts", 0)},
            "vectors": {name: {"made": 0, "calls": 0, **vectors.get(name, {}), "removed": removed.get(name, 0)}
                        for name in sorted({*vectors, *removed})},
            "bytesWritten": found.get("bytesWritten", 0), "bytesOnDisk": found.get("bytesOnDisk", 0),
            "seconds": round(self._instance.rates.seconds(task.index_uid or "", work, vectors, slowdown), 2),
            "slowdown": round(slowdown, 2), "waitingTasks": waiting.total,
        }
