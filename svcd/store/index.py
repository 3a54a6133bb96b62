"""One index as a search sees it: documents, fields, values and words, in one read transaction.

Knows the tables of an index file; refuses to know what a query is or how hits are ranked. With the relations
of words an engine.reader.Reader by shape.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from svcd.bitsets import from_docids, to_docids
from svcd.store.cache import Cache
from svcd.store.relations import DocIds, Relations, marks, parts

Value = float | str | None


class IndexReader(Relations):
    """The committed state of one index when the transaction of `connection` began."""

    def __init__(self, connection: sqlite3.Connection, uuid: str, cache: Cache,
                 resolve_settings: Callable[[Mapping[str, Any]], Mapping[str, Any]],
                 sort_value: Callable[[Mapping[str, Any], str, bool], Value] = lambda *_: None) -> None:
        # Not all: the outcome of the newest batch may be long.
        self._meta: dict[str, Any] = dict(connection.execute(
            "SELECT key, value FROM meta WHERE key IN ('generation', 'docids', 'settings', 'primary_key', 'document_bytes')"))
        super().__init__(connection, uuid, cache, self._meta.get("generation", 0))
        self._sort_value = sort_value
        self._all = int.from_bytes(self._meta.get("docids") or b"", "little")
        # One object as long as they do not change, whatever else is written: the engine keeps what follows from it.
        self.settings = cache.get(("settings", self._meta.get("settings")), lambda: resolve_settings(self.stored_settings))
        self.primary_key: str | None = self._meta.get("primary_key")

    @property
    def stored_settings(self) -> dict[str, Any]:
        """The settings that were set."""
        return json.loads(self._meta.get("settings") or "{}")

    # Documents

    @property
    def number_of_documents(self) -> int:
        """How many documents the index holds."""
        return self._all.bit_count()

    def all_docids(self) -> DocIds:
        """Every document."""
        return self._all

    def raw_document_size(self) -> int:
        """The bytes of all stored documents' texts."""
        return int(self._meta.get("document_bytes", 0))

    def internal_database_sizes(self) -> dict[str, int]:
        """Table or index -> the bytes of its pages; empty where SQLite was built without `dbstat`."""
        try:
            return dict(self._connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY name"))
        except sqlite3.OperationalError:
            return {}

    def document(self, docid: int) -> str:
        """The JSON text of a document; KeyError when there is none."""
        row = self._connection.execute("SELECT json FROM documents WHERE docid = ?", (docid,)).fetchone()
        if row is None:
            raise KeyError(docid)
        return row[0]

    def documents(self, docids: Sequence[int]) -> list[str]:
        """The JSON texts of documents, in the order asked."""
        found: dict[int, str] = {}
        for part in parts(docids):
            found.update(self._connection.execute(
                f"SELECT docid, json FROM documents WHERE docid IN ({marks(part)})", part))
        return [found[docid] for docid in docids]

    def docid_of(self, document_id: str) -> int | None:
        """The docid of a document's identifier, or None."""
        row = self._connection.execute("SELECT docid FROM documents WHERE document_id = ?", (document_id,)).fetchone()
        return row[0] if row else None

    def docids_page(self, offset: int, limit: int) -> list[int]:
        """A page of docids, ascending."""
        if limit <= 0 or offset >= self.number_of_documents:
            return []
        return [row[0] for row in self._connection.execute(
            "SELECT docid FROM documents ORDER BY docid LIMIT ? OFFSET ?", (min(limit, 1 << 62), min(offset, 1 << 62)))]

    # Fields

    def _fields(self) -> list[tuple[str, int]]:
        return self._kept(("fields",), lambda: self._connection.execute(
            "SELECT name, documents FROM fields ORDER BY fid").fetchall())

    def fields(self) -> list[str]:
        """The names of all known fields, by field number."""
        return [name for name, _ in self._fields()]

    def field_distribution(self) -> dict[str, int]:
        """Top-level field -> how many documents have it, by name."""
        return {name: count for name, count in sorted(self._fields()) if count}

    # Values

    def sort_buckets(self, field: str, ascending: bool, candidates: DocIds) -> Iterator[tuple[Value, DocIds]]:
        """The candidates by their value of a field: numbers, then texts, then those without; each in the order asked."""
        values = self._kept(("sort", field, ascending), lambda: self._read_sort_values(field, ascending))
        grouped: dict[Value, list[int]] = {}
        for docid in to_docids(candidates):
            grouped.setdefault(values.get(docid), []).append(docid)
        for kind in (float, str):
            for value in sorted((each for each in grouped if isinstance(each, kind)), reverse=not ascending):
                yield value, from_docids(grouped[value])
        if None in grouped:
            yield None, from_docids(grouped[None])

    def _read_sort_values(self, field: str, ascending: bool) -> dict[int, Value]:
        """docid -> what it is sorted by, for the documents that have it: all of them are read, once per change."""
        found = {}
        for docid, text in self._connection.execute("SELECT docid, json FROM documents"):
            value = self._sort_value(json.loads(text), field, ascending)
            if value is not None:
                found[docid] = value
        return found
