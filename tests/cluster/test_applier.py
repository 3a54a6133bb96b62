"""What must hold of applying entries:

1. Entries take effect in order, each once, together with their number; all nodes that apply the same reach the same state.
2. Uids of tasks follow from the order; moments grow even if the clocks of those who wrote do not.
3. A batch begins only in the present term, with tasks that wait and are in no other batch; its first end in that term counts.
4. When applying fails, nothing is applied, and the same entries can be applied later.
5. The file of a payload is there before its task is.
6. A change of rows that no longer fits has no effect; one that does is followed.
"""
from __future__ import annotations

import base64
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svcd.cluster.applier import Applier
from svcd.cluster.entries import Entry
from svcd.cluster.log import MissingPiece
from svcd.instance import applied_log
from svcd.instance.applied_log import BegunBatch, Position
from svcd.instance.instance import Instance
from tests.support.memory_log import MemoryServers

START = 1_800_000_000_000_000_000


class Applied:
    """An instance and its applier, and what it tells."""

    def __init__(self, folder: Path, servers: MemoryServers) -> None:
        self.instance = Instance(folder)
        self.applier = Applier(self.instance, servers.log(), Position("u"))
        self.begun: list[BegunBatch] = []
        self.ends: list[tuple[int, Entry]] = []
        self.results: list[Any] = []
        self.applier.on_begun = self.begun.append
        self.applier.on_end = lambda uid, end: self.ends.append((uid, end))
        self.applier.on_result = lambda entry, result: self.results.append(result)

    def apply(self, *entries: Entry) -> list[Any]:
        """Apply them with the next numbers, in one transaction; what came of each."""
        self.results = []
        first = self.applier.position.applied + 1
        self.applier.apply(list(enumerate(entries, first)))
        return self.results

    def state(self) -> Any:
        """All that is in the file."""
        with closing(sqlite3.connect(self.instance.path / "instance.sqlite")) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
            return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}

    def stored_position(self) -> Position | None:
        with self.instance.read_instance() as connection:
            return applied_log.position(connection)


@pytest.fixture
def one(tmp_path: Path, servers: MemoryServers) -> Iterator[Applied]:
    made = Applied(tmp_path / "one", servers)
    yield made
    made.instance.close()


def task(index_uid: str = "films", at: int = START, payload: dict[str, Any] | None = None) -> Entry:
    members = {"kind": "documentDeletion", "index_uid": index_uid, "details": {"deletedDocuments": None}, "content": {"all": True},
               "payload_bytes": 0, "custom_metadata": None}
    return {"kind": "task", "task": members, "payload": payload, "at": at}


def term(number: int, node: str = "a") -> Entry:
    return {"kind": "term", "term": number, "node": node, "at": START}


def begin(number: int, tasks: Sequence[Sequence[int]], at: int = START) -> Entry:
    return {"kind": "begin", "term": number, "tasks": tasks, "shape": "clear", "strategy": "all", "at": at}


def end(number: int, batch: int, **members: Any) -> Entry:
    return {"kind": "end", "term": number, "batch": batch, "at": START, **members}


def rows(before: int | None, after: int | None, key: str = "metrics") -> Entry:
    wrapped = [None if value is None else {"enabled": value} for value in (before, after)]
    return {"kind": "rows", "changes": [{"table": "features", "key": key, "before": wrapped[0], "after": wrapped[1]}], "at": START}


# -- 1. One order, one state

HISTORY = [task(), term(1), task("books"), rows(None, 1), begin(1, [[0, 0]]), end(1, 0, digest="x"), rows(None, 0), task(at=START - 5),
           begin(1, [[1, 2]]), term(2, "b"), end(1, 1), end(2, 1, digest="y"),
           {"kind": "delivered", "webhook": "w", "batch": 0, "at": START}]


def test_1_the_number_is_stored_with_the_effect(one: Applied) -> None:
    assert one.apply(*HISTORY[:3])[1] is True
    assert one.stored_position() == one.applier.position
    assert (one.applier.position.applied, one.applier.position.term) == (3, 1)


@pytest.mark.parametrize("portion", [1, 2, 5])
def test_1_the_same_entries_make_the_same_state(one: Applied, tmp_path: Path, servers: MemoryServers, portion: int) -> None:
    one.apply(*HISTORY)
    other = Applied(tmp_path / "other", servers)
    try:
        for start in range(0, len(HISTORY), portion):
            other.apply(*HISTORY[start:start + portion])
        assert other.state() == one.state() and other.applier.position == one.applier.position
        assert other.begun == one.begun and other.ends == one.ends
    finally:
        other.instance.close()


# -- 2. Uids and moments


def test_2_uids_follow_from_the_order_and_moments_grow(one: Applied) -> None:
    made = one.apply(task(at=START), task(at=START - 1_000), task(at=START + 7))
    assert [each.uid for each in made] == [0, 1, 2]
    assert [each.enqueued_at for each in made] == [START, START + 1, START + 7]
    assert one.applier.position.moment == START + 7


