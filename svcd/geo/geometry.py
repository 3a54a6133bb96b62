"""Geometries on the plane of degrees: points, lines and polygons as lists of x (longitude) and y (latitude).

Knows how outlines follow great circles (relevance.md 8.5), the box around a geometry and the form in which an index
keeps it; refuses to know GeoJSON and what meets what.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import asin, atan2, ceil, cos, degrees, pi, radians, sin, sqrt

from svcd.geo.sphere import Sides

Position = tuple[float, float]  # x, y
Line = list[Position]
Ring = list[Position]  # closed: it ends where it begins

# Of the sphere as large as the Earth; distances between documents have a rounder one (8.2).
MEAN_RADIUS_M = 6_371_008.8
DOCUMENT_STEP_M = 10_000
QUERY_STEP_M = 1_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A geometry of any parts. Each polygon is its outline, then its holes."""

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

    def sides(self) -> Sides:
        """South, west, north and east of the box around it, which has at least one position."""
        xs, ys = zip(*self.positions())
        return min(ys), min(xs), max(ys), max(xs)

    def dense(self, step: float) -> Shape:
        """The geometry with its lines and outlines along great circles, a position at least every `step` metres."""
        return Shape(self.points, [dense(line, step) for line in self.lines],
                     [[dense(ring, step) for ring in polygon] for polygon in self.polygons])

    def packed(self) -> bytes:
        """The form in which an index keeps it: the lengths of all parts, then the positions."""
        lengths = [len(self.points), len(self.lines), len(self.polygons), *map(len, self.lines)]
        for polygon in self.polygons:
            lengths += [len(polygon), *map(len, polygon)]
        head = array("I", [len(lengths), *lengths])
        return head.tobytes() + array("d", [number for position in self.positions() for number in position]).tobytes()


def unpacked(kept: bytes) -> Shape:
    """The geometry of packed()."""
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
    """A ring that ends where it begins."""
    positions = list(ring)
    return positions if not positions or positions[0] == positions[-1] else [*positions, positions[0]]


def dense(line: Sequence[Position], step: float) -> Line:
    """A line with so many positions between its own that none is farther from the next than `step` metres."""
    found: Line = list(line[:1])
    for left, right in zip(line, line[1:]):
        found += _between(left, right, step)
        found.append(right)
    return found


def _between(left: Position, right: Position, step: float) -> Iterator[Position]:
    """Positions in equal distances on the great circle between two."""
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
    """The polygon that stands for a circle: vertices at equal bearings from its centre, clockwise from north."""
    y0, x0, arc = radians(latitude), radians(longitude), metres / MEAN_RADIUS_M
    ring = []
    for number in range(vertices):
        bearing = 2 * pi * number / vertices
        y1 = asin(min(max(sin(y0) * cos(arc) + cos(y0) * sin(arc) * cos(bearing), -1.0), 1.0))
        x1 = x0 + atan2(sin(bearing) * sin(arc) * cos(y0), cos(arc) - sin(y0) * sin(y1))
        ring.append(((degrees(x1) + 540) % 360 - 180, degrees(y1)))
    return closed(ring)


# What meets what on the plane: an area against geometries, touching included.
#
# Edges of the area stand in a grid over the box around it, so that an edge of a geometry is compared with the few beside
# it, and a position is found inside by the edges of its row alone. Signs are exact: where rounding could
# turn one, it is worked out in fractions. Refuses to know the globe.


Edge = tuple[Position, Position]

_CELLS = 64  # in a row, and in a column
_FEW = 16  # cells that are looked at one by one
_ROUNDING = 4e-16  # of the products of side(), twice over


def side(left: Position, right: Position, position: Position) -> float:
    """Above 0 when a position lies left of the way from one to another, below when right of it, 0 on the line."""
    (x0, y0), (x1, y1), (x, y) = left, right, position
    one, other = (x0 - x) * (y1 - y), (y0 - y) * (x1 - x)
    difference = one - other
    if abs(difference) > _ROUNDING * (abs(one) + abs(other)):
        return difference
    east0, north0, east1, north1, east, north = map(Fraction, (x0, y0, x1, y1, x, y))
    exact = (east0 - east) * (north1 - north) - (north0 - north) * (east1 - east)
    return (exact > 0) - (exact < 0)


def is_on(edge: Edge, position: Position) -> bool:
    """Does a position lie on an edge, its ends included?"""
    (x0, y0), (x1, y1) = edge
    x, y = position
    return min(x0, x1) <= x <= max(x0, x1) and min(y0, y1) <= y <= max(y0, y1) and side(*edge, position) == 0


def do_cross(edge: Edge, other: Edge) -> bool:
    """Have two edges a position in common?"""
    (x0, y0), (x1, y1) = edge
    (x2, y2), (x3, y3) = other
    if max(x0, x1) < min(x2, x3) or max(x2, x3) < min(x0, x1) or max(y0, y1) < min(y2, y3) or max(y2, y3) < min(y0, y1):
        return False
    first, second = side(*edge, other[0]), side(*edge, other[1])
    if first > 0 < second or first < 0 > second:
        return False
    first, second = side(*other, edge[0]), side(*other, edge[1])
    return not (first > 0 < second or first < 0 > second)


