"""Runs batches in indexing processes: batches of one index, dumps and snapshots, exports.

Finds out whether a process that died had committed. See docs/tasks-and-batches.md#indexing-process and #commit-and-crash,
docs/dumps.md and docs/export.md.
"""
from __future__ import annotations

import errno
import os
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from svcd.base import logs
from svcd.base.errors import error_object
from svcd.index import kept_embeddings
from svcd.index.disk_space import MOST_BYTES
from svcd.instance.applied_log import ClusterStopped
from svcd.instance.data_folder import IndexRow, missing_file_error, note_damage
from svcd.instance.instance import Instance
from svcd.instance.queue import SPACE_FREEING_KINDS
from svcd.instance.task_records import Task
from svcd.tasks import batching, global_tasks
from svcd.tasks.batching import INDEX_DELETION, Plan
from svcd.tasks.indexing_client import (
    IndexingProcess, IndexingProcessCrashed, IndexingProcessDied, MemoryBudget, ReportProgress, Step)
from svcd.tasks.jobs import BatchEnds, Job, RunnerContext, crash_message, failed_task, with_outcome

_MOST_CRASHES = 3
# Deaths of indexing processes in a row that are tolerated once a batch is committed, or while an unseen commit is overwritten.
_MOST_DEATHS = 10


def rejection_of(instance: Instance, index_uid: str, plan: Plan) -> Mapping[str, Any] | None:
    """Return the error of a batch that is impossible in the present state of its index."""
    row, first = instance.index(index_uid), plan.tasks[0]
    if plan.shape == batching.ALREADY_APPLIED:
        return None
    if row is None:
        if first.kind != "indexCreation" and not any(batching.may_create(task) for task in plan.tasks):
            return error_object("index_not_found", f"Index `{index_uid}` not found.")
    elif first.kind == "indexCreation":
        return error_object("index_already_exists", f"Index `{index_uid}` already exists.")
    elif plan.shape != INDEX_DELETION and instance.is_lost(row.uuid):
        return missing_file_error(index_uid).as_json()  # creating a new file would hide the loss of the documents
    return None


def shape_of(plan: Plan) -> str:
    """Return the shape of a batch as svcd.tasks.indexing knows it."""
    return plan.shape if plan.shape in (*batching.JOINS, INDEX_DELETION) else plan.tasks[0].kind


def task_request(task: Task, payload_folder: Path) -> dict[str, Any]:
    """Return a task as an IndexingTask, in JSON."""
    return {"uid": task.uid, "kind": task.kind, "content": task.content, "enqueued_at": task.enqueued_at,
            "payload_bytes": task.payload_bytes, "payload": str(payload_folder / task.payload) if task.payload else None}


