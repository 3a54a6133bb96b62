"""1. Without `federation` each query has its own answer, in their order, with the uid of the whole request.
2. The first refusal refuses the request; the place of its query opens the message, and what a body names in vain is a 400.
3. With `federation` there is one list, and what the federation says for all may not stand in a query.
4. These refusals come in their order: a permission, then one query after the other, before any index is read.
5. What needs other instances is refused: without the feature, and with it, for no remote is registered.
6. All queries have one place in the queue.
7. Metadata is shown to `true` and `1`, in any case.
8. All filters are read before any index is; a sort expression is read when its index is there, and names none.
9. Queries, values and bytes of a request have their bounds, with words that say what to do; the memory of an answer is given back.
10. Between two queries others go first, and all queries together end their ranking in time.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from svcd.api import answers, multi_search, streaming
from svcd.api.bodies import MAX_SEARCH_VALUES
from svcd.auth.keys import Permission
from svcd.base.errors import ApiError
from svcd.instance.instance import Instance
from svcd.search import federation as engine
from svcd.validation import bounds
from tests.support.dict_reader import DictReader
from tests.support.patched_reading import read_from

FILMS = DictReader([{"id": 1, "title": "sun", "year": 1}, {"id": 2, "title": "sun night", "year": 2}],
                   {"filterableAttributes": ["year"]})
SONGS = DictReader([{"id": 1, "title": "night"}, {"id": 2, "title": "sun", "year": 1}], {"filterableAttributes": ["year"]})


@pytest.fixture(autouse=True)
def indexes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two indexes; gives the list of those that are read."""
    read: list[str] = []

    @contextmanager
    def reading(_self: Instance, index_uid: str) -> Iterator[DictReader]:
        read.append(index_uid)
        if index_uid not in ("films", "songs"):
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        yield FILMS if index_uid == "films" else SONGS

    read_from(monkeypatch, reading)
    return read


def post(client: Any, *queries: dict[str, Any], federation: Any = None) -> Any:
    body = {"queries": list(queries)} | ({} if federation is None else {"federation": federation})
    return client.json("POST", "/multi-search", body)


def query(index_uid: str = "films", **members: Any) -> dict[str, Any]:
    return {"indexUid": index_uid, **members}


def test_each_query_has_its_answer(client, check_shape) -> None:
    got = post(client, query(q="night"), query("songs", hitsPerPage=1)).value
    check_shape(got, "MultiSearchAnswer")
    first, second = got["results"]
    assert list(first) == ["indexUid", "hits", "query", "processingTimeMs", "limit", "offset", "estimatedTotalHits",
                           "requestUid"]
    assert (first["indexUid"], [hit["id"] for hit in first["hits"]], first["query"]) == ("films", [2], "night")
    assert (second["indexUid"], [hit["id"] for hit in second["hits"]], second["totalHits"]) == ("songs", [1], 2)
    assert first["requestUid"] == second["requestUid"]


def test_no_queries_have_no_results(client, check_shape) -> None:
    assert post(client).value == {"results": []}
    got = post(client, federation={}).value
    check_shape(got, "MultiSearchAnswer")
    assert (got["hits"], got["estimatedTotalHits"]) == ([], 0)


def test_merged_hits_name_their_index(client, check_shape) -> None:
    got = post(client, query(q="sun"), query("songs", q="sun", federationOptions={"weight": 2}, showRankingScore=True),
               federation={"limit": 2}).value
    check_shape(got, "MultiSearchAnswer")
    assert list(got) == ["hits", "processingTimeMs", "limit", "offset", "estimatedTotalHits", "requestUid"]
    assert got["estimatedTotalHits"] == 3
    assert got["hits"] == [
        {"id": 2, "title": "sun", "year": 1,
         "_federation": {"indexUid": "songs", "queriesPosition": 1, "weightedRankingScore": 2.0}, "_rankingScore": 1.0},
        {"id": 1, "title": "sun", "year": 1,
         "_federation": {"indexUid": "films", "queriesPosition": 0, "weightedRankingScore": 1.0}},
    ]


