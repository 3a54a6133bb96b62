"""What must hold of GeoJSON in documents:

1. Every form of RFC 7946 gives its points, lines and polygons; rings are closed, heights left out.
2. Lines and outlines follow great circles, with a position at least every ten kilometres.
3. What is wrong is said with the code of the field and the message of the interface.
4. A circle is a ring of as many vertices as asked, all at its radius.
5. Stored bytes give back the geometry that was packed.
"""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.base.errors import ApiError
from svcd.geo.geojson import read_geojson
from svcd.geo.geometry import Shape, circle, densify, unpacked
from svcd.geo.sphere import distance

POINT = {"type": "Point", "coordinates": [1, 2, 300]}
LINE = [[0, 0], [0.01, 0]]
RING = [[0, 0], [0.01, 0], [0.01, 0.01]]
CLOSED = [(0.0, 0.0), (0.01, 0.0), (0.01, 0.01), (0.0, 0.0)]
FEATURE = {"type": "Feature", "geometry": POINT, "properties": None}


def geometry(kind: str, coordinates: Any) -> dict[str, Any]:
    return {"type": kind, "coordinates": coordinates}


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (None, None),
        (POINT, Shape([(1.0, 2.0)])),
        (geometry("MultiPoint", [[1, 2], [3, 4]]), Shape([(1.0, 2.0), (3.0, 4.0)])),
        (geometry("LineString", LINE), Shape([], [[(0.0, 0.0), (0.01, 0.0)]])),
        (geometry("MultiLineString", [LINE, [[5, 5]]]), Shape([], [[(0.0, 0.0), (0.01, 0.0)], [(5.0, 5.0)]])),
        (geometry("Polygon", [RING, RING]), Shape([], [], [[CLOSED, CLOSED]])),
        (geometry("MultiPolygon", [[RING], [RING]]), Shape([], [], [[CLOSED], [CLOSED]])),
        ({"type": "GeometryCollection", "geometries": [POINT, geometry("LineString", LINE)]},
         Shape([(1.0, 2.0)], [[(0.0, 0.0), (0.01, 0.0)]])),
        (FEATURE, Shape([(1.0, 2.0)])),
        ({"type": "FeatureCollection", "features": [FEATURE, FEATURE | {"geometry": None}]}, Shape([(1.0, 2.0)])),
        ({"type": "FeatureCollection", "features": []}, None),
        (geometry("Polygon", []), None),
        (POINT | {"bbox": [1, 2], "id": 1, "properties": {}}, Shape([(1.0, 2.0)])),
    ],
)
def test_every_form_gives_its_geometry(value: Any, shape: Shape | None) -> None:
    assert read_geojson(value) == shape


PREFIX = "Malformed geojson: "


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", PREFIX + 'invalid type: string "x", expected a map at line 1 column 3'),
        (True, PREFIX + "invalid type: boolean `true`, expected a map at line 1 column 4"),
        ({}, PREFIX + "Encountered an unknown 'geometry' object type: `type`"),
        ({"type": "Circle"}, PREFIX + "Expected a Feature, FeatureCollection, or Geometry, but got an empty type"),
        ({"type": "Point"}, PREFIX + "Expected a GeoJSON property for `coordinates`, but got None"),
        (geometry("Point", [1]), PREFIX + "A position must contain two or more elements, but got `1`"),
        (geometry("Point", [1, "2"]), PREFIX + "Expected a floating-point value, but got None"),
        (geometry("Point", 1), PREFIX + "Expected an Array value, but got `None`"),
        (geometry("Polygon", [[1, 2]]), PREFIX + "Expected an Array value, but got `None`"),
        ({"type": "Feature"}, PREFIX + "Expected a GeoJSON property for `geometry`, but got None"),
        ({"type": "Feature", "geometry": 1},
         PREFIX + "Encountered neither object type nor null type for 'geometry' field on 'feature' object: `1`"),
        ({"type": "Feature", "geometry": {"type": "Circle"}},
         PREFIX + "Encountered an unknown 'geometry' object type: `Circle`"),
        (FEATURE | {"properties": 1},
         PREFIX + "Encountered neither object type nor null type for 'properties' object: `1`"),
        (FEATURE | {"id": []},
         PREFIX + "Encountered neither number type nor string type for 'id' field on 'feature' object: `[]`"),
        ({"type": "FeatureCollection", "features": {}}, PREFIX + "Expected an Array value, but got `Object`"),
        ({"type": "FeatureCollection", "features": [1]}, PREFIX + "Expected an owned Object, but got `1`"),
        ({"type": "FeatureCollection", "features": [POINT]}, PREFIX + "Expected a Feature mapping, but got a `Point`"),
        ({"type": "GeometryCollection", "geometries": None}, PREFIX + "Expected an Array value, but got `Null`"),
        (POINT | {"bbox": 1}, PREFIX + "Encountered non-array value for a 'bbox' object: `1`"),
        (POINT | {"bbox": ["a"]}, PREFIX + "Encountered non-numeric value within 'bbox' array: `\"a\"`"),
        ({"type": "Feature", "geometry": None},
         "Attempted to a convert a feature without a geometry into a geo_types::Geometry: "
         '`{"type":"Feature","geometry":null,"properties":null}`'),
    ],
)
def test_malformed_geojson_is_rejected(value: Any, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_geojson(value)
    assert (caught.value.code, caught.value.message) == ("invalid_document_geojson_field", message)


POSITION = st.tuples(st.floats(-179, 179), st.floats(-89, 89))


@given(POSITION, POSITION, st.sampled_from([10_000, 1_000_000]))
def test_a_dense_line_follows_the_great_circle(left, right, step) -> None:
    line = densify([left, right], step)
    assert (line[0], line[-1]) == (left, right)
    points = [(latitude, longitude) for longitude, latitude in line]
    parts = [distance(a, b) for a, b in zip(points, points[1:])]
    assert max(parts) <= step + 1
    assert sum(parts) == pytest.approx(distance(points[0], points[-1]), rel=1e-3, abs=len(parts) * 0.02)


@given(POSITION, st.floats(1, 1e7), st.integers(3, 40))
def test_a_circle_is_round(centre, metres, vertices) -> None:
    ring = circle(centre[1], centre[0], metres, vertices)
    assert len(ring) == vertices + 1 and ring[0] == ring[-1]
    for longitude, latitude in ring:
        assert distance((centre[1], centre[0]), (latitude, longitude)) == pytest.approx(metres, rel=1e-4, abs=1)


LINES = st.lists(st.lists(POSITION, min_size=1, max_size=4), max_size=3)


@given(st.lists(POSITION), LINES, st.lists(LINES.filter(bool), max_size=3))
def test_stored_bytes_give_back_the_geometry(points, lines, polygons) -> None:
    shape = Shape(points, lines, polygons)
    assert unpacked(shape.packed()) == shape
