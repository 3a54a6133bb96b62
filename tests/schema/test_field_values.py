"""What must hold of the values of a document:

1. Texts are compared in their normal form: trimmed, decomposed by character, in lower case; stored up to 468 bytes.
   One of white space alone is a value, the empty one is none.
2. Elements of arrays count for the array, members of objects under their own names.
3. Null and empty are said of members, never of elements.
4. Values are kept of filterable, sortable and distinct attributes, and of those that are ranked by; of no others.
5. Of filterable rules, the first that matches decides; a plain name covers what lies beneath it, a pattern does not.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.schema.attributes import Filterable, FilterableRule
from svcd.schema.field_values import FieldValues, field_values, kept_fields, normal_form, stored_form
from svcd.schema.index_settings import IndexSettings


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


def test_the_first_matching_rule_decides() -> None:
    rules = Filterable([{"attributePatterns": ["a.b"], "features": {"filter": {"equality": False}}}, "a",
                        {"attributePatterns": ["*x"], "features": {"filter": {"comparison": True}}}])
    assert rules.rule("a.b") == FilterableRule(0, False, False, False) and "a.b" not in rules
    assert rules.rule("a.b.c") == FilterableRule(1) and "a.x" in rules
    assert rules.rule("x") == FilterableRule(2, False, True, True)
    assert rules.rule("ab") is None and "ab" not in rules
    assert "a" not in Filterable(["*", "a*"]) and "a" in Filterable([{"attributePatterns": ["*"]}])
    assert rules.names("a") and not rules.names("a.b")
