"""What must hold of the places of documents in an index:

1. Points are kept while `_geo` is filterable by name or sortable, geometries while `_geojson` is filterable by name.
2. They follow every write: additions, replacements, updates, deletions, a clear; settings bring and remove them.
3. A wrong one fails the batch, or the change of settings, and nothing of it is kept; nobody looks at those not kept.
4. So it is with latitudes and longitudes as values, whatever patterns the settings had before and have now.
"""
from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.conftest import TaskHarness

EVERYWHERE = (-90.0, -180.0, 90.0, 180.0)


def located(harness: TaskHarness) -> dict[int, tuple[float, float]]:
    with harness.instance.read("movies") as reader:
        found = dict(reader.geo.points(range(10)))
        assert list(reader.geo.located_docids()) == sorted(found)
        return found


def shaped(harness: TaskHarness) -> list[int]:
    with harness.instance.read("movies") as reader:
        return [docid for docid, _ in reader.geo.geometries_meeting(EVERYWHERE)]


def at(latitude: Any, longitude: Any) -> dict[str, Any]:
    return {"_geo": {"lat": latitude, "lng": longitude}}


LINE = {"_geojson": {"type": "LineString", "coordinates": [[1, 2], [3, 4]]}}


def coordinates(harness: TaskHarness) -> list[list[Any]]:
    with harness.instance.read("movies") as reader:
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
def test_settings_say_what_is_kept(harness: TaskHarness, settings: dict[str, Any], has_points: bool, has_shapes: bool) -> None:
    harness.add([{"id": 1, **at(1, "2"), **LINE}, {"id": 2}])
    harness.change(settings)
    harness.run()
    assert located(harness) == ({0: (1.0, 2.0)} if has_points else {})
    assert shaped(harness) == ([0] if has_shapes else [])
    harness.add([{"id": 3, **at(5, 6), **LINE}])
    harness.run()
    assert list(located(harness)) == ([0, 2] if has_points else [])
    assert shaped(harness) == ([0, 2] if has_shapes else [])


def test_places_follow_every_write(harness: TaskHarness) -> None:
    harness.change({"filterableAttributes": ["_geo", "_geojson"]})
    harness.add([{"id": 1, **at(1, 1), **LINE}, {"id": 2, **at(2, 2)}, {"id": 3, **at(3, 3)}])
    harness.run()
    harness.add([{"id": 1, "title": "here"}], method="update")
    harness.add([{"id": 2, "title": "nowhere", **LINE}])
    harness.add([{"id": 3, **at(4, 4)}], method="update")
    harness.add([{"id": 4, "_geo": None, "_geojson": None}])
    harness.run()
    assert located(harness) == {0: (1.0, 1.0), 2: (4.0, 4.0)}
    assert shaped(harness) == [0, 1]
    harness.delete([1])
    harness.run()
    assert (located(harness), shaped(harness)) == ({2: (4.0, 4.0)}, [1])
    harness.change({"filterableAttributes": ["_geojson"]})
    harness.run()
    assert (located(harness), shaped(harness)) == ({}, [1])
    harness.change({"sortableAttributes": ["_geo"], "filterableAttributes": []})
    harness.run()
    assert (located(harness), shaped(harness)) == ({2: (4.0, 4.0)}, [])
    harness.clear()
    harness.run()
    assert (located(harness), shaped(harness)) == ({}, [])


WRONG = [
    ("_geo", {"lat": 1}, "invalid_document_geo_field"),
    ("_geojson", {"type": "Point", "coordinates": [1]}, "invalid_document_geojson_field"),
]


@pytest.mark.parametrize(("name", "value", "code"), WRONG)
def test_a_wrong_place_fails_the_batch(harness: TaskHarness, name: str, value: Any, code: str) -> None:
    harness.change({"filterableAttributes": [name]})
    harness.run()
    good, bad = harness.add([{"id": 1, **at(1, 1), **LINE}]), harness.add([{"id": 2, name: value}])
    harness.run()
    assert [harness.task(task).error["code"] for task in (good, bad)] == [code] * 2
    assert harness.task(bad).error["message"].startswith("Index `movies`: ")
    assert (located(harness), shaped(harness)) == ({}, [])


@pytest.mark.parametrize(("name", "value", "code"), WRONG)
def test_a_wrong_place_fails_the_settings_that_ask_for_it(harness: TaskHarness, name: str, value: Any, code: str) -> None:
    added = harness.add([{"id": 1, **at(1, 1), **LINE}, {"id": 2, name: value}])
    changed = harness.change({"filterableAttributes": [name]})
    harness.run()
    assert harness.task(added).status == "succeeded"
    assert harness.task(changed).error["code"] == code
    assert (located(harness), shaped(harness)) == ({}, [])


@pytest.mark.parametrize("pattern", ["*", {"attributePatterns": ["*"]}, {"attributePatterns": ["_geo*"]}], ids=str)
def test_coordinates_come_and_go_beside_a_pattern(harness: TaskHarness, pattern: Any) -> None:
    harness.change({"filterableAttributes": [pattern]})
    harness.add([{"id": 1, **at(1, 2)}])
    harness.run()
    assert coordinates(harness) == [[], []]
    harness.change({"filterableAttributes": [pattern, "_geo"]})
    harness.run()
    assert coordinates(harness) == [[1.0], [2.0]]
    harness.change({"filterableAttributes": [pattern]})
    harness.run()
    assert coordinates(harness) == [[], []]
    harness.change({"sortableAttributes": ["_geo"]})
    harness.run()
    assert coordinates(harness) == [[1.0], [2.0]]
    harness.delete([1])
    harness.run()
    assert coordinates(harness) == [[], []]
