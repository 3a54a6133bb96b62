"""What must hold of the batch that is chosen next:

1. A batch of another index starts beside those that run once each of them has run for the configured time, or has ended.
2. The same holds of swaps, deletions of tasks and exports; a cancelation never waits.
3. With 0 seconds batches of different indexes start at once.
4. A deletion waits for the tasks that it names and that are processed, however long that takes, and holds up nothing meanwhile.
5. The runner starts a waiting batch when the time is over, without being woken.
6. Choosing it takes no longer after many tasks of the same index have ended, nor behind a long backlog the reading of its first tasks.
7. A task of an index with a running batch has nothing chosen; the end of that batch has.
8. While several tasks of an index come during each of its batches, batches begin some time after the one before, to gather more.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.instance.task_records import Task
from svcd.tasks import global_tasks, runner
from svcd.tasks.batching import Limits, seconds_until_overtaking
from svcd.tasks.planning import Planner, Running
from svcd.tasks.runner import Runner
from tests.instance.helpers import execute, sql_steps
from tests.tasks.conftest import LocalWriter, TaskHarness


class Clocked(TaskHarness):
    """A harness with three workers, whose clock the test moves."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.now = 100.0
        super().__init__(path, workers=3, clock=lambda: self.now, **options)

    def claims(self) -> int:
        """How many batches start now."""
        claimed = 0
        while self.runner.claim_next():
            claimed += 1
        return claimed

    def delete_tasks(self, *tasks: Task) -> Task:
        return self.do("taskDeletion", None, {"matchedTasks": len(tasks), "deletedTasks": None, "originalFilter": "?uids=0"},
                       uids=[task.uid for task in tasks])


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Clocked]]:
    made: list[Clocked] = []

    def make_harness(**options: Any) -> Clocked:
        made.append(Clocked(tmp_path / f"data{len(made)}", **options))
        return made[-1]

    yield make_harness
    for harness in made:
        harness.instance.close()
        assert not harness.bugs


Make = Callable[..., Clocked]


def add_copies(harness: Clocked, copies: int, status: str) -> None:
    """Store copies of the last task."""
    execute(harness.instance, "WITH RECURSIVE more(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < ?) INSERT INTO tasks(uid, "
            "index_uid, status, kind, content, payload_bytes, enqueued_at) SELECT uid + n, index_uid, ?, kind, content, payload_bytes, "
            "enqueued_at + n FROM more, tasks WHERE uid = (SELECT max(uid) FROM tasks)", (copies, status))


def test_1_the_youngest_batch_decides() -> None:
    assert seconds_until_overtaking([], 100.0, 1.0) == 0
    assert seconds_until_overtaking([99.75, 50.0], 100.0, 1.0) == 0.75
    assert seconds_until_overtaking([99.0, 50.0], 100.0, 1.0) == 0
    assert seconds_until_overtaking([100.0], 100.0, 0) == 0


def test_1_a_batch_waits_for_one_of_another_index_up_to_the_time(make: Make) -> None:
    harness = make()
    for index_uid in "abc":
        harness.add([{"id": 1}], index_uid)
    assert harness.claims() == 1
    harness.now += 0.99
    assert harness.claims() == 0
    harness.now += 0.01
    assert harness.claims() == 1  # b, which c now waits for
    harness.now += 0.99
    assert harness.claims() == 0
    harness.now += 0.01
    assert harness.claims() == 1


def test_1_a_batch_starts_when_the_one_before_it_has_ended(make: Make) -> None:
    harness = make()
    first, second = harness.add([{"id": 1}], "a"), harness.add([{"id": 1}], "b")
    assert harness.claims() == 1
    harness.runner.run_claimed()
    assert harness.task(first).status == "succeeded" and harness.claims() == 1
    assert harness.task(second).status == "processing"


@pytest.mark.parametrize(("kind", "content"), [
    ("indexSwap", {"swaps": [{"indexes": ["b", "c"], "rename": True}]}), ("taskDeletion", {"uids": [0]}),
    ("export", {"url": "http://localhost:1", "indexes": {}})])
def test_2_tasks_without_an_index_wait_too(make: Make, kind: str, content: dict[str, Any]) -> None:
    harness = make()
    harness.add([{"id": 1}], "b")
    harness.run()
    harness.add([{"id": 1}], "a")
    assert harness.claims() == 1
    harness.do(kind, None, {}, **content)
    assert harness.claims() == 0
    harness.now += 1
    assert harness.claims() == 1


