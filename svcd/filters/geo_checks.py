"""Geo conditions on their way to the globe: are they allowed, and do their numbers make sense (relevance.md 5.7)?

Knows the checks and their order; refuses to know where documents lie: that is for the functions of WHERE, which get
the reader and the condition in numbers.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from svcd.base.bitmaps import DocIds
from svcd.base.numbers import number_of, shown_number
from svcd.filters import geo_search
from svcd.filters.errors import fail
from svcd.filters.requirements import check_geo
from svcd.filters.tree import BoundingBox, Geo, Polygon, Radius, Token
from svcd.query.reader import Reader
from svcd.schema.attributes import Filterable

DEFAULT_RESOLUTION = 125
_LEAST_RESOLUTION, _MOST_RESOLUTION = 3, 1000

_NOT_FINITE = "Non finite floats are not supported"
_LATITUDE = "Bad latitude `{number}`. Latitude must be contained between -90 and 90 degrees."
_LONGITUDE = ("Bad longitude `{number}`. Longitude must be contained between -180 and 180 degrees. "
              "Hint: try using `{inside}` instead.")
_RESOLUTION = "Invalid resolution `{number}`. Resolution must be between 3 and 1000."
_UPSIDE_DOWN = "The top latitude `{top}` is below the bottom latitude `{bottom}`."


class Point(NamedTuple):
    """Degrees, in their ranges."""

    latitude: float
    longitude: float


class Circle(NamedTuple):
    """metres: any finite number. resolution: vertices of the polygon that stands for it among shapes."""

    centre: Point
    metres: float
    resolution: int


class Rectangle(NamedTuple):
    """The top is not below the bottom; right of the right side may lie the left one, beyond the 180th meridian."""

    top_right: Point
    bottom_left: Point


class Outline(NamedTuple):
    """The vertices of a polygon, three or more."""

    points: tuple[Point, ...]


def circle(condition: Radius) -> Circle:
    """The numbers of a `_geoRadius`. Raises FilterError for those that make no sense."""
    (centre,) = _points([condition.point])
    metres = _number(condition.metres)
    return Circle(centre, metres, _resolution(condition.resolution))


def rectangle(condition: BoundingBox) -> Rectangle:
    """The numbers of a `_geoBoundingBox`. Raises FilterError."""
    top_right, bottom_left = _points([condition.top_right, condition.bottom_left])
    if top_right.latitude < bottom_left.latitude:
        sentence = _UPSIDE_DOWN.format(top=shown_number(top_right.latitude), bottom=shown_number(bottom_left.latitude))
        fail(sentence, condition.bottom_left[1])
    return Rectangle(top_right, bottom_left)


def outline(condition: Polygon) -> Outline:
    """The numbers of a `_geoPolygon`, one point after the other. Raises FilterError."""
    return Outline(tuple(point for pair in condition.points for point in _points([pair])))


def _points(pairs: Sequence[tuple[Token, Token]]) -> list[Point]:
    """All must be finite before any is looked at for its range."""
    points = [Point(*map(_number, pair)) for pair in pairs]
    for point, (latitude, longitude) in zip(points, pairs):
        if not -90 <= point.latitude <= 90:
            fail(_LATITUDE.format(number=shown_number(point.latitude)), latitude)
        if not -180 <= point.longitude <= 180:
            inside = (point.longitude + 180) % 360 - 180
            fail(_LONGITUDE.format(number=shown_number(point.longitude), inside=shown_number(inside)), longitude)
    return points


def _number(token: Token) -> float:
    number = number_of(token.text)
    if number is None:
        fail(_NOT_FINITE, token)
    return number


def _resolution(token: Token | None) -> int:
    if token is None:
        return DEFAULT_RESOLUTION
    whole = min(max(int(_number(token)), 0), (1 << 64) - 1)
    if not _LEAST_RESOLUTION <= whole <= _MOST_RESOLUTION:
        fail(_RESOLUTION.format(number=whole), token)
    return whole


def _first_number(condition: Geo) -> Token:
    if isinstance(condition, Radius):
        return condition.point[0]
    return condition.top_right[0] if isinstance(condition, BoundingBox) else condition.points[0][0]


def geo_docids(reader: Reader, filterable: Filterable, condition: Geo) -> DocIds:
    """The documents that meet a geo condition. Raises FilterError.

    Whether it may be asked comes before the numbers of a polygon, and behind those of the others.
    """
    place = _first_number(condition)
    if isinstance(condition, Polygon):
        check_geo(filterable, condition, place)
        return WHERE[Outline](reader, outline(condition))
    numbers = circle(condition) if isinstance(condition, Radius) else rectangle(condition)
    check_geo(filterable, condition, place)
    return WHERE[type(numbers)](reader, numbers)


# The documents there: (reader, the shape) -> DocIds.
WHERE: dict[type, Callable[[Reader, Any], DocIds]] = {
    Circle: lambda reader, found: geo_search.radius(reader, found.centre, found.metres, found.resolution),
    Rectangle: lambda reader, found: geo_search.bounding_box(reader, found.top_right, found.bottom_left),
    Outline: lambda reader, found: geo_search.polygon(reader, found.points),
}
