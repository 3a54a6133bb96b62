"""What must hold of the documents that meet geo conditions:

1. A circle takes points at most so far away; a box those between its parallels and meridians, sides included.
2. A box whose right side lies west of its left side extends across the antimeridian.
3. Points count while `_geo` is filterable by its name, geometries while `_geojson` is. A polygon asks for geometries
   alone.
4. A geometry qualifies when it intersects the region, whatever the sizes; a circle is a polygon of so many vertices.
5. Over the antimeridian and around the poles, and for regions of any size, what is found is what an oracle without a plane finds:
   a box by its parallels and meridians, a circle by distances, a triangle by the sides of its planes in space.
"""
from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.filters.geo_conditions import docids_in_box, docids_in_circle, docids_in_polygon
from svcd.geo.sphere import direction, distance
from tests.support.dict_reader import DictReader

BOTH = ["_geo", "_geojson"]


def points(*places: tuple[float, float], filterable: Any = ("_geo",)) -> DictReader:
    """Documents at points, latitude first."""
    return DictReader([{"id": number, "_geo": {"lat": latitude, "lng": longitude}}
                       for number, (latitude, longitude) in enumerate(places)],
                      {"filterableAttributes": list(filterable), "sortableAttributes": ["_geo"]})


def shapes(*geometries: dict[str, Any] | None, filterable: Any = ("_geojson",)) -> DictReader:
    return DictReader([{"id": number, "_geojson": geometry} for number, geometry in enumerate(geometries)],
                      {"filterableAttributes": list(filterable)})


def geometry(kind: str, coordinates: Any) -> dict[str, Any]:
    return {"type": kind, "coordinates": coordinates}


def rectangle(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    return geometry("Polygon", [[[west, south], [east, south], [east, north], [west, north], [west, south]]])


def degrees(most: int) -> st.SearchStrategy[float]:
    """Without -0.0, which is a value of its own below 0 (docs/filters-and-facets.md#values)."""
    return (st.integers(-most, most).map(float) | st.floats(-most, most)).map(lambda number: number + 0.0)


POINT = st.tuples(degrees(90), degrees(180))


@given(st.lists(POINT, max_size=8), POINT, st.floats(-10, 2.1e7))
def test_a_circle_takes_the_points_within_its_radius(places, centre, metres) -> None:
    assert list(docids_in_circle(points(*places), centre, metres)) == [
        number for number, place in enumerate(places) if distance(centre, place) <= metres]


@given(st.lists(POINT, max_size=8), POINT, POINT)
def test_a_box_takes_the_points_between_its_sides(places, one, other) -> None:
    top, bottom = max(one[0], other[0]), min(one[0], other[0])
    left, right = one[1], other[1]

    def is_between(longitude: float) -> bool:
        return left <= longitude <= right if left <= right else longitude >= left or longitude <= right

    assert list(docids_in_box(points(*places), (top, right), (bottom, left))) == [
        number for number, (latitude, longitude) in enumerate(places)
        if bottom <= latitude <= top and is_between(longitude)]


def test_points_beyond_half_a_turn_are_in_no_box() -> None:
    assert list(docids_in_box(points((0, 190), (0, 170)), (1.0, -170.0), (-1.0, 160.0))) == [1]


@pytest.mark.parametrize("filterable", [[], ["*"], [{"attributePatterns": ["_geo"]}], ["_geojson"]])
def test_points_count_while_they_are_filterable_by_name(filterable) -> None:
    reader = points((0, 0), filterable=filterable)
    assert not docids_in_circle(reader, (0.0, 0.0), 1e6)
    assert not docids_in_box(reader, (1.0, 1.0), (-1.0, -1.0))


def test_a_polygon_asks_for_geometries_alone() -> None:
    assert not docids_in_polygon(points((0.5, 0.5), filterable=BOTH), [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0)])


GEOMETRIES = (
    geometry("Point", [1, 1]),
    geometry("Point", [3, 1]),
    geometry("LineString", [[-1, 1], [3, 1]]),
    rectangle(-5, -5, 5, 5),
    rectangle(0.5, 0.5, 0.6, 0.6),
    geometry("Polygon", [rectangle(-5, -5, 5, 5)["coordinates"][0], rectangle(-3, -3, 4, 4)["coordinates"][0]]),
    None,
)


def test_geometries_that_intersect_the_region_are_found() -> None:
    reader = shapes(*GEOMETRIES)
    square = [(0.0, 0.0), (0.0, 2.0), (2.0, 2.0), (2.0, 0.0)]
    assert list(docids_in_polygon(reader, square)) == [0, 2, 3, 4]
    assert list(docids_in_polygon(reader, square[::-1])) == [0, 2, 3, 4]
    assert list(docids_in_box(reader, (2.0, 2.0), (0.0, 0.0))) == [0, 2, 3, 4]
    assert list(docids_in_circle(reader, (1.0, 1.0), 10_000)) == [0, 2, 3]
    assert list(docids_in_circle(reader, (1.0, 1.0), 300_000)) == [0, 1, 2, 3, 4]
    assert not docids_in_polygon(shapes(*GEOMETRIES, filterable=["_geo"]), square)


