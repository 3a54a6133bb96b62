"""Writes the values of documents to an index file, gathered so that a row is written once for many documents.

Edits are gathered in memory and written at the end of each savepoint and transaction; the writer calls forget() on a
rollback. See docs/storage.md#writing.
"""
from __future__ import annotations

import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from svcd.index import bitmap_blocks
from svcd.index.value_rows import MIXED, FieldEntry, Key, posting_entries, row_text

# Edits gathered before they are written: some 10 MB; few rows are then written twice in a batch.
_MOST_GATHERED = 150_000
_ROWS_AT_ONCE = 2000
_NOTHING_ADDED = "\0"  # no document was added whose spelling counts

Values = Mapping[int, FieldEntry]  # by field number
_Row = tuple[int, int, Key, int]


@dataclass(slots=True)
class _Edits:
    """The edits of one row. offsets: documents in the order of edits, ~offset for one that is removed."""

    offsets: array[int] = field(default_factory=lambda: array("i"))
    spelling: str | None = _NOTHING_ADDED

    def add(self, offset: int, spelling: str | None) -> None:
        self.offsets.append(offset)
        if self.spelling != spelling:
            self.spelling = _agreed(self.spelling, spelling)


def _agreed(known: str | None, spelling: str | None) -> str | None:
    return known if spelling == _NOTHING_ADDED else spelling if known in (_NOTHING_ADDED, spelling) else MIXED


class ValueWriter:
    """Writes through a connection that is inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._edits: defaultdict[_Row, _Edits] = defaultdict(_Edits)
        self._gathered = 0

    def forget(self) -> None:
        """Discard the gathered edits."""
        self._edits, self._gathered = defaultdict(_Edits), 0

    def change(self, docid: int, before: Values, after: Values) -> None:
        """Note a document whose values of some fields change. before, after: its values, by field number."""
        block, offset = divmod(docid, bitmap_blocks.BLOCK)
        old = dict(entry for fid, held in before.items() for entry in posting_entries(fid, held))
        new = [entry for fid, held in after.items() for entry in posting_entries(fid, held)]
        for key in old.keys() - {key for key, _ in new} if old else ():
            self._edits[*key, block].offsets.append(~offset)
        for key, spelling in new:
            if key not in old or old[key] != spelling:
                self._edits[*key, block].add(offset, spelling)
        self._gathered += len(old) + len(new)
        if self._gathered > _MOST_GATHERED:
            self.flush()

    def write_rows(self, rows: Iterable[tuple[int, Values]]) -> None:
        """Write document_values. rows: (docid, its values of all fields); {} for a document without any."""
        texts = [(docid, row_text(values)) for docid, values in rows]
        self._connection.executemany("DELETE FROM document_values WHERE docid = ?",
                                     [(docid,) for docid, text in texts if text is None])
        self._connection.executemany("INSERT OR REPLACE INTO document_values(docid, field_values) VALUES (?, ?)",
                                     [row for row in texts if row[1] is not None])

    def flush(self) -> None:
        """Write the gathered edits in the order of rows, a portion at a time; each is dropped as it is written."""
        gathered = self._edits
        self.forget()
        rows = sorted(gathered)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            self._write([(row, gathered.pop(row)) for row in rows[start:start + _ROWS_AT_ONCE]])

    def _write(self, edits: Iterable[tuple[_Row, _Edits]]) -> None:
        emptied: list[_Row] = []
        written: list[tuple[int, int, Key, int, bytes, str | None]] = []
        for row, edit in edits:
            data, spelling = self._connection.execute(
                "SELECT docids, spelling FROM value_postings WHERE fid = ? AND kind = ? AND value = ? AND block = ?", row,
            ).fetchone() or (None, _NOTHING_ADDED)
            data = bitmap_blocks.edited_block(data, edit.offsets)
            if data:
                written.append((*row, data, _agreed(spelling, edit.spelling)))
            else:
                emptied.append(row)
        self._connection.executemany("DELETE FROM value_postings WHERE fid = ? AND kind = ? AND value = ? AND block = ?", emptied)
        self._connection.executemany("INSERT OR REPLACE INTO value_postings(fid, kind, value, block, docids, spelling) "
                                     "VALUES (?, ?, ?, ?, ?, ?)", written)

    def clear(self) -> None:
        """Delete all values of all documents."""
        self.forget()
        self._connection.execute("DELETE FROM value_postings")
        self._connection.execute("DELETE FROM document_values")

    def drop_fields(self, fids: Iterable[int]) -> None:
        """Delete the postings of some fields; document_values is left as it is."""
        self._connection.executemany("DELETE FROM value_postings WHERE fid = ?", [(fid,) for fid in fids])
