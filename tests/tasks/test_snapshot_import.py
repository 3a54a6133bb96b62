"""What must hold of the import of a snapshot:

1. A snapshot and its import change no answer, but for the task that made it; what waited runs after it.
2. A file that is no snapshot of svcd, or not whole, is refused in words, and leaves nothing.
"""
from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from svcd.tasks.archiving import Folders
from svcd.tasks.snapshot_import import import_snapshot
from svcd.tasks.unpacking import ArchiveRefused
from tests.tasks.conftest import House
from tests.tasks.test_importing import packed, shown


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "old", folders=Folders(tmp_path / "dumps", tmp_path / "snapshots"))
    yield house
    house.instance.close()
    assert not house.bugs


def test_a_snapshot_and_its_import_change_no_answer(house: House, tmp_path: Path) -> None:
    house.change({"stopWords": ["the"]})
    house.add([{"id": 1, "title": "café"}])
    house.run()
    house.do("snapshotCreation", None)
    waiting = house.add([{"id": 2}])
    house.runner.step()
    (tmp_path / "new").mkdir()
    import_snapshot(tmp_path / "snapshots" / "old.snapshot", tmp_path / "new")
    again = House(tmp_path / "new")
    try:
        assert again.instance.uid == house.instance.uid
        before, after = shown(house), shown(again)
        before["tasks"] = [task for task in before["tasks"] if task["type"] != "snapshotCreation"]
        before["batches"] = before["batches"][:-1]
        assert after == before
        assert again.task(waiting).status == "enqueued"
        again.run()
        assert again.task(waiting).status == "succeeded"
        assert list(again.documents()) == [0, 1]
    finally:
        again.instance.close()
    assert not again.bugs
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("entries, words", [
    ({"VERSION": "1.12.0", "tasks/data.mdb": "x"}, "of version 1.12.0.*no entry `instance.sqlite`.*--import-dump"),
    ({"metadata.json": {"dumpVersion": "V6"}}, "is no snapshot of svcd: "),
    ({"instance.sqlite": "this is no database, but a text that is long enough" * 20}, "cannot be read"),
    ({"../outside": "x"}, "the snapshot has the entry `../outside`"),
])
def test_what_is_no_snapshot_is_refused(tmp_path: Path, entries: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ArchiveRefused, match=words):
        import_snapshot(packed(tmp_path / "x.snapshot", entries), tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["x.snapshot"]


def test_half_a_snapshot_is_refused(house: House, tmp_path: Path) -> None:
    house.add([{"id": 1}])
    house.do("snapshotCreation", None)
    house.run()
    path = tmp_path / "snapshots" / "old.snapshot"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ArchiveRefused, match="is not a whole snapshot"):
        import_snapshot(path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_snapshot_without_the_file_of_an_index_is_refused(house: House, tmp_path: Path) -> None:
    house.add([{"id": 1}])
    house.run()
    row = house.instance.list_indexes()[0][0]
    house.instance.index_path(row.uuid).rename(tmp_path / "taken")
    house.instance.close()
    with tarfile.open(tmp_path / "x.snapshot", "w:gz") as tar:
        tar.add(tmp_path / "old", ".")
    with pytest.raises(ArchiveRefused, match=f"lacks the file of the index `{row.uid}`"):
        import_snapshot(tmp_path / "x.snapshot", tmp_path / "new")
