"""Sketches: a few bits for each number of a vector, to estimate its product with a query, and so its distance.

Each number is divided by the root mean square of its vector and rounded to equal steps around zero. The number of the step,
counted from the lowest step, has `bits` bits. A sketch has the highest bit of all numbers, then the next lower bit of all
numbers, and so on, each as one little-endian integer; the first number has the lowest bit. A sketch of zero bits marks a vector
that must be compared exactly, such as a vector of zeros; it is unique, because not all numbers can be far below zero.
The sketch of a quantized vector is the vector, and its estimates are exact. See docs/vectors.md#sketches.

A `SketchBlock` stores the sketches of up to SLOTS vectors as bit planes, a `SketchQuery` lists the planes to add and to subtract,
and `Estimates` holds the sums. See docs/vectors.md#search. A plane is an integer with one bit for each of up to SLOTS sketches,
for example the highest bit of their third number. Operations on planes work as the gates of an adder, and their sums are planes
too: one for each binary digit, the lowest first. On one core, adding a plane to the sums of 65,536 sketches takes 2 us.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from math import hypot, sqrt
from operator import or_
from typing import NamedTuple

from svcd.base.docids import EMPTY, DocIds, bytes_of, membership_bytes
from svcd.base.roaring_format import lows_of
from svcd.vectors.vector import padded, single

# Number of bits in a plane: small enough for the processor's cache, and for the allocator to avoid system calls.
SLOTS = 1 << 16


def transposed(rows: bytes, width: int, columns: int) -> list[int]:
    """Return the planes of the first `columns` bytes of rows of `width` bytes: one for each bit, from the lowest bit of the first
    byte on. The number of rows must be a multiple of 8.
    """
    count = len(rows) // width
    # Transpose each word of 8 bytes (8 rows) as an 8 x 8 matrix of bits, by swapping blocks of 1, 2, then 4 bits.
    first, second, third = (int.from_bytes(word * (count // 8), "little") for word in _WORDS)
    planes = []
    for column in range(columns):
        bits = int.from_bytes(rows[column::width], "little")
        if not bits:
            planes += [0] * 8
            continue
        swapped = (bits ^ bits >> 7) & first
        bits ^= swapped ^ swapped << 7
        swapped = (bits ^ bits >> 14) & second
        bits ^= swapped ^ swapped << 14
        swapped = (bits ^ bits >> 28) & third
        bits ^= swapped ^ swapped << 28
        swapped_bytes = bits.to_bytes(count, "little")
        planes += [int.from_bytes(swapped_bytes[bit::8], "little") for bit in range(8)]
    return planes


_WORDS = [mask.to_bytes(8, "little") for mask in (0x00AA00AA00AA00AA, 0x0000CCCC0000CCCC, 0x00000000F0F0F0F0)]


def total(addends: Sequence[Iterable[int]]) -> list[int]:
    """Return the sums of planes. addends: the planes of each binary digit, from the lowest digit on.

    A full adder turns three planes of a digit into one plane of this digit and one of the next. The loop adds eight planes at a
    time to sums of three digits, so that the few planes in use fit the processor's cache.
    """
    pending = [list(planes) for planes in addends]
    sums: list[int] = []
    while len(sums) < len(pending):
        planes = pending[len(sums)]
        ones = twos = fours = 0
        eights = []
        whole = len(planes) & ~7
        eight = iter(planes[:whole])
        for a, b, c, d, e, f, g, h in zip(*[eight] * 8):
            u = ones ^ a
            ones, two_ab = u ^ b, ones & a | u & b
            u = ones ^ c
            ones, two_cd = u ^ d, ones & c | u & d
            u = twos ^ two_ab
            twos, four_ad = u ^ two_cd, twos & two_ab | u & two_cd
            u = ones ^ e
            ones, two_ab = u ^ f, ones & e | u & f
            u = ones ^ g
            ones, two_cd = u ^ h, ones & g | u & h
            u = twos ^ two_ab
            twos, four_eh = u ^ two_cd, twos & two_ab | u & two_cd
            u = fours ^ four_ad
            fours, eight_ah = u ^ four_eh, fours & four_ad | u & four_eh
            eights.append(eight_ah)
        carried: list[list[int]] = [[], [], eights]
        rest = planes[whole:]
        if whole:
            rest.append(ones)
            carried[0].append(twos)
            carried[1].append(fours)
        one = rest.pop() if rest else 0
        while rest:
            a, b = rest.pop(), rest.pop() if rest else 0
            u = one ^ a
            one, two = u ^ b, one & a | u & b
            carried[0].append(two)
        sums.append(one)
        for place, planes in enumerate(carried, len(sums)):
            if planes:
                pending += [[] for _ in range(place + 1 - len(pending))]
                pending[place] += planes
    return sums


def difference(left: Sequence[int], right: Sequence[int], ones: int) -> tuple[list[int], int]:
    """Return the sums `left` minus the sums `right` plus a number that is the same for all slots, and this number.

    ones: an integer with one bit for each slot.
    """
    digits = max(len(left), len(right))
    pairs = [[plane] for plane in left] + [[] for _ in range(digits - len(left))]
    for digit in range(digits):
        pairs[digit].append(ones ^ right[digit] if digit < len(right) else ones)
    return total(pairs), (1 << digits) - 1


def largest(sums: Sequence[Sequence[int]], among: Sequence[int], count: int) -> list[int]:
    """Return the `count` slots with the largest sums in several blocks; for equal sums, the first slots of the first blocks.

    sums: the planes of each block, with equal lengths. among: the slots of each block that count. The result has the slots of
    each block; all slots if they are fewer than `count`.
    """
    inside, edge, missing = [0] * len(among), list(among), count
    for digit in reversed(range(max(map(len, sums), default=0))):
        upper = [slots & planes[digit] for slots, planes in zip(edge, sums)]
        found = sum(slots.bit_count() for slots in upper)
        if found <= missing:
            inside = [slots | more for slots, more in zip(inside, upper)]
            edge = [slots ^ more for slots, more in zip(edge, upper)]
            missing -= found
        else:
            edge = upper
    for block, slots in enumerate(edge):
        found = slots.bit_count()
        if found > missing:  # only the lowest bits: bisect for the smallest width that has `missing` of them
            low, high = 0, slots.bit_length()
            while low < high:
                middle = (low + high) // 2
                if (slots & (1 << middle) - 1).bit_count() < missing:
                    low = middle + 1
                else:
                    high = middle
            slots &= (1 << low) - 1
        inside[block] |= slots
        missing = max(0, missing - found)
    return inside


# Byte -> binary digit: `0` for zero, `1` for any other byte.
_DIGIT = bytes(b"0" + b"1" * 255)


def values(sums: Sequence[int], slots: int) -> tuple[list[int], list[int]]:
    """Return the given slots, ascending, and their sums."""
    listed = list(lows_of(slots))
    places = [slot >> 3 for slot in listed]
    # The mask of each slot in its byte.
    bits = int.from_bytes(bytes([1 << (slot & 7) for slot in listed]), "little")
    digits = []
    for plane in reversed(sums or [0]):
        found = bytes(map(plane.to_bytes(SLOTS // 8, "little").__getitem__, places))
        digits.append((int.from_bytes(found, "little") & bits).to_bytes(len(listed), "little").translate(_DIGIT))
    return listed, [int(bytes(each), 2) for each in zip(*digits)]


# Vectors and queries with a smaller or larger norm are compared exactly: single precision makes their distances special.
LEAST_NORM, MOST_NORM = 2.0 ** -10, 2.0 ** 50
# (least dimensions, bits, step in root mean squares). With fewer numbers, each number matters more. The steps minimize the error
# for normally distributed numbers.
_FORMS = ((96, 3, 0.5), (48, 4, 0.335), (16, 6, 0.104), (1, 8, 0.0308))
# Adding this rounds a number to an integer, which is then the lowest byte of the single-precision form.
_TO_INTEGER = 1.5 * 2.0 ** 23
_MOST_STEPS = 127  # maximum number of steps above and below zero in one byte


class SketchForm(NamedTuple):
    """Parameters of the sketches of an embedder. bits: bits for each number. step: 0 for quantized vectors."""

    dimensions: int
    bits: int
    step: float

    @classmethod
    def of(cls, dimensions: int, is_quantized: bool) -> SketchForm:
        """Return the form for vectors of this length."""
        if is_quantized:
            return cls(padded(dimensions), 1, 0.0)
        return next(cls(dimensions, bits, step) for least, bits, step in _FORMS if dimensions >= least)

    @property
    def part_size(self) -> int:
        """The size in bytes of one bit of all numbers."""
        return -(-self.dimensions // 8)

    @property
    def size(self) -> int:
        """The size of a sketch in bytes."""
        return self.part_size * self.bits

    def sketch(self, vector: Sequence[float]) -> bytes:
        """Return the sketch of a vector that is not quantized."""
        length = hypot(*vector)
        if not LEAST_NORM <= length <= MOST_NORM:
            return bytes(self.size)
        factor = sqrt(self.dimensions) / (self.step * length)
        # A step extends from its number to the next, so its middle must round to its number.
        shift = _TO_INTEGER - 0.5
        shifted = [number * factor + shift for number in vector]
        if sqrt(self.dimensions) >= self.step * _MOST_STEPS:  # else no number can be so large
            least, most = _TO_INTEGER - _MOST_STEPS, _TO_INTEGER + _MOST_STEPS
            shifted = [min(max(number, least), most) for number in shifted]
        lows = bytes_of(array("f", shifted))[::4][::-1]
        size = self.part_size
        return b"".join([int(lows.translate(digits), 2).to_bytes(size, "little") for digits in _DIGITS[self.bits]])


def _digits(bits: int) -> list[bytes]:
    """Return a table for each bit of the number of a step, the highest bit first: lowest byte of the step -> binary digit."""
    middle = 1 << bits - 1
    numbers = [max(0, min(2 * middle - 1, (low if low < 128 else low - 256) + middle)) for low in range(256)]
    return [bytes(48 + (number >> bit & 1) for number in numbers) for bit in reversed(range(bits))]


_DIGITS = {bits: _digits(bits) for _, bits, _ in _FORMS}


# The slots of a block are divided into regions, one for each row of sketches in an index; a small write changes one region.
REGION = 1 << 10
REGIONS = SLOTS // REGION

# Numbers of a query are clipped at _LARGEST times their root mean square, or at the limit of sketches if that is larger.
_LARGEST = 2.75

_ALL = (1 << SLOTS) - 1
_REGION_ONES = (1 << REGION) - 1
_BINARY = bytes.maketrans(b"\0\1", b"01")


class Region(NamedTuple):
    """The joined sketches of up to REGION vectors, and their documents, ascending."""

    docids: array[int]
    sketches: bytes

    def rows(self, size: int) -> bytes:
        """Return the sketches, padded with zeros for unused slots."""
        return self.sketches.ljust(REGION * size, b"\0")


class SketchBlock:
    """The sketches of up to REGIONS regions as bit planes; immutable.

    planes: bit n of part p of the sketches is in plane p * 8 * part_size + n. slots: the slots with a sketch.
    special: the slots of vectors that must be compared exactly.
    """

    __slots__ = ("_bytes", "_docids", "_runs", "planes", "slots", "special")

    planes: list[int]
    slots: int
    special: int

    def __init__(self, planes: list[int], docids: list[array[int]]) -> None:
        self.planes = planes
        self._docids = docids
        # The first docid of each region; -1 if its docids have gaps or duplicates.
        self._runs = [each[0] if each and each[-1] - each[0] == len(each) - 1 == len(set(each)) - 1 else -1 for each in docids]
        self.slots = sum((1 << len(each)) - 1 << REGION * place for place, each in enumerate(docids))
        self.special = self.slots ^ self.slots & reduce(or_, planes, 0)
        self._bytes = sum(map(int.__sizeof__, planes)) + 8 * len(planes) + sum(each.__sizeof__() for each in docids)

    @classmethod
    def of(cls, form: SketchForm, bits: int, regions: Sequence[Region]) -> SketchBlock:
        """Return a block of some regions. bits: number of bits to keep of each number, the highest bits."""
        rows = b"".join([region.rows(form.size) for region in regions])
        return cls(transposed(rows, form.size, form.part_size * bits), [region.docids for region in regions])

    def replaced(self, form: SketchForm, regions: Mapping[int, Region]) -> SketchBlock:
        """Return the block with some regions replaced, or with one more at the end."""
        planes, docids = self.planes, list(self._docids)
        for place, region in sorted(regions.items()):
            shift = REGION * place
            kept = _ALL ^ _REGION_ONES << shift
            new = transposed(region.rows(form.size), form.size, len(planes) // 8)
            planes = [plane & kept | bits << shift for plane, bits in zip(planes, new)]
            docids[place:place + 1] = [region.docids]
        return SketchBlock(planes, docids)

    def __sizeof__(self) -> int:
        """Return the size in bytes including all planes, for caches."""
        return super().__sizeof__() + self._bytes

    def docids_at(self, slots: Iterable[int]) -> list[int]:
        """Return the documents of some slots."""
        docids = self._docids
        return [docids[slot // REGION][slot % REGION] for slot in slots]

    def slots_of(self, members: bytes) -> int:
        """Return the slots of some documents. members: result of membership_bytes()."""
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
        """Return the slots of all documents except a few."""
        slots = self.slots
        for docid in few:
            for place, docids in enumerate(self._docids):
                if docids and docids[0] <= docid <= docids[-1]:
                    first, end = bisect_left(docids, docid), bisect_right(docids, docid)
                    slots ^= (1 << end - first) - 1 << REGION * place + first
        return slots


class SketchQuery:
    """The planes to add and to subtract to estimate the products of sketched vectors with a query.

    The numbers of the query become weights with a sign and the same number of bits as the numbers of sketches. The product of a
    weight and a number is a sum of planes, one for each pair of bits. The product of both lowest bits is omitted: it would be an
    eighth of all additions and hardly changes the results.
    """

    def __init__(self, form: SketchForm, bits: int, vector: Sequence[float]) -> None:
        """bits: bits of each number in the blocks. vector: must be comparable (see is_comparable) unless it is quantized."""
        self._is_quantized = not form.step
        self._size = form.dimensions
        weights = [int(number > 0) for number in vector] if self._is_quantized else _weights(form, vector)
        weights += [0] * (form.dimensions - len(weights))
        # Zeros of a quantized query differ from ones.
        self._zeros = weights.count(0)
        # The numbers of the planes of each binary digit.
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
                        # The lowest bit in the blocks has weight 1.
                        planes[bits - 1 - part + digit] += map(first.__add__, numbers)

    @staticmethod
    def is_comparable(vector: Sequence[float]) -> bool:
        """Return whether sketches can estimate distances from the query. For other queries all distances may be special."""
        return LEAST_NORM <= hypot(*vector) <= MOST_NORM

    def sums(self, block: SketchBlock) -> tuple[list[int], int]:
        """Return the estimates of the slots of a block as planes, and a constant that is added to each; greater means nearer."""
        plane = block.planes.__getitem__
        return difference(total([map(plane, numbers) for numbers in self._added]),
                          total([map(plane, numbers) for numbers in self._subtracted]), _ALL)

    def distance(self, estimate: int) -> float:
        """Return the distance for an estimate, without the added constant, of quantized vectors."""
        return single((self._size - self._zeros - estimate) / self._size)


def _weights(form: SketchForm, vector: Sequence[float]) -> list[int]:
    table, factor = _weight_table(form)
    halves, middle = factor * 2 / hypot(*vector), len(table) // 2
    return [table[int(number * halves + middle)] for number in vector]


@cache
def _weight_table(form: SketchForm) -> tuple[list[int], float]:
    """Return the weights of numbers in steps of half a unit, with zero in the middle, and the norm of a vector in units."""
    most = (1 << form.bits) - 2
    factor = most * sqrt(form.dimensions) / max(_LARGEST, form.step * (1 << form.bits - 1))
    middle = int(2 * factor) + 2
    table = []
    for place in range(2 * middle):
        number = (place - middle + 0.5) / 2
        # Odd weights above 1 are not used: they cost a quarter more additions for little precision.
        weight = round(number) if -1.5 < number < 1.5 else 2 * round(number / 2)
        table.append(max(-most, min(most, weight)))
    return table, factor


class Estimates:
    """The estimates of the vectors of some documents. special_docids: documents with a vector without an estimate."""

    def __init__(self, query: SketchQuery, blocks: Iterator[SketchBlock], among: DocIds | None, without: DocIds = EMPTY) -> None:
        """among: documents to estimate; None for all documents except `without`. Reads each block once."""
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
        """Return (estimate, docid) of the up to `count` vectors with the best estimates, best first, then by docid."""
        found: list[tuple[int, int]] = []  # with negated estimates, for sorting
        for block, sums, chosen in zip(self._blocks, self._sums, largest(self._sums, self._slots, count)):
            slots, estimates = values(sums, chosen)
            found += zip(map(self._raised_by.__sub__, estimates), block.docids_at(slots))
        found.sort()
        return [(-opposite, docid) for opposite, docid in found]
