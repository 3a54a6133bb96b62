"""Values of fields on their way into an index file, gathered so that a row is written once for many documents.

Knows what a document's change means for the rows of its values; refuses to know what a value is of. What is
gathered is written at the end of each savepoint and transaction, and forgotten when one is undone.
"""
from __future__ import annotations

import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from svcd.index import bitmap_blocks
from svcd.index.value_rows import MIXED, FieldEntry, Key, posting_entries, row_text

# Some 10 MB of them, and few enough rows are touched twice.
_MOST_GATHERED = 150_000
_ROWS_AT_ONCE = 2000
_NOTHING_ADDED = "\0"  # no document came in that spells the value

Values = Mapping[int, FieldEntry]  # by field number
_Row = tuple[int, int, Key, int]


@dataclass(slots=True)
class _Edits:
    """Of one row. places: in their order, ~place for one that goes."""

    places: array[int] = field(default_factory=lambda: array("i"))
    spelling: str | None = _NOTHING_ADDED

    def add(self, place: int, spelling: str | None) -> None:
        self.places.append(place)
        if self.spelling != spelling:
            self.spelling = _agreed(self.spelling, spelling)


def _agreed(known: str | None, spelling: str | None) -> str | None:
    return known if spelling == _NOTHING_ADDED else spelling if known in (_NOTHING_ADDED, spelling) else MIXED


class ValueWriter:
    """Writes through a connection that is inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._edits: defaultdict[_Row, _Edits] = defaultdict(_Edits)
        self._places = 0

    def forget(self) -> None:
        """What was gathered is not to be written."""
        self._edits, self._places = defaultdict(_Edits), 0

    def change(self, docid: int, before: Values, after: Values) -> None:
        """A document's values of some fields were these, and are those."""
        block, place = divmod(docid, bitmap_blocks.BLOCK)
        old = dict(entry for fid, held in before.items() for entry in posting_entries(fid, held))
        new = [entry for fid, held in after.items() for entry in posting_entries(fid, held)]
        for key in old.keys() - {key for key, _ in new} if old else ():
            self._edits[*key, block].places.append(~place)
        for key, spelling in new:
            if key not in old or old[key] != spelling:
                self._edits[*key, block].add(place, spelling)
        self._places += len(old) + len(new)
        if self._places > _MOST_GATHERED:
            self.flush()

    def keep_rows(self, rows: Iterable[tuple[int, Values]]) -> None:
        """The values of all its fields that a document has now; {} for one that is gone."""
        texts = [(docid, row_text(values)) for docid, values in rows]
        self._connection.executemany("DELETE FROM document_values WHERE docid = ?",
                                     [(docid,) for docid, text in texts if text is None])
        self._connection.executemany("INSERT OR REPLACE INTO document_values(docid, field_values) VALUES (?, ?)",
                                     [row for row in texts if row[1] is not None])

    def flush(self) -> None:
        """Write what was gathered: some rows at a time, in their order, and each forgotten when it is read."""
        gathered = self._edits
        self.forget()
        rows = sorted(gathered)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            self._write([(row, gathered.pop(row)) for row in rows[start:start + _ROWS_AT_ONCE]])

    def _write(self, edits: Iterable[tuple[_Row, _Edits]]) -> None:
        gone: list[_Row] = []
        kept: list[tuple[int, int, Key, int, bytes, str | None]] = []
        for row, edit in edits:
            chunk, spelling = self._connection.execute(
                "SELECT docids, spelling FROM value_postings WHERE fid = ? AND kind = ? AND value = ? AND block = ?", row,
            ).fetchone() or (None, _NOTHING_ADDED)
            chunk = bitmap_blocks.edited_block(chunk, edit.places)
            if chunk:
                kept.append((*row, chunk, _agreed(spelling, edit.spelling)))
            else:
                gone.append(row)
        self._connection.executemany("DELETE FROM value_postings WHERE fid = ? AND kind = ? AND value = ? AND block = ?", gone)
        self._connection.executemany("INSERT OR REPLACE INTO value_postings(fid, kind, value, block, docids, spelling) "
                                     "VALUES (?, ?, ?, ?, ?, ?)", kept)

    def clear(self) -> None:
        """No document has a value any more."""
        self.forget()
        self._connection.execute("DELETE FROM value_postings")
        self._connection.execute("DELETE FROM document_values")

    def drop_fields(self, fids: Iterable[int]) -> None:
        """The values of some fields are not kept any more; the rows of documents are left as they are."""
        self._connection.executemany("DELETE FROM value_postings WHERE fid = ?", [(fid,) for fid in fids])
