"""The coordinates in a document's `_geo` field, and what may be wrong with them.

Knows the field's form and the words for each fault; refuses to know indexes and distances.
"""
from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from svcd.errors import ApiError
from svcd.jsontext import dumps

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)


def validate_geo(document_id: str, document: Mapping[str, Any]) -> tuple[float, float] | None:
    """Latitude and longitude of a document in degrees, None when it has none. Raises invalid_document_geo_field."""
    geo = document.get("_geo")
    if geo is None:
        return None
    if not isinstance(geo, dict):
        expected = "Was expecting an object with the `_geo.lat` and `_geo.lng` fields"
        _fail(f"The `_geo` field in the document with the id: `{dumps(document_id)}` is not an object. "
              f"{expected} but instead got `{dumps(geo)}`.")
    _check_members(document_id, geo)
    latitude, longitude = degrees(geo["lat"]), degrees(geo["lng"])
    if latitude is None or longitude is None:
        _fail_values(document_id, geo, latitude, longitude)
    return latitude, longitude


def _check_members(document_id: str, geo: Mapping[str, Any]) -> None:
    where = f"in the document with the id: `{dumps(document_id)}`"
    if "lat" not in geo and "lng" not in geo:
        _fail(f"Could not find latitude nor longitude {where}. Was expecting `_geo.lat` and `_geo.lng` fields.")
    for name, meaning in (("lat", "latitude"), ("lng", "longitude")):
        if name not in geo:
            _fail(f"Could not find {meaning} {where}. Was expecting a `_geo.{name}` field.")
    others = _others(geo)
    if others:
        _fail(f"The `_geo` field {where} contains the following unexpected fields: `{dumps(others)}`.")


def _others(geo: Mapping[str, Any]) -> dict[str, Any]:
    """The members beside the coordinates. The last of all takes the place of one that is taken out, as in the
    reference engine."""
    names = list(geo)
    for name in ("lat", "lng"):
        names[names.index(name)] = names[-1]
        names.pop()
    return {name: geo[name] for name in names}


def degrees(value: Any) -> float | None:
    """The number that a JSON value stands for, a text that spells one included; None for any other."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _fail_values(document_id: str, geo: Mapping[str, Any], latitude: float | None, longitude: float | None) -> NoReturn:
    where = f"in the document with the id: `{dumps(document_id)}`"
    lat, lng = dumps(geo["lat"]), dumps(geo["lng"])
    if latitude is None and longitude is None:
        expected = f"Was expecting finite numbers but instead got `{lat}` and `{lng}`."
        _fail(f"Could not parse latitude nor longitude {where}. {expected}")
    meaning, value = ("latitude", lat) if latitude is None else ("longitude", lng)
    _fail(f"Could not parse {meaning} {where}. Was expecting a finite number but instead got `{value}`.")


def _fail(message: str) -> NoReturn:
    raise ApiError("invalid_document_geo_field", message)
