"""What must hold of the queue:

1. Uids start at 0 and grow by 1; an enqueued task is on disk when enqueue() returns.
2. A page is a part of the whole list; pages joined are the whole list, in both directions.
3. A filter answers as asking every task would.
4. A running task is `processing` and no longer `enqueued`; after a restart it is enqueued again.
5. A task that ended is not ended again.
6. Reads in one state share one read transaction, and see no later change.
"""
from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from svcd.base.errors import ApiError
from svcd.instance.instance import FolderInUse, Instance
from svcd.instance.queue import Queue
from svcd.instance.task_records import CANCELED, FAILED, SUCCEEDED, Task, TaskFilter
from tests.instance.helpers import unlock

KINDS = ("documentAdditionOrUpdate", "settingsUpdate", "indexSwap")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    instance = Instance(tmp_path / "data")
    yield instance
    instance.close()


@pytest.fixture
def queue(instance: Instance) -> Queue:
    return instance.queue


def enqueue(queue: Queue, kind: str = "settingsUpdate", index_uid: str | None = "movies") -> Task:
    return queue.enqueue(kind, index_uid, details={}, content={})


def run(queue: Queue, tasks: list[Task], status: str = SUCCEEDED, canceled_by: int | None = None) -> int:
    running = queue.start(tasks, "test")
    running.batch.finished_at = running.batch.started_at + 5
    with queue.finishing() as connection:
        queue.finish(connection, running, [replace(task, status=status, canceled_by=canceled_by,
                                                   finished_at=running.batch.finished_at)
                                           for task in running.tasks.values()])
    queue.forget(running)
    return running.batch.uid


def test_uids_grow_by_one(queue: Queue) -> None:
    assert [enqueue(queue).uid for _ in range(3)] == [0, 1, 2]


def test_an_acknowledged_task_survives_everything(tmp_path: Path) -> None:
    first = Instance(tmp_path / "data")
    task = first.queue.enqueue("indexSwap", None, details={"swaps": []}, content={"swaps": []}, custom_metadata="mine")
    unlock(first)  # as after a kill: nothing else is closed
    second = Instance(tmp_path / "data")
    assert list(second.queue.enqueued(["indexSwap"])) == [task]
    assert second.queue.task(task.uid) == replace(task, content={})  # lists do not read the content
    second.close()
    first.close()


def test_uids_of_deleted_tasks_are_not_used_again_while_greater_ones_exist(queue: Queue) -> None:
    tasks = [enqueue(queue) for _ in range(3)]
    run(queue, tasks[:2])
    with queue.finishing() as connection:
        assert queue.delete(connection, [0, 1, 2]) == 2
    assert enqueue(queue).uid == 3
    assert queue.batch(0) is None


@pytest.mark.parametrize("reverse", [False, True])
def test_pages_joined_are_the_whole_list(queue: Queue, reverse: bool) -> None:
    for number in range(7):
        enqueue(queue, index_uid="odd" if number % 2 else "even")
    wanted = TaskFilter(index_uids=["even"])
    seen: list[int] = []
    start: int | None = None
    while True:
        page = queue.list_tasks(wanted, 2, start, reverse)
        assert page.total == 4
        seen += [task.uid for task in page.results]
        if page.next_uid is None:
            break
        start = page.next_uid
    assert seen == [0, 2, 4, 6] if reverse else [6, 4, 2, 0]


def test_an_empty_page_names_the_beginning_of_the_first(queue: Queue) -> None:
    enqueue(queue)
    page = queue.list_tasks(TaskFilter(), 0, None, False)
    assert (page.results, page.total, page.from_uid, page.next_uid) == ([], 1, None, 0)


