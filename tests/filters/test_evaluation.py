"""What must hold of filters on an index:

1. Texts are compared by their normal form, numbers by value; a text of a filter may be both.
2. != and NOT give all other documents of the index, those without the field included.
3. Ranges apply to numbers and to texts separately; TO is inclusive, and empty if its bounds are in the wrong order.
4. A field that no document ever had matches nothing.
5. CONTAINS and STARTS WITH apply to texts only; STARTS WITH "" is EXISTS.
6. Fields must be filterable, the error names the last one that is not; their rule must allow the operator.
7. AND stops when nothing is left, OR evaluates all its parts.
8. Errors of searches show the canonical text, those of other routes the text of the user.
9. Geo conditions are checked number by number; vectors by the names of embedders and fragments.
10. A foreign filter becomes the identifiers of documents of the other index: at most 100 together per index.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.filters import evaluation
from svcd.filters.evaluation import filter_docids, read_filter
from svcd.filters.tree import canonical_text
from svcd.schema.field_values import field_values, kept_fields
from svcd.schema.index_settings import IndexSettings
from svcd.search import joins
from tests.support.contract import table
from tests.support.dict_reader import DictReader, DictValues
from tests.support.searching import found_ids

CODE = "invalid_document_filter"
OPERATOR_CODE = "invalid_search_filter"  # whatever the route
DOCUMENTS = [
    {"id": 0, "a": 1, "b": "x"},
    {"id": 1, "a": [2, "Été", None], "b": None},
    {"id": 2, "a": "2", "b": ""},
    {"id": 3, "a": -0.0, "b": ["", None, []], "c": {"d": "Deep", "e": []}},
    {"id": 4, "a": True, "b": "xyz", "c": [{"d": 5}, {"d": "6"}]},
    {"id": 5},
]
SETTINGS = {"filterableAttributes": ["a", "b", "c", "zzz"]}


def docids(asked: Any, documents: Any = DOCUMENTS, settings: Any = SETTINGS, **how: Any) -> list[int]:
    return list(filter_docids(DictReader(documents, settings), read_filter(asked, CODE), CODE, **how))


def refusal(asked: Any, settings: Any = SETTINGS, documents: Any = DOCUMENTS, code: str = CODE, **how: Any) -> str:
    with pytest.raises(ApiError) as caught:
        docids(asked, documents, settings, **how)
    assert caught.value.code == code
    return caught.value.message


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("a = 1", [0]), ("a = 1.0", [0]), ("a = '1 '", []), ("a = 2", [1, 2]), ("a = ÉTÉ", [1]), ("a = 'e\u0301t\u00e9'", [1]),
        ("a = ete", []), ("a = true", [4]), ("a = ' TRUE '", [4]), ("a = 0", []), ("a = -0", [3]), ("b = ''", []),
        ("a != 1", [1, 2, 3, 4, 5]), ("NOT a = 1", [1, 2, 3, 4, 5]), ("a NOT IN [1, 2]", [3, 4, 5]), ("a IN []", []),
        ("a IN [1, true, nothing]", [0, 4]), ("a NOT IN []", [0, 1, 2, 3, 4, 5]),
        ("a > 1", [1, 2, 4]), ("a >= 2", [1, 2, 4]), ("a < 1", [3]), ("a <= 1", [0, 3]), ("a < 0", [3]), ("a >= 0", [0, 1, 2, 4]),
        ("b > x", [4]), ("b >= x", [0, 4]), ("b > inf", [0, 4]),
        ("a 1 TO 2", [0, 1, 2]), ("a 2 TO 1", []), ("b x TO xy", [0]), ("a 1 TO x", [1, 2, 4]),
        ("b EXISTS", [0, 1, 2, 3, 4]), ("b NOT EXISTS", [5]), ("b IS NULL", [1]), ("b IS NOT NULL", [0, 2, 3, 4, 5]),
        ("b IS EMPTY", [2]), ("c.e IS EMPTY", [3]), ("c EXISTS", [3, 4]), ("c.d = deep OR c.d = 5 OR c.d = 6", [3, 4]),
        ("zzz = 1", []), ("zzz != 1", [0, 1, 2, 3, 4, 5]), ("zzz IS NOT NULL", [0, 1, 2, 3, 4, 5]), ("zzz STARTS WITH ''", []),
        ("b CONTAINS Y", [4]), ("b CONTAINS ''", [0, 4]), ("a CONTAINS 2", [2]), ("b NOT CONTAINS x", [1, 2, 3, 5]),
        ("b STARTS WITH x", [0, 4]), ("b STARTS WITH ''", [0, 1, 2, 3, 4]), ("a STARTS WITH 1", []), ("a STARTS WITH 'éT'", [1]),
        (["a = 1", "b = x"], [0]), ([["a = 1", "a = true"]], [0, 4]), (None, [0, 1, 2, 3, 4, 5]),
        ("a EXISTS AND b EXISTS AND b CONTAINS z", [4]),
    ],
)
def test_which_documents_meet_a_filter(asked: Any, found: list[int]) -> None:
    assert docids(asked) == found


def test_the_documented_examples_hold() -> None:
    """The column `documents` of the table of operators in docs/filters-and-facets.md."""
    page = (Path(__file__).parents[2] / "docs" / "filters-and-facets.md").read_text()
    documents = [{"id": number, **json.loads(text)} for number, text in enumerate(
        re.findall(r"`(\{.*?\})`", page.split("## Operators")[1].split("|")[0]))]
    rows = re.findall(r"^\| .* \| `([^`]+)` \| ([\d, ]*)\|$", page.split("## Operators")[1].split("##")[0], re.MULTILINE)
    assert len(documents) == 5 and len(rows) > 10
    for asked, expected in rows:
        assert docids(asked, documents) == [int(number) for number in expected.replace(",", " ").split()], asked


@pytest.mark.parametrize("last", ["\ud7ff", "\U0010ffff", "a\U0010ffff"])
def test_a_beginning_may_end_with_the_last_character(last: str) -> None:
    documents = [{"a": last}, {"a": last + "b"}, {"a": "\ue000"}, {"a": "b"}]
    assert docids(f"a STARTS WITH '{last}'", documents) == [0, 1]


def test_contains_finds_the_same_in_all_documents_and_in_few() -> None:
    documents = [{"a": f"text {number}", "b": number % 2} for number in range(300)]
    expected = [number for number in range(300) if "7" in str(number)]
    assert docids("a CONTAINS 7", documents) == expected
    assert docids("b = 0 AND a CONTAINS 7", documents) == [number for number in expected if number % 2 == 0]
    assert docids("a STARTS WITH 'text 27' AND a CONTAINS 277", documents) == [277]  # few candidates


def test_many_values_are_one_look_up() -> None:
    class Together(DictValues):
        asked: list[int] = []

        def values_docids(self, field: str, values: Any) -> DocIds:
            self.asked.append(len(values))
            return super().values_docids(field, values)

    documents = [{"a": number} for number in range(100)]
    reader = DictReader(documents, SETTINGS)
    reader.values = counted = Together([field_values(document, kept_fields(reader.settings)) for document in documents])
    asked = " OR ".join(f"a = {number}" for number in range(50))
    assert len(filter_docids(reader, read_filter(asked, CODE), CODE)) == 50
    assert counted.asked == [100]  # each as a text and as a number
    assert len(evaluation.equal_docids(reader, "a", ["1", "2"])) == 2 and len(counted.asked) == 1


# Settings

RULES = [
    {"attributePatterns": ["c*"], "features": {"facetSearch": True, "filter": {"equality": False, "comparison": True}}},
    {"attributePatterns": ["hidden"], "features": {"filter": {"equality": False, "comparison": False}}},
    {"attributePatterns": ["*d*", "h*"]},
    "b",
]
NOT_ALLOWED = """Filter operator `{}` is not allowed for the attribute `{}`.
  - Note: allowed operators: {}, IS EMPTY, IS NULL, EXISTS.
  - Note: field `{}` matched rule #{} in `filterableAttributes`
  - Hint: enable {} in rule #{} by modifying the features.filter object
  - Hint: prepend another rule matching `{}` with appropriate filter features before rule #{}"""


