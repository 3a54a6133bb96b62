"""What must hold of the sphere:

1. Distances are those of the haversine, to the millimetre; the way back is as long.
2. The two squared chords of a distance separate what is surely nearer from what is surely farther.
3. No direction in a box is nearer than its least chord, or farther than its greatest.
4. The antipode of a point is half a turn away.
"""
from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.geo.sphere import antipode, box_around, chord_bounds, direction, distance, greatest_chord, least_chord

POINT = st.tuples(st.floats(-90, 90), st.floats(-180, 180))
NEAR = st.tuples(st.floats(-1e-4, 1e-4), st.floats(-1e-4, 1e-4))


def chord(left: tuple[float, float], right: tuple[float, float]) -> float:
    return math.dist(direction(left), direction(right)) ** 2


@pytest.mark.parametrize(
    ("left", "right", "metres"),
    [
        ((0, 0), (0, 0), 0.0),
        ((0, 0), (0, 90), 10007543.398),
        ((90, 0), (-90, 77), 20015086.796),
        ((0, 179), (0, -179), 222389.853),
        ((45.4777599, 9.1967508), (34.0522, -118.2437), 9714063.083),
    ],
)
def test_distances(left, right, metres) -> None:
    assert distance(left, right) == metres == distance(right, left)


@given(POINT, POINT)
def test_a_distance_is_that_of_the_arc(left, right) -> None:
    arc = 2 * math.asin(min(math.sqrt(chord(left, right)) / 2, 1))
    assert distance(left, right) == pytest.approx(6_371_000 * arc, abs=0.3)


@given(POINT, POINT | NEAR, st.floats(-2, 2))
def test_chords_part_near_from_far(left, right, beside) -> None:
    metres = distance(left, right) + beside
    surely_near, surely_far = chord_bounds(metres)
    assert surely_near < surely_far
    if chord(left, right) <= surely_near:
        assert distance(left, right) <= metres
    if chord(left, right) > surely_far:
        assert distance(left, right) > metres


@given(st.lists(POINT, min_size=1), POINT)
def test_boxes_bound_chords(points, origin) -> None:
    around = box_around(*zip(*map(direction, points)))
    for point in points:
        exact = chord(origin, point)
        assert least_chord(around, direction(origin)) <= exact + 1e-15
        assert greatest_chord(around, direction(origin)) >= exact - 1e-15


@given(POINT)
def test_the_antipode_is_half_a_turn_away(point) -> None:
    assert distance(point, antipode(point)) == pytest.approx(math.pi * 6_371_000, abs=0.3)
    assert -180 <= antipode(point)[1] <= 180
