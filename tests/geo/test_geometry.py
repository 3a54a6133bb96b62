"""What must hold of areas on the plane:

1. An area contains the positions inside it and on its outline; touching counts.
2. A line intersects an area when one of its positions is inside or an edge crosses; a hole is no part of a polygon.
3. Orientations have the exact sign where rounding could change it.
4. The grid changes no answer: it is that of comparing every edge with every other.
5. A small bounding box decides alone where all its cells agree.
"""
from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.geo.geometry import Area, Shape, closed, do_intersect, edges_of, is_enclosed, orientation

SQUARE = closed([(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0)])
CORNER = closed([(0.0, 0.0), (4.0, 0.0), (4.0, 1.0), (1.0, 1.0), (1.0, 4.0), (0.0, 4.0)])  # an L


def ring(x0: float, y0: float, x1: float, y1: float) -> list[tuple[float, float]]:
    return closed([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])


@pytest.mark.parametrize(
    ("position", "square", "corner"),
    [
        ((2.0, 2.0), True, False), ((0.5, 3.0), True, True), ((3.0, 0.5), True, True), ((4.0, 4.0), True, False),
        ((0.0, 0.0), True, True), ((1.0, 2.0), True, True), ((2.0, 1.0), True, True), ((4.0, 2.0), True, False),
        ((5.0, 2.0), False, False), ((-1e-300, 0.0), False, False), ((2.0, 4.000000001), False, False),
        ((-3.0, 1.0), False, False), ((-3.0, 4.0), False, False),
    ],
)
def test_an_area_contains_what_is_inside_or_on_its_outline(position, square, corner) -> None:
    assert Area(SQUARE).contains(position) == square == Area(SQUARE[::-1]).contains(position)
    assert Area(CORNER).contains(position) == corner == Area(CORNER[::-1]).contains(position)


@pytest.mark.parametrize(
    ("shape", "intersects"),
    [
        (Shape(), False),
        (Shape([(9.0, 9.0), (1.0, 4.0)]), True),
        (Shape([(2.0, 2.0)]), False),
        (Shape(lines=[[(2.0, 2.0), (3.0, 3.0)]]), False),
        (Shape(lines=[[(-1.0, 5.0), (5.0, -0.5)]]), True),
        (Shape(lines=[[(2.0, 0.5), (2.5, 0.5)]]), True),
        (Shape(lines=[[(0.5, 0.5)]]), True),
        (Shape(lines=[[(4.0, 1.0), (9.0, 9.0)]]), True),
        (Shape(polygons=[[ring(1.5, 1.5, 3.0, 3.0)]]), False),
        (Shape(polygons=[[ring(1.0, 1.0, 3.0, 3.0)]]), True),  # a corner in a corner
        (Shape(polygons=[[ring(0.1, 0.1, 0.2, 0.2)]]), True),  # within the area
        (Shape(polygons=[[ring(-9.0, -9.0, 9.0, 9.0)]]), True),  # around it
        (Shape(polygons=[[ring(-9.0, -9.0, 9.0, 9.0), ring(-1.0, -1.0, 5.0, 5.0)]]), False),  # it is in the hole
        (Shape(polygons=[[ring(-9.0, -9.0, 9.0, 9.0), ring(-1.0, -1.0, 4.0, 5.0)]]), True),  # and touches its edge
        (Shape(polygons=[[ring(0.1, 0.1, 0.9, 0.9), ring(0.2, 0.2, 0.8, 0.8)]]), True),  # the hole is in it
        (Shape(polygons=[[ring(5.0, 5.0, 6.0, 6.0)], [ring(0.1, 0.1, 0.2, 0.2)]]), True),
    ],
)
def test_an_area_intersects_what_has_a_position_in_common(shape: Shape, intersects: bool) -> None:
    assert Area(CORNER).intersects(shape) == intersects


COORDINATE = st.integers(-4, 4).map(float) | st.floats(-4, 4)
POSITION = st.tuples(COORDINATE, COORDINATE)
RING = st.lists(POSITION, min_size=3, max_size=8).map(closed)


def exact_orientation(left, right, position) -> int:
    (x0, y0), (x1, y1), (x, y) = (tuple(map(Fraction, each)) for each in (left, right, position))
    value = (x0 - x) * (y1 - y) - (y0 - y) * (x1 - x)
    return (value > 0) - (value < 0)


@given(POSITION, POSITION, POSITION, st.floats(0, 1))
def test_orientations_are_exact(left, right, position, share) -> None:
    near = (left[0] + share * (right[0] - left[0]), left[1] + share * (right[1] - left[1]))
    for each in (position, near, left, right):
        sign = orientation(left, right, each)
        assert (sign > 0) - (sign < 0) == exact_orientation(left, right, each)


def cross_plainly(edge, other) -> bool:
    """By the signs of all four triangles, and for edges on one line by their ends."""
    signs = [exact_orientation(*edge, end) for end in other], [exact_orientation(*other, end) for end in edge]
    if any(signs[0]) or any(signs[1]):
        return all(one * two <= 0 for one, two in signs)
    ranges = [[sorted(end[at] for end in ends) for ends in (edge, other)] for at in (0, 1)]
    return all(max(one[0], two[0]) <= min(one[1], two[1]) for one, two in ranges)


@given(st.tuples(POSITION, POSITION), st.tuples(POSITION, POSITION))
def test_edges_cross_as_their_signs_say(edge, other) -> None:
    assert do_intersect(edge, other) == cross_plainly(edge, other) == do_intersect(other, edge)


@given(RING, POSITION, st.lists(POSITION, min_size=1, max_size=6))
def test_the_grid_changes_nothing(outline, position, line) -> None:
    area = Area(outline)
    edges = list(edges_of(outline))
    assert area.contains(position) == is_enclosed(edges, position)
    plainly = any(is_enclosed(edges, each) for each in line) or any(
        cross_plainly(edge, own) for edge in edges_of(line) for own in edges)
    shape = Shape(lines=[line])
    assert area.intersects(shape) == plainly
    assert area.intersects_bounds(shape.bounds()) in (None, plainly)


def test_small_bounding_boxes_decide_about_what_is_in_them() -> None:
    area = Area(CORNER)
    assert area.intersects_bounds((0.5, 0.5, 0.6, 0.6)) is True
    assert area.intersects_bounds((3.0, 3.0, 3.1, 3.1)) is False
    assert area.intersects_bounds((0.9, 0.9, 1.1, 1.1)) is None
    assert area.intersects_bounds((0.1, 0.1, 0.9, 0.9)) is None  # of many cells
    assert area.intersects_bounds((-1.0, 0.1, 0.1, 0.2)) is None