def test_2_what_follows_an_export_waits_for_it(make: Make) -> None:
    harness = make()
    harness.do("export", None, {}, url="http://localhost:1", indexes={})
    harness.add([{"id": 1}], "a")
    assert harness.claims() == 1
    harness.now += 1
    assert harness.claims() == 1


def test_2_a_cancelation_waits_for_nothing(make: Make) -> None:
    harness = make()
    harness.add([{"id": 1}], "a")
    assert harness.claims() == 1
    waiting = harness.add([{"id": 1}], "b")
    harness.do("taskCancelation", None, {"matchedTasks": 1, "canceledTasks": None, "originalFilter": "?uids=1"}, uids=[waiting.uid])
    assert harness.claims() == 1 and harness.task(waiting).status == "canceled"


def test_3_with_0_seconds_nothing_waits(make: Make) -> None:
    harness = make(parallel_after_s=0)
    for index_uid in "ab":
        harness.add([{"id": 1}], index_uid)
    assert harness.claims() == 2


def test_4_a_deletion_waits_for_what_is_processed(make: Make) -> None:
    harness = make()
    done = harness.add([{"id": 1}], "b")
    harness.run()
    processed = harness.add([{"id": 1}], "a")
    assert harness.claims() == 1
    deletion, other = harness.delete_tasks(processed), harness.delete_tasks(done)
    beside = harness.add([{"id": 2}], "b")
    harness.now += 60
    assert harness.claims() == 2  # the other deletion, and the addition
    assert [harness.task(task).status for task in (deletion, other, beside)] == ["enqueued", "succeeded", "processing"]
    harness.runner.run_claimed()
    harness.run()
    assert harness.task(deletion).details["deletedTasks"] == 1
    assert harness.queue.task(processed.uid) is None and harness.task(beside).status == "succeeded"