@pytest.mark.parametrize(
    ("asked", "field", "operator", "number"),
    [("c = 1", "c", "=", 0), ("b = 1 OR c IN [1]", "c", "=", 0), ("NOT c != 1", "c", "!=", 0), ("dog > 1", "dog", ">", 2),
     ("dog 1 TO 2", "dog", "TO", 2), ("c = 1 OR dog > 1", "c", "=", 0), ("dog > 1 OR c = 1", "dog", ">", 2)],
)
def test_an_operator_must_be_allowed(asked: str, field: str, operator: str, number: int) -> None:
    allowed, feature = ("OR, AND, NOT, <, >, <=, >=, TO", "equality") if field == "c" else (
        "OR, AND, NOT, =, !=, IN", "comparison")
    message = NOT_ALLOWED.format(operator, field, allowed, field, number, feature, number, field, number)
    assert refusal(asked, {"filterableAttributes": RULES}, [{"c": 1, "dog": 1, "b": 1}], OPERATOR_CODE) == message


@pytest.mark.parametrize("asked", ["c > 1", "c EXISTS", "c IS NULL", "c STARTS WITH x", "c CONTAINS x", "dog = 1", "c IN []",
                                   "dog NOT IN [3]", "b = 1 AND b = 2 AND c = 1"])
