"""Writes the points and geometries of documents to an index file, in the transaction of the index writer.

`points` has points by docid, `point_blocks` points near each other together, `point_regions` the sets of some dozens of larger
regions, each a run of whole blocks, so that a circle over much of the globe needs few blocks. Equal points with equal docids give
equal search results, independent of the history. `geometries` has geometries as given and the boxes around them. See
docs/storage.md#locations.
"""
from __future__ import annotations

import math
import sqlite3
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from svcd.base.docids import EMPTY, DocIds, from_bytes, to_bytes, union_of
from svcd.geo.sphere import Bounds, Point, direction
from svcd.index.geo_reader import BOX, EVERYWHERE, SIDES, BlockEntry, PointBlock, block_entry, read_block
from svcd.index.read_transaction import placeholders, statement_portions

# A region is halved when it has more points than REGION_POINTS, and more than 1 / REGION_SHARE of all points: a circle reads the
# sets of all regions in it, so there must not be many.
REGION_POINTS = 4096
REGION_SHARE = 64

_INSERT_BLOCK = (f"INSERT OR REPLACE INTO point_blocks(start, size, points, {BOX}, docids, directions) "
                 f"VALUES (?{', ?' * 10})")
_INSERT_REGION = (f"INSERT OR REPLACE INTO point_regions(start, size, points, {BOX}, generation, docids) "
                  f"VALUES (?{', ?' * 10})")
# Boxes lower than a thousandth of a millimetre (in degrees, as a power of two) count as this high.
_LEAST_SIZE = -46


class StoredShape(NamedTuple):
    """A geometry and the box around it: south, west, north, east."""

    sides: Bounds
    geometry: bytes

    @property
    def size(self) -> int:
        """A power of two, as its exponent, that the height of the box in degrees does not exceed."""
        height = self.sides[2] - self.sides[0]
        return _LEAST_SIZE if height <= 2.0 ** _LEAST_SIZE else math.frexp(height)[1]


