"""The values of fields in one index: documents by value, values in their order, the values of each document.

Sets and lists are read from `value_postings` (documents by value) and `document_values` (values by document), and cached
(docs/storage.md#field-values). Values are numbers (float) or texts in their stored form.
"""
from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from svcd.base.doc_values import DocValues
from svcd.base.docids import DocIds
from svcd.index.bitmap_blocks import BLOCK_BITS, Row, block_count, block_docids, joined_blocks, joined_within
from svcd.index.read_transaction import VALUE_TEXTS, Delta, ReadTransaction, placeholders, rows_by_docid, statement_portions
from svcd.index.value_groups import ALL_KEYS, OF_KIND, Key, KeyRange, OrderedRow, ValueGroups, rows_in_order
from svcd.index.value_writer import (
    FLAG, HAS_KIND, IS_EMPTY, IS_NULL, KINDS, MIXED, NUMBER, PRESENT, rows_of, stored_values, value_key, value_of,
)
from svcd.schema.field_values import FieldValues, Value

# If a field has at most this many values of a kind, the set of each value is cached; otherwise sets are read on demand.
_FEW_VALUES = 1024
# The number of rows that can be read for doc values in the time that looking into one document takes.
_ENTRIES_PER_DOCUMENT = 12
_FIRST_PAGE, _LARGEST_PAGE = 64, 4096  # rows
# At most this many documents are sorted by looking into each of them.
_FEW_DOCUMENTS = 1000
# Up to this many documents of a group are looked into; for more, the rows of its values are read.
_FEW_IN_GROUP = 16


class _WrittenValues:
    """The values of a delta's documents in a field. by_key: key of a number or text -> the docids that have it."""

    def __init__(self, entries: Sequence[tuple[int, FieldValues]]) -> None:
        self.entries = entries
        self.by_key: dict[Key, list[int]] = {}
        for docid, entry in entries:
            for value in entry.each():
                self.by_key.setdefault(value_key(value), []).append(docid)


