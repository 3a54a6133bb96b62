"""What must hold of documents over the network:

1. Each remote is asked once, for the documents up to the end of the page, and must not ask on.
2. Pages are merged by the values of `sort`, ties and pages without order by the byte order of the names; totals are added.
3. A remote that fails is named, in words, and the others answer; a page that cannot be merged fails the request.
4. This instance takes part under its name alone; its errors end the request. Without remotes there is nothing to find.
5. A document is looked for here first, then everywhere.
6. Asked by another instance, each document comes with the values that it is sorted by.
7. Even `useNetwork: false` needs the feature.
"""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.scripted_server import Reply, ScriptedServer

DOCUMENTS = [
    {"id": 1, "color": "red", "rank": 2, "_geo": {"lat": 0, "lng": 0}}, {"id": 2, "color": "blue", "rank": 4},
    {"id": 3, "color": "green", "rank": [9, 3]}, {"id": 4},
]
PROXIED = {"content-type": "application/json", "svc-proxy-search": "true"}


@pytest.fixture(autouse=True)
def films(client, work) -> None:
    """The index `films`, and the feature."""
    client.json("PATCH", "/experimental-features", {"network": True})
    client.json("PATCH", "/indexes/films/settings",
                {"filterableAttributes": ["rank"], "sortableAttributes": ["color", "rank", "_geo"]})
    client.json("POST", "/indexes/films/documents", DOCUMENTS)
    work()


@pytest.fixture
def remote_of(client, scripted_server) -> Callable[..., ScriptedServer]:
    """remote_of(name, *replies) -> a remote of the network, in which this instance is `a`."""
    client.json("PATCH", "/network", {"self": "a", "remotes": {"a": {"url": "http://here"}}})

    def start(name: str, *replies: Any) -> ScriptedServer:
        remote: ScriptedServer = scripted_server(*replies)
        client.json("PATCH", "/network", {"remotes": {name: {"url": remote.url, "searchApiKey": "k"}}})
        return remote

    return start


def page(*documents: Any, total: int | None = None, **others: Any) -> Reply:
    """A page as another instance gives it. documents: (document, sort values)."""
    results = [{**document, "_federation": {"weightedScoreValues": list(values)}} for document, values in documents]
    return Reply({"results": results, "offset": 0, "limit": 5, "total": len(results) if total is None else total, **others})


def ranked(value: Any, ascending: bool = True) -> dict[str, Any]:
    return {"sort": {"asc": ascending, "value": value}}


def fetch(client, index_uid: str = "films", **members: Any) -> Any:
    return client.json("POST", f"/indexes/{index_uid}/documents/fetch", {"useNetwork": True, **members})


def ids(answer: Any) -> list[Any]:
    assert answer.status == 200, answer.text
    return [document["id"] for document in answer.value["results"]]


def test_a_remote_is_asked_for_all_up_to_the_end_of_the_page(client, remote_of) -> None:
    remote = remote_of("b", page(total=7))
    answer = fetch(client, limit=3, offset=2, sort=["rank:asc"], filter="rank > 0", fields=["id"], ids=[1, "x"])
    assert answer.value == {"results": [], "offset": 2, "limit": 3, "total": 8}
    [call] = remote.requests
    assert (call.method, call.path) == ("POST", "/indexes/films/documents/fetch")
    assert call.body == {"offset": 0, "limit": 5, "fields": ["id"], "retrieveVectors": False, "ids": [1, "x"], "filter": "rank > 0",
                         "sort": ["rank:asc"], "useNetwork": None}
    assert call.headers["authorization"] == "Bearer k" and call.headers["svc-proxy-search"] == "true"


def test_pages_are_merged_by_the_values_of_sort(client, remote_of) -> None:
    remote_of("b", page(({"id": "b1"}, [ranked(1)]), ({"id": "b2"}, [ranked(4)]), ({"id": "b3"}, [ranked(None)]), total=50))
    remote_of("Z", page(({"id": "z1"}, [ranked(4)]), ({"id": "z2"}, [ranked("text")])))
    answer = fetch(client, sort=["rank:asc"])
    assert ids(answer) == ["b1", 1, 3, "z1", 2, "b2", "z2", 4, "b3"]
    assert answer.value["total"] == 4 + 50 + 2 and "remoteErrors" not in answer.value
    assert all("_federation" not in document for document in answer.value["results"])
    assert ids(fetch(client, sort=["rank:asc"], offset=1, limit=3)) == [1, 3, "z1"]


