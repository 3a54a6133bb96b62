"""The geometries of documents: kept as they are given, found by the boxes around them.

A box meets another when they share a point, sides included; boxes are south, west, north and east in degrees. Rows
stand by the height of their box, a power of two, and then by its south side, so that a small box asked for looks at
few of those that begin below it. Knows boxes; refuses to know what a geometry
is.
"""
from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from svcd.geo.sphere import Sides
from svcd.index.posting_reader import PostingReader

# No box is lower than a thousandth of a millimetre, as far as this order is concerned.
_LEAST_SIZE = -46
_SIDES = "south, west, north, east"


class StoredShape(NamedTuple):
    """A geometry, and the box around it: south, west, north, east."""

    sides: Sides
    geometry: bytes


class ShapeWriter:
    """Keeps the table in step with documents, in the transaction of the index writer."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def clear(self) -> None:
        """Remove every shape."""
        self._connection.execute("DELETE FROM shapes")

    def change(self, shapes: Mapping[int, StoredShape | None]) -> None:
        """docid -> its shape, or None without one."""
        # Most indexes have none, and are not to pay for it with every document.
        if not any(shapes.values()) and not self._connection.execute("SELECT 1 FROM shapes LIMIT 1").fetchone():
            return
        self._connection.executemany("DELETE FROM shapes WHERE docid = ?",
                                     [(docid,) for docid, shape in shapes.items() if shape is None])
        self._connection.executemany(
            f"INSERT OR REPLACE INTO shapes(docid, size, {_SIDES}, geometry) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(docid, _size(shape.sides), *shape.sides, shape.geometry) for docid, shape in shapes.items() if shape])


class ShapeReader(PostingReader):
    """The shapes of an index in the read transaction of the connection."""

    def shapes_meeting(self, sides: Sides) -> Iterator[tuple[int, Sides]]:
        """(docid, its box) of the documents whose box meets a box, in no order."""
        south, west, north, east = sides
        for size in self._kept(("shape sizes",), lambda: [row[0] for row in self._connection.execute(
                "SELECT DISTINCT size FROM shapes")]):
            for docid, *own in self._connection.execute(
                    f"SELECT docid, {_SIDES} FROM shapes WHERE size = ? AND south BETWEEN ? AND ? AND west <= ? "
                    "AND north >= ? AND east >= ?", (size, south - 2.0 ** size, north, east, south, west)):
                yield docid, tuple(own)

    def shape(self, docid: int) -> bytes:
        """The geometry of a document that has one."""
        geometry: bytes = self._connection.execute("SELECT geometry FROM shapes WHERE docid = ?", (docid,)).fetchone()[0]
        return geometry


def _size(sides: Sides) -> int:
    """The height of a box is at most 2 to this power, in degrees."""
    height = sides[2] - sides[0]
    return _LEAST_SIZE if height <= 2.0 ** _LEAST_SIZE else math.frexp(height)[1]
