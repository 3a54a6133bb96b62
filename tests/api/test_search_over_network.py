"""What must hold of searches over the network:

1. Each remote is asked once, with all its queries, for the hits up to the end of the page; the filter is sent in canonical form
   with that of a tenant token, and its own key. It must not ask on.
2. Lists are merged by what orders their hits; totals and facets are added; hits say where they come from.
3. A remote that fails is named and the others answer; a hit that cannot be merged fails its remote, one of another form is
   left out. Errors of this instance end the request.
4. This instance takes part under its name alone. Without remotes there is nothing to find.
5. A query may name one instance, or use all of them, not both; a name that is not known is refused.
6. Pins of remotes take their places after those of this instance.
7. Asked by another instance, each hit says how it compares, and what `distinct` and facets need of its document.
8. Metadata names the instance, and the primary key that it knows.
9. Of two hits that share a value of `distinct` one is left, and the other is not counted.
"""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.bearers import MASTER_KEY, token
from tests.support.scripted_server import Reply, ScriptedServer

FILMS = [
    {"id": 1, "title": "sun", "color": "red", "rank": 2}, {"id": 2, "title": "sun moon", "color": "blue", "rank": 4},
    {"id": 3, "title": "moon", "color": "red", "rank": 6},
]
PROXIED = {"content-type": "application/json", "svc-proxy-search": "true"}


@pytest.fixture(autouse=True)
def films(client, work) -> None:
    """The index `films`, and the feature."""
    client.json("PATCH", "/experimental-features", {"network": True})
    client.json("PATCH", "/indexes/films/settings", {
        "searchableAttributes": ["title"], "filterableAttributes": ["color", "rank"], "sortableAttributes": ["rank"]})
    client.json("POST", "/indexes/films/documents", FILMS)
    work()


@pytest.fixture
def remote_of(client, scripted_server) -> Callable[..., ScriptedServer]:
    """remote_of(name, *replies) -> a remote of the network, in which this instance is `a`."""
    client.json("PATCH", "/network", {"self": "a", "remotes": {"a": {"url": "http://here"}}})

    def start(name: str, *replies: Any) -> ScriptedServer:
        remote: ScriptedServer = scripted_server(*replies)
        url = f"{remote.url}/path?query=1"
        client.json("PATCH", "/network", {"remotes": {name: {"url": url, "searchApiKey": f"key of {name}"}}})
        return remote

    return start


def hit(number: Any, *values: Any, score: float = 1.0, query: int = 0, **others: Any) -> dict[str, Any]:
    """A hit as another instance gives it. values: what it is ordered by; others: further members of `_federation`."""
    federation = {"indexUid": "films", "queriesPosition": query, "weightedRankingScore": score, "weightedScoreValues": list(values),
                  "extra_document": {}, **others}
    return {"id": number, "_federation": federation}


def answer(*hits: Any, total: int | None = None, **others: Any) -> Reply:
    count = len(hits) if total is None else total
    return Reply({"hits": hits, "processingTimeMs": 1, "limit": 20, "offset": 0, "estimatedTotalHits": count, **others})


def scored(score: float) -> dict[str, float]:
    return {"weightedScore": score}


def ranked(value: Any) -> dict[str, Any]:
    return {"sort": {"asc": True, "value": value}}


def search(client, **members: Any) -> Any:
    return client.json("POST", "/indexes/films/search", {"useNetwork": True, **members})


def federated(client, *queries: Any, **federation: Any) -> Any:
    asked = [{"indexUid": "films", **query} for query in queries]
    return client.json("POST", "/multi-search", {"federation": federation, "queries": asked})


def ids(got: Any) -> list[Any]:
    assert got.status == 200, got.text
    return [each["id"] for each in got.value["hits"]]


def to(remote: str, **members: Any) -> dict[str, Any]:
    """A query that names a remote."""
    return {"federationOptions": {"remote": remote}, **members}


# What remotes are sent