def test_the_second_expression_decides_ties(client, remote_of) -> None:
    remote_of("b", page(({"id": "b1"}, [ranked(4, False), ranked("black")]), ({"id": "b2"}, [ranked(4, False), ranked("brown")])))
    assert ids(fetch(client, sort=["rank:desc", "color:asc"], limit=4)) == [3, "b1", 2, "b2"]


def test_distances_are_merged(client, remote_of) -> None:
    far = [({"id": "b1"}, [{"geoSort": {"asc": True, "distance": 5.5}}]), ({"id": "b2"}, [{"geoSort": {"asc": True, "distance": None}}])]
    remote_of("b", page(*far))
    assert ids(fetch(client, sort=["_geoPoint(0, 0):asc"])) == [1, "b1", 2, 3, 4, "b2"]


def test_without_order_the_names_decide(client, remote_of) -> None:
    remote_of("b", page(({"id": "b1"}, [])))
    remote_of("Z", page(({"id": "z1"}, []), ({"id": "z2"}, [])))
    assert ids(fetch(client)) == ["z1", "z2", 1, 2, 3, 4, "b1"]


def test_failures_are_named(client, remote_of) -> None:
    remote_of("b", Reply({"code": "x"}, 404))
    remote_of("c", page(({"id": "c1"}, []), remoteErrors={"d": {"code": "remote_timeout"}}))
    answer = fetch(client, limit=5)
    assert ids(answer) == [1, 2, 3, 4, "c1"]
    assert list(answer.value) == ["results", "offset", "limit", "total", "remoteErrors"]
    assert {name: error["code"] for name, error in answer.value["remoteErrors"].items()} == {
        "b": "remote_bad_request", "d": "remote_timeout"}


@pytest.mark.parametrize("body", [{"results": []}, {"results": {}, "offset": 0, "limit": 1, "total": 1},
                                  {"results": [], "offset": 0, "limit": 1, "total": "1"}])
def test_what_is_no_page_is_tried_again(client, remote_of, body: Any) -> None:
    remote = remote_of("b", Reply(body))
    assert fetch(client).value["remoteErrors"]["b"]["code"] == "remote_bad_response"
    assert len(remote.requests) == 4


@pytest.mark.parametrize("document, message", [
    ({"id": 5}, "remote hit does not contain `._federation`"),
    ({"id": 5, "_federation": 7}, "remote hit contains an unexpected value at path `._federation`: expected map, received `7`"),
    ({"id": 5, "_federation": {}}, "remote hit does not contain `._federation.weightedScoreValues`"),
    ({"id": 5, "_federation": {"weightedScoreValues": [1]}}, "could not parse weighted score values in the remote hit: "),
])
def test_a_document_without_values_fails_the_request(client, remote_of, document: Any, message: str) -> None:
    remote = remote_of("b", Reply({"results": [document], "offset": 0, "limit": 20, "total": 1}))
    status, code, words = fetch(client).fault
    assert (status, code) == (502, "remote_bad_response") and words.startswith(message)
    assert len(remote.requests) == 1


def test_without_remotes_there_is_nothing(client) -> None:
    assert fetch(client, "nowhere").value == {"results": [], "offset": 0, "limit": 20, "total": 0}


def test_this_instance_takes_part_under_its_name(client, remote_of) -> None:
    remote_of("b", page(({"id": "b1"}, [])))
    client.json("PATCH", "/network", {"self": "other"})
    assert ids(fetch(client)) == ["b1"]
    assert ids(fetch(client, "nowhere")) == ["b1"]


@pytest.mark.parametrize("index_uid, members, code", [
    ("nowhere", {}, "index_not_found"), ("films", {"sort": ["id:asc"]}, "invalid_document_sort"),
    ("films", {"filter": "id = 1"}, "invalid_document_filter"),
])
def test_errors_here_end_the_request(client, remote_of, index_uid: str, members: Any, code: str) -> None:
    remote_of("b", page())
    assert fetch(client, index_uid, **members).fault[1] == code


def test_the_list_asks_too(client, remote_of) -> None:
    remote = remote_of("b", page(({"id": "b1"}, [ranked(3, False)])))
    assert ids(client.get("/indexes/films/documents?useNetwork=true&sort=rank:desc&limit=3")) == [3, 2, "b1"]
    assert remote.requests[0].method == "POST" and remote.requests[0].body["sort"] == ["rank:desc"]
    assert ids(client.get("/indexes/films/documents?useNetwork=false")) == [1, 2, 3, 4]
    assert client.get("/indexes/films/documents?useNetwork=1").fault[:2] == (400, "invalid_document_use_network")