def is_inside(edges: Iterable[Edge], position: Position) -> bool:
    """Does a position lie in the area that edges enclose, or on one of them?"""
    y = position[1]
    is_in = False
    for edge in edges:
        (_, y0), (_, y1) = edge
        if (y0 < y and y1 < y) or (y0 > y and y1 > y):
            continue
        if is_on(edge, position):
            return True
        if (y0 > y) != (y1 > y) and (side(*edge, position) > 0) == (y1 > y0):
            is_in = not is_in
    return is_in


class Area:
    """What a closed outline encloses. ring: of at least one position."""

    def __init__(self, ring: Ring) -> None:
        self._start = ring[0]
        xs, ys = zip(*ring)
        self.sides: Sides = (min(ys), min(xs), max(ys), max(xs))
        self._width = (self.sides[3] - self.sides[1]) / _CELLS or 1.0
        self._height = (self.sides[2] - self.sides[0]) / _CELLS or 1.0
        self._cells: dict[tuple[int, int], list[Edge]] = {}
        self._rows: dict[int, list[Edge]] = {}
        self._wholes: dict[tuple[int, int], bool] = {}
        for edge in edges_of(ring):
            columns, rows = self._around(edge)
            for row in rows:
                self._rows.setdefault(row, []).append(edge)
                for column in columns:
                    self._cells.setdefault((column, row), []).append(edge)

    def _around(self, edge: Edge) -> tuple[range, range]:
        """The columns and rows of cells that an edge may lie in."""
        (x0, y0), (x1, y1) = edge
        south, west, _, _ = self.sides
        return (_cells(min(x0, x1) - west, max(x0, x1) - west, self._width),
                _cells(min(y0, y1) - south, max(y0, y1) - south, self._height))

    def has(self, position: Position) -> bool:
        """Does a position lie inside or on the outline?"""
        x, y = position
        south, west, north, east = self.sides
        if not (south <= y <= north and west <= x <= east):
            return False
        cell = _cell(x - west, self._width), _cell(y - south, self._height)
        return is_inside(self._rows[cell[1]], position) if cell in self._cells else self._is_whole(*cell)

    def _is_whole(self, column: int, row: int) -> bool:
        """Is a cell without edges inside?"""
        if (column, row) not in self._wholes:
            middle = self.sides[1] + (column + 0.5) * self._width, self.sides[0] + (row + 0.5) * self._height
            self._wholes[column, row] = is_inside(self._rows.get(row, ()), middle)
        return self._wholes[column, row]

    def surely_meets(self, sides: Sides) -> bool | None:
        """Does whatever has this box around it meet the area? None where that is not to be told from the box alone."""
        south, west, north, east = sides
        if (south, west) == (north, east):
            return self.has((west, south))
        columns, rows = self._around(((west, south), (east, north)))
        own_south, own_west, own_north, own_east = self.sides
        is_within = own_south <= south and own_west <= west and north <= own_north and east <= own_east
        if not is_within or len(columns) * len(rows) > _FEW:
            return None
        cells = [(column, row) for column in columns for row in rows]
        if any(cell in self._cells for cell in cells):
            return None
        found = {self._is_whole(*cell) for cell in cells}
        return found.pop() if len(found) == 1 else None

    def meets(self, shape: Shape) -> bool:
        """Has a geometry any position in common with the area?"""
        if any(map(self.has, shape.points)):
            return True
        if any(self.has(line[0]) or self._is_crossed_by(edges_of(line)) for line in shape.lines):
            return True
        return any(map(self._meets_polygon, shape.polygons))

    def _meets_polygon(self, polygon: Sequence[Ring]) -> bool:
        """When no outlines cross, one lies wholly in the other, or apart from it."""
        if self.has(polygon[0][0]) or any(self._is_crossed_by(edges_of(ring)) for ring in polygon):
            return True
        outline, *holes = polygon
        # Not on any edge, or edges would cross: in a hole is outside.
        is_in_hole = (is_inside(edges_of(hole), self._start) for hole in holes)
        return is_inside(edges_of(outline), self._start) and not any(is_in_hole)

    def _is_crossed_by(self, edges: Iterable[Edge]) -> bool:
        south, west, north, east = self.sides
        for edge in edges:
            (x0, y0), (x1, y1) = edge
            if (x0 < west and x1 < west) or (x0 > east and x1 > east) or (y0 < south and y1 < south) or (
                    y0 > north and y1 > north):
                continue
            columns, rows = self._around(edge)
            for row in rows:
                if row in self._rows and any(do_cross(edge, own) for column in columns
                                             for own in self._cells.get((column, row), ())):
                    return True
        return False


def _cells(least: float, greatest: float, width: float) -> range:
    """The cells of a row, or of a column, from one place to another."""
    return range(_cell(least, width), _cell(greatest, width) + 1)


def _cell(place: float, width: float) -> int:
    """The cell of a row, or of a column, with a place; those outside count to the outermost cells."""
    return min(max(int(place / width), 0), _CELLS - 1)


def edges_of(line: Sequence[Position]) -> Iterator[Edge]:
    """The edges of a line or ring; that of a single position begins and ends there."""
    return zip(line, line[1:] if len(line) > 1 else line)
