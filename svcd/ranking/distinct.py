"""Distinct: keep one document for each value of a field (docs/ranking.md#distinct).

A walk visits documents in order and excludes each document that shares a value with a document kept before. It uses the
fastest of three methods: read the values of documents, look up the documents of values, or use doc values.
"""
from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from svcd.base.doc_values import DocValues
from svcd.base.docids import EMPTY, DocIds, first, union_of
from svcd.query.reader import Reader, Value

# Number of documents that a walk reads at once: more while most are kept, since each adds a value then; fewer while most
# share the value of the first one.
SMALLEST_BATCH, FIRST_BATCH, LARGEST_BATCH = 8, 32, 4096
# Looking up the documents of a value costs as much as reading VALUE_COST documents (36,000 films: 10 and 4 microseconds).
VALUE_COST = 3
# Number of doc values read in the time of one document.
_RANKS_PER_DOCUMENT = 100
# For a field with up to FEW_VALUES values, the documents of each value are cached, and looking them up is faster.
FEW_VALUES = 1024


class DistinctResult(NamedTuple):
    """The kept documents. with_values: kept documents with a value; values: all values, None if the walk has not read them."""

    docids: DocIds
    with_values: DocIds
    values: Sequence[Value] | None


class Distinct:
    """The values of one field; each value may occur in one hit."""

    def __init__(self, reader: Reader, field: str) -> None:
        self._reader = reader
        self._field = field
        self._kinds: dict[type[Value], DocIds] = {}

    def sharing(self, taken: DistinctResult, among: DocIds) -> DocIds:
        """Return the documents of `among` with a value of a kept document."""
        documents = len(among)
        known = len(taken.with_values) if taken.values is None else len(taken.values)
        asking = known * VALUE_COST
        if asking * _RANKS_PER_DOCUMENT > documents:
            doc_values = self._doc_values(among, min(documents, asking))
            if doc_values is not None:
                sharing = EMPTY
                for with_kind, by_docid in doc_values:
                    ranks = bytearray(by_docid.size)
                    for _, rank in by_docid.pairs(taken.with_values & with_kind):
                        ranks[rank] = 1
                    sharing |= by_docid.sharing(ranks, among & with_kind)
                return sharing
        values = taken.values
        if values is None:
            values = [value for _, own in self.values_of(taken.with_values.to_array()) for value in own]
        if asking <= documents:
            return self.having(values) & among
        keys = set(map(_key, values))
        read = self.values_of(among.to_array())
        return DocIds([docid for docid, own in read if not keys.isdisjoint(map(_key, own))])

    def values_of(self, docids: Sequence[int]) -> Iterator[tuple[int, Sequence[Value]]]:
        """Yield (docid, values) of the documents, ascending."""
        return self._reader.values.field_values(self._field, docids)

    def having(self, values: Iterable[Value]) -> DocIds:
        """Return all documents of the index with one of the values."""
        return union_of(self._reader.values.value_docids(self._field, value) for value in values)

    def first(self, docids: DocIds, limit: int | None = None) -> DistinctResult:
        """Walk the documents by docid, and keep each that shares no value with a document kept before.

        limit: maximum number of documents to keep.
        """
        without = EMPTY
        if limit is None and len(docids) > FIRST_BATCH:
            with_values = self._with(float) | self._with(str)
            without, docids = docids - with_values, docids & with_values
            doc_values = self._doc_values(docids, len(docids))
            if doc_values is not None:
                kept = union_of(by_docid.first_of_each(docids & with_kind, bytearray(by_docid.size))
                                for with_kind, by_docid in doc_values)
                return DistinctResult(without | kept, kept, None)
        walk = _Walk(self, docids, limit)
        walk.to_the_end()
        kept = DocIds(walk.kept)
        return DistinctResult(without | kept, kept, walk.values)

    def groups(self, docids: DocIds) -> DocIds:
        """Return the documents that a complete walk keeps. Cached for the whole index, since each page of it needs them."""
        if docids != self._reader.all_docids():
            return self.first(docids).docids
        return self._reader.cached(("distinct", self._field), lambda: self.first(docids).docids)

    def _with(self, kind: type[Value]) -> DocIds:
        """Return the documents of the index with a value of a kind."""
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = self._reader.values.kind_docids(self._field, kind)
        return known

    # By doc values: where there are many documents, and many values

    def _doc_values(self, docids: DocIds, effort: int) -> list[tuple[DocIds, DocValues]] | None:
        """Return (documents of the index with a value, doc values) for each kind of value; None if another method is faster.

        effort: number of documents that another method would read. Also None if a document has values of both kinds.
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


class _Walk:
    """A walk over documents by docid: the documents kept so far, and their values."""

    def __init__(self, distinct: Distinct, docids: DocIds, limit: int | None) -> None:
        self.kept: list[int] = []
        self.values: list[Value] = []
        self._distinct = distinct
        self._left = docids  # documents still to visit, except those known to share a value with a kept document
        self._limit = limit
        self._taken: set[Hashable] = set()
        self._size = FIRST_BATCH
        self._asked = 0  # the number of values, from the first one on, whose documents have left `_left`

    @property
    def _is_done(self) -> bool:
        return len(self.kept) == self._limit

    def to_the_end(self) -> None:
        """Walk until all documents are visited or the limit is reached."""
        while self._left and not self._is_done:
            batch = first(self._left, self._size)
            self._left -= DocIds(batch)
            before = len(self.kept)
            for docid, values in self._distinct.values_of(batch):
                keys = list(map(_key, values))
                if self._taken.isdisjoint(keys) and not self._is_done:
                    self.kept.append(docid)
                    self.values += values
                    self._taken.update(keys)
            kept = len(self.kept) - before
            is_asking_slower = (len(self.values) - self._asked) * VALUE_COST > len(self._left)
            if kept * 2 > len(batch) or is_asking_slower:
                self._size = min(self._size * 2, LARGEST_BATCH)
                continue
            # Values repeat: exclude all documents with these values.
            self._left -= self._distinct.having(self.values[self._asked:])
            self._asked = len(self.values)
            if kept * SMALLEST_BATCH < len(batch):
                self._size = max(self._size // 2, SMALLEST_BATCH)


def _key(value: Value) -> Hashable:
    """Return a key that tells -0.0 from 0.0."""
    return value or (repr(value),)