def test_a_remote_is_asked_for_the_hits_up_to_the_end_of_the_page(client, remote_of) -> None:
    remote = remote_of("b", answer(hit(7, scored(0.99)), total=9))
    got = search(client, q="sun", limit=3, offset=1, facets=["color"], filter="rank >= 0")
    (call,) = remote.requests
    assert (call.method, call.path) == ("POST", "/multi-search")
    assert call.headers["authorization"] == "Bearer key of b"
    assert call.headers["svc-proxy-search"] == call.headers["meili-proxy-search"] == "true"
    (query,) = call.body["queries"]
    assert query["filter"] == '"rank" >= "0"'
    assert query["federationOptions"] == {"weight": 1.0, "remote": None, "queryPosition": 0}
    left_out = ("limit", "offset", "page", "hitsPerPage", "facets", "useNetwork", "showPerformanceDetails")
    assert [query[name] for name in left_out] == [None] * 7
    assert call.body["federation"] == {
        "limit": 4, "offset": 0, "facetsByIndex": {"films": ["color"]}, "showPerformanceDetails": False}
    assert (got.value["limit"], got.value["offset"], got.value["estimatedTotalHits"]) == (3, 1, 11)
    assert [each["_federation"]["remote"] for each in got.value["hits"]] == ["b", "a"]


def test_of_numbered_pages_all_hits_up_to_the_page_are_asked_for(client, remote_of) -> None:
    remote = remote_of("b", Reply({"hits": [hit(number, scored(0.1)) for number in range(4)], "processingTimeMs": 1,
                                   "page": 1, "hitsPerPage": 4, "totalPages": 1, "totalHits": 4}))
    got = search(client, q="sun", page=2, hitsPerPage=2)
    assert {"limit": 20, "offset": 0, "page": 1, "hitsPerPage": 4}.items() <= remote.requests[0].body["federation"].items()
    assert (ids(got), got.value["totalHits"], got.value["totalPages"]) == ([0, 1], 6, 3)
    assert ids(search(client, q="sun", page=0)) == []
    assert {"page": 0, "hitsPerPage": 20}.items() <= remote.requests[1].body["federation"].items()


def test_all_queries_for_a_remote_go_in_one_call(client, remote_of) -> None:
    remote = remote_of("b", answer())
    first = {"q": "sun", "federationOptions": {"remote": "b", "weight": 0.5}}
    assert ids(federated(client, first, {"q": "moon"}, {"q": "moon", "useNetwork": True})) == [3, 2]
    options = [query["federationOptions"] for query in remote.requests[0].body["queries"]]
    assert options == [{"weight": 0.5, "remote": None, "queryPosition": 0}, {"weight": 1.0, "remote": None, "queryPosition": 2}]


def test_what_a_federation_leaves_to_this_instance(client, remote_of) -> None:
    remote = remote_of("b", answer())
    federation = {"mergeFacets": {}, "facetsByIndex": {"films": ["color"]}, "distinct": "color", "showPerformanceDetails": True}
    federated(client, to("b", q="sun"), **federation)
    assert remote.requests[0].body["federation"] == {
        "limit": 20, "offset": 0, "facetsByIndex": {"films": ["color"]}, "distinct": "color", "showPerformanceDetails": True}


def test_the_filter_of_a_tenant_token_is_sent(connect, client, remote_of) -> None:
    remote, closed = remote_of("b", answer()), connect(MASTER_KEY)
    key = closed.ask(MASTER_KEY, "POST", "/keys", {"actions": ["search"], "indexes": ["*"], "expiresAt": None}).value
    bearer = token({"films": {"filter": "rank = 2"}}, key["uid"])
    got = closed.ask(bearer, "POST", "/indexes/films/search", {"useNetwork": True, "filter": "color = red"})
    assert ids(got) == [1]
    assert remote.requests[0].body["queries"][0]["filter"].endswith('AND ("rank" = "2")')
    assert remote.requests[0].headers["authorization"] == "Bearer key of b"


# Merging


def test_equal_hits_come_in_the_order_of_a_heap_of_lists(client, remote_of) -> None:
    for name in "bcdez":
        remote_of(name, answer(hit(f"{name}1"), hit(f"{name}2")))
    assert ids(search(client)) == [1, 2, 3, *(f"{name}{number}" for name in "zedcb" for number in (1, 2))]


def test_hits_are_ordered_by_scores_and_sort_values(client, remote_of) -> None:
    remote_of("b", answer(hit(10, ranked(1)), hit(11, ranked(5.0)), hit(12, ranked("x")), hit(13, ranked(None))))
    assert ids(search(client, sort=["rank:asc"])) == [10, 1, 2, 11, 3, 12, 13]


