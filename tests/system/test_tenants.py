"""What must hold of searches with tenant tokens, against a daemon.

1. The filter of the rule holds, whatever the request asks for besides.
2. The rule of the index decides, else that of the longest pattern.
3. A filter looks into another index, and hits show its documents, only for who may search all of that.
"""
from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.bearers import signed
from tests.support.daemon import Daemon, running

MASTER_KEY = "a-master-key-of-some-length"
PATIENCE_S = 15.0
FILMS = [{"id": number, "owner": number % 3, "director": f"d{number % 2}"} for number in range(9)]
OWN = [0, 3, 6]  # the films of owner 0
RULE = {"films": {"filter": "owner = 0"}}


class FilmServer:
    """A daemon with films, and a key to search all of it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.ask(MASTER_KEY, "PATCH", "/experimental-features", {"foreignKeys": True})
        self.done("/indexes/directors/settings", {"filterableAttributes": ["name"]})
        keys = [{"foreignIndexUid": "directors", "fieldName": "director"}]
        self.done("/indexes/films/settings", {"filterableAttributes": ["owner", "id", "director"], "foreignKeys": keys})
        self.done("/indexes/directors/documents", [{"id": "d0", "name": "x"}, {"id": "d1", "name": "y"}], "POST")
        self.done("/indexes/films/documents", FILMS, "POST")
        self.key = self.new_key(["*"])

    def ask(self, bearer: str, method: str, path: str, value: Any = None) -> tuple[int, Any]:
        content = None if value is None else json.dumps(value)
        reply = self.daemon.call(method, path, content, {"authorization": f"Bearer {bearer}"})
        return reply.status, reply.json

    def done(self, path: str, value: Any, method: str = "PATCH") -> None:
        status, summary = self.ask(MASTER_KEY, method, path, value)
        assert status == 202, summary
        deadline = time.monotonic() + PATIENCE_S
        while (task := self.ask(MASTER_KEY, "GET", f"/tasks/{summary['taskUid']}")[1])["finishedAt"] is None:
            assert time.monotonic() < deadline, task
            time.sleep(0.002)
        assert task["status"] == "succeeded", task

    def new_key(self, indexes: list[str], action: str = "search") -> dict[str, Any]:
        body = {"actions": [action], "indexes": indexes, "expiresAt": None}
        return self.ask(MASTER_KEY, "POST", "/keys", body)[1]

    def token(self, rules: Any) -> str:
        return signed({"searchRules": rules, "apiKeyUid": self.key["uid"]}, self.key["key"])

    def found(self, bearer: str, condition: Any = None) -> list[int]:
        """The ids of the films that every form of a search finds."""
        status, answer = self.ask(bearer, "POST", "/indexes/films/search", {"filter": condition, "limit": 99})
        assert status == 200, answer
        text = "" if condition is None else condition if isinstance(condition, str) else json.dumps(condition)
        in_url = self.ask(bearer, "GET", f"/indexes/films/search?limit=99&filter={quote(text)}")[1]
        assert in_url["hits"] == answer["hits"]
        query = {"indexUid": "films", "filter": condition}
        separate = self.ask(bearer, "POST", "/multi-search", {"queries": [{**query, "limit": 99}]})[1]
        assert separate["results"][0]["hits"] == answer["hits"]
        merged = self.ask(bearer, "POST", "/multi-search", {"queries": [query], "federation": {"limit": 99}})[1]
        ids = [hit["id"] for hit in answer["hits"]]
        assert [hit["id"] for hit in merged["hits"]] == ids
        facet = {"facetName": "director", "filter": condition}
        values = self.ask(bearer, "POST", "/indexes/films/facet-search", facet)[1]["facetHits"]
        assert sum(value["count"] for value in values) == len(ids)
        return ids


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilmServer]:
    folder: Path = tmp_path_factory.mktemp("tenants")
    with running(folder, "--master-key", MASTER_KEY) as daemon:
        yield FilmServer(daemon)
        assert daemon.bugs() == []


@pytest.mark.parametrize(("condition", "ids"), [
    (None, OWN), ("", OWN), ([], OWN), ([[]], OWN), ("id > 2", [3, 6]), (["id > 2", "id < 6"], [3]),
    ("id = 1 OR id = 3", [3]), ([["id = 1", "owner = 1", "owner != 0"]], []), ("NOT owner = 0", []),
    ("owner = 1", []), ("owner EXISTS", OWN), ([["owner = 0", "owner = 1"]], OWN),
])
def test_a_rule_holds_for_any_filter(server: FilmServer, condition: Any, ids: list[int]) -> None:
    assert server.found(server.token(RULE), condition) == ids


@pytest.mark.parametrize("rules", [
    {"films": {"filter": ["owner = 0"]}}, {"films": {"filter": [["owner = 0", "id = 99"]]}},
    {"*": {"filter": "owner = 0"}}, {"fi*": {"filter": "owner = 0"}, "*": None},
    {"films": {"filter": "owner = 0"}, "film*": {"filter": "owner = 1"}}])
def test_the_rule_of_the_index_decides(server: FilmServer, rules: Any) -> None:
    assert server.found(server.token(rules)) == OWN


@pytest.mark.parametrize("rules", [
    ["*"], {"films": None}, {"films": {}}, {"films": None, "*": {"filter": "owner = 0"}}])
def test_without_a_filter_all_is_found(server: FilmServer, rules: Any) -> None:
    assert len(server.found(server.token(rules))) == len(FILMS)


@pytest.mark.parametrize("condition", ["owner = 0) OR (owner = 1", "owner = 0 OR", '"', 5, {"owner": 1}])
def test_nothing_gets_around_a_rule(server: FilmServer, condition: Any) -> None:
    status, answer = server.ask(server.token(RULE), "POST", "/indexes/films/search", {"filter": condition})
    assert (status, answer["code"]) == (400, "invalid_search_filter")


def test_a_filter_looks_only_where_its_bearer_may_search(server: FilmServer) -> None:
    join = "_foreign(director, name = x)"
    for bearer in (MASTER_KEY, server.key["key"], server.token(["*"]), server.token(["films", "directors"])):
        assert server.found(bearer, join) == [0, 2, 4, 6, 8]
    for bearer in (server.new_key(["films"])["key"], server.token(["films"]),
                   server.token({"films": None, "directors": {"filter": "name = x"}})):
        status, answer = server.ask(bearer, "POST", "/indexes/films/search", {"filter": join})
        assert (status, answer["code"]) == (403, "invalid_api_key")
        assert directors(server, bearer) == ["d0", "d1"]


def test_a_list_of_documents_looks_only_where_its_bearer_may_read(server: FilmServer) -> None:
    asked = ("POST", "/indexes/films/documents/fetch", {"filter": "_foreign(director, name = x)"})
    status, answer = server.ask(server.new_key(["*"], "documents.get")["key"], *asked)
    assert status == 200 and [document["id"] for document in answer["results"]] == [0, 2, 4, 6, 8]
    status, answer = server.ask(server.new_key(["films"], "documents.get")["key"], *asked)
    assert (status, answer["code"]) == (403, "invalid_api_key")


def directors(server: FilmServer, bearer: str) -> list[Any]:
    """What the first two films show of their directors."""
    return [hit["director"] for hit in server.ask(bearer, "POST", "/indexes/films/search", {"limit": 2})[1]["hits"]]


def test_documents_of_another_index_are_shown_to_who_may_search_all_of_it(server: FilmServer) -> None:
    for bearer in (MASTER_KEY, server.key["key"], server.token(["*"]), server.token(["films", "directors"])):
        assert directors(server, bearer) == [{"id": "d0", "name": "x"}, {"id": "d1", "name": "y"}]


def test_facets_are_counted_only_where_the_bearer_may_search(server: FilmServer) -> None:
    body = {"queries": [{"indexUid": "films"}], "federation": {"facetsByIndex": {"films": ["director"]}}}
    bearer = server.token(RULE)
    status, answer = server.ask(bearer, "POST", "/multi-search", body)
    assert (status, answer["facetsByIndex"]["films"]["distribution"]) == (200, {"director": {"d0": 2, "d1": 1}})
    body["federation"]["facetsByIndex"]["directors"] = ["name"]
    status, answer = server.ask(bearer, "POST", "/multi-search", body)
    assert (status, answer["code"]) == (403, "invalid_api_key")
    assert answer["message"] == "Inside `.federation.facetsByIndex.directors`: The provided API key is invalid."
