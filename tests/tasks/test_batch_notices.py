"""What must hold of the notices that batches leave:

1. Each batch that ended leaves one, however it ended, and none before.
2. A notice has a line for each task of the batch, which is the task as it is shown; those it canceled are of it.
3. A stop at any line leaves either no end and no notice, or both.
4. What becomes of the tasks later changes no notice.
"""
from __future__ import annotations

import json
from typing import Any

import pytest

from svcd.instance.task_records import TaskFilter
from svcd.instance.webhooks import LAUNCH_UUID
from svcd.tasks.indexing_client import IndexingProcessCrashed
from svcd.tasks.views import task_view
from tests.tasks.conftest import TaskHarness


@pytest.fixture
def watched(harness: TaskHarness) -> TaskHarness:
    harness.instance.webhooks.set_launch_webhook("http://hook.test")
    return harness


def notices(harness: TaskHarness) -> list[tuple[int, list[dict[str, Any]]]]:
    """The notices that wait, taken away: batch uid and tasks of each."""
    found = []
    while notice := harness.instance.outbox.head(LAUNCH_UUID):
        lines = b"".join(harness.instance.outbox.lines(notice)).splitlines()
        assert len(lines) == notice.tasks
        found.append((notice.batch_uid, [json.loads(line) for line in lines]))
        harness.instance.outbox.mark_delivered(LAUNCH_UUID, notice)
    return found


def shown(harness: TaskHarness, batch_uid: int) -> list[dict[str, Any]]:
    found = harness.queue.list_tasks(TaskFilter(batch_uids=[batch_uid]), 1000, None, True)
    return [task_view(task) for task in found.results]


def by_uid(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(tasks, key=lambda task: task["uid"])


def test_every_kind_of_end_has_a_notice(watched: TaskHarness) -> None:
    watched.add([{"id": 1}])
    watched.add([{"id": 2}])
    watched.run()
    watched.add([{"id": "not valid!"}])
    watched.delete([7], "nowhere")
    watched.change({"stopWords": ["the"]})
    watched.run()
    watched.do("indexSwap", None, {"swaps": []}, swaps=[{"indexes": ["movies", "nowhere"], "rename": True}])
    watched.do("indexDeletion", "nowhere", {"deletedDocuments": None})
    watched.do("dsrUpdate", ".svc_dsr", {"rule": {}, "updatedRules": 1}, uid="a", update={})
    watched.do("dsrClear", ".svc_dsr", {"deletedDocuments": None})
    watched.run()
    seen = notices(watched)
    assert [batch_uid for batch_uid, _ in seen] == list(range(len(seen))) and len(seen) >= 6
    kinds = {(task["type"], task["status"]) for _, tasks in seen for task in tasks}
    assert {("documentAdditionOrUpdate", "failed"), ("documentDeletion", "failed"), ("indexSwap", "succeeded"),
            ("indexDeletion", "succeeded"), ("dsrUpdate", "succeeded"), ("dsrClear", "succeeded")} <= kinds
    assert len(seen[0][1]) == 2
    for batch_uid, tasks in seen[-2:]:
        assert tasks == shown(watched, batch_uid)


def test_there_is_no_notice_before_the_end(watched: TaskHarness) -> None:
    seen: list[object] = []
    watched.writer.before = watched.writer.after = lambda: seen.append(watched.instance.outbox.head(LAUNCH_UUID))
    task = watched.add([{"id": 1}])
    watched.run()
    assert seen == [None, None]
    assert notices(watched) == [(0, [task_view(watched.task(task))])]


def test_canceled_tasks_are_in_a_notice(watched: TaskHarness) -> None:
    waiting = [watched.add([{"id": 1}]), watched.add([{"id": 2}])]
    uids = [task.uid for task in waiting]
    watched.do("taskCancelation", None, {"matchedTasks": 2, "canceledTasks": None}, uids=uids)
    watched.run()
    [(batch_uid, tasks)] = notices(watched)
    assert by_uid(tasks) == shown(watched, batch_uid) and [task["status"] for task in by_uid(tasks)] == [
        "canceled", "canceled", "succeeded"]


def test_a_crash_of_indexing_has_a_notice(watched: TaskHarness) -> None:
    def crash() -> None:
        raise IndexingProcessCrashed("Traceback\nBoom")

    watched.writer.before = crash
    watched.add([{"id": 1}])
    watched.run()
    watched.bugs.clear()
    [(_, [task])] = notices(watched)
    assert task["status"] == "failed" and task["error"]["code"] == "internal"


class Stop(BaseException):
    """The daemon is killed here."""


@pytest.mark.parametrize("place", ["store", "append", "forget"])
def test_a_stop_around_the_end_loses_no_notice(watched: TaskHarness, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = watched.instance.outbox if place == "append" else watched.queue
    original = getattr(target, place)

    def stopped(*args: Any) -> Any:
        if place != "forget":
            original(*args)
        raise Stop

    monkeypatch.setattr(target, place, stopped)
    task = watched.add([{"id": 1}])
    with pytest.raises(Stop):
        watched.run()
    watched.restart()
    watched.instance.webhooks.set_launch_webhook("http://hook.test")
    ended = watched.task(task).status == "succeeded"
    assert ended == (place == "forget")
    assert bool(watched.instance.outbox.head(LAUNCH_UUID)) == ended
    watched.run()
    assert notices(watched) == [(0, [task_view(watched.task(task))])]


def test_a_deleted_task_is_still_in_the_notice(watched: TaskHarness) -> None:
    task = watched.add([{"id": 1}])
    watched.run()
    as_it_was = task_view(watched.task(task))
    swaps = [{"indexes": ["movies", "films"], "rename": True}]
    watched.do("indexSwap", None, {"swaps": swaps}, swaps=swaps)
    watched.do("taskDeletion", None, {"matchedTasks": 1, "deletedTasks": None}, uids=[task.uid])
    watched.run()
    assert notices(watched)[0] == (0, [as_it_was])
