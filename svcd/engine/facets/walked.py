"""The values of candidates in a field that has many: found one by one, as far as somebody asks.

Knows how a walk is cut short, and when it would take longer than to look into all candidates; refuses to know orders
and limits.
"""
from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter

from svcd.bitsets import to_docids
from svcd.engine.facets.counting import DOCUMENT_COST, FEW_CANDIDATES, Entry, lowest
from svcd.engine.facets.gathered import Gathered
from svcd.engine.facets.values import Ranks, frequencies, ranks
from svcd.engine.reader import DocIds, Reader, Value

# So many values are walked before it is foretold how long the walk will be.
FIRST_VALUES = 64
# In so many parts of a set so many documents each are looked into.
SAMPLES = 8

_COUNT = attrgetter("count")


class Walked:
    """A Counting that knows a value when it is asked for it.

    look_into: finds all values in the candidates, which are the `size` ones of the request; None where a walk over all
    values is always shorter.
    """

    def __init__(self, reader: Reader, field: str, kind: type[Value], candidates: DocIds, size: int,
                 look_into: Callable[[], Gathered] | None) -> None:
        self._reader = reader
        self._field = field
        self._kind = kind
        self._look_into = look_into
        self._gathered: Gathered | None = None
        everything = reader.kind_docids(field, kind)
        self._candidates = candidates & everything
        self._is_whole = self._candidates == everything
        self._patience = size * DOCUMENT_COST  # values, in the time that it takes to look into all candidates

    def _all(self) -> Gathered:
        """All values, found in the candidates. They are not walked for any more."""
        if self._gathered is None:
            assert self._look_into is not None
            self._gathered = self._look_into()
        return self._gathered

    def _is_too_long(self, walk: float) -> bool:
        return self._look_into is not None and walk > self._patience

    # in order

    def ascending(self, most: int | None = None) -> Iterator[Entry]:
        if not self._candidates:
            return
        met = 0
        for walked, (value, docids) in enumerate(self._reader.ordered_values(self._field, self._kind)):
            if self._is_too_long(self._foretold(walked, met, most)):
                yield from islice(self._all().ascending(), met, None)
                return
            docids &= self._candidates
            if docids:
                met += 1
                yield Entry(value, docids.bit_count())

    def _foretold(self, walked: int, met: int, most: int | None) -> float:
        """How many values a walk will see that has met some of the `most` it looks for."""
        if most is None:
            return float("inf")
        return walked if walked < FIRST_VALUES else max(walked, walked * most / (met or 1))

    # by count

    def by_count(self, most: int) -> Iterator[Iterable[Entry]]:
        if not self._candidates:
            return
        if self._is_whole:
            yield from self._by_frequency()
            return
        found = self._commonest(most)
        if found is None:
            yield from self._all().by_count(most)
            return
        yield from _together(found)
        if len(found) >= most:  # else there are no others
            least = min(map(_COUNT, found))
            yield from _together([entry for entry in self.ascending() if entry.count < least])

    def _by_frequency(self) -> Iterator[Iterable[Entry]]:
        """Where every document with a value is a candidate, values are as common as they are in the index."""
        every, (by_frequency, counts) = self._ranks(), frequencies(self._reader, self._field, self._kind)
        start = 0
        while start < len(by_frequency):
            count = counts[by_frequency[start]]
            end = _end(by_frequency, counts, count)
            yield (Entry(every[by_frequency[place]], count) for place in range(end - 1, start - 1, -1))
            start = end

    def _commonest(self, most: int) -> list[Entry] | None:
        """The `most` with the highest counts and all of equal count, ascending; None when that takes too long.

        A value has no more candidates than documents, so that a walk from the commonest value of the index on can end
        at the first one with too few documents.
        """
        every, (by_frequency, counts) = self._ranks(), frequencies(self._reader, self._field, self._kind)
        best: list[int] = []  # the highest counts so far, the smallest one first
        found: list[tuple[int, Entry]] = []
        # Before that `least` may be far from what it becomes: the commonest values of the index need not be those here.
        next_look = max(FIRST_VALUES, self._patience // 8)
        for place, rank in enumerate(by_frequency):
            least = best[0] if len(best) == most else 1
            if counts[rank] < least:
                break
            if place == next_look:
                if self._is_too_long(place if len(best) < most else _end(by_frequency, counts, least)):
                    return None
                next_look *= 2
            value = every[rank]
            count = (self._reader.value_docids(self._field, value) & self._candidates).bit_count()
            if count >= least:
                found.append((rank, Entry(value, count)))
                (heapq.heappush if len(best) < most else heapq.heappushpop)(best, count)
        return [entry for _, entry in sorted(found) if entry.count >= best[0]]

    def _ranks(self) -> Ranks:
        return ranks(self._reader, self._field, self._kind)

    # of one value

    def first(self, entry: Entry) -> int:
        if self._gathered is not None and entry.place >= 0:
            return self._gathered.first(entry)
        return lowest(self._reader.value_docids(self._field, entry.value) & self._candidates)

    def is_alone(self, entry: Entry, ranks: Ranks, width: int) -> bool:
        if self._gathered is not None and entry.place >= 0:
            return self._gathered.is_alone(entry, ranks, width)
        start = ranks.rank(entry.value) // width * width
        last = min(start + width, len(ranks)) - 1
        group = self._reader.range_docids(self._field, ranks[start], ranks[last]) & self._candidates
        return group.bit_count() == entry.count

    def extremes(self) -> tuple[Value, Value] | None:
        if not self._candidates:
            return None
        if self._gathered is not None:
            return self._gathered.extremes()
        return self._best(is_ascending=True), self._best(is_ascending=False)

    def _best(self, is_ascending: bool) -> Value:
        """The first value from one end that a candidate has."""
        walk = self._reader.ordered_values(self._field, self._kind, is_ascending)
        for value, docids in islice(walk, FIRST_VALUES):
            if docids & self._candidates:
                return value
        return self._best_of_samples(is_ascending)

    def _best_of_samples(self, is_ascending: bool) -> Value:
        """As _best, far from the end: some candidates tell a value, and only those beyond it may have a better one."""
        better, best, left = min if is_ascending else max, None, self._candidates
        while left:
            sample = to_docids(left) if left.bit_count() <= FEW_CANDIDATES else _spread(left)
            held = self._reader.field_values(self._field, sample)
            best = better(value for _, values in held for value in values if isinstance(value, self._kind))
            bounds = (None, best) if is_ascending else (best, None)
            left &= self._reader.range_docids(self._field, *bounds, has_low=False, has_high=False)
        assert best is not None  # each of the candidates has a value
        return best


def _spread(docids: DocIds) -> list[int]:
    """Some documents of a set, from all parts of it."""
    width = -(-docids.bit_length() // SAMPLES)
    mask = (1 << width) - 1
    return [start + docid for start in range(0, docids.bit_length(), width)
            for docid in to_docids(docids >> start & mask, SAMPLES)]


def _end(by_frequency: Sequence[int], counts: Sequence[int], least: int) -> int:
    """How many values stand in at least so many documents of the index."""
    return bisect_right(by_frequency, -least, key=lambda rank: -counts[rank])


def _together(ascending: Sequence[Entry]) -> Iterator[Iterable[Entry]]:
    """Entries by count, the highest first; those of equal count together, descending."""
    ordered = sorted(reversed(ascending), key=_COUNT, reverse=True)
    return (list(together) for _, together in groupby(ordered, key=_COUNT))
