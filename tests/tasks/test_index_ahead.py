"""What must hold where the file of an index and the queue do not tell the same story.

`instance.sqlite` is put back from before some tasks ran, or while some waited, and the files of indexes stay.

1. A task whose outcome the file holds ends with that outcome, and without its documents.
2. A task that the file was written behind, and whose outcome it does not hold any more, fails in words.
3. A new task is never taken for an old one of the same uid.
4. No batch is empty, and the queue comes to rest.
5. A file that enqueued tasks have made, and that no row names, becomes their index; one that is newer than the queue
   is kept aside; one whose tasks ended goes.
6. An index whose file is missing says so, in reads and in tasks, and can be deleted.
7. What was found is told in one line.
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
from tests.tasks.conftest import House

_MOST_STEPS = 20


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    lines: list[tuple[str, dict[str, Any]]] = []
    for level in ("info", "warn"):
        monkeypatch.setattr(logs, level, lambda event, **fields: lines.append((event, fields)))
    return lines


@contextmanager
def put_back(house: House) -> Iterator[None]:
    """What the block does is known to the files of indexes alone: the queue is as it was before."""
    backup = house.path.parent / "backup.sqlite"
    with closing(sqlite3.connect(house.path / "instance.sqlite")) as now, closing(sqlite3.connect(backup)) as copy:
        now.backup(copy)
    yield
    house.instance.close()
    for file in house.path.glob("instance.sqlite*"):
        file.unlink()
    shutil.copyfile(backup, house.path / "instance.sqlite")
    house.open()


def run(house: House) -> None:
    """All tasks, in a bounded number of batches, none of which is empty."""
    for _ in range(_MOST_STEPS):
        if not house.runner.step():
            break
    else:
        raise AssertionError("the queue does not come to rest")
    assert not house.queue.matching(TaskFilter(statuses=["enqueued", "processing"]))
    batches = house.queue.list_batches(TaskFilter(), 100, None, False).results
    assert all(batch.stats["totalNbTasks"] for batch in batches)


def ends(house: House, *tasks: Task) -> list[tuple[str, str | None]]:
    found = [house.task(task) for task in tasks]
    return [(task.status, task.error["code"] if task.error else None) for task in found]


def test_a_task_ends_as_the_file_proves(house: House, told: list[Any]) -> None:
    house.add([{"id": 1}])
    house.run()
    good, bad = house.add([{"id": 2}]), house.add([{"noid": 2}])
    with put_back(house):
        house.run()
    run(house)
    assert ends(house, good, bad) == [("succeeded", None), ("failed", "missing_document_id")]
    assert house.task(good).details == {"receivedDocuments": 1, "indexedDocuments": 1}
    assert list(house.documents().values()) == [{"id": 1}, {"id": 2}]
    assert len(told) == 1


def test_a_task_whose_outcome_is_not_known_any_more_fails_in_words(house: House, told: list[Any]) -> None:
    house.add([{"id": 1}])
    house.run()
    unknown = house.delete([1])
    with put_back(house):
        house.run()
        house.add([{"id": 3}])
        house.run()
    run(house)
    assert ends(house, unknown) == [("failed", "io_error")]
    assert "not known any more" in house.task(unknown).error["message"]
    assert told == [("the file of an index is ahead of the queue",
                     {"index": "movies", "newest_task": 2, "ended": 0, "failed_as_unknown": 1})]


def test_a_new_task_is_not_taken_for_an_old_one_of_its_uid(house: House, told: list[Any]) -> None:
    house.add([{"id": 1}])
    house.run()
    with put_back(house):
        for number in range(2, 5):
            lost = house.add([{"id": number}])
            house.run()
    fresh = [house.add([{"id": 8}]), house.delete([1]), house.add([{"id": 9}])]
    assert fresh[-1].uid == lost.uid
    run(house)
    assert ends(house, *fresh) == [("succeeded", None)] * 3
    assert {each["id"] for each in house.documents().values()} == {2, 3, 4, 8, 9}
    assert [line for line, _ in told] == ["the file of an index is ahead of the queue"]


def test_a_canceled_task_stays_canceled(house: House) -> None:
    """It ended in the queue; what the file says of it comes too late."""
    house.add([{"id": 1}])
    house.run()
    lost = house.add([{"id": 2}])
    with put_back(house):
        house.run()
    with house.queue.finishing() as connection:
        connection.execute("UPDATE tasks SET status = 'canceled', batch_uid = 0 WHERE uid = ?", (lost.uid,))
    fresh = house.add([{"id": 3}])
    run(house)
    assert ends(house, lost, fresh) == [("canceled", None), ("succeeded", None)]


def test_a_compaction_is_no_task_of_the_past(house: House) -> None:
    """Nothing says how one ended, and it may be done again; another index task may have come before it."""
    house.add([{"id": 1}])
    house.run()
    compaction = house.do("indexCompaction")
    with put_back(house):
        house.run()
        house.add([{"id": 2}])
        house.run()
    run(house)
    assert ends(house, compaction) == [("succeeded", None)]


def test_a_file_that_waiting_tasks_have_made_becomes_their_index(house: House) -> None:
    made = house.add([{"id": 1, "title": "once"}])
    with put_back(house):
        house.run()
    run(house)
    assert ends(house, made) == [("succeeded", None)] and house.find("once") == 1
    (row,), _ = house.instance.list_indexes()
    assert (row.primary_key, row.stats["documents"]) == ("id", 1)
    house.do("indexDeletion", details={"deletedDocuments": None})
    house.add([{"id": 2}])
    run(house)
    assert list(house.documents().values()) == [{"id": 2}]


def test_a_file_newer_than_the_queue_is_kept_aside(house: House, told: list[Any]) -> None:
    house.add([{"id": 1}])
    house.run()
    with put_back(house):
        house.add([{"id": 2}], "books")
        house.run()
    assert [uid.uid for uid in house.instance.list_indexes()[0]] == ["movies"]
    (aside,) = (house.path / "unclaimed").glob("*.sqlite")
    with closing(sqlite3.connect(aside)) as file:
        assert file.execute("SELECT json FROM documents").fetchall() == [('{"id":2}',)]
    assert told == [("the file of an index is newer than instance.sqlite, which does not name it; it is kept aside",
                     {"file": f"unclaimed/{aside.name}", "newest_task": 1})]


def test_a_file_of_ended_tasks_goes(house: House) -> None:
    """As after a crash between the end of a deletion and that of the file."""
    house.add([{"id": 1}])
    house.run()
    (file,) = (house.path / "indexes").glob("*.sqlite")
    shutil.copyfile(file, house.path.parent / "kept")
    house.do("indexDeletion", details={"deletedDocuments": None})
    house.run()
    shutil.copyfile(house.path.parent / "kept", file)
    house.restart()
    assert not list((house.path / "indexes").iterdir()) and not (house.path / "unclaimed").exists()


def test_an_index_without_a_file_says_so_and_can_be_deleted(house: House, told: list[Any]) -> None:
    house.add([{"id": 1}])
    house.add([{"id": 1}], "books")
    house.run()
    house.instance.close()
    (path,) = [path for path in house.path.glob("indexes/*.sqlite") if path.stem == uuid_of(house.path, "movies")]
    path.unlink()
    house.open()
    assert told == [("an index has no file; its tasks fail until it is deleted, or the file is put back",
                     {"index": "movies", "file": f"indexes/{path.name}"})]
    with pytest.raises(ApiError, match="missing from the data folder") as refused, house.instance.read("movies"):
        pass
    assert refused.value.code == "io_error"
    written, other = house.add([{"id": 2}]), house.add([{"id": 2}], "books")
    run(house)
    assert ends(house, written, other) == [("failed", "io_error"), ("succeeded", None)] and not path.exists()
    house.do("indexDeletion", details={"deletedDocuments": None})
    again = house.add([{"id": 3}])
    run(house)
    assert ends(house, again) == [("succeeded", None)] and list(house.documents().values()) == [{"id": 3}]


def uuid_of(folder: Path, index_uid: str) -> str:
    with closing(sqlite3.connect(folder / "instance.sqlite")) as connection:
        return str(connection.execute("SELECT uuid FROM indexes WHERE uid = ?", (index_uid,)).fetchone()[0])
