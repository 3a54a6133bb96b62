"""What must hold of stored vectors:

1. What was written is read back to the bit; of quantized ones, which numbers are above zero.
2. Sets and counts are those worked out from all entries, after any history: also deletions, clearing, what was undone.
3. After any history the tables are those of an index made at once.
4. Quantizing later gives what quantizing at once gives.
5. A removed embedder leaves nothing; its number is given again.
"""
from __future__ import annotations

import random
import sqlite3
import tempfile
from array import array
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.index import schema, vector_writer
from svcd.index.vector_reader import EMBEDDED, FIRST_FRAGMENT, FIXED, GIVEN, stored_bytes, stored_vectors
from svcd.index.vector_writer import StoredVectors, VectorWriter
from svcd.index.writer import DocumentChange, IndexWriter
from tests.support import open_connections

NUMBER = st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0, 1e-45, -1e-45])
EMBEDDERS = {"a": 3, "b": 65}


def vectors_of(dimensions: int, most: int = 3) -> st.SearchStrategy[list[array[float]]]:
    """Vectors that begin with numbers of interest."""
    def vector(seed: int, first: list[float]) -> array[float]:
        chosen = random.Random(seed)
        return array("f", [*first, *(chosen.choice((-1, 0, chosen.gauss(0, 1))) for _ in range(dimensions))][:dimensions])
    return st.lists(st.builds(vector, st.integers(0, 99), st.lists(NUMBER, max_size=2)), max_size=most)


@st.composite
def entry(draw: st.DrawFn, dimensions: int) -> StoredVectors | None:
    """An entry of an embedder with the fragments 0 and 1, or None for one that goes."""
    if draw(st.integers(0, 4)) == 0:
        return None
    if draw(st.booleans()):
        return StoredVectors(draw(vectors_of(dimensions)), True, draw(st.booleans()))
    fragments = bytes(draw(st.sampled_from([[], [0], [1], [0, 1]])))
    vectors = draw(st.lists(vectors_of(dimensions).filter(bool), min_size=len(fragments), max_size=len(fragments)))
    return StoredVectors([each[0] for each in vectors], False, draw(st.booleans()), fragments)


CHANGE = st.fixed_dictionaries({}, optional={name: entry(dimensions) for name, dimensions in EMBEDDERS.items()})
DOCID = st.integers(0, 6) | st.sampled_from([65_535, 65_536, 200_000])
# Batches of (docid, changes by embedder; None deletes the document).
HISTORY = st.lists(st.dictionaries(DOCID, st.none() | CHANGE, max_size=6), max_size=5)


@cache
def empty_index() -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.prepare(connection, schema.INDEX)
        return connection.serialize()


def add_embedders(vectors: VectorWriter, is_quantized: bool = False) -> VectorWriter:
    for name, dimensions in EMBEDDERS.items():
        vectors.add_embedder(name, dimensions, is_quantized, ["x", "y"])
    return vectors


def new_writer(is_quantized: bool = False) -> VectorWriter:
    """A writer of vectors alone, in memory."""
    connection = open_connections.until_the_end_of_the_test(sqlite3.connect(":memory:", isolation_level=None))
    connection.deserialize(empty_index())
    return add_embedders(VectorWriter(connection), is_quantized)


def play(writer: VectorWriter, history: Sequence[dict[int, Any]]) -> dict[int, dict[str, StoredVectors]]:
    """Write a history; returns what it comes to."""
    held: dict[int, dict[str, StoredVectors]] = {}
    for batch in history:
        for name in EMBEDDERS:
            writer.write(name, {docid: changes[name] for docid, changes in batch.items() if changes and name in changes})
        writer.remove(docid for docid, changes in batch.items() if changes is None)
        writer.flush()
        for docid, changes in batch.items():
            after = {} if changes is None else held.get(docid, {}) | changes
            held[docid] = {name: each for name, each in after.items() if each is not None}
    return held


def tables(writer: VectorWriter) -> dict[str, Any]:
    return {table: writer._connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
            for table in ("embedders", "document_vectors", "vector_postings")}


def bits(vectors: Sequence[array[float]]) -> list[bytes]:
    return [vector.tobytes() for vector in vectors]


def check(writer: VectorWriter, held: dict[int, dict[str, StoredVectors]]) -> None:
    everything: set[int] = set()
    count = 0
    for name in EMBEDDERS:
        entries = {docid: each[name] for docid, each in held.items() if name in each}
        found = writer.stored(name, list(held))
        assert found.keys() == entries.keys()
        for docid, each in found.items():
            assert bits(each.vectors) == bits(entries[docid].vectors)
            assert each[1:] == entries[docid][1:]
        assert [docid for part in writer.portions(name) for docid, _ in part] == sorted(entries)
        embedded = {docid for docid, each in entries.items() if each.vectors}
        everything |= embedded
        count += sum(len(each.vectors) for each in entries.values())
        expected = {EMBEDDED: embedded, GIVEN: {docid for docid, each in entries.items() if each.is_user_provided},
                    FIXED: {docid for docid, each in entries.items() if not each.regenerate},
                    FIRST_FRAGMENT: {docid for docid, each in entries.items() if 0 in (each.fragments or b"")},
                    FIRST_FRAGMENT + 1: {docid for docid, each in entries.items() if 1 in (each.fragments or b"")}}
        assert {kind: set(writer.docids(name, kind)) for kind in expected} == expected
    assert writer.counts() == (count, len(everything))


