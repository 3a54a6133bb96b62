"""What must hold of the order of changes:

1. Every change of a task is read once, in the order in which it happened, from any position on, in portions of any size.
2. Moments of changes only grow, also when the clock goes back.
3. A requeued task has a change of its own; a deleted task has none any more.
4. Batches are read from their beginning to their end, running ones too.
5. Listeners are woken at each change, those of one task at its end; after close() nobody waits.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from svcd.base import quantities
from svcd.instance.instance import Instance
from svcd.instance.queue import Queue, RunningBatch
from svcd.instance.task_changes import TO_ENQUEUED, TO_FINISHED, TO_PROCESSING, Position
from svcd.instance.task_records import SUCCEEDED, Task

BEGINNING = Position(0)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    instance = Instance(tmp_path / "data")
    yield instance.queue
    instance.close()


def add(queue: Queue, index_uid: str = "films") -> Task:
    return queue.enqueue("settingsUpdate", index_uid, details={})


def finish(queue: Queue, running: RunningBatch) -> None:
    with queue.finishing() as connection:
        running.batch.finished_at = queue.next_moment()
        ended = [replace(task, status=SUCCEEDED, finished_at=running.batch.finished_at)
                 for task in running.tasks.values()]
        queue.finish(connection, running, ended)
    queue.forget(running)


def told(queue: Queue, since: Position = BEGINNING, most: int = 100) -> list[tuple[int, int]]:
    """(uid, step) of the changes behind a position, read in portions."""
    found = []
    while portion := queue.changes_of_tasks(since, most):
        found += [(position.uid, position.step) for position, _ in portion]
        since = portion[-1][0]
    return found


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_changes_come_once_and_in_order(queue: Queue, most: int) -> None:
    tasks = [add(queue) for _ in range(3)]
    first = queue.start(tasks[:2], "test")
    add(queue)
    finish(queue, first)
    queue.start(tasks[2:], "test")
    expected = [(0, TO_ENQUEUED), (1, TO_ENQUEUED), (2, TO_ENQUEUED), (0, TO_PROCESSING), (1, TO_PROCESSING),
                (3, TO_ENQUEUED), (0, TO_FINISHED), (1, TO_FINISHED), (2, TO_PROCESSING)]
    assert told(queue, most=most) == expected
    positions = [position for position, _ in queue.changes_of_tasks(BEGINNING, 100)]
    assert positions == sorted(set(positions))
    for at, position in enumerate(positions):
        assert told(queue, position, most) == expected[at + 1:]


def test_positions_after_the_present_are_new(queue: Queue) -> None:
    add(queue)
    since = queue.current_position()
    assert told(queue, since) == []
    add(queue)
    assert told(queue, since) == [(1, TO_ENQUEUED)]


def test_moments_grow_when_the_clock_goes_back(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    add(queue)
    since = queue.current_position()
    monkeypatch.setattr(quantities, "now", lambda: 1_000)
    task = add(queue)
    finish(queue, queue.start([task], "test"))
    assert told(queue, since) == [(1, TO_ENQUEUED), (1, TO_PROCESSING), (1, TO_FINISHED)]


def test_a_task_that_is_given_back_is_enqueued_again(queue: Queue) -> None:
    tasks = [add(queue), add(queue)]
    running = queue.start(tasks, "test")
    since = queue.current_position()
    queue.requeue(running, [1])
    assert told(queue, since) == [(1, TO_ENQUEUED)]
    finish(queue, running)
    again = queue.start(tasks[1:], "test")
    assert told(queue, since) == [(0, TO_FINISHED), (1, TO_PROCESSING)]
    finish(queue, again)
    assert told(queue)[:2] == [(0, TO_ENQUEUED), (1, TO_ENQUEUED)]


def test_a_deleted_task_has_no_more_events(queue: Queue) -> None:
    finish(queue, queue.start([add(queue), add(queue)], "test"))
    with queue.finishing() as connection:
        queue.delete(connection, [0])
    assert {uid for uid, _ in told(queue)} == {1}


def test_a_restart_forgets_no_change(tmp_path: Path) -> None:
    for _ in range(2):
        instance = Instance(tmp_path / "data")
        add(instance.queue)
        instance.close()
    instance = Instance(tmp_path / "data")
    assert told(instance.queue) == [(0, TO_ENQUEUED), (1, TO_ENQUEUED)]
    instance.close()


@pytest.mark.parametrize("most", [1, 100])
def test_batches_are_listed_from_beginning_to_end(queue: Queue, most: int) -> None:
    tasks = [add(queue, "films"), add(queue, "books"), add(queue, "songs")]
    films, books = queue.start(tasks[:1], "test"), queue.start(tasks[1:2], "test")
    finish(queue, books)
    finish(queue, films)
    queue.start(tasks[2:], "test")
    found, since = [], BEGINNING
    while portion := queue.changes_of_batches(since, most):
        found += [(position.uid, position.step) for position, _ in portion]
        since = portion[-1][0]
    assert found == [(0, TO_PROCESSING), (1, TO_PROCESSING), (1, TO_FINISHED), (0, TO_FINISHED), (2, TO_PROCESSING)]


def test_changes_are_read_from_indexes_alone(queue: Queue) -> None:
    from svcd.instance import task_changes

    with queue.finishing() as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {task_changes._OF_TASKS} ORDER BY moment, step, uid LIMIT 1",
                                  [0] * 12).fetchall()
        plan += connection.execute(f"EXPLAIN QUERY PLAN {task_changes._OF_BATCHES}", [0, 0]).fetchall()
    read = [row[3] for row in plan if " tasks" in row[3] or " batches" in row[3]]
    assert len(read) == 5 and all(line.startswith("SEARCH") and "INDEX" in line or "PRIMARY KEY" in line for line in read)


@pytest.mark.parametrize("position", [Position(5), Position(5, 0, 7), Position(0)])
def test_a_position_reads_back(position: Position) -> None:
    assert Position.parse(str(position)) == position


def test_a_bare_moment_is_a_position_after_it() -> None:
    assert Position(7, TO_FINISHED, 5) < Position.parse("7") < Position(8, TO_ENQUEUED, 0)


@pytest.mark.parametrize("text", ["", "x", "-1", "1-", "1-3-1", "1-1", "1-1-1-1", "1" * 20, "1-1-" + "1" * 20, "١"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected the id of an event"):
        Position.parse(text)


def test_a_bell_rings_at_each_change(queue: Queue) -> None:
    wakeup = queue.listeners.add()
    task = add(queue)
    for change in (lambda: queue.start([task], "test"), lambda: finish(queue, queue.running()[0])):
        assert wakeup.is_set
        wakeup.clear()
        change()
    assert wakeup.is_set
    queue.listeners.remove(wakeup)
    add(queue)


def test_the_bell_of_a_task_rings_at_its_end_alone(queue: Queue) -> None:
    tasks = [add(queue), add(queue)]
    with queue.listeners.when_ended(0) as first, queue.listeners.when_ended(1) as second:
        running = queue.start(tasks[:1], "test")
        assert not first.is_set
        finish(queue, running)
        assert first.is_set and not second.is_set


def test_a_transaction_that_fails_ends_nothing(queue: Queue) -> None:
    running = queue.start([add(queue)], "test")
    with queue.listeners.when_ended(0) as wakeup:
        with pytest.raises(OSError), queue.finishing() as connection:
            queue.finish(connection, running, [replace(running.tasks[0], status=SUCCEEDED, finished_at=1)])
            raise OSError
        assert not wakeup.is_set


def test_listeners_do_not_wait_after_close(queue: Queue) -> None:
    early = queue.listeners.add()
    queue.listeners.close()
    with queue.listeners.when_ended(0) as late:
        assert early.is_set and late.is_set
    queue.listeners.remove(early)
