"""A chat with the real pieces: a daemon, its client and the service of a model, each over its own connections.

1. A turn streams: the answer is passed on within 50 ms, also after two searches; figures, dumps and a later start know of chats.
2. A client that leaves ends the request to the service, also one that has said nothing yet.
3. The daemon stops at once, whatever a service does.
"""
from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from tests.support.chat_source import DONE, SEARCH, Round, Source, c, f, t, u
from tests.support.daemon import Daemon, running

FILMS = [{"id": 1, "title": "Alien", "year": 1979}, {"id": 2, "title": "Heat", "year": 1995}]
HI = [c(role="assistant", content=""), c(content="Hi"), f("stop"), u(7, 2, 9), DONE]
MOST_DELAY_S = 0.05


def search(q: str) -> str:
    return json.dumps({"index_uid": "films", "q": q, "filter": ""})


@pytest.fixture
def source() -> Iterator[Source]:
    made = Source([HI])
    yield made
    made.close()


@pytest.fixture
def daemon(tmp_path: Path, source: Source) -> Iterator[Daemon]:
    with running(tmp_path, "--experimental-allowed-ip-networks", "127.0.0.0/8", "--experimental-enable-metrics") as started:
        assert started.call("PATCH", "/experimental-features", json.dumps({"chatCompletions": True})).status == 200
        started.done(started.call("PATCH", "/indexes/films/settings", json.dumps({"filterableAttributes": ["year"]})))
        started.done(started.post("/indexes/films/documents", FILMS))
        settings = {"source": "vLlm", "baseUrl": source.url, "apiKey": "sk-test"}
        assert started.call("PATCH", "/chats/w/settings", json.dumps(settings)).status == 200
        yield started
        assert started.bugs() == []


@contextmanager
def asked(daemon: Daemon) -> Iterator[http.client.HTTPResponse]:
    """The answer to a question, as it comes."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    connection.request("POST", "/chats/w/chat/completions", json.dumps(body),
                       {"content-type": "application/json", "accept-encoding": "gzip, br"})
    try:
        yield connection.getresponse()
    finally:
        connection.close()


def events(answer: http.client.HTTPResponse) -> Iterator[tuple[float, Any]]:
    """(when it came, its value) of each event."""
    assert (answer.readline(), answer.readline()) == (b"retry: 10000\n", b"\n")
    while line := answer.readline():
        came, data = time.perf_counter(), line.decode().strip().removeprefix("data: ")
        assert answer.readline() == b"\n"
        yield came, data if data == DONE else json.loads(data)


def test_a_turn_streams(daemon: Daemon, source: Source) -> None:
    source.script = [[c(content="Let me"), t(0, "c1", SEARCH, search("alien")), f("tool_calls"), DONE],
                     [t(0, "c2", SEARCH, search("heat")), f("tool_calls"), DONE], Round(HI, gap_s=0.3)]
    with asked(daemon) as answer:
        assert answer.status == 200 and answer.headers["content-type"] == "text/event-stream"
        assert (answer.headers["content-encoding"], answer.headers["transfer-encoding"]) == ("identity", "chunked")
        came = list(events(answer))
    texts = [event["choices"][0]["delta"]["content"] for _, event in came[:-1]]
    assert texts == ["Let me", "", "Hi", None] and came[-1][1] == DONE
    assert source.told() == ["id: 1\ntitle: Alien\nyear: 1979\n", "id: 2\ntitle: Heat\nyear: 1995\n"]
    delays = [came[0][0] - source.sent_at[0], came[1][0] - source.sent_at[2]]
    assert max(delays) < MOST_DELAY_S, delays
    figures = daemon.call("GET", "/metrics").body.decode().splitlines()
    assert 'svc_chat_searches_total{type="internal"} 2' in figures
    assert 'svc_chat_tokens_total{workspace="w",model="m"} 9' in figures


@pytest.mark.parametrize("first", [c(content="x"), t(0, "c1", SEARCH, "x")], ids=["text", "a call"])
def test_a_client_that_leaves(daemon: Daemon, source: Source, first: Any) -> None:
    source.script = [Round(repeat(first), gap_s=0.05)]
    with asked(daemon) as answer:
        assert answer.readline()
        deadline = time.monotonic() + 5
        while source.sent < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert source.left.wait(5) and len(source.requests) == 1


def test_the_daemon_stops_while_a_model_is_silent(daemon: Daemon, source: Source) -> None:
    source.script = [Round([c(content="x"), c(content="y")], gap_s=8.0)]
    with asked(daemon) as answer:
        came = events(answer)
        next(came)
        begin = time.monotonic()
        assert daemon.stop() == 0 and time.monotonic() - begin < 3
        assert list(came) == []


def test_workspaces_survive(daemon: Daemon, source: Source, tmp_path: Path) -> None:
    daemon.done(daemon.post("/dumps", None))
    (dump,) = daemon.folder.rglob("*.dump")
    daemon.stop()
    daemon.start()
    shown = daemon.get("/chats/w/settings")
    assert shown["apiKey"] == "XXX..." and shown["source"] == "vLlm"
    (tmp_path / "other").mkdir()
    with running(tmp_path / "other", "--import-dump", str(dump), "--experimental-allowed-ip-networks", "127.0.0.0/8") as other:
        assert other.get("/chats/w/settings") == shown
        source.script = [HI]
        with asked(other) as answer:
            assert [event for _, event in events(answer)][-1] == DONE
    assert source.requests[-1].headers["authorization"] == "Bearer sk-test"
