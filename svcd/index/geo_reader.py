"""Reads the points and geometries of documents for a search: nearest first, within a radius, or of given documents.

The boxes around regions and blocks of points tell which of them lie entirely outside or inside the search area, so that few rows
are read. The encoding of a point block is here too; geo_writer updates the tables. See docs/storage.md#locations.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import compress
from typing import Any, NamedTuple

from svcd.base.docids import DocIds, from_bytes, to_bytes, union_of
from svcd.geo.geometry import HALF_TURN, POLE
from svcd.geo.sphere import (
    Bounds, Box, Direction, Point, box_around, chord_bounds, direction, distance, greatest_chord, least_chord,
)
from svcd.index.read_transaction import ReadTransaction, placeholders, statement_portions

BOX = "x0, y0, z0, x1, y1, z1"
SIDES = "south, west, north, east"
_REGION, _BLOCK, _POINT = range(3)  # at equal distance the larger unit is opened first, so that points come by docid


class _Region(NamedTuple):
    """The run of blocks whose starts are in `start` .. `last`. generation: of its last change; part of its cache keys."""

    start: int
    last: int
    generation: int
    box: Box


class _BlockBounds(NamedTuple):
    """The start of a block's row: its number of points, and the box around them."""

    start: int
    points: int
    box: Box


