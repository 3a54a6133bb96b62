"""The runner: takes enqueued tasks in batches, has them done, and stores how they ended.

Threads: one dispatcher ("svcd-runner") chooses the next batch and runs tasks that need only instance.sqlite (cancelations,
deletions, swaps). Each of `workers` others ("svcd-indexing-N") owns an indexing process and runs batches of one index at a
time, or writes a dump or snapshot; that waits until no index is written, and none is until it is complete, so that it shows
all indexes in one state. An export, one at a time, has a thread ("svcd-export") and a process of its own while it runs: it only
reads and mostly waits for the network. A batch starts beside others once each of them has run for `parallel_after_s`
seconds; the dispatcher waits on `_changed` until then, or until one ends. `_changed` guards `_busy`, `_jobs`, `_export`,
`_idle` and `_stopping`.

A batch ends in one transaction of instance.sqlite: tasks, batch, row of the index, and notice for the webhooks. Its effect and
the outcomes of its tasks were committed before, in the file of the index. When svcd stops in between, the tasks are still
enqueued; they are claimed again and get the stored outcomes instead of being applied twice. So at any moment of a crash a
task is either enqueued, or finished with its effect and its notice. See docs/tasks-and-batches.md#commit-and-crash.
"""
from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from svcd.base import logs, quantities
from svcd.base.errors import error_object
from svcd.index import kept_embeddings
from svcd.index.disk_space import MOST_BYTES
from svcd.instance import applied_log
from svcd.instance.applied_log import BegunBatch, ClusterStopped
from svcd.instance.data_folder import IndexRow, missing_file_error, note_damage
from svcd.instance.instance import Instance
from svcd.instance.queue import SPACE_FREEING_KINDS, RunningBatch
from svcd.instance.task_records import SUCCEEDED, Batch, Task
from svcd.tasks import batching, global_tasks, views
from svcd.tasks.batching import INDEX_DELETION, Limits, Plan, changes_index
from svcd.tasks.indexing_client import (
    IndexingProcess,
    IndexingProcessCrashed,
    IndexingProcessDied,
    MemoryBudget,
    Progress,
    ReportProgress,
    Step,
)
from svcd.tasks.jobs import ALL_INDEXES, Job, Maintenance
from svcd.tasks.outcomes import crash_message, describe, digest, failed_task, sealed_outcome, with_outcome
from svcd.tasks.planning import Planner, Running
from svcd.tasks.shared_log import Cluster
from svcd.tasks.views import task_line

_MOST_CRASHES = 3
# Indexing processes that may be killed one after the other once a batch is committed, or while an unseen commit is overwritten.
_MOST_DEATHS = 10

OnBatch = Callable[[Batch, Sequence[Task]], None]


