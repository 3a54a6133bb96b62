"""What must hold when something dies so close to the commit of a batch that it is hard to say whether it was before.

1. A task whose effect is committed ends as it was done, whatever wants to cancel it after a restart.
2. The tasks behind it are canceled as ever.
3. A commit that nobody could see when the indexing process died is gone: no later recovery brings it back behind
   a task that has failed, or was canceled, meanwhile; also when the processes that are to overwrite it are killed.
4. A batch that was to make its index and did not leaves no file behind.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from svcd.index.writer import IndexWriter
from svcd.tasks import indexing
from svcd.tasks.indexing_client import IndexingProcessDied
from tests.tasks.conftest import TaskHarness

# SQLite keeps the head of the index of a log twice; a commit counts when both copies tell of it.
LOG_INDEX_HEAD = 96


class Stop(BaseException):
    """The daemon is killed here."""


def test_what_is_committed_is_not_canceled(harness: TaskHarness) -> None:
    harness.add([{"id": 1}])
    harness.run()
    done = harness.add([{"id": 2}])

    def stop() -> None:
        raise Stop

    harness.writer.after = stop
    with pytest.raises(Stop):
        harness.run()
    harness.restart()
    waiting = harness.add([{"id": 3}])
    harness.do("taskCancelation", None, {"matchedTasks": 2, "canceledTasks": None}, uids=[done.uid, waiting.uid])
    harness.run()
    assert harness.task(waiting).status == "canceled"
    assert (harness.task(done).status, harness.documents()) == ("succeeded", {0: {"id": 1}, 1: {"id": 2}})


@pytest.mark.parametrize("deaths", [1, 3])
def test_what_is_committed_is_not_canceled_though_processes_die(harness: TaskHarness, deaths: int) -> None:
    harness.add([{"id": 1}])
    harness.run()
    done = harness.add([{"id": 2}])
    left = [IndexingProcessDied("killed")] * deaths

    def die() -> None:
        if left:
            assert harness.runner.kill_batches([done.uid])
            raise left.pop()

    harness.writer.after = die
    harness.run()
    assert (harness.task(done).status, harness.documents(), left) == ("succeeded", {0: {"id": 1}, 1: {"id": 2}}, [])


@pytest.mark.parametrize("deaths", [0, 1, 3])
def test_what_died_unseen_does_not_come_back(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch, deaths: int) -> None:
    harness.add([{"id": 1}])
    harness.run()
    assert harness.documents() == {0: {"id": 1}}  # its reader stays open, as in a daemon that is asked
    (log_index,) = (harness.path / "indexes").glob("*-shm")
    head = log_index.read_bytes()[:LOG_INDEX_HEAD]

    def die(_: IndexWriter) -> None:
        """As a kill between the sync of the log and the change of its index: the frames are there, unseen."""
        _put_back(log_index, head)
        raise IndexingProcessDied("killed")

    monkeypatch.setattr(IndexWriter, "checkpoint", die)
    left = [IndexingProcessDied("killed, too")] * deaths
    commit_nothing = indexing.commit_nothing

    def reset(path: Path, keeps_changes: bool) -> None:
        if left:
            raise left.pop()
        commit_nothing(path, keeps_changes)

    monkeypatch.setattr(indexing, "commit_nothing", reset)
    failed = harness.add([{"id": 2}])
    harness.run()
    assert harness.task(failed).status == "failed" and harness.documents() == {0: {"id": 1}} and not left
    harness.restart()
    assert harness.documents() == {0: {"id": 1}}


def _put_back(log_index: Path, head: bytes) -> None:
    with log_index.open("r+b") as file:
        file.write(head)


def test_an_index_that_never_came_into_being_leaves_no_file(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(_: IndexWriter) -> None:
        monkeypatch.undo()
        raise IndexingProcessDied("killed")

    monkeypatch.setattr(IndexWriter, "transaction", die)
    failed = harness.add([{"id": 1}])
    harness.run()
    harness.bugs.clear()  # a crash is told
    assert harness.task(failed).status == "failed"
    assert list((harness.path / "indexes").iterdir()) == []