def test_what_a_rule_allows(asked: str) -> None:
    docids(asked, [{"c": 1, "dog": 1, "b": 1}], {"filterableAttributes": RULES})


def test_a_field_without_documents_is_not_asked_for_its_operators() -> None:
    assert docids("c = 1", [{"b": 1}], {"filterableAttributes": RULES}) == []


def test_fields_must_be_filterable() -> None:
    settings = {"filterableAttributes": RULES}
    some = "is not filterable. Available filterable attribute patterns are: `*d*`, `b`, `c*`, `h*`."
    assert refusal("hidden = 1", settings) == f"Attribute `hidden` {some}\n1:7 hidden = 1"
    assert refusal("x = 1 AND NOT (b = 1 OR y EXISTS)", settings).startswith(f"Attribute `y` {some}\n25:26 ")
    none = "Attribute `a` is not filterable. This index does not have configured filterable attributes."
    assert refusal(" a = 1", {}) == f"{none}\n2:3  a = 1"
    assert refusal(["b = 1", "a = 1"], {"filterableAttributes": ["b"]}).endswith("\n1:2 a = 1")


def test_a_search_shows_the_canonical_text() -> None:
    message = refusal(["b = 1", [" a = 'x\n'", "b = 2"]], {"filterableAttributes": ["b"]}, is_rewritten=True)
    assert message.endswith('\n20:21 ("b" = "1") AND (("a" = "x\\n") OR ("b" = "2"))')


def test_and_stops_when_nothing_is_left() -> None:
    settings = {"filterableAttributes": ["a", "_geo"]}
    assert docids("a = none AND _geoRadius(100, 0, 1)", settings=settings) == []
    for asked in ("a = 1 AND _geoRadius(100, 0, 1)", "a = none OR _geoRadius(100, 0, 1)"):
        assert refusal(asked, settings).startswith("Bad latitude `100`.")


@pytest.mark.parametrize(
    ("asked", "found"),
    [("a = ''", [0, 1]), ("a = '\u3000'", [0, 1]), ("a != ' '", [2, 3]), ("a IN ['', b]", [0, 1, 2]), ("a IS EMPTY", [3]),
     ("a <= ''", [0, 1]), ("a > ''", [2]), ("a '' TO a", [0, 1]), ("a CONTAINS ''", [0, 1, 2]), ("a < b", [0, 1])],
)
def test_white_space_alone_is_a_text_before_all_others(asked: Any, found: list[int]) -> None:
    assert docids(asked, [{"a": " "}, {"a": ["\u3000"]}, {"a": "b"}, {"a": ""}], {"filterableAttributes": ["a"]}) == found


# Geo

LATITUDE = "Latitude must be contained between -90 and 90 degrees."
LONGITUDE = "Longitude must be contained between -180 and 180 degrees. Hint: try using `{}` instead."
GEO = {"filterableAttributes": ["_geo"]}


