"""Keeps the groups of neighbouring values in step with the rows of values: see svcd.index.value_groups.

While rows of values are written, the writer notes their groups; the groups themselves are written once, at the end of a savepoint
or transaction. A few edits of each group are noted. After more edits, and where groups are divided or joined, a group is rebuilt
from the level beneath, which takes about as long as four such edits.
"""
from __future__ import annotations

import sqlite3
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from svcd.base.docids import DocIds, to_bytes
from svcd.index.bitmap_blocks import WHOLE, edited_set_rows, set_rows
from svcd.index.value_groups import ALL_KEYS, LEVELS, OF_KIND, OF_LEVEL, Key, ValueGroups, level_of

# Noted edits of a group.
_MOST_NOTED = 64
# For more values in one write, the first values of all groups of the field are read with one query.
_FEW_VALUES = 50

# The written groups of the first level, by their first value: docids in the order of edits, ~docid for a document that lost a
# value; None for a group that is rebuilt.
Touched = dict[Key, "list[int] | None"]
_Group = tuple[int, int, int, Key]  # fid, kind, level, first


class ValueGroupWriter:
    """Writes through a connection that is inside a transaction.

    keys_of: (docid, fid, kind) -> the keys of the values that the document has now.
    """

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

    # Writing

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

    # All at once

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
