"""A grid of 122 cells over the globe, and the cells that a geometry touches.

The reference engine decides about outlines over the antimeridian on the plane of degrees, where they jump from one side to the
other, and then takes only geometries that share a cell with them: recorded answers contain these extra documents. The cells are
the coarsest level of the H3 grid: twelve around the corners of an icosahedron, the others around points that divide its faces.
A position belongs to the cell with the nearest centre; near borders this differs from H3 by some kilometres.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from math import asin, atan2, degrees, dist, hypot

from svcd.geo.geometry import Area, Line, Position, Shape
from svcd.geo.sphere import Direction, direction

# The grid over the globe is built on an icosahedron: latitude and longitude of six of its corners, no two opposite. H3 uses the
# orientation of Fuller's map, in which all twelve corners lie in the sea.
_CORNERS = ((64.7, 10.536199), (2.300882, -5.245390), (10.447378, 58.157706), (39.1, 122.3), (50.103201, -143.478490),
            (23.717925, -67.132326))
_LONGEST_SIDE = 1.1  # chord: corners of one side are 1.05 apart, the next ones 1.7
# The centres of cells in a face, as weights of its corners.
_WEIGHTS = [weights for weights in ((a, b, 6 - a - b) for a in range(7) for b in range(7 - a))
            if weights[0] % 3 == weights[1] % 3 == weights[2] % 3]
# Every _SAMPLING_STEP-th position of a line is checked: outlines have a position every ten kilometres, cells are some two
# thousand kilometres wide.
_SAMPLING_STEP = 10
_SMALL = 5.0  # degrees; centres of cells are more than three times as far apart


def crosses_antimeridian(line: Sequence[Position]) -> bool:
    """Return whether a line crosses the antimeridian, so that it jumps from one side of the plane to the other."""
    return any(abs(left[0] - right[0]) > 180 for left, right in zip(line, line[1:]))


def cells_of(shape: Shape) -> frozenset[int]:
    """Return the numbers (0 to 121) of the cells that a geometry touches."""
    lines = [*([position] for position in shape.points), *shape.lines, *(ring for polygon in shape.polygons for ring in polygon)]
    touched = {_nearest_cell(position) for line in lines for position in (*line[::_SAMPLING_STEP], line[-1])}
    return frozenset(touched.union(*(_enclosed(polygon[0]) for polygon in shape.polygons)))


def _enclosed(outline: Line) -> Iterator[int]:
    """Yield the cells with their centre in an outline; an outline across the antimeridian is continued beyond longitude 180.

    A small outline yields nothing: a centre in it is also the nearest centre of its positions.
    """
    shift = 360 if crosses_antimeridian(outline) else 0
    continued = [_shifted(position, shift) for position in outline]
    if max(max(numbers) - min(numbers) for numbers in zip(*continued)) < _SMALL:
        return
    area = Area(continued)
    for number, (x, y, z) in enumerate(cell_centres()):
        if area.contains(_shifted((degrees(atan2(y, x)), degrees(asin(z))), shift)):
            yield number


def _shifted(position: Position, shift: float) -> Position:
    return (position[0] + shift, position[1]) if position[0] < 0 else position


def _nearest_cell(position: Position) -> int:
    x0, y0, z0 = direction((position[1], position[0]))
    cosines = [x * x0 + y * y0 + z * z0 for x, y, z in cell_centres()]
    return cosines.index(max(cosines))


@cache
def cell_centres() -> tuple[Direction, ...]:
    """Return the centres of all cells, in the order of their numbers."""
    corners = [direction(corner) for corner in _CORNERS]
    corners += [(-x, -y, -z) for x, y, z in corners]
    faces = [face for face in combinations(corners, 3) if all(dist(*ends) < _LONGEST_SIDE for ends in combinations(face, 2))]
    centres: dict[tuple[float, ...], Direction] = {}
    for face in faces:
        for weights in _WEIGHTS:
            x, y, z = (sum(weight * corner[at] for weight, corner in zip(weights, face)) for at in range(3))
            length = hypot(x, y, z)
            centre = x / length, y / length, z / length
            # A centre on a side is found in both faces of the side.
            centres.setdefault(tuple(round(coordinate, 4) + 0.0 for coordinate in centre), centre)
    return tuple(centres.values())