class GeoReader:
    """The points and geometries of documents in a read transaction; a `svcd.query.reader.Geo`."""

    def __init__(self, transaction: ReadTransaction) -> None:
        self._transaction = transaction
        self._connection = transaction.connection

    def located_docids(self) -> DocIds:
        """Documents that have a point."""
        return self._transaction.cached(("located",), lambda: union_of(map(self.region_docids, self.regions())))

    def points(self, docids: Sequence[int]) -> Iterator[tuple[int, Point]]:
        """Yield (docid, point) for the documents that have a point, in no order."""
        for part in statement_portions(docids):
            for docid, latitude, longitude in self._connection.execute(
                    f"SELECT docid, latitude, longitude FROM points WHERE docid IN ({placeholders(part)})", part):
                yield docid, (latitude, longitude)

    def nearest(self, point: Point, candidates: DocIds) -> Iterator[tuple[int, Point]]:
        """Yield (docid, point) for the candidates with a point, nearest first, equally near ones by docid. Reads lazily.

        Regions, blocks and points are in one queue by their least distance, and are opened when they come first.
        """
        x0, y0, z0 = origin = direction(point)
        candidates = candidates & self.located_docids()
        queue: list[tuple[float, int, int, Any]] = [
            (least_chord(region.box, origin), _REGION, region.start, region) for region in self.regions()]
        heapify(queue)
        while queue:
            _, kind, number, opened = heappop(queue)
            if kind == _POINT:
                yield number, self._connection.execute(
                    "SELECT latitude, longitude FROM points WHERE docid = ?", (number,)).fetchone()
            elif kind == _BLOCK:
                block = self.block(number)
                for x, y, z, docid in zip(block.xs, block.ys, block.zs, block.docids):
                    if opened or docid in candidates:
                        chord = (x - x0) * (x - x0) + (y - y0) * (y - y0) + (z - z0) * (z - z0)  # squared
                        heappush(queue, (chord, _POINT, docid, None))
            elif candidates.intersect(docids := self.region_docids(opened)):
                are_all = docids.issubset(candidates)
                for bounds in self.blocks(opened):
                    heappush(queue, (least_chord(bounds.box, origin), _BLOCK, bounds.start, are_all))

    def docids_within(self, point: Point, metres: float) -> DocIds:
        """Documents whose point is at most `metres` away."""
        origin = direction(point)
        surely_near, surely_far = chord_bounds(metres)

        def is_near(whole: _Region | _BlockBounds) -> bool:
            return greatest_chord(whole.box, origin) <= surely_near

        def is_far(whole: _Region | _BlockBounds) -> bool:
            return least_chord(whole.box, origin) > surely_far

        near: list[DocIds] = []
        far: list[DocIds] = []  # far documents of regions that count as near
        for region in self.regions():
            if is_near(region):
                near.append(self.region_docids(region))
            elif not is_far(region):
                inside: list[_BlockBounds] = []
                outside: list[_BlockBounds] = []
                crossed: list[_BlockBounds] = []
                for block in self.blocks(region):
                    (inside if is_near(block) else outside if is_far(block) else crossed).append(block)
                is_mostly_near = sum(block.points for block in inside) > sum(block.points for block in outside)
                if is_mostly_near:
                    near.append(self.region_docids(region))
                noted = far if is_mostly_near else near
                noted += [self.block_docids(block.start) for block in (outside if is_mostly_near else inside)]
                noted += [self._exceptions(point, metres, block.start, is_mostly_near) for block in crossed]
        return union_of(near) - union_of(far)

    def _exceptions(self, point: Point, metres: float, start: int, are_far: bool) -> DocIds:
        """Return the exceptions in a block that crosses a circle: its far documents, or its near ones."""
        block, (x0, y0, z0), bounds = self.block(start), direction(point), chord_bounds(metres)
        # Cosines take a third of the time of chords and are exact enough for the bounds; between the bounds the distance decides.
        cosines = [x * x0 + y * y0 + z * z0 for x, y, z in zip(block.xs, block.ys, block.zs)]
        near, far = (1 - chord / 2 for chord in bounds)
        if are_far:
            found = [docid for docid, cosine in zip(block.docids, cosines) if cosine < far]
        else:
            found = [docid for docid, cosine in zip(block.docids, cosines) if cosine >= near]
        between = [docid for docid, cosine in zip(block.docids, cosines) if far <= cosine < near]
        found += [docid for docid, other in self.points(between) if (distance(point, other) > metres) == are_far]
        return DocIds(found)

    def geometries_meeting(self, sides: Bounds) -> Iterator[tuple[int, Bounds]]:
        """Yield (docid, its box) for the documents whose box meets a box, in no order. Boxes that share a point meet."""
        south, west, north, east = sides
        for size in self._transaction.cached(("shape sizes",), lambda: [row[0] for row in self._connection.execute(
                "SELECT DISTINCT size FROM geometries")]):
            for docid, *own in self._connection.execute(
                    f"SELECT docid, {SIDES} FROM geometries WHERE size = ? AND south BETWEEN ? AND ? AND west <= ? "
                    "AND north >= ? AND east >= ?", (size, south - 2.0 ** size, north, east, south, west)):
                yield docid, tuple(own)

    def wide_geometries(self) -> Sequence[tuple[int, Bounds]]:
        """(docid, its box) of geometries that may cross the antimeridian or contain a pole: svcd.geo.geometry.is_wide()."""
        is_wide = "east - west >= ? OR west < ? OR east > ? OR south <= ? OR north >= ?"
        return self._transaction.cached(("wide shapes",), lambda: [
            (docid, tuple(own)) for docid, *own in self._connection.execute(
                f"SELECT docid, {SIDES} FROM geometries WHERE {is_wide}", (HALF_TURN, -HALF_TURN, HALF_TURN, -POLE, POLE))])

    def geometry(self, docid: int) -> bytes:
        """Return the geometry of a document that has one."""
        geometry: bytes = self._connection.execute("SELECT geometry FROM geometries WHERE docid = ?", (docid,)).fetchone()[0]
        return geometry

    def regions(self) -> list[_Region]:
        """The regions that have a point."""
        return self._transaction.cached(("point regions",), lambda: [
            _Region(start, start + (1 << size) - 1, generation, tuple(around))
            for start, size, generation, *around in self._connection.execute(
                f"SELECT start, size, generation, {BOX} FROM point_regions WHERE points > 0")])

    def region_docids(self, region: _Region) -> DocIds:
        """The documents of a region."""
        def load() -> DocIds:
            (docids,) = self._connection.execute("SELECT docids FROM point_regions WHERE start = ?", (region.start,)).fetchone()
            return from_bytes(docids)

        # Regions have generations of their own, so these entries stay valid over writes elsewhere.
        return self._transaction.cache.get((self._transaction.uuid, "point region", region.start, region.generation), load)

    def blocks(self, region: _Region) -> list[_BlockBounds]:
        """The blocks of a region that have points."""
        return self._transaction.cache.get((self._transaction.uuid, "point blocks", region.start, region.generation), lambda: [
            _BlockBounds(start, points, tuple(around)) for start, points, *around in self._connection.execute(
                f"SELECT start, points, {BOX} FROM point_blocks WHERE start BETWEEN ? AND ? AND points > 0",
                (region.start, region.last))])

    def block_docids(self, start: int) -> DocIds:
        """The documents of a block."""
        (docids,) = self._connection.execute("SELECT docids FROM point_blocks WHERE start = ?", (start,)).fetchone()
        return from_bytes(docids)

    def block(self, start: int) -> PointBlock:
        """Return the points of a block."""
        return read_block(start, 0, *self._connection.execute(
            "SELECT docids, directions FROM point_blocks WHERE start = ?", (start,)).fetchone())


