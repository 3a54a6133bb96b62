"""The values of fields in one index: which documents have one, or one of a range, in which order; the values of each.

Knows the tables `facets` and `facet_rows`; refuses to know which fields ought to have values, and filters. What was
read is kept, and carried over later writes.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from svcd.bitsets import from_docids, to_docids
from svcd.store import chunks
from svcd.store.cache import Cache
from svcd.store.delta import Delta
from svcd.store.relations import DocIds, Relations, marks, parts
from svcd.store.value_rows import (
    FLAG, HAS, IS_EMPTY, IS_NULL, KINDS, MIXED, NUMBER, PRESENT, Key, Row, Value, key, rows_of, value_of,
)

# Of a field with so many values each one's set is kept; the sets of others are read as they are asked for.
_FEW_VALUES = 1024
# So few documents are sorted by looking into each of them.
_FEW_DOCUMENTS = 1000
_FIRST_PAGE, _LARGEST_PAGE = 64, 4096  # rows

_OF_KIND = "FROM facets WHERE fid = ? AND kind = ?"


class _Written:
    """What some documents have under a field. by_key: key of a number or text -> the docids that have it."""

    def __init__(self, rows: Sequence[tuple[int, Row]]) -> None:
        self.rows = rows
        self.by_key: dict[Key, list[int]] = {}
        for docid, row in rows:
            for value in row.each():
                self.by_key.setdefault(key(value), []).append(docid)


class Values(Relations):
    """The values in the read transaction of `connection`. stored_form: of a text, as the engine has it."""

    def __init__(self, connection: sqlite3.Connection, uuid: str, cache: Cache, generation: int,
                 stored_form: Callable[[str], str]) -> None:
        super().__init__(connection, uuid, cache, generation)
        self._stored_form = stored_form

    def _fid(self, field: str) -> int:
        """The number of a field, -1 for one that was never met."""
        return self._kept(("field numbers",), lambda: dict(
            self._connection.execute("SELECT name, fid FROM fields").fetchall())).get(field, -1)

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
        return self._flagged(field, HAS[kind], lambda row: any(isinstance(value, kind) for value in row.values))

    def _flagged(self, field: str, flag: int, is_in: Callable[[Row], bool]) -> DocIds:
        return self._valued(field, ("flag", flag), lambda fid: chunks.joined(self._chunks(fid, FLAG, flag)), is_in)

    def value_docids(self, field: str, value: Value) -> DocIds:
        """Documents with this value."""
        found = key(value)
        fid = self._fid(field)
        return self._set(("facet", fid, "value", found),
                         lambda: chunks.joined(self._chunks(fid, KINDS[type(value)], found)),
                         lambda delta: from_docids(self._written(delta, fid).by_key.get(found, ())))

    def values_docids(self, field: str, values: Sequence[Value]) -> DocIds:
        """Documents with any of many values; read each time."""
        fid, found = self._fid(field), list[tuple[int, bytes]]()
        for kind in KINDS:
            for part in parts([key(value) for value in values if isinstance(value, kind)]):
                found += self._connection.execute(
                    f"SELECT block, docids {_OF_KIND} AND value IN ({marks(part)})", (fid, KINDS[kind], *part))
        return chunks.joined(found)

    def containing_docids(self, field: str, part: str) -> DocIds:
        """Documents with a text that contains another one, in normal form: all texts of the field are looked at."""
        return self._valued(field, ("containing", part), lambda fid: chunks.joined(self._connection.execute(
            f"SELECT block, docids {_OF_KIND} AND instr(value, ?)", (fid, KINDS[str], part)).fetchall()),
            lambda row: any(isinstance(value, str) and part in value for value in row.values))

    def range_docids(self, field: str, low: Value | None, high: Value | None, has_low: bool = True,
                     has_high: bool = True) -> DocIds:
        """Documents with a value from low to high, None for one without bound. has_...: does it belong to the range?"""
        kind = type(high if low is None else low)
        bounds = (None if low is None else key(low), None if high is None else key(high), has_low, has_high)
        return self._valued(field, ("range", KINDS[kind], *bounds),  # type: ignore[index]
                            lambda fid: self._read_range(fid, KINDS[kind], *bounds),  # type: ignore[index]
                            lambda row: any(isinstance(value, kind) and _is_within(key(value), *bounds)
                                            for value in row.each()))

    def _valued(self, field: str, what: tuple[object, ...], read: Callable[[int], DocIds],
                is_in: Callable[[Row], bool]) -> DocIds:
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
        return self._connection.execute(f"SELECT block, docids {_OF_KIND} AND value = ?", (fid, kind, found)).fetchall()

    def _read_range(self, fid: int, kind: int, low: Key | None, high: Key | None, has_low: bool, has_high: bool) -> DocIds:
        """Lists of one block come joined by SQLite: of a million numbers, each is a row of one document."""
        bounds = [(f" AND value >{'=' * has_low} ?", low), (f" AND value <{'=' * has_high} ?", high)]
        given = [(condition, bound) for condition, bound in bounds if bound is not None]
        where = _OF_KIND + "".join(condition for condition, _ in given)
        bound = (fid, kind, *(bound for _, bound in given))
        lists = self._connection.execute(f"SELECT block, CAST(group_concat(docids, '') AS BLOB) {where} "
                                         f"AND length(docids) < {chunks.BLOCK_BYTES} GROUP BY block", bound).fetchall()
        bits = self._connection.execute(f"SELECT block, docids {where} AND length(docids) = {chunks.BLOCK_BYTES}", bound)
        return chunks.joined(bits.fetchall(), lists)

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
        rows = self._connection.execute(f"SELECT value, docids {_OF_KIND} ORDER BY value, block", (fid, kind))
        for found, of_value in groupby(rows, itemgetter(0)):
            values.append(value_of(found))
            counts.append(sum(chunks.count(chunk) for _, chunk in of_value))
        return values, counts

    def ordered_values(self, field: str, kind: type[Value], ascending: bool = True) -> Iterator[tuple[Value, DocIds]]:
        """The values of a kind with their documents (perhaps none), in order; read as they are asked for."""
        few = self.few_values(field, kind)
        if few is None:
            yield from self._read_ordered(self._fid(field), KINDS[kind], ascending)
        else:
            for value in few if ascending else reversed(few):
                yield value, self.value_docids(field, value)

    def few_values(self, field: str, kind: type[Value]) -> Sequence[Value] | None:
        """All values of a kind, perhaps some that went among them, ascending, when they are few; else None."""
        fid = self._fid(field)

        def read() -> tuple[Sequence[Value] | None]:
            found = [value_of(row[0]) for row in self._connection.execute(
                f"SELECT DISTINCT value {_OF_KIND} ORDER BY value LIMIT {_FEW_VALUES + 1}", (fid, KINDS[kind]))]
            return (found if len(found) <= _FEW_VALUES else None,)

        def carried(known: tuple[Sequence[Value] | None], delta: Delta) -> tuple[Sequence[Value] | None] | None:
            """Those that are gone may stay: their sets are empty."""
            fresh = {each: value for each in self._written(delta, fid).by_key if isinstance(value := value_of(each), kind)}
            if known[0] is None:
                return known
            fresh |= {key(value): value for value in known[0]}
            return ([fresh[each] for each in sorted(fresh)],) if len(fresh) <= _FEW_VALUES else None

        return self._kept(("few values", fid, kind), read, carried)[0]

    def _read_ordered(self, fid: int, kind: int, ascending: bool) -> Iterator[tuple[Value, DocIds]]:
        for found, of_value in groupby(self._rows_in_order(fid, kind, ascending), itemgetter(0)):
            yield value_of(found), chunks.joined([(block, chunk) for _, block, chunk in of_value])

    def _rows_in_order(self, fid: int, kind: int, ascending: bool) -> Iterator[tuple[Key, int, bytes]]:
        """Page by page, each read to its end: a statement left open would keep its connection in this transaction."""
        page, order, beyond = _FIRST_PAGE, *(("ASC", ">") if ascending else ("DESC", "<"))
        where, bound = _OF_KIND, (fid, kind)
        while rows := self._connection.execute(
                f"SELECT value, block, docids {where} ORDER BY value {order}, block {order} LIMIT {page}", bound).fetchall():
            yield from rows
            where, bound = f"{_OF_KIND} AND (value, block) {beyond} (?, ?)", (fid, kind, *rows[-1][:2])
            page = min(4 * page, _LARGEST_PAGE)

    # Documents

    def field_values(self, field: str, docids: Sequence[int]) -> Iterator[tuple[int, Sequence[Value]]]:
        """(docid, its values, each once) of some documents."""
        name = str(self._fid(field))
        texts = dict(self._facet_rows(docids))
        for docid in docids:
            listed = json.loads(texts[docid]).get(name) if docid in texts else None
            yield docid, Row(listed, self._stored_form).each() if listed else ()

    def spelling(self, field: str, value: str, docid: int) -> str:
        """A text as a document that has it spells it."""
        fid, block = self._fid(field), docid // chunks.BLOCK
        (spelling,) = self._kept(("spelling", fid, value, block), lambda: self._connection.execute(
            "SELECT spelling FROM facets WHERE fid = ? AND kind = ? AND value = ? AND block = ?",
            (fid, KINDS[str], value, block)).fetchone() or (MIXED,))
        if spelling != MIXED:
            return value if spelling is None else spelling
        for _, text in self._facet_rows([docid]):
            return rows_of(text, self._stored_form)[fid].values[value] or value
        return value

    def sort_buckets(self, field: str, ascending: bool, candidates: DocIds) -> Iterator[tuple[Value | None, DocIds]]:
        """The candidates by their value of a field: numbers, then texts, then those without; each in the order asked."""
        if self._is_few(field, candidates.bit_count()):
            yield from self._sorted_rows(field, ascending, candidates)
            return
        for kind in (float, str):
            left = candidates & self.kind_docids(field, kind)
            candidates &= ~left
            values = self.ordered_values(field, kind, ascending)
            while left:
                value, docids = next(values)
                if bucket := left & docids:
                    yield value, bucket
                    left ^= bucket
        if candidates:
            yield None, candidates

    def _is_few(self, field: str, documents: int) -> bool:
        """Is it quicker to look into so many documents than to go through the values?"""
        several = [self.few_values(field, kind) for kind in KINDS]
        values = sum(_FEW_DOCUMENTS if few is None else len(few) for few in several)
        return documents <= min(values // 2, _FEW_DOCUMENTS)

    def _sorted_rows(self, field: str, ascending: bool, candidates: DocIds) -> Iterator[tuple[Value | None, DocIds]]:
        best = min if ascending else max
        grouped: dict[tuple[int, Key], list[int]] = {}
        without: list[int] = []
        for docid, values in self.field_values(field, to_docids(candidates)):
            keys = [(KINDS[type(value)], key(value)) for value in values]
            numbers = [each for each in keys if each[0] == NUMBER]
            if keys:
                grouped.setdefault(best(numbers or keys), []).append(docid)  # type: ignore[type-var]
            else:
                without.append(docid)
        for kind in KINDS.values():
            for each in sorted((each for each in grouped if each[0] == kind), reverse=not ascending):
                yield value_of(each[1]), from_docids(grouped[each])
        if without:
            yield None, from_docids(without)


def _is_within(found: Key, low: Key | None, high: Key | None, has_low: bool, has_high: bool) -> bool:
    """Keys of one kind."""
    is_above = low is None or low < found or (has_low and low == found)  # type: ignore[operator]
    return is_above and (high is None or found < high or (has_high and found == high))  # type: ignore[operator]
