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

# So many documents are looked into at once; more as long as most of them are kept, as each adds a value then.
_FIRST_BATCH = 32
_LARGEST_BATCH = 4096


class Kept(NamedTuple):
    """The documents that stay, and the values that they have."""

    docids: DocIds
    values: Sequence[Value]


class Distinct:
    """The values of one field, of which each may be shown once."""

    def __init__(self, reader: Reader, field: str) -> None:
        self._reader = reader
        self._field = field
        self._having: DocIds | None = None

    def sharing(self, values: Iterable[Value]) -> DocIds:
        """All documents of the index with one of these values."""
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
            kept = walk.add(batch)
            if kept * 2 > len(batch):
                size = min(size * 2, _LARGEST_BATCH)
            elif docids:  # values are met again and again: rather drop all documents that have them
                docids &= ~self.sharing(walk.values[pending:])
                pending = len(walk.values)
        return Kept(without | from_docids(walk.kept), walk.values)

    def _with_values(self) -> DocIds:
        if self._having is None:
            self._having = self._reader.kind_docids(self._field, float) | self._reader.kind_docids(self._field, str)
        return self._having


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
