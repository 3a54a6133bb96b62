"""What the file of an index says of the newest batch that wrote it: which tasks it had, and how each ended.

It is committed with the effect of the batch, so it is the proof of what happened where the queue does not know: svcd
was stopped between the two commits, or `instance.sqlite` is older than the file (a torn log, a backup put back).

A uid alone is no proof then: a queue that is behind gives the uids of tasks that it has forgotten to new ones. So a
task is known by its uid and the moment it was enqueued, which no two tasks of an instance share.
"""
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Outcome = Mapping[str, Any]  # "uid", and how the task ended


@dataclass(frozen=True)
class BatchOutcomes:
    """last: the highest uid of the batch. enqueued_at: the latest moment at which one of its tasks was enqueued; None in
    a file of an svcd that did not keep it, where uids alone have to do."""

    last: int
    enqueued_at: int | None
    outcomes: tuple[Outcome, ...]

    @classmethod
    def parse(cls, text: str | bytes | None) -> BatchOutcomes | None:
        """Of record(), as the file holds it; None when no batch has written the file. ValueError, KeyError."""
        held = json.loads(text) if text else None
        return cls(held["last"], held.get("enqueuedAt"), tuple(held["outcomes"])) if held else None

    def covers(self, uid: int, enqueued_at: int) -> bool:
        """Was the turn of this task before the end of the batch? Tasks of an index come in the order of their uids."""
        return uid <= self.last and (self.enqueued_at is None or enqueued_at <= self.enqueued_at)

    def outcome(self, uid: int, enqueued_at: int) -> Outcome | None:
        """How this task ended; None when it is not one of the batch."""
        return next((outcome for outcome in self.outcomes
                     if outcome["uid"] == uid and outcome.get("enqueuedAt", enqueued_at) == enqueued_at), None)


def outcome_record(outcomes: Iterable[tuple[int, Outcome]]) -> dict[str, Any]:
    """What a file is to say of a batch: the moment at which each of its tasks was enqueued, and its outcome."""
    known = list(outcomes)
    return {"last": max(outcome["uid"] for _, outcome in known), "enqueuedAt": max(moment for moment, _ in known),
            "outcomes": [{**outcome, "enqueuedAt": moment} for moment, outcome in known]}
