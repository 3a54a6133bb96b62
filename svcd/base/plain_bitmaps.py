"""Sets of documents in plain Python, for installations without compiled roaring bitmaps.

DocIds has the methods of pyroaring.FrozenBitMap that the engine uses, with the same results, and reads and writes the portable
roaring format (https://github.com/RoaringBitmap/RoaringFormatSpec).

A set has one of two forms. A sparse set is listed: an ascending array of docids. Any other set consists of blocks, the bitmaps of
svcd.base.roaring_format; a single integer for the whole set would take 125 kB for the docid 1,000,000, and 5 us to read one bit.
The forms differ only in memory and time: equal sets may have different forms.
"""
from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from svcd.base.roaring_format import (BLOCK, FEW, Blocks, bits_equal, bits_of, blocks_of, has_bit, lows_of, membership, pieces,
                                      read, write)

_LIMIT = 1 << 32
_LOW = BLOCK - 1
_FULL = (1 << BLOCK) - 1

# A set with at most 1 of _THIN docids is listed: it takes an eighth of the memory, but operators take up to ten times as long.
_THIN = 256
# Up to this size sets are always listed, because a dictionary of blocks is larger and not faster.
_ALWAYS_LISTED = 4
# Up to this size the docids of a set are looked up one by one (0.3 us each); blocks of all are faster for more docids.
_LOOKED_UP = 64


