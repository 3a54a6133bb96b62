"""Geometries on the plane of degrees: exact tests of containment and intersection.

Positions are x (longitude) and y (latitude). Lines are densified along great circles first, so that the plane of degrees is
accurate enough between two positions. Geometries over the antimeridian or around a pole are continued beyond longitude 180.
See docs/filters-and-facets.md#geometries.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations
from math import asin, atan2, ceil, copysign, cos, degrees, dist, hypot, pi, radians, sin, sqrt

from svcd.geo.sphere import Bounds, Direction, direction

Position = tuple[float, float]  # x, y
Line = list[Position]
Ring = list[Position]  # a closed outline: it ends where it begins
Edge = tuple[Position, Position]

# The mean radius of the Earth. Distances between points use a rounder value (sphere.RADIUS_M): both are part of the
# interface, as they decide about documents near a border.
MEAN_RADIUS_M = 6_371_008.8
# The distance between positions of densified lines, in documents and in filters.
DOCUMENT_STEP_M = 10_000
QUERY_STEP_M = 1_000

_CELLS = 64  # of the grid over an area (class Area), in a row and in a column
_MOST_CELLS = 16  # of a bounding box that is decided by the grid alone
_ROUNDING = 4e-16  # relative error of the products in orientation(), with a margin
HALF_TURN, TURN, POLE = 180.0, 360.0, 90.0  # degrees
_ANTIPODAL = 1e-9  # radians from half a turn: between such positions no great circle is the shortest way
_LONGEST_EDGE = 0.1  # degrees of latitude in DOCUMENT_STEP_M, with a margin
_NARROW = 1e-6  # degrees: the width of an outline that is a part of a meridian


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
        """Return the bounding box of a geometry with at least one position."""
        xs, ys = zip(*self.positions())
        return min(ys), min(xs), max(ys), max(xs)

    def moved(self, degrees_east: float) -> Shape:
        """Return the geometry at other longitudes."""
        points, *lines = [[(x + degrees_east, y) for x, y in line] for line in (self.points, *self.lines)]
        return Shape(points, lines, [[[(x + degrees_east, y) for x, y in ring] for ring in polygon] for polygon in self.polygons])

    def unrolled(self) -> Shape:
        """Return the geometry with lines and outlines as unrolled(), and with each touched pole at all longitudes.

        Holes are repeated at each turn that their outline may reach.
        """
        poles = {y for _, y in self.positions() if abs(y) == POLE}
        lines = [*map(unrolled, self.lines), *([(-HALF_TURN, y), (HALF_TURN, y)] for y in sorted(poles))]

        def holes_at_all_turns(holes: Sequence[Ring]) -> Iterator[Ring]:
            for hole in map(unrolled_outline, holes):
                yield from ([(x + turn, y) for x, y in hole] for turn in (-TURN, 0.0, TURN))

        return Shape(self.points, lines, [[unrolled_outline(outline), *holes_at_all_turns(holes)]
                                          for outline, *holes in self.polygons])

    def densified(self, step: float) -> Shape:
        """Return the geometry with lines and outlines along great circles, with a position at least every `step` metres."""
        return Shape(self.points, [densify(line, step) for line in self.lines],
                     [[densify(ring, step) for ring in polygon] for polygon in self.polygons])

    def packed(self) -> bytes:
        """Return the bytes that an index stores: the lengths of all parts, then the positions."""
        lengths = [len(self.points), len(self.lines), len(self.polygons), *map(len, self.lines)]
        for polygon in self.polygons:
            lengths += [len(polygon), *map(len, polygon)]
        head = array("I", [len(lengths), *lengths])
        return head.tobytes() + array("d", [number for position in self.positions() for number in position]).tobytes()


def unpacked(kept: bytes) -> Shape:
    """Return the geometry of the bytes of Shape.packed()."""
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
    """Return a ring, closed if it is open."""
    positions = list(ring)
    return positions if not positions or positions[0] == positions[-1] else [*positions, positions[0]]


def densify(line: Sequence[Position], step: float) -> Line:
    """Return a line with positions added on great circles, so that each is at most `step` metres from the next."""
    densified: Line = list(line[:1])
    for left, right in zip(line, line[1:]):
        densified += _between(left, right, step)
        densified.append(right)
    return densified


def _between(left: Position, right: Position, step: float) -> Iterator[Position]:
    """Yield equidistant positions on the great circle between two positions; between antipodes, on the plane of degrees."""
    (x0, y0), (x1, y1) = (map(radians, left), map(radians, right))
    half = sin((y1 - y0) / 2) ** 2 + cos(y0) * cos(y1) * sin((x1 - x0) / 2) ** 2
    arc = 2 * asin(sqrt(min(max(half, 0.0), 1.0)))
    parts = ceil(arc * MEAN_RADIUS_M / step)
    if parts < 2:
        return
    whole = sin(arc)
    for number in range(1, parts):
        share = number / parts
        if pi - arc < _ANTIPODAL:
            yield left[0] + (right[0] - left[0]) * share, left[1] + (right[1] - left[1]) * share
            continue
        a, b = sin((1 - share) * arc) / whole, sin(share * arc) / whole
        x = a * cos(y0) * cos(x0) + b * cos(y1) * cos(x1)
        y = a * cos(y0) * sin(x0) + b * cos(y1) * sin(x1)
        z = a * sin(y0) + b * sin(y1)
        yield degrees(atan2(y, x)), degrees(atan2(z, sqrt(x * x + y * y)))


def circle(latitude: float, longitude: float, metres: float, vertices: int) -> Ring:
    """Return the polygon that approximates a circle: vertices at equal bearings from its centre, clockwise from north."""
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
    """Return a number above 0 if `position` is left of the way from `left` to `right`, below 0 if right of it, 0 on the line.

    The sign is exact: where rounding could change it, it is computed in fractions.
    """
    (x0, y0), (x1, y1), (x, y) = left, right, position
    one, other = (x0 - x) * (y1 - y), (y0 - y) * (x1 - x)
    difference = one - other
    if abs(difference) > _ROUNDING * (abs(one) + abs(other)):
        return difference
    from fractions import Fraction  # few points are so close to an edge

    east0, north0, east1, north1, east, north = map(Fraction, (x0, y0, x1, y1, x, y))
    exact = (east0 - east) * (north1 - north) - (north0 - north) * (east1 - east)
    return (exact > 0) - (exact < 0)


def is_on_edge(edge: Edge, position: Position) -> bool:
    """Return whether a position is on an edge or at one of its ends."""
    (x0, y0), (x1, y1) = edge
    x, y = position
    return min(x0, x1) <= x <= max(x0, x1) and min(y0, y1) <= y <= max(y0, y1) and orientation(*edge, position) == 0


def do_intersect(edge: Edge, other: Edge) -> bool:
    """Return whether two edges have a position in common."""
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
    """Return whether a position is in the area that edges enclose (even-odd rule), or on an edge."""
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
    """The area of closed rings: an outline, or an outline without its holes.

    A grid over the bounding box holds the edges of the rings: an edge of a geometry is compared with the edges of its own
    cells, and the edges of its row decide whether a position is inside.
    """

    def __init__(self, ring: Ring, *holes: Ring) -> None:
        """ring: of at least one position."""
        self._start = ring[0]
        xs, ys = zip(*ring)
        self.bounds: Bounds = (min(ys), min(xs), max(ys), max(xs))
        self._width = (self.bounds[3] - self.bounds[1]) / _CELLS or 1.0
        self._height = (self.bounds[2] - self.bounds[0]) / _CELLS or 1.0
        self._cells: dict[tuple[int, int], list[Edge]] = {}
        self._rows: dict[int, list[Edge]] = {}
        self._verdicts: dict[tuple[int, int], bool] = {}
        for edge in chain(*map(edges_of, (ring, *holes))):
            columns, rows = self._cells_of(edge)
            for row in rows:
                self._rows.setdefault(row, []).append(edge)
                for column in columns:
                    self._cells.setdefault((column, row), []).append(edge)

    def _cells_of(self, edge: Edge) -> tuple[range, range]:
        """Return the columns and rows of the grid that an edge may touch."""
        (x0, y0), (x1, y1) = edge
        south, west, _, _ = self.bounds
        return (_cell_range(min(x0, x1) - west, max(x0, x1) - west, self._width),
                _cell_range(min(y0, y1) - south, max(y0, y1) - south, self._height))

    def contains(self, position: Position) -> bool:
        """Return whether a position is inside or on the outline."""
        x, y = position
        south, west, north, east = self.bounds
        if not (south <= y <= north and west <= x <= east):
            return False
        cell = _cell(x - west, self._width), _cell(y - south, self._height)
        return is_enclosed(self._rows[cell[1]], position) if cell in self._cells else self._is_cell_inside(*cell)

    def _is_cell_inside(self, column: int, row: int) -> bool:
        """Return whether a cell without edges is inside the area."""
        if (column, row) not in self._verdicts:
            middle = self.bounds[1] + (column + 0.5) * self._width, self.bounds[0] + (row + 0.5) * self._height
            self._verdicts[column, row] = is_enclosed(self._rows.get(row, ()), middle)
        return self._verdicts[column, row]

    def intersects_bounds(self, bounds: Bounds) -> bool | None:
        """Return whether every geometry with this bounding box intersects the area; None if it depends on the geometry."""
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
        """Return whether a geometry has any position in common with the area."""
        if any(map(self.contains, shape.points)):
            return True
        if any(self.contains(line[0]) or self._is_crossed_by(edges_of(line)) for line in shape.lines):
            return True
        return any(map(self._intersects_polygon, shape.polygons))

    def _intersects_polygon(self, polygon: Sequence[Ring]) -> bool:
        """Test a polygon. If no outlines cross, one is inside the other, or they are apart."""
        if self.contains(polygon[0][0]) or any(
                self._is_crossed_by(edge for edge in edges_of(ring) if not _is_added(edge)) for ring in polygon):
            return True
        # The start is on none of these edges, or the outlines would cross; inside a hole it is outside the polygon.
        outline, *holes = polygon
        return is_enclosed(edges_of(outline), self._start) and not any(is_enclosed(edges_of(hole), self._start) for hole in holes)

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
    """Return the cells of a row or column between two offsets from its beginning."""
    return range(_cell(least, width), _cell(greatest, width) + 1)


def _cell(offset: float, width: float) -> int:
    """Return the cell of a row or column at an offset from its beginning; beyond the ends, the outermost cell."""
    return min(max(int(offset / width), 0), _CELLS - 1)


def edges_of(line: Sequence[Position]) -> Iterator[Edge]:
    """Return the edges of a line or ring; for a single position, an edge that begins and ends there."""
    return zip(line, line[1:] if len(line) > 1 else line)


def _is_added(edge: Edge) -> bool:
    """Return whether an edge exists on the plane only: along a pole, or from unrolled_outline() to a pole. Others are short."""
    (_, y0), (_, y1) = edge
    return POLE in (abs(y0), abs(y1)) and (y0 == y1 or abs(y0 - y1) > _LONGEST_EDGE)


# Over the antimeridian and around the poles
#
# On the plane of degrees an outline over the antimeridian jumps from one side to the other, and would enclose everything in
# between. Here lines are continued beyond longitude 180 instead, and an outline around a pole is continued to the pole,
# along it, and back: so the plane encloses the same area. Longitudes that differ by whole turns are the same.

def is_wide(bounds: Bounds) -> bool:
    """Return whether a geometry in a box may cross the antimeridian, or go around or through a pole. Its steps are shorter than
    half a turn."""
    south, west, north, east = bounds
    return east - west >= HALF_TURN or west < -HALF_TURN or east > HALF_TURN or south <= -POLE or north >= POLE


def unrolled(line: Sequence[Position]) -> Line:
    """Continue a line beyond longitude 180, so that it does not jump to the other side.

    At a pole, which is one point, longitudes stay unchanged: outlines of Antarctica run along it from -180 to 180.
    """
    continued, shift = list(line[:1]), 0.0
    for (x0, y0), (x, y) in zip(line, line[1:]):
        if abs(x - x0) > HALF_TURN and not y0 == y in (-POLE, POLE):
            shift += copysign(TURN, x0 - x)
        continued.append((x + shift, y))
    return continued


def unrolled_outline(ring: Ring, is_north: bool | None = None) -> Ring:
    """Return the unrolled outline of the area that a ring encloses.

    is_north: the pole to enclose with a ring around both; None for the pole in the smaller part of the globe.
    """
    outline = unrolled(ring)
    (x0, y0), (x1, _) = outline[0], outline[-1]
    if abs(x1 - x0) > HALF_TURN:
        if is_north is None:  # the part north of it is the smaller one if more of the ring is in the north
            is_north = sum((east - west) * (sin(radians(left)) + sin(radians(right)))
                           for (west, left), (east, right) in zip(outline, outline[1:])) * (x1 - x0) >= 0
        pole = POLE if is_north else -POLE
        return [*outline, (x1, pole), (x0, pole), (x0, y0)]
    # -180 and 180 at one latitude are one place on the globe. An outline that collapses to a meridian goes around the globe.
    is_meridian = max(outline)[0] - min(outline)[0] < _NARROW < HALF_TURN < max(ring)[0] - min(ring)[0]
    return ring if is_meridian else outline


def rectangle(west: float, south: float, east: float, north: float) -> Ring:
    """Return the outline between two meridians and two parallels."""
    return [(west, south), (east, south), (east, north), (west, north), (west, south)]


def circle_rings(latitude: float, longitude: float, metres: float, vertices: int, step: float) -> list[Ring]:
    """Return the rings that enclose a circle on the plane, as for class Area: see circle(). step: see densify()."""
    if metres >= pi * MEAN_RADIUS_M:
        return [rectangle(-HALF_TURN, -POLE, HALF_TURN, POLE)]
    outline = unrolled_outline(densify(circle(latitude, longitude, metres, vertices), step), latitude >= 0)
    is_centre_in = any(is_enclosed(edges_of(outline), (longitude + turn, latitude)) for turn in (-TURN, 0.0, TURN))
    if metres <= pi / 2 * MEAN_RADIUS_M or is_centre_in:
        return [outline]
    middle = (max(outline)[0] + min(outline)[0]) / 2  # both poles are in the circle: it is the globe without its outline
    return [rectangle(middle - HALF_TURN, -POLE, middle + HALF_TURN, POLE), outline]


# A grid of 122 cells over the globe, and the cells that a geometry touches
#
# The reference engine decides about outlines over the antimeridian on the plane of degrees, where they jump from one side to the
# other, and then takes only geometries that share a cell with them: recorded answers contain these extra documents. The cells are
# the coarsest level of the H3 grid: twelve around the corners of an icosahedron, the others around points that divide its faces.
# A position belongs to the cell with the nearest centre; near borders this differs from H3 by some kilometres.

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
    touched = set[int]()
    for line in lines:
        for longitude, latitude in (*line[::_SAMPLING_STEP], line[-1]):
            x0, y0, z0 = direction((latitude, longitude))
            cosines = [x * x0 + y * y0 + z * z0 for x, y, z in cell_centres()]
            touched.add(cosines.index(max(cosines)))
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