def test_filters_answer_as_asking_every_task_would(queue: Queue) -> None:
    dice = random.Random(7)
    tasks = [enqueue(queue, dice.choice(KINDS), dice.choice(["a", "b", None])) for _ in range(40)]
    for start in range(0, 30, 3):
        run(queue, tasks[start:start + 3], dice.choice([SUCCEEDED, FAILED, CANCELED]), dice.choice([None, 3]))
    running = queue.start(tasks[30:33], "test")
    every = [queue.task(uid) for uid in range(40)]
    moments = [task.enqueued_at for task in every if task]
    for _ in range(200):
        wanted = TaskFilter(
            statuses=dice.choice([None, ["succeeded", "processing"], ["enqueued"], ["failed", "canceled"]]),
            kinds=dice.choice([None, KINDS[:1], KINDS[1:]]), index_uids=dice.choice([None, ["a"], ["a", "b"]]),
            uids=dice.choice([None, list(range(10, 35))]), batch_uids=dice.choice([None, [0, 2, 4, 10]]),
            canceled_by=dice.choice([None, None, [3]]),
            before_enqueued_at=dice.choice([None, moments[20]]), after_enqueued_at=dice.choice([None, moments[5]]))
        if wanted.batch_uids is None or 10 not in wanted.batch_uids:
            assert queue.matching(wanted) == [task.uid for task in every if task and fits(task, wanted)]
    queue.requeue(running)


def fits(task: Task, wanted: TaskFilter) -> bool:
    lists = ((task.uid, wanted.uids), (task.batch_uid, wanted.batch_uids), (task.status, wanted.statuses),
             (task.kind, wanted.kinds), (task.index_uid, wanted.index_uids), (task.canceled_by, wanted.canceled_by))
    return (all(accepted is None or value in accepted for value, accepted in lists)
            and (wanted.before_enqueued_at is None or task.enqueued_at < wanted.before_enqueued_at)
            and (wanted.after_enqueued_at is None or task.enqueued_at > wanted.after_enqueued_at))