@pytest.mark.parametrize(
    ("asked", "message"),
    [("_geoRadius(91,2,3)", f"Bad latitude `91`. {LATITUDE}\n12:14"),
     ("_geoRadius(1,180.5,3)", f"Bad longitude `180.5`. {LONGITUDE.format('-179.5')}\n15:20"),
     ("_geoRadius(1,-1e3,3)", f"Bad longitude `-1000`. {LONGITUDE.format('80')}\n15:19"),
     ("_geoRadius(1,2,1e999)", "Non finite floats are not supported\n18:23"),
     ("_geoRadius(1,2,3,2.9)", "Invalid resolution `2`. Resolution must be between 3 and 1000.\n21:24"),
     ("_geoRadius(1,2,3,-5)", "Invalid resolution `0`. Resolution must be between 3 and 1000.\n21:23"),
     ("_geoBoundingBox([1,2],[3,4])", "The top latitude `1` is below the bottom latitude `3`.\n29:30"),
     ("_geoBoundingBox([3,2],[1,200])", f"Bad longitude `200`. {LONGITUDE.format('-160')}\n29:32"),
     ("_geoPolygon([1,2],[3,4],[5,6])",
      "Attribute `_geojson` is not filterable. Available filterable attribute patterns are: `_geo`.\n14:15"),
     ("_geoPolygon([91,2],[3,4],[5,6])",
      "Attribute `_geojson` is not filterable. Available filterable attribute patterns are: `_geo`.\n14:16")],
)
def test_numbers_that_make_no_sense_on_the_globe(asked: str, message: str) -> None:
    condition = read_filter(asked, CODE)
    assert condition is not None
    assert refusal(asked, GEO, is_rewritten=True) == f"{message} {canonical_text(condition)}"


@pytest.mark.parametrize("asked", ["_geoRadius(91,2,1e999)", "_geoBoundingBox([91,2],[-91,2])"])
def test_numbers_of_points_are_looked_at_before_the_settings(asked) -> None:
    assert refusal(asked, {"filterableAttributes": []}).startswith("Bad latitude `91`.")


def test_points_of_a_polygon_are_looked_at_one_by_one() -> None:
    settings = {"filterableAttributes": ["_geojson"]}
    assert refusal("_geoPolygon([1,2],[91,4],[1e999,6])", settings).startswith("Bad latitude `91`.")
    assert refusal("_geoPolygon([1,2],[1e999,4],[91,6])", settings).startswith("Non finite floats are not supported")


def test_only_a_plain_name_makes_points_filterable() -> None:
    for entries in ([], ["*"], [{"attributePatterns": ["_geo"]}]):
        assert "Attribute `_geo/_geojson` is not filterable." in refusal(
            "_geoRadius(1,2,3)", {"filterableAttributes": entries})


def test_the_resolution_of_a_circle_is_a_number_of_vertices() -> None:
    documents = [{"id": number, "_geojson": {"type": "Point", "coordinates": [0, latitude]}}
                 for number, latitude in enumerate((-0.8, 0.8))]
    settings = {"filterableAttributes": ["_geojson"]}
    assert docids("_geoRadius(0, 0, 100000)", documents, settings) == [0, 1]
    assert docids("_geoRadius(0, 0, 100000, 3)", documents, settings) == [1]  # a corner in the north, a side in the south


def test_geo_conditions_find_points_and_geometries() -> None:
    documents = [{"id": 0, "_geo": {"lat": 1, "lng": 1}}, {"id": 1, "_geojson": {"type": "Point", "coordinates": [1, 1]}},
                 {"id": 2, "_geo": {"lat": "1", "lng": 179}}, {"id": 3}]
    settings = {"filterableAttributes": ["_geo", "_geojson"]}
    for asked, found in (("_geoRadius(1, 1, 10)", [0, 1]), ("_geoBoundingBox([2, 2], [0, 0])", [0, 1]),
                         ("_geoBoundingBox([2, -178], [0, 178])", [2]), ("_geoPolygon([0,0],[0,2],[2,2],[2,0])", [1]),
                         ("NOT _geoRadius(1, 1, 10)", [2, 3]), ("_geo.lat = 1", [0, 2])):
        assert docids(asked, documents, settings) == found