def test_a_circle_of_few_vertices_is_smaller() -> None:
    reader = shapes(geometry("Point", [0, -0.8]), geometry("Point", [0, 0.8]))
    assert list(docids_in_circle(reader, (0.0, 0.0), 100_000)) == [0, 1]
    assert list(docids_in_circle(reader, (0.0, 0.0), 100_000, 3)) == [1]  # a corner north, a side south


def test_points_and_geometries_are_found_together() -> None:
    reader = DictReader([{"id": 0, "_geo": {"lat": 0, "lng": 0}}, {"id": 1, "_geojson": geometry("Point", [0, 0])}],
                        {"filterableAttributes": BOTH})
    assert list(docids_in_circle(reader, (0.0, 0.0), 1000)) == [0, 1]
    assert list(docids_in_box(reader, (1.0, 1.0), (-1.0, -1.0))) == [0, 1]


# Large regions, the antimeridian, the poles

ALASKA, CHUKOTKA, NORWAY = rectangle(-165, 62, -150, 68), rectangle(170, 64, 179, 69), rectangle(10, 60, 30, 71)
FIJI = geometry("Polygon", [[[179, -17], [-179, -17], [-179, -16], [179, -16], [179, -17]]])
ARCTIC = geometry("Polygon", [[[longitude, 75] for longitude in (0, 90, 180, -90, 0)]])
# As data sets have it: along the coast, and back along the pole, which has all longitudes.
ANTARCTICA = geometry("Polygon", [[*([x, -70] for x in range(-180, 181, 30)), [180, -90], [-180, -90], [-180, -70]]])
RING_LAND = geometry("Polygon", [[[longitude, 60] for longitude in (0, 90, 180, -90, 0)], ARCTIC["coordinates"][0]])
WORLD = (90.0, 180.0), (-90.0, -180.0)


def test_boxes_over_the_antimeridian() -> None:
    assert list(docids_in_box(shapes(ALASKA, NORWAY, CHUKOTKA), (70.0, -148.0), (63.0, 152.0))) == [0, 2]
    reader = shapes(FIJI)  # here the outline of the document crosses it, not that of the region
    assert list(docids_in_box(reader, (-15.0, 179.9), (-18.0, 178.0))) == [0]
    assert list(docids_in_box(reader, (-15.0, -178.0), (-18.0, -179.9))) == [0]
    assert not docids_in_box(reader, (-15.0, 30.0), (-18.0, 10.0))


@pytest.mark.parametrize("region", [
    lambda reader: docids_in_box(reader, *WORLD),
    lambda reader: docids_in_circle(reader, (48.0, 2.0), 2.1e7),
    lambda reader: docids_in_polygon(reader, [(-90.0, -180.0), (-90.0, 180.0), (90.0, 180.0), (90.0, -180.0)]),
], ids=["box", "circle", "polygon"])
def test_a_region_around_the_world_holds_everything(region) -> None:
    everything = (*GEOMETRIES[:-1], ALASKA, CHUKOTKA, NORWAY, FIJI, ARCTIC, ANTARCTICA, RING_LAND, geometry("Point", [180, 0]),
                  geometry("Point", [-180, 90]), geometry("LineString", [[170, 10], [-170, 10]]))
    assert list(region(shapes(*everything))) == list(range(len(everything)))


def test_a_point_at_the_antimeridian_lies_on_both_sides() -> None:
    reader = shapes(geometry("Point", [180, 0]), geometry("Point", [-180, 0]), geometry("Point", [0, 0]))
    for left, right in ((170.0, 180.0), (-180.0, -170.0), (170.0, -170.0), (180.0, 180.0), (-180.0, -180.0)):
        assert list(docids_in_box(reader, (1.0, right), (-1.0, left))) == [0, 1], (left, right)
    assert list(docids_in_circle(reader, (0.0, 179.9), 20_000)) == list(docids_in_circle(reader, (0.0, -179.9), 20_000)) == [0, 1]
    assert list(docids_in_polygon(reader, [(-1.0, 179.0), (1.0, 179.0), (1.0, -179.0), (-1.0, -179.0)])) == [0, 1]


def test_a_pole_has_all_longitudes() -> None:
    reader = shapes(geometry("Point", [0, 90]), geometry("Point", [77, 90]), geometry("Point", [0, -90]))
    assert list(docids_in_box(reader, (90.0, 110.0), (80.0, 100.0))) == [0, 1]
    assert list(docids_in_circle(reader, (89.0, 180.0), 200_000)) == [0, 1]