def test_reads_in_one_state_share_a_transaction(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, begun, begin = instance.queue, [], instance._readers.begin
    monkeypatch.setattr(instance._readers, "begin", lambda path: begun.append(path) or begin(path))
    enqueue(queue)
    with queue.one_state():
        first = queue.enqueued_kinds(), queue.enqueued_indexes(), queue.count_enqueued(), list(queue.enqueued(KINDS))
        enqueue(queue, index_uid="others")
        assert first == (queue.enqueued_kinds(), queue.enqueued_indexes(), queue.count_enqueued(), list(queue.enqueued(KINDS)))
    assert len(begun) == 1
    assert (queue.count_enqueued(), len(begun)) == (2, 2)


def test_running_is_a_view(queue: Queue) -> None:
    task = enqueue(queue)
    running = queue.start([task], "test")
    seen = queue.task(0)
    assert seen and (seen.status, seen.batch_uid) == ("processing", 0)
    assert not queue.matching(TaskFilter(statuses=["enqueued"])) and not queue.enqueued_kinds()
    assert queue.list_batches(TaskFilter(index_uids=["movies"]), 5, None, False).total == 1
    assert queue.list_batches(TaskFilter(index_uids=["other"]), 5, None, False).total == 0
    assert queue.batch(0) is running.batch
    queue.requeue(running)
    assert queue.task(0) == task and queue.batch(0) is None


def test_a_running_task_has_a_start(queue: Queue) -> None:
    running = queue.start([enqueue(queue)], "test")
    begun = running.batch.started_at
    assert queue.matching(TaskFilter(after_started_at=begun - 1)) == [0]
    assert not queue.matching(TaskFilter(after_started_at=begun)) and not queue.matching(TaskFilter(before_started_at=begun))


def test_a_full_queue_takes_only_what_makes_room(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    task = enqueue(queue)
    monkeypatch.setattr("svcd.instance.queue.MAX_BYTES", 0)
    with pytest.raises(ApiError) as refused:
        enqueue(queue)
    assert refused.value.code == "no_space_left_on_device"
    with pytest.raises(ApiError):
        queue.enqueue("taskDeletion", None, details={}, content={"uids": []})
    assert queue.enqueue("taskDeletion", None, details={}, content={"uids": [task.uid]}).uid == 1


def test_a_task_ends_once(queue: Queue) -> None:
    task = enqueue(queue)
    run(queue, [task], SUCCEEDED)
    with queue.finishing() as connection:
        queue.store(connection, [replace(task, status=CANCELED)])
    ended = queue.task(0)
    assert ended and ended.status == SUCCEEDED


def test_nothing_of_a_failed_end_is_kept(queue: Queue) -> None:
    task = enqueue(queue)
    running = queue.start([task], "test")
    with pytest.raises(RuntimeError), queue.finishing() as connection:
        queue.finish(connection, running, [replace(task, status=SUCCEEDED)])
        raise RuntimeError
    queue.requeue(running)
    assert queue.task(0) == task


def test_batches_are_paged_with_the_running_ones(queue: Queue) -> None:
    tasks = [enqueue(queue) for _ in range(4)]
    for task in tasks[:3]:
        run(queue, [task])
    queue.start(tasks[3:], "test")
    first = queue.list_batches(TaskFilter(), 2, None, False)
    assert ([batch.uid for batch in first.results], first.total, first.next_uid) == ([3, 2], 4, 1)
    last = queue.list_batches(TaskFilter(), 2, first.next_uid, False)
    assert ([batch.uid for batch in last.results], last.next_uid) == ([1, 0], None)


def test_a_folder_has_one_daemon(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svcd.instance.instance.LOCK_TIMEOUT_S", 0.0)
    with pytest.raises(FolderInUse, match="in use by another svcd"):
        Instance(instance.path)


def test_a_newer_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    from svcd.index import schema
    Instance(tmp_path / "data").close()
    import sqlite3
    connection = sqlite3.connect(tmp_path / "data" / "instance.sqlite")
    connection.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
    connection.close()
    with pytest.raises(schema.NewerFormat):
        Instance(tmp_path / "data")


def test_counts_are_those_of_the_lists(queue: Queue) -> None:
    tasks = [enqueue(queue, kind, index_uid) for kind in KINDS[:2] for index_uid in ("films", "books", "films")]
    swaps = [{"indexes": ["films", "books"]}, {"indexes": ["films", "x"]}]
    swap = queue.enqueue("indexSwap", None, details={"swaps": swaps})
    run(queue, tasks[:2])
    run(queue, tasks[2:3], FAILED)
    queue.start(tasks[3:4], "test")
    counts = queue.counts()
    assert counts["statuses"] == {"succeeded": 2, "failed": 1, "processing": 1, "enqueued": 3}
    for name, values in (("statuses", "statuses"), ("types", "kinds"), ("indexes", "index_uids")):
        assert counts[name] == {value: queue.list_tasks(TaskFilter(**{values: [value]}), 0, None, False).total for value in counts[name]}
    assert counts["types"]["indexSwap"] == 1 and counts["indexes"] == {"films": 5, "books": 3, "x": 1}
    assert swap.uid == 6


def test_an_empty_queue_counts_nothing(queue: Queue) -> None:
    assert queue.counts() == {"statuses": {}, "types": {}, "indexes": {}} and queue.oldest_enqueued_at() is None


def test_the_oldest_task_that_waits_or_runs_is_known(queue: Queue) -> None:
    tasks = [enqueue(queue) for _ in range(3)]
    run(queue, tasks[:1])
    queue.start(tasks[1:2], "test")
    assert queue.oldest_enqueued_at() == tasks[1].enqueued_at


def test_a_forced_feature_lasts_until_it_is_switched_or_the_folder_closed(tmp_path: Path) -> None:
    first = Instance(tmp_path / "data")
    first.force_feature("metrics")
    assert first.features() == {"metrics": True} and first.is_enabled("metrics") and not first.is_enabled("network")
    assert first.update_features({"network": True}) == {"metrics": True, "network": True}
    first.close()
    second = Instance(tmp_path / "data")
    assert second.features() == {"network": True}
    second.force_feature("metrics")
    second.update_features({"metrics": False})
    assert not second.is_enabled("metrics")
    second.close()


def test_features_are_kept(tmp_path: Path) -> None:
    first = Instance(tmp_path / "data")
    first.update_features({"metrics": True, "network": False})
    uid = first.uid
    first.close()
    second = Instance(tmp_path / "data")
    assert second.features() == {"metrics": True, "network": False} and second.uid == uid
    second.close()