def test_2_a_batch_has_the_moments_of_its_entries(one: Applied) -> None:
    one.apply(task(), term(1), begin(1, [[0, 0]], at=START + 50), end(1, 0))
    assert one.begun == [BegunBatch(0, [0], "clear", "all", START + 50)]
    assert one.ends[0][1]["at"] == START + 51


# -- 3. Batches


def test_3_a_batch_begins_only_in_the_present_term(one: Applied) -> None:
    one.apply(task(), term(2))
    assert one.apply(begin(1, [[0, 0]]), begin(3, [[0, 0]]), begin(2, [[0, 0]])) == [False, False, True]
    assert one.apply(term(2), term(1), term(3)) == [False, False, True]
    assert [batch.uid for batch in one.begun] == [0]


@pytest.mark.parametrize("tasks", [[[0, 1]], [[1, 1]], [[2, 5]], [[9, 9]]])
def test_3_a_batch_has_tasks_that_wait_and_are_in_no_other(one: Applied, tasks: list[list[int]]) -> None:
    one.apply(task(), task(), task(), term(1), begin(1, [[1, 1]]))
    assert one.apply(begin(1, tasks)) == [False]
    assert one.apply(begin(1, [[0, 0], [2, 2]])) == [True]


def test_3_tasks_of_a_batch_that_began_before_a_restart_are_taken(one: Applied) -> None:
    one.apply(task(), term(1), begin(1, [[0, 0]]))
    again = Applier(one.instance, one.applier._log, one.applier.position)
    for batch in one.begun:
        again.remember(batch.tasks)
    told: list[BegunBatch] = []
    again.on_begun = told.append
    again.apply([(4, begin(1, [[0, 0]]))])
    assert told == []
    again.forget([0])  # it ended here, without success for the task: such as a requeued one
    again.apply([(5, begin(1, [[0, 0]]))])
    assert [batch.uid for batch in told] == [1]


def test_3_the_first_end_of_a_batch_counts(one: Applied) -> None:
    one.apply(task(), term(1), begin(1, [[0, 0]]), term(2))
    assert one.apply(end(1, 0, digest="old"), end(2, 0, digest="first"), end(2, 0, digest="second"), end(2, 7)) == [
        False, True, False, False]
    assert [(uid, entry["digest"]) for uid, entry in one.ends] == [(0, "first")]
    with one.instance.read_instance() as connection:
        (kept,) = applied_log.begun_batches(connection)
    assert kept.end is not None and kept.end["digest"] == "first"


# -- 4. Failures


def test_4_nothing_is_applied_when_one_fails(one: Applied) -> None:
    one.apply(term(1))
    before, position = one.state(), one.applier.position
    with pytest.raises(KeyError):
        one.apply(task(), begin(1, [[0, 0]]), {"kind": "of a newer svcd", "at": START})
    assert one.state() == before and one.applier.position == position and one.begun == []
    assert one.apply(task(), begin(1, [[0, 0]]))[1] is True  # the task was not left as taken


# -- 5. Payloads


def test_5_the_file_of_a_payload_is_there_first(one: Applied) -> None:
    content = base64.b64encode(zlib.compress(b'{"id": 1}\n')).decode()
    (made,) = one.apply(task(payload={"name": "p", "content": content}))
    assert made.payload == "p" and (one.instance.queue.payload_folder / "p").read_bytes() == b'{"id": 1}\n'


def test_5_without_its_pieces_a_task_is_not_applied(one: Applied) -> None:
    with pytest.raises(MissingPiece):
        one.apply(task(), task(payload={"name": "p", "pieces": 2, "sha256": "x"}))
    assert one.instance.queue.tasks_of(range(9)) == [] and one.applier.position.applied == 0


def test_5_the_node_that_took_a_payload_does_not_fetch_it(one: Applied) -> None:
    (one.instance.queue.payload_folder / "p").write_bytes(b"own")
    one.apply(task(payload={"name": "p", "pieces": 2, "sha256": "x"}))
    assert (one.instance.queue.payload_folder / "p").read_bytes() == b"own"


def test_5_many_small_payloads_are_fetched_at_once(one: Applied) -> None:
    content = base64.b64encode(zlib.compress(b"{}")).decode()
    one.apply(*(task(payload={"name": f"p{number}", "content": content}) for number in range(20)))
    assert len(list(one.instance.queue.payload_folder.iterdir())) == 20


# -- 6. Rows


def test_6_a_change_takes_effect_when_it_fits(one: Applied) -> None:
    assert one.apply(rows(None, 1), rows(None, 0), rows(1, 0)) == [True, False, True]
    assert one.instance.features()["metrics"] is False
    assert one.apply(rows(0, None)) == [True]
    assert not one.instance.features()["metrics"]