@settings(max_examples=40, deadline=None)
@given(HISTORY)
def test_entries_sets_and_counts_are_those_of_the_history(history: list[dict[int, Any]]) -> None:
    writer, fresh = new_writer(), new_writer()
    held = play(writer, history)
    check(writer, held)
    play(fresh, [held])
    assert tables(writer) == tables(fresh)
    writer.clear()
    check(writer, {})


@settings(max_examples=40, deadline=None)
@given(HISTORY, HISTORY)
def test_quantizing_later_is_quantizing_at_once(history: list[dict[int, Any]], later: list[dict[int, Any]]) -> None:
    writer, quantized = new_writer(), new_writer(is_quantized=True)
    play(writer, history)
    for name in EMBEDDERS:
        writer.quantize(name)
    play(writer, later)
    play(quantized, [*history, *later])
    assert tables(writer) == tables(quantized)


@settings(max_examples=5, deadline=None)
@given(st.dictionaries(DOCID, CHANGE, min_size=1), st.dictionaries(DOCID, st.none() | CHANGE))
def test_what_is_undone_leaves_nothing(kept: dict[int, Any], undone: dict[int, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = IndexWriter(Path(folder) / "index.sqlite")
        with writer.transaction():
            add_embedders(writer.vectors)
            write(writer, kept)
        with writer.transaction(), pytest.raises(ZeroDivisionError), writer.savepoint():
            write(writer, undone)
            raise ZeroDivisionError
        held = {docid: {name: each for name, each in changes.items() if each} for docid, changes in kept.items()}
        check(writer.vectors, held)
        assert writer.stats()["embeddings"] == sum(len(each.vectors) for entries in held.values() for each in entries.values())
        writer.close()


def write(writer: IndexWriter, batch: dict[int, Any]) -> None:
    writer.write([DocumentChange(docid, f"d{docid}", None if changes is None else "{}", {}, vectors=changes or {})
                  for docid, changes in batch.items()])


@given(st.integers(1, 200).flatmap(lambda dimensions: vectors_of(dimensions).map(lambda vectors: (dimensions, vectors))))
def test_quantized_vectors_tell_which_numbers_are_above_zero(given_vectors: tuple[int, list[array[float]]]) -> None:
    dimensions, vectors = given_vectors
    stored = stored_bytes(vectors, True)
    assert len(stored) == len(vectors) * 8 * -(-dimensions // 64)
    expected = [[1.0 if number > 0 else 0.0 for number in vector] for vector in vectors]
    assert [list(vector) for vector in stored_vectors(stored, 0, dimensions, True)] == expected


def test_few_bytes_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_writer, "MOST_READ", 30)
    writer = new_writer()
    held = play(writer, [{docid: {"a": StoredVectors([array("f", [docid, 0, 0])] * (docid % 5))} for docid in range(9)}])
    check(writer, held)
    assert [[docid for docid, _ in part] for part in writer.portions("a")] == [[0, 1], [2], [3], [4], [5, 6], [7], [8]]
    assert [list(part) for part in writer.stored_parts("a", [8, 1, 6])] == [[1, 6], [8]]


def test_a_removed_embedder_leaves_nothing_and_its_number_is_given_again() -> None:
    writer = new_writer()
    play(writer, [{1: {"a": StoredVectors([array("f", [1, 2, 3])]), "b": StoredVectors([], True, False)}}])
    writer.remove_embedder("a")
    assert "a" not in writer.embedders
    assert {row[0] for row in tables(writer)["vector_postings"]} == {1}
    assert writer.counts() == (0, 0)
    writer.add_embedder("c", 4, False, [])
    assert writer.embedders["c"].number == 0


def test_fragments_keep_their_numbers_and_new_ones_get_those_that_are_free() -> None:
    writer = new_writer()
    writer.change_fragments("a", ["y", "z", "w"])
    assert writer.embedders["a"].fragments == {"y": 1, "z": 0, "w": 2}


def test_many_edits_are_written_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_writer, "_MOST_GATHERED", 3)
    writer = new_writer()
    held = play(writer, [{docid: {"a": StoredVectors([array("f", [docid, 0, 0])], True, False)} for docid in range(20)}])
    check(writer, held)
