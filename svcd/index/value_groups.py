"""Groups of neighbouring values: rows with the joined documents of some 128 values, of some 16,384, and so on.

A range is then the union of a few rows however many values it has, and an ordered scan for few documents skips the groups
without these documents. The groups depend only on the values: a group begins at each value whose hash says so, and ends before
the next such value. So the same values have the same groups independent of earlier writes, and a write changes only the groups of
its own values. Values before the first group of a level are in no group of it.

While rows of values are written, the writer notes their groups; the groups themselves are written once, at the end of a savepoint
or transaction. A few edits of each group are noted. After more edits, and where groups are divided or joined, a group is rebuilt
from the level beneath, which takes about as long as four such edits. See docs/storage.md#groups-of-values.
"""
from __future__ import annotations

import sqlite3
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

from svcd.base.docids import EMPTY, DocIds, to_bytes
from svcd.index.bitmap_blocks import WHOLE, Row, edited_set_rows, joined_blocks, set_rows

Key = int | bytes | str  # a flag, a number, a text: see svcd.index.value_writer

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
    """Return the highest level on which a number or text begins a group; 0 for most values."""
    encoded: Any = key.encode() if isinstance(key, str) else key
    hashed = crc32(encoded) * _MIXER & (1 << _HASH_BITS) - 1
    return min((_HASH_BITS - hashed.bit_length()) // _LEVEL_BITS, LEVELS)


class KeyRange(NamedTuple):
    """The keys of a kind from `low` to `high`, None for no bound. has_low, has_high: whether the bounds are in the range."""

    low: Key | None = None
    high: Key | None = None
    has_low: bool = True
    has_high: bool = False

    def holds(self, key: Any) -> bool:
        """Return whether a key of this kind is in the range."""
        is_above = self.low is None or self.low < key or (self.has_low and self.low == key)
        return is_above and (self.high is None or key < self.high or (self.has_high and self.high == key))

    def condition(self, column: str) -> str:
        """Return the SQL condition that a column is in the range, to follow other conditions. Its parameters are the bounds."""
        return (f" AND {column} >{'=' * self.has_low} ?" * (self.low is not None)
                + f" AND {column} <{'=' * self.has_high} ?" * (self.high is not None))

    @property
    def bounds(self) -> Sequence[Key]:
        """The existing bounds."""
        return [bound for bound in (self.low, self.high) if bound is not None]


ALL_KEYS = KeyRange()


class ValueGroups:
    """The groups of the values of one kind in a field, read through a connection."""

    def __init__(self, connection: sqlite3.Connection, fid: int, kind: int) -> None:
        self._connection = connection
        self._field = (fid, kind)

    def _select(self, what: str, level: int, keys: KeyRange, rest: str = "") -> sqlite3.Cursor:
        return self._connection.execute(f"SELECT {what} {OF_LEVEL}{keys.condition('first')}{rest}",
                                        (*self._field, level, *keys.bounds))

    def range_docids(self, keys: KeyRange) -> DocIds:
        """The documents that have a value in a range."""
        return joined_blocks(self._rows(LEVELS, keys, keys.high is None))

    def group(self, level: int, first: Key) -> KeyRange:
        """Return the values of the group that begins at `first`."""
        (end,) = self._select("min(first)", level, KeyRange(first, has_low=False)).fetchone()
        return KeyRange(first, end)

    def group_docids(self, level: int, first: Key) -> DocIds:
        """Return the documents of the group that begins at `first`, read from the level beneath."""
        return joined_blocks(self._rows(level - 1, self.group(level, first), True))

    def _rows(self, level: int, keys: KeyRange, is_end: bool) -> list[Row]:
        """Return the rows of groups that cover a range, of lower levels at its ends. is_end: whether a group ends with it."""
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

    def ranges_of(self, docids: DocIds, ascending: bool, level: int = LEVELS,
                  keys: KeyRange = ALL_KEYS) -> Iterator[tuple[KeyRange, DocIds | None]]:
        """Yield ranges that cover the values of some documents, in order, with the documents that have a value in each.

        Before the first group these are not known: None. level, keys: where to look.
        """
        if not level:
            yield keys, None
            return
        begin = self._select("min(first)", level, keys).fetchone()[0]
        before = keys if begin is None else None if begin == keys.low else KeyRange(keys.low, begin)
        if before and ascending:
            yield from self.ranges_of(docids, ascending, level - 1, before)
        if begin is not None:
            for group, found in self._groups(level, docids, ascending, keys):
                if level > 1:
                    yield from self.ranges_of(found, ascending, level - 1, group)
                else:
                    yield group, found
        if before and not ascending:
            yield from self.ranges_of(docids, ascending, level - 1, before)

    def _groups(self, level: int, docids: DocIds, ascending: bool, keys: KeyRange) -> Iterator[tuple[KeyRange, DocIds]]:
        """Yield the groups that have any of some documents, in order, with these documents."""
        last: tuple[Key, DocIds] | None = None
        beyond = keys.high
        pages = rows_in_order(self._connection, "first", f"{OF_LEVEL}{keys.condition('first')}",
                              (*self._field, level, *keys.bounds), ascending, _FIRST_PAGE, _LARGEST_PAGE)
        for first, rows in groupby(pages, itemgetter(0)):
            group = joined_blocks([(row[2],) for row in rows])
            found = group & docids if group.intersect(docids) else EMPTY  # a few documents are in few groups
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


def rows_in_order(connection: sqlite3.Connection, key: str, source: str, bound: Sequence[Any], ascending: bool,
                  first_page: int, largest_page: int) -> Iterator[OrderedRow]:
    """Yield rows by a column and by block, in pages, since an open statement would keep its connection in the transaction.

    source: `FROM` and `WHERE`, with the parameters `bound`. first_page, largest_page: rows of a page; each next page is four
    times as large.
    """
    order, beyond, page = *(("ASC", ">") if ascending else ("DESC", "<")), first_page
    rest: tuple[Any, ...] = ()
    while rows := connection.execute(
            f"SELECT {key}, block, docids {source}{f' AND ({key}, block) {beyond} (?, ?)' if rest else ''} "
            f"ORDER BY {key} {order}, block {order} LIMIT {page}", (*bound, *rest)).fetchall():
        yield from rows
        rest = rows[-1][:2]
        page = min(4 * page, largest_page)


# Noted edits of a group.
_MOST_NOTED = 64
# For more values in one write, the first values of all groups of the field are read with one query.
_FEW_VALUES = 50

# The written groups of the first level, by their first value: docids in the order of edits, ~docid for a document that lost a
# value; None for a group that is rebuilt.
Touched = dict[Key, "list[int] | None"]
_Group = tuple[int, int, int, Key]  # fid, kind, level, first


class ValueGroupWriter:
    """Writes inside a transaction. keys_of: (docid, fid, kind) -> the keys of the values that the document has now."""

    def __init__(self, connection: sqlite3.Connection, keys_of: Callable[[int, int, int], Iterable[Key]]) -> None:
        self._connection = connection
        self._keys_of = keys_of
        self.forget()

    def forget(self) -> None:
        """Discard the noted edits."""
        self._touched: dict[tuple[int, int], Touched] = {}
        self._beginnings: dict[tuple[int, int], list[Any]] = {}

    def note(self, fid: int, kind: int, edits: Mapping[Key, Sequence[int]]) -> None:
        """Note the edits of the rows of some values: docid, or ~docid for a document that lost the value."""
        for key in edits:
            if level_of(key):
                self._note_beginning(fid, kind, key)
        touched = self._touched.setdefault((fid, kind), {})
        for first, key in self._groups_of(fid, kind, edits):
            noted = touched.setdefault(first, [])
            if noted is not None:
                noted += edits[key]
                if len(noted) > _MOST_NOTED:
                    touched[first] = None

    def _note_beginning(self, fid: int, kind: int, key: Key) -> None:
        """Divide a group at a new value that begins a group, or join two groups where that value is gone."""
        exists, existed = (self._connection.execute(f"SELECT 1 {where} = ? LIMIT 1", (fid, kind, key)).fetchone() for where in (
            f"{OF_KIND} AND value", "FROM value_groups WHERE fid = ? AND kind = ? AND level = 1 AND first"))
        if exists == existed:
            return
        touched, beginnings = self._touched.setdefault((fid, kind), {}), self._beginnings.get((fid, kind))
        if exists:
            self._connection.executemany(_PUT, [(fid, kind, level, key, WHOLE, b"") for level in range(1, level_of(key) + 1)])
            touched[key] = None
            if beginnings is not None:
                insort(beginnings, key)
        else:
            self._connection.execute("DELETE FROM value_groups WHERE fid = ? AND kind = ? AND level <= ? AND first = ?",
                                     (fid, kind, LEVELS, key))
            touched.pop(key, None)
            if beginnings is not None:
                beginnings.remove(key)
        before = self._group_of(fid, kind, 1, key, "<")
        if before is not None:
            touched[before] = None

    def _groups_of(self, fid: int, kind: int, keys: Collection[Key]) -> Iterable[tuple[Key, Key]]:
        """Yield (first value of its group of the first level, key) for the keys that are in a group."""
        beginnings = self._beginnings.get((fid, kind))
        if beginnings is None:
            if len(keys) <= _FEW_VALUES:
                found = [(self._group_of(fid, kind, 1, key), key) for key in keys]
                return [(first, key) for first, key in found if first is not None]
            beginnings = self._beginnings[fid, kind] = [first for (first,) in self._connection.execute(
                f"SELECT DISTINCT first {OF_LEVEL} ORDER BY first", (fid, kind, 1))]
        found_at = [(bisect_right(beginnings, key), key) for key in keys]
        return [(beginnings[index - 1], key) for index, key in found_at if index]

    def _group_of(self, fid: int, kind: int, level: int, key: Key, at_most: str = "<=") -> Key | None:
        """Return the first value of the group of a level that has a key; None for keys before the first group."""
        found: Key | None = self._connection.execute(f"SELECT max(first) {OF_LEVEL} AND first {at_most} ?",
                                                     (fid, kind, level, key)).fetchone()[0]
        return found

    def write(self) -> None:
        """Write the groups of all noted values. The rows of documents must be written before."""
        noted = self._touched
        self.forget()
        for (fid, kind), touched in noted.items():
            keys_of = cache(lambda docid, fid=fid, kind=kind: self._keys_of(docid, fid, kind))
            for level in range(1, LEVELS + 1):
                for first, edits in touched.items():
                    self._write_group((fid, kind, level, first), edits, keys_of)
                above: Touched = {}
                for below, edits in touched.items() if level < LEVELS else ():
                    group = self._group_of(fid, kind, level + 1, below)
                    if group is not None:
                        noted_above = above.get(group, ())
                        above[group] = None if noted_above is None or edits is None else [*noted_above, *edits]
                touched = above

    def _write_group(self, group: _Group, edits: Sequence[int] | None, keys_of: Callable[[int], Iterable[Key]]) -> None:
        fid, kind, level, first = group
        groups = ValueGroups(self._connection, fid, kind)
        stored = dict(self._connection.execute(f"SELECT block, docids {OF_LEVEL} AND first = ?", group))
        if edits is None:
            fresh = dict(set_rows(groups.group_docids(level, first)))
            self._put(group, stored, {block: to_bytes(docids) for block, docids in fresh.items()})
            return
        lost = {~edit for edit in edits if edit < 0}
        values = groups.group(level, first) if lost else ALL_KEYS
        kept = {docid for docid in lost if any(map(values.holds, keys_of(docid)))}
        added = DocIds([edit for edit in edits if edit >= 0 and edit not in lost] + list(kept))
        self._put(group, stored, edited_set_rows(stored, added, DocIds(list(lost - kept))))

    def _put(self, group: _Group, stored: Mapping[int, bytes], fresh: Mapping[int, bytes]) -> None:
        self._connection.executemany(f"DELETE {OF_LEVEL} AND first = ? AND block = ?",
                                     [(*group, block) for block in stored.keys() - fresh.keys()])
        self._connection.executemany(_PUT, [(*group, *row) for row in fresh.items() - stored.items()])

    def clear(self) -> None:
        """Delete all groups."""
        self.forget()
        self._connection.execute("DELETE FROM value_groups")

    def drop_fields(self, fids: Iterable[int]) -> None:
        """Delete the groups of some fields."""
        for fid in fids:
            for noted in [key for key in self._touched if key[0] == fid]:
                del self._touched[noted]
                self._beginnings.pop(noted, None)
            self._connection.execute("DELETE FROM value_groups WHERE fid = ?", (fid,))


_PUT = "INSERT OR REPLACE INTO value_groups(fid, kind, level, first, block, docids) VALUES (?, ?, ?, ?, ?, ?)"