class IndexBatches:
    """Runs batches of one index.

    networks: private networks that embedders may call. threads: returns how many processes a batch that starts now may use.
    mark_stale: called with an index uid, and whether its postings should be materialized. changes_keep_s: how long indexes keep
    a log of their changes; None for no log.
    """

    def __init__(self, context: RunnerContext, ends: BatchEnds, budget: MemoryBudget, networks: Sequence[str],
                 threads: Callable[[], int], mark_stale: Callable[[str, bool], None], changes_keep_s: int | None) -> None:
        self._context = context
        self._instance, self._queue, self._cluster = context.instance, context.instance.queue, context.cluster
        self._ends, self._budget = ends, budget
        self._networks = list(networks)
        self._threads, self._mark_stale = threads, mark_stale
        self._log = {} if changes_keep_s is None else {"changesKeep": changes_keep_s}  # member of requests
        self._crashes: dict[int, int] = {}  # batch uid in a cluster -> number of crashes of the indexing process

    def run(self, job: Job, writer: IndexingProcess) -> None:
        """Run a batch to its end. A batch that is impossible in the present state of the index fails."""
        row = self._instance.index(job.index_uid)
        if rejection := rejection_of(self._instance, job.index_uid, job.plan):
            self._ends.finish(job, row, [failed_task(task, rejection) for task in job.running.tasks.values()], None)
        elif job.plan.shape == INDEX_DELETION:
            self._ends.finish_deletion(job, row)
        else:
            self._run_indexing(job, row, writer)

    def _run_indexing(self, job: Job, row: IndexRow | None, writer: IndexingProcess) -> None:
        uuid = self._instance.uuid_of(job.index_uid) or str(uuids.uuid4())
        begun_at = job.running.batch.started_at
        target = row or IndexRow(job.index_uid, uuid, begun_at, begun_at)
        job.is_new = row is None
        job.file = self._instance.index_path(target.uuid)
        job.running.batch.progress = job.progress.view
        try:
            answer = self._answer(job, target, writer)
        except IndexingProcessCrashed as crash:
            self._context.on_bug(str(crash))
            if self._context.is_clustered:  # only a crash on every node may fail the tasks: the third of the batch
                uid = job.running.batch.uid
                self._crashes[uid] = self._crashes.get(uid, 0) + 1
                if self._crashes[uid] < _MOST_CRASHES:
                    raise
                del self._crashes[uid]
            error = error_object(crash.code, crash_message(crash))
            self._ends.finish(job, row, [failed_task(task, error) for task in job.running.tasks.values()], None)
            self._discard_new_file(job, target)
            return
        if answer is not None and answer.get("needsAnswers"):
            answer = self._answer_of_leader(job, target, writer)
        if answer is None:
            self._discard_new_file(job, target)
            self._ends.give_back(job)
        elif answer.get("isDiskFull"):
            self._end_on_full_disk(job, row, target, answer["outcomes"])
        elif fault := answer.get("fault"):
            note_damage(self._instance.index_path(target.uuid), job.index_uid, fault)
            if self._context.is_clustered:  # other nodes have a sound file
                raise RuntimeError(f"the file of index {job.index_uid} is damaged: {fault}")
            self._ends.finish(job, row, [with_outcome(task, outcome) for task, outcome
                                         in zip(job.running.tasks.values(), answer["outcomes"])], None)
            self._discard_new_file(job, target)
        else:
            self._finish(job, row, target, answer)

    def _finish(self, job: Job, row: IndexRow | None, target: IndexRow, answer: dict[str, Any]) -> None:
        """End a batch with the outcomes in the answer of the indexing process."""
        job.progress.embedder_requests = answer.get("embedderRequests")
        job.progress.figures = answer.get("figures", {})
        if seconds := answer.get("seconds"):  # not for outcomes of an earlier run
            self._instance.rates.learn(job.index_uid, answer["work"], **seconds)
        outcomes = {outcome["uid"]: outcome for outcome in answer["outcomes"]}
        others = [uid for uid in job.running.tasks if uid not in outcomes]
        if len(others) == len(job.running.tasks):  # else the tasks would be claimed and requeued forever
            raise RuntimeError("the indexing process answered for none of the tasks")
        # Stored outcomes of a batch before a restart may cover fewer tasks; the other tasks are requeued.
        if others and self._context.is_clustered:
            raise RuntimeError(f"the file of index {job.index_uid} is ahead of the log")
        self._queue.requeue(job.running, others)
        ended = [with_outcome(task, outcomes[task.uid]) for task in job.running.tasks.values()]
        self._ends.finish(job, row, ended, target._replace(primary_key=answer["primaryKey"], stats=answer["stats"]))
        self._instance.reserve.fit(self._instance.index_path(target.uuid).stat().st_size)
        if recovered := answer["recovered"]:
            if job.plan.shape == batching.ALREADY_APPLIED and not recovered["unknown"]:  # usual after a crash between the commits
                logs.info("tasks ended with the outcomes stored in their index", index=job.index_uid, tasks=len(ended))
            else:
                logs.warn("the file of an index is ahead of the queue", index=job.index_uid, newest_task=recovered["newest"],
                          ended=len(ended) - recovered["unknown"], failed_as_unknown=recovered["unknown"])
        self._mark_stale(job.index_uid, answer["needsMaterializedPostings"])

    def _answer_of_leader(self, job: Job, target: IndexRow, writer: IndexingProcess) -> dict[str, Any] | None:
        """Run a batch whose documents a service embeds: with the answers that the leader got, or as the leader."""
        path = self._instance.index_path(target.uuid)
        end = self._cluster.end_unless_leading(job.running.batch.uid)
        if end is not None and end.get("payload"):
            self._cluster.take_file(end["payload"], kept_embeddings.path_of(path))
        answer = self._answer(job, target, writer)
        if answer is not None and answer.get("needsAnswers"):
            if end is None:
                raise RuntimeError("another node is the leader now")
            raise RuntimeError(f"the leader's answers for batch {job.running.batch.uid} do not match the inputs on this node")
        return answer

    def _end_on_full_disk(self, job: Job, row: IndexRow | None, target: IndexRow, outcomes: Sequence[dict[str, Any]]) -> None:
        """End a batch that found the disk full: tasks that free space are requeued to run alone, the others fail."""
        # Raised to retry: once there is space, the file tells how the tasks ended. A node of a cluster waits until it has space.
        if self._context.is_clustered or self._is_committed(job, target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        freeing = [uid for uid, task in job.running.tasks.items() if task.kind in SPACE_FREEING_KINDS]
        if len(freeing) < len(job.running.tasks):
            self._queue.requeue(job.running, freeing)
        errors = {outcome["uid"]: outcome for outcome in outcomes}
        self._ends.finish(job, row, [with_outcome(task, errors[task.uid]) for task in job.running.tasks.values()], None)
        self._discard_new_file(job, target)

    def _discard_new_file(self, job: Job, target: IndexRow) -> None:
        """Delete the file of an index that was not created after all."""
        if job.is_new:
            self._instance.remove_file(target.uuid)

    def _answer(self, job: Job, target: IndexRow, writer: IndexingProcess) -> dict[str, Any] | None:
        """Run the batch in the indexing process; return its answer, None when the batch was stopped before its commit."""
        folder = self._queue.payload_folder
        answers = kept_embeddings.ALONE
        if self._context.is_clustered:
            answers = kept_embeddings.SHARE if self._cluster.is_leading() else kept_embeddings.AWAIT
        request = {"do": "batch", "path": str(self._instance.index_path(target.uuid)), "indexUid": job.index_uid,
                   "shape": shape_of(job.plan), "budget": self._budget._asdict(), "threads": self._threads(),
                   "networks": self._networks, "answers": answers, **self._log,
                   "tasks": [task_request(task, folder) for task in job.plan.tasks]}
        progress = self._context.progress_of(job)
        try:
            if job.is_canceled and not self._is_committed(job, target):
                return None
            return self._run_with_reserve(job, lambda more: writer.run({**request, **more}, progress))
        except IndexingProcessDied as death:
            if self._is_committed(job, target) or not job.is_new and self._is_committed_after_reset(job, target, writer):
                # It died after its commit: now a new process answers with the stored outcomes.
                return self._run_with_reserve(job, lambda more: self._run_until_one_lives(writer, {**request, **more}, progress))
            if job.is_canceled or self._context.is_stopping:
                return None
            raise IndexingProcessCrashed(str(death)) from death

    def _run_until_one_lives(self, writer: IndexingProcess, request: dict[str, Any], progress: ReportProgress) -> dict[str, Any]:
        """Run a request that must be done, even if cancelations kill several processes; return its answer.

        Raises IndexingProcessDied after _MOST_DEATHS deaths, or when svcd stops.
        """
        deaths = 0
        while True:
            try:
                return writer.run(request, progress)
            except IndexingProcessDied:
                deaths += 1
                if self._context.is_stopping or deaths == _MOST_DEATHS:
                    raise

    def _run_with_reserve(self, job: Job, run: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Return the answer of `run`. Batches that free disk space, or are already applied, may use the reserve.

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
        """Return whether a process that died had committed the batch, after an unseen commit is revealed or overwritten."""
        if self._context.is_stopping:  # the next start checks again
            return False
        request = {"path": str(self._instance.index_path(target.uuid)), "do": "commitNothing", **self._log}
        try:
            self._run_until_one_lives(writer, request, job.progress)
        except (IndexingProcessDied, IndexingProcessCrashed) as error:
            if self._context.is_stopping and isinstance(error, IndexingProcessDied):
                return False
            self._context.on_bug(f"the log of index {job.index_uid} could not be reset: {error}")
        return self._is_committed(job, target)


class ReadingBatches:
    """Runs batches of one dump or export, or of snapshots.

    folders: of dumps and snapshots. networks: private networks that may be called. payload_limit: largest body in bytes that this
    instance accepts.
    """

    def __init__(self, context: RunnerContext, ends: BatchEnds, folders: global_tasks.Folders, networks: Sequence[str],
                 payload_limit: int) -> None:
        self._context, self._ends, self._folders = context, ends, folders
        self._networks = list(networks)
        self._payload_limit = payload_limit

    def run_archive(self, job: Job, writer: IndexingProcess) -> None:
        """Write a dump or snapshot. A canceled or stopped batch leaves no file."""
        self._run(job, lambda: self._archive_outcome(job, writer))

    def run_export(self, job: Job, exporter: IndexingProcess) -> None:
        """Export indexes. When the batch is canceled or stopped, acknowledged documents stay at the target."""
        from svcd.tasks import exports  # imported late: few instances export anything

        exports.discard_records(self._context.instance, job.running.tasks.values())
        self._run(job, lambda: self._export_outcome(job, exporter))
        if not self._context.is_stopping:
            exports.discard_records(self._context.instance)

    def _run(self, job: Job, run: Callable[[], dict[str, Any] | None]) -> None:
        """Run a batch to its end; in a cluster the leader runs it. run: returns the outcome of its tasks, None when stopped."""
        def outcome() -> dict[str, Any]:
            found = run()
            if found is None:  # the log waits for the outcome
                raise ClusterStopped
            return {"outcome": found}

        end = self._context.cluster.committed_end(job.running.batch.uid, outcome)
        found = end["outcome"] if end else run()
        if found is None:
            self._ends.give_back(job)
        else:
            self._ends.finish(job, None, [with_outcome(task, found) for task in job.running.tasks.values()], None, end)

    def _archive_outcome(self, job: Job, writer: IndexingProcess) -> dict[str, Any] | None:
        """Write the archive; return details and error of its tasks, None when it was canceled or stopped."""
        archive = global_tasks.planned_archive(job.running, self._context.instance, self._folders)
        request = {**archive.request, "networks": self._networks}
        error: Any = None
        try:
            if not job.is_canceled:
                try:
                    error = writer.run(request, self._context.progress_of(job))["error"]
                except (IndexingProcessDied, IndexingProcessCrashed) as death:
                    error = self._death(job, death)
            if job.is_canceled or self._context.is_stopping and error:  # a later cancelation waits for the end of the batch
                if archive.is_uploaded and not self._context.is_stopping:
                    try:  # the object store deletes the parts that the killed process sent
                        writer.run({**request, "do": "abortUpload"}, lambda *_: None)
                    except (IndexingProcessDied, IndexingProcessCrashed) as death:
                        self._context.on_bug(str(death))
                return None
            if not error:
                try:
                    archive.publish()
                except OSError as failure:
                    error = error_object("io_error", f"The file could not be renamed: {failure}")
        finally:
            archive.discard()
        return {"details": dict(archive.details), "error": dict(error) if error else None}

    def _death(self, job: Job, death: Exception) -> Any:
        """Return the error for the death of the process, and report it unless the runner killed the process."""
        if not job.is_canceled and not self._context.is_stopping:
            self._context.on_bug(str(death))
        return error_object("internal", crash_message(death))

    def _export_outcome(self, job: Job, exporter: IndexingProcess) -> dict[str, Any] | None:
        """Export indexes; return details and error of the task, None when the export was canceled or stopped."""
        from svcd.tasks import exports

        report: ReportProgress = self._context.progress_of(job)

        def progress(step: str, finished: int, total: int, above: Step | None = None, /) -> None:
            if job.is_canceled or self._context.is_stopping:
                exporter.kill()  # it was not started yet when the runner killed it
            report(step, finished, total, above)

        outcome: dict[str, Any] = {"error": None}
        try:
            if not job.is_canceled and not self._context.is_stopping:
                (task,) = job.running.tasks.values()
                request = exports.export_request(task, self._context.instance, self._payload_limit, self._networks)
                outcome = exporter.run(request, progress)
        except (IndexingProcessDied, IndexingProcessCrashed) as death:
            outcome = {"error": self._death(job, death)}
        if job.is_canceled or self._context.is_stopping and "exported" not in outcome:
            return None
        return {"details": {"indexes": outcome.get("exported")}, "error": outcome["error"]}