def test_4_a_deletion_that_waits_is_read_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name a million tasks."""
    harness = make()
    processed = harness.add([{"id": 1}], "a")
    assert harness.claims() == 1
    harness.delete_tasks(processed)
    harness.now += 60
    harness.claims()
    read: list[list[int]] = []
    tasks_of = harness.queue.tasks_of
    monkeypatch.setattr(harness.queue, "tasks_of", lambda uids, **how: read.append(list(uids)) or tasks_of(uids, **how))
    harness.claims()
    assert read == [[]]


def test_4_a_deletion_does_not_name_what_is_enqueued(make: Make) -> None:
    harness = make()
    waiting = harness.add([{"id": 1}], "a")
    deletion = harness.delete_tasks(waiting)
    harness.run()
    assert harness.task(deletion).details["deletedTasks"] == 0 and harness.task(waiting).status == "succeeded"


def test_5_a_long_batch_delays_others_by_the_time_alone(harness: TaskHarness) -> None:
    is_second_done = threading.Event()
    first = harness.add([{"id": 1}], "a")
    second = harness.add([{"id": 1}], "b")

    class Long(LocalWriter):
        """The first batch lasts until the second has ended."""

        def run(self, request: dict[str, Any], progress: Callable[..., None]) -> dict[str, Any]:
            if request.get("indexUid") == "a":
                assert is_second_done.wait(20)
            return super().run(request, progress)

    runner = Runner(harness.instance, workers=2, parallel_after_s=0.05, make_writer=Long,  # type: ignore[arg-type]
                    on_batch=lambda _, tasks: is_second_done.set() if tasks[0].uid == second.uid else None)
    runner.start()
    try:
        assert is_second_done.wait(20)
    finally:
        runner.stop(20)
    ended = [harness.task(task) for task in (first, second)]
    assert [task.status for task in ended] == ["succeeded"] * 2
    assert ended[1].started_at - ended[0].started_at >= 40_000_000 and ended[1].finished_at < ended[0].finished_at


def test_6_the_history_does_not_count(make: Make) -> None:
    def choose() -> None:
        global_tasks.clean_up(harness.queue)
        assert planner.next_plan(Running(frozenset(), 1, False)) is not None

    harness = make()
    planner = Planner(harness.instance, Limits())
    harness.add([{"id": 1}])
    harness.runner.step()
    harness.add([{"id": 1}])
    before = sql_steps(harness.instance, choose)
    harness.runner.step()
    add_copies(harness, 20_000, "succeeded")
    harness.add([{"id": 1}])
    assert sql_steps(harness.instance, choose) <= before + 1


def test_6_the_first_enqueued_task_is_read_alone(make: Make) -> None:
    harness = make()
    harness.add([{"id": 1}])
    add_copies(harness, 20_000, "enqueued")
    assert sql_steps(harness.instance, lambda: next(harness.queue.enqueued(["indexCreation", "documentAdditionOrUpdate", "indexSwap"]))) <= 2


class Stepped:
    """A runner whose batches end when the test says so. begun, ended: one more for each batch."""

    def __init__(self, harness: TaskHarness) -> None:
        self.begun, self.ended, self._may_end = (threading.Semaphore(0) for _ in range(3))
        stepped = self

        class Writer(LocalWriter):
            def run(self, request: dict[str, Any], progress: Callable[..., None]) -> dict[str, Any]:
                stepped.begun.release()
                assert stepped._may_end.acquire(timeout=20)
                return super().run(request, progress)

        self.harness = harness
        self.runner = Runner(harness.instance, make_writer=Writer, on_batch=lambda *_: self.ended.release())  # type: ignore[arg-type]

    def __enter__(self) -> Stepped:
        self.runner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._may_end.release(20)
        self.runner.stop(20)

    def add(self, tasks: int, index_uid: str = "films") -> list[Task]:
        return [self.harness.add([{"id": number}], index_uid) for number in range(tasks)]

    def stream(self) -> None:
        """Let a batch and the next one end; two tasks came during each, so that the second is part of a stream."""
        self.add(1)
        self.run_batch(lambda: self.add(2))
        self.run_batch(lambda: self.add(2))

    def run_batch(self, during: Callable[[], object] = lambda: None) -> None:
        """Let the next batch begin and end. during: called in between."""
        assert self.begun.acquire(timeout=20)
        during()
        self._may_end.release()
        assert self.ended.acquire(timeout=20)


def test_7_the_end_of_a_batch_has_the_tasks_chosen_that_came_meanwhile(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_left = threading.Event()
    chosen_from: list[int] = []  # for each choice, how many tasks were enqueued
    late: list[Task] = []

    def next_plan(planner: Planner, running: Running) -> Any:
        found = plan(planner, running)
        chosen_from.append(harness.queue.count_enqueued())
        if found is None:
            nothing_left.set()
        return found

    def send_more() -> None:
        assert nothing_left.wait(20)
        late.extend(stepped.add(10))

    plan = Planner.next_plan
    monkeypatch.setattr(Planner, "next_plan", next_plan)
    with Stepped(harness) as stepped:
        stepped.add(1)
        stepped.run_batch(send_more)
        stepped.run_batch()
    assert {(task.status, task.batch_uid) for task in map(harness.task, late)} == {("succeeded", 1)}
    assert not {*range(2, 10)} & {*chosen_from}  # nothing was chosen while they came


def rest_for(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have the runner rest for so long between batches of a stream."""
    monkeypatch.setattr(runner, "_REST_PART", 1e9)
    monkeypatch.setattr(runner, "_MOST_REST_S", seconds)


def test_8_batches_of_a_stream_are_some_time_apart(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    rest_for(monkeypatch, 0.05)
    with Stepped(harness) as stepped:
        stepped.stream()
        stepped.run_batch()
    _, before, after = (harness.queue.batch(uid) for uid in range(3))
    assert after.started_at - before.finished_at >= 45_000_000  # type: ignore[union-attr, operator]


def test_8_a_client_that_waits_or_sends_some_tasks_at_once_is_not_kept_waiting(
        harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    rest_for(monkeypatch, 600)
    with Stepped(harness) as stepped:
        stepped.add(1)
        stepped.run_batch(lambda: stepped.add(5))
        stepped.run_batch(lambda: stepped.add(1))
        stepped.run_batch()


@pytest.mark.parametrize("when", ["during the batch", "after it"])
def test_8_a_task_of_another_index_does_not_wait_for_more_tasks(
        harness: TaskHarness, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    rest_for(monkeypatch, 600)
    with Stepped(harness) as stepped:
        stepped.add(1)
        stepped.run_batch(lambda: stepped.add(2))
        stepped.run_batch(lambda: [stepped.add(2), when == "during the batch" and stepped.add(1, "others")])
        if when == "after it":
            stepped.add(1, "others")
        stepped.run_batch()
        stepped.run_batch()


def test_8_a_stop_does_not_wait_for_more_tasks(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    rest_for(monkeypatch, 600)
    with Stepped(harness) as stepped:
        stepped.stream()
        stop = threading.Thread(target=stepped.runner.stop, daemon=True)
        stop.start()
        stop.join(20)
        assert not stop.is_alive()
