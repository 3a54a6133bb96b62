"""Jobs of the runner: batches and maintenance, from their claim to their end."""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from svcd.instance.instance import Instance
from svcd.instance.queue import RunningBatch
from svcd.instance.task_records import Batch, Task
from svcd.tasks.batching import Kind, Plan, kind_of
from svcd.tasks.indexing_client import IndexingProcess, Progress, ReportProgress, Step
from svcd.tasks.shared_log import Cluster

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
    file: Path | None = None  # the index file, once the indexing process has a request to write it
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def kind(self) -> Kind:
        """The kind of the first task."""
        return kind_of(self.plan.tasks[0])


@dataclass
class Maintenance:
    """Materialization of the postings of one index, from claim to end; any task interrupts it."""

    index_uid: str
    writer: IndexingProcess | None = None
    done: threading.Event = field(default_factory=threading.Event)


@dataclass
class RunnerContext:
    """The state that the parts of the runner share.

    cluster: the replicated log, or SingleNode without a cluster. on_batch: called with each batch that ended and its tasks;
    on_bug: with the text of unexpected errors.
    """

    instance: Instance
    cluster: Cluster
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
