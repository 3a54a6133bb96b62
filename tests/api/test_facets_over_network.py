"""What must hold of facet searches over the network:

1. Each remote is asked once, at the same path, with what a facet search knows; it must not ask on.
2. Counts of equal values are added, in the order that this index has for the facet; nothing is cut again.
3. This instance always takes part: its errors end the request, and its time is the one that is shown.
4. A remote that fails is named; `remoteErrors` is always there.
5. The filter of a tenant token goes along, and the key of the remote instead of the bearer's.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.bearers import MASTER_KEY as MASTER
from tests.support.bearers import token
from tests.support.scripted_server import Reply, ScriptedServer

@pytest.fixture
def owner(connect, work) -> Any:
    """A client with a master key, and the index `films`."""
    client = connect(MASTER)
    client.ask(MASTER, "PATCH", "/experimental-features", {"network": True})
    client.ask(MASTER, "PATCH", "/indexes/films/settings", {"filterableAttributes": ["color", "u"]})
    client.ask(MASTER, "POST", "/indexes/films/documents",
               [{"id": n, "color": color, "u": n % 2} for n, color in enumerate(("red", "Blue", "red", "green"))])
    work()
    return client


@pytest.fixture
def remote_of(owner, scripted_server) -> Callable[..., ScriptedServer]:
    """remote_of(name, *replies) -> a remote of the network; this instance is none of them."""
    def start(name: str, *replies: Any) -> ScriptedServer:
        remote: ScriptedServer = scripted_server(*replies)
        owner.ask(MASTER, "PATCH", "/network", {"remotes": {name: {"url": remote.url, "searchApiKey": "k"}}})
        return remote

    return start


def found(**counts: int) -> Reply:
    hits = [{"value": value, "count": count} for value, count in counts.items()]
    return Reply({"facetHits": hits, "facetQuery": None, "processingTimeMs": 77_000})


def search(owner, bearer: str = MASTER, **members: Any) -> Any:
    return owner.ask(bearer, "POST", "/indexes/films/facet-search", {"facetName": "color", "useNetwork": True, **members})


def counts(answer: Any) -> list[tuple[str, int]]:
    assert answer.status == 200, answer.text
    return [(hit["value"], hit["count"]) for hit in answer.value["facetHits"]]


def test_a_remote_is_asked_at_the_same_path(owner, remote_of) -> None:
    remote = remote_of("b", found(blue=1))
    answer = search(owner, facetQuery="b", zzz=1, filter="u >= 0", limit=3)
    assert counts(answer) == [("Blue", 1), ("blue", 1)]
    assert list(answer.value) == ["facetHits", "facetQuery", "processingTimeMs", "remoteErrors"]
    assert answer.value["facetQuery"] == "b" and answer.value["processingTimeMs"] < 77_000 and answer.value["remoteErrors"] == {}
    [call] = remote.requests
    assert (call.method, call.path, call.headers["authorization"]) == ("POST", "/indexes/films/facet-search", "Bearer k")
    absent = dict.fromkeys(("q", "vector", "media", "hybrid", "attributesToSearchOn", "rankingScoreThreshold", "locales",
                            "exhaustiveFacetCount", "useNetwork"))
    assert call.body == {**absent, "facetName": "color", "facetQuery": "b", "filter": "u >= 0", "matchingStrategy": "last"}
    assert call.headers["svc-proxy-search"] == "true"


def test_the_body_of_one_is_understood_by_another(owner, remote_of) -> None:
    remote = remote_of("b", found())
    search(owner, q="x", matchingStrategy="all", rankingScoreThreshold=0.1, attributesToSearchOn=["color"], locales=["eng"])
    assert owner.ask(MASTER, "POST", "/indexes/films/facet-search", remote.requests[0].body).status == 200


def test_counts_are_added(owner, remote_of, work) -> None:
    remote_of("b", found(amber=5, red=2))
    remote_of("c", found(red=1, violet=2))
    assert counts(search(owner)) == [("amber", 5), ("Blue", 1), ("green", 1), ("red", 5), ("violet", 2)]
    owner.ask(MASTER, "PATCH", "/indexes/films/settings", {"faceting": {"sortFacetValuesBy": {"color": "count"}, "maxValuesPerFacet": 2}})
    work()
    assert counts(search(owner))[:3] == [("amber", 5), ("red", 5), ("violet", 2)]
    assert len(counts(search(owner))) == 4  # one of the two values with a count of 1 was cut here


def test_failures_are_named(owner, remote_of, check_shape) -> None:
    remote_of("b", Reply({"facetHits": [{"value": 1, "count": 1}]}))
    remote_of("c", found(red=1))
    answer = search(owner)
    assert counts(answer) == [("Blue", 1), ("green", 1), ("red", 3)]
    check_shape(answer.value, "FacetSearchAnswer")
    assert [(name, error["code"]) for name, error in answer.value["remoteErrors"].items()] == [("b", "remote_bad_response")]


def test_this_instance_always_takes_part(owner, remote_of) -> None:
    assert search(owner).value["remoteErrors"] == {} and len(counts(search(owner))) == 3
    remote_of("b", found())
    assert search(owner, facetName="other").fault[1] == "invalid_facet_search_facet_name"
    assert owner.ask(MASTER, "POST", "/indexes/nowhere/facet-search", {"facetName": "x", "useNetwork": True}).fault[1] == (
        "index_not_found")


def test_the_rules_of_a_token_go_along(owner, remote_of) -> None:
    remote = remote_of("b", found(red=1))
    key = owner.ask(MASTER, "POST", "/keys", {"actions": ["search"], "indexes": ["*"], "expiresAt": None}).value
    bearer = token({"films": {"filter": "u = 1"}}, key["uid"])
    assert counts(search(owner, bearer, filter=["color = blue"])) == [("Blue", 1), ("red", 1)]
    assert remote.requests[0].body["filter"] == ["color = blue", "u = 1"]
    assert remote.requests[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize("value", [True, False])
def test_the_feature_is_needed(owner, value: bool) -> None:
    owner.ask(MASTER, "PATCH", "/experimental-features", {"network": False})
    assert search(owner, useNetwork=value).fault[1] == "feature_not_enabled"