# Vectors and shards

EMBEDDERS = {"embedders": {"rest": {"source": "rest", "indexingFragments": {"basic": {}, "breed": {}}}, "manual": {}}}


@pytest.mark.parametrize(
    ("asked", "settings", "message"),
    [("_vectors.x EXISTS", {}, "The embedder `x` does not exist. This index does not have any configured embedders.\n"
                               '11:12 _vectors."x" EXISTS'),
     ("_vectors.rets EXISTS", EMBEDDERS, "The embedder `rets` does not exist. Available embedders are: `manual`, `rest`. "
                                         'Did you mean `rest`?\n11:15 _vectors."rets" EXISTS'),
     ("_vectors.rest.fragments.other EXISTS", EMBEDDERS,
      "The fragment `other` does not exist on embedder `rest`. Available fragments on this embedder are: `basic`, `breed`.\n"
      '28:33 _vectors."rest".fragments."other" EXISTS'),
     ("_vectors.manual.fragments.a EXISTS", EMBEDDERS,
      "The fragment `a` does not exist on embedder `manual`. This embedder does not have any configured fragments.\n"
      '30:31 _vectors."manual".fragments."a" EXISTS')],
)
def test_embedders_and_fragments_must_exist(asked: str, settings: Any, message: str) -> None:
    assert refusal(asked, settings, is_rewritten=True) == message


@pytest.mark.parametrize(("asked", "found"), [
    ("_vectors EXISTS", [0, 1, 3]), ("_vectors NOT EXISTS", [2, 4]), ("_vectors.rest EXISTS", [0, 1]), ("_vectors.manual EXISTS", [1, 3]),
    ("_vectors.rest.userProvided EXISTS", [0, 2]), ("_vectors.rest.regenerate EXISTS", [1]), ("_vectors.manual.regenerate EXISTS", []),
    ("_vectors.manual.documentTemplate EXISTS", []), ("_vectors.plain.documentTemplate EXISTS", [4]),
    ("_vectors.rest.documentTemplate EXISTS", []), ("_vectors.rest.fragments.basic EXISTS", [1]),
    ("_vectors.rest EXISTS AND NOT _vectors.manual EXISTS", [0])])
def test_vectors_are_found_by_where_they_are_from(asked: str, found: list[int]) -> None:
    made = {"regenerate": True, "embeddings": [1]}
    documents = [{"_vectors": each} for each in (
        {"rest": [1]}, {"rest": made, "manual": [1]}, {"rest": None}, {"manual": [[1], [2]]}, {"plain": made})]
    settings = {"embedders": {**EMBEDDERS["embedders"], "plain": {"source": "rest"}}}
    if asked.startswith(("_vectors E", "_vectors N")):
        documents[4] = {}
    reader = DictReader(documents, settings)
    reader.vectors.fragments["rest", "basic"] = DocIds([0, 1])
    assert list(filter_docids(reader, read_filter(asked, CODE), CODE)) == found


def test_without_embedders_no_document_has_vectors() -> None:
    assert docids("_vectors EXISTS", settings={}) == []
    assert docids("_vectors = 1", settings={}) == []


def test_shards_must_exist() -> None:
    for asked in ("_shard IN [a]", "_shard != a"):
        assert refusal(asked, code=OPERATOR_CODE) == "Shard `a` does not exist"
    assert refusal("_shard EXISTS", code=OPERATOR_CODE).startswith("Filter operator `EXISTS is not allowed for the special attribute `_shard`.\n")


# Joins

AUTHORS = [{"id": f"a{number}", "year": 1900 + number} for number in range(150)]
BOOKS = [{"id": 0, "author": "a1"}, {"id": 1, "author": ["a2", "a9"]}, {"id": 2, "title": "a1"}]
KEYS = {"foreignKeys": [{"foreignIndexUid": "authors", "fieldName": "author"}], "filterableAttributes": ["author", "title"]}


