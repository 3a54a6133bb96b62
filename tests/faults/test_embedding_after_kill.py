"""What must hold when a daemon is killed in the middle of embedding documents:

1. The task runs again after the start and ends as if nothing had happened.
2. What the service had answered, up to the requests that were under way, is not sent again.
3. A canceled task does not end with vectors, and the next one is not sent again what it had embedded.
"""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, running
from tests.support.scripted_server import Reply, ScriptedServer, by_body

pytestmark = pytest.mark.slow

COUNT = 300
DOCUMENTS = [{"id": number, "name": f"name{number}"} for number in range(COUNT)]
UNDER_WAY = 8  # requests at once
ENOUGH = 100


@pytest.fixture
def service(service: ScriptedServer) -> ScriptedServer:
    service.replies = [by_body(lambda body: Reply([int(body.removeprefix("name")), 1]))]
    return service


@pytest.fixture
def daemon(tmp_path: Path, service: ScriptedServer) -> Iterator[Daemon]:
    with running(tmp_path, "--experimental-allowed-ip-networks", "127.0.0.0/8") as started:
        embedder = {"source": "rest", "url": service.url, "request": "{{text}}", "response": "{{embedding}}", "dimensions": 2,
                    "documentTemplate": "{{ doc.name }}"}
        assert started.done(started.call("PATCH", "/indexes/m/settings", json.dumps({"embedders": {"e": embedder}})))["error"] is None
        yield started


def embedded_partly(daemon: Daemon, service: ScriptedServer) -> int:
    """The uid of a task that waits for an answer of the service, which has answered some hundred requests."""
    answer = service.replies[0]
    service.replies = [lambda received: answer(received) if len(service.requests) <= ENOUGH else Reply(is_held=True)]
    uid: int = daemon.post("/indexes/m/documents", DOCUMENTS).json["taskUid"]
    for _ in range(ENOUGH + 1):
        service.wait_for_call()
    return uid


def check_all(daemon: Daemon) -> None:
    assert daemon.get("/indexes/m/stats")["numberOfEmbeddings"] == COUNT
    found = daemon.get("/indexes/m/documents/123?retrieveVectors=true")
    assert found["_vectors"] == {"e": {"embeddings": [[123.0, 1.0]], "regenerate": True}}
    assert daemon.bugs() == []


def sent_twice(service: ScriptedServer) -> list[str]:
    return [name for name, count in Counter(service.bodies).items() if count > 1]


def test_a_kill_embeds_nothing_twice_that_was_stored(daemon: Daemon, service: ScriptedServer) -> None:
    uid = embedded_partly(daemon, service)
    daemon.kill9()
    service.replies = [by_body(lambda body: Reply([int(body.removeprefix("name")), 1]))]
    service.release()
    daemon.start()
    daemon.drain()
    assert daemon.get(f"/tasks/{uid}")["status"] == "succeeded"
    assert set(service.bodies) == {document["name"] for document in DOCUMENTS}
    assert len(sent_twice(service)) <= 2 * UNDER_WAY
    check_all(daemon)
    assert not [*daemon.data.glob("indexes/*-embeddings*")]


def test_a_canceled_task_has_no_effect_and_is_not_paid_for_twice(daemon: Daemon, service: ScriptedServer) -> None:
    uid = embedded_partly(daemon, service)
    assert daemon.call("POST", f"/tasks/cancel?uids={uid}").status == 200
    daemon.drain()
    assert daemon.get(f"/tasks/{uid}")["status"] == "canceled"
    assert daemon.get("/indexes/m/stats")["numberOfDocuments"] == 0
    service.replies = [by_body(lambda body: Reply([int(body.removeprefix("name")), 1]))]
    service.release()
    again: Any = daemon.done(daemon.post("/indexes/m/documents", DOCUMENTS))
    assert again["status"] == "succeeded"
    assert len(sent_twice(service)) <= 2 * UNDER_WAY
    check_all(daemon)
