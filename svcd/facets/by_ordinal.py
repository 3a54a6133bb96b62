"""The values of candidates in a field that has many, counted by their ranks: all at once, read from its column.

Knows which ranks the candidates have and how often; learns a value when somebody asks for it, from a document that
has it. Refuses to know orders and limits.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from sys import maxsize

from svcd.base.bitmaps import DocIds
from svcd.base.doc_values import DocValues
from svcd.facets.value_counts import Entry, lowest_values
from svcd.facets.values import value_of_rank, value_ranks
from svcd.query.reader import Reader, Value

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

    def _entry(self, rank: int) -> Entry:
        return Entry(None, self._counts[rank], rank)

    def ascending(self, most: int | None = None) -> Iterator[Entry]:
        return map(self._entry, self._ranks)

    def by_count(self, most: int) -> Iterator[Iterable[Entry]]:
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
            yield (Entry(None, count, rank) for rank in reversed(ranks) if counts[rank] == count)

    # of one value

    def value(self, entry: Entry) -> Value:
        return self._value(entry.place)

    def _value(self, rank: int) -> Value:
        self._asked += 1
        if self._asked > _FEW_VALUES:
            return value_ranks(self._reader, self._field, self._kind)[rank]
        return value_of_rank(self._reader, self._field, self._kind, self._column, rank)

    def first(self, entry: Entry) -> int:
        if self._are_few:
            return self._docids[entry.place][0]
        sample = self._column.samples[entry.place]
        if self._candidates >> sample & 1:
            return sample
        return lowest_values(self._reader.value_docids(self._field, self.value(entry)) & self._candidates)

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

    def is_alone(self, entry: Entry, width: int) -> bool:
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
        group = self._reader.range_docids(self._field, *bounds) & self._candidates
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
