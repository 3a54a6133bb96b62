"""Count the values of one field among candidates, by the cheapest strategy.

One strategy reads the documents, or intersects the cached sets of all values. For fields with many values, two others scan the
values in ascending order, or count ordinals. Source: docs/filters-and-facets.md#counting-strategies.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import chain, compress, groupby
from operator import attrgetter
from sys import maxsize
from typing import NamedTuple, Protocol

from svcd.base.doc_values import DocValues
from svcd.base.docids import DocIds
from svcd.facets.values import OrdinalLookup, doc_values_of, few_values, ordinal_lookup, sorted_values, values_of_document
from svcd.query.reader import Reader, Value

# The unit of all costs is one value of a scan: reading its set and intersecting it with the candidates, some 7 us in an
# index of 36,000 documents.
# Reading and counting the values of one document:
DOCUMENT_COST = 2
# Up to this number of candidates, their documents are read rather than a field with many values scanned.
FEW_CANDIDATES = 250
# Up to this number of candidates, their documents are read without checking the field.
SURELY_FEW = 20
# The cost of a value whose set is cached.
CACHED_COST = 0.3


class ValueCount(NamedTuple):
    """A value and the number of candidates that have it.

    value: None if ValueCounts.value() must find it. key: the identity of the value for a strategy that knows all values at
    once.
    """

    value: Value | None
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    key: int = -1


class ValueCounts(Protocol):
    """The values of one kind among the candidates."""

    def ascending(self, most: int | None = None) -> Iterator[ValueCount]:
        """All values in ascending order, found lazily. most: roughly the most values that will be read; None for all."""

    def by_count(self, most: int) -> Iterator[Iterable[ValueCount]]:
        """All values by descending count: for each count its values, in descending order.

        most: roughly the most values that will be read.
        """

    def value(self, entry: ValueCount) -> Value:
        """The value of an entry."""

    def first_docid(self, entry: ValueCount) -> int:
        """The smallest docid among the candidates that have the value."""

    def is_alone_in_group(self, entry: ValueCount, width: int) -> bool:
        """Whether only the candidates with this value have any value of its group.

        A group is `width` consecutive values of all values of the field.
        """

    def number_of_values(self) -> int:
        """The number of values of this kind that the field has in the whole index."""

    def extremes(self) -> tuple[Value, Value] | None:
        """The smallest and the largest value; None without values."""


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
            read_documents = partial(self.by_documents, kind)
            return CountsByValueScan(self._reader, self._field, kind, self._candidates, self._size, read_documents)
        if not values:
            return NO_COUNTS
        if self._size * DOCUMENT_COST <= len(values) * (1 if sets is None else CACHED_COST):
            return self.by_documents(kind)
        if sets is None:
            return CountsByValueScan(self._reader, self._field, kind, self._candidates, self._size, None)
        counts = list(map(self._candidates.intersection_cardinality, sets))
        found = list(compress(sets, counts))
        ordinals = partial(ordinal_lookup, self._reader, self._field, kind)
        return CountsByDocument(list(compress(values, counts)), list(filter(None, counts)),
                                lambda index: found[index] & self._candidates, ordinals)

    def by_documents(self, kind: type[Value]) -> CountsByDocument:
        """Return the value counts of a kind, by reading the values of every candidate."""
        if self._from_documents is None:
            self._from_documents = counts_by_documents(self._reader, self._field, self._candidates)
        return self._from_documents[kind]


Docids = DocIds | list[int]  # a set, or ascending docids


class CountsByDocument:
    """Value counts that are all known.

    values: ascending. counts: of each value. docids: index of a value -> the candidates that have it; ordinals: returns
    the lookup of ordinals of the field. Both are called on demand, once each.
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
        return self._ordinals().size

    def extremes(self) -> tuple[Value, Value] | None:
        return (self._values[0], self._values[-1]) if self._values else None


def _no_ordinals() -> OrdinalLookup:
    raise AssertionError("no values, so no ordinals")


NO_COUNTS = CountsByDocument([], [], [].__getitem__, _no_ordinals)


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


# Fields with many values

# A scan skips groups of about GROUP_VALUES values without candidates; GROUP_COST is the cost of each.
GROUP_VALUES, GROUP_COST = 128, 0.6

_COUNT = attrgetter("count")


