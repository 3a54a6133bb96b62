"""What must hold of terms and forward rows:

1. word(term(w)) is w, and a term is one token for FTS5's tokenizer.
2. A prefix of a word is spelled as a prefix of its term.
3. forward_rows(forward_text(r)) is r; positions(row_text(p)) is p.
4. distances() finds how near a word stands behind another, in one field.

Merging the segments of an FTS5 table.

5. A merge makes one segment of all that were there when it began, in steps.
6. What is written meanwhile stays in segments of its own, and is found; the merge does not begin again.
7. However often all segments are merged, the structure keeps few levels, and each level with segments in its place.
8. However often documents are replaced, the tables keep nearly the size of a new index, and the words of now are found.
"""
from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Iterator

import pytest
from hypothesis import given, strategies as st

from svcd.index import fts, schema, writer as index_writer
from svcd.index.connections import open_writer
from svcd.index.fts import begin_merge, continue_merge
from svcd.index.writer import IndexWriter
from tests.index.conftest import change, reading

# No lemma is empty, holds NUL, or has white space at its ends.
WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12)
ROWS = st.lists(st.sampled_from(["a", "b", "c", "", "|", "A", "x y", "~", "\x07"]), min_size=1, max_size=30)


@given(WORDS)
def test_a_term_stands_for_its_word_alone(word: str) -> None:
    assert fts.word_of_term(fts.term_of_word(word)) == word


@given(WORDS, WORDS)
def test_a_prefix_of_a_word_is_spelled_as_a_prefix_of_its_term(start: str, rest: str) -> None:
    assert fts.term_of_word(start + rest).startswith(fts.term_of_word(start))


def test_fts5_takes_every_term_for_one_token(tmp_path) -> None:
    connection = open_writer(tmp_path / "index.sqlite")
    schema.prepare(connection, schema.INDEX)
    spelled = [fts.term_of_word(chr(code)) for code in (*range(1, 0x250), 0x3042, 0x4E00, 0x1F600)]
    connection.execute("INSERT INTO terms(rowid, c0) VALUES (1, ?)", (" ".join(spelled),))
    assert {row[0] for row in connection.execute("SELECT term FROM vocabulary")} == set(spelled)
    for term in spelled:
        assert connection.execute("SELECT count(*) FROM terms WHERE terms MATCH ?", (fts.fts_string(term),)).fetchone() == (1,)
    connection.close()


@given(st.dictionaries(st.integers(0, 50), ROWS, max_size=4))
def test_a_forward_row_gives_its_fields_back(rows: dict[int, list[str]]) -> None:
    texts = {column: fts.row_text(row) for column, row in rows.items()}
    assert fts.forward_rows(fts.forward_text(texts)) == texts


@given(ROWS)
def test_fts5_gets_a_term_for_every_position(row: list[str]) -> None:
    terms = fts.column_text(fts.row_text(row)).split(" ")
    assert [fts.word_of_term(spelled) if spelled != fts.POSITION_GAP else "" for spelled in terms] == row


@given(ROWS)
def test_positions_are_given_back(row: list[str]) -> None:
    assert fts.positions(fts.row_text(row)) == row


@given(ROWS, ROWS, st.sampled_from(["a", "b", "x y", "|"]), st.sampled_from(["a", "c", "A"]), st.booleans())
def test_distances_are_exact(first: list[str], second: list[str], left: str, right: str, is_prefix: bool) -> None:
    forward = fts.forward_text({0: fts.row_text(first), 5: fts.row_text(second)})
    nearest: dict[str, int] = {}
    for row in (first, second):
        for n, m in combinations(range(len(row)), 2):
            if row[n] == left and (row[m] == right or (is_prefix and row[m].startswith(right))):
                nearest[row[m]] = min(m - n, nearest.get(row[m], m))
    found = fts.distances(forward, fts.term_of_word(left), fts.term_of_word(right), is_prefix)
    assert sorted(found) == sorted(distance for distance in nearest.values() if distance <= 3)


DOCUMENTS = 20_000


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """A table "terms" of three segments; each step of a merge is short."""
    monkeypatch.setattr(fts, "_PAGES_AT_ONCE", 1)
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


