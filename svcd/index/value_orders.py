"""The values of fields in their order, and documents in the order of theirs.

Knows how a walk over values is cut short, and when documents, or a column of all of them, are the quicker way;
refuses to know what orders are asked for. What was read is kept, but for columns and counts only until the next write.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from svcd.base.bitmaps import DocIds, from_docids, to_docids
from svcd.base.doc_values import DocValues
from svcd.index import bitmap_blocks
from svcd.index.delta import Delta
from svcd.index.value_rows import KINDS, NUMBER, Key, Value, value_key, value_of
from svcd.index.values import OF_KIND, ValueReader

# Of a field with so many values each one's set is kept; the sets of others are read as they are asked for.
_FEW_VALUES = 1024
# So few documents are sorted by looking into each of them.
_FEW_DOCUMENTS = 1000
# Of a field as it is read for a column, in the time that it takes to look into one document.
_ENTRIES_PER_DOCUMENT = 12
# Sets with at most one document in so many are cut with those of values without making whole sets of these.
_THIN = 8
# Of a sort: values that are passed in the time that it takes to look into one document, and entries of a column that
# are read while one is passed; so many are passed in any case.
_VALUES_PER_DOCUMENT, _ENTRIES_PER_VALUE, _LEAST_PATIENCE = 2, 6, 1000
# So many documents, times themselves and for each value of the field, are sooner sorted than values are walked over.
_FEW_TO_WALK = 500
_FIRST_PAGE, _LARGEST_PAGE = 64, 4096  # rows


class ValueOrderReader(ValueReader):
    """The orders of values in a read transaction."""

    # Values in order

    def values(self, field: str, kind: type[Value]) -> Sequence[Value]:
        """All values of a kind, ascending."""
        return self._counted(field, kind)[0]

    def value_counts(self, field: str, kind: type[Value]) -> Sequence[int]:
        """How many documents have each of values()."""
        return self._counted(field, kind)[1]

    def _counted(self, field: str, kind: type[Value]) -> tuple[list[Value], list[int]]:
        return self._kept(("facet counts", field, kind), lambda: self._read_counts(self._fid(field), KINDS[kind]))

    def _read_counts(self, fid: int, kind: int) -> tuple[list[Value], list[int]]:
        values: list[Value] = []
        counts: list[int] = []
        rows = self._connection.execute(f"SELECT value, docids {OF_KIND} ORDER BY value, block", (fid, kind))
        for found, of_value in groupby(rows, itemgetter(0)):
            values.append(value_of(found))
            counts.append(sum(bitmap_blocks.block_count(chunk) for _, chunk in of_value))
        return values, counts

    def column(self, field: str, kind: type[Value], documents: int | None = None) -> DocValues | None:
        """The ranks of the values of a kind, by document; made from all rows of the field, kept until the next write.

        documents: who asks could look into so many instead, and gets None until that has taken as long, in all
        searches since the last write, as to make the column.
        """
        fid = self._fid(field)
        key = ("column", fid, kind)
        held: tuple[DocValues] | None = None if documents is None else self._held(key)
        if held is None and documents is not None:
            effort = self._kept(("column", "effort", fid, kind), lambda: [0])
            effort[0] += documents
            if effort[0] * _ENTRIES_PER_DOCUMENT < self.kind_docids(field, kind).bit_count():
                return None
            effort[0] = 0  # where there is no room to keep it, it is to be earned again
        (column,) = held or self._kept(key, lambda: (self._read_column(fid, KINDS[kind]),))
        return column

    def _read_column(self, fid: int, kind: int) -> DocValues:
        docids, counts, last = array("I"), array("I"), None
        for found, block, chunk in self._rows_in_order(fid, kind, True):
            if found != last:
                counts.append(0)
                last = found
            if len(chunk) == 2:  # nearly all of those that are many
                docids.append(block << bitmap_blocks.BLOCK_BITS | int.from_bytes(chunk, "little"))
                counts[-1] += 1
            else:
                several = bitmap_blocks.block_docids(block, chunk)
                docids.extend(several)
                counts[-1] += len(several)
        return DocValues(docids, counts)

    def ordered_values(self, field: str, kind: type[Value], ascending: bool = True, among: DocIds | None = None
                       ) -> Iterator[tuple[Value, DocIds]]:
        """The values of a kind with their documents (perhaps none), in order; read as they are asked for.

        among: the only documents that count.
        """
        few = self.few_values(field, kind)
        if few is None:
            yield from self._read_ordered(self._fid(field), KINDS[kind], ascending, among)
        else:
            for value in few if ascending else reversed(few):
                docids = self.value_docids(field, value)
                yield value, docids if among is None else docids & among

    def few_values(self, field: str, kind: type[Value]) -> Sequence[Value] | None:
        """All values of a kind, perhaps some that went among them, ascending, when they are few; else None."""
        fid = self._fid(field)

        def read() -> tuple[Sequence[Value] | None]:
            found = [value_of(row[0]) for row in self._connection.execute(
                f"SELECT DISTINCT value {OF_KIND} ORDER BY value LIMIT {_FEW_VALUES + 1}", (fid, KINDS[kind]))]
            return (found if len(found) <= _FEW_VALUES else None,)

        def carried(known: tuple[Sequence[Value] | None], delta: Delta) -> tuple[Sequence[Value] | None] | None:
            """Those that are gone may stay: their sets are empty."""
            fresh = {each: value for each in self._written(delta, fid).by_key if isinstance(value := value_of(each), kind)}
            if known[0] is None:
                return known
            fresh |= {value_key(value): value for value in known[0]}
            return ([fresh[each] for each in sorted(fresh)],) if len(fresh) <= _FEW_VALUES else None

        return self._kept(("few values", fid, kind), read, carried)[0]

    def _read_ordered(self, fid: int, kind: int, ascending: bool, among: DocIds | None
                      ) -> Iterator[tuple[Value, DocIds]]:
        is_cut = among is not None and among.bit_count() * _THIN < among.bit_length()
        docids_of = bitmap_blocks.IntersectedBlocks(among or 0).cut if is_cut else bitmap_blocks.joined_blocks
        for found, of_value in groupby(self._rows_in_order(fid, kind, ascending), itemgetter(0)):
            docids = docids_of([row[1:] for row in of_value])
            yield value_of(found), docids if among is None or is_cut else docids & among

    def _rows_in_order(self, fid: int, kind: int, ascending: bool) -> Iterator[tuple[Key, int, bytes]]:
        """Page by page, each read to its end: a statement left open would keep its connection in this transaction."""
        page, order, beyond = _FIRST_PAGE, *(("ASC", ">") if ascending else ("DESC", "<"))
        where, bound = OF_KIND, (fid, kind)
        while rows := self._connection.execute(
                f"SELECT value, block, docids {where} ORDER BY value {order}, block {order} LIMIT {page}", bound).fetchall():
            yield from rows
            where, bound = f"{OF_KIND} AND (value, block) {beyond} (?, ?)", (fid, kind, *rows[-1][:2])
            page = min(4 * page, _LARGEST_PAGE)

    # Documents in order

    def sort_buckets(self, field: str, ascending: bool, candidates: DocIds) -> Iterator[tuple[Value | None, DocIds]]:
        """The candidates by their value of a field: numbers, then texts, then those without; each in the order asked."""
        if self._is_few(field, candidates.bit_count()):
            yield from self._sorted_rows(field, ascending, candidates)
            return
        for kind in KINDS:
            left = candidates & self.kind_docids(field, kind)
            candidates &= ~left
            yield from self._in_order(field, kind, ascending, left)
        if candidates:
            yield None, candidates

    def _in_order(self, field: str, kind: type[Value], ascending: bool, left: DocIds) -> Iterator[tuple[Value, DocIds]]:
        """Documents that all have a value of a kind: by walking over the values, unless all at once is quicker."""
        documents, passed = left.bit_count(), 0
        column = self.column(field, kind, 0) if left and self.few_values(field, kind) is None else None
        if column is not None and documents * documents < _FEW_TO_WALK * column.size:
            yield from self._by_rank(field, kind, ascending, left, column)
            return
        patience = max(_LEAST_PATIENCE, min(documents * _VALUES_PER_DOCUMENT,
                                            self.kind_docids(field, kind).bit_count() // _ENTRIES_PER_VALUE))
        values = self.ordered_values(field, kind, ascending, left)
        while left:
            value, docids = next(values)
            passed += 1
            if docids and (bucket := left & docids):
                yield value, bucket
                left ^= bucket
                passed = 0
            elif passed > patience:  # they are far away, as when the same field is filtered and sorted by
                column = self.column(field, kind, left.bit_count())
                yield from (self._sorted_rows(field, ascending, left, kind) if column is None
                            else self._by_rank(field, kind, ascending, left, column))
                return

    def _by_rank(self, field: str, kind: type[Value], ascending: bool, left: DocIds, column: DocValues
                 ) -> Iterator[tuple[Value, DocIds]]:
        """As _in_order: the ranks that documents have, then who has them."""
        is_met = bytearray(column.size)
        for _, rank in column.pairs(left):
            is_met[rank] = 1
        rank = is_met.find(1) if ascending else is_met.rfind(1)
        while left:
            value = self._ranked_value(field, kind, column, rank)
            if bucket := left & self.value_docids(field, value):
                yield value, bucket
                left ^= bucket
            rank = is_met.find(1, rank + 1) if ascending else is_met.rfind(1, 0, rank)

    def _ranked_value(self, field: str, kind: type[Value], column: DocValues, rank: int) -> Value:
        def held(docid: int) -> list[Value]:
            ((_, values),) = self.field_values(field, [docid])
            return [value for value in values if isinstance(value, kind)]

        value: Value = column.value(rank, held)
        return value

    def _is_few(self, field: str, documents: int) -> bool:
        """Is it quicker to look into so many documents than to go through the values?"""
        several = [self.few_values(field, kind) for kind in KINDS]
        values = sum(_FEW_DOCUMENTS if few is None else len(few) for few in several)
        return documents <= min(values // 2, _FEW_DOCUMENTS)

    def _sorted_rows(self, field: str, ascending: bool, candidates: DocIds, *of: type[Value]
                     ) -> Iterator[tuple[Any, DocIds]]:
        """As sort_buckets. of: the only kind that counts."""
        best = min if ascending else max
        grouped: dict[tuple[int, Key], list[int]] = {}
        without: list[int] = []
        for docid, values in self.field_values(field, to_docids(candidates)):
            keys = [(KINDS[type(value)], value_key(value)) for value in values if not of or type(value) in of]
            numbers = [each for each in keys if each[0] == NUMBER]
            if keys:
                grouped.setdefault(best(numbers or keys), []).append(docid)
            else:
                without.append(docid)
        for kind in KINDS.values():
            for each in sorted((each for each in grouped if each[0] == kind), reverse=not ascending):
                yield value_of(each[1]), from_docids(grouped[each])
        if without:
            yield None, from_docids(without)
