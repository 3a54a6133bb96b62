"""What must hold of what a data folder has of a log:

1. The position comes out as it went in, and there is one at most.
2. Batches that have begun are kept until they have ended here; the first end of a batch counts.
3. The uid of the next batch is above all that ended or began here, whatever has been deleted since.
4. Ranges have the same numbers.
5. A folder that leaves its cluster has nothing of it.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from svcd.index import schema
from svcd.index.connections import open_writer
from svcd.instance import applied_log
from svcd.instance.applied_log import BegunBatch, Position

BATCH = BegunBatch(3, [1, 2, 5], "documents", "all", 17)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "instance.sqlite")) as made:
        schema.prepare(made, schema.INSTANCE)
        yield made


def test_1_the_position_comes_out_as_it_went_in(connection: sqlite3.Connection) -> None:
    assert applied_log.position(connection) is None
    for at in (Position("u"), Position("u", 7, 3, 1_800_000_000_000_000_000)):
        applied_log.set_position(connection, at)
        assert applied_log.position(connection) == at
    assert connection.execute("SELECT count(*) FROM log_position").fetchone() == (1,)


def test_2_batches_are_kept_until_they_have_ended(connection: sqlite3.Connection) -> None:
    for batch in (BATCH._replace(uid=4, tasks=[8]), BATCH):
        applied_log.add_begun(connection, batch)
    assert applied_log.begun_batches(connection) == [BATCH, BATCH._replace(uid=4, tasks=[8])]
    assert applied_log.set_end(connection, 3, {"at": 18, "digest": "x"})
    assert not applied_log.set_end(connection, 3, {"at": 19, "digest": "y"})
    assert not applied_log.set_end(connection, 9, {"at": 19})
    assert applied_log.begun_batches(connection)[0] == BATCH._replace(end={"at": 18, "digest": "x"})
    applied_log.remove_begun(connection, 3)
    assert [batch.uid for batch in applied_log.begun_batches(connection)] == [4]


def test_3_the_next_batch_is_above_all_others(connection: sqlite3.Connection) -> None:
    assert applied_log.next_batch(connection) == 0
    applied_log.add_begun(connection, BATCH)
    assert applied_log.next_batch(connection) == 4
    applied_log.remove_begun(connection, 3)
    connection.execute("INSERT INTO tasks(uid, kind, status, enqueued_at, content, batch_uid) "
                       "VALUES (0, 'dumpCreation', 'succeeded', 1, '{}', 6)")
    assert applied_log.next_batch(connection) == 7


@pytest.mark.parametrize("numbers, pairs", [([], []), ([4], [[4, 4]]), ([1, 2, 3], [[1, 3]]), ([0, 2, 3, 9], [[0, 0], [2, 3], [9, 9]])])
def test_4_ranges_have_the_same_numbers(numbers: list[int], pairs: list[list[int]]) -> None:
    assert applied_log.ranges(numbers) == pairs and applied_log.numbers(pairs) == numbers


def test_5_a_folder_leaves_its_cluster(connection: sqlite3.Connection) -> None:
    applied_log.set_position(connection, Position("u", 7))
    applied_log.add_begun(connection, BATCH)
    applied_log.leave(connection)
    assert applied_log.position(connection) is None and applied_log.begun_batches(connection) == []
