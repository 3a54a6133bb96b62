"""Groups of neighbouring values: the joined documents of some 128 values, of some 16,384, and so on, as rows of their own.

A range is then the union of a few rows however many values it has, and a walk over the values of few documents passes over the
groups that have none of them. The groups follow from the values alone: one begins at each value whose hash says so, and
reaches to before the next such value. So the same values have the same groups whatever was written before, and a write
changes the groups of its own values only. Values before the first group of a level are in none.
See docs/storage.md#groups-of-values.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

from svcd.base.docids import EMPTY, DocIds
from svcd.index.bitmap_blocks import Row, joined_blocks

Key = int | bytes | str  # of a flag, a number, a text: see svcd.index.value_writer

# One value in 128 begins a group, one in 16,384 a group of the second level, one in 2,097,152 a group of the third. With 256,
# ranges take 1.5 times as long; with 64, the file grows by 7 % instead of 5 % (300,000 documents of six values).
LEVELS, _LEVEL_BITS = 3, 7
_HASH_BITS = 32
_MIXER = 2_654_435_761  # the golden ratio: CRC-32 by itself gives regular numbers regular hashes

OF_KIND = "FROM value_postings WHERE fid = ? AND kind = ?"
OF_LEVEL = "FROM value_groups WHERE fid = ? AND kind = ? AND level = ?"
_FIRST_PAGE, _LARGEST_PAGE = 16, 256  # rows

OrderedRow = tuple[Key, int, bytes]  # key, block, documents


def level_of(key: Key) -> int:
    """The highest level on which a group begins at the value of a number or text; 0 for most of them."""
    encoded: Any = key.encode() if isinstance(key, str) else key
    hashed = crc32(encoded) * _MIXER & (1 << _HASH_BITS) - 1
    return min((_HASH_BITS - hashed.bit_length()) // _LEVEL_BITS, LEVELS)


class KeyRange(NamedTuple):
    """The keys of a kind from `low` to `high`, None for no bound. has_low, has_high: do the bounds belong to the range?"""

    low: Key | None = None
    high: Key | None = None
    has_low: bool = True
    has_high: bool = False

    def holds(self, key: Any) -> bool:
        """Is a key of this kind within the range?"""
        is_above = self.low is None or self.low < key or (self.has_low and self.low == key)
        return is_above and (self.high is None or key < self.high or (self.has_high and self.high == key))

    def condition(self, column: str) -> str:
        """The SQL for a column that is within the range, to follow other conditions; its parameters are the bounds."""
        return (f" AND {column} >{'=' * self.has_low} ?" * (self.low is not None)
                + f" AND {column} <{'=' * self.has_high} ?" * (self.high is not None))

    @property
    def bounds(self) -> Sequence[Key]:
        """Those of the two bounds that there are."""
        return [bound for bound in (self.low, self.high) if bound is not None]


ALL_KEYS = KeyRange()


class ValueGroups:
    """The groups of the values of one kind in a field, as a connection sees them."""

    def __init__(self, connection: sqlite3.Connection, fid: int, kind: int) -> None:
        self._connection = connection
        self._field = (fid, kind)

    def _select(self, what: str, level: int, keys: KeyRange, rest: str = "") -> sqlite3.Cursor:
        return self._connection.execute(f"SELECT {what} {OF_LEVEL}{keys.condition('first')}{rest}",
                                        (*self._field, level, *keys.bounds))

    # Sets

    def range_docids(self, keys: KeyRange) -> DocIds:
        """The documents that have a value in a range."""
        return joined_blocks(self._rows(LEVELS, keys, keys.high is None))

    def group(self, level: int, first: Key) -> KeyRange:
        """The values of the group that begins at one."""
        (end,) = self._select("min(first)", level, KeyRange(first, has_low=False)).fetchone()
        return KeyRange(first, end)

    def group_docids(self, level: int, first: Key) -> DocIds:
        """The documents of the group that begins at a value, from the level beneath."""
        return joined_blocks(self._rows(level - 1, self.group(level, first), True))

    def _rows(self, level: int, keys: KeyRange, is_end: bool) -> list[Row]:
        """The rows of the groups within a range, of the levels beneath for what is beside them. is_end: do groups end with it?"""
        if not level:
            return self._connection.execute(f"SELECT docids {OF_KIND}{keys.condition('value')}",
                                            (*self._field, *keys.bounds)).fetchall()
        start, end = self._select("min(first)", level, keys).fetchone()[0], keys.high
        if start is None:
            return self._rows(level - 1, keys, is_end)
        found: list[Row] = []
        if start != keys.low:
            found += self._rows(level - 1, KeyRange(keys.low, start, keys.has_low), True)
        if not is_end:
            (end,) = self._select("max(first)", level, keys).fetchone()
            found += self._rows(level - 1, KeyRange(end, keys.high, True, keys.has_high), False)
        return found + self._select("docids", level, KeyRange(start, end)).fetchall()

    # In order

    def ranges_of(self, docids: DocIds, ascending: bool) -> Iterator[tuple[KeyRange, DocIds | None]]:
        """Ranges of values that some documents have, in order, and those of the documents that have a value within each.

        Before the first group they are not known: None.
        """
        return self._ranges(LEVELS, docids, ascending, ALL_KEYS)

    def _ranges(self, level: int, docids: DocIds, ascending: bool, keys: KeyRange) -> Iterator[tuple[KeyRange, DocIds | None]]:
        if not level:
            yield keys, None
            return
        begin = self._select("min(first)", level, keys).fetchone()[0]
        before = keys if begin is None else None if begin == keys.low else KeyRange(keys.low, begin)
        if before and ascending:
            yield from self._ranges(level - 1, docids, ascending, before)
        if begin is not None:
            for group, found in self._groups(level, docids, ascending, keys):
                if level > 1:
                    yield from self._ranges(level - 1, found, ascending, group)
                else:
                    yield group, found
        if before and not ascending:
            yield from self._ranges(level - 1, docids, ascending, before)

    def _groups(self, level: int, docids: DocIds, ascending: bool, keys: KeyRange) -> Iterator[tuple[KeyRange, DocIds]]:
        """The groups that some documents are in, in order, and which of the documents."""
        last: tuple[Key, DocIds] | None = None
        beyond = keys.high
        for first, rows in groupby(self._pages(level, ascending, keys), itemgetter(0)):
            group = joined_blocks([(row[2],) for row in rows])
            found = group & docids if group.intersect(docids) else EMPTY  # most groups have none of a few documents
            if ascending:
                if last and last[1]:
                    yield KeyRange(last[0], first), last[1]
                last = first, found
            else:
                if found:
                    yield KeyRange(first, beyond), found
                beyond = first
        if last and last[1]:
            yield KeyRange(last[0], keys.high), last[1]

    def _pages(self, level: int, ascending: bool, keys: KeyRange) -> Iterator[OrderedRow]:
        return rows_in_order(self._connection, "first", f"{OF_LEVEL}{keys.condition('first')}",
                             (*self._field, level, *keys.bounds), ascending, _FIRST_PAGE, _LARGEST_PAGE)


def rows_in_order(connection: sqlite3.Connection, key: str, source: str, bound: Sequence[Any], ascending: bool,
                  first_page: int, largest_page: int) -> Iterator[OrderedRow]:
    """Rows by a column and by block, in pages of so many: a statement left open would keep its connection in the transaction.

    source: `FROM` and `WHERE`, with the parameters `bound`. A page has four times as many rows as the one before.
    """
    order, beyond, page = *(("ASC", ">") if ascending else ("DESC", "<")), first_page
    rest: tuple[Any, ...] = ()
    while rows := connection.execute(
            f"SELECT {key}, block, docids {source}{f' AND ({key}, block) {beyond} (?, ?)' if rest else ''} "
            f"ORDER BY {key} {order}, block {order} LIMIT {page}", (*bound, *rest)).fetchall():
        yield from rows
        rest = rows[-1][:2]
        page = min(4 * page, largest_page)
