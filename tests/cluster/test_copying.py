"""What must hold of copies of a data folder:

1. A copy is one state: what its list of tasks has as ended is in its indexes, and nothing else is but a batch that has begun;
   payloads of tasks that wait are there.
2. That holds while batches end all the time; when the files never come to rest, it is refused.
3. A copy is of the same cluster, up to where it was; read as a snapshot it is a single instance.
4. Nothing of a copy is left when it has been read, when its reader breaks off, or after a crash.
"""
from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from svcd.cluster import joining
from svcd.cluster.joining import Busy, copy_of, remove_leftovers
from svcd.index.connections import open_reader
from svcd.instance import applied_log
from svcd.instance.instance import Instance
from svcd.tasks.archive_import import import_snapshot
from tests.cluster.conftest import LocalNode, MakeNode
from tests.support.memory_log import MemoryServers
from tests.tasks.conftest import TaskHarness


def unpacked(instance: Instance, folder: Path, keeps_cluster: bool = True) -> Path:
    """A data folder made of a copy."""
    packed = folder.with_suffix(".snapshot")
    with copy_of(instance) as file, packed.open("wb") as target:
        shutil.copyfileobj(file, target)
    import_snapshot(packed, folder, keeps_cluster=keeps_cluster)
    return folder


def numbers(harness: TaskHarness, index_uid: str) -> list[int]:
    return sorted(document["id"] for document in harness.documents(index_uid).values())


# -- 1. One state


def test_1_a_copy_has_what_ended_and_what_waits(harness: TaskHarness, tmp_path: Path) -> None:
    harness.add([{"id": 1}])
    harness.run()
    waiting = harness.add([{"id": 2}])
    copy = TaskHarness(unpacked(harness.instance, tmp_path / "copy"))
    try:
        assert numbers(copy, "movies") == [1] and copy.task(waiting).status == "enqueued"
        copy.run()
        assert numbers(copy, "movies") == [1, 2]
    finally:
        copy.instance.close()
    assert harness.task(waiting).status == "enqueued"


def test_1_an_index_ahead_of_the_list_is_not_copied(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed, and not yet ended: without a batch that has begun, the copy would run it again."""
    monkeypatch.setattr(joining, "_TRIES", 2)
    monkeypatch.setattr(joining, "_PAUSE_S", 0.0)
    harness.add([{"id": 1}])
    harness.run()
    refused: list[bool] = []

    def copy_now() -> None:
        with pytest.raises(Busy), copy_of(harness.instance):
            pass
        refused.append(True)

    harness.writer.after = copy_now
    harness.add([{"id": 2}])
    harness.run()
    assert refused == [True]


# -- 2. While batches end


def test_2_a_copy_while_batches_end_is_one_state(make_node: MakeNode, servers: MemoryServers, tmp_path: Path) -> None:
    """The sum of two indexes that get a document each in turn is never off by more than what has begun."""
    node = make_node("a")
    node.look()
    node.start()
    stopping = threading.Event()

    def write() -> None:
        number = 0
        while not stopping.is_set():
            for index_uid in ("left", "right"):
                last = node.add({"id": number}, index_uid=index_uid)
            number += 1
            if number % 5 == 0:
                node.finished(last)
            node.look()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(6):
            check_state(node, unpacked(node.instance, tmp_path / f"copy{number}"), servers)
    finally:
        stopping.set()
        writer.join()
    assert node.bugs == []


def check_state(node: LocalNode, folder: Path, servers: MemoryServers) -> None:
    """Each index of a copy has the documents of the tasks that ended, and at most those of one batch that has begun."""
    with closing(open_reader(folder / "instance.sqlite")) as listed:
        position = applied_log.position(listed)
        assert position is not None and position.applied <= servers.last
        begun = {uid for batch in applied_log.begun_batches(listed) for uid in batch.tasks}
        for index_uid, uuid in listed.execute("SELECT uid, uuid FROM indexes").fetchall():
            rows = listed.execute("SELECT uid, status, payload FROM tasks WHERE index_uid = ? ORDER BY uid", (index_uid,)).fetchall()
            with closing(open_reader(folder / "indexes" / f"{uuid}.sqlite")) as index:
                there = index.execute("SELECT count(*) FROM documents").fetchone()[0]
            ended = sum(status == "succeeded" for _, status, _ in rows)
            assert ended <= there <= ended + sum(uid in begun for uid, _, _ in rows), (index_uid, ended, there)
            for _, status, payload in rows:
                assert status != "enqueued" or (folder / "payloads" / payload).exists()


# -- 3. Of which cluster


def test_3_a_copy_is_of_the_same_cluster(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node("a")
    node.look()
    node.start()
    node.finished(node.add({"id": 1}))
    folders = [unpacked(node.instance, tmp_path / f"copy{keeps}", keeps_cluster=bool(keeps)) for keeps in (0, 1)]
    found = []
    for folder in folders:
        with closing(open_reader(folder / "instance.sqlite")) as connection:
            found.append(applied_log.position(connection))
    assert found[0] is None and found[1] == node.node.position


# -- 4. What is left


@pytest.fixture
def filled(harness: TaskHarness) -> Iterator[TaskHarness]:
    harness.add([{"id": number} for number in range(100)])
    harness.run()
    yield harness


def test_4_nothing_is_left_of_a_copy(filled: TaskHarness) -> None:
    with copy_of(filled.instance) as file:
        assert file.read(10) and list((filled.path / "cluster-copies").iterdir())
    assert list((filled.path / "cluster-copies").iterdir()) == []
    with pytest.raises(ValueError), copy_of(filled.instance):
        raise ValueError
    assert list((filled.path / "cluster-copies").iterdir()) == []


def test_4_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    (tmp_path / "cluster-copies" / "x").mkdir(parents=True)
    (tmp_path / "cluster-copies" / "x" / "copy").write_text(json.dumps({}))
    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_4_a_copy_is_not_part_of_a_copy(filled: TaskHarness, tmp_path: Path) -> None:
    with copy_of(filled.instance):
        folder = unpacked(filled.instance, tmp_path / "copy")
    assert not (folder / "cluster-copies").exists()