class GeoWriter:
    """Updates the tables of points and geometries as documents change. The writer calls forget() on a rollback."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._starts: list[int] | None = None

    def forget(self) -> None:
        """Discard the known starts of blocks; they are read again."""
        self._starts = None

    def clear(self) -> None:
        """Remove every point and geometry."""
        for table in ("points", "point_blocks", "point_regions", "geometries"):
            self._connection.execute(f"DELETE FROM {table}")
        self._starts = None

    def change_points(self, points: Mapping[int, Point | None], generation: int) -> None:
        """Set the points of documents. points: docid -> point or None; generation: the one that is being written."""
        # Most indexes are without points, and must not pay for them with every document.
        if not any(points.values()) and not self._connection.execute("SELECT 1 FROM points LIMIT 1").fetchone():
            return
        before: dict[int, Point] = {}
        for part in statement_portions(list(points)):
            before.update((docid, (latitude, longitude)) for docid, latitude, longitude in self._connection.execute(
                f"SELECT docid, latitude, longitude FROM points WHERE docid IN ({placeholders(part)})", part))
        moved = {docid: point for docid, point in points.items() if point != before.get(docid)}
        if not moved:
            return
        removed = [block_entry(docid, direction(before[docid])) for docid in moved if docid in before]
        added = [block_entry(docid, direction(point)) for docid, point in moved.items() if point is not None]
        self._connection.executemany("DELETE FROM points WHERE docid = ?", [(each.docid,) for each in removed])
        self._connection.executemany("INSERT INTO points(docid, latitude, longitude) VALUES (?, ?, ?)",
                                     [(docid, *point) for docid, point in moved.items() if point is not None])
        self._change_blocks(removed, added)
        self._change_regions(removed, added, generation)

    def change_geometries(self, shapes: Mapping[int, StoredShape | None]) -> None:
        """Set the geometries of documents. shapes: docid -> geometry or None."""
        # Most indexes are without geometries, and must not pay for them with every document.
        if not any(shapes.values()) and not self._connection.execute("SELECT 1 FROM geometries LIMIT 1").fetchone():
            return
        self._connection.executemany("DELETE FROM geometries WHERE docid = ?",
                                     [(docid,) for docid, shape in shapes.items() if shape is None])
        self._connection.executemany(
            f"INSERT OR REPLACE INTO geometries(docid, size, {SIDES}, geometry) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(docid, shape.size, *shape.sides, shape.geometry) for docid, shape in shapes.items() if shape])

    def _change_blocks(self, removed: Sequence[BlockEntry], added: Sequence[BlockEntry]) -> None:
        if self._starts is None:
            rows = self._connection.execute("SELECT start FROM point_blocks ORDER BY start")
            self._starts = [start for (start,) in rows]
            if not self._starts:
                self._starts.append(0)
                self._write_blocks(EVERYWHERE)
        starts = self._starts
        touched: dict[int, tuple[set[int], list[BlockEntry]]] = {}
        for each in removed:
            touched.setdefault(starts[bisect_right(starts, each.key) - 1], (set(), []))[0].add(each.docid)
        for each in added:
            touched.setdefault(starts[bisect_right(starts, each.key) - 1], (set(), []))[1].append(each)
        new_starts: list[int] = []
        for start in sorted(touched):
            row = self._connection.execute("SELECT size, docids, directions FROM point_blocks WHERE start = ?",
                                           (start,)).fetchone()
            new_starts += self._write_blocks(read_block(start, *row).changed(*touched[start]))
        starts += new_starts
        starts.sort()

    def _write_blocks(self, block: PointBlock) -> list[int]:
        """Write a block, or its parts; return the starts of the parts after the first."""
        blocks = list(block.split())
        self._connection.executemany(_INSERT_BLOCK, [block.row() for block in blocks])
        return [block.start for block in blocks[1:]]

    def _change_regions(self, removed: Sequence[BlockEntry], added: Sequence[BlockEntry], generation: int) -> None:
        regions = self._connection.execute("SELECT start, size FROM point_regions ORDER BY start").fetchall()
        if not regions:
            regions = [(EVERYWHERE.start, EVERYWHERE.size)]
        starts = [start for start, _ in regions]
        touched: dict[int, tuple[list[int], list[int]]] = {}
        for change, entries in enumerate((removed, added)):
            for each in entries:
                touched.setdefault(bisect_right(starts, each.key) - 1, ([], []))[change].append(each.docid)
        for index, (leaving, coming) in touched.items():
            start, size = regions[index]
            row = self._connection.execute("SELECT docids FROM point_regions WHERE start = ?", (start,)).fetchone()
            held = from_bytes(row[0]) if row else EMPTY
            self._write_region(start, size, (held - DocIds(leaving)) | DocIds(coming), generation)
        (total,) = self._connection.execute("SELECT sum(points) FROM point_regions").fetchone()
        most = max(REGION_POINTS, total // REGION_SHARE)
        for start, size in self._connection.execute("SELECT start, size FROM point_regions WHERE points > ?", (most,)).fetchall():
            self._halve(start, size, most, generation)

    def _write_region(self, start: int, size: int, docids: DocIds, generation: int) -> None:
        around = self._connection.execute(
            "SELECT min(x0), min(y0), min(z0), max(x1), max(y1), max(z1) FROM point_blocks "
            "WHERE start BETWEEN ? AND ? AND points > 0", (start, _last_key(start, size))).fetchone()
        self._connection.execute(_INSERT_REGION, (
            start, size, len(docids), *(0.0 if each is None else each for each in around), generation,
            to_bytes(docids)))

    def _halve(self, start: int, size: int, most: int, generation: int) -> None:
        (blocks,) = self._connection.execute("SELECT count(*) FROM point_blocks WHERE start BETWEEN ? AND ?",
                                             (start, _last_key(start, size))).fetchone()
        if blocks == 1:
            return
        for half in (start, start + (1 << size - 1)):
            docids = union_of(from_bytes(part) for (part,) in self._connection.execute(
                "SELECT docids FROM point_blocks WHERE start BETWEEN ? AND ?", (half, _last_key(half, size - 1))))
            self._write_region(half, size - 1, docids, generation)
            if len(docids) > most:
                self._halve(half, size - 1, most, generation)


def _last_key(start: int, size: int) -> int:
    return start + (1 << size) - 1
