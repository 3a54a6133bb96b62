"""The values of a field over the whole index, kept ready from one write to the next.

Knows which fields have so few values that their sets are kept, and where a value stands among the others; refuses
to know candidates and orders.
"""
from __future__ import annotations

import math
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from svcd.base.bitmaps import DocIds
from svcd.base.doc_values import DocValues, value_order
from svcd.query.reader import Reader, Value

# Fields with more values of a kind are walked only as far as needed, or not at all.
FEW_VALUES = 1024
# The sets of all values of a field are kept if they have no more bytes together.
MOST_BYTES = 1 << 21


class FewValues(NamedTuple):
    """values: ascending; None when there are too many. sets: their documents; None when that is too much to keep."""

    values: Sequence[Value] | None
    sets: Sequence[DocIds] | None


class SortedValues(Protocol):
    """All values of a kind, ascending."""

    def __len__(self) -> int: ...
    def __getitem__(self, rank: int) -> Value: ...
    def rank(self, value: Any, /) -> int: ...  # of one of them


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
    return FewValues(*reader.cached(("few values", field, kind), lambda: _few_values(reader, field, kind)))


def _few_values(
    reader: Reader, field: str, kind: type[Value]
) -> tuple[Sequence[Value] | None, list[DocIds] | None]:  # plain, so that a cache can tell its size
    values = reader.values.few_values(field, kind)
    if values is None or len(values) > FEW_VALUES:
        return None, None
    sets, size = [], 0
    for value in values:
        sets.append(reader.values.value_docids(field, value))
        size += sys.getsizeof(sets[-1])
        if size > MOST_BYTES:
            return values, None
    return values, sets


def sorted_values(reader: Reader, field: str, kind: type[Value]) -> SortedValues:
    """Where each value of a field stands."""
    if kind is str:
        return SortedTexts(reader.cached(("texts", field), lambda: pack(_values(reader, field, str))))
    return SortedNumbers(reader.cached(("numbers", field), lambda: array("d", _values(reader, field, float))))


def _values(reader: Reader, field: str, kind: type[Value]) -> Sequence[Any]:
    return reader.values.distinct_values(field, kind)


class OrdinalLookup(Protocol):
    """Where values stand among all of their kind, told by a document that has them."""

    def __len__(self) -> int: ...
    def of(self, value: Value, docid: int) -> int: ...  # its rank; the document has the value


class _ByValue:
    def __init__(self, every: SortedValues) -> None:
        self._every = every

    def __len__(self) -> int:
        return len(self._every)

    def of(self, value: Value, docid: int) -> int:
        return self._every.rank(value)


class _ByDocument:
    def __init__(self, reader: Reader, field: str, kind: type[Value]) -> None:
        self._reader = reader
        self._field = field
        self._kind = kind
        self._column = doc_values_of(reader, field, kind)

    def __len__(self) -> int:
        return self._column.size

    def of(self, value: Value, docid: int) -> int:
        own = self._column.ranks_of(docid)
        if len(own) == 1:
            return own[0]
        return own[sorted(map(value_order, _held(self._reader, self._field, self._kind, docid))).index(value_order(value))]


def ordinal_lookup(reader: Reader, field: str, kind: type[Value]) -> OrdinalLookup:
    """The places of a field's values."""
    if few_values(reader, field, kind).values is None:
        return _ByDocument(reader, field, kind)
    return _ByValue(sorted_values(reader, field, kind))


def doc_values_of(reader: Reader, field: str, kind: type[Value]) -> DocValues:
    """The column of a field, whatever it costs."""
    column = reader.values.doc_values(field, kind)
    assert column is not None
    return column


def value_of_ordinal(reader: Reader, field: str, kind: type[Value], column: DocValues, rank: int) -> Value:
    """The value of a rank, as a document tells it."""
    value: Value = column.value(rank, lambda docid: _held(reader, field, kind, docid))
    return value


def _held(reader: Reader, field: str, kind: type[Value], docid: int) -> list[Any]:
    """The values of a kind that a document has."""
    ((_, values),) = reader.values.field_values(field, [docid])
    return [value for value in values if isinstance(value, kind)]


# Many texts in order, kept small: found by rank and by text.
#
# Knows how a million texts are held without a million strings; refuses to know what they stand for.


# Texts of one block. A string of its own takes some 60 bytes beside its characters; a block is cut open to read one
# of them, which takes about a microsecond.
BLOCK = 32
_GAP = "\0"

Block = str | list[str]  # joined, or as it is when a text of it has the gap inside
Packed = tuple[list[str], list[Block], int]  # the first text of each block, the blocks, how many texts


def pack(texts: Sequence[str]) -> Packed:
    """Ascending texts, made small for being kept."""
    blocks = [_block(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK)]
    return [texts[start] for start in range(0, len(texts), BLOCK)], blocks, len(texts)


def _block(texts: Sequence[str]) -> Block:
    joined = _GAP.join(texts)
    return joined if joined.count(_GAP) == len(texts) - 1 else list(texts)


def _opened(block: Block) -> list[str]:
    return block.split(_GAP) if isinstance(block, str) else block


class SortedTexts(Sequence[str]):
    """What `pack` made, as the list of texts that it was."""

    def __init__(self, packed: Packed) -> None:
        self._firsts, self._blocks, self._size = packed

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, rank: int) -> str:  # type: ignore[override]  # nobody asks for slices
        return _opened(self._blocks[rank // BLOCK])[rank % BLOCK]

    def rank(self, text: str) -> int:
        """How many texts stand before this one, which need not be among them."""
        return self.seek(text)[0]

    def seek(self, text: str) -> tuple[int, str | None]:
        """Rank and text of this one, or of the first behind it; no text when there is none."""
        number = max(bisect_right(self._firsts, text) - 1, 0)
        block = _opened(self._blocks[number]) if self._size else []
        place = bisect_left(block, text)
        if place < len(block):
            return number * BLOCK + place, block[place]
        rank = number * BLOCK + len(block)
        return rank, self._firsts[number + 1] if rank < self._size else None

    def since(self, rank: int) -> Iterator[str]:
        """The texts from a rank on."""
        for number in range(rank // BLOCK, len(self._blocks)):
            yield from islice(_opened(self._blocks[number]), rank % BLOCK if number == rank // BLOCK else 0, None)