def test_facets_are_added_and_cut_by_the_settings_here(client, remote_of, work) -> None:
    counted = {"films": {"distribution": {"color": {"green": 5, "red": 2}}, "stats": {"rank": {"min": 0, "max": 3}}}}
    remote_of("b", answer(facetsByIndex=counted))
    client.json("PATCH", "/indexes/films/settings/faceting", {"sortFacetValuesBy": {"color": "count"}})
    work()
    got = search(client, facets=["color", "rank"]).value
    assert list(got["facetDistribution"]["color"].items()) == [("green", 5), ("red", 4), ("blue", 1)]
    assert got["facetStats"] == {"rank": {"min": 0.0, "max": 6.0}}
    named = federated(client, {"useNetwork": True}, facetsByIndex={"films": ["color"]}).value["facetsByIndex"]
    assert named["films"]["distribution"] == {"color": {"green": 5, "red": 4, "blue": 1}}
    merged = federated(client, {"useNetwork": True}, facetsByIndex={"films": ["color"]}, mergeFacets={"maxValuesPerFacet": 2}).value
    assert merged["facetDistribution"] == {"color": {"green": 5, "red": 4}}


def test_hits_that_share_a_value_of_distinct_are_left_out(client, remote_of) -> None:
    near = {**hit(7, ranked(3), extra_document={"color": "RED"}), "title": "x"}
    far = hit(8, ranked(9), extra_document={"color": "green"})
    counted = {"films": {"distribution": {"color": {"red": 1, "green": 1}}, "stats": {}}}
    remote = remote_of("b", answer(near, far, facetsByIndex=counted))
    got = search(client, sort=["rank:asc"], distinct="color", facets=["color"])
    assert ids(got) == [1, 2, 8]
    assert got.value["estimatedTotalHits"] == 3
    assert got.value["facetDistribution"] == {"color": {"red": 1, "blue": 1, "green": 1}}
    assert remote.requests[0].body["queries"][0]["distinct"] is None


def test_the_processing_time_is_the_longest(client, remote_of) -> None:
    remote_of("b", Reply({**answer().body, "processingTimeMs": 5000}))
    assert search(client).value["processingTimeMs"] == 5000


def test_pins_of_remotes_come_after_those_of_this_instance(client, remote_of, work) -> None:
    client.json("PATCH", "/experimental-features", {"dynamicSearchRules": True})
    pin = {"selector": {"id": "3"}, "action": {"type": "pin", "position": 0}}
    client.json("PATCH", "/dynamic-search-rules/pin", {"actions": [pin]})
    work()
    remote_of("b", answer(hit(10, pinnedPosition=0), hit(11, pinnedPosition=40), hit(12, scored(0.99))))
    got = search(client, q="sun")
    assert ids(got) == [3, 10, 1, 12, 2, 11]
    assert all(each["_federation"].keys() == {"indexUid", "queriesPosition", "weightedRankingScore", "remote"}
               for each in got.value["hits"])


def test_vectors_of_queries_are_joined(client, remote_of) -> None:
    remote_of("b", answer(queryVectors={"0": [0.1, 0.2]}))
    got = federated(client, to("b", q="sun", retrieveVectors=True), {"q": "sun"})
    assert got.value["queryVectors"] == {"0": [0.1, 0.2]}


# Failures


def failed(got: Any) -> dict[str, str]:
    """Name of a remote -> code of its error."""
    return {name: error["code"] for name, error in got.value["remoteErrors"].items()}


def test_a_remote_that_fails_is_named(client, remote_of) -> None:
    remotes = [remote_of(name, Reply({}, status)) for name, status in (("b", 403), ("c", 400), ("d", 500))]
    got = search(client, q="sun")
    assert ids(got) == [1, 2]
    assert failed(got) == {"b": "remote_invalid_api_key", "c": "remote_bad_request", "d": "remote_remote_error"}
    assert [len(remote.requests) for remote in remotes] == [1, 1, 4]
    assert got.value["estimatedTotalHits"] == 2


@pytest.mark.parametrize("given", [
    {"id": 1}, {"id": 1, "_federation": 3}, {"id": 1, "_federation": {"weightedRankingScore": 1.0}},
    {"id": 1, "_federation": {"weightedScoreValues": []}},
])
def test_a_hit_that_cannot_be_merged_fails_its_remote(client, remote_of, given) -> None:
    remote = remote_of("b", answer(given, total=5))
    got = search(client, q="sun")
    assert (ids(got), got.value["estimatedTotalHits"], failed(got)) == ([1, 2], 2, {"b": "remote_bad_response"})
    assert len(remote.requests) == 1


