"""Federated search (docs/search.md#federation). What must hold:

1. The order, the queries that hits report, the weighted scores and the total are those of the reference engine (tests/contract).
2. Queries with incompatible rules are rejected with the rules, their positions, and what the canonical form changed.
3. Pages joined are the whole list; a document is in it once, reported by the query that ranks it best.
4. A federation of one query is that query. No list goes beyond maxTotalHits, but the total does.
5. With `distinct` no two hits of any index share a value; it overrides the setting, and rejected hits are not counted.
6. Each hit is formatted and scored by the options of its own query.
7. Of two distances the larger is better in both directions; a hit without distance is last.
"""
from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.errors import ApiError
from svcd.search.federation import federated
from svcd.search.request import Federation, IndexedQuery, SearchQuery, SearchResult
from tests.support.contract import table
from tests.support.dict_reader import DictReader
from tests.support.searching import UID, found_ids, never, titled

CASES = table("federation-cases")["cases"]


def merged(indexes: dict[str, DictReader], *queries: dict[str, Any], **federation: Any) -> SearchResult:
    """The answer to queries as the interface has them."""
    asked = [IndexedQuery(query["indexUid"], SearchQuery(q=query.get("q"), sort=query.get("sort")),
                          float(query.get("federationOptions", {}).get("weight", 1))) for query in queries]
    return federated(indexes.__getitem__, asked, Federation(**federation), never)


@pytest.mark.parametrize("case", CASES)
def test_the_recorded_cases(case: dict[str, Any]) -> None:
    indexes = {uid: DictReader(index["documents"], index["settings"]) for uid, index in case["indexes"].items()}
    for search in case["searches"]:
        if "status" in search:
            with pytest.raises(ApiError) as refused:
                merged(indexes, *search["queries"], limit=100)
            assert (refused.value.status, refused.value.message) == (search["status"], search["message"])
            continue
        answer = merged(indexes, *search["queries"], limit=100)
        hits = [json.loads(hit) for hit in answer.hits]
        shown = [[hit["_federation"]["indexUid"], hit["id"], hit["_federation"]["queriesPosition"],
                  hit["_federation"]["weightedRankingScore"]] for hit in hits]
        assert shown == search["hits"]
        assert answer.pagination["estimatedTotalHits"] == search["estimatedTotalHits"]


TITLE = st.lists(st.sampled_from(["sun", "sunny", "flower", "dark"]), min_size=1, max_size=3).map(" ".join)
QUERIES = st.lists(st.tuples(st.sampled_from("ab"), TITLE, st.sampled_from([0.5, 1, 2])), min_size=1, max_size=4)


def sources(answer: SearchResult) -> list[tuple[str, int, int]]:
    """(index, id, query) of each hit."""
    hits = [json.loads(hit) for hit in answer.hits]
    return [(hit["_federation"]["indexUid"], hit["id"], hit["_federation"]["queriesPosition"]) for hit in hits]


@settings(max_examples=30, deadline=None)
@given(st.lists(TITLE, max_size=6), st.lists(TITLE, max_size=6), QUERIES, st.integers(1, 4))
def test_pages_joined_are_the_whole_list(left: list[str], right: list[str], asked: list, size: int) -> None:
    indexes = {"a": titled(*left), "b": titled(*right)}
    queries = [{"indexUid": uid, "q": q, "federationOptions": {"weight": weight}} for uid, q, weight in asked]
    whole = merged(indexes, *queries, limit=100)
    hits = sources(whole)
    pages = [hit for page in range(1, 13) for hit in sources(merged(indexes, *queries, page=page, hits_per_page=size))]
    assert pages == hits
    assert len({(uid, number) for uid, number, _ in hits}) == len(hits) == whole.pagination["estimatedTotalHits"]
    found = {uid: set() for uid in indexes}
    for uid, q, _ in asked:
        found[uid] |= set(found_ids(indexes[uid], q))
    assert {(uid, number) for uid, number, _ in hits} == {(uid, number) for uid in found for number in found[uid]}


@settings(max_examples=30, deadline=None)
@given(st.lists(TITLE, max_size=6), TITLE)
def test_one_query_merged_alone_is_that_query(titles: list[str], q: str) -> None:
    reader = titled(*titles)
    assert sources(merged({UID: reader}, {"indexUid": UID, "q": q}, limit=100)) == [
        (UID, number, 0) for number in found_ids(reader, q)]


def test_no_hit_lies_beyond_max_total_hits() -> None:
    reader = titled(*["sun"] * 6, pagination={"maxTotalHits": 2})
    answer = merged({UID: reader}, {"indexUid": UID, "q": "sun"}, {"indexUid": UID, "q": "sun"})
    assert (len(answer.hits), answer.pagination["estimatedTotalHits"]) == (2, 6)


