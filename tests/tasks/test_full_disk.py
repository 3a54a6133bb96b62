"""What must hold of batches for which the disk has no room.

1. Tasks that free space do not fail with the tasks of their batch that take some.
2. A batch that frees space and finds none uses the reserve; without one it fails with no_space_left_on_device.
3. A file that cannot be opened, or whose log cannot be truncated, is reported as such, or not at all.
4. Whether the disk was full is asked before the log of a failed batch is truncated, which frees space.
5. A batch that is committed ends as it was done.
6. Deletions in portions leave what they leave at once.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from svcd.index import disk_space, writer as index_writer
from svcd.index.disk_space import LOW_BYTES
from svcd.index.encoded_document import EncodedDocuments
from svcd.index.writer import DocumentChange, IndexWriter
from svcd.instance.task_records import Task
from tests.support.disk_errors import sqlite_error
from tests.tasks.conftest import TaskHarness

FULL = "no_space_left_on_device"


def ends(harness: TaskHarness, *tasks: Task) -> list[str]:
    found = [harness.task(task) for task in tasks]
    return [task.error["code"] if task.error else task.status for task in found]


@pytest.fixture
def films(harness: TaskHarness) -> TaskHarness:
    harness.add([{"id": number} for number in range(5)])
    harness.run()
    return harness


def test_deletions_do_not_fail_with_the_additions_of_their_batch(films: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    write = IndexWriter.write

    def without_room(writer: IndexWriter, changes: Iterable[DocumentChange], encoded: EncodedDocuments) -> None:
        changes = list(changes)
        if any(change.json is not None for change in changes):
            raise sqlite_error()
        write(writer, changes, encoded)

    monkeypatch.setattr(IndexWriter, "write", without_room)
    tasks = films.add([{"id": 7}]), films.delete([1]), films.add([{"id": 8}]), films.delete([2])
    films.run()
    assert ends(films, *tasks) == [FULL, "succeeded", FULL, "succeeded"]
    assert [each["id"] for each in films.documents().values()] == [0, 3, 4]


@pytest.mark.parametrize("has_reserve", [True, False])
def test_deletions_are_done_with_the_reserve(films: TaskHarness, monkeypatch: pytest.MonkeyPatch, has_reserve: bool) -> None:
    if has_reserve:
        films.instance.keep_reserve()
    write = IndexWriter.write

    def without_room(writer: IndexWriter, changes: Iterable[DocumentChange], encoded: EncodedDocuments) -> None:
        if not films.instance.reserve.is_short:
            raise sqlite_error()
        write(writer, changes, encoded)

    monkeypatch.setattr(IndexWriter, "write", without_room)
    deleted = films.delete([1])
    films.run()
    assert ends(films, deleted) == ["succeeded" if has_reserve else FULL]
    assert not films.instance.reserve.is_short  # there is room again


@pytest.mark.parametrize(("code", "free"), [(sqlite3.SQLITE_FULL, LOW_BYTES), (sqlite3.SQLITE_IOERR_SHMSIZE, LOW_BYTES - 1)])
def test_a_file_that_cannot_be_opened_on_a_full_disk_says_so(films: TaskHarness, monkeypatch: pytest.MonkeyPatch,
                                                              code: int, free: int) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise sqlite_error(code)

    monkeypatch.setattr(index_writer, "open_writer", refuse)
    monkeypatch.setattr(disk_space, "disk_bytes", lambda _: (free, 1 << 40))
    old, new, compaction = films.add([{"id": 7}]), films.add([{"id": 7}], "books"), films.do("indexCompaction")
    films.run()
    assert ends(films, old, new, compaction) == [FULL] * 3
    assert len(list((films.path / "indexes").glob("*.sqlite"))) == 1


def test_a_full_disk_is_known_by_what_was_free_before_the_log_was_truncated(films: TaskHarness,
                                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    free, truncate_wal = [LOW_BYTES - 1], IndexWriter.truncate_wal

    def without_room(*_: Any) -> NoReturn:
        raise sqlite_error(sqlite3.SQLITE_IOERR_SHMSIZE)

    def making_room(writer: IndexWriter) -> None:
        free[0] = LOW_BYTES
        truncate_wal(writer)

    monkeypatch.setattr(IndexWriter, "write", without_room)
    monkeypatch.setattr(IndexWriter, "truncate_wal", making_room)
    monkeypatch.setattr(disk_space, "disk_bytes", lambda _: (free[0], 1 << 40))
    added = films.add([{"id": 7}])
    films.runner.step()
    assert free == [LOW_BYTES] and ends(films, added) == [FULL]


def test_a_log_that_cannot_be_cut_fails_nothing(films: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: IndexWriter) -> NoReturn:
        raise sqlite_error()

    monkeypatch.setattr(IndexWriter, "checkpoint", refuse)
    added = films.add([{"id": 7}])
    films.run()
    assert ends(films, added) == ["succeeded"] and len(films.documents()) == 6


def test_what_is_committed_waits_for_room_to_be_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = TaskHarness(tmp_path / "data")
    harness.add([{"id": 1}])
    harness.run()
    added = harness.add([{"id": 2}])

    def stop() -> None:
        raise sqlite_error()

    harness.writer.after = stop  # as if the end could not be written
    harness.runner.step()
    harness.writer.after = lambda: None
    with monkeypatch.context() as patched:
        patched.setattr(index_writer, "open_writer", lambda *_, **__: stop())
        harness.runner.step()
        assert ends(harness, added) == ["enqueued"]
    harness.run()
    assert ends(harness, added) == ["succeeded"] and len(harness.documents()) == 2
    harness.instance.close()


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_large_deletions_are_done_in_portions(films: TaskHarness, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    films.change({"filterableAttributes": ["id"]})
    films.add([{"id": number, "title": f"film {number}"} for number in range(100)])
    films.run()
    films.instance.keep_reserve()
    films.instance.reserve.disk = lambda _: (0, 1 << 30)
    films.instance.reserve.give_up(1 << 20)
    write, portions = IndexWriter.write, []

    def with_little_room(writer: IndexWriter, changes: Iterable[DocumentChange], encoded: EncodedDocuments) -> None:
        changes = list(changes)
        if len(changes) > most:
            raise sqlite_error()
        portions.append(len(changes))
        write(writer, changes, encoded)

    monkeypatch.setattr(IndexWriter, "write", with_little_room)
    by_filter = films.do("documentDeletion", details={"deletedDocuments": None}, filter="id < 40")
    by_id, wrong = films.delete([2, 50, 51, 50, 1000]), films.do("documentDeletion", details=None, filter="title = 1")
    films.run()
    assert ends(films, by_filter, by_id, wrong) == ["succeeded", "succeeded", "invalid_document_filter"]
    assert [films.task(task).details["deletedDocuments"] for task in (by_filter, by_id)] == [40, 2]  # type: ignore[index]
    assert sum(portions) == 42 and len(films.documents()) == 58
    assert len(films.find("film")) == 58
