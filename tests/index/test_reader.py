"""What must hold of an index:

1. Its relations are those of the words by position that it was given (worked out here word by word).
2. What a reader has cached is brought up to date after writes, and equals what it would read from the tables.
3. After any history it answers as one built at once from the same documents with the same docids.
4. FTS5's own integrity check agrees with what was written.
5. What is not committed is not seen; what a savepoint undid was never there.
6. A reader sees one state from its first read to its last.
7. The documents of a delta are read once, and count in the cache with the memory that they take.
8. A read that its time limit ends is read again as a whole by whoever comes next.
9. Stored sets change how words are listed, but not which.
"""
from __future__ import annotations

import json
import random
import sqlite3
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import count as counting, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.docids import DocIds, from_bytes
from svcd.index import (
    bitmap_blocks, fts, materialized, materialized_choice, pair_reader, schema, term_reader, writer as index_writer,
)
from svcd.index.materialized_reader import MaterializedReader, materialized_key
from svcd.index.read_transaction import Cache, Delta
from svcd.index.reader import IndexReader
from svcd.index.value_writer import value_key
from svcd.index.writer import IndexWriter
from tests.index.conftest import change, reading
from tests.support.dict_reader import ListedWords
from tests.support.pace import is_within

VOCABULARY = ["a", "ab", "abc", "b", "ba", "c", "", "", "|", "X"]
WORD = st.text("ab|~{}Xé\ud7ff\ue000𐀀", min_size=1, max_size=3)
ROW = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=25).map(lambda row: [*row, "z"])
# Two fields of their own and two that share the last column.
FIELDS = ["f0", "f1", *(f"f{n}" for n in (schema.SHARED_COLUMN, schema.SHARED_COLUMN + 1))]
DOCUMENT = st.dictionaries(st.sampled_from(FIELDS), ROW, max_size=4)
HISTORY = st.lists(st.lists(st.tuples(st.integers(0, 6), st.none() | DOCUMENT), min_size=1, max_size=6), max_size=5)

Documents = dict[int, dict[str, list[str]]]


def fill_columns(writer: IndexWriter) -> None:
    """Give every field its column before any document comes, so that two indexes agree on them."""
    everything = {f"f{n}": ["w"] for n in range(schema.SHARED_COLUMN + 2)}
    with writer.transaction():
        writer.write([change(99, everything)])
    with writer.transaction():
        writer.write([change(99, None, everything)])


def play(writer: IndexWriter, history: list[list[tuple[int, Any]]], held: Documents | None = None) -> Documents:
    held = {} if held is None else held
    for batch in history:
        newest = dict(batch)
        with writer.transaction():
            writer.write([change(docid, positions, held.get(docid)) for docid, positions in newest.items()
                          if positions is not None or docid in held])
        for docid, positions in newest.items():
            held.pop(docid, None)
            if positions is not None:
                held[docid] = positions
    return held


def docids(found: DocIds) -> set[int]:
    return set(found)


def expected_pair(document: dict[str, list[str]], left: str, right: str) -> int | None:
    distances = [d for row in document.values() for n, w in enumerate(row) if w == left
                 for d in (1, 2, 3) if n + d < len(row) and row[n + d] == right]
    return min(distances, default=None)


def bucketed(position: int) -> int:
    return position if position < 16 else 24 if position < 24 else 1 << (position - 1).bit_length()


def check_document_words(reader: IndexReader, held: Documents, known: Sequence[str]) -> None:
    """The forward index says of each document what the document says of itself."""
    some = frozenset(known[::2])
    for docid, stored in zip(sorted(held), reader.terms.document_words(sorted(held)), strict=True):
        listed = ListedWords(docid, {field: held[docid][field] for field in FIELDS if field in held[docid]})
        assert (stored.docid, list(stored.fields)) == (docid, listed.fields)
        assert [stored.length(field) for field in range(len(listed.fields))] == [
            listed.length(field) for field in range(len(listed.fields))]
        for word in (*known, "none"):
            assert stored.occurrences(word) == listed.occurrences(word)
            for prefix in (word, word[:1]):
                assert stored.occurrences_of_prefix(prefix) == listed.occurrences_of_prefix(prefix)
        for words in (some, [*some][:2]):
            assert sorted(stored.occurrences_of_any(words)) == listed.occurrences_of_any(words)


def check_relations(reader: IndexReader, held: Documents) -> None:
    known = sorted({w for document in held.values() for row in document.values() for w in row if w})
    assert docids(reader.all_docids()) == set(held)
    assert list(reader.vocabulary.words_with_prefix("")) == known
    assert list(reader.vocabulary.first_characters()) == sorted({w[0] for w in known})
    check_document_words(reader, held, known)
    assert docids(reader.terms.words_docids(["ab", "c", "none", "|"])) == {
        docid for docid, document in held.items() if any({"ab", "c", "|"} & set(row) for row in document.values())}
    for rare in (0, term_reader.RARE):  # from postings, then from the documents
        with patch.object(term_reader, "RARE", rare):
            for word in ["a", "ab", "|", "X", "none"]:
                check_word(reader, held, word)
    for prefix in ["a", "b"]:
        check_prefix(reader, held, prefix)
    for left, right in [("a", "b"), ("b", "a"), ("a", "a"), ("|", "X")]:
        for distance in (1, 2, 3):
            assert docids(reader.terms.pair_docids(distance, left, right)) == {
                docid for docid, document in held.items() if expected_pair(document, left, right) == distance}
    for field in FIELDS:
        for count in (1, 3, 9):
            assert docids(reader.terms.field_count_docids(field, count)) == {
                docid for docid, document in held.items() if field in document
                and sum(map(bool, document[field])) == count}


