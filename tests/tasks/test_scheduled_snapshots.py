"""What must hold of scheduled snapshots:

1. One is enqueued each time the interval is over, until the schedule is stopped.
2. A snapshot that cannot be enqueued is reported, and the next is tried after the next interval.
"""
from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.tasks.global_tasks import SnapshotSchedule


class FakeQueue:
    """Takes `room` tasks, refuses one, and so on; `is_done` is set at the sixth try."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.tries: list[str] = []
        self.is_done = threading.Event()

    def enqueue(self, kind: str, index_uid: str | None, *, details: Any) -> None:
        assert (index_uid, details) == (None, None)
        self.tries.append(kind)
        if len(self.tries) == 6:
            self.is_done.set()
        if len(self.tries) % (self.room + 1) == 0:
            raise ApiError("no_space_left_on_device", "full")


@pytest.fixture
def refusals() -> Iterator[list[str]]:
    yield []


@pytest.mark.parametrize("room, refused", [(9, 0), (2, 2)])
def test_a_snapshot_is_enqueued_each_time(refusals: list[str], room: int, refused: int) -> None:
    queue = FakeQueue(room)
    schedule = SnapshotSchedule(queue, 0.0001, refusals.append)  # type: ignore[arg-type]
    schedule.start()
    assert queue.is_done.wait(5)
    schedule.stop()
    tried = len(queue.tries)
    assert set(queue.tries) == {"snapshotCreation"}
    assert len(refusals) == tried // (room + 1) >= refused
    assert not refusals or refusals[0] == "no snapshot could be enqueued: full"


def test_nothing_is_enqueued_before_its_time(refusals: list[str]) -> None:
    queue = FakeQueue(9)
    schedule = SnapshotSchedule(queue, 3600, refusals.append)  # type: ignore[arg-type]
    schedule.start()
    schedule.stop()
    assert queue.tries == []
