"""What must hold of the hashes of contents:

1. Equal contents have equal hashes, in whatever order and batches the documents came; other contents have others.
2. The hash goes with the last task of the index.
3. An index that has not changed is not read again; one that was deleted has no hash.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.cluster import service
from svcd.cluster.service import ContentHashes
from tests.tasks.conftest import TaskHarness

FILMS = [{"id": 1, "title": "Alien"}, {"id": 2, "title": "Brazil"}, {"id": 3, "title": "Cube"}]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[TaskHarness]:
    made = TaskHarness(tmp_path / "other")
    yield made
    made.instance.close()


def hashes(harness: TaskHarness) -> dict[str, Any]:
    made = ContentHashes(harness.instance)
    made.update()
    return made.all()


def test_1_the_order_of_documents_does_not_matter(harness: TaskHarness, other: TaskHarness) -> None:
    harness.add(FILMS)
    harness.run()
    for film in reversed(FILMS):
        other.add([film])
        other.run()
    assert hashes(harness)["movies"][1] == hashes(other)["movies"][1]


@pytest.mark.parametrize("change", ["a document", "one more", "one less", "a setting", "the key"])
def test_1_other_contents_have_other_hashes(harness: TaskHarness, other: TaskHarness, change: str) -> None:
    for each in (harness, other):
        each.add(FILMS, key="title" if change == "the key" and each is other else None)
        each.run()
    if change == "a document":
        other.add([{"id": 1, "title": "Aliens"}])
    elif change == "one more":
        other.add([{"id": 4, "title": "Dune"}])
    elif change == "one less":
        other.delete([1])
    elif change == "a setting":
        other.change({"filterableAttributes": ["title"]})
    other.run()
    assert hashes(harness)["movies"][1] != hashes(other)["movies"][1]


def test_1_what_is_undone_has_its_hash_again(harness: TaskHarness) -> None:
    harness.add(FILMS)
    harness.run()
    before = hashes(harness)["movies"]
    harness.add([{"id": 9}])
    harness.delete([9])
    harness.run()
    after = hashes(harness)["movies"]
    assert after[1] == before[1] and after[0] > before[0]


def test_2_the_hash_goes_with_the_last_task(harness: TaskHarness) -> None:
    last = [harness.add(FILMS), harness.add(FILMS)][-1]
    harness.run()
    assert hashes(harness)["movies"][0] == last.uid


def test_3_an_index_that_has_not_changed_is_not_read_again(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.add(FILMS)
    harness.run()
    made = ContentHashes(harness.instance)
    made.update()
    read: list[Any] = []
    found = service._content_hash
    monkeypatch.setattr(service, "_content_hash", lambda *arguments: read.append(found(*arguments)) or read[-1])
    made.update()
    assert read == [None]
    harness.add([{"id": 1}])
    harness.run()
    made.update()
    assert read[-1] is not None and made.all()["movies"] == read[-1][1]


def test_3_a_deleted_index_has_no_hash(harness: TaskHarness) -> None:
    harness.add(FILMS)
    harness.run()
    made = ContentHashes(harness.instance)
    made.update()
    harness.do("indexDeletion", details={"deletedDocuments": None})
    harness.run()
    made.update()
    assert made.all() == {}
