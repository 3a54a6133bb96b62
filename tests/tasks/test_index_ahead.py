"""What must hold when the files of indexes are ahead of the queue (docs/tasks-and-batches.md#index-ahead-of-the-queue):

`instance.sqlite` is put back from before some tasks ran, or while some waited, and the files of indexes stay.

1. A task whose outcome the file holds ends with that outcome, and without its documents.
2. A task older than the newest batch of the file, whose outcome is not stored any more, fails with io_error.
3. A new task is never mistaken for an old one of the same uid.
4. No batch is empty, and the queue comes to rest.
5. A file that enqueued tasks have made, and that no row names, becomes their index; one that is newer than the queue
   is kept aside; one whose tasks ended goes.
6. An index whose file is missing says so, in reads and in tasks, and can be deleted.
7. A recovery is logged in one line.
"""
from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.instance.task_records import Task, TaskFilter
from tests.tasks.conftest import TaskHarness

_MOST_STEPS = 20


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    lines: list[tuple[str, dict[str, Any]]] = []
    for level in ("info", "warn"):
        monkeypatch.setattr(logs, level, lambda event, **fields: lines.append((event, fields)))
    return lines


@contextmanager
def put_back(harness: TaskHarness) -> Iterator[None]:
    """What the block does is known to the files of indexes alone: the queue is as it was before."""
    backup = harness.path.parent / "backup.sqlite"
    with closing(sqlite3.connect(harness.path / "instance.sqlite")) as now, closing(sqlite3.connect(backup)) as copy:
        now.backup(copy)
    yield
    harness.instance.close()
    for file in harness.path.glob("instance.sqlite*"):
        file.unlink()
    shutil.copyfile(backup, harness.path / "instance.sqlite")
    harness.open()


def run(harness: TaskHarness) -> None:
    """All tasks, in a bounded number of batches, none of which is empty."""
    harness.come_to_rest(_MOST_STEPS)
    batches = harness.queue.list_batches(TaskFilter(), 100, None, False).results
    assert all(batch.stats["totalNbTasks"] for batch in batches)


def ends(harness: TaskHarness, *tasks: Task) -> list[tuple[str, str | None]]:
    found = [harness.task(task) for task in tasks]
    return [(task.status, task.error["code"] if task.error else None) for task in found]


def test_a_task_ends_as_the_file_proves(harness: TaskHarness, told: list[Any]) -> None:
    harness.add([{"id": 1}])
    harness.run()
    good, bad = harness.add([{"id": 2}]), harness.add([{"noid": 2}])
    with put_back(harness):
        harness.run()
    run(harness)
    assert ends(harness, good, bad) == [("succeeded", None), ("failed", "missing_document_id")]
    assert harness.task(good).details == {"receivedDocuments": 1, "indexedDocuments": 1}
    assert list(harness.documents().values()) == [{"id": 1}, {"id": 2}]
    assert len(told) == 1


def test_a_task_whose_outcome_is_not_known_any_more_fails_with_a_clear_error(harness: TaskHarness, told: list[Any]) -> None:
    harness.add([{"id": 1}])
    harness.run()
    unknown = harness.delete([1])
    with put_back(harness):
        harness.run()
        harness.add([{"id": 3}])
        harness.run()
    run(harness)
    assert ends(harness, unknown) == [("failed", "io_error")]
    assert "Result unknown" in harness.task(unknown).error["message"]
    assert told == [("the file of an index is ahead of the queue",
                     {"index": "movies", "newest_task": 2, "ended": 0, "failed_as_unknown": 1})]


def test_a_new_task_is_not_taken_for_an_old_one_of_its_uid(harness: TaskHarness, told: list[Any]) -> None:
    harness.add([{"id": 1}])
    harness.run()
    with put_back(harness):
        for number in range(2, 5):
            lost = harness.add([{"id": number}])
            harness.run()
    fresh = [harness.add([{"id": 8}]), harness.delete([1]), harness.add([{"id": 9}])]
    assert fresh[-1].uid == lost.uid
    run(harness)
    assert ends(harness, *fresh) == [("succeeded", None)] * 3
    assert {each["id"] for each in harness.documents().values()} == {2, 3, 4, 8, 9}
    assert [line for line, _ in told] == ["the file of an index is ahead of the queue"]


