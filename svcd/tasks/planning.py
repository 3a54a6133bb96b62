"""Chooses the next batch from the tasks in the queue and the running batches. See docs/tasks-and-batches.md."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from svcd.instance.instance import Instance
from svcd.instance.task_records import Task
from svcd.tasks import batching, global_tasks
from svcd.tasks.batching import KINDS, NEWEST_ALONE, IndexState, Limits, Plan
from svcd.tasks.jobs import ALL_INDEXES

CANCELATION, DELETION = "taskCancelation", "taskDeletion"
_BY_RANK = sorted((kind for kind, row in KINDS.items() if row.rank < 9), key=lambda kind: KINDS[kind].rank)
_BESIDE = {kind for kind, row in KINDS.items() if row.runs_beside}
_ARCHIVES = {kind for kind, row in KINDS.items() if row.is_archive}
_INDEX_KINDS = [kind for kind, row in KINDS.items() if row.rank == 9]
_RECORDED = [kind for kind, row in KINDS.items() if row.is_recorded and not row.is_global and not row.is_archive]


class Running(NamedTuple):
    """The batches and maintenance that run at a moment.

    indexes: uids of indexes with a batch or maintenance, ALL_INDEXES for an archive. most: number of indexes that may be busy.
    tasks: uids of the tasks of running batches. may_be_overtaken: whether every batch has run long enough for another batch to
    start beside it.
    """

    indexes: frozenset[str]
    most: int
    is_exporting: bool
    tasks: frozenset[int] = frozenset()
    may_be_overtaken: bool = True

    def leaves_free(self, index_uid: str | None) -> bool:
        """Return whether a batch of the index may start now."""
        return len(self.indexes) < self.most and self.leaves_alone([index_uid])

    def leaves_alone(self, uids: Sequence[str | None]) -> bool:
        """Return whether nothing that runs concerns any of these indexes."""
        return self.indexes.isdisjoint((*uids, ALL_INDEXES))


class Planner:
    """Plans batches of an instance, within limits."""

    def __init__(self, instance: Instance, limits: Limits) -> None:
        self._instance = instance
        self._queue = instance.queue
        self._limits = limits
        # Deletion -> running tasks that it waits for. Its content may name a million tasks, so it is not read until they end.
        self._awaited: dict[int, frozenset[int]] = {}

    def next_plan(self, running: Running) -> Plan | None:
        """Return the batch that may start now, or None."""
        kinds = self._queue.enqueued_kinds()
        if not running.may_be_overtaken:
            return self._plan_of_rank(CANCELATION, running) if CANCELATION in kinds else None
        for kind in _BY_RANK:
            if kind in kinds and (plan := self._plan_of_rank(kind, running)):
                return plan
        # While a dump or snapshot waits for idle indexes, no further batch of an index may start.
        return self._plan_of_oldest_task(running) if kinds & set(_INDEX_KINDS) and not kinds & _ARCHIVES else None

    def strategy(self, plan: Plan) -> str:
        """Return the text that says why the batch ends where it does."""
        is_all = plan.shape in batching.JOINS and len(plan.tasks) == self._queue.count_enqueued()
        return batching.ALL_TASKS if is_all else plan.strategy

    def already_applied(self) -> list[Plan]:
        """Return one batch per index of the tasks whose effect was committed before the last stop; for use after a start."""
        plans = []
        for index_uid in self._queue.enqueued_indexes():
            uuid = self._instance.uuid_of(index_uid)
            if applied := self._instance.batch_outcomes(uuid) if uuid else None:
                upcoming = self._queue.enqueued_of(index_uid, _RECORDED)
                if tasks := [*takewhile(lambda task: applied.covers(task.uid, task.enqueued_at), upcoming)]:
                    plans.append(Plan(tasks, batching.ALREADY_APPLIED, batching.UNSPECIFIED))
        return plans

    def _plan_of_rank(self, kind: str, running: Running) -> Plan | None:
        tasks = self._queue.enqueued([kind], newest_first=KINDS[kind].taken == NEWEST_ALONE)
        if kind == DELETION:
            tasks = self._deletions(running)
        elif kind in _BESIDE:
            tasks = (task for task in tasks if not running.is_exporting)
        elif kind in _ARCHIVES:
            tasks = (task for task in tasks if not running.indexes)
        elif not KINDS[kind].is_global:  # a compaction waits until its index is idle
            tasks = (task for task in tasks if running.leaves_free(task.index_uid))
        return batching.plan_by_rank(kind, tasks)

    def _deletions(self, running: Running) -> Iterator[Task]:
        """Yield the enqueued task deletions that do not name a running task."""
        enqueued = [task.uid for task in self._queue.enqueued([DELETION], with_content=False)]
        self._awaited = {uid: awaited & running.tasks for uid in enqueued if (awaited := self._awaited.get(uid))}
        free = [uid for uid in enqueued if not self._awaited.get(uid)]
        for task in self._queue.tasks_of(free, with_content=True):
            if awaited := running.tasks.intersection(batching.awaited_tasks([task])):
                self._awaited[task.uid] = awaited
            else:
                yield task

    def _plan_of_oldest_task(self, running: Running) -> Plan | None:
        """Return the batch of the oldest task whose index is idle. No task overtakes a swap or renaming that names its index."""
        swaps = [task for task in self._queue.enqueued(["indexSwap", "indexUpdate"]) if batching.is_renaming(task)]
        waiting: set[str] = set()
        for task in self._queue.enqueued(_INDEX_KINDS):
            uids, plan = global_tasks.indexes_of(task), None
            if not waiting.isdisjoint(uids):
                pass
            elif batching.is_renaming(task):
                if running.leaves_alone(uids):
                    plan = batching.plan_by_rank(task.kind, iter([task]))
            elif running.leaves_free(task.index_uid):
                barrier = min((swap.uid for swap in swaps if task.index_uid in global_tasks.indexes_of(swap)), default=1 << 63)
                following = self._queue.enqueued_of(task.index_uid or "", _INDEX_KINDS, task.uid)
                before = takewhile(lambda each: each.uid < barrier, following)  # noqa: B023  # read before the next task
                row = self._instance.index(task.index_uid or "")
                state = IndexState(row is not None, row.primary_key if row else None)
                plan = batching.plan_for_index(before, state, self._limits)
            if plan:
                return plan
            waiting.update(uids)
        return None