def check_word(reader: IndexReader, held: Documents, word: str) -> None:
    assert docids(reader.terms.word_docids(word)) == {
        docid for docid, document in held.items() if any(word in row for row in document.values())}
    for field in FIELDS:
        assert docids(reader.terms.word_field_docids(word, field)) == {
            docid for docid, document in held.items() if word in document.get(field, [])}
    places = {(bucketed(n), docid) for docid, document in held.items() for row in document.values()
              for n, w in enumerate(row) if w == word}
    assert {(position, docid) for position in fts.BUCKETS
            for docid in docids(reader.terms.word_position_docids(word, position))} == places


def check_prefix(reader: IndexReader, held: Documents, prefix: str) -> None:
    found = reader.vocabulary.words_with_prefix(prefix)
    assert docids(reader.terms.prefix_docids(prefix)) == set().union(*(docids(reader.terms.word_docids(w)) for w in found))
    for position in fts.BUCKETS:
        assert docids(reader.terms.prefix_position_docids(prefix, position)) == set().union(
            *(docids(reader.terms.word_position_docids(word, position)) for word in found))
    for field in FIELDS:
        assert docids(reader.terms.prefix_field_docids(prefix, field)) == set().union(
            *(docids(reader.terms.word_field_docids(w, field)) for w in found))
    for distance in (1, 2, 3):
        assert docids(reader.terms.prefix_pair_docids(distance, "c", prefix)) == set().union(
            *(docids(reader.terms.pair_docids(distance, "c", w)) for w in found))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["f0", "f1", "f2"]), ROW), min_size=1, max_size=12),
       st.permutations([*product(["a", "ab", "abc"], [None, "f0", "f1", "f2"], [False, True])]))
def test_cached_sets_change_how_sets_are_read_but_not_what_they_hold(documents: list[Any], asked: list[Any]) -> None:
    held: Documents = dict(enumerate(documents))
    with tempfile.TemporaryDirectory() as folder, patch.object(term_reader, "COMMON", 3), patch.object(
            term_reader, "_DOCUMENTS_A_TERM", 1), patch.object(term_reader, "RARE", 0):
        path = Path(folder) / "index.sqlite"
        writer = IndexWriter(path)
        play(writer, [[*held.items()]])
        writer.close()
        with reading(path) as reader:
            for prefix in ("ab", "abc"):
                reader.vocabulary.words_with_prefix(prefix, 100)
            for word, field, is_prefix in asked:
                expected = {docid for docid, document in held.items() for name, row in document.items()
                            if field in (None, name) and any(w == word or (is_prefix and w.startswith(word)) for w in row)}
                assert docids(read_set(reader, word, field, is_prefix)) == expected
            for word in ("ab", "abc"):
                for position in range(3):
                    assert docids(reader.terms.prefix_position_docids(word, position)) == {
                        docid for docid, document in held.items() for row in document.values()
                        if position < len(row) and row[position].startswith(word)}


@pytest.mark.parametrize(("many", "most_rare"), [(1, 9), (2, 9), (3, 1), (50, 9), (50, 2)])
def test_words_are_found_in_cached_lists(tmp_path: Path, many: int, most_rare: int) -> None:
    known = ["a", "ab", "abc", "b", "ba", "X", "Xa", "|", "é", "éa", "z", "~"]
    writer = IndexWriter(tmp_path / "index.sqlite")
    play(writer, [[(1, {"f0": [*known, ""]})]])
    writer.close()
    with patch.object(term_reader, "_MANY_WORDS", many), patch.object(term_reader, "_MOST_RARE", most_rare):
        with reading(tmp_path / "index.sqlite") as reader:
            assert list(reader.vocabulary.first_characters()) == sorted({word[0] for word in known})
            reader.vocabulary.words_with_prefix("a")
            for word in ("a", "aa", "ab", "abcd", "b", "ba", "X", "Xa", "|", "é", "éb", "z", "~", "none", "ù"):
                assert reader.vocabulary.has_word(word) == (word in known)
                assert list(reader.vocabulary.words_with_prefix(word)) == sorted(w for w in known if w.startswith(word))


