"""The values of a field in the whole index, cached until the next write: few values with their sets, and ordinals of values.

The ordinal of a value is its index among all values of its kind (numbers, texts) of the field, in ascending order.
"""
from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from svcd.base.doc_values import DocValues, value_order
from svcd.base.docids import DocIds, memory_bytes
from svcd.query.reader import Reader, Value

# Fields with more values of a kind are counted by a scan, or by ordinals (svcd.facets.counting).
FEW_VALUES = 1024
# The sets of all values of a field are cached together up to this many bytes.
MOST_BYTES = 1 << 21


class FewValues(NamedTuple):
    """values: ascending, None when they are many. sets: the documents of each value, None when they are too large to cache."""

    values: Sequence[Value] | None
    sets: Sequence[DocIds] | None


class SortedNumbers:
    """Ascending numbers, with access by ordinal and by value."""

    def __init__(self, numbers: array[float]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, ordinal: int) -> float:
        return self._numbers[ordinal]

    def ordinal(self, value: Any) -> int:
        """Return the ordinal of a number that is among them; -0.0 comes before 0.0, though they are equal."""
        ordinal = bisect_left(self._numbers, value)
        follows_negative_zero = value == 0 < math.copysign(1, value) and math.copysign(1, self._numbers[ordinal]) < 0
        return ordinal + follows_negative_zero


def few_values(reader: Reader, field: str, kind: type[Value]) -> FewValues:
    """Return the values of a field if they are few, with their sets if these are small; cached."""
    def find() -> tuple[Sequence[Value] | None, list[DocIds] | None]:  # a plain tuple: the cache can measure its size
        values = reader.values.few_values(field, kind)
        if values is None or len(values) > FEW_VALUES:
            return None, None
        sets, size = [], 0
        for value in values:
            sets.append(reader.values.value_docids(field, value))
            size += memory_bytes(sets[-1])
            if size > MOST_BYTES:
                return values, None
        return values, sets

    return FewValues(*reader.cached(("few values", field, kind), find))


def sorted_values(reader: Reader, field: str, kind: type[Value]) -> SortedNumbers | SortedTexts:
    """Return all values of a kind that a field has, ascending; cached."""
    def find() -> Any:
        values: Sequence[Any] = reader.values.distinct_values(field, kind)
        return pack(values) if kind is str else array("d", values)

    if kind is str:
        return SortedTexts(reader.cached(("texts", field), find))
    return SortedNumbers(reader.cached(("numbers", field), find))


class OrdinalLookup(NamedTuple):
    """size: the number of values. of: (value, docid of a document that has it) -> its ordinal."""

    size: int
    of: Callable[[Value, int], int]


def ordinal_lookup(reader: Reader, field: str, kind: type[Value]) -> OrdinalLookup:
    """Return a lookup of ordinals of the values of a field: among all values if they are few, else in the doc values."""
    if few_values(reader, field, kind).values is not None:
        values = sorted_values(reader, field, kind)
        return OrdinalLookup(len(values), lambda value, docid: values.ordinal(value))
    doc_values = doc_values_of(reader, field, kind)

    def ordinal(value: Value, docid: int) -> int:
        own = doc_values.ranks_of(docid)
        if len(own) == 1:
            return own[0]
        return own[sorted(map(value_order, values_of_document(reader, field, kind, docid))).index(value_order(value))]

    return OrdinalLookup(doc_values.size, ordinal)


def doc_values_of(reader: Reader, field: str, kind: type[Value]) -> DocValues:
    """Return the doc values of a field, loaded if they are not cached."""
    doc_values = reader.values.doc_values(field, kind)
    assert doc_values is not None
    return doc_values


def values_of_document(reader: Reader, field: str, kind: type[Value], docid: int) -> list[Any]:
    """Return the values of a kind that a document has."""
    ((_, values),) = reader.values.field_values(field, [docid])
    return [value for value in values if isinstance(value, kind)]


# Sorted texts in little memory

# Texts per block. A separate string takes some 60 bytes besides its characters; to read one from a block the block is
# split, which takes about a microsecond.
BLOCK = 32
_SEPARATOR = "\0"

Block = str | list[str]  # joined; the list itself when one of its texts contains the separator
Packed = tuple[list[str], list[Block], int]  # the first text of each block, the blocks, the number of texts


def pack(texts: Sequence[str]) -> Packed:
    """Return ascending texts in the form that SortedTexts reads, small enough to be cached."""
    blocks: list[Block] = []
    for start in range(0, len(texts), BLOCK):
        block = texts[start : start + BLOCK]
        joined = _SEPARATOR.join(block)
        blocks.append(joined if joined.count(_SEPARATOR) == len(block) - 1 else list(block))
    return [texts[start] for start in range(0, len(texts), BLOCK)], blocks, len(texts)


def _texts_of(block: Block) -> list[str]:
    return block.split(_SEPARATOR) if isinstance(block, str) else block


class SortedTexts(Sequence[str]):
    """The list of texts that `pack` packed, with access by ordinal and by text."""

    def __init__(self, packed: Packed) -> None:
        self._firsts, self._blocks, self._size = packed

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, ordinal: int) -> str:  # type: ignore[override]  # slices are not needed
        return _texts_of(self._blocks[ordinal // BLOCK])[ordinal % BLOCK]

    def ordinal(self, text: Any) -> int:
        """Count the texts that are smaller than this one, which need not be among them."""
        return self.seek(text)[0]

    def seek(self, text: str) -> tuple[int, str | None]:
        """Return ordinal and text of the smallest text that is not smaller than this one; the text is None if none is."""
        number = max(bisect_right(self._firsts, text) - 1, 0)
        block = _texts_of(self._blocks[number]) if self._size else []
        place = bisect_left(block, text)
        if place < len(block):
            return number * BLOCK + place, block[place]
        ordinal = number * BLOCK + len(block)
        return ordinal, self._firsts[number + 1] if ordinal < self._size else None

    def from_ordinal(self, ordinal: int) -> Iterator[str]:
        """Yield the texts from an ordinal on."""
        for number in range(ordinal // BLOCK, len(self._blocks)):
            yield from islice(_texts_of(self._blocks[number]), ordinal % BLOCK if number == ordinal // BLOCK else 0, None)
