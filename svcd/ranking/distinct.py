"""Distinct: which documents stay when each value of a field may be shown once (docs/ranking.md#distinct).

Documents are walked in an order; one that shares a value with a document kept before is left out. Chooses between
reading the values of documents, asking for the documents of values, and doc values, by what is the quickest.
"""
from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from svcd.base.docids import EMPTY, DocIds, first, union_of
from svcd.base.doc_values import DocValues
from svcd.query.reader import Reader, Value

# So many documents are read at once: more while most of them are kept, since each adds a value then; fewer while most
# share their value with the first one.
SMALLEST_BATCH, FIRST_BATCH, LARGEST_BATCH = 8, 32, 4096
# Asking for the documents of a value costs as much as reading so many documents (36,000 films: 10 and 4 microseconds).
VALUE_COST = 3
# Ordinals of doc values that are read in the time that it takes to read one document.
_RANKS_PER_DOCUMENT = 100
# The documents of the values of a field with no more values are kept, and asking for them is quicker.
FEW_VALUES = 1024


class TakenValues(NamedTuple):
    """The values of some documents that are kept. values: all of them, None if they have not been read."""

    docids: DocIds
    values: Sequence[Value] | None


class DistinctResult(NamedTuple):
    """The documents that are kept, and their values."""

    docids: DocIds
    values: TakenValues


class Distinct:
    """The values of one field, of which each may be shown once."""

    def __init__(self, reader: Reader, field: str) -> None:
        self._reader = reader
        self._field = field
        self._kinds: dict[type[Value], DocIds] = {}

    def sharing(self, taken: TakenValues, among: DocIds) -> DocIds:
        """Those of some documents that have one of these values."""
        documents = len(among)
        known = len(taken.docids) if taken.values is None else len(taken.values)
        asking = known * VALUE_COST
        if asking * _RANKS_PER_DOCUMENT > documents:
            doc_values = self._doc_values(among, min(documents, asking))
            if doc_values is not None:
                return self._sharing_by_doc_values(doc_values, taken.docids, among)
        values = self._values_in(taken.docids) if taken.values is None else taken.values
        if asking <= documents:
            return self.having(values) & among
        keys = set(map(_key, values))
        read = self.values_of(among.to_array())
        return DocIds([docid for docid, own in read if not keys.isdisjoint(map(_key, own))])

    def _values_in(self, docids: DocIds) -> Sequence[Value]:
        return [value for _, own in self.values_of(docids.to_array()) for value in own]

    def values_of(self, docids: Sequence[int]) -> Iterator[tuple[int, Sequence[Value]]]:
        """(docid, its values) of some documents, ascending."""
        return self._reader.values.field_values(self._field, docids)

    def having(self, values: Iterable[Value]) -> DocIds:
        """All documents of the index with one of these values."""
        return union_of(self._reader.values.value_docids(self._field, value) for value in values)

    def first(self, docids: DocIds, limit: int | None = None) -> DistinctResult:
        """Walk documents by docid, and keep each that shares no value with one kept before.

        limit: stop when so many are kept.
        """
        without = EMPTY
        if limit is None and len(docids) > FIRST_BATCH:
            with_values = self._with(float) | self._with(str)
            without, docids = docids - with_values, docids & with_values
            doc_values = self._doc_values(docids, len(docids))
            if doc_values is not None:
                kept = self._first_by_doc_values(doc_values, docids)
                return DistinctResult(without | kept, TakenValues(kept, None))
        walk = _Walk(self, docids, limit)
        walk.to_the_end()
        kept = DocIds(walk.kept)
        return DistinctResult(without | kept, TakenValues(kept, walk.values))

    def groups(self, docids: DocIds) -> DocIds:
        """Those that a walk to the end keeps. Cached for the whole index, since every page of it asks for them."""
        if docids != self._reader.all_docids():
            return self.first(docids).docids
        return self._reader.cached(("distinct", self._field), lambda: self.first(docids).docids)

    def _with(self, kind: type[Value]) -> DocIds:
        """The documents of the index with a value of a kind."""
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = self._reader.values.kind_docids(self._field, kind)
        return known

    # By doc values: where there are many documents, and many values

    def _doc_values(self, docids: DocIds, effort: int) -> list[tuple[DocIds, DocValues]] | None:
        """(documents of the index with a value, doc values) for each kind of value; None if another way is quicker.

        effort: how many documents another way would read. No document may have values of both kinds.
        """
        if self._with(float).intersect(self._with(str)):
            return None
        doc_values: list[tuple[DocIds, DocValues]] = []
        for kind in (float, str):
            if not docids.intersect(self._with(kind)):
                continue
            few = self._reader.values.few_values(self._field, kind)
            are_many = few is None or len(few) > FEW_VALUES
            by_docid = self._reader.values.doc_values(self._field, kind, effort) if are_many else None
            if by_docid is None:
                return None
            doc_values.append((self._with(kind), by_docid))
        return doc_values

    def _first_by_doc_values(self, doc_values: Iterable[tuple[DocIds, DocValues]], docids: DocIds) -> DocIds:
        return union_of(by_docid.first_of_each(docids & with_kind, bytearray(by_docid.size))
                        for with_kind, by_docid in doc_values)

    def _sharing_by_doc_values(self, doc_values: Iterable[tuple[DocIds, DocValues]], taken: DocIds, among: DocIds) -> DocIds:
        sharing = EMPTY
        for with_kind, by_docid in doc_values:
            values = bytearray(by_docid.size)
            for _, rank in by_docid.pairs(taken & with_kind):
                values[rank] = 1
            sharing |= by_docid.sharing(values, among & with_kind)
        return sharing


class _Walk:
    """A walk over documents by docid: those kept so far, and their values."""

    def __init__(self, distinct: Distinct, docids: DocIds, limit: int | None) -> None:
        self.kept: list[int] = []
        self.values: list[Value] = []
        self._distinct = distinct
        self._left = docids  # documents to walk over, but those known to share a value with one that is kept
        self._limit = limit
        self._taken: set[Hashable] = set()
        self._size = FIRST_BATCH
        self._asked = 0  # the documents of so many values, from the first one on, are no longer among those left

    @property
    def _is_done(self) -> bool:
        return len(self.kept) == self._limit

    def to_the_end(self) -> None:
        """Walk until all documents are passed, or as many are kept as are wanted."""
        while self._left and not self._is_done:
            batch = first(self._left, self._size)
            self._left -= DocIds(batch)
            kept = self._read(batch)
            if kept * 2 > len(batch) or self._is_asking_slower():
                self._size = min(self._size * 2, LARGEST_BATCH)
                continue
            self._ask()  # values repeat: leave out all documents that have them
            if kept * SMALLEST_BATCH < len(batch):
                self._size = max(self._size // 2, SMALLEST_BATCH)

    def _read(self, docids: Sequence[int]) -> int:
        """Read these documents; how many of them are kept."""
        before = len(self.kept)
        for docid, values in self._distinct.values_of(docids):
            keys = list(map(_key, values))
            if self._taken.isdisjoint(keys) and not self._is_done:
                self.kept.append(docid)
                self.values += values
                self._taken.update(keys)
        return len(self.kept) - before

    def _is_asking_slower(self) -> bool:
        """Does asking for the documents of the values take longer than reading all documents that are left?"""
        return (len(self.values) - self._asked) * VALUE_COST > len(self._left)

    def _ask(self) -> None:
        self._left -= self._distinct.having(self.values[self._asked:])
        self._asked = len(self.values)


def _key(value: Value) -> Hashable:
    """Equal for equal values alone: -0.0 and 0.0 are two."""
    return value or (repr(value),)
