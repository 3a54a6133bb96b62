"""What must hold of the places of documents in an index:

1. Points are kept while `_geo` is filterable by name or sortable, geometries while `_geojson` is filterable by name.
2. They follow every write: additions, replacements, updates, deletions, a clear; settings bring and remove them.
3. A wrong one fails the batch, or the change of settings, and nothing of it is kept; nobody looks at those not kept.
4. So it is with latitudes and longitudes as values, whatever patterns the settings had before and have now.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.base.bitmaps import to_docids
from tests.tasks.conftest import House

EVERYWHERE = (-90.0, -180.0, 90.0, 180.0)


def located(house: House) -> dict[int, tuple[float, float]]:
    with house.instance.read("movies") as reader:
        found = dict(reader.geo.points(range(10)))
        assert to_docids(reader.geo.located_docids()) == sorted(found)
        return found


def shaped(house: House) -> list[int]:
    with house.instance.read("movies") as reader:
        return [docid for docid, _ in reader.geo.geometries_meeting(EVERYWHERE)]


def at(latitude: Any, longitude: Any) -> dict[str, Any]:
    return {"_geo": {"lat": latitude, "lng": longitude}}


LINE = {"_geojson": {"type": "LineString", "coordinates": [[1, 2], [3, 4]]}}


def coordinates(house: House) -> list[list[Any]]:
    with house.instance.read("movies") as reader:
        return [list(reader.values.distinct_values(name, float)) for name in ("_geo.lat", "_geo.lng")]


@pytest.mark.parametrize(
    ("settings", "has_points", "has_shapes"),
    [
        ({}, False, False),
        ({"sortableAttributes": ["_geo"]}, True, False),
        ({"filterableAttributes": ["_geo"]}, True, False),
        ({"filterableAttributes": ["_geojson", "x"]}, False, True),
        ({"filterableAttributes": ["*"]}, False, False),
        ({"filterableAttributes": [{"attributePatterns": ["*"]}]}, False, False),
    ],
)
def test_settings_say_what_is_kept(house: House, settings: dict[str, Any], has_points: bool, has_shapes: bool) -> None:
    house.add([{"id": 1, **at(1, "2"), **LINE}, {"id": 2}])
    house.change(settings)
    house.run()
    assert located(house) == ({0: (1.0, 2.0)} if has_points else {})
    assert shaped(house) == ([0] if has_shapes else [])
    house.add([{"id": 3, **at(5, 6), **LINE}])
    house.run()
    assert list(located(house)) == ([0, 2] if has_points else [])
    assert shaped(house) == ([0, 2] if has_shapes else [])


def test_places_follow_every_write(house: House) -> None:
    house.change({"filterableAttributes": ["_geo", "_geojson"]})
    house.add([{"id": 1, **at(1, 1), **LINE}, {"id": 2, **at(2, 2)}, {"id": 3, **at(3, 3)}])
    house.run()
    house.add([{"id": 1, "title": "here"}], method="update")
    house.add([{"id": 2, "title": "nowhere", **LINE}])
    house.add([{"id": 3, **at(4, 4)}], method="update")
    house.add([{"id": 4, "_geo": None, "_geojson": None}])
    house.run()
    assert located(house) == {0: (1.0, 1.0), 2: (4.0, 4.0)}
    assert shaped(house) == [0, 1]
    house.delete([1])
    house.run()
    assert (located(house), shaped(house)) == ({2: (4.0, 4.0)}, [1])
    house.change({"filterableAttributes": ["_geojson"]})
    house.run()
    assert (located(house), shaped(house)) == ({}, [1])
    house.change({"sortableAttributes": ["_geo"], "filterableAttributes": []})
    house.run()
    assert (located(house), shaped(house)) == ({2: (4.0, 4.0)}, [])
    house.clear()
    house.run()
    assert (located(house), shaped(house)) == ({}, [])


WRONG = [
    ("_geo", {"lat": 1}, "invalid_document_geo_field"),
    ("_geojson", {"type": "Point", "coordinates": [1]}, "invalid_document_geojson_field"),
]


@pytest.mark.parametrize(("name", "value", "code"), WRONG)
def test_a_wrong_place_fails_the_batch(house: House, name: str, value: Any, code: str) -> None:
    house.change({"filterableAttributes": [name]})
    house.run()
    good, bad = house.add([{"id": 1, **at(1, 1), **LINE}]), house.add([{"id": 2, name: value}])
    house.run()
    assert [house.task(task).error["code"] for task in (good, bad)] == [code] * 2
    assert house.task(bad).error["message"].startswith("Index `movies`: ")
    assert (located(house), shaped(house)) == ({}, [])


@pytest.mark.parametrize(("name", "value", "code"), WRONG)
def test_a_wrong_place_fails_the_settings_that_ask_for_it(house: House, name: str, value: Any, code: str) -> None:
    added = house.add([{"id": 1, **at(1, 1), **LINE}, {"id": 2, name: value}])
    changed = house.change({"filterableAttributes": [name]})
    house.run()
    assert house.task(added).status == "succeeded"
    assert house.task(changed).error["code"] == code
    assert (located(house), shaped(house)) == ({}, [])


@pytest.mark.parametrize("pattern", ["*", {"attributePatterns": ["*"]}, {"attributePatterns": ["_geo*"]}], ids=str)
def test_coordinates_come_and_go_beside_a_pattern(house: House, pattern: Any) -> None:
    house.change({"filterableAttributes": [pattern]})
    house.add([{"id": 1, **at(1, 2)}])
    house.run()
    assert coordinates(house) == [[], []]
    house.change({"filterableAttributes": [pattern, "_geo"]})
    house.run()
    assert coordinates(house) == [[1.0], [2.0]]
    house.change({"filterableAttributes": [pattern]})
    house.run()
    assert coordinates(house) == [[], []]
    house.change({"sortableAttributes": ["_geo"]})
    house.run()
    assert coordinates(house) == [[1.0], [2.0]]
    house.delete([1])
    house.run()
    assert coordinates(house) == [[], []]
