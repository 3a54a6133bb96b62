"""What must hold of maintenance, the materializing of postings between batches:

1. After a batch it is done for the index when no task waits.
2. What a stop left undone is done after the next start, and only for indexes that need it.
3. Maintenance that was interrupted goes on later, also after tasks of other indexes.
4. A stop kills it, also if its process is just starting, and waits for nothing.
5. The runner tells whether it is under way.
"""
from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.tasks.indexing_client import IndexingProcessDied
from tests.tasks.conftest import LocalWriter, TaskHarness

LONGEST_S = 30


class WatchedWriter(LocalWriter):
    """Puts the name of each index file that is maintained into a queue. interrupted: so many times it is interrupted."""

    def __init__(self, _lock: int = -1) -> None:
        super().__init__(_lock)
        self.maintained: queue.Queue[str] = queue.Queue()
        self.interrupted = 0
        self.is_endless = False  # it ends only when the writer is killed, for the second time
        self.kills, self.killed = 0, threading.Event()

    def kill(self) -> None:
        self.kills += 1
        if self.kills > 1:
            self.killed.set()

    def run(self, request: dict[str, Any], progress: Callable[[str, int, int], None]) -> dict[str, Any]:
        if request["do"] != "materialize":
            return super().run(request, progress)
        if self.is_endless:
            self.maintained.put(Path(request["path"]).stem)
            assert self.killed.wait(LONGEST_S)
            raise IndexingProcessDied
        self.interrupted -= 1
        answer = {"isDone": False} if self.interrupted >= 0 else super().run(request, progress)
        self.maintained.put(Path(request["path"]).stem)
        return answer


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskHarness]:
    for module in ("schema", "materialized"):
        monkeypatch.setattr(f"svcd.index.{module}.LEAST_DOCUMENTS", 2)
    harness = TaskHarness(tmp_path / "data", WatchedWriter)
    yield harness
    harness.runner.stop()
    harness.instance.close()
    assert not harness.bugs


def maintained(harness: TaskHarness) -> str:
    """The uid of the index that is maintained next."""
    assert isinstance(harness.writer, WatchedWriter)
    uuid = harness.writer.maintained.get(timeout=LONGEST_S)
    (uid,) = (row.uid for row in harness.instance.list_indexes()[0] if row.uuid == uuid)
    return uid


def test_an_index_is_maintained_after_its_batch(watched: TaskHarness) -> None:
    watched.runner.start()
    watched.add([{"id": 1}], "small")
    watched.add([{"id": 1}, {"id": 2}], "large")
    assert maintained(watched) == "large"


def test_what_a_stop_left_is_done_after_the_start(watched: TaskHarness) -> None:
    watched.add([{"id": 1}, {"id": 2}], "done")
    watched.add([{"id": 1}], "small")
    watched.run()
    watched.runner.start()
    assert maintained(watched) == "done"
    watched.runner.stop()
    watched.restart()
    watched.add([{"id": 1}, {"id": 2}], "left")
    watched.run()
    assert watched.instance.stale_indexes() == ["left"]
    watched.restart()
    watched.runner.start()
    assert maintained(watched) == "left"


def test_interrupted_maintenance_goes_on(watched: TaskHarness) -> None:
    assert isinstance(watched.writer, WatchedWriter)
    watched.writer.interrupted = 2
    watched.runner.start()
    watched.add([{"id": 1}, {"id": 2}], "large")
    assert maintained(watched) == "large"
    watched.add([{"id": 1}], "small")
    assert [maintained(watched), maintained(watched)] == ["large", "large"]
    assert watched.instance.stale_indexes() == []


def test_the_runner_tells_whether_postings_are_materialized(watched: TaskHarness) -> None:
    assert isinstance(watched.writer, WatchedWriter)
    watched.writer.is_endless = True
    assert not watched.runner.is_materializing()
    watched.runner.start()
    watched.add([{"id": 1}, {"id": 2}], "large")
    assert maintained(watched) == "large"
    assert watched.runner.is_materializing()
    watched.runner.stop(LONGEST_S)
    assert not watched.runner.is_materializing()


def test_4_a_stop_does_not_wait_for_maintenance(watched: TaskHarness) -> None:
    assert isinstance(watched.writer, WatchedWriter)
    watched.writer.is_endless = True
    watched.runner.start()
    watched.add([{"id": 1}, {"id": 2}], "large")
    assert maintained(watched) == "large"
    watched.runner.stop(LONGEST_S)
    assert watched.writer.kills >= 2
    assert watched.instance.stale_indexes() == ["large"]