def test_merged_hits_stand_on_pages(client) -> None:
    got = post(client, query(), query("songs"), federation={"page": 2, "hitsPerPage": 3, "limit": 1}).value
    assert [got[name] for name in ("hitsPerPage", "page", "totalPages", "totalHits")] == [3, 2, 2, 4]
    assert [hit["id"] for hit in got["hits"]] == [2] and "limit" not in got


def test_merged_hits_share_no_value_of_distinct(client) -> None:
    got = post(client, query(q="sun"), query("songs", q="sun"), federation={"distinct": "year"}).value
    assert [(hit["_federation"]["indexUid"], hit["id"]) for hit in got["hits"]] == [("films", 1), ("films", 2)]
    assert got["estimatedTotalHits"] == 2


@pytest.mark.parametrize(("merge", "members"), [
    (None, {"facetsByIndex": {"films": {"distribution": {"year": {"1": 1, "2": 1}}, "stats": {"year": {"min": 1.0, "max": 2.0}}},
                              "songs": {"distribution": {"year": {"1": 1}}, "stats": {"year": {"min": 1.0, "max": 1.0}}}}}),
    ({}, {"facetDistribution": {"year": {"1": 2, "2": 1}}, "facetStats": {"year": {"min": 1.0, "max": 2.0}}}),
    ({"maxValuesPerFacet": 1}, {"facetDistribution": {"year": {"1": 2}}, "facetStats": {"year": {"min": 1.0, "max": 2.0}}}),
])
def test_facets_are_shown_by_index_or_as_one(client, check_shape, merge, members) -> None:
    got = post(client, query("songs", q="sun"), query(q="sun"),
               federation={"facetsByIndex": {"songs": ["year"], "films": ["year"]}, "mergeFacets": merge}).value
    check_shape(got, "MultiSearchAnswer")
    assert list(got)[-len(members) - 2:] == ["estimatedTotalHits", *members, "requestUid"]
    assert {name: got[name] for name in members} == members


@pytest.mark.parametrize("facets", [{"films": None}, {}])
@pytest.mark.parametrize("merge", [None, {}])
def test_without_a_list_no_facets_are_shown(client, facets, merge) -> None:
    got = post(client, query(), federation={"facetsByIndex": facets, "mergeFacets": merge}).value
    assert not any("acet" in name for name in got)


@pytest.mark.parametrize(("merge", "members"), [
    (None, {"facetsByIndex": {"films": {"distribution": {}, "stats": {}}}}), ({}, {"facetDistribution": {}, "facetStats": {}})])
def test_an_empty_list_shows_that_nothing_is_counted(client, check_shape, merge, members) -> None:
    got = post(client, query(), federation={"facetsByIndex": {"films": []}, "mergeFacets": merge}).value
    check_shape(got, "MultiSearchAnswer")
    assert {name: value for name, value in got.items() if "acet" in name} == members


@pytest.mark.parametrize("patterns", [None, []])
def test_an_index_that_is_named_for_facets_must_exist(client, patterns) -> None:
    assert post(client, query(), federation={"facetsByIndex": {"nowhere": patterns}}).fault == (
        400, "index_not_found", "Inside `.federation.facetsByIndex.nowhere`: Index `nowhere` not found.\n"
                                " - Note: index `nowhere` is not used in queries")


HUGE = 2**64 - 1


@pytest.mark.parametrize("federation", [{"limit": HUGE, "offset": HUGE}, {"page": HUGE, "hitsPerPage": HUGE}])
def test_pages_may_lie_anywhere(client, federation) -> None:
    assert post(client, query(), query(), federation=federation).value["hits"] == []


