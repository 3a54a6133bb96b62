from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from svcd.index.connections import open_reader
from svcd.index.read_transaction import Cache
from svcd.index.reader import IndexReader
from svcd.index.writer import DocumentChange, IndexWriter

Positions = Mapping[str, list[str]]


@contextmanager
def reading(path: Path, cache: Cache | None = None) -> Iterator[IndexReader]:
    connection = open_reader(path)
    connection.execute("BEGIN")
    yield IndexReader(connection, "index", cache or Cache(1 << 20))
    connection.close()


def change(docid: int, positions: Positions | None, before: Mapping[str, Any] | None = None) -> DocumentChange:
    """A document whose text is its own positions; None deletes it."""
    names = () if positions is None else tuple(positions)
    text = None if positions is None else json.dumps(dict(positions), separators=(",", ":"))
    return DocumentChange(docid, f"d{docid}", text, positions or {}, names, tuple(before or ()),
                  len(json.dumps(dict(before), separators=(",", ":"))) if before is not None else 0)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[IndexWriter]:
    writer = IndexWriter(tmp_path / "index.sqlite")
    yield writer
    writer.close()