@settings(max_examples=60, deadline=None)
@given(st.sets(WORD, min_size=1, max_size=20), st.sets(WORD, max_size=8), st.data())
def test_words_are_the_same_whatever_sets_are_stored(words: set[str], others: set[str], data: st.DataObject) -> None:
    known = sorted(words, key=str.encode)
    stored = data.draw(st.sets(st.sampled_from(known))) | others  # a stored term may have lost its documents
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.sqlite"
        writer = IndexWriter(path)
        play(writer, [[(1, {"f0": [*known, ""]})]])
        writer.close()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executemany("INSERT INTO materialized_postings VALUES (?, ?, ?, x'')", [
                (materialized_key(kind, fts.term_of_word(word), False), part, block)
                for word in stored for kind in ("word", "position") for part in (0, 2) for block in (0, 1)])
            connection.executemany("INSERT INTO materialized_postings VALUES (?, 0, 0, x'')", [("w:",), ("w:a\0",)])  # damaged
        with reading(path) as reader:
            assert list(reader.vocabulary.first_characters()) == sorted({word[0] for word in known})
        with reading(path) as reader:
            for prefix in ("", *(word[:length] for word in words | others for length in (1, 2))):
                with_prefix = [word for word in known if word.startswith(prefix)]
                assert list(reader.vocabulary.words_with_prefix(prefix, 200)) == with_prefix
                assert list(reader.vocabulary.words_with_prefix(prefix)) == with_prefix


@given(WORD, WORD)
def test_a_range_can_end_just_before_a_term(one: str, other: str) -> None:
    before, after = sorted((fts.term_of_word(one).encode(), fts.term_of_word(other).encode()))
    end = fts.end_before(after.decode()).encode()
    assert end < after and (before == after or before < end)


def read_set(reader: IndexReader, word: str, field: str | None, is_prefix: bool) -> int:
    if field is None:
        return reader.terms.prefix_docids(word) if is_prefix else reader.terms.word_docids(word)
    return reader.terms.prefix_field_docids(word, field) if is_prefix else reader.terms.word_field_docids(word, field)


# Costs of a row that is scanned, of one that is searched for phrases alone, and of a posting of a prefix, and the documents beyond
# which rows are searched for phrases first: so that everything is read from the forward index; asked of FTS5, prefixes as such or
# word by word; now this and now that.
COSTS = [(0, 0, 0, 99), (1 << 40, 0, 0, 99), (1 << 40, 0, 1 << 20, 99), (40, 0, 0, 99),
         (1 << 40, 0, 0, 0), (1 << 40, 1 << 30, 0, 0), (1 << 40, 1 << 30, 1 << 20, 0), (1 << 40, 40, 0, 1)]


@settings(max_examples=40, deadline=None)
@given(HISTORY, st.sampled_from(COSTS), st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=3), st.integers(1, 5))
def test_the_forward_index_and_fts5_find_the_same_pairs(
    history: list[list[tuple[int, Any]]], costs: tuple[int, int, int, int], asked: list[set[int]], step: int
) -> None:
    scan_cost, read_cost, prefix_cost, many = costs
    with tempfile.TemporaryDirectory() as folder, patch.multiple(
            pair_reader, _ROW_COST=scan_cost, _SCAN_COST=scan_cost, _READ_COST=read_cost, _PREFIX_STEP_COST=prefix_cost,
            _MANY=many, _FREQUENCIES_COST=0):
        path, cache = Path(folder) / "index.sqlite", Cache(1 << 20)
        with closing(IndexWriter(path)) as writer:
            held: Documents = {}
            for start in range(0, max(len(history), 1), step):
                play(writer, history[start:start + step], held)
                for some in asked:
                    with reading(path, cache) as reader:
                        check_pairs(reader, held, some)
                        check_near_sides(reader, held, some)


def check_pairs(reader: IndexReader, held: Documents, asked: set[int]) -> None:
    """The documents asked for must be right; documents asked for earlier may be answered as well."""
    for distance, (left, right) in product((1, 2, 3), [("a", "b"), ("b", "a"), ("a", "a"), ("|", "X")]):
        found = docids(reader.terms.pair_docids(distance, left, right, DocIds(sorted(asked))))
        assert found & asked == {docid for docid, document in held.items() if docid in asked
                                 and expected_pair(document, left, right) == distance}
    for distance in (1, 2, 3):
        found = docids(reader.terms.prefix_pair_docids(distance, "c", "a", DocIds(sorted(asked))))
        assert found & asked == {docid for docid, document in held.items() for word in ("a", "ab", "abc") if docid in asked
                                 and expected_pair(document, "c", word) == distance}


def check_near_sides(reader: IndexReader, held: Documents, asked: set[int]) -> None:
    """Documents with the distance are found, and no others but nearer ones."""
    for lefts, rights, prefix in [(["a"], ["b"], None), (["a", "c"], ["a", "|", "X"], None), (["c", "b"], ["ab", "abc"], "ab"),
                                  (["c", "none"], ["X"], "a"), (["b"], ["a", "ab", "abc"], "a"), (["c"], [], "z"),
                                  (["a", "ab", "abc", "b", "ba"], ["c", "X"], None)]:
        nearest = {docid: expected_near(held[docid], lefts, rights, prefix) for docid in asked & set(held)}
        for distance in (1, 2, 3):
            found = docids(reader.terms.near_docids(distance, lefts, rights, prefix, DocIds(sorted(asked))))
            assert {docid for docid, least in nearest.items() if least == distance} <= found
            assert found <= {docid for docid, least in nearest.items() if least is not None and least <= distance}


