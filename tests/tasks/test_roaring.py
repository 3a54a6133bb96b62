"""What must hold of roaring bitmaps in dumps (docs/dumps.md#roaring-bitmaps):

1. What is packed is what is unpacked, whatever the size of a container.
2. The bytes are those that other programs write.
3. Malformed bytes are refused.
"""
from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.tasks.dump_lines import pack_bitmap, unpack_bitmap

NUMBERS = st.integers(0, 2**32 - 1)


@given(st.sets(NUMBERS | st.integers(0, 200)))
def test_what_is_packed_is_unpacked(numbers: set[int]) -> None:
    assert unpack_bitmap(pack_bitmap(numbers)) == sorted(numbers)


@pytest.mark.parametrize("size", [4095, 4096, 4097, 65536, 70_000])
def test_large_containers_are_bitmaps(size: int) -> None:
    numbers = list(range(5, size + 5))
    assert unpack_bitmap(pack_bitmap(numbers)) == numbers
    assert len(pack_bitmap(range(65536))) == 8 + 4 + 4 + 8192


def test_the_bytes_of_a_small_set() -> None:
    assert pack_bitmap([3, 1]) == struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 1, 3)
    assert pack_bitmap([]) == struct.pack("<II", 12346, 0)


def test_runs_are_read_too() -> None:
    few = struct.pack("<IBHHHHH", 12347, 1, 0, 9, 1, 10, 9)
    assert unpack_bitmap(few) == list(range(10, 20))
    head = struct.pack("<I", 12347 | 3 << 16) + bytes([0b1000])
    heads = b"".join(struct.pack("<HH", high, 0) for high in range(3)) + struct.pack("<HH", 3, 2)
    bodies = [struct.pack("<H", 7)] * 3 + [struct.pack("<HHH", 1, 0, 2)]
    many = head + heads + b"\0" * 16 + b"".join(bodies)
    assert unpack_bitmap(many) == [7, 65543, 131079, 196608, 196609, 196610]


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", pack_bitmap([1, 2])[:-1], pack_bitmap(range(9))[:9]])
def test_bytes_that_are_no_set_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="set of tasks"):
        unpack_bitmap(content)
