"""Which documents stay when each value of a field may be shown once (relevance.md 3.14).

Knows how to choose the first document of each value without reading more of them than it must; refuses
to know which documents are asked about, and when. A document that shares no value with a kept one is kept, so are
all without any.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Hashable, NamedTuple

from svcd.bitsets import from_docids, to_docids
from svcd.engine.reader import DocIds, Reader, Value

# So many documents are looked into at once: more as long as most of them are kept, as each adds a value then, fewer
# while most share their value with the first one.
_SMALLEST_BATCH, _FIRST_BATCH, _LARGEST_BATCH = 8, 32, 4096
# To ask who has a value costs as much as to look into so many documents (36,000 films: 10 and 4 microseconds).
_VALUE_COST = 3


class Kept(NamedTuple):
    """The documents that stay, and the values that they have."""

    docids: DocIds
    values: Sequence[Value]


class Distinct:
    """The values of one field, of which each may be shown once."""

    def __init__(self, reader: Reader, field: str) -> None:
        self._reader = reader
        self._field = field
        self._valued: DocIds | None = None

    def sharing(self, values: Sequence[Value], among: DocIds) -> DocIds:
        """Those of some documents that have one of these values."""
        if len(values) * _VALUE_COST <= among.bit_count():
            return self._having(values) & among
        keys = set(map(_key, values))
        read = self._reader.field_values(self._field, to_docids(among))
        return from_docids([docid for docid, own in read if not keys.isdisjoint(map(_key, own))])

    def _having(self, values: Iterable[Value]) -> DocIds:
        docids = 0
        for value in values:
            docids |= self._reader.value_docids(self._field, value)
        return docids

    def first(self, docids: DocIds, limit: int | None = None) -> Kept:
        """Walk documents by docid, and keep each that shares no value with one kept before.

        limit: stop when so many are kept.
        """
        walk = _Walk(self._reader, self._field, limit)
        without = 0
        if limit is None and docids.bit_count() > _FIRST_BATCH:
            without, docids = docids & ~self._with_values(), docids & self._with_values()
        size, pending = _FIRST_BATCH, 0
        while docids and not walk.is_done:
            batch = to_docids(docids, size)
            docids = docids >> batch[-1] + 1 << batch[-1] + 1
            kept, fresh = walk.add(batch), walk.values[pending:]
            if kept * 2 > len(batch) or len(fresh) * _VALUE_COST > docids.bit_count():
                size = min(size * 2, _LARGEST_BATCH)
            else:  # values are met again and again: rather drop all documents that have them
                docids &= ~self._having(fresh)
                pending = len(walk.values)
                if kept * _SMALLEST_BATCH < len(batch):
                    size = max(size // 2, _SMALLEST_BATCH)
        return Kept(without | from_docids(walk.kept), walk.values)

    def groups(self, docids: DocIds) -> DocIds:
        """Those that a walk to the end keeps. Pages of a whole index ask for it each time, so that it is remembered."""
        remembered = getattr(self._reader, "remembered", None)
        if remembered is None or docids != self._reader.all_docids():
            return self.first(docids).docids
        return remembered(("distinct", self._field), lambda: self.first(docids).docids)

    def _with_values(self) -> DocIds:
        if self._valued is None:
            self._valued = self._reader.kind_docids(self._field, float) | self._reader.kind_docids(self._field, str)
        return self._valued


class _Walk:
    """Documents one after the other: those kept, and their values."""

    def __init__(self, reader: Reader, field: str, limit: int | None) -> None:
        self.kept: list[int] = []
        self.values: list[Value] = []
        self._reader = reader
        self._field = field
        self._limit = limit
        self._taken: set[Hashable] = set()

    @property
    def is_done(self) -> bool:
        """Are as many kept as are wanted?"""
        return len(self.kept) == self._limit

    def add(self, docids: Sequence[int]) -> int:
        """How many more of these documents, which come behind all before, are kept."""
        before = len(self.kept)
        for docid, values in sorted(self._reader.field_values(self._field, docids)):
            keys = list(map(_key, values))
            if self._taken.isdisjoint(keys) and not self.is_done:
                self.kept.append(docid)
                self.values += values
                self._taken.update(keys)
        return len(self.kept) - before


def _key(value: Value) -> Hashable:
    """Equal for equal values alone: -0.0 and 0.0 are two."""
    return value or (repr(value),)
