"""Count the values of fields with many values: by a scan in ascending order, or by ordinals.

Source: docs/filters-and-facets.md#counting-strategies.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress, groupby
from operator import attrgetter
from sys import maxsize

from svcd.base.docids import DocIds
from svcd.base.doc_values import DocValues
from svcd.facets.values import (DOCUMENT_COST, SortedValues, ValueCount, ValueCounts, doc_values_of, sorted_values,
                                value_of_ordinal)
from svcd.query.reader import Reader, Value

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
        everything = reader.values.kind_docids(field, kind)
        self._candidates = candidates & everything
        self._size = size
        self._longest_scan = size * DOCUMENT_COST  # in values, as the costs in svcd.facets.values

    def _all(self) -> ValueCounts:
        """Return the counts of all values by another strategy, which replaces the scan from now on."""
        if self._known is None:
            assert self._read_documents is not None
            doc_values = self._reader.values.doc_values(self._field, self._kind, self._size)
            self._known = self._read_documents() if doc_values is None else self._by_ordinal(doc_values)
        return self._known

    # In ascending order

    def ascending(self, most: int | None = None) -> Iterator[ValueCount]:
        if not self._candidates:
            return
        if self._read_documents is not None:
            # A scan for `most` values opens about a group for each, and skips the groups in between.
            groups = len(self._reader.values.kind_docids(self._field, self._kind)) / GROUP_VALUES * GROUP_COST
            if most is None or most + groups * min(1, most / self._size) > self._longest_scan:
                yield from self._all().ascending()
                return
        values = self._reader.values.ordered_values(self._field, self._kind, among=self._candidates)
        yield from (ValueCount(value, len(docids)) for value, docids in values if docids)

    # By count

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

    # Single values

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
        all_values = self._all_values()
        start = all_values.ordinal(self.value(counted)) // width * width
        last = min(start + width, len(all_values)) - 1
        group = self._reader.values.range_docids(self._field, all_values[start], all_values[last])
        return group.intersection_cardinality(self._candidates) == counted.count

    def number_of_values(self) -> int:
        return len(self._all_values()) if self._known is None else self._known.number_of_values()

    def _all_values(self) -> SortedValues:
        return sorted_values(self._reader, self._field, self._kind)

    def extremes(self) -> tuple[Value, Value] | None:
        if not self._candidates:
            return None
        if self._known is not None:
            return self._known.extremes()
        return self._extreme(is_ascending=True), self._extreme(is_ascending=False)

    def _extreme(self, is_ascending: bool) -> Value:
        """Return the smallest or largest value that a candidate has."""
        values = self._reader.values.ordered_values(self._field, self._kind, is_ascending, self._candidates)
        return next(value for value, docids in values if docids)


# By ordinal
# By ordinal


# For up to _FEW_CANDIDATES candidates, the documents of all values are listed at once, rather than value by value.
_FEW_CANDIDATES = 5_000
# Up to _FEW_VALUES values are read from documents; beyond, all values of the field are loaded.
_FEW_VALUES = 2000
# is_alone_in_group() first checks this number of values on each side for a candidate without the value.
_NEIGHBOURS, _ALL = 8, maxsize


class CountsByOrdinal:
    """Value counts by ordinal, from the doc values of a field. Values are read from documents on demand."""

    def __init__(self, reader: Reader, field: str, kind: type[Value], doc_values: DocValues,
                 candidates: DocIds) -> None:
        """candidates: documents that have a value of the kind."""
        self._reader = reader
        self._field = field
        self._kind = kind
        self._doc_values = doc_values
        self._candidates = candidates
        self._counts = doc_values.counts(candidates)
        self._values_read = 0

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

    # Single values

    def value(self, counted: ValueCount) -> Value:
        return self._value(counted.key)

    def _value(self, ordinal: int) -> Value:
        self._values_read += 1
        if self._values_read > _FEW_VALUES:
            return sorted_values(self._reader, self._field, self._kind)[ordinal]
        return value_of_ordinal(self._reader, self._field, self._kind, self._doc_values, ordinal)

    def first_docid(self, counted: ValueCount) -> int:
        if self._are_few:
            return self._docids[counted.key][0]
        sample = self._doc_values.samples[counted.key]
        if sample in self._candidates:
            return sample
        return (self._reader.values.value_docids(self._field, self.value(counted)) & self._candidates).min()

    @cached_property
    def _are_few(self) -> bool:
        return len(self._candidates) <= _FEW_CANDIDATES

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
