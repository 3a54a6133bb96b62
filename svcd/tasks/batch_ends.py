"""Stores how batches end: tasks, batch, the row of the index and the notice for webhooks, in one transaction.

See docs/tasks-and-batches.md#commit-and-crash.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from svcd.base import logs
from svcd.index import kept_embeddings
from svcd.instance import applied_log
from svcd.instance.applied_log import ClusterStopped
from svcd.instance.data_folder import IndexRow
from svcd.instance.queue import RunningBatch
from svcd.instance.task_records import SUCCEEDED, Task
from svcd.tasks import views
from svcd.tasks.batching import changes_index
from svcd.tasks.indexing_client import Progress
from svcd.tasks.jobs import Job, RunnerContext
from svcd.tasks.outcomes import digest, sealed_outcome, with_outcome
from svcd.tasks.views import task_line


class BatchEnds:
    """Ends batches, in instance.sqlite and in the log of a cluster."""

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        self._instance, self._queue, self._cluster = context.instance, context.instance.queue, context.cluster

    def sealed(self, running: RunningBatch, outcome: Callable[[], dict[str, Any]]) -> Mapping[str, Any] | None:
        """Return the end of a batch from the log of the cluster; None on a single node. outcome: called on the leader."""
        return self._cluster.sealed(running.batch.uid, outcome)

    def give_back(self, job: Job) -> None:
        """Enqueue the tasks of a batch again that does not end now; in a cluster they stay in the batch of the log."""
        if not self._context.is_clustered:
            self._queue.requeue(job.running)

    def check_stop(self) -> None:
        """Raise ClusterStopped if the log of a cluster waits for the outcome of a batch that was stopped."""
        if self._context.is_clustered:
            raise ClusterStopped

    def finish(self, job: Job, before: IndexRow | None, ended: Sequence[Task], after: IndexRow | None,
               end: Mapping[str, Any] | None = None) -> None:
        """Store the end of a batch. before, after: row of its index; after is None when the index was not written.

        end: from the log of a cluster, if it is already known.
        """
        def outcome() -> dict[str, Any]:
            sealed = sealed_outcome(ended, job.progress)
            if job.file is not None and kept_embeddings.path_of(job.file).exists():  # the other nodes need the vectors, too
                sealed["payload"] = self._cluster.share_file(kept_embeddings.path_of(job.file))
            return sealed

        end = end or self.sealed(job.running, outcome)
        with self._queue.finishing() as connection:
            self.complete(job.running, ended, job.progress, end)
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
            self.store(connection, job.running, ended)
        self._after_commit(job, ended)

    def finish_deletion(self, job: Job, row: IndexRow | None) -> None:
        """End a batch that deletes an index, and delete the file of the index."""
        held = row.stats.get("documents", 0) if row else 0
        counts = {"documentAdditionOrUpdate": {"indexedDocuments": 0}, "documentDeletion": {"deletedDocuments": 0},
                  "indexDeletion": {"deletedDocuments": held}}
        ended = [with_outcome(task, {"details": counts.get(task.kind, {}), "error": None})
                 for task in job.running.tasks.values()]
        self._context.progress_of(job)("deleting the index", 0, 1)
        end = self.sealed(job.running, lambda: sealed_outcome(ended, job.progress))
        with self._queue.finishing() as connection:
            self.complete(job.running, ended, job.progress, end)
            self._instance.delete_index(connection, job.index_uid)
            self.store(connection, job.running, ended)
        self._after_commit(job, ended)
        if row:
            self._instance.remove_file(row.uuid)
            self._instance.reserve.restore()

    def complete(self, running: RunningBatch, ended: Sequence[Task], progress: Progress, end: Mapping[str, Any] | None) -> None:
        """Set the end of a batch and of its tasks, which share one moment; join details and stats.

        end: from the log of a cluster.
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

    def store(self, connection: sqlite3.Connection, running: RunningBatch, ended: Sequence[Task]) -> None:
        """Inside finishing(): store the end of a batch and its notice for the webhooks."""
        self._queue.finish(connection, running, ended)
        batch = running.batch
        if self._context.is_clustered:
            applied_log.remove_begun(connection, batch.uid)
        self._instance.outbox.append(connection, batch.uid, batch.finished_at or 0, map(task_line, ended))

    def forget(self, running: RunningBatch) -> None:
        """Remove a batch from the running batches; call this after the commit."""
        self._queue.forget(running)
        self._cluster.ended(running.batch.uid, list(running.tasks))

    def _after_commit(self, job: Job, ended: Sequence[Task]) -> None:
        self.forget(job.running)
        if self._context.is_clustered and job.file is not None:
            kept_embeddings.KeptEmbeddings(job.file).discard()
        for task in ended:
            self._queue.remove_payload(task.payload)
        self._instance.reserve.restore()
        self._context.on_batch(job.running.batch, ended)
