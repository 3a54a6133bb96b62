"""What must hold of the delta, by which cached values are brought up to date:

1. Extended by a later delta it is equal to the delta of all these documents at once, however much of both was decoded before.
2. Whatever a reader asked for after earlier writes, its answers are those of a reader without a cache.
3. Between two writes the documents of the later one alone are read.
4. A delta grows up to its limit; one that takes more than half of the cache is not used at all.
5. Of threads that need the same delta at once, one loads it.
6. A transaction records all terms that some document held before it and none holds after it, and no term that one holds.
"""
from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.docids import DocIds
from svcd.index import read_transaction
from svcd.index.read_transaction import Cache, Delta, ReadTransaction
from svcd.index.reader import IndexReader
from svcd.index.writer import IndexWriter
from tests.index.conftest import change, reading

WORDS = ["a", "ab", "abc", "b", "ba", "é", "zz"]
Documents = dict[int, dict[str, list[str]]]
ROW = st.lists(st.sampled_from([*WORDS, ""]), min_size=1, max_size=6)
WRITES = st.lists(st.dictionaries(st.integers(0, 5), st.none() | st.dictionaries(st.integers(0, 1), ROW, max_size=2), max_size=4),
                  min_size=1, max_size=5)
REMOVED = st.lists(st.none() | st.frozensets(st.sampled_from(WORDS)), min_size=5, max_size=5)


def delta_of(documents: dict[int, Any], removed: frozenset[str] | None) -> Delta:
    held = {docid: {column: " ".join(row) for column, row in rows.items()} for docid, rows in documents.items() if rows}
    return Delta(DocIds(documents), held, removed, {docid: f'{{"{docid}":[[1]]}}' for docid in held})


def answers(delta: Delta) -> list[Any]:
    """What a delta says about every word, alone and beside each other; the last one is its size."""
    found: list[Any] = [list(delta.written), delta.terms, delta.removed_terms, delta.value_texts]
    found += [[list(delta.count_docids(column, count)) for column in (0, 1)] for count in range(7)]
    for word in WORDS:
        for is_prefix in (False, True):
            found += [list(delta.term_docids(word, is_prefix, column)) for column in (None, 0, 1)]
            found += [list(delta.position_docids(word, is_prefix, bucket)) for bucket in range(6)]
            found += [list(delta.adjacent_docids(word, right, is_prefix)) for right in WORDS]
        found += [delta.updated_words(["a", "b", "é"], word), list(delta.any_term_docids(["a", word]))]
    return [*found, sys.getsizeof(delta)]


@given(WRITES, REMOVED, st.lists(st.integers(0, 2), min_size=5, max_size=5))
def test_an_extended_delta_is_that_of_all_documents_at_once(
        writes: list[dict[int, Any]], removed: list[frozenset[str] | None], decoded: list[int]) -> None:
    delta, documents, gone = delta_of(writes[0], removed[0]), dict(writes[0]), removed[0]
    for write, of_write, how_much in zip(writes[1:], removed[1:], decoded):
        if how_much == 1:
            delta.term_docids("a")
        earlier, before = delta, answers(delta) if how_much == 2 else []
        delta = earlier.extended(delta_of(write, of_write))
        if before:  # others still use the earlier one, which shares most of its memory now
            *after, size = answers(earlier)
            assert after == before[:-1] and size <= before[-1]
        documents.update(write)
        gone = None if gone is None or of_write is None else gone | of_write
    assert answers(delta) == answers(delta_of(documents, gone))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([3, 12, 1000]))
