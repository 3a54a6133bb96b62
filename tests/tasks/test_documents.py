"""What must hold of the documents of a batch on their way into the index:

1. A portion is written some documents at a time, by ascending docid, and each document once.
2. Names within documents get their numbers in the order in which the documents came.
3. What is written some at a time is what would be written at once.
"""
from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svcd.index.writer import IndexWriter
from svcd.tasks import documents
from svcd.tasks.documents import DocumentWriter

SETTINGS = {"filterableAttributes": ["*"]}
TABLES = ("fields", "documents", "forward_index", "field_word_counts", "value_postings", "document_values", "value_groups")


def put(path: Path, *batches: list[dict[str, Any]]) -> list[list[int]]:
    """The docids of each write, one transaction a batch."""
    writer, writes = IndexWriter(path), list[list[int]]()
    write = writer.write
    writer.write = lambda changes, encoded: (  # type: ignore
        writes.append([change.docid for change in changes]), write(changes, encoded))
    for batch in batches:
        with writer.transaction():
            writer.settings = SETTINGS
            portion = DocumentWriter(writer, 1 << 20)
            with portion.task(is_large=True):
                for part in (batch[:5], batch[5:]):
                    portion.put([(str(document["id"]), document) for document in part], 1, is_update=False,
                                may_create=True)
    writer.close()
    return [docids for docids in writes if docids]


def tables(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES]


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_WRITTEN_AT_ONCE", 3)


def test_a_portion_is_written_some_documents_at_a_time(tmp_path: Path) -> None:
    first = [{"id": number, "t": f"word{number}"} for number in range(7)]
    again = [{"id": number, "t": f"other{number}"} for number in (6, 0, 9, 3, 5)]
    assert put(tmp_path / "i.sqlite", first, again) == [[0, 1, 2], [3, 4, 5], [6], [0, 3, 5], [6, 7]]


def test_names_are_numbered_in_the_order_of_the_documents(tmp_path: Path) -> None:
    path = tmp_path / "i.sqlite"
    fresh = [{"id": number, "o": {f"f{number}": 1}} for number in range(2, 7)]
    put(path, [{"id": 1}], [*fresh, {"id": 1, "o": {"older": 1}}])
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM fields ORDER BY fid").fetchall()
    assert [name for (name,) in names] == ["id", "o", *(f"o.f{number}" for number in range(2, 7)), "o.older"]


def test_parts_leave_what_a_whole_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [[{"id": number, "t": f"word{number % 4} x", "o": {f"m{number % 3}": number}} for number in range(20)],
               [{"id": number, "t": "word1", "n": [number]} for number in (19, 3, 25, 7, 1)]]
    put(tmp_path / "parts.sqlite", *batches)
    monkeypatch.setattr(documents, "_WRITTEN_AT_ONCE", 1000)
    put(tmp_path / "whole.sqlite", *batches)
    assert tables(tmp_path / "parts.sqlite") == tables(tmp_path / "whole.sqlite")
