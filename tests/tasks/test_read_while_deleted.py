"""What must hold of reads while their index is deleted, or deleted and made again.

1. A read that looked its index up before it was deleted and made again reads the new one: it is no fault of the client.
2. No descriptor of a deleted file stays behind, so that its space is given back.
"""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tasks.conftest import TaskHarness


def test_a_recreated_index_is_read_again(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.add([{"id": 1}])
    harness.run()
    look_up = harness.instance.file_uuid

    def look_up_and_lose(index_uid: str) -> str:
        uuid = look_up(index_uid)
        monkeypatch.undo()
        harness.do("indexDeletion", details={"deletedDocuments": None})
        harness.run()
        harness.add([{"id": 2}])
        harness.run()
        return uuid

    monkeypatch.setattr(harness.instance, "file_uuid", look_up_and_lose)
    assert harness.documents() == {0: {"id": 2}}


def test_a_read_that_ends_after_the_deletion_keeps_no_file(harness: TaskHarness) -> None:
    harness.add([{"id": 1}])
    harness.run()
    with harness.instance.read("movies") as reader:
        harness.do("indexDeletion", details={"deletedDocuments": None})
        harness.run()
        assert reader.documents([0]) == ['{"id":1}']
    assert deleted_files_held(harness.path) == []


def deleted_files_held(folder: Path) -> list[str]:
    """What this process holds open of files under a folder that have no name any more."""
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:  # the one of the listing itself
            continue
    return [target for target in targets if target.startswith(str(folder)) and target.endswith(" (deleted)")]
