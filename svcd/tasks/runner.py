"""The runner: takes enqueued tasks in batches, runs them, and stores how they ended.

Threads: one dispatcher ("svcd-runner") chooses the next batch, and runs tasks that need only instance.sqlite (cancelations,
deletions, swaps). Each of `workers` others ("svcd-indexing-N") owns an indexing process and runs batches of one index at a
time, or writes a dump or snapshot. A dump or snapshot waits until no index is written, and blocks writes until it is complete, so
that it shows all indexes in one state. An export has its own thread ("svcd-export") and process while it runs, because it only
reads, and mostly waits for the network; there is one at a time. A batch starts beside others once each of them has run for
`parallel_after_s` seconds; the dispatcher waits on `_changed` until then, or until one ends. `_changed` guards `_busy`, `_jobs`,
`_export`, `_idle`, `_stale`, `_wakes`, the counts of jobs and the stop.

A batch ends in one transaction of instance.sqlite: tasks, batch, row of the index, and notice for the webhooks (BatchEnds). Its
effect and the outcomes of its tasks were committed before, in the file of the index (process_batches). When svcd stops in
between, the tasks are still enqueued; they are claimed again and get the stored outcomes instead of being applied twice. So after
a crash at any moment a task is either enqueued, or finished with its effect and its notice.
See docs/tasks-and-batches.md#commit-and-crash.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from svcd.base import quantities
from svcd.instance.applied_log import BegunBatch, ClusterStopped
from svcd.instance.data_folder import note_damage
from svcd.instance.instance import Instance
from svcd.instance.task_records import Batch, Task
from svcd.tasks import batching, global_tasks
from svcd.tasks.batching import Limits, Plan
from svcd.tasks.indexing_client import IndexingProcess, IndexingProcessCrashed, IndexingProcessDied, MemoryBudget, Progress
from svcd.tasks.jobs import ALL_INDEXES, BatchEnds, Job, Maintenance, RunnerContext, SingleNode, describe
from svcd.tasks.planning import Planner, Running
from svcd.tasks.process_batches import IndexBatches, ReadingBatches

if TYPE_CHECKING:
    from svcd.cluster.node import Node

# Seconds between two attempts to kill maintenance, whose process may just be starting.
_KILL_AGAIN_S = 0.002
# The pause between two batches of an index into which tasks stream: this part of the time that the first took, at most so many
# seconds (docs/tasks-and-batches.md#streams-of-tasks).
_REST_PART, _MOST_REST_S = 0.5, 0.05


class Runner:
    """Runs the tasks of an instance.

    on_batch: called with each batch that ended and its tasks; on_bug: with the text of unexpected errors. retry_s: seconds until
    a batch that could not be finished is tried again. quiet_s: seconds without a task before postings are materialized. spare_s:
    seconds until an idle indexing process ends, unless it is the only idle one. folders: of dumps and snapshots. networks:
    private networks that embedders and exports may call. payload_limit: largest body in bytes that this instance accepts.
    cluster: the log that several nodes share; then its leader plans batches, and every node runs the batches that the log has
    begun, in its order. parallel_after_s: seconds that a batch runs, by `clock`, before others may start beside it.
    changes_keep_s: how long indexes keep a log of their changes; None for no log. The last batch of an index tells whether its
    postings should be materialized; after a start, the runner checks large indexes.
    """

    def __init__(self, instance: Instance, *, workers: int = 1, limits: Limits = Limits(), budget: MemoryBudget = MemoryBudget(),
                 on_batch: Callable[[Batch, Sequence[Task]], None] = lambda batch, tasks: None,
                 on_bug: Callable[[str], None] = print, make_writer: Callable[[int], IndexingProcess] = IndexingProcess,
                 retry_s: float = 1.0, quiet_s: float = 0.3, spare_s: float = 5.0,
                 folders: global_tasks.Folders = global_tasks.Folders(), networks: Sequence[str] = (),
                 payload_limit: int = 100_000_000, cluster: Node | None = None, parallel_after_s: float = 1.0,
                 changes_keep_s: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._instance = instance
        self._queue = instance.queue
        self._planner = Planner(instance, limits)
        self._cluster: Node | SingleNode = SingleNode(self._start_batch) if cluster is None else cluster
        self._context = RunnerContext(instance, self._cluster, cluster is not None, on_batch, on_bug)
        self._ends = BatchEnds(self._context)
        self._reading = ReadingBatches(self._context, self._ends, folders, networks, payload_limit)
        self._indexing = IndexBatches(self._context, self._ends, budget, networks, self._threads_per_job, self._mark_stale,
                                       changes_keep_s)
        self._parallel_after_s, self._clock = parallel_after_s, clock
        self._waiting: list[Job] = []  # batches that the log has begun and that have not started here, in the order of the log
        self._retry_s, self._quiet_s, self._spare_s = retry_s, quiet_s, spare_s
        self._changed = threading.Condition()
        self._busy: dict[str, Job | Maintenance] = {}
        self._jobs: list[Job | Maintenance] = []
        self._export: Job | None = None
        self._stale: dict[str, None] | None = None  # uids of indexes whose postings should be materialized; None: not yet known
        self._idle: list[IndexingProcess] = []  # processes whose threads wait for a job
        self._is_woken = True
        self._wakes = 0  # calls of wake()
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
        self._queue.on_enqueued = self._wake_for
        self._join(self._cluster)
        for thread in self._threads:
            thread.start()

    def _wake_for(self, task: Task) -> None:
        """Have the dispatcher look at a new task, unless a batch of its index runs: the end of that batch has it look."""
        with self._changed:
            job = None if task.index_uid is None else self._busy.get(task.index_uid)
            if isinstance(job, Job):
                job.arrivals += 1
            else:
                self.wake()

    def wake(self) -> None:
        """Have the dispatcher look for tasks."""
        with self._changed:
            self._is_woken = True
            self._wakes += 1
            self._interrupt_maintenance()
            self._changed.notify_all()

    def _interrupt_maintenance(self) -> None:
        for job in self._busy.values():
            if isinstance(job, Maintenance) and job.writer:
                job.writer.interrupt()

    def stop(self, grace_s: float = 5.0) -> None:
        """Claim no more tasks; let running batches end for `grace_s` seconds, then kill and requeue them.

        Maintenance is killed at once: its commits are kept, and the next start continues from them.
        """
        with self._changed:
            self._context.is_stopping = True
            running = [job for job in self._busy.values() if job not in self._jobs]  # nothing takes jobs from _jobs any more
            self._changed.notify_all()
        self._exporter.kill()  # an export may take hours, and continues after the next start
        deadline = quantities.now() + int(grace_s * quantities.SECOND)
        for job in running:
            while isinstance(job, Maintenance) and not job.done.wait(_KILL_AGAIN_S):
                if job.writer:
                    job.writer.kill()
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
        """Run the next batch to its end in this thread, on a runner that was not started. Return whether there was one."""
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
                # Seconds until a batch or maintenance may start if nothing else happens; None: neither.
                times = [self._quiet_s] if self._stale != {} and not self._busy else []
                within_s = min([*times, *filter(None, [self._time_to_overtaking()])], default=None)
                is_quiet = not self._changed.wait_for(lambda: self._context.is_stopping or self._is_woken, within_s)
                self._is_woken = False
                if self._context.is_stopping:
                    return
            try:
                while not self._context.is_stopping and self.claim_next():
                    pass
                if is_quiet and not self._busy:
                    self._claim_maintenance()
            except Exception as error:  # for example a full disk: the tasks stay enqueued
                self._context.on_bug(f"the runner could not go on: {error!r}")
                self._pause()
                self.wake()

    def _pause(self) -> None:
        """Wait before a retry, unless svcd stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._context.is_stopping, self._retry_s)

    def claim_next(self) -> bool:
        """Claim the next batch; run global tasks at once. Return whether to call again, as there may be another batch."""
        if not self._is_recovered and self._recover():
            return True
        if self._start_waiting():
            return True
        if self._waiting or not self._cluster.is_leading():
            return False
        global_tasks.clean_up(self._queue)
        with self._queue.one_state():
            plan = self._planner.next_plan(self._running())
            strategy = self._planner.strategy(plan) if plan else ""
        return plan is not None and self._cluster.begin(plan.tasks, plan.shape, strategy)

    def _recover(self) -> bool:
        """After the start: end tasks whose effect was committed before the stop, before anything can cancel them."""
        self._is_recovered = True
        if self._context.is_clustered:  # its batches run again, and answer with the stored outcomes
            self._instance.discard_unlisted_files([job.index_uid for job in self._waiting])
            return False
        plans = self._planner.already_applied()
        self._instance.discard_unlisted_files([plan.tasks[0].index_uid or "" for plan in plans])
        for plan in plans:
            self._start_batch(plan.tasks, plan.shape, self._planner.strategy(plan))
        return bool(plans)

    def _running(self) -> Running:
        with self._changed:
            tasks = frozenset[int]().union(*(job.running.tasks for job in self._running_jobs()))
            return Running(frozenset(self._busy), len(self._writers), self._export is not None, tasks,
                           not self._time_to_overtaking())

    def _running_jobs(self) -> list[Job]:
        """Return all running batches. Under the lock."""
        return [job for job in (*self._busy.values(), self._export) if isinstance(job, Job)]

    def _time_to_overtaking(self) -> float:
        """Return the seconds until a batch may start beside the running batches; 0: now. Under the lock."""
        return batching.seconds_until_overtaking(
            [job.started for job in self._running_jobs()], self._clock(), self._parallel_after_s)

    def _start_batch(self, tasks: Sequence[Task], shape: str, strategy: str) -> bool:
        """Start a batch that no log has begun; return True."""
        running = self._queue.start(tasks, strategy, describe)
        self._start_job(Job(Plan(tasks, shape, strategy), running, tasks[0].index_uid or ALL_INDEXES))
        return True

    def _start_job(self, job: Job) -> None:
        kind, job.started = job.kind, self._clock()
        if kind.is_global:
            running = job.running
            first = next(iter(running.tasks.values()))
            progress = Progress()
            if first.kind == "taskCancelation" and not self._context.is_clustered:  # in a cluster all nodes finish a begun batch
                for killed in self.kill_batches(first.content["uids"]):
                    killed.done.wait()  # then its tasks are enqueued again
            # Before the transaction, during which no entry of the log could be applied.
            end = self._cluster.committed_end(running.batch.uid, dict)
            try:
                with self._instance.changing(), self._queue.finishing() as connection:
                    ended = global_tasks.run(self._instance, connection, running, progress)
                    self._ends.complete(running, ended, progress, end)
                    self._ends.store(connection, running, ended)
            except Exception as error:
                if not self._context.is_clustered:
                    self._queue.requeue(running)
                self._context.on_bug(f"batch {running.batch.uid} could not be finished: {error!r}")
                raise
            if batching.is_renaming(first):
                self._stale = None  # the names belong to other files now
            self._ends.after_commit(running, ended)
        elif kind.runs_beside:
            self._export = job
            if any(thread.is_alive() for thread in self._threads):  # else run_claimed() runs it
                self._export_thread = threading.Thread(target=self._run_export_job, args=(job,), name="svcd-export")
                self._export_thread.start()
        else:
            with self._changed:
                job.wakes = self._wakes
                self._busy[job.index_uid] = job
                self._jobs.append(job)
                self._changed.notify_all()

    # Batches that the log of a cluster has begun

    def _join(self, cluster: Node | SingleNode) -> None:
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
        """Start the first of the waiting batches that need not wait for an earlier one. Return whether one has started."""
        with self._changed:
            waiting = list(self._waiting)
        held: set[str] = set()  # indexes for which an earlier batch waits
        for job in waiting:
            running = self._running()
            if job.kind.is_global or job.kind.is_archive:  # it begins after all earlier batches have ended; later ones wait
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
            except Exception:  # a global batch could not be finished
                self._start_again(job)
                raise
            return True
        return False

    def _start_again(self, job: Job) -> None:
        """Put a batch of the log that could not be finished here before the waiting batches; it is retried until it succeeds."""
        self._cluster.report_failure(f"batch {job.running.batch.uid} could not be finished on this node")
        with self._changed:
            self._waiting.insert(0, Job(job.plan, job.running, job.index_uid))

    def _retry(self, job: Job, error: Exception) -> None:
        """Report that a batch could not be finished, for example because of a full disk, and have it tried again."""
        self._ends.give_back(job)
        self._context.on_bug(f"batch {job.running.batch.uid} could not be finished: {error!r}")
        self._pause()
        if self._context.is_clustered:
            self._start_again(job)

    # Maintenance

    def is_materializing(self) -> bool:
        """Return whether postings are being materialized."""
        with self._changed:
            return any(isinstance(job, Maintenance) for job in self._busy.values())

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
        # A task that came before job.writer was set is seen here; a later task interrupts.
        if self._context.is_stopping or self._queue.enqueued_kinds():
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
                self._context.on_bug(str(crash))
        if is_done:
            self._mark_stale(job.index_uid, False)

    def _mark_stale(self, index_uid: str, is_stale: bool) -> None:
        """Note whether the postings of an index should be materialized."""
        with self._changed:
            if self._stale is None:  # all indexes are checked later
                return
            self._stale.pop(index_uid, None)
            if is_stale:
                self._stale[index_uid] = None

    # Tasks of the queue itself

    def kill_batches(self, uids: Sequence[int]) -> list[Job]:
        """Kill the running batches that hold one of these tasks; return them, so that the caller can wait for their end."""
        wanted = set(uids)
        with self._changed:
            jobs = [job for job in self._running_jobs() if wanted & set(job.running.tasks)]
            for job in jobs:
                job.is_canceled = True
                if job.writer:
                    job.writer.kill()
        return jobs

    # The threads of exports and workers

    def _run_export_job(self, job: Job) -> None:
        job.writer = self._exporter
        try:
            self._reading.run_export(job, self._exporter)
        except ClusterStopped:
            pass
        except Exception as error:
            self._retry(job, error)
        self._exporter.close()  # exports are rare: free its memory
        with self._changed:
            self._export = None
            self._is_woken = True
            job.done.set()
            self._changed.notify_all()

    def _work(self, writer: IndexingProcess) -> None:
        while (job := self._next_job(writer)) is not None:
            self._run_claimed_job(job, writer)
            job = None  # free its tasks, which may hold megabytes, while waiting for the next job

    def _next_job(self, writer: IndexingProcess) -> Job | Maintenance | None:
        """Wait for a job; None when svcd stops."""
        with self._changed:
            self._idle.append(writer)
        # The thread that became idle last takes the next job: the other threads need not start their processes.
        def is_due() -> bool:
            return self._context.is_stopping or bool(self._jobs) and self._idle[-1] is writer

        while True:
            with self._changed:
                self._changed.wait_for(is_due, self._spare_s if writer.is_started else None)
                if self._context.is_stopping:
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
        except Exception as error:  # instance.sqlite cannot be written, for example because it is damaged: the thread continues
            self._context.on_bug(f"the runner could not go on: {error!r}")
            self._pause()
        with self._changed:
            if isinstance(job, Job) and job.is_in_stream:  # tasks of other indexes need not wait for more of this one
                rest_s = min(_REST_PART * (self._clock() - job.started), _MOST_REST_S)
                self._changed.wait_for(lambda: self._context.is_stopping or self._wakes > job.wakes, rest_s)
            del self._busy[job.index_uid]
            self._is_woken = True
            job.done.set()
            self._changed.notify_all()

    def _run_batch(self, job: Job, writer: IndexingProcess) -> None:
        job.writer = writer
        try:
            if job.index_uid == ALL_INDEXES:
                self._reading.run_archive(job, writer)
            else:
                with self._instance.changing():
                    self._indexing.run(job, writer)
        except ClusterStopped:
            pass
        except Exception as error:  # the next batch of the index tries the tasks again
            self._retry(job, error)

    def _threads_per_job(self) -> int:
        """Return how many processes a batch that starts now may use: 2 if each running batch can have two workers, else 1."""
        with self._changed:
            return min(2, len(self._writers) // max(len(self._busy), 1))