class DocIds:
    """An immutable set of docids, 0 to 2^32 - 1.

    values: docids in any order, repetitions allowed; arrays must be array("I"). None is the empty set. A set made of another set
    has the form that takes the least memory, which results of operators may not have.
    Raises OverflowError if a docid is out of range, TypeError if it is not an integer.
    """

    __slots__ = ("_blocks", "_hash", "_listed", "_size")

    _listed: array[int] | None  # ascending; None for a set in blocks
    _blocks: Blocks  # of a set that is not listed; keys in no certain order
    _size: int  # -1 before it is counted
    _hash: int | None

    def __new__(cls, values: Iterable[int] | None = None) -> DocIds:
        if values is None:
            return _of_listed(array("I"))
        if isinstance(values, DocIds):
            if not values or _is_thin(len(values), values.max()):
                return values if values._listed is not None else _of_listed(values.to_array())
            return values if values._listed is None else _of_blocks(values._as_blocks(), len(values))
        if isinstance(values, range) and values.step == 1:
            return _of_range(values)
        return _of_any(values if isinstance(values, (array, list, tuple, set, frozenset)) else list(values))

    def __len__(self) -> int:
        if self._size < 0:
            self._size = sum(map(int.bit_count, self._blocks.values()))
        return self._size

    def __bool__(self) -> bool:
        return bool(self._blocks if self._listed is None else self._listed)

    def __contains__(self, docid: int) -> bool:
        if not 0 <= docid < _LIMIT:
            raise OverflowError(f"{docid} is not a docid")
        if self._listed is None:
            return has_bit(self._blocks.get(docid >> 16, 0), docid & _LOW)
        place = bisect_left(self._listed, docid)
        return place < len(self._listed) and self._listed[place] == docid

    def __iter__(self) -> Iterator[int]:
        """Iterate over the docids, ascending; holds 4,096 of them at most."""
        if self._listed is not None:
            return iter(self._listed)
        return chain.from_iterable(chain.from_iterable(pieces(self._blocks[high], high << 16) for high in sorted(self._blocks)))

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._as_blocks().items()))
        return self._hash

    def __repr__(self) -> str:
        return f"DocIds({list(self)})" if len(self) <= 20 else f"DocIds([{', '.join(map(str, islice(self, 20)))}, ...])"

    def __sizeof__(self) -> int:
        """Return the bytes of memory, including the objects that only this set refers to."""
        own = object.__sizeof__(self)
        if self._listed is not None:
            return own + sys.getsizeof(self._listed)
        return own + sys.getsizeof(self._blocks) + sum(map(sys.getsizeof, self._blocks.values()))

    # Comparison

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DocIds):
            return NotImplemented
        if self._listed is not None and other._listed is not None:
            return self._listed == other._listed
        if self._listed is None and other._listed is None:
            return self._blocks == other._blocks
        return len(self) == len(other) and self._as_blocks() == other._as_blocks()

    def __le__(self, other: DocIds) -> bool:
        return self.issubset(other)

    def issubset(self, other: DocIds) -> bool:
        """Return whether each docid of this set is in the other."""
        if self._is_looked_up():
            return len(self._found_in(other)) == len(self)
        blocks = other._as_blocks()
        return all(bits & blocks.get(high, 0) == bits for high, bits in self._as_blocks().items())

    def intersect(self, other: DocIds) -> bool:
        """Return whether any docid is in both sets."""
        if self._is_looked_up():
            return bool(self._found_in(other))
        if other._is_looked_up():
            return bool(other._found_in(self))
        blocks = other._as_blocks()
        return any(bits & blocks.get(high, 0) for high, bits in self._as_blocks().items())

    # Operators

    def __and__(self, other: DocIds) -> DocIds:
        if not isinstance(other, DocIds):
            return NotImplemented
        if self._is_looked_up():
            return _of_listed(array("I", self._found_in(other)))
        if other._is_looked_up():
            return _of_listed(array("I", other._found_in(self)))
        if self._listed is not None and other._listed is not None:
            return _of_listed(array("I", sorted(frozenset(self._listed).intersection(other._listed))))
        right = other._as_blocks()
        return _of_blocks({high: both for high, bits in self._as_blocks().items() if (both := bits & right.get(high, 0))})

    def __or__(self, other: DocIds) -> DocIds:
        return _union((self, other)) if isinstance(other, DocIds) else NotImplemented

    def __sub__(self, other: DocIds) -> DocIds:
        if not isinstance(other, DocIds):
            return NotImplemented
        if self._is_looked_up():
            found = frozenset(self._found_in(other))
            return _of_listed(array("I", [docid for docid in self if docid not in found]))
        if self._listed is not None and other._listed is not None:
            return _of_listed(array("I", sorted(frozenset(self._listed).difference(other._listed))))
        unwanted = other._as_blocks()
        # bits ^ (bits & other) is five times faster than bits & ~other, which works on a negative integer
        return _of_blocks({high: rest for high, bits in self._as_blocks().items()
                           if (rest := bits ^ (bits & unwanted[high]) if high in unwanted else bits)})

    def __xor__(self, other: DocIds) -> DocIds:
        if not isinstance(other, DocIds):
            return NotImplemented
        mine, others = self._as_blocks(), other._as_blocks()
        return _of_blocks({high: bits for high in mine | others if (bits := mine.get(high, 0) ^ others.get(high, 0))})

    def intersection_cardinality(self, other: DocIds) -> int:
        """How many docids are in both sets; len(self & other)."""
        if self._is_looked_up():
            return len(self._found_in(other))
        if other._is_looked_up():
            return len(other._found_in(self))
        blocks = other._as_blocks()
        return sum((bits & blocks.get(high, 0)).bit_count() for high, bits in self._as_blocks().items())

    def union(*sets: DocIds) -> DocIds:
        """Return the union of one or more sets: DocIds.union(*sets)."""
        return _union(sets)

    # Order

    def min(self) -> int:
        """Return the smallest docid. Raises ValueError for the empty set."""
        if not self:
            raise ValueError("min() of the empty set")
        if self._listed is not None:
            return self._listed[0]
        high = min(self._blocks)
        bits = self._blocks[high]
        return high << 16 | (bits & -bits).bit_length() - 1

    def max(self) -> int:
        """Return the largest docid. Raises ValueError for the empty set."""
        if not self:
            raise ValueError("max() of the empty set")
        if self._listed is not None:
            return self._listed[-1]
        high = max(self._blocks)
        return high << 16 | self._blocks[high].bit_length() - 1

    # Conversion

    def to_array(self) -> array[int]:
        """The docids as array("I"), ascending."""
        return array("I", self) if self._listed is None else self._listed[:]

    def serialize(self) -> bytes:
        """The set in the portable roaring format, each container in the smallest form; of two equally small ones not the runs."""
        if self._listed is None:
            return write([(high, self._blocks[high]) for high in sorted(self._blocks)])
        return write(list(_groups(self._listed)))

    @classmethod
    def deserialize(cls, data: bytes | memoryview) -> DocIds:
        """Return the set of bytes in the portable roaring format; further bytes are ignored. Raises ValueError."""
        return with_size(data)[0]

    # Forms

    def _as_blocks(self) -> Blocks:
        if self._listed is None:
            return self._blocks
        if self._listed and len(self._listed) * BLOCK > self._listed[-1] * FEW:  # more than a few in each block
            return blocks_of(self._listed, self._listed[-1])
        return {high: bits_of(lows) for high, lows in _groups(self._listed)}

    def _is_looked_up(self) -> bool:
        return self._listed is not None and len(self._listed) <= _LOOKED_UP

    def _found_in(self, other: DocIds) -> list[int]:
        """The docids of this listed set that are in the other, ascending."""
        listed = self._listed or ()
        if other._listed is None:
            get = other._blocks.get
            return [docid for docid in listed if has_bit(get(docid >> 16, 0), docid & _LOW)]
        if len(other._listed) <= _LOOKED_UP:
            return sorted(frozenset(listed).intersection(other._listed))
        return [docid for docid in listed if docid in other]


