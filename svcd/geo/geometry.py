"""Geometries on the plane of degrees: exact tests of what an area contains and intersects, and a coarse grid over the globe.

Positions are x (longitude) and y (latitude). Lines are densified along great circles first, so that the plane of
degrees is good enough between two positions. The grid decides about geometries across the antimeridian, for which the plane
fails. See docs/filters-and-facets.md#geometries.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import asin, atan2, ceil, cos, degrees, dist, hypot, pi, radians, sin, sqrt

from svcd.geo.sphere import Bounds, Direction, direction

Position = tuple[float, float]  # x, y
Line = list[Position]
Ring = list[Position]  # a closed outline: it ends where it begins
Edge = tuple[Position, Position]

# The mean radius of the Earth. Distances between points use a rounder one (sphere.RADIUS_M): both are part of the
# interface, as they decide about documents near a border.
MEAN_RADIUS_M = 6_371_008.8
# How far apart positions of densified lines may be, in documents and in filters.
DOCUMENT_STEP_M = 10_000
QUERY_STEP_M = 1_000

_CELLS = 64  # of the grid over an area (class Area), in a row and in a column
_MOST_CELLS = 16  # of a bounding box that is decided by the grid alone
_ROUNDING = 4e-16  # relative error of the products in orientation(), with a margin

# The grid over the globe is built on an icosahedron: latitude and longitude of six of its corners, no two opposite. H3 uses the
# orientation of Fuller's map, in which all twelve corners lie in the sea.
_CORNERS = ((64.7, 10.536199), (2.300882, -5.245390), (10.447378, 58.157706), (39.1, 122.3), (50.103201, -143.478490),
            (23.717925, -67.132326))
_LONGEST_SIDE = 1.1  # chord: corners of one side are 1.05 apart, the next ones 1.7
# The centres of cells in a face, as weights of its corners.
_WEIGHTS = [weights for weights in ((a, b, 6 - a - b) for a in range(7) for b in range(7 - a))
            if weights[0] % 3 == weights[1] % 3 == weights[2] % 3]
# One position in so many of a line is looked at: outlines have one every ten kilometres, cells are some two thousand kilometres
# wide.
_SAMPLING_STEP = 10
_SMALL = 5.0  # degrees; centres of cells are more than three times as far apart


@dataclass(frozen=True, slots=True)
class Shape:
    """A geometry of any number of parts. A polygon is its outline, followed by its holes."""

    points: list[Position] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    polygons: list[list[Ring]] = field(default_factory=list)

    def positions(self) -> Iterator[Position]:
        """Every position of every part."""
        yield from self.points
        for line in self.lines:
            yield from line
        for polygon in self.polygons:
            for ring in polygon:
                yield from ring

    def bounds(self) -> Bounds:
        """The bounding box of a geometry with at least one position."""
        xs, ys = zip(*self.positions())
        return min(ys), min(xs), max(ys), max(xs)

    def densified(self, step: float) -> Shape:
        """The geometry with its lines and outlines along great circles, a position at least every `step` metres."""
        return Shape(self.points, [densify(line, step) for line in self.lines],
                     [[densify(ring, step) for ring in polygon] for polygon in self.polygons])

    def packed(self) -> bytes:
        """The bytes that an index stores: the lengths of all parts, then the positions."""
        lengths = [len(self.points), len(self.lines), len(self.polygons), *map(len, self.lines)]
        for polygon in self.polygons:
            lengths += [len(polygon), *map(len, polygon)]
        head = array("I", [len(lengths), *lengths])
        return head.tobytes() + array("d", [number for position in self.positions() for number in position]).tobytes()


def unpacked(kept: bytes) -> Shape:
    """The geometry of the bytes of Shape.packed()."""
    head = array("I", kept[:4])
    end = head.itemsize * (head[0] + 1)
    lengths = iter(array("I", kept[head.itemsize:end]))
    numbers = array("d", kept[end:])
    positions = zip(numbers[::2], numbers[1::2])
    points, lines, polygons = next(lengths), next(lengths), next(lengths)

    def part(length: int) -> Line:
        return [position for _, position in zip(range(length), positions)]

    found = part(points)
    line_lengths = [next(lengths) for _ in range(lines)]
    return Shape(found, [part(length) for length in line_lengths],
                 [[part(length) for length in [next(lengths) for _ in range(next(lengths))]] for _ in range(polygons)])


def closed(ring: Iterable[Position]) -> Ring:
    """A ring, closed if it is open."""
    positions = list(ring)
    return positions if not positions or positions[0] == positions[-1] else [*positions, positions[0]]


def densify(line: Sequence[Position], step: float) -> Line:
    """A line with positions added on great circles, so that none is farther than `step` metres from the next."""
    densified: Line = list(line[:1])
    for left, right in zip(line, line[1:]):
        densified += _between(left, right, step)
        densified.append(right)
    return densified


def _between(left: Position, right: Position, step: float) -> Iterator[Position]:
    """Equidistant positions on the great circle between two."""
    (x0, y0), (x1, y1) = (map(radians, left), map(radians, right))
    half = sin((y1 - y0) / 2) ** 2 + cos(y0) * cos(y1) * sin((x1 - x0) / 2) ** 2
    arc = 2 * asin(sqrt(min(max(half, 0.0), 1.0)))
    parts = ceil(arc * MEAN_RADIUS_M / step)
    if parts < 2:
        return
    whole = sin(arc)
    for number in range(1, parts):
        share = number / parts
        a, b = sin((1 - share) * arc) / whole, sin(share * arc) / whole
        x = a * cos(y0) * cos(x0) + b * cos(y1) * cos(x1)
        y = a * cos(y0) * sin(x0) + b * cos(y1) * sin(x1)
        z = a * sin(y0) + b * sin(y1)
        yield degrees(atan2(y, x)), degrees(atan2(z, sqrt(x * x + y * y)))


def circle(latitude: float, longitude: float, metres: float, vertices: int) -> Ring:
    """The polygon that approximates a circle: vertices at equal bearings from its centre, clockwise from north."""
    y0, x0, arc = radians(latitude), radians(longitude), metres / MEAN_RADIUS_M
    ring = []
    for number in range(vertices):
        bearing = 2 * pi * number / vertices
        y1 = asin(min(max(sin(y0) * cos(arc) + cos(y0) * sin(arc) * cos(bearing), -1.0), 1.0))
        x1 = x0 + atan2(sin(bearing) * sin(arc) * cos(y0), cos(arc) - sin(y0) * sin(y1))
        ring.append(((degrees(x1) + 540) % 360 - 180, degrees(y1)))
    return closed(ring)


# Containment and intersection on the plane, touching included


def orientation(left: Position, right: Position, position: Position) -> float:
    """Above 0 when a position lies left of the way from `left` to `right`, below when right of it, 0 on the line.

    The sign is exact: where rounding could change it, it is computed in fractions.
    """
    (x0, y0), (x1, y1), (x, y) = left, right, position
    one, other = (x0 - x) * (y1 - y), (y0 - y) * (x1 - x)
    difference = one - other
    if abs(difference) > _ROUNDING * (abs(one) + abs(other)):
        return difference
    east0, north0, east1, north1, east, north = map(Fraction, (x0, y0, x1, y1, x, y))
    exact = (east0 - east) * (north1 - north) - (north0 - north) * (east1 - east)
    return (exact > 0) - (exact < 0)


def is_on_edge(edge: Edge, position: Position) -> bool:
    """Does a position lie on an edge, its ends included?"""
    (x0, y0), (x1, y1) = edge
    x, y = position
    return min(x0, x1) <= x <= max(x0, x1) and min(y0, y1) <= y <= max(y0, y1) and orientation(*edge, position) == 0


def do_intersect(edge: Edge, other: Edge) -> bool:
    """Do two edges have a position in common?"""
    (x0, y0), (x1, y1) = edge
    (x2, y2), (x3, y3) = other
    if max(x0, x1) < min(x2, x3) or max(x2, x3) < min(x0, x1) or max(y0, y1) < min(y2, y3) or max(y2, y3) < min(y0, y1):
        return False
    first, second = orientation(*edge, other[0]), orientation(*edge, other[1])
    if first > 0 < second or first < 0 > second:
        return False
    first, second = orientation(*other, edge[0]), orientation(*other, edge[1])
    return not (first > 0 < second or first < 0 > second)


def is_enclosed(edges: Iterable[Edge], position: Position) -> bool:
    """Does a position lie in the area that edges enclose (even-odd rule), or on one of them?"""
    y = position[1]
    is_in = False
    for edge in edges:
        (_, y0), (_, y1) = edge
        if (y0 < y and y1 < y) or (y0 > y and y1 > y):
            continue
        if is_on_edge(edge, position):
            return True
        if (y0 > y) != (y1 > y) and (orientation(*edge, position) > 0) == (y1 > y0):
            is_in = not is_in
    return is_in


class Area:
    """What a closed outline encloses.

    The edges of the outline stand in a grid over its bounding box: an edge of a geometry is compared with the edges of
    its own cells, and whether a position is inside follows from the edges of its row.
    """

    def __init__(self, ring: Ring) -> None:
        """ring: of at least one position."""
        self._start = ring[0]
        xs, ys = zip(*ring)
        self.bounds: Bounds = (min(ys), min(xs), max(ys), max(xs))
        self._width = (self.bounds[3] - self.bounds[1]) / _CELLS or 1.0
        self._height = (self.bounds[2] - self.bounds[0]) / _CELLS or 1.0
        self._cells: dict[tuple[int, int], list[Edge]] = {}
        self._rows: dict[int, list[Edge]] = {}
        self._verdicts: dict[tuple[int, int], bool] = {}
        for edge in edges_of(ring):
            columns, rows = self._cells_of(edge)
            for row in rows:
                self._rows.setdefault(row, []).append(edge)
                for column in columns:
                    self._cells.setdefault((column, row), []).append(edge)

    def _cells_of(self, edge: Edge) -> tuple[range, range]:
        """The columns and rows of the grid that an edge may lie in."""
        (x0, y0), (x1, y1) = edge
        south, west, _, _ = self.bounds
        return (_cell_range(min(x0, x1) - west, max(x0, x1) - west, self._width),
                _cell_range(min(y0, y1) - south, max(y0, y1) - south, self._height))

    def contains(self, position: Position) -> bool:
        """Does a position lie inside or on the outline?"""
        x, y = position
        south, west, north, east = self.bounds
        if not (south <= y <= north and west <= x <= east):
            return False
        cell = _cell(x - west, self._width), _cell(y - south, self._height)
        return is_enclosed(self._rows[cell[1]], position) if cell in self._cells else self._is_cell_inside(*cell)

    def _is_cell_inside(self, column: int, row: int) -> bool:
        """Does a cell without edges lie inside the area?"""
        if (column, row) not in self._verdicts:
            middle = self.bounds[1] + (column + 0.5) * self._width, self.bounds[0] + (row + 0.5) * self._height
            self._verdicts[column, row] = is_enclosed(self._rows.get(row, ()), middle)
        return self._verdicts[column, row]

    def intersects_bounds(self, bounds: Bounds) -> bool | None:
        """Does every geometry with this bounding box intersect the area? None where it depends on the geometry."""
        south, west, north, east = bounds
        if (south, west) == (north, east):
            return self.contains((west, south))
        columns, rows = self._cells_of(((west, south), (east, north)))
        own_south, own_west, own_north, own_east = self.bounds
        is_within = own_south <= south and own_west <= west and north <= own_north and east <= own_east
        if not is_within or len(columns) * len(rows) > _MOST_CELLS:
            return None
        cells = [(column, row) for column in columns for row in rows]
        if any(cell in self._cells for cell in cells):
            return None
        verdicts = {self._is_cell_inside(*cell) for cell in cells}
        return verdicts.pop() if len(verdicts) == 1 else None

    def intersects(self, shape: Shape) -> bool:
        """Has a geometry any position in common with the area?"""
        if any(map(self.contains, shape.points)):
            return True
        if any(self.contains(line[0]) or self._is_crossed_by(edges_of(line)) for line in shape.lines):
            return True
        return any(map(self._intersects_polygon, shape.polygons))

    def _intersects_polygon(self, polygon: Sequence[Ring]) -> bool:
        """If no outlines cross, one lies wholly inside the other, or apart from it."""
        if self.contains(polygon[0][0]) or any(self._is_crossed_by(edges_of(ring)) for ring in polygon):
            return True
        outline, *holes = polygon
        # The start is on none of these edges, or the outlines would cross; inside a hole it is outside of the polygon.
        is_in_hole = (is_enclosed(edges_of(hole), self._start) for hole in holes)
        return is_enclosed(edges_of(outline), self._start) and not any(is_in_hole)

    def _is_crossed_by(self, edges: Iterable[Edge]) -> bool:
        south, west, north, east = self.bounds
        for edge in edges:
            (x0, y0), (x1, y1) = edge
            if (x0 < west and x1 < west) or (x0 > east and x1 > east) or (y0 < south and y1 < south) or (
                    y0 > north and y1 > north):
                continue
            columns, rows = self._cells_of(edge)
            for row in rows:
                if row in self._rows and any(do_intersect(edge, own) for column in columns
                                             for own in self._cells.get((column, row), ())):
                    return True
        return False


def _cell_range(least: float, greatest: float, width: float) -> range:
    """The cells of a row or column between two offsets from its beginning."""
    return range(_cell(least, width), _cell(greatest, width) + 1)


def _cell(offset: float, width: float) -> int:
    """The cell of a row or column at an offset from its beginning; the outermost one for what lies outside."""
    return min(max(int(offset / width), 0), _CELLS - 1)


def edges_of(line: Sequence[Position]) -> Iterator[Edge]:
    """The edges of a line or ring; a single position is an edge that begins and ends there."""
    return zip(line, line[1:] if len(line) > 1 else line)


# A grid of 122 cells over the globe, and which of them a geometry touches.
#
# On the plane of degrees an outline across the antimeridian jumps from one side to the other, and seems to intersect whatever
# lies on its way. Such geometries count as intersecting only where they share a cell with the other one. The cells are those of
# the coarsest level of the H3 grid: twelve around the corners of an icosahedron, the others around points that divide its faces.
# A position belongs to the cell with the nearest centre; near borders this differs from H3 by some kilometres.


def crosses_antimeridian(line: Sequence[Position]) -> bool:
    """Does a line cross the antimeridian, so that it jumps from one side of the plane to the other?"""
    return any(abs(left[0] - right[0]) > 180 for left, right in zip(line, line[1:]))


def cells_of(shape: Shape) -> frozenset[int]:
    """The numbers (0 to 121) of the cells that a geometry touches."""
    touched = {_nearest_cell(position) for line in _lines(shape) for position in (*line[::_SAMPLING_STEP], line[-1])}
    return frozenset(touched.union(*(_enclosed(polygon[0]) for polygon in shape.polygons)))


def _lines(shape: Shape) -> Iterator[Line]:
    for position in shape.points:
        yield [position]
    yield from shape.lines
    for polygon in shape.polygons:
        yield from polygon


def _enclosed(outline: Line) -> Iterator[int]:
    """The cells whose centre lies in an outline; one across the antimeridian is continued beyond longitude 180.

    Nothing for a small one: a centre in it is also the nearest centre of its positions.
    """
    shift = 360 if crosses_antimeridian(outline) else 0
    continued = [_shifted(position, shift) for position in outline]
    if max(max(numbers) - min(numbers) for numbers in zip(*continued)) < _SMALL:
        return
    area = Area(continued)
    for number, centre in enumerate(_centre_positions()):
        if area.contains(_shifted(centre, shift)):
            yield number


def _shifted(position: Position, shift: float) -> Position:
    return (position[0] + shift, position[1]) if position[0] < 0 else position


def _nearest_cell(position: Position) -> int:
    x0, y0, z0 = direction((position[1], position[0]))
    cosines = [x * x0 + y * y0 + z * z0 for x, y, z in cell_centres()]
    return cosines.index(max(cosines))


@cache
def cell_centres() -> tuple[Direction, ...]:
    """The centres of all cells, in the order of their numbers."""
    corners = [direction(corner) for corner in _CORNERS]
    corners += [(-x, -y, -z) for x, y, z in corners]
    faces = [face for face in combinations(corners, 3) if all(dist(*ends) < _LONGEST_SIDE for ends in combinations(face, 2))]
    centres: dict[tuple[float, ...], Direction] = {}
    for face in faces:
        for weights in _WEIGHTS:
            centre = _unit([sum(weight * corner[at] for weight, corner in zip(weights, face)) for at in range(3)])
            # A centre on a side is found in both faces of the side.
            centres.setdefault(tuple(round(coordinate, 4) + 0.0 for coordinate in centre), centre)
    return tuple(centres.values())


@cache
def _centre_positions() -> tuple[Position, ...]:
    return tuple((degrees(atan2(y, x)), degrees(asin(z))) for x, y, z in cell_centres())


def _unit(coordinates: Iterable[float]) -> Direction:
    x, y, z = coordinates
    length = hypot(x, y, z)
    return x / length, y / length, z / length
