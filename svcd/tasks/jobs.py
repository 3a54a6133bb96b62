"""Jobs of the runner: batches and maintenance, from their claim to their end; the state that its parts share."""
from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svcd.instance.applied_log import BegunBatch
from svcd.instance.instance import Instance
from svcd.instance.queue import RunningBatch
from svcd.instance.task_records import Batch, Task
from svcd.tasks.batching import Kind, Plan, kind_of
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
