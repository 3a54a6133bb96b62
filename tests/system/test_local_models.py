"""Embedders that run inside, through a daemon (docs/embedders.md#huggingface).

1. Documents and queries get vectors of a model in the folder that `--models-dir` names; a task fails if the model is not there.
2. With `chunk`, hits of searches by vectors say which passage matched best, without attributes that are not displayed; similar
   documents are as many as were asked for.
"""
from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.daemon import Daemon, running
from tests.support.tiny_model import tensors, write_model

pytest.importorskip("numpy")
INDEX = "/indexes/notes"
NOTES = [{"id": 1, "text": "the cat sleeps"}, {"id": 2, "text": "small truck, red car"}, {"id": 3, "text": "big dog runs"}]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "tiny", tensors(random.Random(3)))
    with running(tmp_path_factory.mktemp("daemon"), "--models-dir", str(folder)) as daemon:
        yield daemon


def configured(daemon: Daemon, index: str, documents: list[dict[str, Any]], **embedder: Any) -> dict[str, Any]:
    """The task that sets the embedder `e` of an index with these documents."""
    daemon.done(daemon.post(f"{index}/documents", documents))
    return daemon.done(daemon.call("PATCH", f"{index}/settings", json.dumps({"embedders": {"e": {
        "documentTemplate": "{{ doc.text }}", **embedder}}})))


def hits(daemon: Daemon, index: str, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.post(f"{index}/search", {"hybrid": {"embedder": "e", "semanticRatio": 1}, **asked}).json["hits"]
    return found


def test_a_model_of_local_files_embeds_documents_and_queries(daemon: Daemon) -> None:
    task = configured(daemon, INDEX, NOTES, source="huggingFace", model="anyone/tiny")
    assert task["status"] == "succeeded"
    for note in NOTES:
        (first, *_) = hits(daemon, INDEX, q=note["text"], showRankingScore=True)
        assert first["id"] == note["id"] and first["_rankingScore"] > 0.9999
    shown = daemon.get(f"{INDEX}/documents/1?retrieveVectors=true")
    assert len(shown["_vectors"]["e"]["embeddings"][0]) == 8
    task = configured(daemon, "/indexes/others", NOTES, source="huggingFace")
    assert task["error"]["code"] == "vector_embedding_error" and "/BAAI/bge-base-en-v1.5`" in task["error"]["message"]


LONG = [{"id": number, "text": " ".join(["the cat sleeps"] * number + [last] + ["zebra"] * 4), "secret": "red car"}
        for number, last in ((3, "small red truck"), (6, "big dog runs"), (1, "drive"))]


def test_the_passage_that_matched_best(daemon: Daemon) -> None:
    index = "/indexes/long"
    configured(daemon, index, LONG, source="huggingFace", model="tiny", chunk={"words": 3, "overlap": 0})
    vectors = daemon.get(f"{index}/documents/3?retrieveVectors=true")["_vectors"]["e"]["embeddings"]
    assert len(vectors) == 6
    for asked in ({"q": "small red truck"}, {"q": "small red truck", "hybrid": {"embedder": "e", "semanticRatio": 0.5, "fusion": "score"}},
                  {"q": "x", "vector": vectors[3], "attributesToHighlight": ["*"], "attributesToRetrieve": ["id"], "showRankingScore": True}):
        (first, *_) = found = hits(daemon, index, **asked)
        assert len(found) == 3 and first["id"] == 3
        assert first["_matchedPassage"] == {"number": 4, "count": 6, "text": "small red truck"}
    assert "_matchedPassage" not in daemon.post(f"{index}/search", {"q": "truck"}).json["hits"][0]
    merged = daemon.post("/multi-search", {"federation": {}, "queries": [
        {"indexUid": "long", "q": "big dog runs", "hybrid": {"embedder": "e", "semanticRatio": 1}}]}).json["hits"]
    assert merged[0]["id"] == 6 and merged[0]["_matchedPassage"] == {"number": 7, "count": 9, "text": "big dog runs"}


def test_passages_show_no_hidden_attribute(daemon: Daemon) -> None:
    index = "/indexes/hidden"
    configured(daemon, index, LONG, source="huggingFace", model="tiny", chunk={"words": 3, "overlap": 0})
    for displayed, template, is_shown in ((["id", "text"], "{{ doc.text }}", True), (["id"], "{{ doc.text }}", False),
                                          (["id", "text"], "{{ doc.text }} {{ doc.secret }}", False)):
        daemon.done(daemon.call("PATCH", f"{index}/settings", json.dumps({
            "displayedAttributes": displayed, "embedders": {"e": {"documentTemplate": template}}})))
        found = hits(daemon, index, q="big dog runs")
        assert [set(hit["_matchedPassage"]) for hit in found] == [{"number", "count"} | ({"text"} if is_shown else set())] * 3


def test_similar_documents_are_as_many_as_were_asked_for(daemon: Daemon) -> None:
    index = "/indexes/alike"
    many = [{"id": 0, "text": "cat"}, {"id": 1, "text": "cat " * 90}, *({"id": number, "text": "dog runs"} for number in range(2, 9))]
    configured(daemon, index, many, source="huggingFace", model="tiny", chunk={"words": 3, "overlap": 0})
    found = daemon.post(f"{index}/similar", {"id": 0, "embedder": "e", "limit": 5}).json["hits"]
    assert [hit["id"] for hit in found] == [1, 2, 3, 4, 5]
