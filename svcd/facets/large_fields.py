"""The values of candidates in a field that has many: found one by one, as far as somebody asks.

Knows how a walk is cut short, and when it would take longer than to look into all candidates; refuses to know orders
and limits.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress, groupby, islice
from operator import attrgetter
from sys import maxsize

from svcd.base.bitmaps import DocIds, to_docids
from svcd.base.doc_values import DocValues
from svcd.facets.by_document import CountsByDocument
from svcd.facets.value_counts import DOCUMENT_COST, FEW_CANDIDATES, ValueCount, lowest_docid
from svcd.facets.values import SortedValues, doc_values_of, sorted_values, value_of_ordinal
from svcd.query.reader import Reader, Value

# So many values are walked before it is foretold how long the walk will be.
FIRST_VALUES = 64
# In so many parts of a set so many documents each are looked into.
SAMPLES = 8

_COUNT = attrgetter("count")


class CountsByValueScan:
    """A Counting that knows a value when it is asked for it.

    look_into: finds all values in the candidates, which are the `size` ones of the request; None where a walk over all
    values is always shorter.
    """

    def __init__(self, reader: Reader, field: str, kind: type[Value], candidates: DocIds, size: int,
                 look_into: Callable[[], CountsByDocument] | None) -> None:
        self._reader = reader
        self._field = field
        self._kind = kind
        self._look_into = look_into
        self._known: CountsByDocument | CountsByOrdinal | None = None
        everything = reader.values.kind_docids(field, kind)
        self._candidates = candidates & everything
        self._size = size
        self._patience = size * DOCUMENT_COST  # values, in the time that it takes to look into all candidates

    def _all(self) -> CountsByDocument | CountsByOrdinal:
        """All values, found in the candidates or in the column. They are not walked for any more."""
        if self._known is None:
            assert self._look_into is not None
            column = self._reader.values.doc_values(self._field, self._kind, self._size)
            self._known = self._look_into() if column is None else self._ranked(column)
        return self._known

    def _is_too_long(self, walk: float) -> bool:
        return self._look_into is not None and walk > self._patience

    # in order

    def ascending(self, most: int | None = None) -> Iterator[ValueCount]:
        if not self._candidates:
            return
        met = 0
        values = self._reader.values.ordered_values(self._field, self._kind, among=self._candidates)
        for walked, (value, docids) in enumerate(values):
            if self._is_too_long(self._foretold(walked, met, most)):
                yield from islice(self._all().ascending(), met, None)
                return
            if docids:
                met += 1
                yield ValueCount(value, docids.bit_count())

    def _foretold(self, walked: int, met: int, most: int | None) -> float:
        """How many values a walk will see that has met some of the `most` it looks for."""
        if most is None:
            return float("inf")
        return walked if walked < FIRST_VALUES else max(walked, walked * most / (met or 1))

    # by count

    def by_count(self, most: int) -> Iterator[Iterable[ValueCount]]:
        if not self._candidates:
            return iter(())
        if self._look_into is None:
            return _together(list(self.ascending()))
        if not isinstance(self._known, CountsByOrdinal):
            self._known = self._ranked(doc_values_of(self._reader, self._field, self._kind))
        return self._known.by_count(most)

    def _ranked(self, column: DocValues) -> CountsByOrdinal:
        return CountsByOrdinal(self._reader, self._field, self._kind, column, self._candidates)

    # of one value

    def value(self, entry: ValueCount) -> Value:
        if entry.value is not None:
            return entry.value
        assert self._known is not None
        return self._known.value(entry)

    def first(self, entry: ValueCount) -> int:
        if self._known is not None and entry.place >= 0:
            return self._known.first(entry)
        return lowest_docid(self._reader.values.value_docids(self._field, self.value(entry)) & self._candidates)

    def is_alone(self, entry: ValueCount, width: int) -> bool:
        if self._known is not None and entry.place >= 0:
            return self._known.is_alone(entry, width)
        every = self._every()
        start = every.rank(self.value(entry)) // width * width
        last = min(start + width, len(every)) - 1
        group = self._reader.values.range_docids(self._field, every[start], every[last]) & self._candidates
        return group.bit_count() == entry.count

    def values_of_field(self) -> int:
        return len(self._every()) if self._known is None else self._known.values_of_field()

    def _every(self) -> SortedValues:
        return sorted_values(self._reader, self._field, self._kind)

    def extremes(self) -> tuple[Value, Value] | None:
        if not self._candidates:
            return None
        if self._known is not None:
            return self._known.extremes()
        return self._best(is_ascending=True), self._best(is_ascending=False)

    def _best(self, is_ascending: bool) -> Value:
        """The first value from one end that a candidate has."""
        walk = self._reader.values.ordered_values(self._field, self._kind, is_ascending, self._candidates)
        for value, docids in islice(walk, FIRST_VALUES):
            if docids:
                return value
        return self._best_of_samples(is_ascending)

    def _best_of_samples(self, is_ascending: bool) -> Value:
        """As _best, far from the end: some candidates tell a value, and only those beyond it may have a better one."""
        better, best, left = min if is_ascending else max, None, self._candidates
        while left:
            sample = to_docids(left) if left.bit_count() <= FEW_CANDIDATES else _spread(left)
            held = self._reader.values.field_values(self._field, sample)
            best = better(value for _, values in held for value in values if isinstance(value, self._kind))
            low, high = (None, best) if is_ascending else (best, None)
            left &= self._reader.values.range_docids(self._field, low, high, has_low=False, has_high=False)
        assert best is not None  # each of the candidates has a value
        return best


def _spread(docids: DocIds) -> list[int]:
    """Some documents of a set, from all parts of it."""
    width = -(-docids.bit_length() // SAMPLES)
    mask = (1 << width) - 1
    return [start + docid for start in range(0, docids.bit_length(), width)
            for docid in to_docids(docids >> start & mask, SAMPLES)]


def _together(ascending: Sequence[ValueCount]) -> Iterator[Iterable[ValueCount]]:
    """Entries by count, the highest first; those of equal count together, descending."""
    # reverse=True leaves equal ones in their order, which is to be the descending one.
    ordered = sorted(reversed(ascending), key=_COUNT, reverse=True)  # noqa: C414
    return (list(together) for _, together in groupby(ordered, key=_COUNT))


# The values of candidates in a field that has many, counted by their ranks: all at once, read from its column.
#
# Knows which ranks the candidates have and how often; learns a value when somebody asks for it, from a document that
# has it. Refuses to know orders and limits.


# The documents of each value are found for all at once among so many candidates, rather than one by one.
_FEW_CANDIDATES = 5_000
# So many values are learned from documents; for more all values of the field are read.
_FEW_VALUES = 2000
# So many values on each side are looked at to tell that a group holds one with more candidates.
_NEIGHBOURS, _ALL = 8, maxsize


class CountsByOrdinal:
    """A Counting whose entries are told apart by their ranks; values stay unknown until they are asked for."""

    def __init__(self, reader: Reader, field: str, kind: type[Value], column: DocValues, candidates: DocIds) -> None:
        """candidates: each of them has a value of the kind."""
        self._reader = reader
        self._field = field
        self._kind = kind
        self._column = column
        self._candidates = candidates
        self._counts = column.counts(candidates)
        self._asked = 0

    @cached_property
    def _ranks(self) -> array[int]:
        """The ranks that some candidate has, ascending."""
        counts = self._counts
        return array("I", sorted(counts) if isinstance(counts, Mapping) else compress(range(len(counts)), counts))

    def _entry(self, rank: int) -> ValueCount:
        return ValueCount(None, self._counts[rank], rank)

    def ascending(self, most: int | None = None) -> Iterator[ValueCount]:
        return map(self._entry, self._ranks)

    def by_count(self, most: int) -> Iterator[Iterable[ValueCount]]:
        """The commonest ones are few and sorted; those of the count at which `most` are reached may be a million."""
        counts, ranks = self._counts, self._ranks
        values = Counter(counts[rank] for rank in ranks)  # count -> how many values have it
        descending = sorted(values, reverse=True)
        met, least = 0, 0
        for least in descending:
            met += values[least]
            if met >= most:
                break
        common: dict[int, list[int]] = {count: [] for count in descending if count > least}
        for rank in reversed(ranks) if common else ():
            if counts[rank] > least:
                common[counts[rank]].append(rank)
        for together in common.values():
            yield map(self._entry, together)
        for count in descending[len(common):]:
            yield (ValueCount(None, count, rank) for rank in reversed(ranks) if counts[rank] == count)

    # of one value

    def value(self, entry: ValueCount) -> Value:
        return self._value(entry.place)

    def _value(self, rank: int) -> Value:
        self._asked += 1
        if self._asked > _FEW_VALUES:
            return sorted_values(self._reader, self._field, self._kind)[rank]
        return value_of_ordinal(self._reader, self._field, self._kind, self._column, rank)

    def first(self, entry: ValueCount) -> int:
        if self._are_few:
            return self._docids[entry.place][0]
        sample = self._column.samples[entry.place]
        if self._candidates >> sample & 1:
            return sample
        return lowest_docid(self._reader.values.value_docids(self._field, self.value(entry)) & self._candidates)

    @cached_property
    def _are_few(self) -> bool:
        return self._candidates.bit_count() <= _FEW_CANDIDATES

    @cached_property
    def _docids(self) -> dict[int, list[int]]:
        """rank -> the candidates that have the value, ascending."""
        docids: dict[int, list[int]] = {}
        for docid, rank in self._column.pairs(self._candidates):
            docids.setdefault(rank, []).append(docid)
        return docids

    def is_alone(self, entry: ValueCount, width: int) -> bool:
        start = entry.place // width * width
        beyond = min(start + width, self._column.size)
        others = self._others(entry.place, start, beyond)
        if not others or self._column.is_single:
            return not others
        if any(self._counts[rank] > entry.count or self._is_apart(rank, entry.place) for rank in others):
            return False
        if self._are_few:
            own = set(self._docids[entry.place])
            return all(own.issuperset(self._docids[rank]) for rank in self._others(entry.place, start, beyond, _ALL))
        bounds = self._value(start), self._value(beyond - 1)
        group = self._reader.values.range_docids(self._field, *bounds) & self._candidates
        return group.bit_count() == entry.count

    def _is_apart(self, rank: int, other: int) -> bool:
        """Is a candidate known that has the one value, and not the other?"""
        sample = self._column.samples[rank]
        return bool(self._candidates >> sample & 1) and other not in self._column.ranks_of(sample)

    def _others(self, rank: int, start: int, beyond: int, most: int = _NEIGHBOURS) -> Sequence[int]:
        """The ranks of a group that candidates have, beside this one; no more than so many on each side of it."""
        ranks = self._ranks
        place = bisect_left(ranks, rank)
        return (ranks[max(bisect_left(ranks, start), place - most):place]
                + ranks[place + 1:min(bisect_left(ranks, beyond), place + 1 + most)])

    def values_of_field(self) -> int:
        return self._column.size

    def extremes(self) -> tuple[Value, Value] | None:
        if not self._ranks:
            return None
        return self._value(self._ranks[0]), self._value(self._ranks[-1])