class CountsByValueScan:
    """Value counts by a scan of the values of the candidates in ascending order.

    If that would take longer than reading all candidates, CountsByOrdinal is used instead, or the candidates are read while
    the doc values of the field are not loaded. The order by count always uses CountsByOrdinal.
    size: the number of candidates. read_documents: counts by reading them; None for fields with few values, where the
    scan is always quicker.
    """

    def __init__(self, reader: Reader, field: str, kind: type[Value], candidates: DocIds, size: int,
                 read_documents: Callable[[], ValueCounts] | None) -> None:
        self._reader = reader
        self._field = field
        self._kind = kind
        self._read_documents = read_documents
        self._known: ValueCounts | None = None
        self._candidates = candidates & reader.values.kind_docids(field, kind)
        self._size = size
        self._longest_scan = size * DOCUMENT_COST  # in values, as the costs above

    def ascending(self, most: int | None = None) -> Iterator[ValueCount]:
        if not self._candidates:
            return
        if self._read_documents is not None:
            # A scan for `most` values opens about a group for each, and skips the groups in between.
            groups = len(self._reader.values.kind_docids(self._field, self._kind)) / GROUP_VALUES * GROUP_COST
            if most is None or most + groups * min(1, most / self._size) > self._longest_scan:
                if self._known is None:  # another strategy replaces the scan from now on
                    doc_values = self._reader.values.doc_values(self._field, self._kind, self._size)
                    self._known = self._read_documents() if doc_values is None else self._by_ordinal(doc_values)
                yield from self._known.ascending()
                return
        values = self._reader.values.ordered_values(self._field, self._kind, among=self._candidates)
        yield from (ValueCount(value, len(docids)) for value, docids in values if docids)

    def by_count(self, most: int) -> Iterator[Iterable[ValueCount]]:
        if not self._candidates:
            return iter(())
        if self._read_documents is None:
            # Equal counts come in descending order of the values: sorted() is stable with reverse=True, too.
            ordered = sorted(reversed(list(self.ascending())), key=_COUNT, reverse=True)  # noqa: C414
            return (list(equal) for _, equal in groupby(ordered, key=_COUNT))
        if not isinstance(self._known, CountsByOrdinal):
            self._known = self._by_ordinal(doc_values_of(self._reader, self._field, self._kind))
        return self._known.by_count(most)

    def _by_ordinal(self, doc_values: DocValues) -> CountsByOrdinal:
        return CountsByOrdinal(self._reader, self._field, self._kind, doc_values, self._candidates)

    def value(self, counted: ValueCount) -> Value:
        if counted.value is not None:
            return counted.value
        assert self._known is not None
        return self._known.value(counted)

    def first_docid(self, counted: ValueCount) -> int:
        if self._known is not None and counted.key >= 0:
            return self._known.first_docid(counted)
        return (self._reader.values.value_docids(self._field, self.value(counted)) & self._candidates).min()

    def is_alone_in_group(self, counted: ValueCount, width: int) -> bool:
        if self._known is not None and counted.key >= 0:
            return self._known.is_alone_in_group(counted, width)
        all_values = sorted_values(self._reader, self._field, self._kind)
        start = all_values.ordinal(self.value(counted)) // width * width
        last = min(start + width, len(all_values)) - 1
        group = self._reader.values.range_docids(self._field, all_values[start], all_values[last])
        return group.intersection_cardinality(self._candidates) == counted.count

    def number_of_values(self) -> int:
        if self._known is not None:
            return self._known.number_of_values()
        return len(sorted_values(self._reader, self._field, self._kind))

    def extremes(self) -> tuple[Value, Value] | None:
        if not self._candidates:
            return None
        if self._known is not None:
            return self._known.extremes()
        ordered_values = self._reader.values.ordered_values
        smallest, largest = (next(value for value, docids in ordered_values(self._field, self._kind, ascending, self._candidates)
                                  if docids) for ascending in (True, False))
        return smallest, largest


# For up to _LISTED_CANDIDATES candidates, the documents of all values are listed at once, rather than value by value.
_LISTED_CANDIDATES = 5_000
# Up to _FEW_VALUES values are read from documents; beyond, all values of the field are loaded.
_FEW_VALUES = 2000
# is_alone_in_group() first checks this number of values on each side for a candidate without the value.
_NEIGHBOURS, _ALL = 8, maxsize