@pytest.mark.parametrize(("body", "code", "message"), [
    ([], "bad_request", "Invalid value type: expected an object, but found an array: `[]`"),
    ({}, "bad_request", "Missing field `queries`"),
    ({"queries": [], "query": 1}, "bad_request",
     "Unknown field `query`: expected one of `queries`, `federation`"),
    ({"queries": [{"q": "a"}]}, "missing_index_uid", "Missing field `indexUid` inside `.queries[0]`"),
    ({"queries": [{"indexUid": "films", "limit": -1}]}, "invalid_search_limit",
     "Invalid value type at `.queries[0].limit`: expected a positive integer, but found a negative integer: `-1`"),
    ({"queries": [{"indexUid": "films", "federationOptions": {"weight": -1}}]}, "invalid_multi_search_weight",
     "Invalid value at `.queries[0].federationOptions.weight`: the value of `weight` is invalid, expected a positive "
     "float (>= 0.0)."),
    ({"queries": [{"indexUid": "films", "federationOptions": 1}]}, "invalid_multi_search_federation_options",
     "Invalid value type at `.queries[0].federationOptions`: expected an object, but found a positive integer: `1`"),
    ({"queries": [], "federation": {"facetsByIndex": {"a": "b"}}}, "invalid_multi_search_facets_by_index",
     'Invalid value type at `.federation.facetsByIndex.a`: expected an array, but found a string: `"b"`'),
    ({"queries": [], "federation": {"facetsByIndex": {"a": [], "b c": []}}}, "invalid_multi_search_facets_by_index",
     "Invalid value at `.federation.facetsByIndex`: `b c` is not a valid index uid. Index uid can be an integer or a string "
     "containing only alphanumeric characters, hyphens (-) and underscores (_), and can not be more than 512 bytes."),
    ({"queries": [], "federation": {"mergeFacets": {"a": 1}}}, "invalid_multi_search_merge_facets",
     "Unknown field `a` inside `.federation.mergeFacets`: expected one of `maxValuesPerFacet`"),
    ({"queries": [], "federation": {"mergeFacets": {"maxValuesPerFacet": "a"}}},
     "invalid_multi_search_max_values_per_facet",
     "Invalid value type at `.federation.mergeFacets.maxValuesPerFacet`: expected a positive integer, but found a "
     'string: `"a"`'),
    ({"queries": [], "federation": {"showPerformanceDetails": "true"}}, "invalid_search_show_performance_details",
     "Invalid value type at `.federation.showPerformanceDetails`: expected a boolean, but found a string: `\"true\"`"),
    ({"queries": [], "federation": {"personalize": {"userContext": "me"}}}, "feature_not_enabled",
     "reranking search results requires enabling the `personalization` experimental feature. "
     "See https://github.com/orgs/svc/discussions/866"),
])
def test_bodies_are_checked(client, body, code, message) -> None:
    assert client.json("POST", "/multi-search", body).fault == (400, code, message)


