"""What must hold of the order by distance (docs/ranking.md#sort) and of what hits show of it:

1. Nearest first or farthest first; documents without a point come last, as one bucket, whatever the direction.
2. Fewer than 1000 documents are ordered by whole metres, equal ones by docid; descending, that order is reversed.
3. From 1000 on they are ordered by distance itself, 1000 at a time; the last ones, fewer than 1000, by whole metres.
4. What lies at most a metre from the first of a bucket belongs to it; no bucket has more than 1000 documents.
5. Details show the place and distance of the first of the bucket; equal documents come by docid.
6. Hits show the distance from the first point of `sort`, in whole metres, if they show where they are.
7. A sort by distance is never skipped, and brings no score.
"""
from __future__ import annotations

import random
from typing import Any

import pytest

from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.geo.sphere import distance
from svcd.ranking.sort import geo_buckets, sorted_from, with_distance
from tests.support.dict_reader import DictReader
from tests.support.searching import details_of, found_ids, hits

SORTABLE = {"sortableAttributes": ["_geo", "n"], "searchableAttributes": ["name"]}
METRE = 360 / 40_030_173.6  # degrees


def placed(*places: tuple[float, float] | None, **settings: Any) -> DictReader:
    """Documents with the ids 0, 1, 2... at some points."""
    return DictReader([{"id": number, "name": "x", "n": number % 2,
                        **({"_geo": {"lat": place[0], "lng": place[1]}} if place else {})}
                       for number, place in enumerate(places)], {**SORTABLE, **settings})


def buckets(reader: DictReader, is_ascending: bool) -> list[tuple[list[int], float | None]]:
    return [(list(bucket.docids), bucket.metres)
            for bucket in geo_buckets(reader, (0.0, 0.0), is_ascending, reader.all_docids())]


def at(metres: float) -> tuple[float, float]:
    """A point so far north of the origin."""
    return metres * METRE, 0.0


def test_what_has_no_point_comes_last() -> None:
    reader = placed(None, at(500), None, at(100))
    assert [docids for docids, _ in buckets(reader, True)] == [[3], [1], [0, 2]]
    assert [docids for docids, _ in buckets(reader, False)] == [[1], [3], [0, 2]]
    assert buckets(reader, True)[-1] == ([0, 2], None)


def test_few_are_ordered_by_whole_metres() -> None:
    reader = placed(at(100.9), at(100.1), at(102.5), at(101.2), at(99.5))
    assert buckets(reader, True) == [([4], 99.5), ([0, 1, 3], 100.9), ([2], 102.5)]
    assert buckets(reader, False) == [([2], 102.5), ([3], 101.2), ([0, 1, 4], 100.1)]


def test_a_bucket_is_measured_from_its_first_document() -> None:
    reader = placed(*(at(1000 + 0.6 * number) for number in range(6)))
    assert [docids for docids, _ in buckets(reader, True)] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("is_ascending", [True, False])
def test_many_are_ordered_by_distance_itself(is_ascending: bool) -> None:
    chance = random.Random(1)
    places = [(chance.uniform(-60, 60), chance.uniform(-180, 180)) for _ in range(1500)]
    order = [docid for docids, _ in buckets(placed(*places), is_ascending) for docid in docids]
    assert sorted(order) == list(range(1500))
    metres = [distance((0, 0), places[docid]) for docid in order]
    assert metres == pytest.approx(sorted(metres, reverse=not is_ascending), abs=1.0)


def test_many_at_one_point_fill_buckets() -> None:
    reader = placed(*[at(50)] * 1300, at(10))
    found = buckets(reader, True)
    assert [len(docids) for docids, _ in found] == [1, 1000, 300]
    assert found[1][0] == list(range(1000))


def test_only_candidates_take_part() -> None:
    reader = placed(at(10), at(20), at(30))
    found = [list(bucket.docids) for bucket in geo_buckets(reader, (0.0, 0.0), True, DocIds([1, 2]))]
    assert found == [[1], [2]]


ASKED = {"sort": ["_geoPoint(0, 0.0):asc"]}


def test_details_show_the_first_of_the_bucket() -> None:
    reader = placed(at(100.9), at(100.1), None)
    details = details_of(reader, "x", **ASKED, matching_strategy="all")
    name = "_geoPoint(0, 0):asc"
    place = list(details[0]).index(name)
    assert details[0][name] == {"order": place, "value": {"lat": at(100.9)[0], "lng": 0.0}, "distance": 100.9}
    assert details[1][name] == details[0][name]
    assert details[2][name] == {"order": place, "value": None, "distance": None}


def test_later_rules_order_within_a_bucket() -> None:
    reader = placed(at(100.9), at(100.1), at(100.2), at(5))
    assert found_ids(reader, None, sort=["_geoPoint(0,0):asc", "n:desc"]) == [3, 1, 0, 2]
    assert found_ids(reader, None, sort=["n:desc", "_geoPoint(0,0):asc"]) == [3, 1, 0, 2]
    # Two points: the second one orders what the first one holds equal.
    assert found_ids(reader, None, sort=["_geoPoint(0,0):asc", "_geoPoint(1,0):asc"]) == [3, 0, 1, 2]


def test_scores_know_nothing_of_distance() -> None:
    found = hits(placed(at(1), at(900)), None, show_ranking_score=True, **ASKED)
    assert [hit["_rankingScore"] for hit in found] == [1.0, 1.0]


def test_hits_show_how_far_they_are() -> None:
    found = hits(placed(at(1000.4), None), "x", **ASKED, attributes_to_highlight=["name"], show_ranking_score=True)
    assert [list(hit) for hit in found] == [
        ["id", "name", "n", "_geo", "_geoDistance", "_formatted", "_rankingScore"],
        ["id", "name", "n", "_formatted", "_rankingScore"]]
    assert found[0]["_geoDistance"] == 1000
    assert "_geoDistance" not in hits(placed(at(5)), None, **ASKED, attributes_to_retrieve=["id"])[0]
    assert "_geoDistance" not in found[0]["_formatted"]


@pytest.mark.parametrize(
    ("sort", "point"),
    [
        (None, None),
        (["n:asc"], None),
        (["n:asc", "_geoPoint( -1.5 , 2):desc", "_geoPoint(3,4):asc"], (-1.5, 2.0)),
        (["_geoPoint(1e1,2):asc"], None),
    ],
)
def test_the_first_point_of_a_sort_counts(sort: Any, point: Any) -> None:
    assert sorted_from(sort) == point


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("{}", "{}"),
        ('{"_geo":null}', '{"_geo":null}'),
        ('{"_geo":{"lat":0}}', '{"_geo":{"lat":0}}'),
        ('{"_geo":{"lat":"0","lng":0}}', '{"_geo":{"lat":"0","lng":0},"_geoDistance":0}'),
        ('{"_geo":{"lat":0,"lng":180.0},"a":1}', '{"_geo":{"lat":0,"lng":180.0},"a":1,"_geoDistance":20015087}'),
    ],
)
def test_distances_in_hits(shown: str, expected: str) -> None:
    assert with_distance(shown, (0.0, 0.0)) == expected


def test_a_place_must_be_sortable() -> None:
    with pytest.raises(ApiError) as caught:
        found_ids(placed(at(1), sortableAttributes=["n"]), None, **ASKED)
    assert caught.value.code == "invalid_search_sort"
    known = "Available sortable attributes are: `n`."
    assert caught.value.message == f"Index `films`: Attribute `_geo` is not sortable. {known}"