def test_answers_are_those_of_a_reader_without_a_cache(seed: int, most: int) -> None:
    """Some readers stay open while later ones work."""
    dice, cache = random.Random(seed), Cache(1 << 20)
    held: Documents = {}
    with ExitStack() as closing_all, patch.object(read_transaction, "MOST_WRITTEN", most):
        path = Path(closing_all.enter_context(tempfile.TemporaryDirectory())) / "index.sqlite"
        writer = IndexWriter(path)
        closing_all.callback(writer.close)
        readers: list[tuple[IndexReader, Documents]] = []
        for _ in range(40):
            newest = {docid: some_words(dice) if dice.random() < 0.8 else None
                      for docid in dice.sample(range(20), dice.randrange(1, 4))}
            with writer.transaction():
                writer.write([change(docid, {"f": words} if words else None, held.get(docid))
                              for docid, words in newest.items() if words or docid in held])
            held = {**{docid: words for docid, words in held.items() if docid not in newest},
                    **{docid: {"f": words} for docid, words in newest.items() if words}}
            with reading(path, cache) as reader:
                check(reader, held, dice)
                for earlier, held_then in readers[-2:]:
                    check(earlier, held_then, dice)
            if dice.random() < 0.2:
                readers.append((closing_all.enter_context(reading(path, cache)), held))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 30))
def test_the_terms_that_a_transaction_removed(seed: int) -> None:
    """Each transaction has several parts, some of them undone, which write some documents more than once."""
    dice = random.Random(seed)
    held: Documents = {}
    with ExitStack() as closing_all:
        path = Path(closing_all.enter_context(tempfile.TemporaryDirectory())) / "index.sqlite"
        writer = IndexWriter(path)
        closing_all.callback(writer.close)
        for _ in range(20):
            before = terms_of(held)
            with writer.transaction():
                for _ in range(dice.randrange(1, 4)):
                    with suppress(ZeroDivisionError), writer.savepoint():
                        part = {docid: {"f": some_words(dice)} if dice.random() < 0.7 else None
                                for docid in dice.sample(range(8), dice.randrange(1, 4))}
                        writer.write([change(docid, words, held.get(docid)) for docid, words in part.items() if words or docid in held])
                        if dice.random() < 0.3:
                            raise ZeroDivisionError
                        held = {docid: words for docid, words in {**held, **part}.items() if words}
            with reading(path, Cache(0)) as reader:
                (removed,) = reader.transaction.connection.execute(
                    "SELECT removed_terms FROM changes ORDER BY generation DESC LIMIT 1").fetchone()
            gone = {*json.loads(removed)}
            assert gone >= before - terms_of(held) and not gone & terms_of(held)


def terms_of(held: Documents) -> set[str]:
    return {term for fields in held.values() for term in fields["f"] if term}


def some_words(dice: random.Random) -> list[str]:
    """The terms of a field by position, with gaps between words."""
    return [f"w{dice.randrange(12)}", *(f"w{dice.randrange(12)}" if dice.random() < 0.8 else "" for _ in range(dice.randrange(3))), "w0"]


def check(reader: IndexReader, held: Documents, dice: random.Random) -> None:
    """Ask for some of what searches ask for, and work it out from the documents."""
    rows = {docid: fields["f"] for docid, fields in held.items()}
    for kind in dice.choices(range(7), k=5):
        word = f"w{dice.randrange(12)}"
        if kind == 0:
            assert list(reader.terms.word_docids(word)) == sorted(docid for docid, row in rows.items() if word in row)
        elif kind == 1:
            assert list(reader.terms.word_position_docids(word, 1)) == sorted(
                docid for docid, row in rows.items() if row[1] == word)
        elif kind == 2:
            assert list(reader.terms.prefix_docids("w1")) == sorted(
                docid for docid, row in rows.items() if any(each.startswith("w1") for each in row))
        elif kind == 3:
            assert list(reader.vocabulary.words_with_prefix("w")) == sorted({each for row in rows.values() for each in row if each})
        elif kind == 4:
            assert list(reader.terms.pair_docids(1, word, "w0")) == sorted(
                docid for docid, row in rows.items() if (word, "w0") in zip(row, row[1:]))
        elif kind == 5:
            assert list(reader.terms.field_count_docids("f", 2)) == sorted(
                docid for docid, row in rows.items() if sum(map(bool, row)) == 2)
        else:
            assert reader.vocabulary.has_word(word) == any(word in row for row in rows.values())


