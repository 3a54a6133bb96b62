"""Searches by vectors over HTTP. What must hold:

1. A query string means the same as a body; the vector of the query and the count of hits by vectors stand in their places.
2. Searches of one request answer each for itself, or merged, with the vectors of their queries.
3. An answer is cached with its vector and count, but not if the query could not be embedded.
4. While a search waits for a service, it holds no slot of the search queue, and its cutoff stands still; of many that wait
   only so many do so. A service that did not answer in time is asked by one search at a time, if words will do.
5. Errors of services have the words of the interface; `media` needs its feature.
"""
from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from svcd.api.admission import SearchQueue, Timer
from svcd.api.search_services import QueryEmbedding
from svcd.base.errors import ApiError
from svcd.embedding import EmbeddingError
from svcd.search.request import QueryInput
from svcd.vectors.vector import vector_of
from tests.support.dict_reader import DictReader
from tests.support.patched_reading import read_indexes

PATH = "/indexes/films/search"
FILMS = DictReader([
    {"id": 1, "title": "sun", "_vectors": {"e": [1.0, 0.0]}},
    {"id": 2, "title": "night", "_vectors": {"e": [0.0, 1.0]}},
    {"id": 3, "title": "night and sun", "_vectors": {"e": None}},
], {"embedders": {"e": {"source": "rest", "url": "http://a", "request": "{{text}}", "response": "{{embedding}}", "dimensions": 2}}})
SEMANTIC: dict[str, Any] = {"hybrid": {"embedder": "e", "semanticRatio": 1.0}}


