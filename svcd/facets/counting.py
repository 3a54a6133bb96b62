"""Count the values of one field among candidates, by the cheapest strategy.

The two strategies here find all values at once: they read the documents, or intersect the cached sets of all values. The
strategies for fields with many values are in svcd.facets.large_fields.
Source: docs/filters-and-facets.md#counting-strategies.
"""
from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, compress, groupby

from svcd.base.docids import DocIds
from svcd.facets.large_fields import CountsByValueScan
from svcd.facets.values import (DOCUMENT_COST, FEW_CANDIDATES, SURELY_FEW, OrdinalLookup, ValueCount, ValueCounts, cost_of_values,
                                few_values, ordinal_lookup)
from svcd.query.reader import Reader, Value


class FieldCounter:
    """The value counts of one field among candidates, for both kinds of values. Documents are read once for both."""

    def __init__(self, reader: Reader, field: str, candidates: DocIds) -> None:
        self._reader = reader
        self._field = field
        self._candidates = candidates
        self._size = len(candidates)
        self._from_documents: dict[type[Value], CountsByDocument] | None = None

    def of(self, kind: type[Value]) -> ValueCounts:
        """Return the value counts of a kind (float or str), by the cheapest strategy."""
        if self._size <= SURELY_FEW:
            return self.by_documents(kind)
        values, sets = few_values(self._reader, self._field, kind)
        if values is None:
            if self._size <= FEW_CANDIDATES:
                return self.by_documents(kind)
            return self._scan(kind, may_read_documents=True)
        if not values:
            return NO_COUNTS
        if self._size * DOCUMENT_COST <= cost_of_values(values, sets is not None):
            return self.by_documents(kind)
        if sets is None:
            return self._scan(kind, may_read_documents=False)
        return counts_by_value_sets(values, sets, self._candidates, lambda: ordinal_lookup(self._reader, self._field, kind))

    def _scan(self, kind: type[Value], may_read_documents: bool) -> CountsByValueScan:
        read_documents = (lambda: self.by_documents(kind)) if may_read_documents else None
        return CountsByValueScan(self._reader, self._field, kind, self._candidates, self._size, read_documents)

    def by_documents(self, kind: type[Value]) -> CountsByDocument:
        """Return the value counts of a kind, by reading every candidate."""
        if self._from_documents is None:
            self._from_documents = counts_by_documents(self._reader, self._field, self._candidates)
        return self._from_documents[kind]


# All values at once


Docids = DocIds | list[int]  # a set, or ascending docids


class CountsByDocument:
    """Value counts that are all known.

    values: ascending. counts: of each value. docids: index of a value -> the candidates that have it; ordinals: returns
    the ordinals of all values of the field. Both are called on demand, once each.
    """

    def __init__(self, values: Sequence[Value], counts: Sequence[int], docids: Callable[[int], Docids],
                 ordinals: Callable[[], OrdinalLookup]) -> None:
        self._values = values
        self._counts = counts
        self._docids = cache(docids)
        self._ordinals = cache(ordinals)
        self._known_ordinals: dict[int, int] = {}  # by index

    def _value_count(self, index: int) -> ValueCount:
        return ValueCount(self._values[index], self._counts[index], index)

    def ascending(self, most: int | None = None) -> Iterator[ValueCount]:
        return map(self._value_count, range(len(self._values)))

    def by_count(self, most: int) -> Iterator[Iterable[ValueCount]]:
        descending = range(len(self._values) - 1, -1, -1)
        ordered = sorted(descending, key=self._counts.__getitem__, reverse=True)
        return (map(self._value_count, equal) for _, equal in groupby(ordered, key=self._counts.__getitem__))

    def value(self, counted: ValueCount) -> Value:
        return self._values[counted.key]

    def first_docid(self, counted: ValueCount) -> int:
        return self._first_docid(counted.key)

    def _first_docid(self, index: int) -> int:
        docids = self._docids(index)
        return docids[0] if isinstance(docids, list) else docids.min()

    def is_alone_in_group(self, counted: ValueCount, width: int) -> bool:
        own, group = self._docids(counted.key), self._ordinal_of(counted.key) // width
        for step in (1, -1):
            index = counted.key + step
            while 0 <= index < len(self._values) and self._ordinal_of(index) // width == group:
                other = self._docids(index)  # one CountsByDocument has only sets or only lists
                if not (set(other) <= set(own) if isinstance(other, list) or isinstance(own, list) else other.issubset(own)):
                    return False
                index += step
        return True

    def _ordinal_of(self, index: int) -> int:
        ordinal = self._known_ordinals.get(index)
        if ordinal is None:
            ordinal = self._known_ordinals[index] = self._ordinals().of(self._values[index], self._first_docid(index))
        return ordinal

    def number_of_values(self) -> int:
        return len(self._ordinals())

    def extremes(self) -> tuple[Value, Value] | None:
        return (self._values[0], self._values[-1]) if self._values else None


def _no_ordinals() -> OrdinalLookup:
    raise AssertionError("no values, so no ordinals")


NO_COUNTS = CountsByDocument([], [], [].__getitem__, _no_ordinals)




def counts_by_value_sets(values: Sequence[Value], sets: Sequence[DocIds], candidates: DocIds,
                         ordinals: Callable[[], OrdinalLookup]) -> CountsByDocument:
    """Return value counts by intersecting sets. values: ascending. sets: the documents of each value."""
    counts = list(map(candidates.intersection_cardinality, sets))
    found = list(compress(sets, counts))
    return CountsByDocument(list(compress(values, counts)), list(filter(None, counts)),
                            lambda index: found[index] & candidates, ordinals)


def counts_by_documents(reader: Reader, field: str, candidates: DocIds) -> dict[type[Value], CountsByDocument]:
    """Return value counts of both kinds, by reading the values of every candidate."""
    rows = [(docid, values) for docid, values in reader.values.field_values(field, candidates.to_array()) if values]
    counts = Counter(chain.from_iterable(values for _, values in rows))
    texts = sorted(value for value in counts if isinstance(value, str))
    docids_of_texts = cache(lambda: _docids_of(texts, rows))
    found = {str: CountsByDocument(texts, [counts[value] for value in texts], lambda index: docids_of_texts()[index],
                           lambda: ordinal_lookup(reader, field, str)), float: NO_COUNTS}
    if len(texts) < len(counts):
        numbers = sorted(value for value in counts if isinstance(value, float))
        listed = list(zip(numbers, _docids_of(numbers, rows)))
        index = bisect_left(listed, 0.0, key=lambda each: each[0])
        if index < len(listed) and listed[index][0] == 0.0:  # -0.0 and 0.0 are two values, but equal: they were counted as one
            docids = list(dict.fromkeys(listed[index][1]))  # a document with both is listed twice
            having = [(zero, reader.values.value_docids(field, zero)) for zero in (-0.0, 0.0)]
            zeros = [(zero, [docid for docid in docids if docid in those]) for zero, those in having]
            listed[index : index + 1] = [(zero, docids) for zero, docids in zeros if docids]
        found[float] = CountsByDocument([number for number, _ in listed], [len(docids) for _, docids in listed],
                                       lambda index: listed[index][1], lambda: ordinal_lookup(reader, field, float))
    return found


def _docids_of(values: Iterable[Value], rows: Iterable[tuple[int, Sequence[Value]]]) -> list[list[int]]:
    """Return the docids of each value, ascending."""
    docids: Mapping[Value, list[int]] = {value: [] for value in values}
    for docid, held in rows:
        for value in held:
            if value in docids:
                docids[value].append(docid)
    return list(docids.values())
