"""The values of candidates in a field that has many: found one by one, as far as somebody asks.

Knows how a walk is cut short, and when it would take longer than to look into all candidates; refuses to know orders
and limits.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter

from svcd.base.bitmaps import DocIds, to_docids
from svcd.base.doc_values import DocValues
from svcd.facets.by_document import CountsByDocument
from svcd.facets.by_ordinal import CountsByOrdinal
from svcd.facets.value_counts import DOCUMENT_COST, FEW_CANDIDATES, Entry, lowest_values
from svcd.facets.values import ValueRanks, column_of, value_ranks
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
        everything = reader.kind_docids(field, kind)
        self._candidates = candidates & everything
        self._size = size
        self._patience = size * DOCUMENT_COST  # values, in the time that it takes to look into all candidates

    def _all(self) -> CountsByDocument | CountsByOrdinal:
        """All values, found in the candidates or in the column. They are not walked for any more."""
        if self._known is None:
            assert self._look_into is not None
            column = self._reader.column(self._field, self._kind, self._size)
            self._known = self._look_into() if column is None else self._ranked(column)
        return self._known

    def _is_too_long(self, walk: float) -> bool:
        return self._look_into is not None and walk > self._patience

    # in order

    def ascending(self, most: int | None = None) -> Iterator[Entry]:
        if not self._candidates:
            return
        met = 0
        values = self._reader.ordered_values(self._field, self._kind, among=self._candidates)
        for walked, (value, docids) in enumerate(values):
            if self._is_too_long(self._foretold(walked, met, most)):
                yield from islice(self._all().ascending(), met, None)
                return
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
            return iter(())
        if self._look_into is None:
            return _together(list(self.ascending()))
        if not isinstance(self._known, CountsByOrdinal):
            self._known = self._ranked(column_of(self._reader, self._field, self._kind))
        return self._known.by_count(most)

    def _ranked(self, column: DocValues) -> CountsByOrdinal:
        return CountsByOrdinal(self._reader, self._field, self._kind, column, self._candidates)

    # of one value

    def value(self, entry: Entry) -> Value:
        if entry.value is not None:
            return entry.value
        assert self._known is not None
        return self._known.value(entry)

    def first(self, entry: Entry) -> int:
        if self._known is not None and entry.place >= 0:
            return self._known.first(entry)
        return lowest_values(self._reader.value_docids(self._field, self.value(entry)) & self._candidates)

    def is_alone(self, entry: Entry, width: int) -> bool:
        if self._known is not None and entry.place >= 0:
            return self._known.is_alone(entry, width)
        every = self._every()
        start = every.rank(self.value(entry)) // width * width
        last = min(start + width, len(every)) - 1
        group = self._reader.range_docids(self._field, every[start], every[last]) & self._candidates
        return group.bit_count() == entry.count

    def values_of_field(self) -> int:
        return len(self._every()) if self._known is None else self._known.values_of_field()

    def _every(self) -> ValueRanks:
        return value_ranks(self._reader, self._field, self._kind)

    def extremes(self) -> tuple[Value, Value] | None:
        if not self._candidates:
            return None
        if self._known is not None:
            return self._known.extremes()
        return self._best(is_ascending=True), self._best(is_ascending=False)

    def _best(self, is_ascending: bool) -> Value:
        """The first value from one end that a candidate has."""
        walk = self._reader.ordered_values(self._field, self._kind, is_ascending, self._candidates)
        for value, docids in islice(walk, FIRST_VALUES):
            if docids:
                return value
        return self._best_of_samples(is_ascending)

    def _best_of_samples(self, is_ascending: bool) -> Value:
        """As _best, far from the end: some candidates tell a value, and only those beyond it may have a better one."""
        better, best, left = min if is_ascending else max, None, self._candidates
        while left:
            sample = to_docids(left) if left.bit_count() <= FEW_CANDIDATES else _spread(left)
            held = self._reader.field_values(self._field, sample)
            best = better(value for _, values in held for value in values if isinstance(value, self._kind))
            low, high = (None, best) if is_ascending else (best, None)
            left &= self._reader.range_docids(self._field, low, high, has_low=False, has_high=False)
        assert best is not None  # each of the candidates has a value
        return best


def _spread(docids: DocIds) -> list[int]:
    """Some documents of a set, from all parts of it."""
    width = -(-docids.bit_length() // SAMPLES)
    mask = (1 << width) - 1
    return [start + docid for start in range(0, docids.bit_length(), width)
            for docid in to_docids(docids >> start & mask, SAMPLES)]


def _together(ascending: Sequence[Entry]) -> Iterator[Iterable[Entry]]:
    """Entries by count, the highest first; those of equal count together, descending."""
    # reverse=True leaves equal ones in their order, which is to be the descending one.
    ordered = sorted(reversed(ascending), key=_COUNT, reverse=True)  # noqa: C414
    return (list(together) for _, together in groupby(ordered, key=_COUNT))
