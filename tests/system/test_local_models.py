"""Embedders that run inside, through a daemon (docs/embedders.md#huggingface).

1. Documents and queries get vectors of a model in the folder that `--models-dir` names; a task fails if the model is not there.
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
