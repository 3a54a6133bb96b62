"""What must hold of the bounds of a filter (docs/filters-and-facets.md#cost):

1. Each kind of condition is accepted up to its number, and refused one beyond it, whichever way it is written.
2. All texts of an array, and all parts of a text, count together.
3. The error has the code of the route, and says how conditions count.
4. It is raised before the rest of the filter is read.
5. Outlines that are compared with geometries have a bound in kilometres; where no geometries are filterable, nothing counts.
"""
from __future__ import annotations

import time

import pytest

from svcd.base.errors import ApiError
from svcd.filters import requirements
from svcd.filters.evaluation import filter_docids, parse_filter, read_filter
from svcd.filters.lexer import FilterError
from tests.support.dict_reader import DictReader

# (a condition, how many are accepted of each 100,000 of the bound)
KINDS = [
    ("a = 1", 50_000), ("a = '\\n'", 50_000), ("NOT a = 1", 50_000), ("a IN [1]", 100_000), ("a NOT IN ['\\n']", 100_000), ("a != 1", 20_000),
    ("a EXISTS", 20_000), ("a IS NOT NULL", 20_000), ("_vectors EXISTS", 20_000), ("a > 1", 1_000), ("a 1 TO 2", 1_000),
    ("a NOT STARTS WITH x", 1_000), ("a CONTAINS x", 100), ("_geoRadius(1, 2, 3)", 100), ("_geoBoundingBox([1, 2], [0, 1])", 100),
    ("_foreign(a, b IN [])", 99),
]


def is_refused(value: object) -> bool:
    try:
        parse_filter(value)
    except FilterError as error:
        assert error.message.startswith("The filter is too large: its conditions cost more than 100000."), error.message
        return True
    return False


@pytest.mark.parametrize("condition, most", KINDS)
def test_each_kind_is_refused_beyond_its_number(condition: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "FILTER_COST", 10_000)  # a tenth of the bound, to be quick
    most //= 10
    assert not is_refused(" OR ".join([condition] * most))
    assert is_refused(" AND ".join([condition] * (most + 1)))
    assert is_refused([[condition] * (most + 1)])


@pytest.mark.parametrize("value", ["1", "'x, y'", "'\\n'"])
def test_the_values_of_lists_count_together(value: str) -> None:
    half = f"a IN [{','.join([value] * 50_000)}]"
    assert not is_refused(f"{half} AND {half}")
    assert is_refused([half, f"({half})", "a IN [1]"])
    assert is_refused(f"a IN [{','.join([value] * 100_001)}]")


def test_a_polygon_has_as_many_points_as_a_filter_has_room() -> None:
    assert not is_refused(f"_geoPolygon({','.join(['[1, 2]'] * 49_500)})")
    assert is_refused(f"_geoPolygon({','.join(['[1, 2]'] * 49_501)})")


def test_a_filter_of_900_000_elements_is_refused_at_once() -> None:
    value = [["year = 1"] * 900_000]
    begin = time.process_time()
    with pytest.raises(ApiError) as caught:
        read_filter(value, "invalid_document_filter")
    assert caught.value.code == "invalid_document_filter" and "`=` and a point of a polygon 2" in caught.value.message
    assert time.process_time() - begin < 2.0  # 0.4; all of them take 15


@pytest.mark.parametrize("text", ["year IN [" + "1," * 2_000_000 + "1]", "year = 1 OR " * 300_000 + "~",
                                  "_geoPolygon(" + "[1, 2]," * 300_000 + "~)"], ids=["IN", "OR", "polygon"])
def test_the_rest_of_a_filter_that_is_too_large_is_not_read(text: str) -> None:
    begin = time.process_time()
    assert is_refused(text)
    assert time.process_time() - begin < 2.0  # 0.2


WORLD = "_geoBoundingBox([85, 179], [-85, -179])"
ZIGZAG = f"_geoPolygon({', '.join(f'[{80 * (number % 2)}, {number % 180}]' for number in range(1_000))})"


@pytest.mark.parametrize("value", [f"{ZIGZAG}", [["_geoRadius(0, 0, 10000000)"] * 6], [[WORLD] * 8]], ids=["polygon", "radius", "box"])
def test_outlines_of_more_than_200_000_km_are_refused_at_once(value: object) -> None:
    reader = DictReader([], {"filterableAttributes": ["_geo", "_geojson"]})
    begin = time.process_time()
    with pytest.raises(ApiError) as caught:
        filter_docids(reader, parse_filter(value), "invalid_search_filter")
    assert caught.value.message.startswith("The filter is too large: expected at most 200000 km of outlines")
    assert caught.value.code == "invalid_search_filter" and time.process_time() - begin < 10.0


def test_outlines_do_not_count_without_geometries() -> None:
    reader = DictReader([], {"filterableAttributes": ["_geo"]})
    assert not filter_docids(reader, parse_filter([["_geoRadius(0, 0, 10000000)"] * 100]), "invalid_search_filter")
