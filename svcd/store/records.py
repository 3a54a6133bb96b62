"""Tasks and batches as the queue holds them, and the filters and pages of their lists."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

ENQUEUED = "enqueued"
PROCESSING = "processing"
SUCCEEDED = "succeeded"
FAILED = "failed"
CANCELED = "canceled"
STATUSES = (ENQUEUED, PROCESSING, SUCCEEDED, FAILED, CANCELED)
FINISHED = (SUCCEEDED, FAILED, CANCELED)

T = TypeVar("T")


@dataclass
class Task:
    """One task. Moments are nanoseconds; details are as answers show them, None when the kind has none.

    content: what is to be done, by kind. payload: name of a file in the payload folder, payload_bytes its size.
    """

    uid: int
    kind: str
    index_uid: str | None
    status: str
    enqueued_at: int
    batch_uid: int | None = None
    canceled_by: int | None = None
    details: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    content: dict[str, Any] = field(default_factory=dict)
    payload: str | None = None
    payload_bytes: int = 0
    custom_metadata: str | None = None
    started_at: int | None = None
    finished_at: int | None = None


@dataclass
class Batch:
    """One batch: progress is None unless it is running, stats are as answers show them."""

    uid: int
    started_at: int
    strategy: str
    details: dict[str, Any] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    finished_at: int | None = None
    progress: dict[str, Any] | None = None
    earliest_enqueued_at: int | None = None
    latest_enqueued_at: int | None = None


@dataclass(frozen=True)
class TaskFilter:
    """Conditions joined by AND, the values of one by OR; None is no condition. Bounds are exclusive."""

    uids: Sequence[int] | None = None
    batch_uids: Sequence[int] | None = None
    statuses: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    index_uids: Sequence[str] | None = None
    canceled_by: Sequence[int] | None = None
    before_enqueued_at: int | None = None
    after_enqueued_at: int | None = None
    before_started_at: int | None = None
    after_started_at: int | None = None
    before_finished_at: int | None = None
    after_finished_at: int | None = None

    def is_met_by(self, task: Task) -> bool:
        """True for a task of which the list would show the row, were it as this one."""
        wanted = ((self.uids, task.uid), (self.batch_uids, task.batch_uid), (self.statuses, task.status),
                  (self.kinds, task.kind), (self.index_uids, task.index_uid), (self.canceled_by, task.canceled_by))
        if any(values is not None and value not in values for values, value in wanted):
            return False
        bounds = ((self.before_enqueued_at, self.after_enqueued_at, task.enqueued_at),
                  (self.before_started_at, self.after_started_at, task.started_at),
                  (self.before_finished_at, self.after_finished_at, task.finished_at))
        return all(_lies_between(moment, before, after) for before, after, moment in bounds)


def _lies_between(moment: int | None, before: int | None, after: int | None) -> bool:
    """Both bounds are exclusive, None is none; a moment that is not there meets no bound."""
    if moment is None:
        return before is None and after is None
    return (before is None or moment < before) and (after is None or moment > after)


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list: total counts all matches, next_uid is where the following page begins."""

    results: list[T]
    total: int
    from_uid: int | None
    next_uid: int | None
