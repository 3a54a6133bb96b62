"""Fragments, and the variables of all templates. What must hold:

1. Every string of a JSON value is a template; everything else, and every key, stays.
2. An error has the path of the string; callers get it in words.
3. Rendering changes neither the fragment nor the variables.
4. Documents show neither vectors nor places; queries have no other variables than `q` and `media`.
"""
from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given

from svcd.templates import JsonTemplate, TemplateError, document_variables, fragment_variables, search_variables
from tests.templates.test_templates import json_values

DOG = {"name": "kefir", "age": 3}


def test_strings_are_rendered() -> None:
    value = {"{{ doc.name }}": ["{{ doc.name }} is {{ doc.age }}", 1, None, True, {"x": "", "y": ["{% if doc.b %}b{% endif %}"]}]}
    fragment = JsonTemplate.parse(value)
    assert fragment.value == value
    assert fragment.render(fragment_variables(DOG)) == {"{{ doc.name }}": ["kefir is 3", 1, None, True, {"x": "", "y": [""]}]}
    assert JsonTemplate.parse("{{ doc.name }}").render(fragment_variables(DOG)) == "kefir"


@given(json_values)
def test_values_without_templates_stay(value: Any) -> None:
    try:
        fragment = JsonTemplate.parse(value)
    except TemplateError:  # made of `{{`
        return
    before = copy.deepcopy(value)
    if "{{" not in str(value) and "{%" not in str(value):
        assert fragment.render({}) == value == before
    assert fragment.value is value


def test_errors_have_their_path() -> None:
    with pytest.raises(TemplateError) as parsing:
        JsonTemplate.parse({"a": [1, {"b": "{{ doc.name"}]})
    error = parsing.value
    assert error.path == ("a", 1, "b")
    assert error.while_parsing(".indexingFragments.f").startswith(
        "in `.indexingFragments.f.a[1].b`, error while parsing template: liquid:  --> 1:4\n")
    with pytest.raises(TemplateError) as rendering:
        JsonTemplate.parse(["", "{{ doc.breed }}"]).render(fragment_variables(DOG))
    unknown = "liquid: Unknown index\n  with:\n    variable=doc\n    requested index=breed\n    available indexes=name, age\n"
    assert rendering.value.while_rendering() == f"in `[1]`, error while rendering template: {unknown}"
    with pytest.raises(TemplateError) as alone:
        JsonTemplate.parse("{{ doc.breed }}").render(fragment_variables(DOG))
    assert alone.value.while_rendering("root") == f"error while rendering template: {unknown}"


def test_a_deep_value_is_an_error() -> None:
    value: Any = "x"
    for _ in range(100_000):
        value = [value]
    with pytest.raises(TemplateError, match="nested too deeply"):
        JsonTemplate.parse(value)


def test_variables() -> None:
    document = {**DOG, "_vectors": {}, "_geo": {}, "_geojson": {}}
    assert document_variables(document, {"name"}.__contains__) == {
        "doc": DOG, "fields": [{"name": "name", "value": "kefir", "is_searchable": True},
                               {"name": "age", "value": 3, "is_searchable": False}]}
    assert fragment_variables(document) == {"doc": DOG}
    assert search_variables("dog") == {"q": "dog"} and search_variables(None, {"a": 1}) == {"media": {"a": 1}}
    assert search_variables(None) == {}
