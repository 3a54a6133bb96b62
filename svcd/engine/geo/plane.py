"""What meets what on the plane: an area against geometries, touching included.

Edges of the area stand in a grid over the box around it, so that an edge of a geometry is compared with the few beside
it, and a position is found inside by the edges of its row alone. Signs are exact: where rounding could
turn one, it is worked out in fractions. Refuses to know the globe.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from svcd.engine.geo.shape import Position, Ring, Shape
from svcd.engine.reader import Sides

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
