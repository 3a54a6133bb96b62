"""What must hold of sorting:

1. Ascending: numbers, then texts by their normal form, then documents without a value; ties keep their order.
2. Descending turns numbers and texts round, each for itself: numbers still come first, no value still last.
3. Of several values a document takes part with its best number, or with its best text when it has no number.
4. Wrong expressions are refused in the words of the interface.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.ranking.sort import SortError, SortRule, check_sortable, parse_rule, split_rules
from tests.support.dict_reader import DictReader

DOCUMENTS = [{"a": [3, "z", 1, True]}, {"a": ["b", "A", None, [["c"]]]}, {"a": 2}, {"b": 1}, {"a": True}, {"a": "B "},
             {"a": None}, {"a": 2.0}, {"a": ""}]


@pytest.mark.parametrize(
    ("is_ascending", "buckets"),
    [(True, [(1.0, [0]), (2.0, [2, 7]), ("a", [1]), ("b", [5]), ("true", [4]), (None, [3, 6, 8])]),
     (False, [(3.0, [0]), (2.0, [2, 7]), ("true", [4]), ("c", [1]), ("b", [5]), (None, [3, 6, 8])])],
)
def test_the_order_of_documents(is_ascending: bool, buckets: list[tuple[Any, list[int]]]) -> None:
    reader = DictReader(DOCUMENTS, {"sortableAttributes": ["a"]})
    found = reader.values.sort_buckets("a", is_ascending, reader.all_docids())
    assert [(value, list(docids)) for value, docids in found] == buckets


def test_white_space_alone_is_the_first_text() -> None:
    reader = DictReader([{"a": "a"}, {"a": "\t"}, {"a": ""}, {"a": 1}, {"a": " "}], {"sortableAttributes": ["a"]})
    found = reader.values.sort_buckets("a", True, reader.all_docids())
    assert [(value, list(docids)) for value, docids in found] == [(1.0, [3]), ("", [1, 4]), ("a", [0]), (None, [2])]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("a:asc", ["a:asc"]),
        ("a:asc, b:desc", ["a:asc", "b:desc"]),
        ("_geoPoint(1, 2):asc,b:desc", ["_geoPoint(1,2):asc", "b:desc"]),
        ('"a:asc"', ["a:asc"]),
        ("", [""]),
        ("_geoPoint(1, _geoPoint(2, 3):asc, a:asc", ["_geoPoint(1", "_geoPoint(2,3):asc", "a:asc"]),
    ],
)
def test_query_strings_are_split_between_rules(text: str, rules: list[str]) -> None:
    assert split_rules(text) == rules


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a:asc", SortRule("a", True)),
        ("a:b:desc", SortRule("a:b", False)),
        ("_geoPoint(48.5, -2):desc", SortRule("_geo", False, (48.5, -2.0))),
        ("_geoPoint(+1e1,.5):asc", SortRule("_geo", True, (10.0, 0.5))),
        ("_geoPoints:asc", SortRule("_geoPoints", True)),
        ("_geoPoint(1,2:asc", SortRule("_geoPoint(1,2", True)),
        ("_geoRadiusX:asc", SortRule("_geoRadiusX", True)),
    ],
)
def test_expressions(text: str, rule: SortRule) -> None:
    assert parse_rule(text) == rule


RESERVED = "is a reserved keyword and thus can't be used as a sort expression."
USE_POINT = "Use the _geoPoint(latitude, longitude) built-in rule to sort on _geo field coordinates."
POINT = "expected expression formated like `_geoPoint(latitude, longitude)` and ending by `:asc` or `:desc`"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "Invalid syntax for the sort parameter: expected expression ending by `:asc` or `:desc`, found `a`."),
        ("a:ASC", "Invalid syntax for the sort parameter: expected expression ending by `:asc` or `:desc`, found `a:ASC`."),
        ("_geo:asc", f"`_geo` {RESERVED} {USE_POINT}"),
        ("_geoRadius(1,2,3):asc", f"`_geoRadius` {RESERVED} {USE_POINT}"),
        ("_geoBoundingBox:asc", f"`_geoBoundingBox` {RESERVED} {USE_POINT}"),
        ("_geoDistance:asc", f"`_geoDistance` {RESERVED}"),
        ("_geoDistance(1, 2):asc", f"`_geoDistance(1, 2)` {RESERVED}"),
        ("_geo(1, 2):asc", f"`_geo(1, 2)` {RESERVED}"),
        ("_geoPoint:asc", f"Invalid syntax for the geo parameter: {POINT}, found `_geoPoint`."),
        ("_geoPoint(1):asc", f"Invalid syntax for the geo parameter: {POINT}, found `_geoPoint(1)`."),
        ("_geoPoint(1,x):asc", f"Invalid syntax for the geo parameter: {POINT}, found `_geoPoint(1,x)`."),
        ("_geoPoint(91,0):asc", "Bad latitude `91`. Latitude must be contained between -90 and 90 degrees."),
        ("_geoPoint(nan,0):asc", "Bad latitude `NaN`. Latitude must be contained between -90 and 90 degrees."),
        ("_geoPoint(-INF,0):asc", "Bad latitude `-inf`. Latitude must be contained between -90 and 90 degrees."),
        ("_geoPoint(0,infinity):asc", "Bad longitude `inf`. Longitude must be contained between -180 and 180 degrees. "
                                      "Hint: try using `NaN` instead."),
        ("_geoPoint(0,190.5):asc", "Bad longitude `190.5`. Longitude must be contained between -180 and 180 degrees. "
                                   "Hint: try using `-169.5` instead."),
    ],
)
def test_wrong_expressions(text: str, message: str) -> None:
    with pytest.raises(SortError) as caught:
        parse_rule(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("sortable", [["a"], ["x", "a.b"]])
def test_what_lies_beneath_a_sortable_attribute_is_sortable(sortable: list[str]) -> None:
    check_sortable([SortRule("a.b", True), SortRule("a.b.c", True)], sortable)


def test_other_attributes_are_not() -> None:
    with pytest.raises(SortError) as caught:
        check_sortable([SortRule("ab", True)], ["b", "a"])
    assert str(caught.value) == "Attribute `ab` is not sortable. Available sortable attributes are: `a, b`."