def expected_near(document: dict[str, list[str]], lefts: list[str], rights: list[str], prefix: str | None) -> int | None:
    known = {word for row in document.values() for word in row if word}
    continued = {word for word in known if prefix is not None and word.startswith(prefix)}
    distances = [expected_pair(document, left, right) for left in lefts for right in {*rights, *continued}]
    in_wrong_order = [expected_pair(document, right, left) for left in lefts for right in rights]
    found = [*(d for d in distances if d), *(d + 1 for d in in_wrong_order if d)]
    return min((distance for distance in found if distance <= 3), default=None)


@settings(max_examples=40, deadline=None)
@given(HISTORY)
def test_any_history_answers_as_its_documents_say(history: list[list[tuple[int, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.sqlite"
        writer = IndexWriter(path)
        fill_columns(writer)
        held = play(writer, history)
        writer.checkpoint()
        with reading(path) as reader:
            check_relations(reader, held)
            assert reader.field_distribution() == {
                field: count for field in FIELDS if (count := sum(field in document for document in held.values()))}
            wanted = [f"d{docid}" for docid in (*held, 10_000)]
            assert reader.identified_documents(wanted) == {f"d{docid}": reader.document(docid) for docid in held}
            assert reader.identified_docids(wanted) == {f"d{docid}": docid for docid in held}
            assert reader.average_document_size() == max(sum(len(reader.document(docid)) for docid in held) // max(len(held), 1), 1)
        writer.close()
        with closing(sqlite3.connect(path)) as connection:
            for table in ("terms", "term_positions"):
                connection.execute(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")


@settings(max_examples=40, deadline=None)
@given(HISTORY, st.integers(1, 3))
def test_cached_values_are_brought_up_to_date_after_writes(history: list[list[tuple[int, Any]]], step: int) -> None:
    """Asked after every `step` batches through one cache: what was kept then has to become what is now."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.sqlite"
        writer = IndexWriter(path)
        fill_columns(writer)
        cache, held = Cache(1 << 24), {}
        for start in range(0, len(history), step):
            play(writer, history[start:start + step], held)
            with reading(path, cache) as reader:
                check_relations(reader, held)
        writer.close()


WORDS = st.sampled_from(["a", "aa", "ab", "ab1", "b", "ba", "bb", "bc", "é", "éa", "ù", "X", "Xa", "|", "~", "7", "77"])
ASKED = st.tuples(st.sampled_from(["a", "ab", "b", "é", "X", "|", "7", "none"]), st.none() | st.integers(1, 3))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.dictionaries(st.integers(0, 3), st.none() | st.lists(WORDS, min_size=1, max_size=9), min_size=1),
                          st.lists(ASKED, max_size=6)), min_size=2, max_size=6))
def test_cached_words_are_brought_up_to_date_after_writes(
        history: list[tuple[dict[int, list[str] | None], list[tuple[str, int | None]]]]) -> None:
    """Each step writes documents, and asks for some words through one cache: they are those of a reader without cached words."""
    with (tempfile.TemporaryDirectory() as folder, patch.object(term_reader, "_MANY_WORDS", 2),
          patch.object(term_reader, "_FIRST_WORDS", 3), patch.object(pair_reader, "_FEW_TERMS", 3)):
        path, cache, held = Path(folder) / "index.sqlite", Cache(1 << 24), Documents()
        writer = IndexWriter(path)
        for batch, asked in history:
            play(writer, [[(docid, row and {"f0": row}) for docid, row in batch.items()]], held)
            with reading(path, cache) as reader, reading(path, Cache(1 << 24)) as fresh:
                words = {word for document in held.values() for word in document["f0"]}
                for prefix, limit in asked:
                    assert list(reader.vocabulary.words_with_prefix(prefix, limit)) == list(
                        fresh.vocabulary.words_with_prefix(prefix, limit))
                    assert reader.vocabulary.has_word(prefix) == (prefix in words)
                    term = fts.term_of_word(prefix)
                    assert set(reader.vocabulary.few_terms(term) or ()) == set(fresh.vocabulary.few_terms(term) or ())
                    assert reader.terms._few_terms(term).keys() in (
                        set(), {fts.term_of_word(word) for word in words if word.startswith(prefix)})
                    assert list(reader.vocabulary.first_characters()) == sorted({word[0] for word in words})
        writer.close()


def materialize_everything(patch: pytest.MonkeyPatch) -> None:
    """Make sets of all terms and prefixes, however few documents there are, in one block for each four of them."""
    patch.setattr(materialized, "LEAST_DOCUMENTS", 0)
    patch.setattr(materialized, "LEAST", 0)
    patch.setattr(bitmap_blocks, "MOST_IN_WHOLE", 0)


@settings(max_examples=25, deadline=None)
@given(HISTORY, st.integers(0, 4))
def test_materialized_postings_are_brought_up_to_date_after_writes(history: list[list[tuple[int, Any]]], after: int) -> None:
    """Every set is materialized here: after some batches, asked at the end through an empty cache."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        materialize_everything(patch)
        path = Path(folder) / "index.sqlite"
        writer = IndexWriter(path)
        fill_columns(writer)
        held = play(writer, history[:after])
        assert writer.needs_materialized_postings()
        writer.materialize_postings(lambda: False)
        assert not writer.needs_materialized_postings()
        play(writer, history[after:], held)
        with reading(path) as reader:
            check_relations(reader, held)
        writer.close()


def stored_sets(path: Path) -> dict[tuple[str, int], set[int]]:
    """(key, part) -> documents of the materialized postings."""
    found: dict[tuple[str, int], set[int]] = {}
    with closing(sqlite3.connect(path)) as connection:
        for key, part, stored in connection.execute("SELECT key, part, docids FROM materialized_postings"):
            found.setdefault((key, part), set()).update(from_bytes(stored))
    return found


def spread(history: list[list[tuple[int, Any]]]) -> list[list[tuple[int, Any]]]:
    """The same with docids in several bitmap blocks."""
    return [[(docid * 40_000, positions) for docid, positions in batch] for batch in history]


@pytest.mark.parametrize(("most_in_whole", "families"), [(0, 64), (2, 1), (100, 1_000_000)])
@settings(max_examples=10, deadline=None)
@given(history=HISTORY.map(spread), after=st.integers(0, 4))
def test_refreshed_sets_are_those_of_a_new_build(
    history: list[list[tuple[int, Any]]], after: int, most_in_whole: int, families: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        materialize_everything(patch)
        patch.setattr(bitmap_blocks, "MOST_IN_WHOLE", most_in_whole)
        patch.setattr(materialized_choice, "_FAMILIES", families)
        patch.setattr(materialized, "_KEYS_AT_ONCE", 3)
        for module in materialized, materialized:
            patch.setattr(module, "SHARE", 0)  # never made again
        for name, value in ("_ROWS_AT_ONCE", 2), ("_PORTION", 20):
            patch.setattr(materialized, name, value)
        path = Path(folder) / "index.sqlite"
        writer = IndexWriter(path)
        fill_columns(writer)
        held = play(writer, history[:after])
        writer.materialize_postings(lambda: False)
        keys = {key for key, _ in stored_sets(path)}
        play(writer, history[after:], held)
        materialize_by_and_by(writer)
        refreshed = {key: found for key, found in stored_sets(path).items() if key[0] in keys}
        with reading(path) as reader:
            check_relations(reader, held)
        with writer.transaction():
            writer._written = None  # too many documents
        materialize_by_and_by(writer)
        assert {key: found for key, found in stored_sets(path).items() if key[0] in keys} == refreshed
        writer.close()


def materialize_by_and_by(writer: IndexWriter) -> None:
    """Interrupted again and again, it goes on where it was."""
    checks = counting()
    while not writer.materialize_postings(lambda: next(checks) % 60 == 59):
        pass


@settings(max_examples=15, deadline=None)
@given(history=HISTORY.map(spread), checks=st.lists(st.integers(0, 60), min_size=4, max_size=4))
def test_what_is_written_during_a_build_is_in_its_sets(history: list[list[tuple[int, Any]]], checks: list[int]) -> None:
    """Between the batches sets are made for a while."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        materialize_everything(patch)
        for module, name, value in ((materialized, "SHARE", 0), (materialized, "_ROWS_AT_ONCE", 2),
                                    (materialized, "_PORTION", 20), (materialized, "_COMMIT_S", 1e-6)):
            patch.setattr(module, name, value)
        path = Path(folder) / "index.sqlite"
        writer = IndexWriter(path)
        fill_columns(writer)
        held: dict[int, Any] = {}
        for number, batch in enumerate(history):
            play(writer, [batch], held)
            counted = counting()
            writer.materialize_postings(lambda: next(counted) >= checks[number % len(checks)])
            with reading(path) as reader:
                check_relations(reader, held)
        materialize_by_and_by(writer)
        found = stored_sets(path)
        with reading(path) as reader:
            check_relations(reader, held)
        with writer.transaction():
            writer._written = None  # too many documents
        materialize_by_and_by(writer)
        again = stored_sets(path)
        keys = {key for key, _ in found} & {key for key, _ in again}
        assert {place: docids for place, docids in found.items() if place[0] in keys} == {
            place: docids for place, docids in again.items() if place[0] in keys}
        writer.close()


def has_leaves(connection: sqlite3.Connection) -> bool:
    """Are groups of some documents stored?"""
    table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'materialized_leaves'").fetchone()
    return table is not None and connection.execute("SELECT 1 FROM materialized_leaves LIMIT 1").fetchone() is not None


def test_sets_are_of_use_as_they_are_made_whatever_was_written_before(writer: IndexWriter, tmp_path: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Too much for readers to bring sets up to date, while groups were gathered."""
    materialize_everything(monkeypatch)
    monkeypatch.setattr(materialized, "_COMMIT_S", 1e-6)
    monkeypatch.setattr("svcd.index.read_transaction.MOST_WRITTEN", 1)
    path = tmp_path / "index.sqlite"
    with writer.transaction():
        writer.write([change(docid, {"f": ["apple", "word"]}) for docid in range(40)])
    monkeypatch.setattr(materialized, "_ROWS_AT_ONCE", 10)
    with closing(sqlite3.connect(path)) as connection:
        writer.materialize_postings(lambda: has_leaves(connection))
        assert has_leaves(connection)
    with writer.transaction():
        writer.write([change(docid, {"f": ["word"]}, {"f": ["apple", "word"]}) for docid in range(3)])
    writer.materialize_postings(lambda: bool(stored_sets(path)))
    assert stored_sets(path) and writer.needs_materialized_postings()
    with reading(path) as reader:
        assert materialized.generation_of(reader.transaction.connection) == reader.generation
    writer.materialize_postings(lambda: False)
    found = stored_sets(path)
    assert (found["w:apple", 0], found["w:word", 0]) == ({*range(3, 40)}, {*range(40)})


@pytest.mark.parametrize("writes_between", [False, True])
def test_an_interrupted_build_goes_on_where_it_was(
    writer: IndexWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes_between: bool
) -> None:
    materialize_everything(monkeypatch)
    monkeypatch.setattr(materialized, "_COMMIT_S", 1e-6)
    monkeypatch.setattr(materialized_choice, "_FAMILIES", 1_000)
    path = tmp_path / "index.sqlite"
    with writer.transaction():
        writer.write([change(0, {"f": ["apple", "word"]}), change(1, {"f": ["apple"]})])
    if not writes_between:
        writer.materialize_postings(lambda: ("w:apple", 0) in stored_sets(path))
        assert writer.needs_materialized_postings()
        assert {key for key, _ in stored_sets(path)} & {"w:apple", "w:word"} == {"w:apple"}
    else:
        with closing(sqlite3.connect(path)) as connection:
            writer.materialize_postings(
                lambda: connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'materialized_leaves'").fetchone() is not None)
        assert writer.needs_materialized_postings() and not stored_sets(path)
    with writer.transaction():
        writer.write([change(1, {"f": ["word"]}, {"f": ["apple"]})])
    with reading(path) as reader:  # what is made is used, and brought up to date
        assert docids(reader.terms.word_docids("apple")) == {0} and docids(reader.terms.word_docids("word")) == {0, 1}
        assert docids(reader.terms.pair_docids(1, "apple", "word")) == {0}
    writer.materialize_postings(lambda: False)
    assert not writer.needs_materialized_postings()
    found = stored_sets(path)
    assert (found["w:apple", 0], found["w:word", 0]) == ({0}, {0, 1})


def test_pairs_are_of_use_before_the_sets_of_terms_are_made(writer: IndexWriter, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    materialize_everything(monkeypatch)
    monkeypatch.setattr(materialized, "_COMMIT_S", 1e-6)
    path = tmp_path / "index.sqlite"
    with writer.transaction():
        writer.write([change(docid, {"f": ["apple", "word"]}) for docid in range(300)])
        writer.write([change(docid, {"f": ["word", "apple"]}) for docid in range(300, 400)])
    assert not writer.materialize_postings(lambda: ("a:apple word", 0) in stored_sets(path))
    assert {key for key, _ in stored_sets(path) if key[0] == "w"} == set()
    with reading(path) as reader:
        assert not MaterializedReader(reader.transaction, reader.generation).has_adjacent("apple", "word", False)  # not all are there
    assert not writer.materialize_postings(lambda: writer.meta("materialized_pairs") is not None)
    found = stored_sets(path)
    assert (found["a:apple word", 0], found["a:word apple", 0]) == ({*range(300)}, {*range(300, 400)})
    with reading(path) as reader:
        assert MaterializedReader(reader.transaction, reader.generation).has_adjacent("apple", "word", False)
        assert docids(reader.terms.pair_docids(1, "word", "apple")) == {*range(300, 400)}
    writer.materialize_postings(lambda: False)
    assert stored_sets(path)["w:apple", 0] == {*range(400)}


def test_sets_once_made_the_postings_are_in_one_segment(writer: IndexWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging goes on after an interruption, and finds what was merged."""
    materialize_everything(monkeypatch)
    monkeypatch.setattr(materialized, "_COMMIT_S", 1e-6)
    monkeypatch.setattr(fts, "_PAGES_AT_ONCE", 1)
    path = tmp_path / "index.sqlite"
    for start in range(0, 3_000, 1_000):
        with writer.transaction():
            writer.write([change(docid, {"f": [f"word{docid}", "word"]}) for docid in range(start, start + 1_000)])
    with closing(sqlite3.connect(path)) as connection:
        def segments() -> list[int]:
            return [connection.execute(f"SELECT count(DISTINCT segid) FROM {table}_idx").fetchone()[0]
                    for table in fts.TABLES]

        assert min(segments()) > 1
        writer.materialize_postings(lambda: ("w:word", 0) in stored_sets(path) and not has_leaves(connection))
        assert min(segments()) > 1
        materialize_by_and_by(writer)
        assert segments() == [1, 1]
    with reading(path) as reader:
        assert docids(reader.terms.word_docids("word1234")) == {1234}
        assert docids(reader.terms.word_docids("word")) == {*range(3_000)}


def test_clearing_an_index_ends_a_build(writer: IndexWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    materialize_everything(monkeypatch)
    path = tmp_path / "index.sqlite"
    with writer.transaction():
        writer.write([change(0, {"f": ["apple", "word"]})])
    groups = "SELECT 1 FROM sqlite_master WHERE name = 'materialized_leaves'"
    monkeypatch.setattr(materialized, "_COMMIT_S", 1e-6)
    with closing(sqlite3.connect(path)) as connection:
        writer.materialize_postings(lambda: connection.execute(groups).fetchone() is not None)
        assert connection.execute(groups).fetchone()
        with writer.transaction():
            writer.clear()
        assert not connection.execute(groups).fetchone()
    with writer.transaction():
        writer.write([change(0, {"f": ["word"]})])
    writer.materialize_postings(lambda: False)
    assert {key for key, _ in stored_sets(path) if key[:2] == "w:"} == {"w:word"}


class RecordingCache(Cache):
    """A cache that remembers the keys of all values that were put into it."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.keys: set[Any] = set()

    def put(self, key: Any, value: Any) -> None:
        self.keys.add(key)
        super().put(key, value)


def test_few_deltas_are_cached_and_counted_with_all_that_they_hold(writer: IndexWriter, tmp_path: Path) -> None:
    """After each write other sets are asked for: some were last asked for a write ago, some long before."""
    cache = RecordingCache(1 << 24)
    for step in range(30):
        with writer.transaction():
            writer.write([change(docid, {"f": [f"word{step}", f"word{docid}"]}) for docid in range(20)])
        with reading(tmp_path / "index.sqlite", cache) as reader:
            for number in range(step % 7, 20, 1 + step % 5):
                held = DocIds([number] if number != step else range(20))
                assert reader.terms.word_docids(f"word{number}") == held
    entries = [cache.peek(key) for key in cache.keys]
    deltas = [entry.delta for entry in entries if getattr(entry, "delta", None)]
    assert 1 <= len(deltas) <= 2
    assert cache.bytes > sum(map(sys.getsizeof, deltas))


def test_a_delta_knows_about_how_much_it_holds(writer: IndexWriter, tmp_path: Path) -> None:
    with reading(tmp_path / "index.sqlite") as reader:
        check_size_of_delta(reader)


def check_size_of_delta(reader: IndexReader) -> None:
    dice = random.Random(1)
    letters = [f"{dice.randrange(10**6):x}" for _ in range(20_000)]
    tracemalloc.start()
    rows = {docid: {0: " ".join([str(docid), *dice.choices(letters, k=dice.randrange(200))])} for docid in range(300)}
    texts = {docid: json.dumps({"0": [docid, *dice.choices(letters, k=20)]}) for docid in rows}
    delta = Delta(DocIds(range(300)), rows, None, texts)
    assert list(delta.term_docids("7")) == [7] and reader.values.written_values(delta, 0).by_key[value_key(7.0)] == [7]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / 3 < sys.getsizeof(delta) < held * 3


def test_a_reader_that_began_earlier_keeps_its_state(writer: IndexWriter, tmp_path: Path) -> None:
    cache = Cache(1 << 20)
    with reading(tmp_path / "index.sqlite", cache) as early:
        with writer.transaction():
            writer.write([change(0, {"f": ["late"]})])
        with reading(tmp_path / "index.sqlite", cache) as later:
            assert docids(later.terms.word_docids("late")) == {0}
            assert not early.terms.word_docids("late")
            assert docids(later.terms.word_docids("late")) == {0}


@settings(max_examples=15, deadline=None)
@given(HISTORY)
def test_incremental_equals_rebuilt(history: list[list[tuple[int, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tables = []
        for name in ("history", "at once"):
            path = Path(folder) / f"{name}.sqlite"
            writer = IndexWriter(path)
            fill_columns(writer)
            if name == "history":
                held = play(writer, history)
            else:
                play(writer, [list(held.items())])
            writer.close()
            with closing(sqlite3.connect(path)) as connection:
                tables.append(everything(connection))
        assert tables[0] == tables[1]


def everything(connection: sqlite3.Connection) -> list[Any]:
    """All that an index says, in an order that does not depend on how it came to be."""
    connection.execute("CREATE VIRTUAL TABLE temp.occurrences USING fts5vocab(main, terms, 'instance')")
    connection.execute("CREATE VIRTUAL TABLE temp.spots USING fts5vocab(main, term_positions, 'instance')")
    queries = ("SELECT docid, document_id, json FROM documents ORDER BY docid",
               "SELECT docid, words FROM forward_index ORDER BY docid",
               "SELECT term, doc, col, offset FROM occurrences ORDER BY term, doc, col, offset",
               "SELECT term, doc FROM spots ORDER BY term, doc",
               "SELECT fid, name, fts_column, documents FROM fields ORDER BY fid")
    counts = {(column, place): count
              for column, block, blob in connection.execute("SELECT fts_column, block, counts FROM field_word_counts")
              for place, count in enumerate(blob) if count}
    return [connection.execute(query).fetchall() for query in queries] + [counts]


def test_an_undone_savepoint_leaves_nothing(writer: IndexWriter, tmp_path: Path) -> None:
    with writer.transaction():
        writer.write([change(0, {"f": ["kept"]})])
        with pytest.raises(RuntimeError), writer.savepoint():
            writer.write([change(1, {"g": ["gone"]})])
            raise RuntimeError
        writer.write([change(2, {"h": ["kept"]})])
    with reading(tmp_path / "index.sqlite") as reader:
        assert docids(reader.terms.word_docids("kept")) == {0, 2}
        assert not reader.terms.word_docids("gone")
        assert reader.fields() == ["f", "h"]


def test_a_failed_transaction_leaves_nothing(writer: IndexWriter, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), writer.transaction():
        writer.write([change(1, {"g": ["gone"]})])
        raise RuntimeError
    assert (writer.number_of_documents, writer.field_numbers) == (0, {})
    with reading(tmp_path / "index.sqlite") as reader:
        assert not reader.all_docids()


def test_a_reader_sees_one_state(writer: IndexWriter, tmp_path: Path) -> None:
    with reading(tmp_path / "index.sqlite") as reader:
        with writer.transaction():
            writer.write([change(0, {"f": ["late"]})])
        assert not reader.terms.word_docids("late")
    with reading(tmp_path / "index.sqlite") as reader:
        assert docids(reader.terms.word_docids("late")) == {0}


def test_a_read_ends_with_its_time_and_leaves_nothing_half_read(writer: IndexWriter, tmp_path: Path) -> None:
    with writer.transaction():
        writer.write([change(docid, {"f0": ["common"]}) for docid in range(2000)])
    with reading(tmp_path / "index.sqlite") as reader:
        with pytest.raises(TimeoutError), reader.limited(lambda: True):
            reader.terms.word_docids("common")
        with reader.limited(lambda: False):
            assert len(reader.terms.word_docids("common")) == 2000
        with pytest.raises(sqlite3.OperationalError), reader.limited(lambda: False):
            reader.transaction.connection.execute("SELECT nothing")
        assert len(reader.documents(range(2000))) == 2000  # beyond the block, nothing is limited


def test_a_reader_does_not_hold_a_checkpoint_up(writer: IndexWriter, tmp_path: Path) -> None:
    with reading(tmp_path / "index.sqlite") as reader:
        list(reader.docids_page(0, 1))
        with writer.transaction():
            writer.write([change(0, {"f": ["word"]})])
        begin = time.monotonic()
        writer.checkpoint()
        assert is_within(time.monotonic() - begin, 1)


def test_a_log_that_grew_long_is_truncated_once_its_readers_end(writer: IndexWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that overlap all the time would let it grow without end."""
    path = tmp_path / "index.sqlite"
    with ExitStack() as stack:
        list(stack.enter_context(reading(path)).docids_page(0, 1))
        with writer.transaction():
            writer.write([change(0, {"f": ["word"]})])
        writer.checkpoint()
        assert writer.log_bytes() > 0
        monkeypatch.setattr(index_writer, "LONG_LOG", writer.log_bytes() - 1)
        monkeypatch.setattr(index_writer, "LONG_LOG_PATIENCE_MS", 20_000)
        waiting = threading.Thread(target=writer.checkpoint)
        waiting.start()
        list(stack.enter_context(reading(path)).docids_page(0, 1))  # one that begins meanwhile
    waiting.join()
    assert writer.log_bytes() == 0
    writer.path.with_name(f"{writer.path.name}-wal").unlink(missing_ok=True)
    assert writer.log_bytes() == 0, "a disk that fails may leave none"


def test_a_reader_does_not_touch_the_log(writer: IndexWriter, tmp_path: Path) -> None:
    """One connection alone checkpoints a file: the last reader's close must not."""
    path = tmp_path / "index.sqlite"
    with writer.transaction():
        writer.write([change(0, {"f": ["word"]})])
    log = path.with_name(path.name + "-wal")
    before = log.stat().st_size
    # The writer dies without a word, as a killed process does: its descriptors go, its log stays.
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(path.read_bytes())
    copy.with_name("copy.sqlite-wal").write_bytes(log.read_bytes())
    with reading(copy) as reader:
        assert docids(reader.terms.word_docids("word")) == {0}
    assert copy.with_name("copy.sqlite-wal").stat().st_size == before > 0


def test_a_reader_cannot_write(writer: IndexWriter, tmp_path: Path) -> None:
    with reading(tmp_path / "index.sqlite") as reader, pytest.raises(sqlite3.OperationalError):
        reader.transaction.connection.execute("DELETE FROM documents")


def test_words_beyond_the_counted_ones_count_in_no_set(writer: IndexWriter, tmp_path: Path) -> None:
    with writer.transaction():
        writer.write([change(0, {"f": ["w"] * 30}), change(1, {"f": ["w"] * 31})])
    with reading(tmp_path / "index.sqlite") as reader:
        assert docids(reader.terms.field_count_docids("f", 30)) == {0}
        assert not reader.terms.field_count_docids("f", 31)
