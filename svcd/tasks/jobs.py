"""Jobs of the runner: batches and maintenance, from their claim to their end; the state that its parts share.

The end of a batch stores its outcomes, tasks, the row of the index and the notice in one transaction, see
docs/tasks-and-batches.md#commit-and-crash.
"""
from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svcd.base import logs
from svcd.index import kept_embeddings
from svcd.instance import applied_log
from svcd.instance.applied_log import BegunBatch
from svcd.instance.data_folder import IndexRow
from svcd.instance.instance import Instance
from svcd.instance.queue import RunningBatch
from svcd.instance.task_records import FAILED, SUCCEEDED, Batch, Task
from svcd.tasks import views
from svcd.tasks.batching import Kind, Plan, changes_index, failed_details, kind_of
from svcd.tasks.indexing_client import IndexingProcess, Progress, ReportProgress, Step

if TYPE_CHECKING:
    from svcd.cluster.node import Node

ALL_INDEXES = ""  # the index_uid of a dump, a snapshot or an export


@dataclass
class Job:
    """A batch of one index, a dump or snapshot (index_uid ALL_INDEXES), or an export, from claim to end."""

    plan: Plan
    running: RunningBatch
    index_uid: str
    started: float = 0.0  # on the clock of the runner
    progress: Progress = field(default_factory=Progress)
    writer: IndexingProcess | None = None
    is_canceled: bool = False
    is_new: bool = False  # the batch creates its index
    wakes: int = 0  # calls of Runner.wake() before it was claimed
    arrivals: int = 0  # tasks of its index that were enqueued since then
    file: Path | None = None  # the index file, once the indexing process has a request to write it
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def kind(self) -> Kind:
        """The kind of the first task."""
        return kind_of(self.plan.tasks[0])

    @property
    def is_in_stream(self) -> bool:
        """Whether tasks come faster than batches end: several were in this one, and several came meanwhile.

        A client that waits for each of its tasks, or sends a few at once, makes no such batch.
        """
        return len(self.plan.tasks) > 1 and self.arrivals > 1


@dataclass
class Maintenance:
    """Materialization of the postings of one index, from claim to end; any task interrupts it."""

    index_uid: str
    writer: IndexingProcess | None = None
    done: threading.Event = field(default_factory=threading.Event)


class SingleNode:
    """The null object for svcd.cluster.node.Node outside any cluster: it decides alone, and has no log. start: starts a batch."""

    def __init__(self, start: Callable[[Sequence[Task], str, str], bool]) -> None:
        self.on_begun: Callable[[BegunBatch], None] = lambda begun: None
        self.on_leadership: list[Callable[[], None]] = []
        self.begin = start

    def begun_before(self) -> Sequence[BegunBatch]:
        """Return no batches: the queue holds everything."""
        return ()

    def is_leading(self) -> bool:
        """Return True."""
        return True

    def committed_end(self, batch_uid: int, outcome: Callable[[], Mapping[str, Any]]) -> None:
        """Return None: the caller runs the batch and stores its own end."""

    def report_failure(self, reason: str) -> None:
        """Do nothing: the caller tries again."""

    def end_unless_leading(self, batch_uid: int) -> None:
        """Return None: this node decides."""

    def share_file(self, path: Path) -> dict[str, Any]:
        """Return no members: no other node needs the file."""
        return {}

    def take_file(self, payload: dict[str, Any], path: Path) -> None:
        """Do nothing: no other node has made a file."""

    def ended(self, batch_uid: int, tasks: Sequence[int]) -> None:
        """Do nothing: no other node waits."""


@dataclass
class RunnerContext:
    """The state that the parts of the runner share.

    cluster: the replicated log, or SingleNode without a cluster. on_batch: called with each batch that ended and its tasks;
    on_bug: with the text of unexpected errors.
    """

    instance: Instance
    cluster: Node | SingleNode
    is_clustered: bool
    on_batch: Callable[[Batch, Sequence[Task]], None]
    on_bug: Callable[[str], None]
    is_stopping: bool = False

    def progress_of(self, job: Job) -> ReportProgress:
        """Return a callback that publishes the progress of a batch."""
        def progress(step: str, finished: int, total: int, above: Step | None = None) -> None:
            job.progress(step, finished, total, above)
            job.running.batch.progress = job.progress.view
            self.instance.queue.listeners.notify()
        return progress


