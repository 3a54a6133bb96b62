"""The outcomes of the newest batch that wrote an index, stored in the file of the index.

They are committed together with the effect of the batch. They prove what happened where the queue does not know it: when svcd
was stopped between the two commits, or when `instance.sqlite` is older than the index (a torn log, a restored backup).
See docs/storage.md#crash-safety.

A uid alone proves nothing: a queue that lost tasks gives their uids to new ones. So a task is identified by its uid and by the
moment it was enqueued, which no two tasks of an instance share.
"""
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Outcome = Mapping[str, Any]  # "uid", and how the task ended


class BatchOutcomes(NamedTuple):
    """The newest batch of an index.

    last: the highest uid of its tasks. enqueued_at: when the newest of its tasks was enqueued (nanoseconds); None in files that
    lack it, where only uids are compared. outcomes: for each task its "uid" and how it ended.
    """

    last: int
    enqueued_at: int | None
    outcomes: tuple[Outcome, ...]

    @classmethod
    def parse(cls, text: str | bytes | None) -> BatchOutcomes | None:
        """Decode a stored outcome_record(); None when no batch has written the file. Raises ValueError, KeyError."""
        record = json.loads(text) if text else None
        return cls(record["last"], record.get("enqueuedAt"), tuple(record["outcomes"])) if record else None

    def covers(self, uid: int, enqueued_at: int) -> bool:
        """Return whether a task belongs to this batch or an earlier one. Tasks of an index run in the order of their uids."""
        return uid <= self.last and (self.enqueued_at is None or enqueued_at <= self.enqueued_at)

    def outcome(self, uid: int, enqueued_at: int) -> Outcome | None:
        """Return how a task of this batch ended; None for tasks of other batches."""
        return next((outcome for outcome in self.outcomes
                     if outcome["uid"] == uid and outcome.get("enqueuedAt", enqueued_at) == enqueued_at), None)


def outcome_record(outcomes: Iterable[tuple[int, Outcome]]) -> dict[str, Any]:
    """Return the JSON object to store for a batch. outcomes: for each task when it was enqueued, and its outcome."""
    known = list(outcomes)
    return {"last": max(outcome["uid"] for _, outcome in known), "enqueuedAt": max(moment for moment, _ in known),
            "outcomes": [{**outcome, "enqueuedAt": moment} for moment, outcome in known]}
