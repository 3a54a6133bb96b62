"""Geometries on the plane of degrees: points, lines and polygons as lists of x (longitude) and y (latitude).

Knows how outlines follow great circles (relevance.md 8.5), the box around a geometry and the form in which an index
keeps it; refuses to know GeoJSON and what meets what.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import asin, atan2, ceil, cos, degrees, pi, radians, sin, sqrt

from svcd.engine.reader import Sides

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
