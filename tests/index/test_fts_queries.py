"""Merging the segments of an FTS5 table.

1. A merge makes one segment of all that were there when it began, in steps.
2. What is written meanwhile stays in segments of its own, and is found; the merge does not begin again.
"""
from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Iterator

import pytest

from svcd.index import fts_queries
from svcd.index.fts_queries import begin_merge, continue_merge

DOCUMENTS = 20_000


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """A table "terms" of three segments; each step of a merge is short."""
    monkeypatch.setattr(fts_queries, "_PAGES_AT_ONCE", 1)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE VIRTUAL TABLE terms USING fts5(c0)")
        for start in range(3):
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO terms(rowid, c0) VALUES (?, ?)",
                                   [(docid, f"word word{docid}") for docid in range(start, DOCUMENTS, 3)])
            connection.execute("COMMIT")
        assert len(segments(connection)) == 3
        yield connection


def segments(connection: sqlite3.Connection) -> list[int]:
    return [segment for (segment,) in connection.execute("SELECT DISTINCT segid FROM terms_idx")]


def found(connection: sqlite3.Connection, word: str) -> list[int]:
    return [docid for (docid,) in connection.execute("SELECT rowid FROM terms WHERE terms MATCH ?", (word,))]


def test_1_all_segments_become_one(writer: sqlite3.Connection) -> None:
    begin_merge(writer, "terms")
    steps = 1
    while continue_merge(writer, "terms"):
        steps += 1
    assert len(segments(writer)) == 1 and steps > 3
    assert found(writer, "word") == [*range(DOCUMENTS)] and found(writer, "word77") == [77]
    begin_merge(writer, "terms")  # nothing to do
    assert not continue_merge(writer, "terms")


def test_2_what_is_written_meanwhile_does_not_begin_the_merge_again(writer: sqlite3.Connection) -> None:
    begin_merge(writer, "terms")
    steps = 1
    while continue_merge(writer, "terms"):
        steps += 1
        if steps < 4:
            writer.execute("INSERT INTO terms(rowid, c0) VALUES (?, 'late')", (DOCUMENTS + steps,))
            assert found(writer, "word77") == [77]
    assert len(segments(writer)) == 3 and steps < 40  # one, and what was written: one for each
    assert found(writer, "late") == [DOCUMENTS + 2, DOCUMENTS + 3] and found(writer, "word") == [*range(DOCUMENTS)]
