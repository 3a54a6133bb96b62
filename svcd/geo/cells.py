"""The globe in 122 cells, and which of them a geometry touches.

On the plane of degrees an outline that goes over the antimeridian jumps from one side to the other, and seems to meet
whatever lies on its way: such a geometry meets only what touches one of its cells, as in the reference engine, which
finds geometries by them (relevance.md 8.5). The cells are those of the coarsest level of the H3 grid: twelve around the
corners of an icosahedron, the rest around points that halve and third its faces. A position counts to the nearest
centre; true cells differ from that near their borders by some kilometres.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations
from math import asin, atan2, degrees, dist, hypot

from svcd.geo.geometry import Area, Line, Position, Shape
from svcd.geo.sphere import Direction, direction

# Latitude and longitude of six corners, no two opposite, as Fuller placed them so that all twelve lie in the sea.
_CORNERS = ((64.7, 10.536199), (2.300882, -5.245390), (10.447378, 58.157706), (39.1, 122.3), (50.103201, -143.478490),
            (23.717925, -67.132326))
_SIDE = 1.1  # corners at most so far apart are the ends of one side; the next are at 1.7
# Centres in a face, as weights of its corners.
_IN_FACE = [weights for weights in ((a, b, 6 - a - b) for a in range(7) for b in range(7 - a))
            if weights[0] % 3 == weights[1] % 3 == weights[2] % 3]
# Outlines in the index have a position every ten kilometres, cells are two thousand wide.
_SAMPLED = 10
_SMALL = 5.0  # degrees; centres are more than three times as far apart


def is_jumping(line: Sequence[Position]) -> bool:
    """Does a line go over the antimeridian, from one side of the plane to the other?"""
    return any(abs(left[0] - right[0]) > 180 for left, right in zip(line, line[1:]))


def cells(shape: Shape) -> frozenset[int]:
    """The cells that a geometry touches."""
    touched = {_cell(position) for line in _lines(shape) for position in (*line[::_SAMPLED], line[-1])}
    return frozenset(touched.union(*(_enclosed(polygon[0]) for polygon in shape.polygons)))


def _lines(shape: Shape) -> Iterator[Line]:
    for position in shape.points:
        yield [position]
    yield from shape.lines
    for polygon in shape.polygons:
        yield from polygon


def _enclosed(outline: Line) -> Iterator[int]:
    """The cells whose centre lies in an outline, which is laid out beyond the antimeridian if it jumps.

    None for a small one: the centre in it would be the nearest of its positions too.
    """
    shift = 360 if is_jumping(outline) else 0
    laid_out = [_shifted(position, shift) for position in outline]
    if max(max(numbers) - min(numbers) for numbers in zip(*laid_out)) < _SMALL:
        return
    area = Area(laid_out)
    for number, centre in enumerate(_positions()):
        if area.has(_shifted(centre, shift)):
            yield number


def _shifted(position: Position, shift: float) -> Position:
    return (position[0] + shift, position[1]) if position[0] < 0 else position


def _cell(position: Position) -> int:
    x0, y0, z0 = direction((position[1], position[0]))
    cosines = [x * x0 + y * y0 + z * z0 for x, y, z in _centres()]
    return cosines.index(max(cosines))


@cache
def _centres() -> tuple[Direction, ...]:
    corners = [direction(corner) for corner in _CORNERS]
    corners += [(-x, -y, -z) for x, y, z in corners]
    faces = [face for face in combinations(corners, 3) if all(dist(*ends) < _SIDE for ends in combinations(face, 2))]
    found: dict[tuple[float, ...], Direction] = {}
    for face in faces:
        for weights in _IN_FACE:
            centre = _unit([sum(weight * corner[at] for weight, corner in zip(weights, face)) for at in range(3)])
            # One on a side belongs to both its faces.
            found.setdefault(tuple(round(coordinate, 4) + 0.0 for coordinate in centre), centre)
    return tuple(found.values())


@cache
def _positions() -> tuple[Position, ...]:
    return tuple((degrees(atan2(y, x)), degrees(asin(z))) for x, y, z in _centres())


def _unit(coordinates: Iterable[float]) -> Direction:
    x, y, z = coordinates
    length = hypot(x, y, z)
    return x / length, y / length, z / length