def test_a_canceled_task_stays_canceled(harness: TaskHarness) -> None:
    """It ended in the queue; what the file says of it comes too late."""
    harness.add([{"id": 1}])
    harness.run()
    lost = harness.add([{"id": 2}])
    with put_back(harness):
        harness.run()
    with harness.queue.finishing() as connection:
        connection.execute("UPDATE tasks SET status = 'canceled', batch_uid = 0 WHERE uid = ?", (lost.uid,))
    fresh = harness.add([{"id": 3}])
    run(harness)
    assert ends(harness, lost, fresh) == [("canceled", None), ("succeeded", None)]


def test_a_compaction_is_no_task_of_the_past(harness: TaskHarness) -> None:
    """Nothing says how one ended, and it may be done again; another index task may have come before it."""
    harness.add([{"id": 1}])
    harness.run()
    compaction = harness.do("indexCompaction")
    with put_back(harness):
        harness.run()
        harness.add([{"id": 2}])
        harness.run()
    run(harness)
    assert ends(harness, compaction) == [("succeeded", None)]


def test_a_file_that_waiting_tasks_have_made_becomes_their_index(harness: TaskHarness) -> None:
    made = harness.add([{"id": 1, "title": "once"}])
    with put_back(harness):
        harness.run()
    run(harness)
    assert ends(harness, made) == [("succeeded", None)] and harness.find("once") == [0]
    (row,), _ = harness.instance.list_indexes()
    assert (row.primary_key, row.stats["documents"]) == ("id", 1)
    harness.do("indexDeletion", details={"deletedDocuments": None})
    harness.add([{"id": 2}])
    run(harness)
    assert list(harness.documents().values()) == [{"id": 2}]


def test_a_file_newer_than_the_queue_is_kept_aside(harness: TaskHarness, told: list[Any]) -> None:
    harness.add([{"id": 1}])
    harness.run()
    with put_back(harness):
        harness.add([{"id": 2}], "books")
        harness.run()
    assert [uid.uid for uid in harness.instance.list_indexes()[0]] == ["movies"]
    (aside,) = (harness.path / "unclaimed").glob("*.sqlite")
    with closing(sqlite3.connect(aside)) as file:
        assert file.execute("SELECT json FROM documents").fetchall() == [('{"id":2}',)]
    assert told == [("the file of an index is newer than instance.sqlite, which does not name it; the file is set aside",
                     {"file": f"unclaimed/{aside.name}", "newest_task": 1})]


def test_a_file_of_ended_tasks_goes(harness: TaskHarness) -> None:
    """As after a crash between the end of a deletion and that of the file."""
    harness.add([{"id": 1}])
    harness.run()
    (file,) = (harness.path / "indexes").glob("*.sqlite")
    shutil.copyfile(file, harness.path.parent / "kept")
    harness.do("indexDeletion", details={"deletedDocuments": None})
    harness.run()
    shutil.copyfile(harness.path.parent / "kept", file)
    harness.restart()
    assert not list((harness.path / "indexes").iterdir()) and not (harness.path / "unclaimed").exists()


def test_an_index_without_a_file_says_so_and_can_be_deleted(harness: TaskHarness, told: list[Any]) -> None:
    harness.add([{"id": 1}])
    harness.add([{"id": 1}], "books")
    harness.run()
    harness.instance.close()
    (path,) = [path for path in harness.path.glob("indexes/*.sqlite") if path.stem == uuid_of(harness.path, "movies")]
    path.unlink()
    harness.open()
    assert told == [("the file of an index is missing; tasks of the index fail until it is deleted or the file is put back",
                     {"index": "movies", "file": f"indexes/{path.name}"})]
    with pytest.raises(ApiError, match="missing from the data folder") as refused, harness.instance.read("movies"):
        pass
    assert refused.value.code == "io_error"
    with harness.instance.read_together(["movies", "books"]) as together, together.read("books") as reader:
        assert len(list(reader.docids_page(0, 9))) == 1
        with pytest.raises(ApiError, match="missing from the data folder"), together.read("movies"):
            pass
    written, other = harness.add([{"id": 2}]), harness.add([{"id": 2}], "books")
    run(harness)
    assert ends(harness, written, other) == [("failed", "io_error"), ("succeeded", None)] and not path.exists()
    harness.do("indexDeletion", details={"deletedDocuments": None})
    again = harness.add([{"id": 3}])
    run(harness)
    assert ends(harness, again) == [("succeeded", None)] and list(harness.documents().values()) == [{"id": 3}]


def uuid_of(folder: Path, index_uid: str) -> str:
    with closing(sqlite3.connect(folder / "instance.sqlite")) as connection:
        return str(connection.execute("SELECT uuid FROM indexes WHERE uid = ?", (index_uid,)).fetchone()[0])