class Runner:
    """Runs the tasks of an instance.

    on_batch: called with each batch that ended and its tasks; on_bug: with the text of unexpected errors. retry_s: seconds
    until a batch that could not be finished is tried again. quiet_s: seconds without a task before postings are
    materialized. spare_s: seconds until an idle indexing process ends, unless it is the only idle one. folders: where dumps and
    snapshots go. networks: those that embedders and exports may call though they are not global. payload_limit: bytes of the
    bodies that this instance accepts. cluster: the log that several nodes share; then its leader plans batches, and every node
    runs those that the log has begun, in its order. parallel_after_s: seconds that a batch runs, by `clock`, before others may
    start beside it.

    Indexes whose postings should be materialized are known from their last batch, and after a start from a look at the larger
    ones.
    """

    def __init__(self, instance: Instance, *, workers: int = 1, limits: Limits = Limits(), budget: MemoryBudget = MemoryBudget(),
                 on_batch: OnBatch = lambda batch, tasks: None, on_bug: Callable[[str], None] = print,
                 make_writer: Callable[[int], IndexingProcess] = IndexingProcess, retry_s: float = 1.0,
                 quiet_s: float = 0.3, spare_s: float = 5.0, folders: global_tasks.Folders = global_tasks.Folders(),
                 networks: Sequence[str] = (), payload_limit: int = 100_000_000, cluster: Cluster | None = None,
                 parallel_after_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._instance = instance
        self._queue = instance.queue
        self._planner = Planner(instance, limits)
        self._budget = budget
        self._folders = folders
        self._networks = list(networks)
        self._payload_limit = payload_limit
        self._cluster = cluster
        self._parallel_after_s = parallel_after_s
        self._clock = clock
        self._waiting: list[Job] = []  # batches that the log has begun and that are not started here yet, in its order
        self._crashes: dict[int, int] = {}  # uid of such a batch -> how often the indexing process crashed
        self._retry_s = retry_s
        self._quiet_s = quiet_s
        self._spare_s = spare_s
        self._on_batch = on_batch
        self._on_bug = on_bug
        self._changed = threading.Condition()
        self._busy: dict[str, Job | Maintenance] = {}
        self._jobs: list[Job | Maintenance] = []
        self._export: Job | None = None
        self._stale: dict[str, None] | None = None  # uids of indexes whose postings should be materialized; None: not yet known
        self._idle: list[IndexingProcess] = []  # those whose threads wait for a job
        self._stopping = False
        self._is_woken = True
        self._is_recovered = False
        self._threads = [threading.Thread(target=self._dispatch, name="svcd-runner")]
        self._export_thread: threading.Thread | None = None
        self._writers = [make_writer(instance.lock_descriptor) for _ in range(workers)]
        self._exporter = make_writer(instance.lock_descriptor)
        self._threads += [threading.Thread(target=self._work, args=(writer,), name=f"svcd-indexing-{n}")
                          for n, writer in enumerate(self._writers)]

    # Start and stop

    def start(self) -> None:
        """Start the threads."""
        self._queue.on_enqueued = self.wake
        if self._cluster is not None:
            self._join(self._cluster)
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Have the dispatcher look for tasks; called after each enqueueing."""
        with self._changed:
            self._is_woken = True
            self._interrupt_maintenance()
            self._changed.notify_all()

    def _interrupt_maintenance(self) -> None:
        for job in self._busy.values():
            if isinstance(job, Maintenance) and job.writer:
                job.writer.interrupt()

    def stop(self, grace_s: float = 5.0) -> None:
        """Claim no more tasks; let running batches end for `grace_s` seconds, then kill and requeue them."""
        with self._changed:
            self._stopping = True
            self._interrupt_maintenance()
            running = list(self._busy.values())
            self._changed.notify_all()
        self._exporter.kill()  # it may take hours, and goes on where it was
        deadline = quantities.now() + int(grace_s * quantities.SECOND)
        for job in running:
            job.done.wait(max(0.0, (deadline - quantities.now()) / quantities.SECOND))
        for writer in self._writers:
            writer.kill()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for writer in self._writers:
            writer.close()
        if self._export_thread:
            self._export_thread.join()

    def step(self) -> bool:
        """Run the next batch to its end in this thread, on a runner that was not started; False when there is none."""
        if not self.claim_next():
            return False
        self.run_claimed()
        return True

    def run_claimed(self) -> None:
        """Run the claimed batches to their end in this thread, on a runner that was not started."""
        while self._jobs:
            self._run_claimed_job(self._jobs.pop(0), self._writers[0])
        if self._export:
            self._run_export_job(self._export)

    # Choose the next batch

    def _dispatch(self) -> None:
        while True:
            with self._changed:
                is_quiet = not self._changed.wait_for(lambda: self._stopping or self._is_woken, self._time_to_look())
                self._is_woken = False
                if self._stopping:
                    return
            try:
                while not self._stopping and self.claim_next():
                    pass
                if is_quiet and not self._busy:
                    self._claim_maintenance()
            except Exception as error:  # such as a full disk: the tasks stay enqueued
                self._on_bug(f"the runner could not go on: {error!r}")
                self._pause()
                self.wake()

    def _pause(self) -> None:
        """Wait before a retry, unless svcd stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, self._retry_s)

    def claim_next(self) -> bool:
        """Claim the next batch; False when there is none, or no free worker. Global tasks are run at once."""
        if not self._is_recovered:
            self._is_recovered = True
            if self._recover():
                return True
        if self._cluster is not None:
            if self._start_waiting():
                return True
            if self._waiting or not self._cluster.is_leading():
                return False
        global_tasks.clean_up(self._queue)
        plan = self._planner.next_plan(self._running())
        if plan is None:
            return False
        if self._cluster is not None:
            return self._cluster.begin(plan.tasks, plan.shape, self._planner.strategy(plan))
        return self._start_batch(plan)

    def _recover(self) -> bool:
        """Once after the start: end tasks whose effect was committed before the stop, before anything can cancel them."""
        if self._cluster is not None:  # its batches are run again, and answer with the stored outcomes
            self._instance.discard_unlisted_files([job.index_uid for job in self._waiting])
            return False
        plans = self._planner.already_applied()
        self._instance.discard_unlisted_files([plan.tasks[0].index_uid or "" for plan in plans])
        return any([self._start_batch(plan) for plan in plans])  # noqa: C419 (no short circuit: all are started)

    def _running(self) -> Running:
        with self._changed:
            tasks = frozenset[int]().union(*(job.running.tasks for job in self._running_jobs()))
            return Running(frozenset(self._busy), len(self._writers), self._export is not None, tasks,
                           not self._time_to_overtaking())

    def _running_jobs(self) -> list[Job]:
        """All batches under way. Under the lock."""
        return [job for job in (*self._busy.values(), self._export) if isinstance(job, Job)]

    def _time_to_overtaking(self) -> float:
        """Seconds until a batch may start beside those that run; 0: now. Under the lock."""
        return batching.seconds_until_overtaking(
            [job.started for job in self._running_jobs()], self._clock(), self._parallel_after_s)

    def _time_to_look(self) -> float | None:
        """Seconds until a batch or maintenance may start if nothing happens until then; None: neither. Under the lock."""
        times = [self._quiet_s] if self._stale != {} and not self._busy else []
        return min([*times, *filter(None, [self._time_to_overtaking()])], default=None)

    def _start_batch(self, plan: Plan) -> bool:
        running = self._queue.start(plan.tasks, self._planner.strategy(plan), describe)
        self._start_job(Job(plan, running, plan.tasks[0].index_uid or ALL_INDEXES))
        return True

    def _start_job(self, job: Job) -> None:
        kind, job.started = job.kind, self._clock()
        if kind.is_global:
            self._run_global(job.running)
        elif kind.runs_beside:
            self._begin_export(job)
        else:
            with self._changed:
                self._busy[job.index_uid] = job
                self._jobs.append(job)
                self._changed.notify_all()

    # Batches that the log of a cluster has begun

    def _join(self, cluster: Cluster) -> None:
        cluster.on_begun = self._add_begun
        cluster.on_leadership.append(self.wake)
        for begun in cluster.begun_before():
            self._add_begun(begun)

    def _add_begun(self, begun: BegunBatch) -> None:
        tasks = self._queue.tasks_of(begun.tasks, with_content=True)
        running = self._queue.start(tasks, begun.strategy, describe, (begun.uid, begun.started_at))
        job = Job(Plan(tasks, begun.shape, begun.strategy), running, tasks[0].index_uid or ALL_INDEXES)
        with self._changed:
            self._waiting.append(job)
        self.wake()

    def _start_waiting(self) -> bool:
        """Start the first of the waiting batches that need not wait for an earlier one; False when all must wait."""
        with self._changed:
            waiting = list(self._waiting)
        held: set[str] = set()  # indexes for which an earlier batch waits
        for job in waiting:
            running = self._running()
            if job.kind.is_global or job.kind.is_archive:  # it begins when all before it have ended, and all after it wait
                if held or running.indexes or not running.tasks.isdisjoint(batching.awaited_tasks(job.plan.tasks)):
                    return False
            elif not running.may_be_overtaken:
                return False
            elif job.kind.runs_beside:
                if running.is_exporting:
                    continue
            elif job.index_uid in held or not running.leaves_free(job.index_uid):
                held.add(job.index_uid)
                continue
            with self._changed:
                self._waiting = [each for each in self._waiting if each is not job]
            try:
                self._start_job(job)
            except Exception:  # a global one could not be finished
                self._start_again(job)
                raise
            return True
        return False

    def _start_again(self, job: Job) -> None:
        """A batch that the log has begun could not be finished here: it is tried until it can."""
        assert self._cluster is not None
        self._cluster.stumbled(f"batch {job.running.batch.uid} could not be finished on this node")
        with self._changed:
            self._waiting.insert(0, Job(job.plan, job.running, job.index_uid))

    def _return(self, job: Job) -> None:
        """A batch does not end now: its tasks are enqueued again, or stay in the batch that the log has begun."""
        if self._cluster is None:
            self._queue.requeue(job.running)

    def _sealed(self, running: RunningBatch, outcome: Callable[[], dict[str, Any]]) -> Mapping[str, Any] | None:
        """The end of a batch as the log has it; None without a cluster. outcome: what the log gets from the leader."""
        return None if self._cluster is None else self._cluster.sealed(running.batch.uid, outcome)

    # Maintenance

    def _claim_maintenance(self) -> None:
        """Have the postings of the next stale index materialized."""
        if self._stale is None:
            stale = self._instance.stale_indexes()
            with self._changed:
                self._stale = dict.fromkeys(stale)
        with self._changed:
            index_uid = next(iter(self._stale), None)
            if index_uid is None or self._busy or self._is_woken:
                return
            self._busy[index_uid] = job = Maintenance(index_uid)
            self._jobs.append(job)
            self._changed.notify_all()

    def _run_maintenance(self, job: Maintenance, writer: IndexingProcess) -> None:
        with self._changed:
            job.writer = writer
        # A task that came before the writer was known is seen here, a later one interrupts.
        if self._stopping or self._queue.enqueued_kinds():
            return
        row = self._instance.index(job.index_uid)
        is_done = True
        if row is not None:
            request = {"path": str(self._instance.index_path(row.uuid)), "do": "materialize"}
            try:
                answer = writer.run(request, lambda *_: None)
                is_done = answer["isDone"]
                if fault := answer.get("fault"):
                    note_damage(self._instance.index_path(row.uuid), job.index_uid, fault)
            except IndexingProcessDied:
                pass
            except IndexingProcessCrashed as crash:
                self._on_bug(str(crash))
        if is_done:
            with self._changed:
                self._mark_stale(job.index_uid, False)

    def _mark_stale(self, index_uid: str, is_stale: bool) -> None:
        """Note whether postings should be materialized. Under the lock."""
        if self._stale is None:  # all are looked at later
            return
        self._stale.pop(index_uid, None)
        if is_stale:
            self._stale[index_uid] = None

    # Tasks of the queue itself

    def _run_global(self, running: RunningBatch) -> None:
        first = next(iter(running.tasks.values()))
        progress = Progress()
        if first.kind == "taskCancelation" and self._cluster is None:  # there, a batch that has begun is run by all
            self._stop_batches_of(first.content["uids"])
        end = self._sealed(running, dict)  # before its transaction, in which nothing of the log could be applied
        try:
            with self._instance.changing(), self._queue.finishing() as connection:
                ended = global_tasks.run(self._instance, connection, running, progress)
                self._complete(running, ended, progress, end)
                self._store_end(connection, running, ended)
        except Exception as error:
            if self._cluster is None:
                self._queue.requeue(running)
            self._on_bug(f"batch {running.batch.uid} could not be finished: {error!r}")
            raise
        self._forget(running)
        if batching.is_renaming(first):
            self._stale = None  # by names, which have other files now
        global_tasks.remove_payloads(self._queue, ended)
        self._instance.reserve.restore()
        self._on_batch(running.batch, ended)

    def _stop_batches_of(self, uids: Sequence[int]) -> None:
        """Stop the running batches that hold one of these tasks; their tasks are enqueued again when this returns."""
        for job in self.kill_batches(uids):
            job.done.wait()

    def kill_batches(self, uids: Sequence[int]) -> list[Job]:
        """Kill the running batches that hold one of these tasks; returns them, to wait for their end."""
        wanted = set(uids)
        with self._changed:
            jobs = [job for job in self._running_jobs() if wanted & set(job.running.tasks)]
            for job in jobs:
                job.is_canceled = True
                if job.writer:
                    job.writer.kill()
        return jobs

    # Exports

    def _begin_export(self, job: Job) -> None:
        """Start the thread of an export; on a runner that was not started, run_claimed() runs it."""
        self._export = job
        if any(thread.is_alive() for thread in self._threads):
            self._export_thread = threading.Thread(target=self._run_export_job, args=(job,), name="svcd-export")
            self._export_thread.start()

    def _run_export_job(self, job: Job) -> None:
        job.writer = self._exporter
        try:
            self._run_export(job)
        except ClusterStopped:
            pass
        except Exception as error:  # such as a full disk
            self._return(job)
            self._on_bug(f"batch {job.running.batch.uid} could not be finished: {error!r}")
            self._pause()
            if self._cluster is not None:
                self._start_again(job)
        self._exporter.close()  # exports are rare: give its memory back
        with self._changed:
            self._export = None
            self._is_woken = True
            job.done.set()
            self._changed.notify_all()

    def _run_export(self, job: Job) -> None:
        """Have indexes exported. When canceled or stopped, what was acknowledged by then stays at the target."""
        from svcd.tasks import exports  # imported late: most instances export nothing

        (task,) = job.running.tasks.values()
        exports.discard_records(self._instance, [task])
        end = self._sealed(job.running, lambda: {"outcome": self._export_outcome(job, task)})
        outcome = end["outcome"] if end else self._export_outcome(job, task)
        if outcome is None:
            self._return(job)
        else:
            self._finish(job, None, [with_outcome(task, outcome)], None, end)
        if not self._stopping:
            exports.discard_records(self._instance)

    def _export_outcome(self, job: Job, task: Task) -> dict[str, Any] | None:
        """Have indexes exported; details and error of the task, None when the export was canceled or stopped."""
        from svcd.tasks import exports

        outcome: dict[str, Any] = {"error": None}
        try:
            if not job.is_canceled and not self._stopping:
                request = exports.export_request(task, self._instance, self._payload_limit, self._networks)
                outcome = self._exporter.run(request, self._stoppable(job))
        except (IndexingProcessDied, IndexingProcessCrashed) as death:
            if not job.is_canceled and not self._stopping:
                self._on_bug(str(death))
            outcome = {"error": error_object("internal", crash_message(death))}
        if job.is_canceled or self._stopping and "exported" not in outcome:
            self._check_stop()
            return None
        return {"details": {"indexes": outcome.get("exported")}, "error": outcome["error"]}

    def _check_stop(self) -> None:
        """Raise ClusterStopped where the log waits for the outcome of a batch that was stopped."""
        if self._cluster is not None:
            raise ClusterStopped

    def _stoppable(self, job: Job) -> ReportProgress:
        """The callback for the progress of an export; kills a process that was not yet there to be killed when it should end."""
        report = self._progress_of(job)

        def progress(step: str, finished: int, total: int, above: Step | None = None, /) -> None:
            if job.is_canceled or self._stopping:
                self._exporter.kill()
            report(step, finished, total, above)
        return progress

    # Tasks of one index

    def _work(self, writer: IndexingProcess) -> None:
        while (job := self._next_job(writer)) is not None:
            self._run_claimed_job(job, writer)
            job = None  # free its tasks, which may hold megabytes, while waiting for the next job

    def _next_job(self, writer: IndexingProcess) -> Job | Maintenance | None:
        """Wait for a job; None when svcd stops."""
        with self._changed:
            self._idle.append(writer)
        # The thread that became idle last takes the next job: the others need not start their processes.
        def is_due() -> bool:
            return self._stopping or bool(self._jobs) and self._idle[-1] is writer

        while True:
            with self._changed:
                self._changed.wait_for(is_due, self._spare_s if writer.is_started else None)
                if self._stopping:
                    return None
                if is_due():
                    self._idle.pop()
                    self._changed.notify_all()
                    return self._jobs.pop(0)
                is_spare = self._idle[-1] is not writer
            if is_spare:
                writer.close()

    def _run_claimed_job(self, job: Job | Maintenance, writer: IndexingProcess) -> None:
        try:
            if isinstance(job, Maintenance):
                self._run_maintenance(job, writer)
            else:
                self._run_batch(job, writer)
        except Exception as error:  # instance.sqlite cannot be written, such as when it is damaged: the thread goes on
            self._on_bug(f"the runner could not go on: {error!r}")
            self._pause()
        with self._changed:
            del self._busy[job.index_uid]
            self._is_woken = True
            job.done.set()
            self._changed.notify_all()

    def _run_batch(self, job: Job, writer: IndexingProcess) -> None:
        job.writer = writer
        try:
            if job.index_uid == ALL_INDEXES:
                self._run_archive(job, writer)
            else:
                with self._instance.changing():
                    self._change_index(job, writer)
        except ClusterStopped:
            pass
        except Exception as error:  # the tasks are requeued, and tried again by the next batch of the index
            self._return(job)
            self._on_bug(f"batch {job.running.batch.uid} could not be finished: {error!r}")
            self._pause()
            if self._cluster is not None:
                self._start_again(job)

    def _change_index(self, job: Job, writer: IndexingProcess) -> None:
        """Run a batch of one index."""
        row = self._instance.index(job.index_uid)
        rejection = None if job.plan.shape == batching.ALREADY_APPLIED else self._rejection(job, row)
        if rejection:
            self._finish(job, row, [failed_task(task, rejection) for task in job.running.tasks.values()], None)
        elif job.plan.shape == INDEX_DELETION:
            self._finish_deletion(job, row)
        else:
            self._run_indexing(job, row, writer)

    def _rejection(self, job: Job, row: IndexRow | None) -> dict[str, Any] | None:
        """The error of a batch that is impossible on the index as it is, or None."""
        first = job.plan.tasks[0]
        if row is None:
            may_create = first.kind == "indexCreation" or any(batching.may_create(task) for task in job.plan.tasks)
            return None if may_create else dict(error_object("index_not_found", f"Index `{job.index_uid}` not found."))
        if first.kind == "indexCreation":
            return dict(error_object("index_already_exists", f"Index `{job.index_uid}` already exists."))
        if job.plan.shape != INDEX_DELETION and self._instance.is_lost(row.uuid):
            return dict(missing_file_error(job.index_uid).as_json())  # creating a new file would hide the loss of the documents
        return None

    def _run_indexing(self, job: Job, row: IndexRow | None, writer: IndexingProcess) -> None:
        uuid = self._instance.uuid_of(job.index_uid) or str(uuids.uuid4())
        begun_at = job.running.batch.started_at
        target = row or IndexRow(job.index_uid, uuid, begun_at, begun_at)
        job.is_new = row is None
        job.file = self._instance.index_path(target.uuid)
        request = self._request(job, target)
        job.running.batch.progress = job.progress.view
        try:
            answer = self._indexing_answer(job, target, writer, request)
        except IndexingProcessCrashed as crash:
            self._on_bug(str(crash))
            self._check_crashes(job, crash)
            error = error_object(crash.code, crash_message(crash))
            self._finish(job, row, [failed_task(task, error) for task in job.running.tasks.values()], None)
            self._discard_new_file(job, target)
            return
        if answer is not None and answer.get("needsAnswers"):
            answer = self._with_answers(job, target, writer)
        if answer is None:
            self._discard_new_file(job, target)
            self._return(job)
            return
        if answer.get("isDiskFull"):
            self._end_on_full_disk(job, row, target, answer["outcomes"])
            return
        if fault := answer.get("fault"):
            note_damage(self._instance.index_path(target.uuid), job.index_uid, fault)
            if self._cluster is not None:  # the other nodes have a sound one
                raise RuntimeError(f"the file of index {job.index_uid} is damaged: {fault}")
            self._finish(job, row, [with_outcome(task, outcome) for task, outcome
                                    in zip(job.running.tasks.values(), answer["outcomes"])], None)
            self._discard_new_file(job, target)
            return
        job.progress.embedder_requests = answer.get("embedderRequests")
        job.progress.figures = answer.get("figures", {})
        outcomes = {outcome["uid"]: outcome for outcome in answer["outcomes"]}
        others = [uid for uid in job.running.tasks if uid not in outcomes]
        if len(others) == len(job.running.tasks):  # else the tasks would be claimed and requeued for ever
            raise RuntimeError("the indexing process answered for none of the tasks")
        # Stored outcomes of a batch before a restart may cover fewer tasks; the others are requeued.
        if others and self._cluster is not None:
            raise RuntimeError(f"the file of index {job.index_uid} is ahead of the log")
        self._queue.requeue(job.running, others)
        ended = [with_outcome(task, outcomes[task.uid]) for task in job.running.tasks.values()]
        self._finish(job, row, ended, replace(target, primary_key=answer["primaryKey"], stats=answer["stats"]))
        self._instance.reserve.fit(self._instance.index_path(target.uuid).stat().st_size)
        if answer["recovered"]:
            _log_recovered(job, len(ended), **answer["recovered"])
        with self._changed:
            self._mark_stale(job.index_uid, answer["needsMaterializedPostings"])

    def _with_answers(self, job: Job, target: IndexRow, writer: IndexingProcess) -> dict[str, Any] | None:
        """Run a batch whose documents are embedded by a service: with the answers that the leader got, or as the leader."""
        assert self._cluster is not None
        path = self._instance.index_path(target.uuid)
        end = self._cluster.end_unless_leading(job.running.batch.uid)
        if end is not None and end.get("payload"):
            self._cluster.take_file(end["payload"], kept_embeddings.path_of(path))
        answer = self._indexing_answer(job, target, writer, self._request(job, target))
        if answer is not None and answer.get("needsAnswers"):
            if end is None:
                raise RuntimeError("another node leads now")
            raise RuntimeError(f"the answers of the leader for batch {job.running.batch.uid} are not those that it needs here")
        return answer

    def _shared_answers(self, job: Job) -> dict[str, Any]:
        """What the log gets of the answers of services, as the leader."""
        if self._cluster is None or job.file is None or not kept_embeddings.path_of(job.file).exists():
            return {}
        return {"payload": self._cluster.share_file(kept_embeddings.path_of(job.file))}

    def _check_crashes(self, job: Job, crash: IndexingProcessCrashed) -> None:
        """In a cluster only a crash that comes again and again, as on every node, may fail the tasks."""
        if self._cluster is None:
            return
        uid = job.running.batch.uid
        self._crashes[uid] = self._crashes.get(uid, 0) + 1
        if self._crashes[uid] < _MOST_CRASHES:
            raise crash
        del self._crashes[uid]

    def _end_on_full_disk(self, job: Job, row: IndexRow | None, target: IndexRow,
                          outcomes: Sequence[dict[str, Any]]) -> None:
        """End a batch for which the disk has no space: tasks that free space are requeued to run alone, the others fail."""
        # Retried: once there is space, the file says how the tasks ended. A node of a cluster waits until it has space.
        if self._cluster is not None or self._is_committed(job, target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        freeing = [uid for uid, task in job.running.tasks.items() if task.kind in SPACE_FREEING_KINDS]
        if len(freeing) < len(job.running.tasks):
            self._queue.requeue(job.running, freeing)
        errors = {outcome["uid"]: outcome for outcome in outcomes}
        self._finish(job, row, [with_outcome(task, errors[task.uid]) for task in job.running.tasks.values()], None)
        self._discard_new_file(job, target)

    def _run_archive(self, job: Job, writer: IndexingProcess) -> None:
        """Have a dump or snapshot written. When canceled or stopped it leaves no file."""
        end = self._sealed(job.running, lambda: {"outcome": self._archive_outcome(job, writer)})
        outcome = end["outcome"] if end else self._archive_outcome(job, writer)
        if outcome is None:
            self._return(job)
        else:
            self._finish(job, None, [with_outcome(task, outcome) for task in job.running.tasks.values()], None, end)

    def _archive_outcome(self, job: Job, writer: IndexingProcess) -> dict[str, Any] | None:
        """Write the archive; details and error of its tasks, None when it was canceled or stopped."""
        archive = global_tasks.planned_archive(job.running, self._instance, self._folders)
        try:
            error = None if job.is_canceled else self._archive_error(job, writer, archive)
            if job.is_canceled or self._stopping and error:  # a later cancelation waits for the end of the batch
                if archive.is_uploaded and not self._stopping:
                    self._abort_upload(writer, archive)
                self._check_stop()
                return None
            error = error or _publish_error(archive.publish)
        finally:
            archive.discard()
        return {"details": dict(archive.details), "error": error}

    def _archive_error(self, job: Job, writer: IndexingProcess, archive: global_tasks.Archive) -> Any:
        """The error of writing an archive, or None."""
        try:
            return writer.run({**archive.request, "networks": self._networks}, self._progress_of(job))["error"]
        except (IndexingProcessDied, IndexingProcessCrashed) as death:
            if not job.is_canceled and not self._stopping:
                self._on_bug(str(death))
            return error_object("internal", crash_message(death))

    def _abort_upload(self, writer: IndexingProcess, archive: global_tasks.Archive) -> None:
        """Have the object store delete the parts that a killed process sent."""
        try:
            writer.run({**archive.request, "networks": self._networks, "do": "abortUpload"}, lambda *_: None)
        except (IndexingProcessDied, IndexingProcessCrashed) as death:
            self._on_bug(str(death))

    def _progress_of(self, job: Job) -> ReportProgress:
        """A callback that publishes the progress of a batch."""
        def progress(step: str, finished: int, total: int, above: Step | None = None) -> None:
            job.progress(step, finished, total, above)
            job.running.batch.progress = job.progress.view
            self._queue.listeners.notify()
        return progress

    def _discard_new_file(self, job: Job, target: IndexRow) -> None:
        """Delete the file of an index that was not created after all."""
        if job.is_new:
            self._instance.remove_file(target.uuid)

    def _request(self, job: Job, target: IndexRow) -> dict[str, Any]:
        folder = self._queue.payload_folder
        first = job.plan.tasks[0]
        shape = job.plan.shape if job.plan.shape in (*batching.JOINS, INDEX_DELETION) else first.kind
        return {"do": "batch", "path": str(self._instance.index_path(target.uuid)), "indexUid": job.index_uid, "shape": shape,
                "budget": asdict(self._budget), "threads": self._threads_per_job(), "networks": self._networks,
                "answers": self._answers(), "tasks": [
                    {"uid": task.uid, "kind": task.kind, "content": task.content, "enqueued_at": task.enqueued_at,
                     "payload_bytes": task.payload_bytes,
                     "payload": str(folder / task.payload) if task.payload else None} for task in job.plan.tasks]}

    def _answers(self) -> str:
        if self._cluster is None:
            return kept_embeddings.ALONE
        return kept_embeddings.SHARE if self._cluster.is_leading() else kept_embeddings.AWAIT

    def _threads_per_job(self) -> int:
        """How many processes a batch that starts now may use: two when there are two workers for each running batch."""
        with self._changed:
            return min(2, len(self._writers) // max(len(self._busy), 1))

    def _indexing_answer(self, job: Job, target: IndexRow, writer: IndexingProcess,
                request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer of the indexing process; None when the batch was stopped before its commit."""
        progress = self._progress_of(job)
        try:
            if job.is_canceled and not self._is_committed(job, target):
                return None
            return self._run_with_reserve(job, lambda more: writer.run({**request, **more}, progress))
        except IndexingProcessDied as death:
            if self._is_committed(job, target) or not job.is_new and self._is_committed_after_reset(job, target, writer):
                # It died after its commit: now one answers with the stored outcomes.
                return self._run_with_reserve(job, lambda more: self._run_until_one_lives(writer, {**request, **more}, progress))
            if job.is_canceled or self._stopping:
                return None
            raise IndexingProcessCrashed(str(death)) from death

    def _run_until_one_lives(self, writer: IndexingProcess, request: dict[str, Any], progress: ReportProgress) -> dict[str, Any]:
        """The answer to a request that must be done, whatever cancels or kills processes meanwhile. Raises IndexingProcessDied
        when many have died, or svcd stops."""
        deaths = 0
        while True:
            try:
                return writer.run(request, progress)
            except IndexingProcessDied:
                deaths += 1
                if self._stopping or deaths == _MOST_DEATHS:
                    raise

    def _run_with_reserve(self, job: Job, run: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """The answer of the indexing process; batches that free disk space, or are already applied, may use the reserve.

        run: sends the request with the given additional members.
        """
        reserve = self._instance.reserve
        if job.plan.shape != batching.ALREADY_APPLIED and not all(task.kind in SPACE_FREEING_KINDS for task in job.plan.tasks):
            return run({})
        with reserve.in_use():
            free_bytes = reserve.bytes
            reserve.make_way(MOST_BYTES)
            answer = run({"freeBytes": free_bytes} if reserve.is_short else {})
            if answer.get("isDiskFull") and reserve.give_up():
                answer = run({"freeBytes": free_bytes})
            return answer

    def _is_committed(self, job: Job, target: IndexRow) -> bool:
        applied, first = self._instance.batch_outcomes(target.uuid), job.plan.tasks[0]
        return applied is not None and job.kind.is_recorded and applied.covers(first.uid, first.enqueued_at)

    def _is_committed_after_reset(self, job: Job, target: IndexRow, writer: IndexingProcess) -> bool:
        """After the death of the process: was the batch committed? Has an unseen commit revealed or overwritten first."""
        if self._stopping:  # the next start looks again
            return False
        request = {"path": str(self._instance.index_path(target.uuid)), "do": "commitNothing"}
        try:
            self._run_until_one_lives(writer, request, job.progress)
        except (IndexingProcessDied, IndexingProcessCrashed) as error:
            if self._stopping and isinstance(error, IndexingProcessDied):
                return False
            self._on_bug(f"the log of index {job.index_uid} could not be reset: {error}")
        return self._is_committed(job, target)

    # The end of a batch

    def _finish(self, job: Job, before: IndexRow | None, ended: Sequence[Task], after: IndexRow | None,
                end: Mapping[str, Any] | None = None) -> None:
        """Store the end of a batch. before, after: row of its index; after is None when the index was not written.

        end: what the log of a cluster says of it, when that is known already.
        """
        end = end or self._sealed(job.running, lambda: sealed_outcome(ended, job.progress) | self._shared_answers(job))
        with self._queue.finishing() as connection:
            self._complete(job.running, ended, job.progress, end)
            ended_at = job.running.batch.finished_at or 0
            is_changed = any(task.status == SUCCEEDED and changes_index(task.kind, task.content, task.details)
                             for task in ended)
            if after and before is None:
                updated_at = ended_at if is_changed else after.created_at
                self._instance.create_index(connection, replace(after, updated_at=updated_at))
            elif after:
                updated_at = ended_at if is_changed else after.updated_at
                self._instance.update_index(connection, job.index_uid, updated_at=updated_at,
                                            primary_key=after.primary_key, stats=after.stats)
            self._store_end(connection, job.running, ended)
        self._after_commit(job, ended)

    def _finish_deletion(self, job: Job, row: IndexRow | None) -> None:
        held = row.stats.get("documents", 0) if row else 0
        counts = {"documentAdditionOrUpdate": {"indexedDocuments": 0}, "documentDeletion": {"deletedDocuments": 0},
                  "indexDeletion": {"deletedDocuments": held}}
        ended = [with_outcome(task, {"details": counts.get(task.kind, {}), "error": None})
                 for task in job.running.tasks.values()]
        self._progress_of(job)("deleting the index", 0, 1)
        end = self._sealed(job.running, lambda: sealed_outcome(ended, job.progress))
        with self._queue.finishing() as connection:
            self._complete(job.running, ended, job.progress, end)
            self._instance.delete_index(connection, job.index_uid)
            self._store_end(connection, job.running, ended)
        self._after_commit(job, ended)
        if row:
            self._instance.remove_file(row.uuid)
            self._instance.reserve.restore()

    def _after_commit(self, job: Job, ended: Sequence[Task]) -> None:
        self._forget(job.running)
        if self._cluster is not None and job.file is not None:
            kept_embeddings.KeptEmbeddings(job.file).discard()
        for task in ended:
            self._queue.remove_payload(task.payload)
        self._instance.reserve.restore()
        self._on_batch(job.running.batch, ended)

    def _forget(self, running: RunningBatch) -> None:
        """After the commit: the batch no longer runs."""
        self._queue.forget(running)
        if self._cluster is not None:
            self._cluster.ended(running.batch.uid, list(running.tasks))

    def _complete(self, running: RunningBatch, ended: Sequence[Task], progress: Progress, end: Mapping[str, Any] | None) -> None:
        """Set the end of a batch and of its tasks, which is the same moment; join details and stats.

        end: what the log of a cluster says of it.
        """
        batch = running.batch
        batch.finished_at = end["at"] if end else self._queue.next_moment()
        own = [task for task in ended if task.uid in running.tasks]
        for task in ended:
            task.finished_at = batch.finished_at
        batch.details = views.joined_details(own)
        own_trace = (progress.end(), progress.embedder_requests, progress.figures)
        batch.stats = views.batch_stats(
            own, *((end.get("trace", {}), end.get("requests"), end.get("figures", {})) if end else own_trace))
        if end and end.get("digest", "") not in ("", digest(own)):
            logs.error("a batch had another outcome on the leader: compare the nodes with `svcd cluster verify`", batch=batch.uid)
        batch.progress = None

    def _store_end(self, connection: sqlite3.Connection, running: RunningBatch, ended: Sequence[Task]) -> None:
        """Inside finishing(): store the end of a batch and its notice for the webhooks."""
        self._queue.finish(connection, running, ended)
        batch = running.batch
        if self._cluster is not None:
            applied_log.remove_begun(connection, batch.uid)
        self._instance.outbox.append(connection, batch.uid, batch.finished_at or 0, map(task_line, ended))


def _log_recovered(job: Job, ended: int, newest: int, unknown: int) -> None:
    """Log that the file of an index was ahead of the queue."""
    if job.plan.shape == batching.ALREADY_APPLIED and not unknown:  # the usual case after a crash between the two commits
        logs.info("tasks ended with the outcomes stored in their index", index=job.index_uid, tasks=ended)
    else:
        logs.warn("the file of an index is ahead of the queue", index=job.index_uid, newest_task=newest,
                  ended=ended - unknown, failed_as_unknown=unknown)


def _publish_error(publish: Callable[[], None]) -> dict[str, Any] | None:
    try:
        publish()
    except OSError as error:
        return dict(error_object("io_error", f"The file could not be renamed: {error}"))
    return None
