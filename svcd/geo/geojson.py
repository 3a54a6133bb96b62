"""Read the GeoJSON of a document (RFC 7946): return its geometry or raise an error.

`bbox`, `properties` and `id` are checked, and otherwise ignored. Messages and the order of checks follow the interface. Source:
docs/filters-and-facets.md#geometries.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, unexpected
from svcd.geo.geometry import DOCUMENT_STEP_M, Position, Shape, closed

Value = Any
_CODE = "invalid_document_geojson_field"


class _Malformed(ValueError):
    """Invalid GeoJSON; str() is the message after `Malformed geojson: `."""


def read_geojson(value: Value) -> Shape | None:
    """Return the geometry of `_geojson`, densified along great circles; None for null or a geometry without positions.

    Raises invalid_document_geojson_field.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        column = len(dumps(value).encode())
        _refuse(f"Malformed geojson: invalid type: {unexpected(value)}, expected a map at line 1 column {column}")
    try:
        shape = _united(_shapes(value))
    except _Malformed as error:
        _refuse(f"Malformed geojson: {error}")
    return shape.densified(DOCUMENT_STEP_M) if any(True for _ in shape.positions()) else None


def _refuse(message: str) -> NoReturn:
    raise ApiError(_CODE, message)


def _shapes(document: dict[str, Value]) -> Iterator[Shape]:
    """Yield the geometries of a GeoJSON document."""
    kind = document.get("type")
    if not isinstance(kind, str):
        _fail("Encountered an unknown 'geometry' object type: `type`")
    if kind == "Feature":
        shape = _feature(document)
        if shape is None:
            _refuse("Attempted to a convert a feature without a geometry into a geo_types::Geometry: "
                    f"`{dumps({'type': kind, 'geometry': None, 'properties': None} | document)}`")
        yield shape
    elif kind == "FeatureCollection":
        _check_box(document)
        for feature in _list(_member(document, "features")):
            if _object(feature).get("type") != "Feature":
                _fail(f"Expected a Feature mapping, but got a `{_text(_member(feature, 'type'))}`")
            shape = _feature(feature)
            if shape is not None:
                yield shape
    elif kind in _GEOMETRIES:
        yield _geometry(document)
    else:
        _fail("Expected a Feature, FeatureCollection, or Geometry, but got an empty type")


def _feature(feature: Mapping[str, Value]) -> Shape | None:
    geometry = _member(feature, "geometry")
    if geometry is not None and not isinstance(geometry, dict):
        _fail(f"Encountered neither object type nor null type for 'geometry' field on 'feature' object: `{dumps(geometry)}`")
    shape = None if geometry is None else _geometry(geometry)
    properties, name = feature.get("properties"), feature.get("id", "")
    if properties is not None and not isinstance(properties, dict):
        _fail(f"Encountered neither object type nor null type for 'properties' object: `{dumps(properties)}`")
    if isinstance(name, bool) or not isinstance(name, (str, int, float)):
        _fail(f"Encountered neither number type nor string type for 'id' field on 'feature' object: `{dumps(name)}`")
    _check_box(feature)
    return shape


def _geometry(geometry: Mapping[str, Value]) -> Shape:
    kind = _text(_member(geometry, "type"))
    if kind not in _GEOMETRIES:
        _fail(f"Encountered an unknown 'geometry' object type: `{kind}`")
    shape = _GEOMETRIES[kind](geometry)
    _check_box(geometry)
    return shape


def _check_box(holder: Mapping[str, Value]) -> None:
    if "bbox" not in holder:
        return
    if not isinstance(holder["bbox"], list):
        _fail(f"Encountered non-array value for a 'bbox' object: `{dumps(holder['bbox'])}`")
    for number in holder["bbox"]:
        if not _is_number(number):
            _fail(f"Encountered non-numeric value within 'bbox' array: `{dumps(number)}`")


def _united(shapes: Iterable[Shape]) -> Shape:
    union = Shape()
    for shape in shapes:
        union.points.extend(shape.points)
        union.lines.extend(shape.lines)
        union.polygons.extend(shape.polygons)
    return union


# Coordinates

def _position(value: Value) -> Position:
    """Return longitude and latitude; ignore further numbers (a height)."""
    numbers = _array(value)
    if len(numbers) < 2:
        _fail(f"A position must contain two or more elements, but got `{len(numbers)}`")
    for number in numbers:
        if not _is_number(number):
            _fail("Expected a floating-point value, but got None")
    return float(numbers[0]), float(numbers[1])


def _positions(value: Value) -> list[Position]:
    return [_position(each) for each in _array(value)]


def _rings(value: Value) -> list[list[Position]]:
    """Return the rings of a polygon, closed if necessary; skip rings without positions."""
    return [ring for ring in map(closed, map(_positions, _array(value))) if ring]


def _coordinates(geometry: Mapping[str, Value]) -> Value:
    return _member(geometry, "coordinates")


_GEOMETRIES: Mapping[str, Callable[[Mapping[str, Value]], Shape]] = {
    "Point": lambda geometry: Shape(points=[_position(_coordinates(geometry))]),
    "MultiPoint": lambda geometry: Shape(points=_positions(_coordinates(geometry))),
    "LineString": lambda geometry: Shape(lines=[line for line in [_positions(_coordinates(geometry))] if line]),
    "MultiLineString": lambda geometry: Shape(lines=[line for line in map(_positions, _array(_coordinates(geometry))) if line]),
    "Polygon": lambda geometry: Shape(polygons=[rings for rings in [_rings(_coordinates(geometry))] if rings]),
    "MultiPolygon": lambda geometry: Shape(polygons=[rings for rings in map(_rings, _array(_coordinates(geometry))) if rings]),
    "GeometryCollection": lambda geometry: _united(_geometry(_object(each)) for each in _list(_member(geometry, "geometries"))),
}


# JSON values

def _fail(message: str) -> NoReturn:
    raise _Malformed(message)


def _member(holder: Mapping[str, Value], name: str) -> Value:
    if name not in holder:
        _fail(f"Expected a GeoJSON property for `{name}`, but got None")
    return holder[name]


def _object(value: Value) -> dict[str, Value]:
    if not isinstance(value, dict):
        _fail(f"Expected an owned Object, but got `{dumps(value)}`")
    return value


def _text(value: Value) -> str:
    if not isinstance(value, str):
        _fail(f"Expected a String value, but got a `{dumps(value)}`")
    return value


def _array(value: Value) -> list[Value]:
    """Return the elements of coordinates, or of a part of them."""
    if not isinstance(value, list):
        _fail("Expected an Array value, but got `None`")
    return value


def _list(value: Value) -> list[Value]:
    if not isinstance(value, list):
        kinds = {dict: "Object", str: "String", bool: "Bool", type(None): "Null"}
        _fail(f"Expected an Array value, but got `{kinds.get(type(value), 'Number')}`")
    return value


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
