"""What must hold of a daemon while a service that embeds queries does not answer.

1. Searches by words are answered as if there was no service, in the main process and in search workers.
2. A hybrid search is answered by its words alone once its patience is over; the next one, when the service is back, by both.
3. Vectors of queries are kept as `--experimental-embedding-cache-entries` says.
"""
from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, running
from tests.support.scripted_server import Reply, ScriptedServer

FILMS = [{"id": 1, "title": "sun", "_vectors": {"e": [1, 0]}}, {"id": 2, "title": "night", "_vectors": {"e": [0, 1]}},
         {"id": 3, "title": "sunny night", "_vectors": {"e": [1, 1]}}]
HYBRID = {"hybrid": {"embedder": "e", "semanticRatio": 0.9}}
PATIENCE_S = 3.0
WAITING = 12
QUICK_S = 1.5  # of a search that takes a few milliseconds, on a machine that does other things


@pytest.fixture
def service(service: ScriptedServer) -> ScriptedServer:
    service.replies = [Reply({"embedding": [0.0, 1.0]})]
    return service


@pytest.fixture(params=[0, pytest.param(2, marks=pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="search workers need Linux"))], ids=["main process", "search workers"])
def daemon(tmp_path: Path, service: ScriptedServer, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with running(tmp_path, "--search-workers", str(request.param), "--experimental-allowed-ip-networks", "127.0.0.0/8",
                 "--experimental-embedding-cache-entries", "10") as started:
        embedder = {"source": "rest", "url": service.url, "dimensions": 2, "request": {"input": "{{text}}"},
                    "response": {"embedding": "{{embedding}}"}, "documentTemplate": "{{doc.title}}"}
        started.call("PATCH", "/indexes/films/settings", json.dumps({"embedders": {"e": embedder}}))
        started.call("POST", "/indexes/films/documents", json.dumps(FILMS))
        started.drain()
        assert service.requests == []  # the documents bring their vectors with them
        yield started


def search(daemon: Daemon, **body: Any) -> tuple[list[int], Any, float]:
    """(ids of the hits, semanticHitCount, seconds)."""
    reply = daemon.call("POST", "/indexes/films/search", json.dumps(body))
    assert reply.status == 200, reply.body
    return [hit["id"] for hit in reply.json["hits"]], reply.json.get("semanticHitCount"), reply.seconds


@pytest.mark.slow
def test_searches_by_words_go_on(daemon: Daemon, service: ScriptedServer) -> None:
    search(daemon, q="warm")
    service.replies = [Reply(is_held=True)]
    found: list[tuple[list[int], Any, float]] = []
    waiting = [threading.Thread(target=lambda: found.append(search(daemon, q="sun", **HYBRID))) for _ in range(WAITING)]
    for thread in waiting:
        thread.start()
    service.wait_for_call()
    started = time.monotonic()
    while time.monotonic() - started < 1.0:
        ids, count, seconds = search(daemon, q="sun")
        assert (ids, count) == ([1, 3], None) and seconds < QUICK_S
    for thread in waiting:
        thread.join()
    assert [(ids, count) for ids, count, _ in found] == [([1, 3], 0)] * WAITING
    assert all(PATIENCE_S - 0.5 < seconds < PATIENCE_S + QUICK_S for _, _, seconds in found)
    service.release()
    service.replies = [Reply({"embedding": [0.0, 1.0]})]
    assert search(daemon, q="sun", **HYBRID)[:2] == ([2, 3, 1], 3)


def test_vectors_of_queries_are_kept(daemon: Daemon, service: ScriptedServer) -> None:
    for offset in range(6):  # other answers of one query, so that no answer is cached
        search(daemon, q="sun", offset=offset, **HYBRID)
    processes = 1 + len([pid for pid in daemon.pids if pid != daemon.pids[0]])
    assert 1 <= len(service.requests) <= processes
    assert service.bodies == [{"input": "sun"}] * len(service.bodies)
