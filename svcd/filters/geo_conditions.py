"""Geo conditions of filters: their syntax, the checks of their numbers, and the documents that meet them.

`_geoRadius` and `_geoBoundingBox` find points of `_geo` and geometries of `_geojson`, `_geoPolygon` finds geometries only.
Source: docs/filters-and-facets.md#geo-conditions.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from svcd.base.docids import EMPTY, DocIds
from svcd.base.quantities import number_of, shown_number
from svcd.filters import lexer
from svcd.filters.lexer import FilterError, fail, piece, rest
from svcd.filters.requirements import GEOJSON, POINT, TOO_LARGE, Outlines, check_geo
from svcd.filters.tree import BoundingBox, Condition, Geo, Polygon, Radius, Token
from svcd.geo.geometry import (HALF_TURN, QUERY_STEP_M, TURN, Area, Ring, Shape, cells_of, circle, circle_rings, closed,
                               crosses_antimeridian, densify, is_wide, rectangle, unpacked, unrolled, unrolled_outline)
from svcd.geo.sphere import Bounds, Point
from svcd.query.reader import Reader
from svcd.schema.field_values import COORDINATES, GEO
from svcd.validation.bounds import FILTER_COST

_RADIUS = ("The `_geoRadius` filter must be in the form: "
           "`_geoRadius(latitude, longitude, radius, optionalResolution)`.")
_BOUNDING_BOX = ("The `_geoBoundingBox` filter expects two pairs of arguments: "
                 "`_geoBoundingBox([latitude, longitude], [latitude, longitude])`.")
_POLYGON = ("The `_geoPolygon` filter doesn't match the expected format: "
            "`_geoPolygon([latitude, longitude], [latitude, longitude])`.")
_COUNT = "Was expecting 3 or 4 arguments for `_geoRadius`, but instead found {count}."
_NOT_A_PAIR = "Was expecting 2 coordinates but instead found {count}."
_FEW_POINTS = "The `_geoPolygon` filter expects at least 3 points but only {count} were specified"
_NOT_FINITE = "Non finite floats are not supported"
_LATITUDE = "Bad latitude `{number}`. Latitude must be contained between -90 and 90 degrees."
_LONGITUDE = ("Bad longitude `{number}`. Longitude must be contained between -180 and 180 degrees. "
              "Hint: try using `{inside}` instead.")
_RESOLUTION = "Invalid resolution `{number}`. Resolution must be between 3 and 1000."
_UPSIDE_DOWN = "The top latitude `{top}` is below the bottom latitude `{bottom}`."

# Vertices of the polygon that approximates a circle in comparisons with geometries.
DEFAULT_RESOLUTION = 125
_LEAST_RESOLUTION, _MOST_RESOLUTION = 3, 1000
_MOST_LONGITUDE = 180.0
# The sides of narrower boxes are great circles, as recorded; the sides of wider boxes would bend over the poles.
_WIDE_BOX = 90.0
_TURNS = (-2 * TURN, -TURN, 0.0, TURN, 2 * TURN)  # unrolled outlines begin between -180 and 180, and may be two turns wide


# Syntax

_NAME = re.compile(rf"{lexer.BLANKS}(_geoRadius|_geoBoundingBox|_geoPolygon)(?![{lexer.WORD_SET}])").match
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?(?P<exponent>[0-9]*))?").match
_SIGN = re.compile(r"[+-]?\.?").match

T = TypeVar("T")
# Reads one element of a list; returns the element and the position after it and the following blanks.
_ReadElement = Callable[[str, int], tuple[T, int]]


class _Mismatch(Exception):
    """The text does not fit the syntax at a position.

    is_final: the list must not end before the element that does not fit (a number without the digits of its exponent).
    """

    def __init__(self, at: int, is_final: bool = False) -> None:
        self.at = at
        self.is_final = is_final


def read_geo_condition(source: str, at: int) -> tuple[Condition, int] | None:
    """Return the geo condition that begins at a position, and the position after it; None when none begins there.

    Raises FilterError.
    """
    found = _NAME(source, at)
    if found is None:
        return None
    sentence, read = _SYNTAX[found[1]]
    try:
        return read(source, found.end())
    except _Mismatch as mismatch:
        raise FilterError(sentence, rest(source, mismatch.at)) from None


def _read_radius(source: str, at: int) -> tuple[Condition, int]:
    numbers, at = _read_list(source, at, "()", _read_number)
    if len(numbers) not in (3, 4):
        fail(_COUNT.format(count=len(numbers)), rest(source, at))
    latitude, longitude, metres, *resolution = numbers
    return Radius((latitude, longitude), metres, *resolution), at


def _read_bounding_box(source: str, at: int) -> tuple[Condition, int]:
    points, at = _read_list(source, at, "()", _read_point)
    if len(points) != 2:
        fail(_BOUNDING_BOX, rest(source, at))
    return BoundingBox(*_pairs(points)), at


def _read_polygon(source: str, at: int) -> tuple[Condition, int]:
    if POINT * source.count("[", at, source.find(")", at)) > FILTER_COST:
        raise FilterError(TOO_LARGE)
    points, at = _read_list(source, at, "()", _read_point, may_end_with_comma=True)
    if len(points) < 3:
        fail(_FEW_POINTS.format(count=len(points)), points[-1][-1])
    return Polygon(_pairs(points)), at


def _pairs(points: Sequence[Sequence[Token]]) -> list[tuple[Token, Token]]:
    pairs = []
    for numbers in points:
        if len(numbers) != 2:
            fail(_NOT_A_PAIR.format(count=len(numbers)), numbers[0])
        pairs.append((numbers[0], numbers[1]))
    return pairs


def _read_point(source: str, at: int) -> tuple[list[Token], int]:
    numbers, at = _read_list(source, _after_blanks(source, at), "[]", _read_number)
    return numbers, _after_blanks(source, at)


def _read_list(source: str, at: int, brackets: str, read_element: _ReadElement[T],
               may_end_with_comma: bool = False) -> tuple[list[T], int]:
    """Read one or more elements between brackets, separated by commas; return them and the position after the brackets."""
    at = _after_character(source, at, brackets[0])
    element, at = read_element(source, at)
    elements = [element]
    while source.startswith(",", at):
        try:
            element, at = read_element(source, at + 1)
        except _Mismatch as mismatch:
            if mismatch.is_final:
                raise
            break  # the error will then be the comma in place of the closing bracket
        elements.append(element)
    if may_end_with_comma and source.startswith(",", at):
        at = _after_blanks(source, at + 1)
    return elements, _after_character(source, at, brackets[1])


def _after_character(source: str, at: int, character: str) -> int:
    if not source.startswith(character, at):
        raise _Mismatch(at)
    return at + 1


def _read_number(source: str, at: int) -> tuple[Token, int]:
    start = _after_blanks(source, at)
    found = _NUMBER(source, start)
    if found is None:
        raise _Mismatch(_SIGN(source, start).end())  # type: ignore[union-attr]  # matches anywhere
    if found["exponent"] == "":
        raise _Mismatch(found.end(), is_final=True)
    return piece(source, start, found.end()), _after_blanks(source, found.end())


def _after_blanks(source: str, at: int) -> int:
    return lexer.blanks(source, at).end()  # type: ignore[union-attr]  # matches anywhere


_SYNTAX: dict[str, tuple[str, Callable[[str, int], tuple[Condition, int]]]] = {
    "_geoRadius": (_RADIUS, _read_radius),
    "_geoBoundingBox": (_BOUNDING_BOX, _read_bounding_box),
    "_geoPolygon": (_POLYGON, _read_polygon),
}


# Checks

def geo_docids(reader: Reader, condition: Geo, outlines: Outlines) -> DocIds:
    """Return the documents that meet a geo condition. outlines: of the filter.

    Raises FilterError. The index must allow the condition: this is checked before the numbers of a polygon, but after
    the numbers of a radius or box, because clients see only the first error.
    """
    if isinstance(condition, Polygon):
        check_geo(reader.settings.filterable, condition, condition.points[0][0])
        points = [point for pair in condition.points for point in _points([pair])]
        outlines.add_polygon(points, condition.points[0][0])
        return docids_in_polygon(reader, points)
    if isinstance(condition, Radius):
        (centre,) = _points([condition.point])
        metres, resolution = _number(condition.metres), DEFAULT_RESOLUTION
        if condition.resolution is not None:
            resolution = min(max(int(_number(condition.resolution)), 0), (1 << 64) - 1)  # shown as an unsigned 64-bit integer
            if not _LEAST_RESOLUTION <= resolution <= _MOST_RESOLUTION:
                fail(_RESOLUTION.format(number=resolution), condition.resolution)
        check_geo(reader.settings.filterable, condition, condition.point[0])
        if _is_filterable(reader, GEOJSON):
            outlines.add_circle(metres, condition.point[0])
        return docids_in_circle(reader, centre, metres, resolution)
    top_right, bottom_left = _points([condition.top_right, condition.bottom_left])
    (top, right), (bottom, left) = top_right, bottom_left
    if top < bottom:
        fail(_UPSIDE_DOWN.format(top=shown_number(top), bottom=shown_number(bottom)), condition.bottom_left[1])
    check_geo(reader.settings.filterable, condition, condition.top_right[0])
    if _is_filterable(reader, GEOJSON):
        outlines.add_polygon([(top, right), (top, left), (bottom, left), (bottom, right)], condition.top_right[0])
    return docids_in_box(reader, top_right, bottom_left)


def _points(pairs: Sequence[tuple[Token, Token]]) -> list[Point]:
    """Read points from their numbers as written. All numbers must be finite before the range of any is checked."""
    points = [(_number(latitude), _number(longitude)) for latitude, longitude in pairs]
    for (latitude, longitude), (latitude_token, longitude_token) in zip(points, pairs):
        if not -90 <= latitude <= 90:
            fail(_LATITUDE.format(number=shown_number(latitude)), latitude_token)
        if not -_MOST_LONGITUDE <= longitude <= _MOST_LONGITUDE:
            inside = (longitude + 180) % 360 - 180
            fail(_LONGITUDE.format(number=shown_number(longitude), inside=shown_number(inside)), longitude_token)
    return points


def _number(token: Token) -> float:
    number = number_of(token.text)
    if number is None:
        fail(_NOT_FINITE, token)
    return number


# Documents

def docids_in_circle(reader: Reader, centre: Point, metres: float, resolution: int = DEFAULT_RESOLUTION) -> DocIds:
    """Return the documents whose point is at most `metres` from a point, or whose geometry intersects the circle.

    resolution: vertices of the polygon that represents the circle in comparisons with geometries.
    """
    docids = reader.geo.docids_within(centre, metres) if _is_filterable(reader, GEO) else EMPTY
    if not _is_filterable(reader, GEOJSON):
        return docids
    return (docids | _intersecting(reader, *circle_rings(*centre, metres, resolution, QUERY_STEP_M))
            | _sharing_cells(reader, densify(circle(*centre, metres, resolution), QUERY_STEP_M)))


def docids_in_box(reader: Reader, top_right: Point, bottom_left: Point) -> DocIds:
    """Return the documents whose point is between two parallels and two meridians, or whose geometry intersects the box.

    A box whose right side is west of its left side extends across the antimeridian.
    """
    (top, right), (bottom, left) = top_right, bottom_left
    docids = EMPTY
    if _is_filterable(reader, GEO):
        latitude, longitude = COORDINATES
        range_docids = reader.values.range_docids
        if left <= right:
            docids = range_docids(longitude, left, right)
        else:
            docids = range_docids(longitude, left, _MOST_LONGITUDE) | range_docids(longitude, -_MOST_LONGITUDE, right)
        docids = docids and docids & range_docids(latitude, bottom, top)
    if not _is_filterable(reader, GEOJSON):
        return docids
    width = right - left if left <= right else right - left + TURN
    if width > _WIDE_BOX:
        return docids | _intersecting(reader, rectangle(left, bottom, left + width, top))
    ring = densify(closed([(right, top), (left, top), (left, bottom), (right, bottom)]), QUERY_STEP_M)
    return docids | _intersecting(reader, unrolled_outline(ring)) | _sharing_cells(reader, ring)


def docids_in_polygon(reader: Reader, points: Sequence[Point]) -> DocIds:
    """Return the documents whose geometry intersects a polygon of three or more points; points of `_geo` do not count.

    A polygon around a pole encloses the smaller part of the globe.
    """
    if not _is_filterable(reader, GEOJSON):
        return EMPTY
    ring = densify(closed((longitude, latitude) for latitude, longitude in points), QUERY_STEP_M)
    return _intersecting(reader, unrolled_outline(ring)) | _sharing_cells(reader, ring)


def _is_filterable(reader: Reader, name: str) -> bool:
    return reader.settings.filterable.names(name)


def _intersecting(reader: Reader, *rings: Ring) -> DocIds:
    """Return the documents whose geometry intersects or touches the area in the rings. rings: unrolled, as for class Area."""
    region = _Region(*rings)
    south, west, north, east = region.area.bounds
    near: dict[int, Bounds] = {}  # the documents whose geometry may intersect the area -> the boxes around the geometries
    for turn in _TURNS:
        if west + turn <= HALF_TURN and east + turn >= -HALF_TURN:
            near.update(reader.geo.geometries_meeting((south, west + turn, north, east + turn)))
    near.update(reader.geo.wide_geometries())
    docids = []
    for docid, bounds in near.items():
        verdict = region.intersects_bounds(bounds)
        if region.intersects(unpacked(reader.geo.geometry(docid))) if verdict is None else verdict:
            docids.append(docid)
    return DocIds(docids)


def _sharing_cells(reader: Reader, ring: Ring) -> DocIds:
    """Return the extra documents that the reference engine finds with an outline over the antimeridian: see cells_of()."""
    if not crosses_antimeridian(ring) or max(outline := unrolled(ring))[0] - min(outline)[0] > _WIDE_BOX:
        return EMPTY
    area, cells = Area(ring), cells_of(Shape(polygons=[[ring]]))
    docids = []
    for docid, bounds in reader.geo.geometries_meeting(area.bounds):
        if area.intersects_bounds(bounds) is not False:
            shape = unpacked(reader.geo.geometry(docid))
            if area.intersects(shape) and not cells.isdisjoint(cells_of(shape)):
                docids.append(docid)
    return DocIds(docids)


class _Region:
    """The area in some rings. Longitudes that differ by whole turns are the same."""

    def __init__(self, *rings: Ring) -> None:
        self.area = Area(*rings)

    def _turns(self, bounds: Bounds) -> list[float]:
        """Return the angles by which a geometry with this box must be moved east to meet the area."""
        _, own_west, _, own_east = self.area.bounds
        _, west, _, east = bounds
        return [turn for turn in _TURNS if own_west <= east + turn and west + turn <= own_east]

    def intersects_bounds(self, bounds: Bounds) -> bool | None:
        """Return whether every geometry with this bounding box intersects the region; None if it depends on the geometry."""
        if is_wide(bounds):
            return None
        south, west, north, east = bounds
        verdicts = {self.area.intersects_bounds((south, west + turn, north, east + turn)) for turn in self._turns(bounds)}
        return True if True in verdicts else None if None in verdicts else False

    def intersects(self, shape: Shape) -> bool:
        """Return whether a geometry has any position in common with the region."""
        plane = shape.unrolled() if is_wide(shape.bounds()) else shape
        return any(self.area.intersects(plane.moved(turn) if turn else plane) for turn in self._turns(plane.bounds()))