# Sets of either form

def _of_listed(listed: array[int]) -> DocIds:
    docids = object.__new__(DocIds)
    docids._listed, docids._blocks, docids._size, docids._hash = listed, {}, len(listed), None
    return docids


def _of_blocks(blocks: Blocks, size: int = -1) -> DocIds:
    docids = object.__new__(DocIds)
    docids._listed, docids._blocks, docids._size, docids._hash = None, blocks, size, None
    return docids


def _is_thin(count: int, top: int) -> bool:
    return count <= _ALWAYS_LISTED or count * _THIN <= top


def _of_range(docids: range) -> DocIds:
    """Return the set of a range of step 1; docids of 2^32 and above are left out, as by pyroaring."""
    if docids.start < 0:
        raise OverflowError(f"{docids.start} is not a docid")
    docids = docids[:max(_LIMIT - docids.start, 0)]
    if not docids or _is_thin(len(docids), docids[-1]):
        return _of_listed(array("I", docids))
    first, last = docids[0] >> 16, docids[-1] >> 16
    blocks = dict.fromkeys(range(first, last + 1), _FULL)
    blocks[last] &= (2 << (docids[-1] & _LOW)) - 1
    blocks[first] = blocks[first] >> (docids[0] & _LOW) << (docids[0] & _LOW)
    return _of_blocks(blocks, len(docids))


def _of_any(values: Collection[int]) -> DocIds:
    if isinstance(values, array) and values.typecode != "I":
        raise ValueError(f"expected an array of type I, not {values.typecode}")
    if not values:
        return _of_listed(array("I"))
    top = max(values)
    if top >= _LIMIT or not isinstance(values, array) and min(values) < 0:
        raise OverflowError(f"{min(values)} to {top} are not all docids")
    if _is_thin(len(values), top):
        return _of_listed(array("I", sorted(set(values))))
    return _of_blocks(blocks_of(values, top))


def _union(sets: Sequence[DocIds]) -> DocIds:
    """Return the union. Listed sets first become one, so that hundreds of small sets take as long as one set of all docids."""
    listed = array("I")
    blocks: Blocks = {}
    for docids in sets:
        if docids._listed is not None:
            listed += docids._listed
        elif blocks:
            _add(blocks, docids._blocks)
        else:
            blocks = dict(docids._blocks)
    if not blocks:
        return _of_any(listed)
    if listed:
        _add(blocks, _of_any(listed)._as_blocks())
    return _of_blocks(blocks)


# Blocks

def _add(blocks: Blocks, others: Mapping[int, int]) -> None:
    for high, bits in others.items():
        blocks[high] = blocks.get(high, 0) | bits


def _groups(listed: array[int]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the docids of an ascending array by block: the block and the lower 16 bits, ascending."""
    start = 0
    while start < len(listed):
        high = listed[start] >> 16
        end = bisect_left(listed, (high + 1) << 16, start)
        yield high, [docid & _LOW for docid in listed[start:end]] if high else listed[start:end]
        start = end


# Functions that the compiled class lacks

def with_size(data: bytes | memoryview) -> tuple[DocIds, int]:
    """Return the set at the start of bytes in the portable roaring format, and the number of its bytes. Raises ValueError."""
    containers, total, size = read(data)
    if not containers:
        return DocIds(), size
    high, block = containers[-1]
    top = high << 16 | (block.bit_length() - 1 if isinstance(block, int) else block[-1])
    if not _is_thin(total, top):
        blocks = {high: block if isinstance(block, int) else bits_of(block) for high, block in containers}
        return _of_blocks(blocks, total), size
    listed = array("I")
    for high, block in containers:
        lows = lows_of(block) if isinstance(block, int) else block
        listed.extend([high << 16 | low for low in lows])
    return _of_listed(listed), size


def membership_bytes(docids: DocIds) -> bytes:
    """Return one byte for each docid from 0 to the largest: 1 if it is in the set, else 0. The set must not be empty or
    sparse."""
    blocks = docids._as_blocks()
    last = max(blocks)
    return b"".join([membership(blocks.get(high, 0), BLOCK if high < last else 0) for high in range(last + 1)])


def from_bytes_equal(values: bytes, value: int) -> DocIds:
    """Return the set of the offsets at which `values` has the byte `value`; the time does not depend on their number."""
    blocks = {start >> 16: bits_equal(values[start:start + BLOCK], value) for start in range(0, len(values), BLOCK)}
    return _of_blocks({high: bits for high, bits in blocks.items() if bits})
