"""Sets of numbers below 2^32 as portable roaring bitmaps, the form in which dumps keep sets of tasks.

Knows the bytes alone. Source: dumps.md 2.2, which follows the format specification of the roaring libraries.
All integers are little-endian; a container holds the numbers that share their upper 16 bits.
"""
from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby

from svcd.tasks.malformed import Malformed

_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347
_MOST_LISTED = 4096  # a container of more numbers is a bitmap
_BITMAP_BYTES = 8192
_FEWEST_WITH_OFFSETS = 4  # of the containers, when some are runs


def packed(numbers: Iterable[int]) -> bytes:
    """The bytes of a set; no container is written as runs, which every reader can do without."""
    containers = [(high, [number & 0xFFFF for number in group])
                  for high, group in groupby(sorted(set(numbers)), key=lambda number: number >> 16)]
    head = struct.pack("<II", _WITHOUT_RUNS, len(containers))
    head += b"".join(struct.pack("<HH", high, len(lows) - 1) for high, lows in containers)
    bodies = [_container(lows) for _, lows in containers]
    offset, offsets = len(head) + 4 * len(bodies), []
    for body in bodies:
        offsets.append(offset)
        offset += len(body)
    return head + struct.pack(f"<{len(offsets)}I", *offsets) + b"".join(bodies)


def _container(lows: Sequence[int]) -> bytes:
    if len(lows) <= _MOST_LISTED:
        return struct.pack(f"<{len(lows)}H", *lows)
    return sum(1 << low for low in lows).to_bytes(_BITMAP_BYTES, "little")


def unpacked(content: bytes) -> list[int]:
    """The numbers of a set, ascending. Raises ValueError for bytes that are none."""
    try:
        return _unpacked(content)
    except struct.error:
        raise Malformed("the bytes of a set of tasks end too early") from None


def _unpacked(content: bytes) -> list[int]:
    (cookie,), at = struct.unpack_from("<I", content), 4
    runs = 0  # a bit for each container that is written as runs
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        size = (count + 7) // 8
        runs, at = int.from_bytes(content[at:at + size], "little"), at + size
    elif cookie == _WITHOUT_RUNS:
        (count,), at = struct.unpack_from("<I", content, at), at + 4
    else:
        raise Malformed(f"a set of tasks begins with {cookie}, expected {_WITHOUT_RUNS} or {_WITH_RUNS}")
    heads = [struct.unpack_from("<HH", content, at + 4 * place) for place in range(count)]
    at += 4 * count
    if cookie == _WITHOUT_RUNS or count >= _FEWEST_WITH_OFFSETS:
        at += 4 * count  # the containers follow one another: their offsets tell nothing more
    numbers: list[int] = []
    for place, (high, last) in enumerate(heads):
        lows, at = _lows(content, at, last + 1, bool(runs >> place & 1))
        numbers += [high << 16 | low for low in lows]
    return numbers


def _lows(content: bytes, at: int, size: int, is_runs: bool) -> tuple[Sequence[int], int]:
    """The numbers of the container at a place, and where it ends."""
    if is_runs:
        (count,) = struct.unpack_from("<H", content, at)
        ends = at + 2 + 4 * count
        pairs = struct.unpack_from(f"<{2 * count}H", content, at + 2)
        return [low for start, more in zip(pairs[::2], pairs[1::2]) for low in range(start, start + more + 1)], ends
    if size <= _MOST_LISTED:
        return struct.unpack_from(f"<{size}H", content, at), at + 2 * size
    bits = int.from_bytes(content[at:at + _BITMAP_BYTES], "little")
    return [low for low in range(1 << 16) if bits >> low & 1], at + _BITMAP_BYTES