@pytest.mark.parametrize("others", [
    {"queriesPosition": None}, {"weightedScoreValues": [{"other": 1}]}, {"weightedScoreValues": 1}, {"extra_document": [1]},
    {"weightedRankingScore": "x"}, {"pinnedPosition": -1}, {"weightedScoreValues": [ranked([1])]},
])
def test_a_hit_with_a_member_of_another_form_is_left_out(client, remote_of, others) -> None:
    remote_of("b", answer(hit(9, **others), total=5))
    got = search(client, q="sun")
    assert (ids(got), got.value["estimatedTotalHits"], got.value["remoteErrors"]) == ([1, 2], 7, {})


@pytest.mark.parametrize("reply", [
    Reply(b"hello"), Reply(b"", 204), Reply({"hits": []}), Reply({**answer().body, "hits": [1]}),
    answer(facetsByIndex={"films": {"distribution": {"color": {"red": "many"}}}}), answer(queryVectors={"x": []}),
])
def test_what_is_no_answer_is_asked_for_again(client, remote_of, reply) -> None:
    remote = remote_of("b", reply)
    assert failed(search(client, q="sun")) == {"b": "remote_bad_response"}
    assert len(remote.requests) == 4


def test_errors_of_this_instance_end_the_request(client, remote_of) -> None:
    remote_of("b", answer())
    status, code, message = search(client, q="sun", filter="title = sun").fault
    assert (status, code) == (400, "invalid_search_filter")
    assert message.startswith("Index `films`: ")
    unknown = client.json("POST", "/indexes/nothing/search", {"useNetwork": True})
    assert unknown.fault == (404, "index_not_found", "Index `nothing` not found.")
    inside = federated(client, {"useNetwork": True}, {"indexUid": "nothing", "useNetwork": True}).fault
    assert inside == (400, "index_not_found", "Inside `.queries[1]`: Index `nothing` not found.")


# Who takes part


def test_without_remotes_there_is_nothing_to_find(client) -> None:
    got = search(client, q="sun")
    assert (ids(got), got.value["estimatedTotalHits"]) == ([], 0)
    assert "remoteErrors" not in got.value
    assert client.json("POST", "/indexes/nothing/search", {"useNetwork": True}).status == 200


def test_an_instance_outside_of_its_network_does_not_search(client, remote_of) -> None:
    remote_of("b", answer(hit(7), total=5))
    client.json("PATCH", "/network", {"remotes": {"a": None}})
    unknown = client.json("POST", "/indexes/nothing/search", {"useNetwork": True})
    assert (ids(unknown), unknown.value["estimatedTotalHits"]) == ([7], 5)
    asked = client.json("POST", "/indexes/nothing/search", {"useNetwork": True, "facets": ["color"]})
    assert asked.fault[:2] == (404, "index_not_found")
    assert ids(search(client)) == [7]


def test_a_query_may_name_this_instance(client) -> None:
    client.json("PATCH", "/network", {"self": "a"})
    got = federated(client, to("a", q="sun"))
    assert (ids(got), got.value["remoteErrors"]) == ([1, 2], {})
    assert got.value["hits"][0]["_federation"]["remote"] == "a"


def test_names_that_are_refused(client, remote_of) -> None:
    remote = remote_of("b", answer(hit(7)))
    assert federated(client, to("zzz")).fault == (
        400, "invalid_multi_search_remote",
        "Inside `.queries[0]`: Invalid `.federation_options.remote`: remote `zzz` is not registered")
    assert federated(client, to("b", useNetwork=True)).fault[1] == "invalid_multi_search_federation_options"
    assert remote.requests == []
    assert ids(federated(client, to("b", useNetwork=False))) == [7]
    assert remote.requests[0].body["queries"][0]["useNetwork"] is None


def test_without_the_feature_the_network_is_refused(client) -> None:
    client.json("PATCH", "/experimental-features", {"network": False})
    for value in (True, False):
        assert search(client, useNetwork=value).fault[1] == "feature_not_enabled"
    status, code, message = client.send("POST", "/multi-search", json.dumps({"federation": {}, "queries": []}).encode(), PROXIED).fault
    assert (status, code) == (400, "feature_not_enabled")
    assert message.startswith("Performing a remote federated search requires enabling the `network` experimental feature.")


def test_each_of_several_searches_asks_the_network(client, remote_of) -> None:
    remote_of("b", answer(hit(7, scored(0.99))))
    got = client.json("POST", "/multi-search", {"queries": [
        {"indexUid": "films", "q": "sun", "useNetwork": True}, {"indexUid": "films", "q": "sun"}]}).value["results"]
    assert [[each["id"] for each in one["hits"]] for one in got] == [[1, 7, 2], [1, 2]]
    assert [(one["indexUid"], "remoteErrors" in one) for one in got] == [("films", True), ("films", False)]


