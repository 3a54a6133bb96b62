"""Personalized searches. What must hold:

1. The service gets the context of the user, the query, and the documents of the page as they are returned, without what the
   search adds to them but with `_federation`; the hits come in its order, and all else stays.
2. This holds for POST and GET, for queries of a multi-search and for merged lists; documents of other indexes are not sent.
3. Without a key the search runs first, so that its own errors come first; then it fails, also without hits.
4. No call is made for no hits. Failures are those of the service; in a multi-search they name the query.
5. Each search asks again: no answer is kept, and none is shown to another user.
6. At the deadline of the search the hits stay as they are.
7. Searches are counted, and measured as a step; a search that waits for the service leaves its slot to others.
8. Without it none of its code is loaded.
"""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from svcd.api.search_services import prompt_of
from svcd.remote.client import Answer
from svcd.remote.reranking import Reranker
from tests.support.dict_reader import DictReader
from tests.support.patched_reading import read_indexes

FILMS = [{"id": 1, "title": "sun red", "by": 7, "secret": 1}, {"id": 2, "title": "sun", "by": 8, "secret": 2}]
INDEXES = {
    "films": DictReader(FILMS, {"displayedAttributes": ["id", "title", "by"], "searchableAttributes": ["title"],
                                "filterableAttributes": ["by"],
                                "foreignKeys": [{"fieldName": "by", "foreignIndexUid": "people"}]}),
    "people": DictReader([{"id": 7, "name": "sun"}, {"id": 8, "name": "red"}], {}),
    "slow": DictReader(FILMS, {"searchCutoffMs": 0}),
}
SEARCH = "/indexes/films/search"
ME = {"personalize": {"userContext": "likes odd"}}
NOT_ENABLED = ("reranking search results requires enabling the `personalization` experimental feature. "
               "See https://github.com/orgs/svc/discussions/866")