@contextmanager
def open_index(index_uid: str) -> Iterator[DictReader]:
    assert index_uid == "authors"
    yield DictReader(AUTHORS, {"filterableAttributes": ["year", "id"]})


def joined(asked: str) -> list[int]:
    condition = read_filter(asked, CODE)
    assert condition is not None and joins.has_foreign(condition)
    condition = joins.resolve_foreign(condition, "books", IndexSettings.of(KEYS), open_index)
    assert not joins.has_foreign(condition)
    return list(filter_docids(DictReader(BOOKS, KEYS), condition, CODE))


@pytest.mark.parametrize(
    ("asked", "found"),
    [("_foreign(author, year = 1901)", [0]), ("_foreign(author, year > 1901 AND year < 1950)", [1]),
     ("NOT _foreign(author, year = 1901)", [1, 2]), ("title = a1 OR _foreign(author, id = a9)", [1, 2]),
     ("_foreign(author, year = 1)", [])],
)
def test_a_join_asks_for_the_documents_of_another_index(asked: str, found: list[int]) -> None:
    assert joined(asked) == found


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [("_foreign(title, id = a1)", "invalid_search_filter", "Index `books`: Field `title` is not a foreign key"),
     ("_foreign(author, id = a1 AND _foreign(author, id = a2))", "invalid_search_filter",
      "Index `books`: Nested foreign filters are not supported"),
     ("_foreign(author, name = x) AND _foreign(title, id = a1)", "invalid_search_filter",
      "Index `books`: Field `title` is not a foreign key"),
     ("_foreign(author, year > 1900)", "invalid_search_filter",
      "Index `authors`: Foreign filter is retrieving too many documents, "
      "foreign filters can't retrieve more than 100 documents per index"),
     ("title = 1 AND _foreign(author, name = x)", "invalid_document_filter",
      "Index `authors`: Attribute `name` is not filterable. Available filterable attribute patterns are: `id`, `year`.\n"
      "32:36 _foreign(author, name = x)")],
)
def test_what_a_join_may_not_ask_for(asked: str, code: str, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        joined(asked)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_joins_of_one_index_may_ask_for_so_many_documents_together() -> None:
    assert joined("_foreign(author, year < 1960) OR _foreign(author, year >= 1960 AND year < 2000)") == [0, 1]
    assert joined("_foreign(author, year < 1995) OR _foreign(author, year < 1996)") == [0, 1]
    with pytest.raises(ApiError, match="^Index `authors`: Foreign filter is retrieving too many documents"):
        joined("_foreign(author, year < 1960) OR _foreign(author, year >= 1960 AND year < 2001)")


# Searches


def test_a_search_ranks_what_meets_the_filter() -> None:
    reader = DictReader([{"id": 1, "t": "star wars", "y": 1977}, {"id": 2, "t": "star trek", "y": 1979}, {"id": 3, "t": "x", "y": 1979}],
                        {"filterableAttributes": ["y"], "searchableAttributes": ["t"]})
    assert found_ids(reader, "star", filter=read_filter("y > 1978", CODE)) == [2]
    assert found_ids(reader, "", filter=read_filter("y > 1978", CODE)) == [2, 3]
    with pytest.raises(ApiError, match='^Index `films`: Attribute `t` is not filterable.*\n2:3 "t" EXISTS$') as caught:
        found_ids(reader, "", filter=read_filter("t EXISTS", CODE))
    assert caught.value.code == "invalid_search_filter"


def test_the_contract_s_filters_find_and_refuse_the_same() -> None:
    cases = table("filter-cases")
    settings, documents = cases["settings"], cases["documents"]
    for asked, ids in cases["accepted"]:
        if "_geoRadius(" not in asked and "_geoBoundingBox(" not in asked and "_geoPolygon(" not in asked:
            assert [documents[docid]["id"] for docid in docids(asked, documents, settings)] == ids, asked
    refused = [(asked, message) for asked, message in cases["refused"] if message.startswith("Index `fl`: ")]
    assert len(refused) > 15
    for asked, message in refused:
        assert "Index `fl`: " + refusal(asked, settings, documents, is_rewritten=True) == message