def test_documents_around_a_pole() -> None:
    reader = shapes(ARCTIC, ANTARCTICA, RING_LAND)
    for longitude in (-180.0, -100.0, 0.0, 45.0):
        assert list(docids_in_circle(reader, (89.9, longitude), 1000)) == [0]
        assert list(docids_in_circle(reader, (-89.9, longitude), 1000)) == [1]
        assert list(docids_in_circle(reader, (70.0, longitude + 90.0 if longitude < 0 else longitude), 1000)) in ([2], [0, 2])
        assert not docids_in_circle(reader, (0.0, longitude), 1000)


def test_a_document_between_the_same_meridian_goes_around_the_world() -> None:
    reader = shapes(rectangle(-180, -85, 180, 85))
    assert list(docids_in_circle(reader, (40.0, 20.0), 1000)) == [0]
    assert not docids_in_circle(reader, (89.0, 20.0), 1000)


def is_in_triangle(corners: list[tuple[float, float]], place: tuple[float, float]) -> float:
    """Above 0 if a place lies inside the spherical triangle, below 0 outside; near 0 at its sides. Latitude first."""
    def side(one: tuple[float, ...], other: tuple[float, ...], towards: tuple[float, ...]) -> float:
        cross = (one[1] * other[2] - one[2] * other[1], one[2] * other[0] - one[0] * other[2], one[0] * other[1] - one[1] * other[0])
        return sum(a * b for a, b in zip(cross, towards)) / math.hypot(*cross)

    a, b, c = map(direction, corners)
    turn = math.copysign(1, side(a, b, c))
    at = direction(place)
    return min(turn * side(*ends, at) for ends in ((a, b), (b, c), (c, a)))


def is_plain(corners: list[tuple[float, float]]) -> bool:
    """Has a triangle an inside without doubt? Not if it is thin, or has corners far apart."""
    a, b, c = map(direction, corners)
    return all(0.1 < math.dist(*ends) < 1.9 for ends in ((a, b), (b, c), (c, a))) and is_in_triangle(
        corners, antipodeless_middle(corners)) > 0.05


def antipodeless_middle(corners: list[tuple[float, float]]) -> tuple[float, float]:
    x, y, z = (sum(numbers) for numbers in zip(*map(direction, corners)))
    return math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))


PLACES = st.lists(POINT, min_size=1, max_size=8)
TRIANGLE = st.lists(POINT, min_size=3, max_size=3).filter(is_plain)
_DOUBT = 0.002  # sines: 12 km, more than what an outline of straight steps is off


@settings(max_examples=8, deadline=None, derandomize=True)
@given(PLACES, TRIANGLE)
def test_a_polygon_finds_what_lies_inside_on_the_globe(places, corners) -> None:
    found = docids_in_polygon(shapes(*(geometry("Point", [y, x]) for x, y in places)), corners)
    for docid, place in enumerate(places):
        inside = is_in_triangle(corners, place)
        assert abs(inside) < _DOUBT or (inside > 0) == (docid in found), (place, inside)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.lists(TRIANGLE, min_size=1, max_size=4), PLACES)
def test_geometries_are_found_by_what_lies_inside_on_the_globe(triangles, places) -> None:
    reader = shapes(*(geometry("Polygon", [[[y, x] for x, y in corners]]) for corners in triangles))
    for place in places:
        found = docids_in_circle(reader, place, 100)
        for docid, corners in enumerate(triangles):
            inside = is_in_triangle(corners, place)
            assert abs(inside) < _DOUBT or (inside > 0) == (docid in found), (place, corners, inside)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(PLACES, POINT, st.floats(1000, 2.0e7))
def test_a_circle_of_any_size_finds_what_is_near(places, centre, metres) -> None:
    found = docids_in_circle(shapes(*(geometry("Point", [y, x]) for x, y in places)), centre, metres, 1000)
    for docid, place in enumerate(places):
        away = distance(centre, place)
        assert abs(away - metres) < 1000 + metres / 500 or (away < metres) == (docid in found), (place, away)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(PLACES, POINT, POINT)
def test_a_box_finds_points_and_geometries_alike(places, one, other) -> None:
    (top, left), (bottom, right) = (one, other) if one[0] >= other[0] else ((one[0], other[1]), (other[0], one[1]))
    top, bottom = max(one[0], other[0]), min(one[0], other[0])
    found = docids_in_box(shapes(*(geometry("Point", [y, x]) for x, y in places)), (top, right), (bottom, left))
    for docid, (latitude, longitude) in enumerate(places):
        if (right - left) % 360 <= 90:  # as the reference engine: sides along great circles
            continue
        turn = (longitude - left) % 360
        is_between = turn <= (right - left if left <= right else right - left + 360) or abs(latitude) == 90
        assert (docid in found) == (bottom <= latitude <= top and is_between) or turn in (0.0, 360.0) or turn > 359.999999
