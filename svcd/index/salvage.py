"""Reads the data of an index file that cannot be derived, and skips damaged parts: settings, documents, vectors.

For svcd.tasks.rebuild. `lost` lists the unreadable parts, a sentence each. See docs/storage.md#damage.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from svcd.base import json_text
from svcd.base.docids import DocIds, from_bytes
from svcd.index.schema import INDEX_CHECKSUMS, row_checksum
from svcd.index.vector_reader import REGENERATED, USER_PROVIDED, EmbedderRow, row_id, stored_vectors
from svcd.index.vector_writer import StoredVectors
from svcd.index.writer import StoredDocument

# Values of the table meta that a rebuilt index takes over; all others follow from its documents.
META = ("settings", "primary_key", "generation", "batch_outcomes")
_DAMAGE = (sqlite3.DatabaseError, ValueError, TypeError, OverflowError)
_MOST_EMBEDDERS = 256
_MOST_FIELDS = 65_536
_ROWS_BEYOND = 100_000  # docids tried after the last known one, if the set of all documents is damaged, too

Row = tuple[Any, ...]


class Salvage:
    """The readable data of an index. connection: to its file; from now on it reads texts as bytes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = bytes
        self._connection = connection
        self.lost: list[str] = []
        keys = [key.encode() for key in (*META, "docids")]
        rows = {key.decode(): value for key, value in self._rows("meta", keys) if key in keys}
        try:
            stored = rows.pop("docids", None)
            self._docids: DocIds | None = None if stored is None else from_bytes(stored)
        except (ValueError, TypeError):
            self._docids = None
        self.meta: dict[str, Any] = {key: value.decode() if isinstance(value, bytes) else value for key, value in rows.items()}
        for name, kind in (("settings", dict), ("batch_outcomes", dict)):
            try:
                is_sound = isinstance(json.loads(self.meta.get(name) or "{}"), kind)
            except (ValueError, TypeError):
                is_sound = False
            if not is_sound:
                del self.meta[name]
                self.lost.append(f"the {name.replace('_', ' ')}")
        if not isinstance(self.meta.get("generation", 0), int):
            del self.meta["generation"]
        self.embedders = self._embedders()

    def _rows(self, table: str, candidates: Iterable[Any]) -> Iterator[Row]:
        """Yield the rows of a table by its key. candidates: keys, ascending, tried one by one if a page is damaged."""
        covered = INDEX_CHECKSUMS[table]
        select = f"SELECT {', '.join(covered)}, checksum FROM {table}"
        last: Any = None
        try:
            for row in self._connection.execute(f"{select} ORDER BY {covered[0]}"):
                if last is None or row[0] > last:
                    last = row[0]
                    yield from self._sound(table, row)
            return
        except _DAMAGE as damage:
            self.lost.append(f"a page of the table {table}: {damage}")
        for key in candidates:
            if last is None or key > last:
                try:
                    wanted = key.decode() if isinstance(key, bytes) else key
                    row = self._connection.execute(f"{select} WHERE {covered[0]} = ?", (wanted,)).fetchone()
                except _DAMAGE:
                    continue
                if row:
                    yield from self._sound(table, row)

    def _sound(self, table: str, row: Row) -> Iterator[Row]:
        *values, checksum = row
        if checksum is None or checksum == row_checksum(*values):
            yield tuple(values)
        else:
            self.lost.append(f"the row {values[0]!r} of {table}, which differs from its checksum")

    def documents(self) -> Iterator[StoredDocument]:
        """Yield the documents, by docid; each is a JSON object."""
        found = 0
        for docid, document_id, text in self._rows("documents", self._candidates()):
            try:
                document = StoredDocument(docid, document_id.decode(), text.decode())
                if not isinstance(json_text.loads(document.json), dict):
                    raise ValueError("it is not an object")
            except (ValueError, AttributeError, RecursionError) as error:
                self.lost.append(f"the document {docid}, which is not JSON: {error}")
                continue
            found += 1
            yield document
        if self._docids is None:
            self.lost.append("the set of all documents")
        elif found < len(self._docids):
            self.lost.append(f"{len(self._docids) - found} of {len(self._docids)} documents")

    def _candidates(self) -> Iterable[int]:
        if self._docids is not None:
            return self._docids
        last = 0
        for table in ("documents", "forward_index", "document_values"):
            try:
                last = max(last, self._connection.execute(f"SELECT max(docid) FROM {table}").fetchone()[0] or 0)
            except _DAMAGE:
                pass
        return range(min(last, 1 << 32) + _ROWS_BEYOND)

    def fields(self) -> list[tuple[int, str, int | None]]:
        """Return number, name and FTS column of every field; an empty list if any row is damaged: numbers may change then."""
        try:
            rows = [(fid, name.decode(), column) for fid, name, column in
                    self._connection.execute("SELECT fid, name, fts_column FROM fields ORDER BY fid")]
        except (*_DAMAGE, AttributeError) as error:
            self.lost.append(f"the numbers of fields: {error}")
            return []
        columns = [column for _, _, column in rows if column is not None]
        if ([fid for fid, _, _ in rows] != list(range(len(rows))) or len({name for _, name, _ in rows}) != len(rows)
                or sorted(columns) != list(range(len(columns)))):
            self.lost.append("the numbers of fields")
            return []
        return rows

    def _embedders(self) -> list[EmbedderRow]:
        found = []
        for number, name, dimensions, is_quantized, fragments in self._rows("embedders", range(_MOST_EMBEDDERS)):
            try:
                found.append(EmbedderRow(number, name.decode(), dimensions, bool(is_quantized), dict(json.loads(fragments))))
            except (ValueError, TypeError, AttributeError):
                self.lost.append(f"the embedder {number}")
        return found

    def vectors(self, docids: Sequence[int]) -> Mapping[int, Mapping[str, StoredVectors]]:
        """Return docid -> embedder -> its vectors, for some documents."""
        found: dict[int, dict[str, StoredVectors]] = {}
        select = "SELECT id, origin, fragments, vectors, checksum FROM document_vectors WHERE id = ?"
        for embedder in self.embedders:
            for docid in docids:
                try:
                    row = self._connection.execute(select, (row_id(embedder.number, docid),)).fetchone()
                    for _, origin, fragments, vectors in self._sound("document_vectors", row) if row else ():
                        found.setdefault(docid, {})[embedder.name] = StoredVectors(
                            stored_vectors(vectors, origin, embedder.dimensions, embedder.is_quantized),
                            bool(origin & USER_PROVIDED), bool(origin & REGENERATED), fragments)
                except _DAMAGE as error:
                    self.lost.append(f"the vectors of the document {docid}: {error}")
        return found
