"""What must hold of the runner of a node, with a cluster that the test plays:

1. It plans batches only while it leads, and runs none that the log has not begun.
2. It runs what has begun, in that order; of one index one after the other, a global one when all before it have ended.
3. A batch ends with the moment, the trace and the requests that the log has; its own outcome goes there while it leads.
4. A batch that began before a restart runs again, and is not applied twice; its files are kept.
5. A batch that cannot be finished here is tried until it can, and the cluster is told; it never fails for that.
6. A cancelation does not stop a batch that has begun.
7. A dump is written by the leader; others take its outcome.
8. Batches of different indexes start side by side once those before them have run for a time, on the leader and on the others.
"""
from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from svcd.instance import applied_log
from svcd.instance.applied_log import BegunBatch, ClusterStopped
from svcd.instance.task_records import Task
from svcd.tasks.batching import DELETIONS, DOCUMENTS
from svcd.tasks.global_tasks import Folders
from svcd.tasks.indexing_client import IndexingProcessDied
from tests.tasks.conftest import TaskHarness

MOMENT = 1_900_000_000_000_000_000
FILMS = [{"id": 1, "title": "Alien"}, {"id": 2, "title": "Brazil"}]


class Played:
    """A cluster of one node. ends: what the log has of the ends of batches; what a leader seals is put there."""

    def __init__(self) -> None:
        self.on_begun: Callable[[BegunBatch], None] = lambda batch: None
        self.on_leadership: list[Callable[[], None]] = []
        self.harness: TaskHarness | None = None
        self.leads = True
        self.before: list[BegunBatch] = []
        self.ends: dict[int, Mapping[str, Any]] = {}
        self.ended_here: list[int] = []
        self.begun: list[list[int]] = []
        self.over: list[int] = []
        self.failures: list[str] = []

    def begun_before(self) -> Sequence[BegunBatch]:
        return self.before

    def is_leading(self) -> bool:
        return self.leads

    def begin(self, tasks: Sequence[Task], shape: str, strategy: str) -> bool:
        """As the log does: it is stored, then told."""
        assert self.harness is not None
        self.begun.append([task.uid for task in tasks])
        with self.harness.queue.finishing() as connection:
            batch = BegunBatch(applied_log.next_batch(connection), self.begun[-1], shape, strategy, MOMENT + len(self.begun))
            applied_log.add_begun(connection, batch)
        self.on_begun(batch)
        return True

    def committed_end(self, batch_uid: int, outcome: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        if batch_uid not in self.ends:
            if not self.leads:
                raise ClusterStopped
            self.ended_here.append(batch_uid)
            self.ends[batch_uid] = {**outcome(), "at": MOMENT + 100 + batch_uid}
        return self.ends[batch_uid]

    def report_failure(self, reason: str) -> None:
        self.failures.append(reason)

    def end_unless_leading(self, batch_uid: int) -> Mapping[str, Any] | None:
        return self.ends.get(batch_uid)

    def share_file(self, path: Path) -> dict[str, Any]:
        return {"name": path.name}

    def take_file(self, payload: dict[str, Any], path: Path) -> None:
        raise AssertionError

    def ended(self, batch_uid: int, tasks: Sequence[int]) -> None:
        self.over.append(batch_uid)


class NodeHarness(TaskHarness):
    """An instance whose runner asks a cluster that is played."""

    def __init__(self, path: Path, played: Played, **options: Any) -> None:
        self.played = played
        super().__init__(path, cluster=played, **options)

    def open(self) -> None:
        super().open()
        self.played.harness = self
        with self.instance.read_instance() as connection:
            self.played.before = applied_log.begun_batches(connection)
        self.runner._join(self.played)

    def run(self) -> None:
        for _ in range(50):  # a batch that cannot be finished would be tried for ever
            if not self.runner.step():
                return
        raise AssertionError(self.bugs)


@pytest.fixture
def played() -> Played:
    return Played()


@pytest.fixture
def node(tmp_path: Path, played: Played) -> Iterator[NodeHarness]:
    made = NodeHarness(tmp_path / "data", played, folders=Folders(tmp_path / "dumps", tmp_path / "snapshots"))
    yield made
    made.instance.close()


# -- 1. Who plans


def test_1_it_plans_only_while_it_leads(node: NodeHarness, played: Played) -> None:
    task = node.add(FILMS)
    played.leads = False
    node.run()
    assert played.begun == [] and node.task(task).status == "enqueued"
    played.leads = True
    node.run()
    assert played.begun == [[0]] and node.task(task).status == "succeeded"


def test_1_what_the_log_has_not_begun_is_not_run(node: NodeHarness, played: Played) -> None:
    task = node.add(FILMS)
    played.begin = lambda tasks, shape, strategy: False  # type: ignore[method-assign]  # it could not be written
    node.run()
    assert node.task(task).status == "enqueued" and node.instance.index("movies") is None


# -- 2. Order


def test_2_batches_of_one_index_run_one_after_the_other(node: NodeHarness, played: Played) -> None:
    played.leads = False
    first, other, second = node.add(FILMS), node.add(FILMS, "books"), node.delete([1])
    for task in (first, other, second):
        played.begin([task], DOCUMENTS if task.kind != "documentDeletion" else DELETIONS, "x")
    for uid in range(3):
        played.ends[uid] = {"at": MOMENT + 200 + uid}
    node.run()
    assert played.over == [0, 1, 2] and [document["id"] for document in node.documents().values()] == [2]


def test_2_a_global_batch_waits_for_all_before_it(node: NodeHarness, played: Played) -> None:
    node.add(FILMS)
    swap = {"swaps": [{"indexes": ["movies", "films"], "rename": True}]}
    node.do("indexSwap", None, details=swap, **swap)
    node.add(FILMS, "films")
    node.run()
    assert played.begun == [[0], [1], [2]] and played.over == [0, 1, 2]
    assert len(node.documents("films")) == 2 and node.instance.index("movies") is None


# -- 3. Ends


def test_3_a_batch_ends_as_the_log_says(node: NodeHarness, played: Played) -> None:
    task = node.add(FILMS)
    played.leads = False
    played.begin([task], DOCUMENTS, "x")
    played.ends[0] = {"at": MOMENT + 7, "trace": {"x": 1_500_000}, "requests": {"total": 3, "failed": 0}}
    node.run()
    ended = node.task(task)
    assert (ended.started_at, ended.finished_at, ended.batch_uid) == (MOMENT + 1, MOMENT + 7, 0)
    batch = node.queue.batch(0)
    assert batch and [*batch.stats["progressTrace"]] == ["x"] and batch.stats["embedderRequests"]["total"] == 3
    assert played.ended_here == []


def test_3_the_leader_tells_how_it_ended(node: NodeHarness, played: Played) -> None:
    node.add(FILMS)
    node.add([{"nothing": 1}])
    node.run()
    assert played.ended_here == sorted(played.ends) and all(end["digest"] and end["trace"] for end in played.ends.values())
    with node.instance.read_instance() as connection:
        assert applied_log.begun_batches(connection) == []


# -- 4. Restarts


def test_4_a_batch_that_was_committed_is_not_applied_twice(node: NodeHarness, played: Played) -> None:
    """Its node stopped between the commit of the index and the end in the log."""
    task = node.add([{"id": 1, "n": 1}])
    played.begin([task], DOCUMENTS, "x")
    played.leads = False
    node.run()
    assert node.task(task).status == "processing" and played.over == []
    node.restart()
    assert [batch.uid for batch in played.before] == [0]
    played.ends[0] = {"at": MOMENT + 7}
    node.run()
    ended = node.task(task)
    assert (ended.status, ended.details) == ("succeeded", {"receivedDocuments": 1, "indexedDocuments": 1})
    assert len(node.documents()) == 1 and node.bugs == []


# -- 5. What cannot be finished here


def test_5_a_full_disk_fails_no_batch(node: NodeHarness, played: Played) -> None:
    task = node.add(FILMS)
    failures = [OSError(errno.ENOSPC, "No space left on device")] * 2

    def fail() -> None:
        if failures:
            raise failures.pop()

    node.writer.before = fail
    node.run()
    assert node.task(task).status == "succeeded" and played.begun == [[0]]
    assert played.failures == ["batch 0 could not be finished on this node"] * 2 and len(node.bugs) == 2


@pytest.mark.parametrize("crashes, status", [(2, "succeeded"), (3, "failed")])
def test_5_only_a_crash_that_comes_again_fails_a_batch(node: NodeHarness, played: Played, crashes: int, status: str) -> None:
    task = node.add(FILMS)
    left = [crashes]

    def crash() -> None:
        if left[0]:
            left[0] -= 1
            raise IndexingProcessDied("killed")

    node.writer.before = crash
    node.run()
    assert node.task(task).status == status


def test_5_a_global_batch_is_tried_again(node: NodeHarness, played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    node.add(FILMS)
    node.run()
    task = node.do("taskDeletion", None, {"matchedTasks": 1, "deletedTasks": None, "originalFilter": "?uids=0"}, uids=[0])
    complete = node.runner._ends.complete
    failures = [OSError("full")]

    def once(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        complete(*arguments)

    monkeypatch.setattr(node.runner._ends, "complete", once)
    with pytest.raises(OSError, match="full"):
        node.run()
    node.run()
    assert node.task(task).status == "succeeded" and played.failures == ["batch 1 could not be finished on this node"]


# -- 6. Cancelations


def test_6_a_cancelation_does_not_stop_what_has_begun(node: NodeHarness, played: Played) -> None:
    begun = node.add(FILMS)
    played.begin([begun], DOCUMENTS, "x")
    waiting = node.add(FILMS, "books")
    cancelation = node.do("taskCancelation", None, {"matchedTasks": 2, "canceledTasks": None, "originalFilter": "?uids=0,1"},
                          uids=[begun.uid, waiting.uid])
    node.run()
    assert [node.task(task).status for task in (begun, waiting, cancelation)] == ["succeeded", "canceled", "succeeded"]


# -- 7. Archives


@pytest.mark.parametrize("leads", [True, False])
def test_7_a_dump_is_written_by_the_leader(node: NodeHarness, played: Played, tmp_path: Path, leads: bool) -> None:
    task = node.do("dumpCreation", None, {"dumpUid": None}, keys=[], instanceUid=None)
    played.leads = leads
    if not leads:
        played.begin([task], "dumpCreation", "x")
        played.ends[0] = {"at": MOMENT + 7, "outcome": {"details": {"dumpUid": "d"}, "error": None}}
    node.run()
    ended = node.task(task)
    assert ended.status == "succeeded" and ended.details and (ended.details["dumpUid"] == "d") == (not leads)
    written = [path.name for path in (tmp_path / "dumps").iterdir()] if (tmp_path / "dumps").exists() else []
    assert written == ([f"{ended.details['dumpUid']}.dump"] if leads else [])


# -- 8. Order across indexes


def _paced(tmp_path: Path, played: Played) -> tuple[NodeHarness, list[float]]:
    now = [100.0]
    return NodeHarness(tmp_path / "paced", played, workers=3, clock=lambda: now[0]), now


def test_8_the_leader_begins_a_batch_of_another_index_after_the_time(tmp_path: Path, played: Played) -> None:
    node, now = _paced(tmp_path, played)
    first, second = node.add(FILMS, "a"), node.add(FILMS, "b")
    while node.runner.claim_next():
        pass
    assert played.begun == [[first.uid]]
    now[0] += 1
    while node.runner.claim_next():
        pass
    assert played.begun == [[first.uid], [second.uid]]
    node.instance.close()


def test_8_a_follower_starts_what_has_begun_in_the_same_way(tmp_path: Path, played: Played) -> None:
    """On the leader the first one may have ended already; whoever asks this node must find it finished before the second."""
    node, now = _paced(tmp_path, played)
    played.leads = False
    first, second = node.add(FILMS, "a"), node.add(FILMS, "b")
    for n, task in enumerate((first, second)):
        node.runner._add_begun(BegunBatch(n, [task.uid], DOCUMENTS, "", MOMENT + n))
    assert node.runner.claim_next() and not node.runner.claim_next()
    now[0] += 1
    assert node.runner.claim_next()
    node.instance.close()


def test_8_a_deletion_waits_on_each_node_for_an_export_that_it_names(tmp_path: Path, played: Played) -> None:
    node, now = _paced(tmp_path, played)
    played.leads = False
    export = node.do("export", None, {}, url="http://localhost:1", indexes={})
    deletion = node.do("taskDeletion", None, {"matchedTasks": 1, "deletedTasks": None, "originalFilter": "?uids=0"}, uids=[export.uid])
    for n, task in enumerate((export, deletion)):
        node.runner._add_begun(BegunBatch(n, [task.uid], "alone", "", MOMENT + n))
    assert node.runner.claim_next()
    now[0] += 60
    assert not node.runner.claim_next()
    node.instance.close()