class CountsByOrdinal:
    """Value counts by ordinal, from the doc values of a field. Values are read from documents on demand."""

    def __init__(self, reader: Reader, field: str, kind: type[Value], doc_values: DocValues, candidates: DocIds) -> None:
        """candidates: documents that have a value of the kind."""
        self._reader = reader
        self._field = field
        self._kind = kind
        self._doc_values = doc_values
        self._candidates = candidates
        self._counts = doc_values.counts(candidates)
        self._values_read = 0
        self._are_few = len(candidates) <= _LISTED_CANDIDATES

    @cached_property
    def _ordinals(self) -> array[int]:
        """The ordinals of the values of the candidates, ascending."""
        counts = self._counts
        return array("I", sorted(counts) if isinstance(counts, Mapping) else compress(range(len(counts)), counts))

    def _value_count(self, ordinal: int) -> ValueCount:
        return ValueCount(None, self._counts[ordinal], ordinal)

    def ascending(self, most: int | None = None) -> Iterator[ValueCount]:
        return map(self._value_count, self._ordinals)

    def by_count(self, most: int) -> Iterator[Iterable[ValueCount]]:
        """Values with a count above the count at which `most` are reached are few and listed; the rest, up to a million, is
        scanned lazily, count by count."""
        counts, ordinals = self._counts, self._ordinals
        values = Counter(counts[ordinal] for ordinal in ordinals)  # count -> how many values have it
        descending = sorted(values, reverse=True)
        met, least = 0, 0
        for least in descending:
            met += values[least]
            if met >= most:
                break
        common: dict[int, list[int]] = {count: [] for count in descending if count > least}
        for ordinal in reversed(ordinals) if common else ():
            if counts[ordinal] > least:
                common[counts[ordinal]].append(ordinal)
        for equal in common.values():
            yield map(self._value_count, equal)
        for count in descending[len(common):]:
            yield (ValueCount(None, count, ordinal) for ordinal in reversed(ordinals) if counts[ordinal] == count)

    def value(self, counted: ValueCount) -> Value:
        return self._value(counted.key)

    def _value(self, ordinal: int) -> Value:
        self._values_read += 1
        if self._values_read > _FEW_VALUES:
            return sorted_values(self._reader, self._field, self._kind)[ordinal]
        value: Value = self._doc_values.value(ordinal, partial(values_of_document, self._reader, self._field, self._kind))
        return value

    def first_docid(self, counted: ValueCount) -> int:
        if self._are_few:
            return self._docids[counted.key][0]
        sample = self._doc_values.samples[counted.key]
        if sample in self._candidates:
            return sample
        return (self._reader.values.value_docids(self._field, self.value(counted)) & self._candidates).min()

    @cached_property
    def _docids(self) -> dict[int, list[int]]:
        """ordinal -> the candidates that have the value, ascending."""
        docids: dict[int, list[int]] = {}
        for docid, ordinal in self._doc_values.pairs(self._candidates):
            docids.setdefault(ordinal, []).append(docid)
        return docids

    def is_alone_in_group(self, counted: ValueCount, width: int) -> bool:
        start = counted.key // width * width
        beyond = min(start + width, self._doc_values.size)
        others = self._others(counted.key, start, beyond)
        if not others or self._doc_values.is_single:
            return not others
        for other in others:
            # One sample document shows whether a candidate has the other value without this one.
            sample = self._doc_values.samples[other]
            if self._counts[other] > counted.count or (
                    sample in self._candidates and counted.key not in self._doc_values.ranks_of(sample)):
                return False
        if self._are_few:
            own = set(self._docids[counted.key])
            all_others = self._others(counted.key, start, beyond, _ALL)
            return all(own.issuperset(self._docids[other]) for other in all_others)
        bounds = self._value(start), self._value(beyond - 1)
        group = self._reader.values.range_docids(self._field, *bounds)
        return group.intersection_cardinality(self._candidates) == counted.count

    def _others(self, ordinal: int, start: int, beyond: int, most: int = _NEIGHBOURS) -> Sequence[int]:
        """Return the other ordinals of a group that candidates have, at most `most` on each side of this one."""
        ordinals = self._ordinals
        index = bisect_left(ordinals, ordinal)
        return (ordinals[max(bisect_left(ordinals, start), index - most):index]
                + ordinals[index + 1:min(bisect_left(ordinals, beyond), index + 1 + most)])

    def number_of_values(self) -> int:
        return self._doc_values.size

    def extremes(self) -> tuple[Value, Value] | None:
        if not self._ordinals:
            return None
        return self._value(self._ordinals[0]), self._value(self._ordinals[-1])
