"""What must hold of the check of `_geo`:

1. It may be absent, null, or an object with latitude and longitude, as finite numbers or texts that spell them.
2. Every other value is rejected with its own message.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.schema.field_values import validate_geo

WHERE = 'in the document with the id: `"11"`'
NOWHERE = f"Could not find latitude nor longitude {WHERE}. Was expecting `_geo.lat` and `_geo.lng` fields."


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({}, None),
        ({"_geo": None}, None),
        ({"_geo": {"lat": 3, "lng": 0}}, (3.0, 0.0)),
        ({"_geo": {"lng": "-1.5e1", "lat": "4"}}, (4.0, -15.0)),
        ({"_geo": {"lat": 500, "lng": 10**30}}, (500.0, 1e30)),
    ],
)
def test_right_coordinates(document: dict[str, Any], place: tuple[float, float] | None) -> None:
    assert validate_geo("11", document) == place


@pytest.mark.parametrize(
    ("geo", "message"),
    [
        ("foobar", f"The `_geo` field {WHERE} is not an object. Was expecting an object with the `_geo.lat` and `_geo.lng` "
                   'fields but instead got `"foobar"`.'),
        ([1, 2], f"The `_geo` field {WHERE} is not an object. Was expecting an object with the `_geo.lat` and `_geo.lng` "
                 "fields but instead got `[1,2]`."),
        ({}, NOWHERE),
        ({"doggos": "are good"}, NOWHERE),
        ({"lat": 12}, f"Could not find longitude {WHERE}. Was expecting a `_geo.lng` field."),
        ({"lat": True}, f"Could not find longitude {WHERE}. Was expecting a `_geo.lng` field."),
        ({"lng": "doggo", "x": 1}, f"Could not find latitude {WHERE}. Was expecting a `_geo.lat` field."),
        ({"lat": False, "lng": True},
         f"Could not parse latitude nor longitude {WHERE}. Was expecting finite numbers but instead got `false` and `true`."),
        ({"lat": "doggo", "lng": "inf"},
         f'Could not parse latitude nor longitude {WHERE}. Was expecting finite numbers but instead got `"doggo"` and `"inf"`.'),
        ({"lat": 67, "lng": None}, f"Could not parse longitude {WHERE}. Was expecting a finite number but instead got `null`."),
        ({"lat": " 1", "lng": 35}, f'Could not parse latitude {WHERE}. Was expecting a finite number but instead got `" 1"`.'),
        ({"lat": 1, "lng": 2, "doggo": "are the best"},
         f'The `_geo` field {WHERE} contains the following unexpected fields: `{{"doggo":"are the best"}}`.'),
        ({"lat": 1, "lng": 2, "x": 3, "y": 4}, f'The `_geo` field {WHERE} contains the following unexpected fields: `{{"y":4,"x":3}}`.'),
        ({"x": 1, "lat": 1, "y": 2, "lng": 2}, f'The `_geo` field {WHERE} contains the following unexpected fields: `{{"x":1,"y":2}}`.'),
        ({"lat": None, "lng": 2, "x": 1}, f'The `_geo` field {WHERE} contains the following unexpected fields: `{{"x":1}}`.'),
    ],
)
def test_wrong_coordinates(geo: Any, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate_geo("11", {"id": "11", "_geo": geo})
    assert (caught.value.code, caught.value.message) == ("invalid_document_geo_field", message)