@pytest.mark.parametrize("is_read", [False, True])  # between a write and its merge: FTS5 then keeps the structure in memory
def test_many_merges_leave_few_levels(is_read: bool) -> None:
    """Without the removal of empty levels SQLite 3.40 takes the table for damaged after 1,378 merges."""
    merges = 1500
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE VIRTUAL TABLE terms USING fts5(c0, content='', columnsize=0)")
        for docid in range(merges):
            connection.execute("BEGIN")
            connection.execute("INSERT INTO terms(rowid, c0) VALUES (?, ?)", (docid, f"word word{docid}"))
            if is_read:
                connection.execute("COMMIT")
                assert len(found(connection, f"word{docid}")) == 1
                connection.execute("BEGIN")
            begin_merge(connection, "terms")
            connection.execute("COMMIT")
        (structure,) = connection.execute("SELECT block FROM terms_data WHERE id = 10").fetchone()
        assert structure[4] <= 14
        connection.execute("INSERT INTO terms(terms) VALUES ('integrity-check')")  # raises
        assert found(connection, "word") == [*range(merges)] and found(connection, "word77") == [77]


LEVELS = st.lists(st.lists(st.tuples(*[st.integers(0, 1 << 40)] * 3), max_size=2), max_size=40)


@given(LEVELS, st.integers(0, 1 << 40))
def test_levels_with_segments_stay_in_their_order(levels: list[list[tuple[int, ...]]], written: int) -> None:
    def record(levels: list[list[tuple[int, ...]]]) -> bytes:
        return b"\0\0\0\7" + fts._encoded([len(levels), sum(map(len, levels)), written, *(
            number for level in levels for number in (0, len(level), *(part for segment in level for part in segment)))])

    shorter = list(levels)
    while len(shorter) > 12 and [] in shorter:
        del shorter[len(shorter) - 1 - shorter[::-1].index([])]
    assert fts.without_empty_levels(record(levels)) == record(shorter)


@given(st.binary(max_size=60))
def test_a_record_of_another_form_stays_as_it_is(record: bytes) -> None:
    assert fts.without_empty_levels(record) == record or record[4] > 12


@pytest.mark.parametrize("record", [None, b"\0\0\0\0\xff"])
def test_a_damaged_record_is_reported_by_fts5(writer: sqlite3.Connection, record: bytes | None) -> None:
    writer.execute("UPDATE terms_data SET block = ? WHERE id = 10", (record,))
    writer.execute("SAVEPOINT part")
    writer.execute("ROLLBACK TO part")
    with pytest.raises(sqlite3.DatabaseError, match="malformed"):
        begin_merge(writer, "terms")
        continue_merge(writer, "terms")


def pages(writer: IndexWriter) -> list[int]:
    return [writer._connection.execute(f"SELECT count(*) FROM {table}_data").fetchone()[0] for table in fts.TABLES]


def test_words_of_replaced_documents_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without these merges there are up to five times the pages."""
    monkeypatch.setattr(index_writer, "LEAST_REPLACED", 100)
    dice, documents = random.Random(3), 1000

    def text() -> dict[str, list[str]]:
        return {"f": [f"w{int(dice.paretovariate(0.4)) % 5000}" for _ in range(30)]}

    texts = {docid: text() for docid in range(documents)}
    with closing(IndexWriter(tmp_path / "index.sqlite")) as writer:
        with writer.transaction():
            writer.write([change(docid, words) for docid, words in texts.items()])
        fresh = pages(writer)
        for _ in range(60):
            replaced = {docid: text() for docid in dice.sample(range(documents), 50)}
            with writer.transaction():
                writer.write([change(docid, words, texts[docid]) for docid, words in replaced.items()])
            texts.update(replaced)
            assert all(now < 2.5 * first for now, first in zip(pages(writer), fresh))
        with reading(tmp_path / "index.sqlite") as reader:
            for word in ("w1", "w2", "w77", "w4999"):
                assert [*reader.terms.word_docids(word).to_array()] == [n for n, words in sorted(texts.items()) if word in words["f"]]