class Loads:
    """spans: the generations of each delta that was loaded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spans: list[int] = []
        load = ReadTransaction._load_delta

        def recorded(transaction: ReadTransaction, since: int) -> Delta | None:
            delta = load(transaction, since)
            self.spans += [transaction.generation - since] if delta else []
            return delta

        monkeypatch.setattr(ReadTransaction, "_load_delta", recorded)


def writes(writer: IndexWriter, path: Path, cache: Cache, count: int, words: int) -> None:
    """Write a document at a time, and search after each, also for a word that was searched so many writes ago."""
    for step in range(count):
        with writer.transaction():
            writer.write([change(step, {"f": ["word"]})])
        with reading(path, cache) as reader:
            assert len(reader.terms.word_docids("word")) == step + 1
            assert not reader.terms.word_docids(f"word{step % words}")


def test_between_two_writes_the_documents_of_the_later_one_are_read(writer: IndexWriter, tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads(monkeypatch)
    writes(writer, tmp_path / "index.sqlite", Cache(1 << 20), 10, 5)
    assert loads.spans == [1] * 9


@pytest.mark.parametrize(("words", "longest"), [(7, 7), (8, 1)])
def test_a_delta_grows_up_to_its_limit(writer: IndexWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       words: int, longest: int) -> None:
    """Of more than seven tenths of the limit none is loaded, so that the next writes extend it."""
    monkeypatch.setattr(read_transaction, "MOST_WRITTEN", 10)
    loads = Loads(monkeypatch)
    writes(writer, tmp_path / "index.sqlite", Cache(1 << 20), 40, words)
    assert max(loads.spans) == longest
    assert sum(span > 1 for span in loads.spans) <= 40 / 3


class CountedLock:
    """A lock that says when so many threads have asked for it."""

    def __init__(self, threads: int) -> None:
        self._lock = threading.Lock()
        self._asked = threading.Semaphore(0)
        self._threads = threads

    def __enter__(self) -> None:
        self._asked.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait_for_all(self) -> bool:
        return all(self._asked.acquire(timeout=10) for _ in range(self._threads))


def test_of_threads_that_need_the_same_delta_one_loads_it(writer: IndexWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, cache = 4, Cache(1 << 20)
    writes(writer, tmp_path / "index.sqlite", cache, 5, 5)
    monkeypatch.setattr(cache, "loading_delta", lock := CountedLock(threads))
    loads = Loads(monkeypatch)
    load = ReadTransaction._load_delta  # that records

    def load_when_all_need_it(transaction: ReadTransaction, since: int) -> Delta | None:
        assert lock.wait_for_all()
        return load(transaction, since)

    def search() -> int:
        with reading(tmp_path / "index.sqlite", cache) as reader:
            return len(reader.terms.word_docids("word"))

    with writer.transaction():
        writer.write([change(5, {"f": ["word"]})])
    monkeypatch.setattr(ReadTransaction, "_load_delta", load_when_all_need_it)
    with ThreadPoolExecutor(threads) as pool:
        assert [each.result() for each in [pool.submit(search) for _ in range(threads)]] == [6] * threads
    assert loads.spans == [1]


def test_a_delta_that_takes_half_of_the_cache_is_not_used(writer: IndexWriter, tmp_path: Path) -> None:
    cache = Cache(20_000)
    for number in range(2):
        with writer.transaction():
            writer.write([change(number, {"f": ["word", *(f"w{n}" for n in range(100 * number))]})])
        with reading(tmp_path / "index.sqlite", cache) as reader:
            assert len(reader.terms.word_docids("word")) == number + 1
            if number:
                assert reader.transaction.delta_since(1) is None
