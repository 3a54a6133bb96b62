"""One index as a search sees it: documents and fields, in one read transaction.

Knows the tables of an index file; refuses to know what a query is or how hits are ranked. With the relations
of words, the values of fields and the places of documents an engine.reader.Reader by shape.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from svcd.store.cache import Cache
from svcd.store.keeping import DocIds, marks, parts
from svcd.store.pairs import Pairs
from svcd.store.points import Points
from svcd.store.shapes import Shapes
from svcd.store.value_orders import ValueOrders


# Documents that are read one after another: so many bytes of them, and so many at most, together.
READ_BYTES = 32768
_MOST_READ = 500


class IndexReader(ValueOrders, Pairs, Points, Shapes):
    """The committed state of one index when the transaction of `connection` began."""

    def __init__(self, connection: sqlite3.Connection, uuid: str, cache: Cache,
                 resolve_settings: Callable[[Mapping[str, Any]], Mapping[str, Any]],
                 stored_form: Callable[[str], str] = str) -> None:
        # Not all: the outcome of the newest batch may be long.
        self._meta: dict[str, Any] = dict(connection.execute(
            "SELECT key, value FROM meta WHERE key IN ('generation', 'docids', 'settings', 'primary_key', 'document_bytes')"))
        super().__init__(connection, uuid, cache, self._meta.get("generation", 0), stored_form)
        self._all = int.from_bytes(self._meta.get("docids") or b"", "little")
        # One object as long as they do not change, whatever else is written: the engine keeps what follows from it.
        self.settings = cache.get(("settings", self._meta.get("settings")), lambda: resolve_settings(self.stored_settings))
        self.primary_key: str | None = self._meta.get("primary_key")

    @property
    def stored_settings(self) -> dict[str, Any]:
        """The settings that were set."""
        stored: dict[str, Any] = json.loads(self._meta.get("settings") or "{}")
        return stored

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
        text: str = row[0]
        return text

    def documents(self, docids: Sequence[int]) -> list[str]:
        """The JSON texts of documents, in the order asked."""
        found = dict(self._by_docid("SELECT docid, json FROM documents", docids))
        return [found[docid] for docid in docids]

    def documents_utf8(self, docids: Sequence[int]) -> list[bytes]:
        """As documents(), in UTF-8."""
        found = dict(self._by_docid("SELECT docid, CAST(json AS BLOB) FROM documents", docids))
        return [found[docid] for docid in docids]

    def each_document(self, docids: Iterable[int]) -> Iterator[str]:
        """The JSON texts of documents, in the order asked, some read at a time: as many as come to some READ_BYTES."""
        wanted, count = iter(docids), READ_BYTES // self.average_document_size()
        # By powers of two: each number is a statement of its own, which the connection keeps.
        while part := list(islice(wanted, 1 << min(count, _MOST_READ).bit_length() >> 1 or 1)):
            texts = self.documents(part)
            # The average may say little of those that are asked for.
            count = len(texts) * READ_BYTES // sum(map(len, texts))
            yield from texts

    def close(self) -> None:
        """To be called before the end of the transaction by who has read much and nothing twice: what its connection holds
        (270 kB) is of no use to others, and such readers come in crowds."""
        self._connection.close()

    def average_document_size(self) -> int:
        """Bytes of a stored document's text, at least 1."""
        return max(self.raw_document_size() // max(self.number_of_documents, 1), 1)

    def texts(self) -> Iterator[str]:
        """The JSON texts of all documents by docid, read as they are taken."""
        return (text for (text,) in self._connection.execute("SELECT json FROM documents ORDER BY docid"))

    def bytes_of_lines(self) -> int:
        """The bytes of all texts() in UTF-8, each with a newline."""
        (size,) = self._connection.execute("SELECT total(length(CAST(json AS BLOB)) + 1) FROM documents").fetchone()
        return int(size)

    def docid_of(self, document_id: str) -> int | None:
        """The docid of a document's identifier, or None."""
        row = self._connection.execute("SELECT docid FROM documents WHERE document_id = ?", (document_id,)).fetchone()
        return row[0] if row else None

    def identified_documents(self, document_ids: Sequence[str]) -> dict[str, str]:
        """Identifier -> the JSON text of the document, of those identifiers that some document has."""
        found: dict[str, str] = {}
        for part in parts(document_ids):
            found.update(self._connection.execute(
                f"SELECT document_id, json FROM documents WHERE document_id IN ({marks(part)})", part))
        return found

    def docids_page(self, offset: int, limit: int) -> Iterator[int]:
        """A page of docids, ascending, some read at a time."""
        left, where, skipped = min(limit, self.number_of_documents - offset), -1, offset
        while left > 0:
            page = self._connection.execute("SELECT docid FROM documents WHERE docid > ? ORDER BY docid LIMIT ? OFFSET ?",
                                            (where, min(left, _MOST_READ), skipped)).fetchall()
            yield from (docid for (docid,) in page)
            left, where, skipped = left - len(page), page[-1][0], 0

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
