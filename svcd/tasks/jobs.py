"""Jobs of the runner: batches and maintenance, from their claim to their end."""
from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from svcd.instance.queue import RunningBatch
from svcd.tasks.batching import Kind, Plan, kind_of
from svcd.tasks.indexing_client import IndexingProcess, Progress

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
