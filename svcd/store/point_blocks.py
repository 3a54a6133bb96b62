"""Points in blocks: how the points of an index lie together, near ones in one row.

The cube around the globe is halved along its axes in turn; a key has one bit for each halving (18 an axis: cells of
49 m), and below them nine of the docid, for many documents may stand at one point. A block covers an aligned range of
keys and is halved when it has more than MOST points. Knows keys, splitting and the form of a block's row.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from svcd.sphere import Box, Direction, box

MOST = 512

_KEY_BITS = 63
_AXIS_BITS = 18
_DOCID_BITS = 9
_HALF = _AXIS_BITS // 2
_SPREAD = [sum((value >> bit & 1) << 3 * bit for bit in range(_HALF)) for value in range(1 << _HALF)]
_LOW = (1 << _HALF) - 1
_SCALE = 1 << _AXIS_BITS - 1
_LAST = (1 << _AXIS_BITS) - 1


class Entry(NamedTuple):
    """A document's place among the others."""

    key: int
    docid: int
    x: float
    y: float
    z: float


def entry(docid: int, place: Direction) -> Entry:
    """A document at a point."""
    key = _spread(place[0]) | _spread(place[1]) << 1 | _spread(place[2]) << 2
    # Neighbouring docids stay together: a batch that puts thousands at one point writes few blocks.
    return Entry(key << _DOCID_BITS | docid >> _DOCID_BITS & (1 << _DOCID_BITS) - 1, docid, *place)


def _spread(coordinate: float) -> int:
    step = min(int((coordinate + 1) * _SCALE), _LAST)
    return _SPREAD[step >> _HALF] << 3 * _HALF | _SPREAD[step & _LOW]


class Block(NamedTuple):
    """The points whose keys lie in `start` .. `start + 2**size`, in no order."""

    start: int
    size: int
    docids: array[int]
    xs: array[float]
    ys: array[float]
    zs: array[float]

    def changed(self, gone: Container[int], fresh: Sequence[Entry]) -> Block:
        """The block without some documents, and with others."""
        docids, xs, ys, zs = self.docids, self.xs, self.ys, self.zs
        if gone:
            kept = [docid not in gone for docid in docids]
            docids = array("I", compress(docids, kept))
            xs, ys, zs = (array("d", compress(column, kept)) for column in (xs, ys, zs))
        docids.extend(each.docid for each in fresh)
        for at, column in enumerate((xs, ys, zs), 2):
            column.extend(each[at] for each in fresh)
        return Block(self.start, self.size, docids, xs, ys, zs)

    def split(self) -> Iterator[Block]:
        """The block itself, or those that it becomes when it has too many points."""
        if len(self.docids) <= MOST:
            yield self
        else:
            entries = [entry(docid, (x, y, z)) for docid, x, y, z in zip(self.docids, self.xs, self.ys, self.zs)]
            yield from _split(self.start, self.size, sorted(entries))

    def row(self) -> tuple[object, ...]:
        """The block as the table has it: start, size, points, box, docids, directions."""
        around: Box = box(self.xs, self.ys, self.zs) if self.docids else (0.0,) * 6
        directions = b"".join(column.tobytes() for column in (self.xs, self.ys, self.zs))
        return self.start, self.size, len(self.docids), *around, self.docids.tobytes(), directions


def read_block(start: int, size: int, docids: bytes, directions: bytes) -> Block:
    """The block of a row."""
    numbers, coordinates = array("I", docids), array("d", directions)
    count = len(numbers)
    return Block(start, size, numbers, coordinates[:count], coordinates[count:2 * count], coordinates[2 * count:])


EVERYWHERE = read_block(0, _KEY_BITS, b"", b"")


def _split(start: int, size: int, entries: Sequence[Entry]) -> Iterator[Block]:
    """The blocks that cover a range of keys. entries: those in it, ascending by key."""
    if len(entries) <= MOST or size == 0:
        yield Block(start, size, array("I", [each.docid for each in entries]),
                    *(array("d", [each[at] for each in entries]) for at in (2, 3, 4)))
        return
    middle = start + (1 << size - 1)
    place = bisect_left(entries, middle, key=lambda each: each.key)
    yield from _split(start, size - 1, entries[:place])
    yield from _split(middle, size - 1, entries[place:])
