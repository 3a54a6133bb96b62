"""The documents that lie in a place: a circle, a box or a polygon (relevance.md 5.7, 8.5).

Knows which condition asks for points and which for geometries; refuses to know how filters are written. Numbers are in
their ranges, and the fields are filterable: the filter checks that.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from svcd.base.bitmaps import DocIds, from_docids
from svcd.geo.cells import cells, is_jumping
from svcd.geo.geometry import QUERY_STEP_M, Area, Position, Ring, Shape, circle, closed, dense, unpacked
from svcd.geo.sphere import Point, Sides
from svcd.query.reader import Reader
from svcd.schema.attributes import Filterable
from svcd.schema.field_values import COORDINATES

RESOLUTION = 125  # vertices of the polygon of a circle
_MOST_LONGITUDE = 180.0


def radius(reader: Reader, centre: Point, metres: float, resolution: int = RESOLUTION) -> DocIds:
    """Documents at most so far from a point, or with a geometry that meets the circle."""
    found = reader.docids_within(centre, metres) if _has(reader, "_geo") else 0
    return found | _meeting(reader, circle(*centre, metres, resolution))


def bounding_box(reader: Reader, top_right: Point, bottom_left: Point) -> DocIds:
    """Documents with their point between two parallels and two meridians, or with a geometry that meets the box.

    A right side that lies left of the left one is beyond the antimeridian.
    """
    (top, right), (bottom, left) = top_right, bottom_left
    found = _points_between(reader, top, right, bottom, left) if _has(reader, "_geo") else 0
    return found | _meeting(reader, [(right, top), (left, top), (left, bottom), (right, bottom)])


def polygon(reader: Reader, points: Sequence[Point]) -> DocIds:
    """Documents with a geometry that meets a polygon; points alone are not looked at."""
    return _meeting(reader, [(longitude, latitude) for latitude, longitude in points])


def _has(reader: Reader, name: str) -> bool:
    return Filterable.of(reader.settings).names(name)


def _points_between(reader: Reader, top: float, right: float, bottom: float, left: float) -> DocIds:
    latitude, longitude = COORDINATES
    if left <= right:
        between = reader.range_docids(longitude, left, right)
    else:
        between = reader.range_docids(longitude, left, _MOST_LONGITUDE) | reader.range_docids(
            longitude, -_MOST_LONGITUDE, right)
    return between and between & reader.range_docids(latitude, bottom, top)


def _meeting(reader: Reader, outline: Sequence[Position]) -> DocIds:
    """Documents with a geometry that meets what an outline encloses."""
    if not _has(reader, "_geojson"):
        return 0
    place = _Place(dense(closed(outline), QUERY_STEP_M))
    found = []
    for docid, sides in reader.shapes_meeting(place.area.sides):
        is_met = place.surely_meets(sides)
        if place.meets(unpacked(reader.shape(docid))) if is_met is None else is_met:
            found.append(docid)
    return from_docids(found)


class _Place:
    """What an outline encloses; where the plane misleads, only as far as the cells of both say so too."""

    def __init__(self, ring: Ring) -> None:
        self.area = Area(ring)
        self._ring = ring
        self._is_jumping = is_jumping(ring)

    @cached_property
    def _cells(self) -> frozenset[int]:
        return cells(Shape(polygons=[[self._ring]]))

    def surely_meets(self, sides: Sides) -> bool | None:
        """Does whatever has this box around it meet the place? None where that is not to be told from the box alone."""
        is_met = self.area.surely_meets(sides)
        is_misleading = self._is_jumping or sides[3] - sides[1] > _MOST_LONGITUDE
        return None if is_met and is_misleading else is_met

    def meets(self, shape: Shape) -> bool:
        """Has a geometry any position in common with the place?"""
        if not self.area.meets(shape):
            return False
        return not (self._is_jumping or _is_wide(shape)) or not self._cells.isdisjoint(cells(shape))


def _is_wide(shape: Shape) -> bool:
    _, west, _, east = shape.sides()
    outlines = (polygon[0] for polygon in shape.polygons)
    return east - west > _MOST_LONGITUDE and any(map(is_jumping, (*shape.lines, *outlines)))
