"""The values of a field over the whole index, kept ready from one write to the next.

Knows which fields have so few values that their sets are kept, and where a value stands among the others; refuses
to know candidates and orders.
"""
from __future__ import annotations

import math
import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from svcd.engine.facets.sorted_texts import SortedTexts, pack
from svcd.engine.reader import DocIds, Reader, Value

# Fields with more values of a kind are walked only as far as needed, or not at all.
FEW_VALUES = 1024
# The sets of all values of a field are kept if they have no more bytes together.
MOST_BYTES = 1 << 21


class FewValues(NamedTuple):
    """values: ascending; None when there are too many. sets: their documents; None when that is too much to keep."""

    values: Sequence[Value] | None
    sets: Sequence[DocIds] | None


class Ranks(Protocol):
    """All values of a kind, ascending."""

    def __len__(self) -> int: ...
    def __getitem__(self, rank: int) -> Value: ...
    def rank(self, value: Value) -> int: ...  # of one of them


class SortedNumbers:
    """Numbers in order, found by rank and by value."""

    def __init__(self, numbers: array[float]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, rank: int) -> float:
        return self._numbers[rank]

    def rank(self, value: Value) -> int:
        """Where a number stands; -0.0 stands before 0.0, though they are equal."""
        assert isinstance(value, float)
        rank = bisect_left(self._numbers, value)
        is_behind_negative_zero = value == 0 < math.copysign(1, value) and math.copysign(1, self._numbers[rank]) < 0
        return rank + is_behind_negative_zero


def few_values(reader: Reader, field: str, kind: type[Value]) -> FewValues:
    """The values of a field if they are few, with their sets if these are small."""
    return FewValues(*reader.remembered(("few values", field, kind), lambda: _few_values(reader, field, kind)))


def _few_values(
    reader: Reader, field: str, kind: type[Value]
) -> tuple[Sequence[Value] | None, list[DocIds] | None]:  # plain, so that a cache can tell its size
    values = reader.few_values(field, kind)
    if values is None or len(values) > FEW_VALUES:
        return None, None
    sets, size = [], 0
    for value in values:
        sets.append(reader.value_docids(field, value))
        size += sys.getsizeof(sets[-1])
        if size > MOST_BYTES:
            return values, None
    return values, sets


def ranks(reader: Reader, field: str, kind: type[Value]) -> Ranks:
    """Where each value of a field stands."""
    if kind is str:
        return SortedTexts(reader.remembered(("texts", field), lambda: pack(_values(reader, field, str))))
    return SortedNumbers(reader.remembered(("numbers", field), lambda: array("d", _values(reader, field, float))))


def _values(reader: Reader, field: str, kind: type[Value]) -> Sequence[Any]:
    return reader.values(field, kind)


class Frequencies(NamedTuple):
    """ranks: those of all values, that of the commonest one first. counts: by rank."""

    ranks: Sequence[int]
    counts: Sequence[int]


def frequencies(reader: Reader, field: str, kind: type[Value]) -> Frequencies:
    """In how many documents of the index each value of a field stands."""
    return Frequencies(*reader.remembered(("frequencies", field, kind), lambda: _frequencies(reader, field, kind)))


def _frequencies(reader: Reader, field: str, kind: type[Value]) -> tuple[array[int], array[int]]:
    counts = array("I", reader.value_counts(field, kind))
    return array("I", sorted(range(len(counts)), key=counts.__getitem__, reverse=True)), counts
