"""The globe as a sphere: distances between points, and points as unit vectors (directions).

Latitudes and longitudes are in degrees; any finite number is an angle. Distances are in metres. The search for nearest
neighbours uses squared chords and boxes in space: unit vectors have neither poles nor an antimeridian, and the squared chord
between two of them grows with their distance.
"""
from __future__ import annotations

from collections.abc import Sequence
from math import asin, cos, floor, pi, radians, sin, sqrt

# A bounding box in degrees: south, west, north, east; none crosses the antimeridian.
Bounds = tuple[float, float, float, float]
Point = tuple[float, float]  # latitude and longitude, in degrees
Direction = tuple[float, float, float]  # a unit vector
Box = tuple[float, float, float, float, float, float]  # least x, y, z, greatest x, y, z

RADIUS_M = 6_371_000
_HALF_TURN_M = pi * RADIUS_M
# Maximum errors of distances (rounded to the millimetre) and of squared chords (floating point).
_ROUNDING_M = 0.001
_ROUNDING = 1e-13


def distance(left: Point, right: Point) -> float:
    """Return the distance between two points in metres, by the haversine formula, rounded to the millimetre.

    Haversines are computed as (1 - cos) / 2, which has errors of millimetres within ten metres. Other engines compute them this
    way, so clients see the same digits. Source: docs/filters-and-facets.md#points-and-distances.
    """
    latitude, other = radians(left[0]), radians(right[0])
    haversine = (1 - cos(other - latitude)) / 2
    haversine += cos(latitude) * cos(other) * ((1 - cos(radians(right[1]) - radians(left[1]))) / 2)
    metres = 2 * RADIUS_M * asin(sqrt(min(max(haversine, 0), 1)))
    return floor(metres * 1000 + 0.5) / 1000


def antipode(point: Point) -> Point:
    """Return the point on the opposite side of the globe."""
    latitude, longitude = point
    return -latitude, longitude - 180 if longitude > 0 else longitude + 180


def direction(point: Point) -> Direction:
    """Return the unit vector from the centre of the globe to a point of its surface."""
    latitude, longitude = radians(point[0]), radians(point[1])
    width = cos(latitude)
    return width * cos(longitude), width * sin(longitude), sin(latitude)


def chord_bounds(metres: float) -> tuple[float, float]:
    """Return two squared chords: points below the first are certainly within `metres`, points above the second certainly not."""
    return _chord(metres - _ROUNDING_M) - _ROUNDING, _chord(metres + _ROUNDING_M) + _ROUNDING


def _chord(metres: float) -> float:
    """Return the squared chord of an arc; -1 for a negative arc, 5 (above the maximum of 4) beyond half a turn."""
    if metres < 0:
        return -1.0
    return 5.0 if metres > _HALF_TURN_M else 4 * sin(metres / RADIUS_M / 2) ** 2


def box_around(xs: Sequence[float], ys: Sequence[float], zs: Sequence[float]) -> Box:
    """Return the smallest box in space that contains one or more directions."""
    return min(xs), min(ys), min(zs), max(xs), max(ys), max(zs)


def least_chord(box: Box, origin: Direction) -> float:
    """Return a lower bound of the squared chords from a direction to the directions in a box."""
    least = _least_in_space(box, origin)
    # Beyond a quarter turn squared chords hardly grow with the angle, and boxes reach far below the surface. The bound is then
    # computed from the opposite direction: the two squared chords add up to 4.
    return least if least < 2 else max(least, 4 - _greatest_in_space(box, _opposite(origin)) - _ROUNDING)


def greatest_chord(box: Box, origin: Direction) -> float:
    """Return an upper bound of the squared chords from a direction to the directions in a box."""
    greatest = _greatest_in_space(box, origin)
    return greatest if greatest < 2 else min(greatest, 4 - _least_in_space(box, _opposite(origin)) + _ROUNDING)


def _opposite(origin: Direction) -> Direction:
    x, y, z = origin
    return -x, -y, -z


def _least_in_space(box: Box, origin: Direction) -> float:
    x, y, z = origin
    x0, y0, z0, x1, y1, z1 = box
    dx = x0 - x if x < x0 else x - x1 if x > x1 else 0.0
    dy = y0 - y if y < y0 else y - y1 if y > y1 else 0.0
    dz = z0 - z if z < z0 else z - z1 if z > z1 else 0.0
    return dx * dx + dy * dy + dz * dz


def _greatest_in_space(box: Box, origin: Direction) -> float:
    x, y, z = origin
    x0, y0, z0, x1, y1, z1 = box
    dx, dy, dz = max(x - x0, x1 - x), max(y - y0, y1 - y), max(z - z0, z1 - z)
    return dx * dx + dy * dy + dz * dz
