"""What must hold of the sets of the documents that hold a word with a letter at its start:

1. After any changes a set holds the documents whose words begin so now, in a field and in any.
2. What was gathered and then forgotten was never there.
3. Characters of scripts without an alphabet have no sets.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.base.docids import DocIds
from svcd.index import bitmap_blocks, prefix_postings, schema

BLOCK = 1 << bitmap_blocks.BLOCK_BITS
DOCIDS = st.integers(0, 40) | st.integers(0, 3 * BLOCK)
LETTERS = st.dictionaries(st.integers(0, 2), st.sets(st.sampled_from("abé")), max_size=3)
CHANGES = st.lists(st.tuples(DOCIDS, LETTERS) | st.just("flush"), max_size=40)


def tables(path: Path | str = ":memory:") -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    schema.prepare(connection, schema.INDEX)
    return connection


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    connection = tables()
    yield connection
    connection.close()


@given(CHANGES)
def test_a_set_follows_the_documents(connection: sqlite3.Connection, changes: list) -> None:
    writer, held = prefix_postings.PrefixPostingWriter(connection), {}
    writer.clear()
    for change in changes:
        if change == "flush":
            writer.flush()
            continue
        docid, letters = change
        writer.change(docid, held.get(docid, {}), letters)
        held[docid] = letters
    writer.flush()
    for letter in "abé":
        for column in (0, 1, 2):
            assert list(prefix_postings.read_prefix_postings(connection, letter, column)) == sorted(
                docid for docid, letters in held.items() if letter in letters.get(column, ()))
        assert list(prefix_postings.read_prefix_postings(connection, letter, None)) == sorted(
            docid for docid, letters in held.items() if any(letter in found for found in letters.values()))


def test_thick_and_thin_sets_come_back(connection: sqlite3.Connection) -> None:
    writer = prefix_postings.PrefixPostingWriter(connection)
    writer.clear()
    for docid in range(3 * BLOCK):
        writer.change(docid, {}, {0: {"a", "b"} if docid % 5000 == 0 else {"a"}})
    writer.flush()
    assert prefix_postings.read_prefix_postings(connection, "a", None) == DocIds(range(3 * BLOCK))
    assert list(prefix_postings.read_prefix_postings(connection, "b", 0)) == list(range(0, 3 * BLOCK, 5000))


def test_what_is_forgotten_was_never_there(connection: sqlite3.Connection) -> None:
    writer = prefix_postings.PrefixPostingWriter(connection)
    writer.clear()
    writer.change(1, {}, {0: {"a"}})
    writer.forget()
    writer.flush()
    assert not prefix_postings.read_prefix_postings(connection, "a", None)


def test_there_are_sets_for_letters_alone(connection: sqlite3.Connection) -> None:
    writer = prefix_postings.PrefixPostingWriter(connection)
    writer.clear()
    writer.change(1, {}, {0: {"a", "我"}})
    writer.flush()
    assert connection.execute("SELECT DISTINCT letter FROM prefix_postings").fetchall() == [("a",)]
    assert prefix_postings.has_prefix_postings("a") and not prefix_postings.has_prefix_postings("我") and not prefix_postings.has_prefix_postings("ab")


def test_holes_begin_with_nothing() -> None:
    assert prefix_postings.first_letters(["the", "", "tale", "of"]) == {"t", "o"}
