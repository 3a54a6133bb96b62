"""What must hold of the values of a document:

1. Texts are compared in their normal form: trimmed, decomposed by character, in lower case; stored up to 468 bytes.
   One of white space alone is a value, the empty one is none.
2. Elements of arrays count for the array, members of objects under their own names.
3. Null and empty are said of members, never of elements.
4. Values are kept of filterable, sortable and distinct attributes, and of those that are ranked by; of no others.
5. `_geo` may be absent, null, or an object with latitude and longitude, as finite numbers or texts that spell them; every other
   value is rejected with its own message.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.schema.field_values import FieldValues, field_values, kept_fields, normal_form, stored_form, validate_geo
from svcd.schema.index_settings import IndexSettings

WHERE = 'in the document with the id: `"11"`'
NOWHERE = f"Could not find latitude nor longitude {WHERE}. Was expecting `_geo.lat` and `_geo.lng` fields."


@pytest.mark.parametrize(
    ("text", "normal"),
    [(" Été ", "e\u0301te\u0301"), ("ΌΣΟΣ", "ο\u0301σος"), ("ﬁ", "fi"), ("\u3000A\x1f", "a\x1f"), ("\u0323é", "\u0323e\u0301"),
     ("e\u0301\u0323", "e\u0301\u0323")],
)
def test_texts_have_a_normal_form(text: str, normal: str) -> None:
    assert normal_form(text) == normal


def test_long_texts_are_cut_between_characters_where_they_are_stored() -> None:
    assert stored_form("€" * 500) == "€" * 156
    assert normal_form("€" * 500) == "€" * 500


@pytest.mark.parametrize(
    ("document", "values"),
    [
        ({"a": [3, "Z", [1, "z "], True, None, {"b": 2}]},
         {"a": FieldValues({3.0: None, "z": "z ", 1.0: None, "true": "true"}), "a.b": FieldValues({2.0: None})}),
        ({"a": None}, {"a": FieldValues(is_null=True)}),
        ({"a": {"b": None}}, {"a": FieldValues(), "a.b": FieldValues(is_null=True)}),
        ({"a": [{"b": ""}, {"b": "x"}]}, {"a": FieldValues(), "a.b": FieldValues({"x": "x"}, is_empty=True)}),
        ({"a": ["", [], {}, None]}, {"a": FieldValues()}),
        ({"a": []}, {"a": FieldValues(is_empty=True)}),
        ({"a": {}}, {"a": FieldValues(is_empty=True)}),
        ({"a": [" ", "\t", ""]}, {"a": FieldValues({"": "\t"})}),
        ({"a": " "}, {"a": FieldValues({"": " "})}),
        ({"a": [0, 1, -0.0, 0]}, {"a": FieldValues({0.0: None, 1.0: None}, has_both_zeros=True)}),
        ({"a": 0, "b": False}, {"a": FieldValues({0.0: None}), "b": FieldValues({"false": "false"})}),
        ({"_geo": {"lat": "1.5", "lng": 2}}, {"_geo.lat": FieldValues({1.5: None}), "_geo.lng": FieldValues({2.0: None})}),
        ({"_vectors": {"a": 1}, "_geojson": {"a": 1}}, {}),
    ],
)
def test_the_values_of_a_document(document: dict[str, Any], values: dict[str, FieldValues]) -> None:
    assert field_values(document, lambda name: True) == values


def test_only_wanted_attributes_are_looked_at() -> None:
    document = {"a": {"b": 1, "c": 2}, "d": 3}
    assert field_values(document, {"a.c"}.__contains__) == {"a.c": FieldValues({2.0: None})}


def test_of_which_attributes_values_are_kept() -> None:
    is_kept = kept_fields(IndexSettings.of({
        "filterableAttributes": ["f", *({"attributePatterns": [pattern], "features": {
            "facetSearch": is_searched, "filter": {"equality": False, "comparison": False}}}
            for pattern, is_searched in (("p*", True), ("q*", False)))],
        "sortableAttributes": ["s.t"], "distinctAttribute": "d", "rankingRules": ["words", "r:asc"]}))
    kept = [name for name in ("f", "f.g", "fg", "px", "q", "s", "s.t", "s.t.u", "d", "d.e", "r", "r.x", "words") if is_kept(name)]
    assert kept == ["f", "f.g", "px", "s.t", "s.t.u", "d", "r"]


# The check of `_geo`


@pytest.mark.parametrize(
    ("document", "point"),
    [
        ({}, None),
        ({"_geo": None}, None),
        ({"_geo": {"lat": 3, "lng": 0}}, (3.0, 0.0)),
        ({"_geo": {"lng": "-1.5e1", "lat": "4"}}, (4.0, -15.0)),
        ({"_geo": {"lat": 500, "lng": 10**30}}, (500.0, 1e30)),
    ],
)
def test_coordinates_are_numbers_or_texts_that_spell_them(document: dict[str, Any], point: tuple[float, float] | None) -> None:
    assert validate_geo("11", document) == point


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
def test_other_values_of_geo_are_rejected(geo: Any, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate_geo("11", {"id": "11", "_geo": geo})
    assert (caught.value.code, caught.value.message) == ("invalid_document_geo_field", message)