class Service:
    """Stands for all embedders. asked: (q, media, seconds) of each query."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, Any, float]] = []
        self.failure: EmbeddingError | None = None
        self.meanwhile: Any = lambda: None

    def get(self, settings: Any, dimensions: int | None) -> Service:
        assert (settings["source"], dimensions) == ("rest", 2)
        return self

    def embed_query(self, q: str | None, media: Any, within_s: float) -> array[float]:
        self.asked.append((q, media, within_s))
        self.meanwhile()
        if self.failure:
            raise self.failure
        return vector_of([0.6, 0.8])


@pytest.fixture
def service(client) -> Service:
    stand_in = Service()
    client.app.services.embedding = QueryEmbedding(client.searches, lambda: stand_in)
    return stand_in


@pytest.fixture(autouse=True)
def films(monkeypatch: pytest.MonkeyPatch) -> None:
    read_indexes(monkeypatch, {"films": FILMS})


def ids(got: dict[str, Any]) -> list[int]:
    return [hit["id"] for hit in got["hits"]]


def members(got: dict[str, Any]) -> Sequence[str]:
    return [name for name in got if name not in ("processingTimeMs", "requestUid")]


def test_a_search_by_a_vector(client, check_shape) -> None:
    got = client.json("POST", PATH, {"vector": [0.1, 1], "retrieveVectors": True, **SEMANTIC}).value
    check_shape(got, "SearchAnswer")
    assert ids(got) == [2, 1, 3] and got["semanticHitCount"] == 3
    assert got["queryVector"] == [0.1, 1.0]  # as short as the number that was sent
    assert got["hits"][0]["_vectors"] == {"e": {"embeddings": [[0.0, 1.0]], "regenerate": False}}
    assert members(got) == ["hits", "query", "queryVector", "limit", "offset", "estimatedTotalHits", "semanticHitCount"]
    assert list(got)[-1] == "semanticHitCount"
    by_query_string = client.get(
        f"{PATH}?vector=0.1,1&retrieveVectors=true&hybridEmbedder=e&hybridSemanticRatio=1").value
    assert {name: by_query_string[name] for name in members(got)} == {name: got[name] for name in members(got)}


def test_numbers_too_large_for_single_precision_are_the_largest_one(client) -> None:
    got = client.json("POST", PATH, {"vector": [1e300, 1e-7], "retrieveVectors": True, **SEMANTIC}).value
    assert got["queryVector"] == [3.4028235e38, 1e-7] and sorted(ids(got)) == [1, 2, 3]


def test_what_is_not_semantic_has_no_count(client, service) -> None:
    for body in ({"q": "sun"}, SEMANTIC, {"q": "sun", "hybrid": {"embedder": "e", "semanticRatio": 0}}):
        assert "semanticHitCount" not in client.json("POST", PATH, {**body, "retrieveVectors": True}).value
    assert service.asked == []


def test_a_query_is_embedded(client, service) -> None:
    got = client.json("POST", PATH, {"q": "light", "retrieveVectors": True, "showPerformanceDetails": True, **SEMANTIC}).value
    assert ids(got) == [2, 1, 3] and got["queryVector"] == [0.6, 0.8]
    assert service.asked == [("light", None, 10.0)]
    assert {"search > execute local search > embed query", "search > execute local search > semantic ranking"} <= set(
        got["performanceDetails"])


def test_several_searches_of_one_request(client, service, check_shape) -> None:
    queries = [{"indexUid": "films", "vector": [1, 0], "retrieveVectors": True, **SEMANTIC},
               {"indexUid": "films", "q": "light", "retrieveVectors": True, **SEMANTIC}, {"indexUid": "films", "q": "sun"}]
    separate = client.json("POST", "/multi-search", {"queries": queries}).value
    check_shape(separate, "MultiSearchAnswer")
    assert [each.get("queryVector") for each in separate["results"]] == [[1.0, 0.0], [0.6, 0.8], None]
    merged = client.json("POST", "/multi-search", {"queries": queries, "federation": {}}).value
    check_shape(merged, "MultiSearchAnswer")
    assert members(merged) == ["hits", "queryVectors", "limit", "offset", "estimatedTotalHits", "semanticHitCount"]
    assert merged["queryVectors"] == {"0": [1.0, 0.0], "1": [0.6, 0.8]} and merged["estimatedTotalHits"] == 3
    assert ids(merged) == [1, 2, 3]
    sources = [hit["_federation"]["queriesPosition"] for hit in merged["hits"]]
    assert sources == [0, 1, 2] and merged["semanticHitCount"] == 2
    plain = client.json("POST", "/multi-search", {"queries": [{"indexUid": "films", "q": "sun"}], "federation": {}}).value
    assert "queryVectors" not in plain and "semanticHitCount" not in plain


def test_answers_are_cached_with_their_vector(client, service) -> None:
    body = {"q": "light", "retrieveVectors": True, **SEMANTIC}
    client.instance.index_state = lambda _uid: type("Row", (), {"state": FILMS.state, "primary_key": "id"})
    first, second = (client.json("POST", PATH, body).value for _ in range(2))
    assert len(service.asked) == 1 and members(first) == members(second)
    assert {name: first[name] for name in members(first)} == {name: second[name] for name in members(second)}
    client.json("POST", PATH, {**body, "retrieveVectors": False})
    assert len(service.asked) == 2


def test_words_do_while_the_service_fails_and_are_not_cached(client, service) -> None:
    body = {"q": "night sun", "hybrid": {"embedder": "e", "semanticRatio": 0.9}}
    service.failure = EmbeddingError("runtime error", "could not reach embedding server:\n  - no route")
    got = client.json("POST", PATH, body).value
    assert ids(got) == [3, 2] and got["semanticHitCount"] == 0 and service.asked[-1][2] == 3.0
    service.failure = None
    got = client.json("POST", PATH, body).value
    assert len(ids(got)) == 3 and got["semanticHitCount"] == 2
    service.failure = EmbeddingError("runtime error", "could not reach embedding server:\n  - no route")
    assert client.json("POST", PATH, {"q": "night sun", **SEMANTIC}).fault == (
        400, "vector_embedding_error",
        "Error while generating embeddings: runtime error: could not reach embedding server:\n  - no route")


def test_a_search_that_waits_for_a_service_holds_no_slot(client, service) -> None:
    seen: list[tuple[int, list[int]]] = []

    def others_go_on() -> None:
        running = client.searches.running
        other = threading.Thread(target=lambda: seen.append((running, ids(client.json("POST", PATH, {"q": "sun"}).value))))
        other.start()
        other.join()

    client.searches.share(2)  # one slot for this process
    service.meanwhile = others_go_on
    assert ids(client.json("POST", PATH, {"q": "light", **SEMANTIC}).value) == [2, 1, 3]
    assert seen == [(0, [1, 3])] and client.searches.running == 0


def test_the_slot_comes_back_after_an_error() -> None:
    searches = SearchQueue(1)
    with searches.slot():
        with pytest.raises(ValueError, match="gone"), searches.paused():
            assert searches.running == 0
            raise ValueError("gone")
        assert searches.running == 1
    assert searches.running == 0
    with searches.paused():  # outside of a search it has no effect
        assert searches.running == 0


def test_the_cutoff_stands_still_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("svcd.api.admission.time.monotonic", lambda: now[0])
    timer = Timer()
    expired = timer(1500)
    now[0] += 1.0
    with timer.paused():
        now[0] += 100.0
    assert not expired() and not timer(1500)()
    now[0] += 0.5
    assert expired()


def test_only_so_many_wait(service) -> None:
    embedding = QueryEmbedding(SearchQueue(1), lambda: service, most=0)
    wanted = QueryInput("e", FILMS.settings.embedders["e"], 2, "q", None, True)
    with pytest.raises(ApiError) as refused:
        embedding.vector(wanted, Timer())
    assert refused.value.code == "too_many_search_requests" and service.asked == []


def test_one_search_at_a_time_asks_a_slow_service_again(client, service, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"q": "night sun", "hybrid": {"embedder": "e", "semanticRatio": 0.9}}
    now = [0.0]
    monkeypatch.setattr("svcd.api.search_services.time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow() -> None:
        now[0] += 3.0

    def asked(offset: int) -> int:
        """How often the service was asked for a search."""
        before = len(service.asked)
        assert client.json("POST", PATH, {**body, "offset": offset}).value["semanticHitCount"] == 0
        return len(service.asked) - before

    service.meanwhile, service.failure = slow, EmbeddingError("runtime error", "gone")
    assert asked(0) == 1
    others: list[int] = []
    service.meanwhile = lambda: (slow(), others.append(asked(1)))
    assert asked(2) == 1 and others == [0]  # another one meanwhile is answered by its words
    service.meanwhile, service.failure = (lambda: None), None
    assert client.json("POST", PATH, {**body, "offset": 0}).value["semanticHitCount"] == 2
    service.failure = EmbeddingError("user error", "no")
    service.meanwhile = lambda: None
    assert [asked(offset) for offset in (10, 11)] == [1, 1]  # it fails, but at once


def test_media_needs_its_feature(client, service) -> None:
    body = {"media": {"picture": 1}, **SEMANTIC}
    status, code, _ = client.json("POST", PATH, body).fault
    assert (status, code) == (400, "feature_not_enabled")
    client.instance.force_feature("multimodal")
    assert ids(client.json("POST", PATH, body).value) == [2, 1, 3]
    assert service.asked == [(None, {"picture": 1}, 10.0)]


@pytest.mark.parametrize(("body", "fault"), [
    ({"vector": [1, 2]}, (400, "missing_search_hybrid",
                          "Invalid request: missing `hybrid` parameter when `vector` or `media` are present.")),
    ({"vector": [1, 2], "hybrid": {"embedder": "x"}}, (400, "invalid_search_embedder", "Cannot find embedder with name `x`.")),
    ({"vector": [1], **SEMANTIC}, (400, "invalid_vector_dimensions", "Invalid vector dimensions: expected: `2`, found: `1`.")),
])
def test_errors_have_their_words(client, body, fault) -> None:
    assert client.json("POST", PATH, body).fault == fault
    status, code, message = client.json("POST", "/multi-search", {"queries": [{"indexUid": "films", **body}]}).fault
    assert (status, code, message) == (*fault[:2], f"Inside `.queries[0]`: {fault[2]}")
    federated = {"queries": [{"indexUid": "films", **body}], "federation": {}}
    assert client.json("POST", "/multi-search", federated).fault == (status, code, message)
