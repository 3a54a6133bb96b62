"""What must hold of sums of bit planes: they are what counting slot by slot gives, whatever the planes and the number of blocks."""
from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.vectors.bit_planes import SLOTS, difference, largest, total, transposed, values

WIDTH = 40  # slots that are used here
PLANE = st.integers(0, (1 << WIDTH) - 1)
ADDENDS = st.lists(st.lists(PLANE, max_size=9), max_size=4)
ONES = (1 << SLOTS) - 1


def counted(addends: Sequence[Sequence[int]]) -> list[int]:
    return [sum((plane >> slot & 1) << digit for digit, planes in enumerate(addends) for plane in planes)
            for slot in range(WIDTH)]


def numbers(sums: Sequence[int]) -> list[int]:
    return [sum((plane >> slot & 1) << digit for digit, plane in enumerate(sums)) for slot in range(WIDTH)]


@given(ADDENDS, ADDENDS)
def test_sums_and_differences(left: list[list[int]], right: list[list[int]]) -> None:
    assert numbers(total(left)) == counted(left)
    sums, raised_by = difference(total(left), total(right), ONES)
    expected = [a - b + raised_by for a, b in zip(counted(left), counted(right))]
    assert numbers(sums) == expected
    slots, found = values(sums, (1 << WIDTH) - 1)
    assert (slots, found) == (list(range(WIDTH)), expected)


@given(st.lists(st.tuples(st.lists(PLANE, min_size=5, max_size=5), PLANE), max_size=3), st.integers(0, 130))
def test_largest_are_the_first_in_order(blocks: list[tuple[list[int], int]], count: int) -> None:
    order = sorted((-number, block, slot) for block, (sums, among) in enumerate(blocks)
                   for slot, number in enumerate(numbers(sums)) if among >> slot & 1)
    expected = [0] * len(blocks)
    for _, block, slot in order[:count]:
        expected[block] |= 1 << slot
    assert largest([sums for sums, _ in blocks], [among for _, among in blocks], count) == expected


@settings(max_examples=20)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 10_000))
def test_rows_become_columns(width: int, eights: int, seed: int) -> None:
    chosen = random.Random(seed)
    rows = [bytes(width) if chosen.random() < 0.2 else chosen.randbytes(width) for _ in range(8 * eights)]
    columns = chosen.randint(0, width)
    expected = [sum((row[column] >> bit & 1) << place for place, row in enumerate(rows))
                for column in range(columns) for bit in range(8)]
    assert transposed(b"".join(rows), width, columns) == expected
