"""The values of candidates, all found at once: in the documents themselves, or by trying all values of a small field.

Knows what the documents of each value are; refuses to know which of the two ways is better.
"""
from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, groupby

from svcd.base.bitmaps import DocIds, to_docids
from svcd.facets.value_counts import ValueCount, lowest_docid
from svcd.facets.values import OrdinalLookup, ordinal_lookup
from svcd.query.reader import Reader, Value

Docids = DocIds | list[int]  # a set, or ascending


class CountsByDocument:
    """A Counting that knows all values.

    values: ascending. counts: of each. docids: gives the candidates of each, standings: the places of all values of the
    field; asked when they must be known.
    """

    def __init__(self, values: Sequence[Value], counts: Sequence[int], docids: Callable[[], Sequence[Docids]],
                 standings: Callable[[], OrdinalLookup]) -> None:
        self._values = values
        self._counts = counts
        self._docids = cache(docids)
        self._standings = cache(standings)
        self._ranks: dict[int, int] = {}  # by place

    def _entry(self, place: int) -> ValueCount:
        return ValueCount(self._values[place], self._counts[place], place)

    def ascending(self, most: int | None = None) -> Iterator[ValueCount]:
        return map(self._entry, range(len(self._values)))

    def by_count(self, most: int) -> Iterator[Iterable[ValueCount]]:
        descending = range(len(self._values) - 1, -1, -1)
        ordered = sorted(descending, key=self._counts.__getitem__, reverse=True)
        return (map(self._entry, together) for _, together in groupby(ordered, key=self._counts.__getitem__))

    def value(self, entry: ValueCount) -> Value:
        return self._values[entry.place]

    def first(self, entry: ValueCount) -> int:
        return self._first(entry.place)

    def _first(self, place: int) -> int:
        docids = self._docids()[place]
        return lowest_docid(docids) if isinstance(docids, int) else docids[0]

    def is_alone(self, entry: ValueCount, width: int) -> bool:
        docids, group = self._docids(), self._rank(entry.place) // width
        for step in (1, -1):
            place = entry.place + step
            while 0 <= place < len(docids) and self._rank(place) // width == group:
                if not _is_within(docids[place], docids[entry.place]):
                    return False
                place += step
        return True

    def _rank(self, place: int) -> int:
        rank = self._ranks.get(place)
        if rank is None:
            rank = self._ranks[place] = self._standings().of(self._values[place], self._first(place))
        return rank

    def values_of_field(self) -> int:
        return len(self._standings())

    def extremes(self) -> tuple[Value, Value] | None:
        return (self._values[0], self._values[-1]) if self._values else None


def _no_standings() -> OrdinalLookup:
    raise AssertionError("there is no value whose place could be asked for")


NO_COUNTS = CountsByDocument([], [], list, _no_standings)


def _is_within(inner: Docids, outer: Docids) -> bool:
    if isinstance(inner, int) and isinstance(outer, int):
        return not inner & ~outer
    return set(inner) <= set(outer)  # type: ignore[arg-type]  # both are lists, as those of one Gathered are


def counts_by_value_sets(values: Sequence[Value], sets: Sequence[DocIds], candidates: DocIds,
          standings: Callable[[], OrdinalLookup]) -> CountsByDocument:
    """What candidates have of some values. sets: the documents of each value."""
    found: list[tuple[Value, DocIds]] = []
    for value, docids in zip(values, sets):
        docids &= candidates
        if docids:
            found.append((value, docids))
    return CountsByDocument([value for value, _ in found], [docids.bit_count() for _, docids in found],
                    lambda: [docids for _, docids in found], standings)


def counts_by_documents(reader: Reader, field: str, candidates: DocIds) -> dict[type[Value], CountsByDocument]:
    """What each of the candidates says it has, for both kinds of values."""
    rows = [(docid, values) for docid, values in reader.values.field_values(field, to_docids(candidates)) if values]
    counts = Counter(chain.from_iterable(values for _, values in rows))
    texts = sorted(value for value in counts if isinstance(value, str))
    found = {str: CountsByDocument(texts, [counts[value] for value in texts], lambda: _docids_of(texts, rows),
                           lambda: ordinal_lookup(reader, field, str)), float: NO_COUNTS}
    if len(texts) < len(counts):
        numbers = sorted(value for value in counts if isinstance(value, float))
        listed = _with_both_zeros(reader, field, list(zip(numbers, _docids_of(numbers, rows))))
        found[float] = CountsByDocument([number for number, _ in listed], [len(docids) for _, docids in listed],
                                lambda: [docids for _, docids in listed], lambda: ordinal_lookup(reader, field, float))
    return found


def _docids_of(values: Iterable[Value], rows: Iterable[tuple[int, Sequence[Value]]]) -> list[list[int]]:
    """The docids of each value."""
    docids: Mapping[Value, list[int]] = {value: [] for value in values}
    for docid, held in rows:
        for value in held:
            if value in docids:
                docids[value].append(docid)
    return list(docids.values())


def _with_both_zeros(
    reader: Reader, field: str, ascending: list[tuple[float, list[int]]]
) -> list[tuple[float, list[int]]]:
    """-0.0 and 0.0 are two values, though they are equal and so one key."""
    place = bisect_left(ascending, 0.0, key=lambda each: each[0])
    if place < len(ascending) and ascending[place][0] == 0.0:
        docids = list(dict.fromkeys(ascending[place][1]))  # one that has both is named twice
        having = [(zero, reader.values.value_docids(field, zero)) for zero in (-0.0, 0.0)]
        zeros = [(zero, [docid for docid in docids if those >> docid & 1]) for zero, those in having]
        ascending[place : place + 1] = [(zero, docids) for zero, docids in zeros if docids]
    return ascending
