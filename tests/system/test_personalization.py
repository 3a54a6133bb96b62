"""What must hold of a daemon with a key of the rerank service:

1. Hits come in the order of the service, from the main process and from a search worker; totals stay.
2. A failure of the service is answered as such; one that passes is not seen.
3. A service that is down delays a search until its time limit, and the hits come as they are.
4. Neither the log nor the table of options at the start shows the key.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, running
from tests.support.scripted_server import Reply, ScriptedServer

pytestmark = pytest.mark.slow

KEY = "key-of-the-rerank-service"
ASKED = {"q": "a", "personalize": {"userContext": "likes odd"}}


@pytest.fixture
def service() -> Iterator[ScriptedServer]:
    started = ScriptedServer(Reply(status=500))
    yield started
    started.close()


@pytest.fixture(params=["0", "1"], ids=["main", "worker"])
def daemon(request: Any, tmp_path: Path, service: ScriptedServer) -> Iterator[Daemon]:
    arguments = ("--experimental-allowed-ip-networks", "127.0.0.0/8", "--search-workers", request.param)
    with running(tmp_path, *arguments, variables={"SVC_EXPERIMENTAL_PERSONALIZATION_URL": service.url,
                                                  "SVC_EXPERIMENTAL_PERSONALIZATION_API_KEY": f" {KEY} "}) as started:
        films = [{"id": 1, "t": "a b"}, {"id": 2, "t": "a"}]
        assert started.done(started.post("/indexes/films/documents", films))["status"] == "succeeded"
        yield started
        assert [line for line in started.bugs() if "status=502" not in line] == []
        assert KEY not in started.log.read_text()


def order(*positions: int) -> Reply:
    return Reply({"results": [{"index": position, "relevance_score": 0.1} for position in positions]})


def ids(reply: Any) -> list[int]:
    assert reply.status == 200, reply
    return [hit["id"] for hit in reply.json["hits"]]


def test_hits_come_in_the_order_of_the_service(daemon: Daemon, service: ScriptedServer) -> None:
    service.replies = [order(1, 0)]
    plain, personal = daemon.post("/indexes/films/search", {"q": "a"}), daemon.post("/indexes/films/search", ASKED)
    assert ids(personal) == ids(plain)[::-1] and personal.json["estimatedTotalHits"] == 2
    (received,) = service.requests
    body = received.body
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert body["query"] == "User Context: likes odd\nQuery: a" and len(body["documents"]) == 2
    assert daemon.call("PATCH", "/experimental-features", '{"metrics": true}').status == 200
    assert b"svc_personalized_search_requests 1\n" in daemon.call("GET", "/metrics").body


def test_failures_are_answered_or_pass(daemon: Daemon, service: ScriptedServer) -> None:
    for status, code, answered in ((401, "remote_invalid_api_key", 403), (404, "remote_bad_response", 502)):
        service.replies, asked = [Reply({}, status)], len(service.requests)
        reply = daemon.post("/indexes/films/search", ASKED)
        assert (reply.status, reply.code, len(service.requests) - asked) == (answered, code, 1)
    service.replies, asked = [Reply({}, 500), order(1, 0)], len(service.requests)
    assert len(ids(daemon.post("/indexes/films/search", ASKED))) == 2
    assert len(service.requests) - asked == 2


def test_a_service_that_is_down_costs_no_more_than_the_time_limit(daemon: Daemon, service: ScriptedServer) -> None:
    plain = ids(daemon.post("/indexes/films/search", {"q": "a"}))
    service.replies = [Reply({}, 503)]
    reply = daemon.post("/indexes/films/search", ASKED)
    assert ids(reply) == plain and reply.seconds < 5