REFUSED = "is not allowed in federated queries."
REMOVE = "from the query or remove `federation` from the request"
TOGETHER = {  # members of a query, in the order of the checks: the code, and parts of the message
    "offset": ({"offset": 0, "page": 1}, "invalid_multi_search_query_pagination", "options", "`offset`"),
    "facets": ({"facets": ["a", "é"]}, "invalid_multi_search_query_facets", "options",
               '`federation.facetsByIndex.films: ["a", "é"]`'),
    "personalize": ({"personalize": {"userContext": "me"}}, "invalid_multi_search_query_personalization",
                    "`.personalize`", "`federation.personalize`"),
    "useNetwork": ({"useNetwork": True, "federationOptions": {"remote": "r"}},
                   "invalid_multi_search_federation_options", "`.useNetwork`", "`.federationOptions.remote`"),
    "showPerformanceDetails": ({"showPerformanceDetails": False}, "invalid_multi_search_query_show_performance_details",
                               "`.showPerformanceDetails`", "`showPerformanceDetails`"),
    "distinct": ({"distinct": "year"}, "invalid_multi_search_distinct", "`distinct` options", "discouraged"),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_what_the_federation_says_may_not_stand_in_a_query(client, indexes, name) -> None:
    members, code, *parts = TOGETHER[name]
    later = {} if name == "useNetwork" else {key: value for other in list(TOGETHER)[list(TOGETHER).index(name) + 1:]
                                             for key, value in TOGETHER[other][0].items()}
    status, found, message = post(client, query(), query(**later, **members), query("nowhere", limit=1),
                                  federation={"distinct": "year"}).fault
    assert (status, found) == (400, code) and message.startswith("Inside `.queries[1]`: Using ")
    assert all(part in message for part in parts)
    assert indexes == []


def test_the_texts_of_refused_options(client) -> None:
    assert post(client, query(page=2), federation={}).fault[2] == (
        f"Inside `.queries[0]`: Using pagination options {REFUSED}\n - Hint: remove `page` {REMOVE}\n"
        " - Hint: pass `federation.limit` and `federation.offset` for pagination in federated search")
    assert post(client, query(federationOptions={})).fault == (
        400, "invalid_multi_search_federation_options",
        "Inside `.queries[0]`: Using `federationOptions` is not allowed in a non-federated search.\n"
        " - Hint: remove `federationOptions` from the query or add `federation` to the request.")


def test_empty_options_are_allowed(client) -> None:
    assert post(client, query(facets=[], limit=None, federationOptions=None), federation={}).status == 200


@pytest.mark.parametrize("federation", [None, {}])
@pytest.mark.parametrize(("wrong", "message"), [
    (query("nowhere"), "Index `nowhere` not found."),
    (query(sort=["title:asc"]), "Index `films`: Attribute `title` is not sortable. This index does not have configured "
                                "sortable attributes."),
    (query(distinct="title"), "Index `films`: Attribute `title` is not filterable and thus, cannot be used as distinct "
                              "attribute. Available filterable attributes patterns are: `year`."),
    (query(sort=["title"]), "Invalid syntax for the sort parameter: expected expression ending by `:asc` or `:desc`, "
                            "found `title`."),
])
def test_the_place_of_a_query_opens_what_is_refused_of_it(client, federation, wrong, message) -> None:
    status, _, found = post(client, query("songs"), wrong, federation=federation).fault
    assert (status, found) == (400, f"Inside `.queries[1]`: {message}")


@pytest.mark.parametrize("federation", [None, {}])
def test_each_query_has_its_filter(client, federation) -> None:
    got = post(client, query(filter="year = 2"), query("songs", filter=["year > 0"]), federation=federation).value
    hits = [hit["title"] for each in got.get("results", [got]) for hit in each["hits"]]
    assert sorted(hits) == ["sun", "sun night"]
    refused = post(client, query(), query("songs", filter="title = a"), federation=federation).fault
    assert refused[1] == "invalid_search_filter"
    assert refused[2].startswith("Inside `.queries[1]`: Index `songs`: Attribute `title` is not filterable.")


def test_filters_are_read_before_all_else(client, indexes) -> None:
    got = post(client, query("nowhere", limit=1), query(filter="year ="), federation={}).fault
    assert got[:2] == (400, "invalid_search_filter") and got[2].startswith("Inside `.queries[1]`: ")
    assert indexes == []


def test_joins_are_reported_as_by_one_search(client) -> None:
    client.instance.force_feature("foreignKeys")
    joined = query(filter="_foreign(title, id = 1)")
    reason = "Index `films`: Field `title` is not a foreign key"
    assert post(client, joined, federation={}).fault == (400, "invalid_search_filter", reason)
    assert post(client, joined).fault == (400, "invalid_search_filter", f"Inside `.queries[0]`: {reason}")
    assert post(client, query("nowhere", filter=joined["filter"]), federation={}).fault == (
        400, "index_not_found", "Inside `.queries[0]`: Index `nowhere` not found.")


def test_indexes_are_searched_in_the_order_of_their_names(client, indexes) -> None:
    got = post(client, query("songs", distinct="title"), query("nowhere"), query("films"), federation={}).fault
    assert indexes == ["films", "nowhere"]
    assert got[2] == "Inside `.queries[1]`: Index `nowhere` not found."


def test_each_index_must_be_allowed(client, monkeypatch, indexes) -> None:
    monkeypatch.setattr(Permission, "allows", lambda _self, index_uid: index_uid == "films")
    for federation in (None, {}):
        got = post(client, query(limit=1, federationOptions={}), query("songs"), federation=federation).fault
        assert got == (403, "invalid_api_key", "Inside `.queries[1]`: The provided API key is invalid.")
    assert indexes == []


def test_other_instances_need_their_feature(client) -> None:
    remote, position = query(federationOptions={"remote": "r"}), query(federationOptions={"queryPosition": 7})
    needs = "requires enabling the `network` experimental feature. See https://github.com/orgs/svc/discussions/805"
    assert post(client, remote, federation={}).fault[2] == (
        f"Inside `.queries[0]`: Performing a remote federated search {needs}")
    assert post(client, position, federation={}).fault[2] == (
        f"Inside `.queries[0]`: Using `federationOptions.queryPosition` {needs}")
    assert post(client, query(useNetwork=False, federationOptions={"remote": "r"}), federation={}).fault[2] == (
        f"Inside `.queries[0]`: Performing a remote federated search {needs}")
    client.instance.force_feature("network")
    assert post(client, position, remote, federation={}).fault == (
        400, "invalid_multi_search_remote",
        "Inside `.queries[1]`: Invalid `.federation_options.remote`: remote `r` is not registered")
    shown = post(client, position, federation={}).value["hits"][0]["_federation"]
    assert shown["queriesPosition"] == 7


def test_all_queries_have_one_place(client, monkeypatch) -> None:
    places: list[int] = []

    @contextmanager
    def place() -> Iterator[None]:
        places.append(len(places))
        yield

    monkeypatch.setattr(client.searches, "slot", place)
    post(client, query(), query("songs"))
    post(client, query(), query("songs"), federation={})
    assert places == [0, 1]


@pytest.mark.parametrize(("value", "is_shown"), [("true", True), ("TRUE", True), ("1", True), ("false", False), ("", False)])
def test_metadata_is_shown_when_asked_for(client, check_shape, value, is_shown) -> None:
    headers = {"content-type": "application/json", "svc-include-metadata": value}
    separate = client.send("POST", "/multi-search", b'{"queries":[{"indexUid":"films","q":"sun"}]}', headers).value
    merged = client.send("POST", "/multi-search", b'{"queries":[{"indexUid":"songs","q":null},{"indexUid":"films","q":""}],'
                         b'"federation":{}}', headers).value
    check_shape(separate, "MultiSearchAnswer")
    check_shape(merged, "MultiSearchAnswer")
    assert ("metadata" in separate["results"][0], "metadata" in merged) == (is_shown, is_shown)
    if is_shown:
        assert list(separate["results"][0]["metadata"]) == ["query", "queryUid", "indexUid", "primaryKey"]
        assert [list(each) for each in merged["metadata"]] == [["queryUid", "indexUid", "primaryKey"],
                                                               ["query", "queryUid", "indexUid", "primaryKey"]]


NO_DIRECTION = "Invalid syntax for the sort parameter: expected expression ending by `:asc` or `:desc`, found `title`."


@pytest.mark.parametrize("federation", [None, {}])
def test_filters_are_read_first_and_sort_expressions_last(client, federation) -> None:
    queries = [query("nowhere", sort=["title"]), query(filter="year = ")]
    status, code, message = post(client, *queries, federation=federation).fault
    assert (status, code) == (400, "invalid_search_filter") and message.startswith("Inside `.queries[1]`: Was expecting")
    assert post(client, *queries[:1], federation=federation).fault[1] == "index_not_found"
    assert post(client, query(), query(sort=["title"]), federation=federation).fault == (
        400, "invalid_search_sort", f"Inside `.queries[1]`: {NO_DIRECTION}")


def test_a_single_search_reads_sort_expressions_last(client) -> None:
    def searched(index_uid: str) -> Any:
        return client.json("POST", f"/indexes/{index_uid}/search", {"sort": ["title"]}).fault

    assert searched("nowhere")[:2] == (404, "index_not_found")
    assert searched("films") == (400, "invalid_search_sort", NO_DIRECTION)


# Bounds


def test_queries_have_a_bound(client) -> None:
    assert len(post(client, *[query()] * bounds.QUERIES.most).value["results"]) == bounds.QUERIES.most
    assert post(client, *[query()] * (bounds.QUERIES.most + 1)).fault == (
        400, "bad_request", "Invalid value at `.queries`: expected at most 1000 queries, but found 1001")


@pytest.mark.parametrize("path", ["/indexes/films/search", "/indexes/films/facet-search", "/indexes/films/similar"])
def test_values_of_a_search_have_a_bound(client, path: str) -> None:
    got = client.json("POST", path, {"vector": [0] * MAX_SEARCH_VALUES})
    assert got.fault == (413, "payload_too_large", "The provided payload reached the size limit. The maximum accepted number of "
                                                   f"values in a payload of this kind is {MAX_SEARCH_VALUES}.")


def test_the_answer_has_a_bound(client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_search, "MAX_ANSWER", 1024)
    status, code, message = post(client, *[query()] * 50).fault
    assert (status, code) == (400, "bad_request")
    assert message.startswith("The answers to the first ") and message.endswith(
        " of 50 queries have more than 1 KiB: lower `limit` or `attributesToRetrieve`, or send fewer queries at once.")


def test_the_memory_of_answers_is_given_back(client, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = post(client, *[query()] * 20).value
    monkeypatch.setattr(answers, "MEMORY_STEP", 1024)
    monkeypatch.setattr(streaming, "WHOLE", 1024)
    memory = client.app.services.answer_memory
    portions = client.parts("POST", "/multi-search", {"queries": [query()] * 20})
    assert memory.taken > 0
    text = b"".join(portions)
    portions.close()
    assert memory.taken == 0
    assert [len(result["hits"]) for result in json.loads(text)["results"]] == [len(result["hits"]) for result in whole["results"]]
    memory.take(multi_search.MAX_ANSWER * 2)
    status, _, message = post(client, *[query()] * 20).fault
    assert status == 503
    assert message.endswith("Other requests take all of the memory that there is for large answers: try again later.")
    assert memory.taken == multi_search.MAX_ANSWER * 2


def test_ranked_hits_of_a_federation_have_a_bound(client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_RANKED", 30)
    assert post(client, query(), query("songs"), federation={"limit": 1000}).status == 200  # one of each index
    assert post(client, query(), query(), federation={"limit": 15}).status == 200
    assert post(client, query(), query(), federation={"limit": 16}).fault == (
        400, "invalid_search_limit", "The queries together rank more than 30 hits: each ranks those up to the end of the page. Lower "
                                     "`limit` and `offset` (or `page` and `hitsPerPage`) of `.federation`, or send fewer queries at once.")


def test_others_go_first_between_queries(client, indexes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read_before = list[int]()
    monkeypatch.setattr(client.searches, "yield_turn", lambda: read_before.append(len(indexes)))
    post(client, query(), query("songs"), query())
    assert sorted(set(read_before))[:3] == [0, 1, 2]


def test_all_queries_end_their_ranking_in_time(client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_search, "REQUEST_S", -1.0)
    first, second = post(client, query(q="sun", showRankingScoreDetails=True), query(q="sun", showRankingScoreDetails=True)).value["results"]
    for result in (first, second):
        assert all("skipped" in hit["_rankingScoreDetails"] for hit in result["hits"]) and result["hits"]