class ValueReader:
    """The values of an index in a read transaction; a `svcd.query.reader.Values`."""

    def __init__(self, transaction: ReadTransaction) -> None:
        self._transaction = transaction
        self._connection = transaction.connection

    def _fid(self, field: str) -> int:
        """Return the number of a field, -1 for an unknown one."""
        numbers: dict[str, int] = self._transaction.cached(("field numbers",), lambda: dict(
            self._connection.execute("SELECT name, fid FROM fields").fetchall()))
        return numbers.get(field, -1)

    def present_docids(self, field: str) -> DocIds:
        """Documents that have the field, even if it is null."""
        return self._flagged(field, PRESENT, lambda row: True)

    def null_docids(self, field: str) -> DocIds:
        """Documents in which the field is null."""
        return self._flagged(field, IS_NULL, lambda row: row.is_null)

    def empty_docids(self, field: str) -> DocIds:
        """Documents in which the field is an empty text, array or object."""
        return self._flagged(field, IS_EMPTY, lambda row: row.is_empty)

    def kind_docids(self, field: str, kind: type[Value]) -> DocIds:
        """Documents with any number (float) or any text (str)."""
        return self._flagged(field, HAS_KIND[kind], lambda row: any(isinstance(value, kind) for value in row.values))

    def _flagged(self, field: str, flag: int, is_in: Callable[[FieldValues], bool]) -> DocIds:
        return self._cached_docids(field, ("flag", flag), lambda fid: joined_blocks(self._blocks(fid, FLAG, flag)), is_in)

    def value_docids(self, field: str, value: Value) -> DocIds:
        """Documents with this value."""
        found = value_key(value)
        fid = self._fid(field)
        return self._transaction.cached_set(("facet", fid, "value", found),
                         lambda: joined_blocks(self._blocks(fid, KINDS[type(value)], found)),
                         lambda delta: DocIds(self.written_values(delta, fid).by_key.get(found, ())))

    def values_docids(self, field: str, values: Sequence[Value]) -> DocIds:
        """Documents with any of many values; not cached."""
        fid, found = self._fid(field), list[Row]()
        for kind in KINDS:
            for part in statement_portions([value_key(value) for value in values if isinstance(value, kind)]):
                found += self._connection.execute(
                    f"SELECT docids {OF_KIND} AND value IN ({placeholders(part)})", (fid, KINDS[kind], *part))
        return joined_blocks(found)

    def containing_docids(self, field: str, part: str) -> DocIds:
        """Documents with a text that contains `part`, given in normal form. Scans all texts of the field."""
        return self._cached_docids(field, ("containing", part), lambda fid: joined_blocks(self._connection.execute(
            f"SELECT docids {OF_KIND} AND instr(value, ?)", (fid, KINDS[str], part)).fetchall()),
            lambda row: any(isinstance(value, str) and part in value for value in row.values))

    def range_docids(self, field: str, low: Value | None, high: Value | None, has_low: bool = True,
                     has_high: bool = True) -> DocIds:
        """Documents with a value from low to high; None for no bound. has_low, has_high: whether the bounds are in the range."""
        bound = high if low is None else low
        assert bound is not None  # a range is open on one side at most
        kind = type(bound)
        keys = KeyRange(None if low is None else value_key(low), None if high is None else value_key(high), has_low, has_high)
        return self._cached_docids(
            field, ("range", KINDS[kind], *keys), lambda fid: self._groups(fid, kind).range_docids(keys),
            lambda row: any(isinstance(value, kind) and keys.holds(value_key(value)) for value in row.each()))

    def _groups(self, fid: int, kind: type[Value]) -> ValueGroups:
        return ValueGroups(self._connection, fid, KINDS[kind])

    def _cached_docids(self, field: str, what: tuple[object, ...], read: Callable[[int], DocIds],
                is_in: Callable[[FieldValues], bool]) -> DocIds:
        """Return a set of documents by their values. what: part of the cache key. is_in: whether a document's values fit."""
        fid = self._fid(field)
        return self._transaction.cached_set(("facet", fid, *what), lambda: read(fid), lambda delta: DocIds(
            [docid for docid, row in self.written_values(delta, fid).entries if is_in(row)]))

    def written_values(self, delta: Delta, fid: int) -> _WrittenValues:
        """Return the values of a delta's documents in a field; decoded once for all sets that it updates."""
        written = delta.values.get(fid)
        if written is None:
            rows = ((docid, rows_of(text).get(fid)) for docid, text in delta.value_texts.items())
            written = delta.values[fid] = _WrittenValues([(docid, row) for docid, row in rows if row is not None])
        return written

    def _blocks(self, fid: int, kind: int, found: Key) -> list[Row]:
        return self._connection.execute(f"SELECT docids {OF_KIND} AND value = ?", (fid, kind, found)).fetchall()

    def distinct_values(self, field: str, kind: type[Value]) -> Sequence[Value]:
        """Return all values of a kind, ascending."""
        return self._counted(field, kind)[0]

    def value_counts(self, field: str, kind: type[Value]) -> Sequence[int]:
        """Return the number of documents for each of distinct_values()."""
        return self._counted(field, kind)[1]

    def _counted(self, field: str, kind: type[Value]) -> tuple[list[Value], list[int]]:
        fid = self._fid(field)

        def load() -> tuple[list[Value], list[int]]:
            values: list[Value] = []
            counts: list[int] = []
            rows = self._connection.execute(f"SELECT value, docids {OF_KIND} ORDER BY value, block", (fid, KINDS[kind]))
            for found, of_value in groupby(rows, itemgetter(0)):
                values.append(value_of(found))
                counts.append(sum(block_count(block) for _, block in of_value))
            return values, counts

        return self._transaction.cached(("facet counts", field, kind), load)

    def doc_values(self, field: str, kind: type[Value], documents: int | None = None) -> DocValues | None:
        """Return the ranks of the values of a kind by document; built from all rows of the field, cached until the next write.

        documents: how many the caller could look into instead. The result is None until looking into documents, summed over all
        searches since the last write, has taken as long as building the doc values.
        """
        fid = self._fid(field)
        key = ("column", fid, kind)
        cached: tuple[DocValues] | None = None if documents is None else self._transaction.cached_value(key)
        if cached is None and documents is not None:
            effort = self._transaction.cached(("column", "effort", fid, kind), lambda: [0])
            effort[0] += documents
            if effort[0] * _ENTRIES_PER_DOCUMENT < len(self.kind_docids(field, kind)):
                return None
            effort[0] = 0  # doc values that do not fit the cache are not built again at once
        (doc_values,) = cached or self._transaction.cached(key, lambda: (self._load_doc_values(fid, KINDS[kind]),))
        return doc_values

    def _load_doc_values(self, fid: int, kind: int) -> DocValues:
        docids, counts, last = array("I"), array("I"), None
        for found, _, block in self._rows_in_order(fid, kind, True):
            if found != last:
                counts.append(0)
                last = found
            several = block_docids(block)
            docids += several
            counts[-1] += len(several)
        return DocValues(docids, counts)

    def ordered_values(self, field: str, kind: type[Value], ascending: bool = True, among: DocIds | None = None
                       ) -> Iterator[tuple[Value, DocIds]]:
        """Yield the values of a kind with their documents (maybe none), in order; read lazily. among: only these documents."""
        few = self.few_values(field, kind)
        if few is not None:
            for value in few if ascending else reversed(few):
                docids = self.value_docids(field, value)
                yield value, docids if among is None else docids & among
            return
        fid = self._fid(field)
        if among is None:
            yield from self._read_ordered(fid, kind, ascending)
            return
        for keys, having in self._groups(fid, kind).ranges_of(among, ascending):
            if having is not None and len(having) <= _FEW_IN_GROUP:
                yield from self._held_within(field, kind, ascending, keys, having)
            else:
                ordered = self._read_ordered(fid, kind, ascending, keys, among if having is None else having)
                yield from ((value, docids) for value, docids in ordered if docids)

    def _held_within(self, field: str, kind: type[Value], ascending: bool, keys: KeyRange, docids: DocIds
                     ) -> Iterator[tuple[Value, DocIds]]:
        """Yield the values in a range that few documents have, in order, with these documents; looks into each document."""
        having: dict[Key, list[int]] = {}
        for docid, values in self.field_values(field, docids.to_array()):
            for value in values:
                if isinstance(value, kind) and keys.holds(key := value_key(value)):
                    having.setdefault(key, []).append(docid)
        for key in sorted(having, reverse=not ascending):
            yield value_of(key), DocIds(having[key])

    def few_values(self, field: str, kind: type[Value]) -> Sequence[Value] | None:
        """Return all values of a kind, ascending, or None if there are many. Some may be of deleted documents only."""
        fid = self._fid(field)

        def read() -> tuple[Sequence[Value] | None]:
            found = [value_of(row[0]) for row in self._connection.execute(
                f"SELECT DISTINCT value {OF_KIND} ORDER BY value LIMIT {_FEW_VALUES + 1}", (fid, KINDS[kind]))]
            return (found if len(found) <= _FEW_VALUES else None,)

        def updated(known: tuple[Sequence[Value] | None], delta: Delta) -> tuple[Sequence[Value] | None] | None:
            """Add the values of the delta. Values without documents may stay: their sets are empty."""
            fresh = {each: value for each in self.written_values(delta, fid).by_key if isinstance(value := value_of(each), kind)}
            if known[0] is None:
                return known
            fresh |= {value_key(value): value for value in known[0]}
            return ([fresh[each] for each in sorted(fresh)],) if len(fresh) <= _FEW_VALUES else None

        return self._transaction.cached(("few values", fid, kind), read, updated)[0]

    def _read_ordered(self, fid: int, kind: type[Value], ascending: bool, keys: KeyRange = ALL_KEYS,
                      among: DocIds | None = None) -> Iterator[tuple[Value, DocIds]]:
        for found, of_value in groupby(self._rows_in_order(fid, KINDS[kind], ascending, keys), itemgetter(0)):
            blocks = [row[2:] for row in of_value]
            yield value_of(found), joined_blocks(blocks) if among is None else joined_within(blocks, among)

    def _rows_in_order(self, fid: int, kind: int, ascending: bool, keys: KeyRange = ALL_KEYS) -> Iterator[OrderedRow]:
        return rows_in_order(self._connection, "value", f"{OF_KIND}{keys.condition('value')}", (fid, kind, *keys.bounds),
                             ascending, _FIRST_PAGE, _LARGEST_PAGE)

    def field_values(self, field: str, docids: Sequence[int]) -> Iterator[tuple[int, Sequence[Value]]]:
        """Yield (docid, its values, each once) for some documents, in their order."""
        name = str(self._fid(field))
        texts = dict(rows_by_docid(self._connection, VALUE_TEXTS, docids))
        for docid in docids:
            array = json.loads(texts[docid]).get(name) if docid in texts else None
            yield docid, stored_values(array).each() if array else ()

    def spellings(self, field: str) -> Mapping[str, str]:
        """Return text -> how documents spell it, for the texts that all documents spell alike; {} if the field has many texts, or
        documents in several blocks."""
        fid = self._fid(field)

        def load() -> Mapping[str, str]:
            docids = self.present_docids(field)
            if self.few_values(field, str) is None or not docids or docids.max() >> BLOCK_BITS:
                return {}
            rows = self._connection.execute("SELECT value, spelling FROM value_postings WHERE fid = ? AND kind = ?",
                                            (fid, KINDS[str])).fetchall()
            return {value: value if spelling is None else spelling for value, spelling in rows if spelling != MIXED}

        return self._transaction.cached(("spellings", fid), load)

    def spelling(self, field: str, value: str, docid: int) -> str:
        """Return how a document spells one of its texts."""
        fid, block = self._fid(field), docid >> BLOCK_BITS
        (spelling,) = self._transaction.cached(("spelling", fid, value, block), lambda: self._connection.execute(
            "SELECT spelling FROM value_postings WHERE fid = ? AND kind = ? AND value = ? AND block = ?",
            (fid, KINDS[str], value, block)).fetchone() or (MIXED,))
        if spelling != MIXED:
            return value if spelling is None else spelling
        for _, text in rows_by_docid(self._connection, VALUE_TEXTS, [docid]):
            return rows_of(text)[fid].values[value] or value
        return value

    def sort_buckets(self, field: str, ascending: bool, candidates: DocIds) -> Iterator[tuple[Value | None, DocIds]]:
        """Yield the candidates by their value of a field: numbers, then texts, each in order, then None for those without one."""
        few_values = [self.few_values(field, kind) for kind in KINDS]
        values_to_scan = sum(_FEW_DOCUMENTS if few is None else len(few) for few in few_values)
        if len(candidates) <= min(values_to_scan // 2, _FEW_DOCUMENTS):  # looking into the documents is quicker
            yield from self._sorted_rows(field, ascending, candidates)
            return
        for kind in KINDS:
            left = candidates & self.kind_docids(field, kind)
            candidates -= left
            values = self.ordered_values(field, kind, ascending, left)
            while left:
                value, docids = next(values)
                if bucket := left & docids:
                    yield value, bucket
                    left -= bucket
        if candidates:
            yield None, candidates

    def _sorted_rows(self, field: str, ascending: bool, candidates: DocIds) -> Iterator[tuple[Any, DocIds]]:
        """Yield the buckets of sort_buckets(), by the doc values of numbers if it pays to build them, else by looking into each
        document."""
        numbers_by_docid = self.doc_values(field, float, len(candidates))
        if numbers_by_docid is not None:
            by_rank: dict[int, list[int]] = {}
            with_numbers, place = candidates & self.kind_docids(field, float), 0 if ascending else -1
            for docid in with_numbers:
                by_rank.setdefault(numbers_by_docid.ranks_of(docid)[place], []).append(docid)
            values = self.distinct_values(field, float)
            for rank in sorted(by_rank, reverse=not ascending):
                yield values[rank], DocIds(by_rank[rank])
            candidates -= with_numbers
            if not candidates:
                return
        best = min if ascending else max
        grouped: dict[tuple[int, Key], list[int]] = {}
        without: list[int] = []
        for docid, values in self.field_values(field, candidates.to_array()):
            keys = [(KINDS[type(value)], value_key(value)) for value in values]
            numbers = [each for each in keys if each[0] == NUMBER]
            if keys:
                grouped.setdefault(best(numbers or keys), []).append(docid)
            else:
                without.append(docid)
        for kind in KINDS.values():
            for each in sorted((each for each in grouped if each[0] == kind), reverse=not ascending):
                yield value_of(each[1]), DocIds(grouped[each])
        if without:
            yield None, DocIds(without)
