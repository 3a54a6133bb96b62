"""Similar documents. What must hold:

1. Hits are the documents whose vectors are nearest, nearest first, each once; the document itself is none.
2. Offset, limit, filter and threshold choose among them; documents without vectors count, but are no hits.
3. Errors come in their order: parameters, index, filter as a text, embedder, document, filter on the index.
4. A tenant finds no document that its token hides, neither as a hit nor to compare with.
5. Members of hits and of the answer come in the order of the interface.
"""
from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from svcd.auth.keys import Permission
from tests.support.dict_reader import DictReader
from tests.support.patched_reading import read_indexes

PATH = "/indexes/films/similar"
VECTORS: dict[str, Any] = {
    "a": [1.0, 0.0], "b": [1.0, 0.1], "c": [[0.0, 1.0], [1.0, 0.2]], "d": [-1.0, 0.0], "e": None, "f": [0.0, 1.0],
}
SETTINGS = {
    "embedders": {"e": {"source": "userProvided", "dimensions": 2}, "other": {"source": "userProvided", "dimensions": 3}},
    "filterableAttributes": ["n", "owner"],
}
FILMS = DictReader([{"id": name, "n": number, "owner": "me" if number % 2 else "you", "_vectors": {"e": vectors}}
                    for number, (name, vectors) in enumerate(VECTORS.items())], SETTINGS)


@pytest.fixture(autouse=True)
def films(monkeypatch: pytest.MonkeyPatch) -> None:
    read_indexes(monkeypatch, {"films": FILMS})


def similar(client, **wanted: Any) -> dict[str, Any]:
    wanted = {"id": "a", "embedder": "e", **wanted}
    by_body = client.json("POST", PATH, wanted).value
    texts = {name: json.dumps(value) if isinstance(value, (bool, list)) else value for name, value in wanted.items()}
    by_query_string = client.get(f"{PATH}?{urlencode(texts)}").value
    for got in (by_body, by_query_string):
        got.pop("processingTimeMs")
    assert by_body == by_query_string
    return by_body


def ids(got: dict[str, Any]) -> list[str]:
    return [hit["id"] for hit in got["hits"]]


def test_the_nearest_documents_come_first(client, check_shape) -> None:
    got = client.json("POST", PATH, {"id": "a", "embedder": "e"}).value
    check_shape(got, "SimilarAnswer")
    assert list(got) == ["hits", "id", "processingTimeMs", "limit", "offset", "estimatedTotalHits"]
    assert ids(got) == ["b", "c", "f", "d"] and got["estimatedTotalHits"] == 5 and got["id"] == "a"


def test_each_vector_of_the_document_counts(client) -> None:
    assert ids(similar(client, id="c")) == ["f", "b", "a", "d"]


def test_a_document_without_vectors_is_similar_to_none(client) -> None:
    got = similar(client, id="e")
    assert ids(got) == [] and got["estimatedTotalHits"] == 5


def test_offset_and_limit_cut_the_list(client) -> None:
    assert ids(similar(client, offset=1, limit=2)) == ["c", "f"]
    assert ids(similar(client, limit=0)) == ids(similar(client, offset=9)) == []


def test_a_filter_chooses_candidates(client) -> None:
    got = similar(client, filter="n > 1")
    assert ids(got) == ["c", "f", "d"] and got["estimatedTotalHits"] == 4


def test_the_threshold_ends_the_list_and_the_count(client) -> None:
    got = similar(client, rankingScoreThreshold=0.6, offset=1)
    assert ids(got) == ["c"] and got["estimatedTotalHits"] == 2


def test_hits_show_what_is_asked_for(client) -> None:
    got = client.json("POST", PATH, {
        "id": "a", "embedder": "e", "limit": 1, "attributesToRetrieve": ["id"], "retrieveVectors": True, "showRankingScore": True,
        "showRankingScoreDetails": True}).value
    (hit,) = got["hits"]
    score = hit["_rankingScore"]
    assert list(hit) == ["id", "_vectors", "_rankingScore", "_rankingScoreDetails"] and 0.99 < score < 1
    assert hit["_rankingScoreDetails"] == {"vectorSort": {"order": 0, "similarity": score}}
    assert hit["_vectors"] == {"e": {"embeddings": [[1.0, 0.10000000149011612]], "regenerate": False},
                               "other": {"embeddings": [], "regenerate": True}}


def test_steps_are_measured(client) -> None:
    got = client.json("POST", PATH, {"id": "a", "embedder": "e", "showPerformanceDetails": True}).value
    assert list(got)[-1] == "performanceDetails"
    assert list(got["performanceDetails"]) == ["wait in queue", "search > format", "search"]


@pytest.mark.parametrize(("wanted", "fault"), [
    ({"embedder": "e"}, (400, "bad_request", "Missing field `id`")),
    ({"id": 1}, (400, "bad_request", "Missing field `embedder`")),
    ({"rankingScoreThreshold": 42}, (
        400, "invalid_similar_ranking_score_threshold", "Invalid value at `.rankingScoreThreshold`: the value of "
        "`rankingScoreThreshold` is invalid, expected a float between `0.0` and `1.0`.")),
    ({"id": "a", "embedder": "no", "filter": "n = 1"}, (
        400, "invalid_similar_embedder", "Cannot find embedder with name `no`.")),
    ({"id": "z", "embedder": "e", "filter": "title = 1"}, (400, "not_found_similar_id", "Document `z` not found.")),
])
def test_errors_have_their_words(client, wanted, fault) -> None:
    assert client.json("POST", PATH, wanted).fault == fault


def test_errors_come_in_their_order(client) -> None:
    def code(**wanted: Any) -> str:
        return client.json("POST", PATH, {"id": "z", "embedder": "no", **wanted}).value["code"]

    assert code(filter="n &") == "invalid_similar_filter"
    assert code(id=["doggo"], filter="n &") == "invalid_similar_id"
    assert code(id="a", embedder="e", filter="title = 1") == "invalid_similar_filter"
    assert client.json("POST", "/indexes/no/similar", {"id": 1, "embedder": "no"}).fault == (
        404, "index_not_found", "Index `no` not found.")


def test_a_tenant_sees_what_its_token_shows(client, monkeypatch) -> None:
    permission = Permission(rules={"films": "owner = me"})
    monkeypatch.setattr("svcd.auth.keys.Keys.check", lambda *_: permission)
    own = client.json("POST", PATH, {"id": "b", "embedder": "e"}).value
    assert ids(own) == ["f", "d"] and own["estimatedTotalHits"] == 2
    hidden = client.json("POST", PATH, {"id": "a", "embedder": "e"})
    assert hidden.fault == (400, "not_found_similar_id", "Document `a` not found.")