class Service:
    """Answers with `order` or `status`. asked: the bodies that it got; during: called with each request."""

    def __init__(self) -> None:
        self.order: list[int] = [1, 0]
        self.status = 200
        self.asked: list[Any] = []
        self.during: Callable[[], None] = lambda: None

    def exchange(self, url: str, headers: Any, body: bytes, within_s: float, most_bytes: int) -> Answer:
        self.asked.append(json.loads(body))
        self.during()
        return Answer(self.status, {}, json.dumps({"results": [{"index": place} for place in self.order]}).encode())

    @property
    def documents(self) -> list[Any]:
        """Of the last request."""
        return [json.loads(text) for text in self.asked[-1]["documents"]]

    @property
    def query(self) -> str:
        return self.asked[-1]["query"]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(connect: Any, service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    read_indexes(monkeypatch, INDEXES)
    return connect(make_reranker=lambda: Reranker("key", service.exchange, wait=lambda seconds: None))


def ids(answer: Any) -> list[int]:
    return [hit["id"] for hit in answer["hits"]]


def source(score: float, uid: str = "films", query: int = 0) -> dict[str, Any]:
    return {"indexUid": uid, "queriesPosition": query, "weightedRankingScore": score}


def test_hits_come_in_the_order_of_the_service(client: Any, service: Service) -> None:
    asked = {"q": "sun", "showRankingScore": True, "attributesToHighlight": ["*"], "facets": ["by"],
             "showMatchesPosition": True}
    plain = client.json("POST", SEARCH, asked).value
    personal = client.json("POST", SEARCH, {**asked, **ME}).value
    assert ids(personal) == ids(plain)[::-1]
    assert personal["hits"] == plain["hits"][::-1]
    changing = {"hits", "processingTimeMs", "requestUid"}
    assert {name: personal[name] for name in personal.keys() - changing} == {
        name: plain[name] for name in plain.keys() - changing}
    assert service.query == "User Context: likes odd\nQuery: sun"
    score = {hit["id"]: hit["_rankingScore"] for hit in plain["hits"]}
    assert service.documents == [
        {**{name: film[name] for name in ("id", "title", "by")}, "_federation": source(score[film["id"]])}
        for film in sorted(FILMS, key=lambda film: ids(plain).index(film["id"]))]
    assert [list(document)[-1] for document in service.documents] == ["_federation"] * 2


def test_scores_are_sent_whole_when_the_answer_shows_none(client: Any, service: Service) -> None:
    scores = [hit["_rankingScore"] for hit in client.json("POST", SEARCH, {"q": "sun", "showRankingScore": True}).value["hits"]]
    client.json("POST", SEARCH, {"q": "sun", **ME})
    assert [document["_federation"]["weightedRankingScore"] for document in service.documents] == scores


def test_only_what_is_retrieved_is_sent(client: Any, service: Service) -> None:
    client.json("POST", SEARCH, {"q": "sun", "attributesToRetrieve": ["title", "secret"], **ME})
    assert [sorted(document) for document in service.documents] == [["_federation", "title"]] * 2


def test_only_the_page_is_ordered(client: Any, service: Service) -> None:
    service.order = [0]
    got = client.json("POST", SEARCH, {"q": "sun", "limit": 1, "offset": 1, **ME}).value
    assert len(service.documents) == len(got["hits"]) == 1 and got["estimatedTotalHits"] == 2


@pytest.mark.parametrize(("order", "expected"), [([1], [1]), ([0, 0], [0, 0]), ([5, 1], [1]), ([], [])])
def test_hits_may_be_left_out_or_repeated(client: Any, service: Service, order: list[int], expected: list[int]) -> None:
    plain = ids(client.json("POST", SEARCH, {"q": "sun"}).value)
    service.order = order
    got = client.json("POST", SEARCH, {"q": "sun", **ME}).value
    assert ids(got) == [plain[place] for place in expected] and got["estimatedTotalHits"] == 2


def test_a_query_string_asks_as_well(client: Any, service: Service) -> None:
    plain = ids(client.get(f"{SEARCH}?q=sun").value)
    assert ids(client.get(f"{SEARCH}?q=sun&personalizeUserContext=me").value) == plain[::-1]
    assert service.query == "User Context: me\nQuery: sun"
    client.get(f"{SEARCH}?personalizeUserContext=")
    assert service.query == "User Context: \nQuery: "


def test_null_asks_for_nothing(client: Any, service: Service) -> None:
    client.json("POST", SEARCH, {"personalize": None})
    assert service.asked == []


def test_queries_of_one_request_ask_for_themselves(client: Any, service: Service) -> None:
    queries = [{"indexUid": "films", "q": "sun"}, {"indexUid": "films", "q": "sun", **ME}, {"indexUid": "people", **ME}]
    first, second, third = client.json("POST", "/multi-search", {"queries": queries}).value["results"]
    assert ids(second) == ids(first)[::-1] and ids(third) == [8, 7]
    assert [body["query"] for body in service.asked] == ["User Context: likes odd\nQuery: sun",
                                                         "User Context: likes odd\nQuery: "]


def test_a_merged_list_is_ordered_as_one(client: Any, service: Service) -> None:
    queries = [{"indexUid": "films", "q": "sun", "showRankingScore": True}, {"indexUid": "people", "q": ""},
               {"indexUid": "people"}, {"indexUid": "films", "q": "red"}]
    plain = client.json("POST", "/multi-search", {"queries": queries, "federation": {}}).value
    service.order = list(range(len(plain["hits"])))[::-1]
    got = client.json("POST", "/multi-search", {"queries": queries, "federation": ME}).value
    assert got["hits"] == plain["hits"][::-1] and len(got["hits"]) > 2
    assert service.query == "User Context: likes odd\nQuery: sun, , red"
    assert [document["_federation"] for document in service.documents] == [hit["_federation"] for hit in plain["hits"]]
    assert not any("_rankingScore" in document for document in service.documents)


def test_documents_of_other_indexes_are_not_sent(client: Any, service: Service) -> None:
    client.instance.force_feature("foreignKeys")
    got = client.json("POST", SEARCH, {"q": "sun", **ME}).value
    assert {hit["by"]["id"] for hit in got["hits"]} == {7, 8}
    assert {document["by"] for document in service.documents} == {7, 8}


def test_legacy_search_sends_less(client: Any, service: Service) -> None:
    client.instance.force_feature("legacySearch")
    client.json("POST", SEARCH, ME)
    assert service.query == "User Context: likes odd" and "_federation" not in service.documents[0]


def test_the_prompt_of_no_query() -> None:
    assert prompt_of("me", [], False) == "User Context: me\nQuery: " == prompt_of("me", [""], True)
    assert prompt_of("me", [], True) == "User Context: me"


# Without a key


@pytest.fixture
def keyless(connect: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    read_indexes(monkeypatch, INDEXES)
    return connect()


def test_without_a_key_it_fails_also_without_hits(keyless: Any) -> None:
    for query in ("sun", "zzzzzzzz"):
        got = keyless.json("POST", SEARCH, {"q": query, **ME})
        assert got.fault == (400, "feature_not_enabled", NOT_ENABLED)
    assert keyless.get(f"{SEARCH}?personalizeUserContext=").fault == (400, "feature_not_enabled", NOT_ENABLED)
    queries = [{"indexUid": "films"}, {"indexUid": "films", **ME}]
    got = keyless.json("POST", "/multi-search", {"queries": queries})
    assert got.fault == (400, "feature_not_enabled", f"Inside `.queries[1]`: {NOT_ENABLED}")
    got = keyless.json("POST", "/multi-search", {"queries": queries[:1], "federation": ME})
    assert got.fault == (400, "feature_not_enabled", NOT_ENABLED)


@pytest.mark.parametrize(("path", "body", "code"), [
    ("/indexes/nope/search", {}, "index_not_found"), (SEARCH, {"filter": "title = a"}, "invalid_search_filter"),
    (SEARCH, {"sort": ["title:asc"]}, "invalid_search_sort"), (SEARCH, {"facets": ["title"]}, "invalid_search_facets"),
    (SEARCH, {"useNetwork": True}, "feature_not_enabled"),
])
def test_errors_of_the_search_come_first(keyless: Any, path: str, body: Any, code: str) -> None:
    _, found, message = keyless.json("POST", path, {**body, **ME}).fault
    assert found == code and message != NOT_ENABLED


def test_errors_of_a_merged_search_come_first(keyless: Any) -> None:
    got = keyless.json("POST", "/multi-search", {"queries": [{"indexUid": "nope"}], "federation": ME})
    assert got.fault[1:] == ("index_not_found", "Inside `.queries[0]`: Index `nope` not found.")


# Failures, deadline, cache


def test_no_hits_are_not_sent(client: Any, service: Service) -> None:
    assert client.json("POST", SEARCH, {"q": "zzzzzzzz", **ME}).value["hits"] == [] == service.asked


@pytest.mark.parametrize(("status", "code", "answered"), [
    (401, "remote_invalid_api_key", 403), (400, "remote_bad_request", 400), (404, "remote_bad_response", 502)])
def test_failures_are_those_of_the_service(client: Any, service: Service, status: int, code: str, answered: int) -> None:
    service.status = status
    got = client.json("POST", SEARCH, {"q": "sun", **ME})
    assert got.fault[:2] == (answered, code) and got.fault[2].startswith("Personalization service: ")
    assert len(service.asked) == 1
    queries = [{"indexUid": "films", **ME}]
    assert client.json("POST", "/multi-search", {"queries": queries}).fault == (
        answered, code, f"Inside `.queries[0]`: {got.fault[2]}")
    assert client.json("POST", "/multi-search", {"queries": [{"indexUid": "films"}], "federation": ME}).fault == got.fault


def test_it_is_tried_again(client: Any, service: Service) -> None:
    service.status = 500

    def recover() -> None:
        service.status = 200 if len(service.asked) > 1 else 500

    service.during = recover
    assert len(client.json("POST", SEARCH, {"q": "sun", **ME}).value["hits"]) == 2
    assert len(service.asked) == 2


def test_at_the_deadline_hits_stay_as_they_are(client: Any, service: Service) -> None:
    plain = client.json("POST", "/indexes/slow/search", {}).value
    personal = client.json("POST", "/indexes/slow/search", ME).value
    assert personal["hits"] == plain["hits"] and service.asked == []


def test_no_answer_is_kept(client: Any, service: Service) -> None:
    first = ids(client.json("POST", SEARCH, {"q": "sun", **ME}).value)
    service.order = [0, 1]
    assert ids(client.json("POST", SEARCH, {"q": "sun", **ME}).value) == first[::-1]
    assert ids(client.json("POST", SEARCH, {"q": "sun"}).value) == first[::-1]
    assert len(service.asked) == 2 and not list(client.app.services.search_cache.messages())[1:]


# Metrics, steps, slots


def test_searches_are_counted_also_those_that_fail(client: Any, service: Service) -> None:
    client.instance.force_feature("metrics")
    assert "personalized" not in client.get("/metrics").text
    client.json("POST", SEARCH, ME)
    client.get(f"{SEARCH}?personalizeUserContext=me")
    client.json("POST", "/indexes/nope/search", ME)
    client.json("POST", SEARCH, {"q": "sun"})
    client.json("POST", "/multi-search", {"queries": [{"indexUid": "films", **ME}]})
    figures = client.get("/metrics").text
    assert "\nsvc_personalized_search_requests 3\n" in figures and "degraded" not in figures


def test_searches_that_reach_their_limit_are_counted(client: Any) -> None:
    client.instance.force_feature("metrics")
    for _ in range(2):
        client.json("POST", "/indexes/slow/search", {"q": "sun red"})
    assert "\nsvc_degraded_search_requests 2\n" in client.get("/metrics").text


def test_it_is_a_step(client: Any, service: Service) -> None:
    step = "search > merge results > personalization"
    details = client.json("POST", SEARCH, {"q": "sun", "showPerformanceDetails": True, **ME}).value["performanceDetails"]
    assert list(details)[-5:] == [step, "search > merge results", "search > execute local search > format",
                                  "search > execute local search", "search"]
    queries = [{"indexUid": "films", "q": "sun"}]
    merged = client.json("POST", "/multi-search", {"queries": queries, "federation": {"showPerformanceDetails": True, **ME}})
    assert step in merged.value["performanceDetails"]
    assert client.json("POST", SEARCH, {"q": "sun", "showPerformanceDetails": True}).value["performanceDetails"].keys().isdisjoint(
        (step, "search > merge results"))


def test_a_waiting_search_has_no_slot(client: Any, service: Service) -> None:
    running: list[int] = []
    service.during = lambda: running.append(client.searches.running)
    client.json("POST", SEARCH, {"q": "sun", **ME})
    assert running == [0] and client.searches.running == 0


def test_nothing_is_loaded_without_it() -> None:
    code = ("import sys, svcd.cli.wiring, svcd.search.search\n"
            "print([name for name in sys.modules if name.endswith(('.personalization', '.reranking'))])")
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == "[]"