# Blocks of points: a row has points that are near each other.
#
# The cube around the globe is halved along its axes in turn. A key has one bit for each halving (18 an axis: cells of 49 m)
# and below them nine bits of the docid, since many documents may be at one point. A block covers an aligned range of keys and
# is halved when it has more than MOST_BLOCK_POINTS points.

MOST_BLOCK_POINTS = 512

_KEY_BITS = 63
_AXIS_BITS = 18
_DOCID_BITS = 9
_HALF = _AXIS_BITS // 2
_SPREAD = [int(f"{value:b}", 8) for value in range(1 << _HALF)]  # each bit moves to three times its place
_LOW = (1 << _HALF) - 1
_SCALE = 1 << _AXIS_BITS - 1
_LAST = (1 << _AXIS_BITS) - 1


class BlockEntry(NamedTuple):
    """A point with its key: docid and direction (a vector of length 1)."""

    key: int
    docid: int
    x: float
    y: float
    z: float


def block_entry(docid: int, towards: Direction) -> BlockEntry:
    """Return the entry of a document with a direction."""
    key = _spread(towards[0]) | _spread(towards[1]) << 1 | _spread(towards[2]) << 2
    # Neighbouring docids stay together, so a batch that puts thousands at one point writes few blocks.
    return BlockEntry(key << _DOCID_BITS | docid >> _DOCID_BITS & (1 << _DOCID_BITS) - 1, docid, *towards)


def _spread(coordinate: float) -> int:
    step = min(int((coordinate + 1) * _SCALE), _LAST)
    return _SPREAD[step >> _HALF] << 3 * _HALF | _SPREAD[step & _LOW]


class PointBlock(NamedTuple):
    """The points whose keys are in `start` .. `start + 2**size`, in no order: docids and directions. Stored by docid."""

    start: int
    size: int
    docids: array[int]
    xs: array[float]
    ys: array[float]
    zs: array[float]

    def changed(self, removed: Container[int], added: Sequence[BlockEntry]) -> PointBlock:
        """Return the block without the removed documents and with the added ones."""
        docids, xs, ys, zs = self.docids, self.xs, self.ys, self.zs
        if removed:
            kept = [docid not in removed for docid in docids]
            docids = array("I", compress(docids, kept))
            xs, ys, zs = (array("d", compress(column, kept)) for column in (xs, ys, zs))
        docids.extend(each.docid for each in added)
        for at, column in enumerate((xs, ys, zs), 2):
            column.extend(each[at] for each in added)
        return PointBlock(self.start, self.size, docids, xs, ys, zs)

    def split(self) -> Iterator[PointBlock]:
        """Yield the block itself, or its parts when it has too many points."""
        if len(self.docids) <= MOST_BLOCK_POINTS:
            yield self
        else:
            entries = [block_entry(docid, (x, y, z)) for docid, x, y, z in zip(self.docids, self.xs, self.ys, self.zs)]
            yield from _split(self.start, self.size, sorted(entries))

    def row(self) -> tuple[object, ...]:
        """Return the row of point_blocks: start, size, points, box, docids, directions."""
        around: Box = box_around(self.xs, self.ys, self.zs) if self.docids else (0.0,) * 6
        by_docid = sorted(range(len(self.docids)), key=self.docids.__getitem__)
        directions = b"".join(array("d", map(column.__getitem__, by_docid)).tobytes() for column in (self.xs, self.ys, self.zs))
        return self.start, self.size, len(self.docids), *around, to_bytes(DocIds(self.docids)), directions


def read_block(start: int, size: int, docids: bytes, directions: bytes) -> PointBlock:
    """Decode a row of point_blocks."""
    numbers, coordinates = from_bytes(docids).to_array(), array("d", directions)
    count = len(numbers)
    return PointBlock(start, size, numbers, coordinates[:count], coordinates[count:2 * count], coordinates[2 * count:])


EVERYWHERE = PointBlock(0, _KEY_BITS, array("I"), array("d"), array("d"), array("d"))


def _split(start: int, size: int, entries: Sequence[BlockEntry]) -> Iterator[PointBlock]:
    """Yield the blocks that cover a range of keys. entries: the points in it, ascending by key."""
    if len(entries) <= MOST_BLOCK_POINTS or size == 0:
        columns = (array("d", [each[at] for each in entries]) for at in (2, 3, 4))
        yield PointBlock(start, size, array("I", [each.docid for each in entries]), *columns)
        return
    middle = start + (1 << size - 1)
    middle_at = bisect_left(entries, middle, key=lambda each: each.key)
    yield from _split(start, size - 1, entries[:middle_at])
    yield from _split(middle, size - 1, entries[middle_at:])
