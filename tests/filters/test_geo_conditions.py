"""What must hold of the documents that meet geo conditions:

1. A circle takes points at most so far away; a box those between its parallels and meridians, sides included.
2. A box whose right side lies west of its left side extends across the antimeridian.
3. Points count while `_geo` is filterable by its name, geometries while `_geojson` is. A polygon asks for geometries
   alone.
4. A geometry qualifies when it intersects the region, whatever the sizes; a circle is a polygon of so many vertices.
5. Across the antimeridian only geometries that share a cell with the region are found.
6. The grid has 122 cells: no centre is near another, every position is near one.
"""
from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.filters.geo_conditions import docids_in_box, docids_in_circle, docids_in_polygon
from svcd.geo.geometry import Shape, cell_centres, cells_of
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


def test_across_the_antimeridian_cells_limit_what_the_plane_finds() -> None:
    alaska, chukotka, norway = rectangle(-165, 62, -150, 68), rectangle(170, 64, 179, 69), rectangle(10, 60, 30, 71)
    reader = shapes(alaska, norway, chukotka)
    assert list(docids_in_box(reader, (70.0, -148.0), (63.0, 152.0))) == [0, 2]
    # Here the outline of the document crosses the antimeridian, not that of the region.
    islands = geometry("Polygon", [[[179, -17], [-179, -17], [-179, -16], [179, -16], [179, -17]]])
    reader = shapes(islands)
    assert list(docids_in_box(reader, (-15.0, 179.9), (-18.0, 178.0))) == [0]
    assert not docids_in_box(reader, (-15.0, 30.0), (-18.0, 10.0))


def test_the_grid_covers_the_globe_evenly() -> None:
    centres = cell_centres()
    assert len(centres) == 122
    nearest = [min(math.dist(one, other) for other in centres if other != one) for one in centres]
    assert min(nearest) > 0.25 and max(nearest) < 0.40


@given(POINT)
def test_every_position_is_in_the_cell_of_the_nearest_centre(point) -> None:
    (cell,) = cells_of(Shape([(point[1], point[0])]))
    assert math.dist(cell_centres()[cell], direction(point)) < 0.23


def test_a_geometry_touches_the_cells_that_it_encloses() -> None:
    around = Shape(polygons=[[[(-60.0, -60.0), (60.0, -60.0), (60.0, 60.0), (-60.0, 60.0), (-60.0, -60.0)]]])
    assert cells_of(Shape([(0.0, 0.0)])) <= cells_of(around)
    assert not cells_of(Shape([(150.0, 0.0)])) <= cells_of(around)
