"""Bit-sliced arithmetic: the same small sum for tens of thousands of sketches at once, with a few operations on large integers.

A plane is an integer with one bit for each of up to SLOTS sketches, say the highest bit of their third number. Sums are made of
planes as an adder is made of gates, and are planes themselves: one for each binary digit, the lowest first. On one core,
adding a plane to the sums of 65,536 sketches takes 2 us.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from svcd.base.integer_bitmaps import lows_of

# Integers of so many bits are still small enough for the cache of a processor, and for the allocator not to ask the system.
SLOTS = 1 << 16


def transposed(rows: bytes, width: int, columns: int) -> list[int]:
    """The planes of the first `columns` bytes of rows of `width` bytes each: for each bit, from the lowest of the first byte on.

    There must be a multiple of 8 rows.
    """
    count = len(rows) // width
    # In each word of 8 bytes, of 8 rows, the bits of a byte change places with the bytes: blocks of 1, 2, then 4 bits at a time.
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
    """The sums of planes. addends: for each binary digit, from the lowest on, the planes that count for so much.

    Full adders make of three planes of a digit one of that digit and one of the next. Eight planes at a time go into sums of
    three digits, so that few planes are at hand at any time, and these in the cache of the processor.
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
    """The sums `left` less the sums `right`, plus a number that is the same for all slots; and this number.

    ones: a bit for every slot.
    """
    digits = max(len(left), len(right))
    pairs = [[plane] for plane in left] + [[] for _ in range(digits - len(left))]
    for digit in range(digits):
        pairs[digit].append(ones ^ right[digit] if digit < len(right) else ones)
    return total(pairs), (1 << digits) - 1


def largest(sums: Sequence[Sequence[int]], among: Sequence[int], count: int) -> list[int]:
    """The `count` slots with the largest sums, of several blocks of slots; of equal ones the first slots of the first blocks.

    sums: for each block its planes, as many for each; among: the slots that count. Both and the result are by block; fewer
    slots than asked are all of them.
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
        inside[block] |= slots if found <= missing else _first_bits(slots, missing)
        missing = max(0, missing - found)
    return inside


def _first_bits(bits: int, count: int) -> int:
    """The `count` lowest of the bits that are set, of which there are more."""
    low, high = 0, bits.bit_length()
    while low < high:  # the least width that has so many
        middle = (low + high) // 2
        if (bits & (1 << middle) - 1).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return bits & (1 << low) - 1


# A byte with any bit as a binary digit.
_DIGIT = bytes(b"0" + b"1" * 255)


def values(sums: Sequence[int], slots: int) -> tuple[list[int], list[int]]:
    """Some slots, ascending, and their sums."""
    listed = list(lows_of(slots))
    places = [slot >> 3 for slot in listed]
    # The bit of each slot in its byte.
    bits = int.from_bytes(bytes([1 << (slot & 7) for slot in listed]), "little")
    digits = []
    for plane in reversed(sums or [0]):
        found = bytes(map(plane.to_bytes(SLOTS // 8, "little").__getitem__, places))
        digits.append((int.from_bytes(found, "little") & bits).to_bytes(len(listed), "little").translate(_DIGIT))
    return listed, [int(bytes(each), 2) for each in zip(*digits)]
