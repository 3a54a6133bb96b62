"""What must hold of stored keys.

1. What was added is read back whole, newest first; a uid is there once.
2. Each change, and nothing else, makes another revision, seen by every reader at once.
3. Default keys are made only where there is none.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from svcd.instance.data_folder import DataFolderReader
from svcd.instance.instance import Instance
from svcd.instance.keys import KeyRow


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    opened = Instance(tmp_path / "data")
    yield opened
    opened.close()


def row(uid: str, created_at: int = 1, **others: object) -> KeyRow:
    return KeyRow(uid, ["search", "*.get"], ["films", "b*"], created_at, created_at, **others)  # type: ignore[arg-type]


def test_a_key_is_read_back_whole(instance: Instance) -> None:
    kept = row("u1", name="né", description="for 'films'", expires_at=10**21)
    assert instance.keys.add(kept)
    assert instance.keys.get("u1") == kept and instance.keys.read()[1] == [kept]
    assert instance.keys.get("u2") is None


def test_a_uid_is_there_once(instance: Instance) -> None:
    assert instance.keys.add(row("u1"))
    revision = instance.keys.revision()
    assert not instance.keys.add(row("u1", name="another"))
    assert instance.keys.read() == (revision, [row("u1")])


def test_newest_first_and_of_the_same_moment_the_last(instance: Instance) -> None:
    for uid, created_at in (("b", 2), ("a", 2), ("c", 1), ("d", 3)):
        instance.keys.add(row(uid, created_at))
    assert [found.uid for found in instance.keys.read()[1]] == ["d", "a", "b", "c"]
    for offset, limit, uids in ((0, 2, ["d", "a"]), (3, 20, ["c"]), (4, 1, []), (0, 0, []), (2**64 - 1, 2**64 - 1, [])):
        found, total = instance.keys.page(offset, limit)
        assert ([one.uid for one in found], total) == (uids, 4)


def test_words_change_and_rights_do_not(instance: Instance) -> None:
    instance.keys.add(row("u1", name="old", description="kept"))
    assert instance.keys.update("u1", {"name": None}, 9) == instance.keys.get("u1")
    found = instance.keys.get("u1")
    assert found and (found.name, found.description, found.created_at, found.updated_at) == (None, "kept", 1, 9)
    assert instance.keys.update("none", {}, 9) is None


def test_every_change_is_a_revision_that_all_readers_see(instance: Instance) -> None:
    library = DataFolderReader(instance.path)
    seen = [library.keys.revision()]
    for change in (lambda: instance.keys.add(row("u1")), lambda: instance.keys.update("u1", {}, 2),
                   lambda: instance.keys.remove("u1"), lambda: instance.keys.add(row("u1"))):
        change()
        seen.append(library.keys.revision())
        assert library.keys.read() == instance.keys.read()
    assert len(set(seen)) == 5
    assert not instance.keys.remove("none") and not instance.keys.add(row("u1"))
    instance.queue.enqueue("indexCreation", "films", details=None)
    assert library.keys.revision() == seen[-1]
    library.close()


def test_defaults_are_for_the_empty_alone(instance: Instance) -> None:
    instance.keys.add_to_empty([row("first"), row("second")])
    assert [found.uid for found in instance.keys.read()[1]] == ["second", "first"]
    instance.keys.add_to_empty([row("third")])
    assert len(instance.keys.read()[1]) == 2