def test_a_document_is_looked_for_here_first(client, remote_of) -> None:
    remote = remote_of("b", page(({"id": 9, "x": 1}, [])))
    assert client.get("/indexes/films/documents/1?useNetwork=true").value["id"] == 1
    assert not remote.requests
    for index_uid in ("films", "nowhere"):
        assert client.get(f"/indexes/{index_uid}/documents/9?useNetwork=true&fields=x").value == {"id": 9, "x": 1}
    assert remote.requests[0].body.items() >= {"ids": ["9"], "limit": 1, "offset": 0, "fields": ["x"], "useNetwork": None}.items()
    assert client.get("/indexes/films/documents/9").fault[1] == "document_not_found"


def test_a_document_that_nobody_has_is_not_found(client, remote_of) -> None:
    remote_of("b", page())
    assert client.get("/indexes/films/documents/9?useNetwork=true").fault == (404, "document_not_found", "Document `9` not found.")
    remote_of("c", Reply(b"", 401))
    assert "remote `c` failed: could not authenticate" in client.get("/indexes/films/documents/9?useNetwork=true").fault[2]


def proxied(client, header: str = "svc-proxy-search", value: str = "true", **members: Any) -> list[Any]:
    headers = {"content-type": "application/json", header: value}
    answer = client.send("POST", "/indexes/films/documents/fetch", json.dumps(members).encode(), headers)
    assert answer.status == 200, answer.text
    return answer.value["results"]


def test_another_instance_gets_the_values(client) -> None:
    found = proxied(client, sort=["rank:asc", "color:desc"], fields=["id"])
    assert found == [
        {"id": id_, "_federation": {"weightedScoreValues": [ranked(rank), ranked(color, False)]}}
        for id_, rank, color in ((1, 2, "red"), (3, 3, "green"), (2, 4, "blue"), (4, None, None))]
    assert [each["_federation"]["weightedScoreValues"][0]["sort"]["value"] for each in proxied(client, sort=["rank:desc"])] == [
        9, 4, 2, None]
    distances = [each["_federation"]["weightedScoreValues"] for each in proxied(client, sort=["_geoPoint(0, 0):asc"], limit=2)]
    assert distances == [[{"geoSort": {"asc": True, "distance": 0.0}}], [{"geoSort": {"asc": True, "distance": None}}]]


def test_another_instance_is_known_by_its_header(client) -> None:
    client.json("PATCH", "/experimental-features", {"network": False})  # it need not be on here
    assert proxied(client, "meili-proxy-search", limit=1)[0]["_federation"] == {"weightedScoreValues": []}
    assert "_federation" not in proxied(client, value="TRUE", limit=1)[0]
    assert proxied(client, fields=["none"], limit=1) == [{"_federation": {"weightedScoreValues": []}}]


def test_a_field_of_that_name_is_hidden_from_others(client, work) -> None:
    client.json("PUT", "/indexes/films/documents", [{"id": 1, "_federation": "mine"}])
    work()
    assert proxied(client, limit=1)[0]["_federation"] == {"weightedScoreValues": []}


def test_the_network_of_real_instances(client, remote_of) -> None:
    """What one instance sends another one can merge."""
    def answer(call: Any) -> Reply:
        sent = client.send("POST", call.path, json.dumps(call.body).encode(), PROXIED)
        return Reply(sent.text.encode(), sent.status)

    remote_of("b", answer)
    assert ids(fetch(client, sort=["rank:desc", "color:asc"])) == [3, 3, 2, 2, 1, 1, 4, 4]


def test_a_large_page_is_merged_while_it_is_sent(client, remote_of, work) -> None:
    client.json("POST", "/indexes/films/documents", [{"id": n, "text": "x" * 3000, "rank": n} for n in range(100, 300)])
    work()
    remote_of("b", page(*(({"id": f"b{n}"}, [ranked(n + 0.5)]) for n in range(100, 300))))
    found = ids(fetch(client, sort=["rank:asc"], limit=1000))
    assert found[3:9] == [100, "b100", 101, "b101", 102, "b102"] and len(found) == 404


@pytest.mark.parametrize("value", [True, False])
def test_the_feature_is_needed(client, value: bool) -> None:
    client.json("PATCH", "/experimental-features", {"network": False})
    text = json.dumps(value)
    for answer in (fetch(client, useNetwork=value), client.get(f"/indexes/films/documents?useNetwork={text}"),
                   client.get(f"/indexes/films/documents/1?useNetwork={text}")):
        status, code, message = answer.fault
        assert (status, code) == (400, "feature_not_enabled")
        assert message.startswith("passing `useNetwork` in a search query requires")
