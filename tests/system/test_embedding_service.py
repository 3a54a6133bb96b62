"""What must hold of a daemon whose embedding service is slow, wrong or gone:

1. A task that cannot embed fails with the words of the interface, and nothing of it is stored; the next one succeeds.
2. While a task waits for a service that does not answer, searches by words, other indexes and the task's cancellation go on.
3. A search that cannot embed its query answers with its words alone; one that has nothing else, with the error.
4. A daemon that waits for a service stops in time.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, running
from tests.support.scripted_server import Reply, ScriptedServer, by_body

pytestmark = pytest.mark.slow

DOCUMENTS = [{"id": 1, "name": "kefir"}, {"id": 2, "name": "intel"}]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path, "--experimental-allowed-ip-networks", "127.0.0.0/8") as started:
        yield started


def settings(service: ScriptedServer) -> dict[str, Any]:
    return {"embedders": {"e": {"source": "rest", "url": service.url, "request": "{{text}}", "response": "{{embedding}}",
                                "dimensions": 2, "documentTemplate": "{{ doc.name }}"}}}


def configured(daemon: Daemon, service: ScriptedServer, *documents: dict[str, Any]) -> None:
    assert daemon.done(daemon.call("PATCH", "/indexes/dogs/settings", json.dumps(settings(service))))["status"] == "succeeded"
    if documents:
        assert daemon.done(daemon.post("/indexes/dogs/documents", list(documents)))["status"] == "succeeded"


def vector_of(body: Any) -> Reply:
    return Reply([len(body), 1])


def hybrid(daemon: Daemon, **members: Any) -> Any:
    return daemon.post("/indexes/dogs/search", {"hybrid": {"embedder": "e", "semanticRatio": 0.9}, **members})


def test_a_task_that_cannot_embed_fails_whole(daemon: Daemon, service: ScriptedServer) -> None:
    configured(daemon, service)
    service.replies = [Reply([1, 2]), Reply(b"no", 404)]
    task = daemon.done(daemon.post("/indexes/dogs/documents", DOCUMENTS))
    assert (task["status"], task["error"]["code"]) == ("failed", "vector_embedding_error")
    assert task["error"]["message"] == (
        "Index `dogs`: While embedding documents for embedder `e`: error: received unexpected HTTP 404 from embedding server\n"
        "  - server replied with `no`")
    requests = daemon.get(f"/batches/{task['batchUid']}")["stats"]["embedderRequests"]
    assert requests["failed"] == 1 and requests["lastError"].startswith("error: received unexpected HTTP 404")
    assert daemon.get("/indexes/dogs/stats")["numberOfDocuments"] == 0
    service.replies = [by_body(vector_of)]
    asked = len(service.requests)
    assert daemon.done(daemon.post("/indexes/dogs/documents", DOCUMENTS))["status"] == "succeeded"
    assert len(service.requests) - asked <= 2
    assert daemon.bugs() == []


def test_the_rest_goes_on_while_a_task_waits(daemon: Daemon, service: ScriptedServer) -> None:
    service.replies = [by_body(vector_of)]
    configured(daemon, service, *DOCUMENTS)
    service.replies = [Reply(is_held=True)]
    waiting = daemon.post("/indexes/dogs/documents", [{"id": 3, "name": "max"}]).json["taskUid"]
    while service.bodies[-1] != "max":
        service.wait_for_call()
    found = daemon.post("/indexes/dogs/search", {"q": "kefir"})
    assert [hit["id"] for hit in found.json["hits"]] == [1] and found.seconds < 5
    assert daemon.call("POST", f"/tasks/cancel?uids={waiting}").status == 200
    daemon.drain(10)
    assert daemon.get(f"/tasks/{waiting}")["status"] == "canceled"
    assert daemon.done(daemon.post("/indexes/cats/documents", [{"id": 1}]))["status"] == "succeeded"
    assert daemon.bugs() == []


def test_searches_do_without_a_service_that_is_gone(daemon: Daemon, service: ScriptedServer) -> None:
    service.replies = [by_body(vector_of)]
    configured(daemon, service, *DOCUMENTS)
    service.replies = [Reply(b"sorry", 500)]
    words = hybrid(daemon, q="kefir")
    assert words.status == 200 and words.json["semanticHitCount"] == 0 and words.seconds < 10
    assert [hit["id"] for hit in words.json["hits"]] == [1]
    meaning = hybrid(daemon, q="kefir", hybrid={"embedder": "e", "semanticRatio": 1.0})
    assert meaning.code == "vector_embedding_error"
    assert meaning.json["message"] == ("Error while generating embeddings: runtime error: received internal error HTTP 500 from "
                                       "embedding server\n  - server replied with `sorry`")
    assert daemon.bugs() == []


def test_a_daemon_that_waits_for_a_service_stops(tmp_path: Path, service: ScriptedServer) -> None:
    service.replies = [Reply(is_held=True)]
    with running(tmp_path, "--experimental-allowed-ip-networks", "127.0.0.0/8") as daemon:
        configured(daemon, service)
        daemon.post("/indexes/dogs/documents", DOCUMENTS)
        service.wait_for_call()
        assert daemon.stop() == 0
        assert daemon.bugs() == []