def test_a_search_with_a_query_string_asks_the_network(client, remote_of) -> None:
    remote_of("b", answer(hit(7, scored(0.99))))
    assert ids(client.get("/indexes/films/search?q=sun&useNetwork=true")) == [1, 7, 2]
    assert ids(client.get("/indexes/films/search?q=sun&useNetwork=false")) == [1, 2]
    assert client.get("/indexes/films/search?useNetwork=maybe").fault[1] == "invalid_search_use_network"


def test_metadata_names_instances_and_primary_keys(client, remote_of) -> None:
    known = [{"indexUid": "films", "queryUid": "x", "primaryKey": "isbn"}]
    remote = remote_of("b", answer(hit(7), metadata=known))
    remote_of("c", answer(metadata=known))
    queries = [{"indexUid": "films", **query} for query in ({"q": "sun"}, to("a"), to("b"), to("c"))]
    got = client.send("POST", "/multi-search", json.dumps({"federation": {}, "queries": queries}).encode(),
                      {"content-type": "application/json", "meili-include-metadata": "true"}).value["metadata"]
    shown = [(entry.get("query"), entry.get("primaryKey"), entry.get("remote")) for entry in got]
    assert shown == [("sun", "id", "a"), (None, None, "a"), (None, "isbn", "b"), (None, None, "c")]
    assert remote.requests[0].headers["svc-include-metadata"] == "true"
    single = client.send("POST", "/indexes/films/search", b'{"useNetwork": true}',
                         {"content-type": "application/json", "svc-include-metadata": "1"}).value["metadata"]
    assert (single["primaryKey"], single["remote"]) == ("id", "a")


# Being a remote


def proxied(client, *queries: Any, **federation: Any) -> Any:
    asked = [{"indexUid": "films", **query} for query in queries]
    return client.send("POST", "/multi-search", json.dumps({"federation": federation, "queries": asked}).encode(), PROXIED)


def test_a_remote_says_how_its_hits_compare(client) -> None:
    got = proxied(client, {"sort": ["rank:desc"], "federationOptions": {"queryPosition": 4}}, limit=1)
    assert got.value["hits"] == [{**FILMS[2], "_federation": {
        "indexUid": "films", "queriesPosition": 4, "weightedRankingScore": 1.0,
        "weightedScoreValues": [{"sort": {"asc": False, "value": 6.0}}], "extra_document": {}}}]
    assert proxied(client, {}).value["hits"][0]["_federation"]["weightedScoreValues"] == []
    half = proxied(client, {"q": "sun", "federationOptions": {"weight": 0.5}}).value["hits"][0]["_federation"]
    assert half["weightedScoreValues"] == [{"weightedScore": half["weightedRankingScore"]}] == [{"weightedScore": 0.5}]
    assert "remoteErrors" not in got.value


def test_a_remote_tells_values_that_its_hits_do_not_show(client) -> None:
    federation = {"distinct": "color", "facetsByIndex": {"films": ["rank"]}, "limit": 1}
    got = proxied(client, {"attributesToRetrieve": ["id"]}, **federation).value["hits"]
    assert got[0]["_federation"]["extra_document"] == {"color": "red", "rank": 2}
    whole = proxied(client, {}, **federation).value["hits"]
    assert whole[0]["_federation"]["extra_document"] == {}


def test_a_remote_names_queries_as_the_caller_does(client) -> None:
    got = proxied(client, {"indexUid": "nothing", "federationOptions": {"queryPosition": 3}})
    assert got.fault == (400, "index_not_found", "Inside `.queries[3]`: Index `nothing` not found.")


def test_two_instances_agree(client, remote_of) -> None:
    """What this instance answers as a remote is what it can read."""
    reply = proxied(client, {"q": "sun moon", "federationOptions": {"queryPosition": 0}}, facetsByIndex={"films": ["color", "rank"]})
    remote_of("b", Reply(reply.value))
    got = search(client, q="sun moon", facets=["color", "rank"])
    assert sorted(ids(got)) == sorted(2 * [each["id"] for each in reply.value["hits"]])
    assert got.value["facetDistribution"]["color"] == {"blue": 2, "red": 2}
    scores = [each["_federation"]["weightedRankingScore"] for each in got.value["hits"]]
    assert scores == sorted(scores, reverse=True)
