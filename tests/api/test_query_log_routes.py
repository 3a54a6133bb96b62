"""The routes of the query log. What must hold:

1. Every route that searches is logged, once for each query, with its index, key and hits; nothing else is.
2. A key counts the searches on its indexes alone, and does not see other keys; tenant tokens count nothing.
3. A click counts if its key searched that index with that request; a token with a filter may click.
4. Without a query log both routes say how to get one. Faults in parameters are named.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from svcd.api.query_log import ROUTES
from svcd.instance.instance import Instance
from svcd.instance.rows import KeyRow
from svcd.querylog.recorder import Recorder
from svcd.querylog.store import FILE, QueryLog
from tests.api.conftest import Client, client_of
from tests.support.bearers import MASTER_KEY, NOW, Clock, token, uid, value_of

OF_FILMS, OF_BOOKS, READS_FILMS, READS_ALL = map(uid, range(1, 5))
KEYS = (KeyRow(OF_FILMS, ["search"], ["films"], 1, 1), KeyRow(OF_BOOKS, ["search"], ["books"], 1, 1),
        KeyRow(READS_FILMS, ["stats.get"], ["films"], 1, 1), KeyRow(READS_ALL, ["stats.get"], ["*"], 1, 1))


@pytest.fixture
def logged(instance: Instance, work: Callable[[], None]) -> Iterator[Client]:
    client = client_of(instance, MASTER_KEY, Clock(NOW), instance.keys)
    for key in KEYS:
        instance.keys.add(key)
    for index in ("films", "books"):
        client.ask(MASTER_KEY, "PATCH", f"/indexes/{index}/settings", {"filterableAttributes": ["id"]})
        client.ask(MASTER_KEY, "POST", f"/indexes/{index}/documents", [{"id": 1, "title": "Star Wars"}, {"id": 2, "title": "Dune"}])
    work()
    log = QueryLog(instance.path / FILE, 1 << 20, 100)
    recorder = client.app.services.query_log = Recorder(log.write)
    yield client
    recorder.stop()
    log.close()


def search(client: Client, key: str, index: str, q: str | None, **others: Any) -> str:
    """Search and return the request uid."""
    got = client.ask(key, "POST", f"/indexes/{index}/search", {"q": q, **others})
    assert got.status == 200, got.text
    return str(got.value["requestUid"])


def counted(client: Client, key: str = MASTER_KEY, query: str = "") -> Any:
    got = client.ask(key, "GET", f"/analytics/searches{query}")
    assert got.status == 200, got.text
    return got.value


def test_every_search_is_logged_once(logged: Client, check_shape: Callable[[Any, Any], None]) -> None:
    for _ in range(3):  # the second and third come from the cache
        search(logged, MASTER_KEY, "films", "star")
    search(logged, value_of(OF_FILMS), "films", "nothing")
    logged.ask(MASTER_KEY, "GET", "/indexes/films/search?q=dune")
    queries = [{"indexUid": "films", "q": "star"}, {"indexUid": "books", "q": "dune", "hitsPerPage": 1}]
    logged.ask(MASTER_KEY, "POST", "/multi-search", {"queries": queries})
    logged.ask(MASTER_KEY, "POST", "/multi-search", {"federation": {}, "queries": [queries[0], {"indexUid": "books", "q": "wars"}]})
    logged.ask(MASTER_KEY, "POST", "/indexes/films/search", {"q": "star", "filter": "year = 1"})  # fails
    logged.ask(MASTER_KEY, "POST", "/indexes/films/facet-search", {"facetName": "id"})
    found = counted(logged)
    check_shape(found, ROUTES[1].answers[200])
    assert {(each["indexUid"], each["query"]): each["searches"] for each in found["queries"]} == {
        ("films", "star"): 5, ("films", "dune"): 1, ("films", "nothing"): 1, ("books", "dune"): 1, ("books", "wars"): 1}
    assert (found["searches"], found["withoutHits"]) == (9, 1)
    assert [each["query"] for each in found["queriesWithoutHits"]] == ["nothing"]
    assert {each["key"]: each["searches"] for each in found["byKey"]} == {None: 8, OF_FILMS: 1}


def test_keys_count_searches_on_their_indexes(logged: Client) -> None:
    search(logged, value_of(OF_FILMS), "films", "star")
    search(logged, value_of(OF_BOOKS), "books", "hushed")
    found = counted(logged, value_of(READS_FILMS))
    assert (found["searches"], list(found["byIndex"]), found["byKey"]) == (1, ["films"], None) and "hushed" not in json.dumps(found)
    assert counted(logged, value_of(READS_FILMS), "?indexUid=books")["searches"] == 0
    assert counted(logged, value_of(READS_ALL))["searches"] == 2
    for bearer in (value_of(OF_FILMS), token(["films"], OF_FILMS), token({"films": {"filter": "id = 1"}}, READS_ALL)):
        assert logged.ask(bearer, "GET", "/analytics/searches").fault[:2] == (403, "invalid_api_key")


def test_clicks_count_for_searches_of_the_same_key(logged: Client) -> None:
    tenant = token({"films": {"filter": "id = 1"}}, OF_FILMS)
    first, second = search(logged, value_of(OF_FILMS), "films", "star"), search(logged, tenant, "films", "wars")
    third = search(logged, MASTER_KEY, "films", "dune")

    def click(bearer: str, index: str, request_uid: str, position: int | None) -> int:
        event = {"requestUid": request_uid, "documentId": "1", "position": position}
        return logged.ask(bearer, "POST", f"/indexes/{index}/events", event).status

    assert click(value_of(OF_FILMS), "films", first, 2) == click(tenant, "films", second, None) == 204
    assert click(value_of(OF_FILMS), "films", third, 1) == 204  # accepted, and counts nothing
    assert click(value_of(OF_FILMS), "books", first, 1) == 403
    found = counted(logged)
    assert {each["query"]: each["clicked"] for each in found["queries"]} == {"star": 1, "wars": 1, "dune": 0}
    assert (found["clicked"], found["averageClickPosition"]) == (2, 2)


@pytest.mark.parametrize(("method", "url", "value", "message"), [
    ("POST", "/indexes/films/events", {"requestUid": "x", "documentId": "1"}, "Invalid value at `.requestUid`: "),
    ("POST", "/indexes/films/events", {"requestUid": uid(1), "documentId": "1"}, "is not the `requestUid` of a search"),
    ("POST", "/indexes/films/events", {"requestUid": uid(1)[:14] + "7" + uid(1)[15:], "documentId": ""}, "a document id is not empty"),
    ("POST", "/indexes/films/events", {"requestUid": "f18f0000-0000-7000-8000-000000000000", "documentId": "1"}, "is not the `requestUid`"),
    ("POST", "/indexes/films/events", {"requestUid": "018f0000-0000-7000-8000-000000000000", "documentId": "1", "position": 2 ** 64 - 1},
     "maximum value authorized is `1000000`"),
    ("POST", "/indexes/films/events", {}, "Missing field `requestUid`"),
    ("GET", "/analytics/searches?from=yesterday", None, "`yesterday` is not a date: write 2026-12-31"),
    ("GET", "/analytics/searches?from=2026-01-02&to=2026-01-01", None, "Query parameter `from` must be before `to`."),
    ("GET", "/analytics/searches?limit=1001", None, "at most 1000 rows are listed"),
])
def test_faults_are_named(logged: Client, method: str, url: str, value: Any, message: str) -> None:
    status, code, said = logged.ask(MASTER_KEY, method, url, value).fault
    assert (status, code) == (400, "bad_request") and message in said


def test_without_a_log_both_routes_say_how_to_get_one(client: Client) -> None:
    for got in (client.get("/analytics/searches"),
                client.json("POST", "/indexes/films/events", {"requestUid": "018f0000-0000-7000-8000-000000000000", "documentId": "1"})):
        assert got.fault[:2] == (400, "feature_not_enabled") and "--query-log" in got.fault[2]