class BatchEnds:
    """Ends batches, in instance.sqlite and in the log of a cluster."""

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        self._instance, self._queue, self._cluster = context.instance, context.instance.queue, context.cluster

    def give_back(self, job: Job) -> None:
        """Enqueue the tasks of a batch again that does not end now; in a cluster they stay in the batch of the log."""
        if not self._context.is_clustered:
            self._queue.requeue(job.running)

    def finish(self, job: Job, before: IndexRow | None, ended: Sequence[Task], after: IndexRow | None,
               end: Mapping[str, Any] | None = None) -> None:
        """Store the end of a batch. before, after: row of its index; after is None when the index was not written.

        end: from the log of a cluster, if it is already known.
        """
        def outcome() -> dict[str, Any]:
            entry = _outcome_entry(ended, job.progress)
            if job.file is not None and kept_embeddings.path_of(job.file).exists():  # the other nodes need the vectors, too
                entry["payload"] = self._cluster.share_file(kept_embeddings.path_of(job.file))
            return entry

        end = end or self._cluster.committed_end(job.running.batch.uid, outcome)
        with self._queue.finishing() as connection:
            self.complete(job.running, ended, job.progress, end)
            ended_at = job.running.batch.finished_at or 0
            is_changed = any(task.status == SUCCEEDED and changes_index(task.kind, task.content, task.details) for task in ended)
            if after and before is None:
                updated_at = ended_at if is_changed else after.created_at
                self._instance.create_index(connection, after._replace(updated_at=updated_at))
            elif after:
                updated_at = ended_at if is_changed else after.updated_at
                self._instance.update_index(connection, job.index_uid, updated_at=updated_at,
                                            primary_key=after.primary_key, stats=after.stats)
            self.store(connection, job.running, ended)
        self.after_commit(job.running, ended, job.file)

    def finish_deletion(self, job: Job, row: IndexRow | None) -> None:
        """End a batch that deletes an index, and delete the file of the index."""
        held = row.stats.get("documents", 0) if row else 0
        counts = {"documentAdditionOrUpdate": {"indexedDocuments": 0}, "documentDeletion": {"deletedDocuments": 0},
                  "indexDeletion": {"deletedDocuments": held}}
        ended = [with_outcome(task, {"details": counts.get(task.kind, {}), "error": None}) for task in job.running.tasks.values()]
        self._context.progress_of(job)("deleting the index", 0, 1)
        end = self._cluster.committed_end(job.running.batch.uid, lambda: _outcome_entry(ended, job.progress))
        with self._queue.finishing() as connection:
            self.complete(job.running, ended, job.progress, end)
            self._instance.delete_index(connection, job.index_uid)
            self.store(connection, job.running, ended)
        self.after_commit(job.running, ended, job.file)
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
        if end and end.get("digest", "") not in ("", _digest(own)):
            logs.error("a batch had another outcome on the leader: compare the nodes with `svcd cluster verify`", batch=batch.uid)
        batch.progress = None

    def store(self, connection: sqlite3.Connection, running: RunningBatch, ended: Sequence[Task]) -> None:
        """Inside finishing(): store the end of a batch and its notice for the webhooks."""
        self._queue.finish(connection, running, ended)
        batch = running.batch
        if self._context.is_clustered:
            applied_log.remove_begun(connection, batch.uid)
        self._instance.outbox.append(connection, batch.uid, batch.finished_at or 0, map(views.task_line, ended))

    def after_commit(self, running: RunningBatch, ended: Sequence[Task], file: Path | None = None) -> None:
        """Remove a batch from the running batches, and everything that only its tasks needed. file: the index file."""
        self._queue.forget(running)
        self._cluster.ended(running.batch.uid, list(running.tasks))
        if self._context.is_clustered and file is not None:
            kept_embeddings.KeptEmbeddings(file).discard()
        for task in ended:
            self._queue.remove_payload(task.payload)
        self._instance.reserve.restore()
        self._context.on_batch(running.batch, ended)


def _outcome_entry(ended: Sequence[Task], progress: Progress) -> dict[str, Any]:
    """Return the members of the entry `end` for a batch that the leader has run."""
    return {"trace": progress.end(), "requests": progress.embedder_requests, "figures": progress.figures,
            "digest": _digest(ended)}


def _digest(ended: Sequence[Task]) -> str:
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
