"""Word counts for BM25 (docs/storage.md#word-counts).

What must hold:
1. after any writes the tables equal those of an index that is built anew,
   and lengths in the cache are those of the tables;
2. without a setting that asks for BM25 they are empty; a change of the settings counts again;
3. an index of format 2 is upgraded in place.
"""
from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from svcd.index import schema, word_counts
from svcd.index.read_transaction import Cache
from svcd.index.writer import IndexWriter
from tests.index.conftest import change, reading

WORDS = "run running runs wing wings flow flows heat the of layer".split()
ON = {"defaultMatchingStrategy": "bm25", "stemming": ["eng"]}


def _contents(path: Path) -> tuple[list[Any], list[Any]]:
    with closing(sqlite3.connect(path)) as connection:
        return (connection.execute("SELECT * FROM word_frequencies ORDER BY 1, 2").fetchall(),
                connection.execute("SELECT * FROM document_lengths ORDER BY 1").fetchall())


def _lengths(path: Path, cache: Cache) -> tuple[bytes, float]:
    with reading(path, cache) as reader:
        assert reader.word_counts is not None
        return reader.word_counts.lengths().rstrip(b"\0"), reader.word_counts.average_length()


def _write(writer: IndexWriter, settings: dict[str, Any] | None = None, changes: Any = ()) -> None:
    with writer.transaction():
        if settings is not None:
            writer.settings = settings
            writer.match_word_counts()
        writer.write(changes)


@pytest.mark.parametrize("seed", range(6))
def test_incremental_counts_equal_counts_built_anew(seed: int, tmp_path: Path, writer: IndexWriter) -> None:
    chosen = random.Random(seed)
    held: dict[int, dict[str, list[str]]] = {}
    cache = Cache(1 << 20)
    _write(writer, ON)
    with patch.object(word_counts, "_MOST_GATHERED", chosen.choice((5, 100, 10_000))):
        for _ in range(chosen.randint(1, 8)):
            changes = []
            # Docids of several blocks, and gaps.
            for docid in sorted(chosen.sample([*range(12), 4095, 4096, 65_535, 65_536, 70_000], chosen.randint(1, 6))):
                before = held.pop(docid, None)
                if before is None or chosen.random() < 0.7:
                    held[docid] = {field: chosen.choices(WORDS, k=chosen.randint(1, 12)) for field in ("title", "text")}
                changes.append(change(docid, held.get(docid), before))
            _write(writer, changes=changes)
            # What the cache keeps of the lengths follows the writes.
            assert _lengths(writer.path, cache) == _lengths(writer.path, Cache(1 << 20)), seed
    with closing(IndexWriter(tmp_path / "other.sqlite")) as other:
        _write(other, ON, [change(docid, fields) for docid, fields in sorted(held.items())])
        _write(other)
    writer.checkpoint()
    assert _contents(writer.path) == _contents(tmp_path / "other.sqlite"), seed


def test_counts_are_stored_only_where_a_setting_asks_for_bm25(writer: IndexWriter) -> None:
    documents = [change(docid, {"title": ["running", "wing"]}) for docid in range(3)]
    _write(writer, {"stemming": ["eng"]}, documents)
    assert _contents(writer.path) == ([], [])
    _write(writer, {**ON})
    assert [row[0] for row in _contents(writer.path)[0]] == ["run", "wing"]
    _write(writer, {"bm25": {"k1": 1.2}})
    assert [row[0] for row in _contents(writer.path)[0]] == ["running", "wing"]
    _write(writer, {"rankingRules": ["words", "bm25"], "bm25": {"weights": {"title": 2}}})
    assert _contents(writer.path)[0][0][3] == bytes([8, 8, 8])
    with reading(writer.path) as reader:
        assert reader.word_counts is not None and reader.word_counts.average_length() == 4
    _write(writer, {})
    assert _contents(writer.path) == ([], [])
    with reading(writer.path) as reader:
        assert reader.word_counts is None


def test_a_rollback_discards_gathered_counts(writer: IndexWriter) -> None:
    _write(writer, ON, [change(1, {"title": ["wing"]})])
    known = _contents(writer.path)
    with pytest.raises(RuntimeError), writer.transaction():
        writer.write([change(2, {"title": ["flow"]})])
        raise RuntimeError
    _write(writer)
    assert _contents(writer.path) == known


def test_clearing_documents_and_words_clears_counts(writer: IndexWriter) -> None:
    _write(writer, ON, [change(1, {"title": ["wing"]})])
    with writer.transaction():
        writer.clear_words()
        writer.write_words([(1, {"title": ["flow"]})])
    assert [row[0] for row in _contents(writer.path)[0]] == ["flow"]
    with writer.transaction():
        writer.clear()
    assert _contents(writer.path) == ([], [])


def test_an_index_of_the_format_before_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    with closing(IndexWriter(path)) as writer:
        _write(writer, changes=[change(1, {"title": ["wing"]})])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE word_frequencies")
        connection.execute("DROP TABLE document_lengths")
        connection.execute("PRAGMA user_version = 2")
    with closing(IndexWriter(path)) as writer:
        assert writer.meta("generation") == 1
        _write(writer, ON)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.FORMAT,)
        assert connection.execute("SELECT term FROM word_frequencies").fetchall() == [("wing",)]
