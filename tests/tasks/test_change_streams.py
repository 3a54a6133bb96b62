"""What must hold of streams of tasks and batches while a runner works:

1. A change can be read when listeners are notified of it; details of a batch are complete from its start.
2. Requests that wait for a task are woken when it is canceled, and when a global task ends.
3. Progress is notified.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.instance.task_changes import TO_ENQUEUED, TO_FINISHED, TO_PROCESSING, Position
from svcd.tasks.views import batch_at, task_at


class Seen:
    """A client of the streams: reads the changes at every notification."""

    def __init__(self, harness: Any) -> None:
        self.queue = harness.queue
        self.tasks: list[tuple[int, int, str]] = []
        self.batches: list[tuple[int, int, dict[str, Any]]] = []
        self.notifications = 0
        self.since = [Position(0), Position(0)]
        listeners = self.queue.listeners
        notify = listeners.notify

        def notify_and_look(ended: Any = ()) -> None:
            notify(ended)
            self.look()

        listeners.notify = notify_and_look

    def look(self) -> None:
        self.notifications += 1
        for position, task in self.queue.changes_of_tasks(self.since[0], 100):
            self.tasks.append((position.uid, position.step, task_at(task, position.step).status))
            self.since[0] = position
        for position, batch in self.queue.changes_of_batches(self.since[1], 100):
            self.batches.append((position.uid, position.step, batch_at(batch, position.step).stats))
            self.since[1] = position


@pytest.fixture
def seen(harness: Any) -> Seen:
    return Seen(harness)


def test_every_change_can_be_read_when_it_is_notified(harness, seen) -> None:
    harness.add([{"id": 1}])
    harness.run()
    assert seen.tasks == [(0, TO_ENQUEUED, "enqueued"), (0, TO_PROCESSING, "processing"), (0, TO_FINISHED, "succeeded")]
    begun, ended = seen.batches
    assert begun == (0, TO_PROCESSING, {"totalNbTasks": 1, "status": {"processing": 1},
                                        "types": {"documentAdditionOrUpdate": 1}, "indexUids": {"movies": 1}})
    assert ended[:2] == (0, TO_FINISHED) and ended[2]["status"] == {"succeeded": 1}


def test_progress_is_notified(harness, seen) -> None:
    harness.add([{"id": 1}])
    before = seen.notifications
    harness.run()
    assert seen.notifications > before + 2  # beginning and end


def test_a_cancelation_wakes_who_waits_for_the_task(harness, seen) -> None:
    harness.add([{"id": 1}])
    with harness.queue.listeners.when_ended(0) as wakeup:
        harness.do("taskCancelation", None, {"matchedTasks": 1, "canceledTasks": None, "originalFilter": "?uids=0"}, uids=[0])
        assert not wakeup.is_set
        harness.run()
        assert wakeup.is_set
    assert (0, TO_FINISHED, "canceled") in seen.tasks and (0, TO_PROCESSING, "processing") not in seen.tasks


@pytest.mark.parametrize("kind", ["indexCreation", "indexDeletion"])
def test_every_kind_of_end_is_notified(harness, seen, kind: str) -> None:
    task = harness.do(kind, details={"primaryKey": None} if kind == "indexCreation" else {"deletedDocuments": None})
    with harness.queue.listeners.when_ended(task.uid) as wakeup:
        harness.run()
        assert wakeup.is_set
    assert seen.tasks[-1][:2] == (0, TO_FINISHED) and seen.batches[-1][:2] == (0, TO_FINISHED)


def test_a_batch_that_fails_to_finish_is_enqueued_again(harness, seen) -> None:
    harness.add([{"id": 1}])
    finish, failures = harness.queue.finish, [OSError("full")]

    def failing(*args: Any) -> None:
        if failures:
            raise failures.pop()
        finish(*args)

    harness.queue.finish = failing
    harness.run()
    harness.bugs.clear()
    assert [step for _, step, _ in seen.tasks] == [TO_ENQUEUED, TO_PROCESSING, TO_ENQUEUED, TO_PROCESSING, TO_FINISHED]
    assert [step for _, step, _ in seen.batches] == [TO_PROCESSING, TO_PROCESSING, TO_FINISHED]
