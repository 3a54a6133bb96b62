"""Estimates of how near many vectors are to a query, from their sketches; exact ones where vectors are quantized.

A `SketchBlock` has the sketches of up to SLOTS vectors as bit planes, a `SketchQuery` says which planes are added and which
subtracted, `Estimates` has the sums. See docs/vectors.md#search.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from math import hypot, sqrt
from operator import or_
from typing import NamedTuple

from svcd.base.docids import EMPTY, DocIds, membership_bytes
from svcd.base.integer_bitmaps import lows_of
from svcd.vectors.bit_planes import SLOTS, difference, largest, total, transposed, values
from svcd.vectors.sketches import LEAST_NORM, MOST_NORM, SketchForm
from svcd.vectors.vector import single

# The slots of a block are divided into regions, one for the sketches of each row of an index: a small write changes one of them.
REGION = 1 << 10
REGIONS = SLOTS // REGION

# Numbers of a query are cut off at so many root mean squares of them, or where those of sketches are.
_LARGEST = 2.75

_ALL = (1 << SLOTS) - 1
_REGION_ONES = (1 << REGION) - 1
_BINARY = bytes.maketrans(b"\0\1", b"01")


class Region(NamedTuple):
    """The sketches of up to REGION vectors, one after the other, and the document of each, ascending."""

    docids: array[int]
    sketches: bytes

    def rows(self, size: int) -> bytes:
        """The sketches, followed by zeros for the slots that are not used."""
        return self.sketches.ljust(REGION * size, b"\0")


class SketchBlock:
    """The sketches of up to REGIONS regions as bit planes; immutable."""

    __slots__ = ("_bytes", "_docids", "_runs", "planes", "slots", "special")

    # planes: bit n of part p of the sketches is in plane p * 8 * part_size + n. slots: those that hold a sketch.
    # special: those of vectors that must be compared exactly.
    planes: list[int]
    slots: int
    special: int

    def __init__(self, planes: list[int], docids: list[array[int]]) -> None:
        self.planes = planes
        self._docids = docids
        # The first docid of a region whose docids are a run without gaps, or -1.
        self._runs = [each[0] if each and each[-1] - each[0] == len(each) - 1 == len(set(each)) - 1 else -1 for each in docids]
        self.slots = sum((1 << len(each)) - 1 << REGION * place for place, each in enumerate(docids))
        self.special = self.slots ^ self.slots & reduce(or_, planes, 0)
        self._bytes = sum(map(int.__sizeof__, planes)) + 8 * len(planes) + sum(each.__sizeof__() for each in docids)

    @classmethod
    def of(cls, form: SketchForm, bits: int, regions: Sequence[Region]) -> SketchBlock:
        """A block of some regions. bits: how many bits of each number it has, the highest ones."""
        rows = b"".join([region.rows(form.size) for region in regions])
        return cls(transposed(rows, form.size, form.part_size * bits), [region.docids for region in regions])

    def replaced(self, form: SketchForm, regions: Mapping[int, Region]) -> SketchBlock:
        """The block with other regions at some places, or one more at the end."""
        planes, docids = self.planes, list(self._docids)
        for place, region in sorted(regions.items()):
            shift = REGION * place
            kept = _ALL ^ _REGION_ONES << shift
            new = transposed(region.rows(form.size), form.size, len(planes) // 8)
            planes = [plane & kept | bits << shift for plane, bits in zip(planes, new)]
            docids[place:place + 1] = [region.docids]
        return SketchBlock(planes, docids)

    def __sizeof__(self) -> int:
        """Bytes with all planes, for caches."""
        return super().__sizeof__() + self._bytes

    def docids_at(self, slots: Iterable[int]) -> list[int]:
        """The documents of some slots."""
        docids = self._docids
        return [docids[slot // REGION][slot % REGION] for slot in slots]

    def slots_of(self, members: bytes) -> int:
        """The slots of some documents. members: as membership_bytes() gives them."""
        flags = []
        for run, docids in zip(self._runs, self._docids):
            if run >= 0:
                held = members[run:run + len(docids)]
            elif docids and docids[-1] >= len(members):
                padded = members.ljust(docids[-1] + 1, b"\0")
                held = bytes(map(padded.__getitem__, docids))
            else:
                held = bytes(map(members.__getitem__, docids))
            flags.append(held.ljust(REGION, b"\0"))
        return int(b"".join(flags).translate(_BINARY)[::-1] or b"0", 2)

    def slots_without(self, few: Iterable[int]) -> int:
        """The slots of all documents but a few."""
        slots = self.slots
        for docid in few:
            for place, docids in enumerate(self._docids):
                if docids and docids[0] <= docid <= docids[-1]:
                    first, end = bisect_left(docids, docid), bisect_right(docids, docid)
                    slots ^= (1 << end - first) - 1 << REGION * place + first
        return slots


class SketchQuery:
    """What is added up to estimate the products of sketched vectors with a query.

    The numbers of the query become weights of as many bits as those of the sketches have, and a sign. A weight times a number
    is the sum of a plane for each bit of the one and of the other; the product of both lowest bits is left out, which is an
    eighth of all additions and matters little.
    """

    def __init__(self, form: SketchForm, bits: int, vector: Sequence[float]) -> None:
        """bits: those of the blocks. vector: of which is_comparable() holds, if it is not quantized."""
        self._is_quantized = not form.step
        self._size = form.dimensions
        weights = [int(number > 0) for number in vector] if self._is_quantized else _weights(form, vector)
        weights += [0] * (form.dimensions - len(weights))
        # Zeros of a quantized query differ from ones.
        self._zeros = weights.count(0)
        # For each binary digit the numbers of planes.
        digits = form.bits + bits - 1
        self._added: list[list[int]] = [[] for _ in range(digits)]
        self._subtracted: list[list[int]] = [[] for _ in range(digits)]
        for weight in set(weights):
            numbers = [number for number, each in enumerate(weights) if each == weight]
            planes = self._added if weight > 0 else self._subtracted
            size = int(self._is_quantized) or abs(weight)
            for part in range(bits):
                first = part * 8 * form.part_size
                for digit in range(form.bits):
                    is_left_out = part == form.bits - 1 and not digit and not self._is_quantized
                    if size >> digit & 1 and not is_left_out:
                        # The lowest bit that the blocks have counts once.
                        planes[bits - 1 - part + digit] += map(first.__add__, numbers)

    @staticmethod
    def is_comparable(vector: Sequence[float]) -> bool:
        """Can the query be compared by sketches? All its distances may be special otherwise."""
        return LEAST_NORM <= hypot(*vector) <= MOST_NORM

    def sums(self, block: SketchBlock) -> tuple[list[int], int]:
        """For each slot of a block its estimate, as planes, the greater the nearer; and a number that all have been raised by."""
        plane = block.planes.__getitem__
        return difference(total([map(plane, numbers) for numbers in self._added]),
                          total([map(plane, numbers) for numbers in self._subtracted]), _ALL)

    def distance(self, estimate: int) -> float:
        """The distance that an estimate of quantized vectors, not raised by anything, stands for."""
        return single((self._size - self._zeros - estimate) / self._size)


def _weights(form: SketchForm, vector: Sequence[float]) -> list[int]:
    table, factor = _weight_table(form)
    halves, middle = factor * 2 / hypot(*vector), len(table) // 2
    return [table[int(number * halves + middle)] for number in vector]


@cache
def _weight_table(form: SketchForm) -> tuple[list[int], float]:
    """The weights of numbers, by half units, zero in the middle; and how many units the norm of a vector has."""
    most = (1 << form.bits) - 2
    factor = most * sqrt(form.dimensions) / max(_LARGEST, form.step * (1 << form.bits - 1))
    middle = int(2 * factor) + 2
    table = []
    for place in range(2 * middle):
        number = (place - middle + 0.5) / 2
        # Odd ones above 1 are left out: they lead to a fourth more additions than they are worth.
        weight = round(number) if -1.5 < number < 1.5 else 2 * round(number / 2)
        table.append(max(-most, min(most, weight)))
    return table, factor


class Estimates:
    """The estimates of the vectors of some documents.

    special_docids: documents with a vector for which there is no estimate.
    """

    def __init__(self, query: SketchQuery, blocks: Iterator[SketchBlock], among: DocIds | None, without: DocIds = EMPTY) -> None:
        """among: None for all documents, or all but a few. Each block is looked at once."""
        self._sums: list[list[int]] = []
        self._slots: list[int] = []
        self._blocks: list[SketchBlock] = []
        self._raised_by = 0
        self.special_docids: list[int] = []
        members = None if among is None else membership_bytes(among)
        for block in blocks:
            slots = block.slots_without(without) if members is None else block.slots_of(members)
            if special := slots & block.special:
                self.special_docids += block.docids_at(lows_of(special))
            if slots:
                sums, self._raised_by = query.sums(block)
                self._sums.append(sums)
                self._slots.append(slots)
                self._blocks.append(block)

    def best(self, count: int) -> list[tuple[int, int]]:
        """(estimate, docid) of the `count` vectors that seem nearest, in this order, equal ones by docid; or of all."""
        found: list[tuple[int, int]] = []  # with the estimate's opposite, so that they sort
        for block, sums, chosen in zip(self._blocks, self._sums, largest(self._sums, self._slots, count)):
            slots, estimates = values(sums, chosen)
            found += zip(map(self._raised_by.__sub__, estimates), block.docids_at(slots))
        found.sort()
        return [(-opposite, docid) for opposite, docid in found]
