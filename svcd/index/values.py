"""The values of fields in one index: which documents have one, or one of a range; the values of each document.

Knows the tables `facets` and `facet_rows`; refuses to know which fields ought to have values, in which order they
stand (value_orders), and filters. What was read is kept, and carried over later writes.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence

from svcd.base.bitmaps import DocIds, from_docids
from svcd.index import bitmap_blocks
from svcd.index.cached_reader import Cache, placeholders, statement_portions
from svcd.index.delta import Delta
from svcd.index.posting_reader import PostingReader
from svcd.index.value_rows import (
    FLAG,
    HAS_KIND,
    IS_EMPTY,
    IS_NULL,
    KINDS,
    MIXED,
    PRESENT,
    Key,
    StoredFieldEntry,
    Value,
    rows_of,
    value_key,
)

OF_KIND = "FROM facets WHERE fid = ? AND kind = ?"


class _Written:
    """What some documents have under a field. by_key: key of a number or text -> the docids that have it."""

    def __init__(self, rows: Sequence[tuple[int, StoredFieldEntry]]) -> None:
        self.rows = rows
        self.by_key: dict[Key, list[int]] = {}
        for docid, row in rows:
            for value in row.each():
                self.by_key.setdefault(value_key(value), []).append(docid)


class ValueReader(PostingReader):
    """The values in the read transaction of `connection`. stored_form: of a text, as the engine has it."""

    def __init__(self, connection: sqlite3.Connection, uuid: str, cache: Cache, generation: int,
                 stored_form: Callable[[str], str]) -> None:
        super().__init__(connection, uuid, cache, generation)
        self._stored_form = stored_form

    def _fid(self, field: str) -> int:
        """The number of a field, -1 for one that was never met."""
        numbers: dict[str, int] = self._kept(("field numbers",), lambda: dict(
            self._connection.execute("SELECT name, fid FROM fields").fetchall()))
        return numbers.get(field, -1)

    # Sets

    def present_docids(self, field: str) -> DocIds:
        """Documents that have the field, be it null."""
        return self._flagged(field, PRESENT, lambda row: True)

    def null_docids(self, field: str) -> DocIds:
        """Documents in which the field is null."""
        return self._flagged(field, IS_NULL, lambda row: row.is_null)

    def empty_docids(self, field: str) -> DocIds:
        """Documents in which the field is an empty text, array or object."""
        return self._flagged(field, IS_EMPTY, lambda row: row.is_empty)

    def kind_docids(self, field: str, kind: type[Value]) -> DocIds:
        """Documents with any number (float) or text (str)."""
        return self._flagged(field, HAS_KIND[kind], lambda row: any(isinstance(value, kind) for value in row.values))

    def _flagged(self, field: str, flag: int, is_in: Callable[[StoredFieldEntry], bool]) -> DocIds:
        return self._valued(field, ("flag", flag), lambda fid: bitmap_blocks.joined_blocks(self._chunks(fid, FLAG, flag)), is_in)

    def value_docids(self, field: str, value: Value) -> DocIds:
        """Documents with this value."""
        found = value_key(value)
        fid = self._fid(field)
        return self._set(("facet", fid, "value", found),
                         lambda: bitmap_blocks.joined_blocks(self._chunks(fid, KINDS[type(value)], found)),
                         lambda delta: from_docids(self._written(delta, fid).by_key.get(found, ())))

    def values_docids(self, field: str, values: Sequence[Value]) -> DocIds:
        """Documents with any of many values; read each time."""
        fid, found = self._fid(field), list[tuple[int, bytes]]()
        for kind in KINDS:
            for part in statement_portions([value_key(value) for value in values if isinstance(value, kind)]):
                found += self._connection.execute(
                    f"SELECT block, docids {OF_KIND} AND value IN ({placeholders(part)})", (fid, KINDS[kind], *part))
        return bitmap_blocks.joined_blocks(found)

    def containing_docids(self, field: str, part: str) -> DocIds:
        """Documents with a text that contains another one, in normal form: all texts of the field are looked at."""
        return self._valued(field, ("containing", part), lambda fid: bitmap_blocks.joined_blocks(self._connection.execute(
            f"SELECT block, docids {OF_KIND} AND instr(value, ?)", (fid, KINDS[str], part)).fetchall()),
            lambda row: any(isinstance(value, str) and part in value for value in row.values))

    def range_docids(self, field: str, low: Value | None, high: Value | None, has_low: bool = True,
                     has_high: bool = True) -> DocIds:
        """Documents with a value from low to high, None for one without bound. has_...: does it belong to the range?"""
        bound = high if low is None else low
        assert bound is not None  # a range is open on one side at most
        kind = type(bound)
        bounds = (None if low is None else value_key(low), None if high is None else value_key(high), has_low, has_high)
        return self._valued(field, ("range", KINDS[kind], *bounds),
                            lambda fid: self._read_range(fid, KINDS[kind], *bounds),
                            lambda row: any(isinstance(value, kind) and _is_within(value_key(value), *bounds)
                                            for value in row.each()))

    def _valued(self, field: str, what: tuple[object, ...], read: Callable[[int], DocIds],
                is_in: Callable[[StoredFieldEntry], bool]) -> DocIds:
        """A set that is kept. is_in: is a document in it that has such a row?"""
        fid = self._fid(field)

        return self._set(("facet", fid, *what), lambda: read(fid), lambda delta: from_docids(
            [docid for docid, row in self._written(delta, fid).rows if is_in(row)]))

    def _written(self, delta: Delta, fid: int) -> _Written:
        """What the documents of a delta have under a field now; read once for all sets that are carried over it."""
        written = delta.values.get(fid)
        if written is None:
            rows = ((docid, rows_of(text, self._stored_form).get(fid)) for docid, text in delta.facet_rows.items())
            written = delta.values[fid] = _Written([(docid, row) for docid, row in rows if row is not None])
        return written

    def _chunks(self, fid: int, kind: int, found: Key) -> list[tuple[int, bytes]]:
        return self._connection.execute(f"SELECT block, docids {OF_KIND} AND value = ?", (fid, kind, found)).fetchall()

    def _read_range(self, fid: int, kind: int, low: Key | None, high: Key | None, has_low: bool, has_high: bool) -> DocIds:
        """Lists of one block come joined by SQLite: of a million numbers, each is a row of one document."""
        bounds = [(f" AND value >{'=' * has_low} ?", low), (f" AND value <{'=' * has_high} ?", high)]
        given = [(condition, bound) for condition, bound in bounds if bound is not None]
        where = OF_KIND + "".join(condition for condition, _ in given)
        bound = (fid, kind, *(bound for _, bound in given))
        lists = self._connection.execute(f"SELECT block, CAST(group_concat(docids, '') AS BLOB) {where} "
                                         f"AND length(docids) < {bitmap_blocks.BLOCK_BYTES} GROUP BY block", bound).fetchall()
        bits = self._connection.execute(f"SELECT block, docids {where} AND length(docids) = {bitmap_blocks.BLOCK_BYTES}", bound)
        return bitmap_blocks.joined_blocks(bits.fetchall(), lists)

    # Documents

    def field_values(self, field: str, docids: Sequence[int]) -> Iterator[tuple[int, Sequence[Value]]]:
        """(docid, its values, each once) of some documents."""
        name = str(self._fid(field))
        texts = dict(self._facet_rows(docids))
        for docid in docids:
            listed = json.loads(texts[docid]).get(name) if docid in texts else None
            yield docid, StoredFieldEntry(listed, self._stored_form).each() if listed else ()

    def spelling(self, field: str, value: str, docid: int) -> str:
        """A text as a document that has it spells it."""
        fid, block = self._fid(field), docid // bitmap_blocks.BLOCK
        (spelling,) = self._kept(("spelling", fid, value, block), lambda: self._connection.execute(
            "SELECT spelling FROM facets WHERE fid = ? AND kind = ? AND value = ? AND block = ?",
            (fid, KINDS[str], value, block)).fetchone() or (MIXED,))
        if spelling != MIXED:
            return value if spelling is None else spelling
        for _, text in self._facet_rows([docid]):
            return rows_of(text, self._stored_form)[fid].values[value] or value
        return value


def _is_within(found: Key, low: Key | None, high: Key | None, has_low: bool, has_high: bool) -> bool:
    """Keys of one kind."""
    is_above = low is None or low < found or (has_low and low == found)  # type: ignore[operator]  # of one kind
    return is_above and (high is None or found < high or (has_high and found == high))  # type: ignore[operator]  # of one kind