def test_queries_share_the_hits_that_an_index_may_give() -> None:
    reader = titled("sun", "sun", "dark", "dark", pagination={"maxTotalHits": 3})
    queries = [{"indexUid": UID, "q": q} for q in ("sun", "dark")]
    answer = merged({UID: reader}, *queries)
    assert (sources(answer), answer.pagination["estimatedTotalHits"]) == ([(UID, 1, 0), (UID, 2, 0), (UID, 3, 1)], 4)
    both = merged({UID: reader, "other": titled("sun")}, *queries, {"indexUid": "other", "q": "sun"})
    assert len(both.hits) == 4


def test_a_blank_query_has_rules_of_relevance() -> None:
    sorts = {"sortableAttributes": ["id"], "rankingRules": ["sort", "words"]}
    indexes = {UID: titled("sun", **sorts), "other": titled("sun", sortableAttributes=["id"])}
    queries = [{"indexUid": UID, "q": "", "sort": ["id:asc"]}, {"indexUid": "other", "q": "", "sort": ["id:asc"]}]
    assert len(merged(indexes, *queries).hits) == 2
    queries[1]["q"] = " "
    with pytest.raises(ApiError, match="cannot compare a relevancy rule with a sort rule"):
        merged(indexes, *queries)


def test_a_document_is_shown_by_the_query_that_places_it_best() -> None:
    reader = titled("dark sun")
    queries = [{"indexUid": UID, "q": "dark sun"}, {"indexUid": UID, "q": "sun", "federationOptions": {"weight": 3}}]
    assert sources(merged({UID: reader}, *queries)) == [(UID, 1, 1)]
    assert sources(merged({UID: reader}, *queries[::-1])) == [(UID, 1, 0)]


def colored(*colors: Any, **settings: Any) -> DictReader:
    documents = [{"id": number, "title": "sun", "color": color} for number, color in enumerate(colors, 1)]
    return DictReader(documents, {"searchableAttributes": ["title"], "filterableAttributes": ["color", "id"], **settings})


def test_no_two_hits_of_any_index_share_a_value() -> None:
    indexes = {"a": colored("red", ["blue", "RED"], None), "b": colored("blue", "red", None, distinctAttribute="id")}
    queries = [{"indexUid": "b", "q": "sun"}, {"indexUid": "a", "q": "sun"}, {"indexUid": "a", "q": "su"}]
    answer = merged(indexes, *queries, distinct="color")
    assert sources(answer) == [("b", 1, 0), ("b", 2, 0), ("b", 3, 0), ("a", 3, 1)]
    assert answer.pagination["estimatedTotalHits"] == 4


def test_an_error_names_the_index_where_distinct_is_not_filterable() -> None:
    indexes = {"a": colored("red"), "b": colored("red", filterableAttributes=[])}
    with pytest.raises(ApiError) as refused:
        merged(indexes, {"indexUid": "b"}, {"indexUid": "a"}, distinct="color")
    assert refused.value.code == "invalid_search_distinct"
    assert refused.value.message.startswith("Inside `.queries[0]`: Index `b`: Attribute `color` is not filterable")


def test_each_hit_is_shown_as_its_own_query_wants_it() -> None:
    reader = titled("sun", "dark")
    asked = [IndexedQuery(UID, SearchQuery(q="dark", show_ranking_score=True)),
             IndexedQuery(UID, SearchQuery(q="sun", attributes_to_retrieve=["title"], attributes_to_highlight=["title"]))]
    answer = federated({UID: reader}.__getitem__, asked, Federation(), never)
    first, second = (json.loads(hit) for hit in answer.hits)
    assert list(first) == ["id", "title", "_federation", "_rankingScore"]
    assert list(second) == ["title", "_federation", "_formatted"] and second["_formatted"] == {"title": "<em>sun</em>"}


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_the_larger_distance_is_better(direction: str) -> None:
    def index(*longitudes: float | None) -> DictReader:
        return DictReader([{"id": longitude, **({} if longitude is None else {"_geo": {"lat": 0, "lng": longitude}})}
                           for longitude in longitudes], {"sortableAttributes": ["_geo"]})

    queries = [{"indexUid": uid, "sort": [f"_geoPoint(0, 0):{direction}"]} for uid in "ab"]
    answer = merged({"a": index(5, None), "b": index(7, 6)}, *queries)
    near, far = (6, 7) if direction == "asc" else (7, 6)
    assert [json.loads(hit)["id"] for hit in answer.hits] == [near, far, 5, None]
