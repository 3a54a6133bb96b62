"""What must hold of payloads that cannot be read:

1. Their task fails alone, with a message that says what was found; also if the bytes have changed into other valid documents.
2. Nothing of it is applied; the other tasks of the batch succeed.
"""
from __future__ import annotations

import builtins
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svcd.instance.task_records import Task
from svcd.tasks.indexing_client import MemoryBudget
from tests.tasks.conftest import TaskHarness


def _truncate(path: Path, _patch: pytest.MonkeyPatch) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _lengthen(path: Path, _patch: pytest.MonkeyPatch) -> None:
    path.write_bytes(path.read_bytes() * 2)


def _garble(path: Path, _patch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"\xff\x00" * (path.stat().st_size // 2) + b"\n" * (path.stat().st_size % 2))


def _nest(path: Path, _patch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"[" * path.stat().st_size)


def _exchange(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """Sound JSON, but not an object."""
    path.write_bytes(b"7".rjust(path.stat().st_size - 1) + b"\n")


def _rename_key(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """Valid documents, but without the primary key."""
    path.write_bytes(path.read_bytes().replace(b'"id"', b'"iD"'))


def _lose_number(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """Valid documents, but with a vector of one number."""
    path.write_bytes(path.read_bytes().replace(b"0.25,", b"     ", 1))


def _remove(path: Path, _patch: pytest.MonkeyPatch) -> None:
    path.unlink()


def _make_folder(path: Path, _patch: pytest.MonkeyPatch) -> None:
    path.unlink()
    path.mkdir()


def _refuse(number: int) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """As a user without rights, or a broken disk, has it."""
    def refuse(path: Path, patch: pytest.MonkeyPatch) -> None:
        opened = builtins.open

        def refusing(file: Any, *args: Any, **options: Any) -> Any:
            if str(file) == str(path):
                raise OSError(number, os.strerror(number), str(path))
            return opened(file, *args, **options)

        patch.setattr(builtins, "open", refusing)
    return refuse


FAULTS = {
    "missing": (_remove, "No such file"), "truncated": (_truncate, r"has \d+ bytes of \d+"),
    "longer": (_lengthen, r"has \d+ bytes, and"), "garbage": (_garble, "document 1 is damaged"),
    "nested": (_nest, "document 1 is damaged"), "no object": (_exchange, "is not an object"),
    "a folder": (_make_folder, "directory"), "no permission": (_refuse(errno.EACCES), "Permission denied"),
    "a broken disk": (_refuse(errno.EIO), "Input/output error"),
}
# With a checksum, each change of bytes is found before the documents are read.
CHANGES = {"garbage": _garble, "nested": _nest, "no object": _exchange, "no primary key": _rename_key, "another vector": _lose_number}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("most_bytes", [None, 16], ids=["small", "large"])
def test_unreadable_documents_fail_their_task_alone(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch, fault: str,
                                                    most_bytes: int | None) -> None:
    check_fails_alone(harness, monkeypatch, *FAULTS[fault], most_bytes, has_checksum=False)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("most_bytes", [None, 16], ids=["small", "large"])
def test_changed_documents_fail_their_task_alone(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch, change: str,
                                                 most_bytes: int | None) -> None:
    harness.change({"embedders": {"e": {"source": "userProvided", "dimensions": 2}}})
    check_fails_alone(harness, monkeypatch, CHANGES[change], "checksum is different", most_bytes, has_checksum=True)


def check_fails_alone(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path, pytest.MonkeyPatch], None],
                      words: str, most_bytes: int | None, has_checksum: bool) -> None:
    if most_bytes:
        harness.options["budget"] = MemoryBudget(documents=most_bytes)
        harness.restart()
    harness.add([{"id": 0, "_vectors": {"e": [0, 1]}}])
    harness.run()
    tasks = [harness.add([{"id": number, "_vectors": {"e": [0.25, number]}} for number in (2 * n, 2 * n + 1)], has_checksum=has_checksum)
             for n in range(1, 8)]
    payload = harness.task(tasks[3]).payload
    assert payload
    damage(harness.queue.payload_folder / payload, monkeypatch)
    harness.run()
    found = [harness.task(task) for task in tasks]
    assert [task.status for task in found] == ["succeeded"] * 3 + ["failed"] + ["succeeded"] * 3
    assert len({task.batch_uid for task in found}) == 1
    check_told(found[3], words)
    assert sorted(each["id"] for each in harness.documents().values()) == [0, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15]


def check_told(task: Task, words: str) -> None:
    assert task.error and task.error["code"] == "io_error"
    assert re.search(words, task.error["message"]) and "Send them again" in task.error["message"]


@pytest.mark.parametrize("kind", ["dumpCreation", "snapshotCreation"])
def test_an_archive_that_lacks_the_documents_of_a_waiting_task_fails_with_a_clear_error(harness: TaskHarness, kind: str) -> None:
    waiting = harness.add([{"id": 1}])
    payload = harness.task(waiting).payload
    assert payload
    (harness.queue.payload_folder / payload).unlink()
    archive = harness.do(kind, None, {"dumpUid": None} if kind == "dumpCreation" else None,
                       **({"keys": [], "instanceUid": None} if kind == "dumpCreation" else {}))
    harness.run()
    error = harness.task(archive).error
    assert error and error["code"] == "io_error" and f"task {waiting.uid}" in error["message"]
