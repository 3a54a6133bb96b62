"""svcd behind nginx and HAProxy, with the files of examples/ but for ports and paths:

1. A search over TLS; a body of 20 MB arrives whole; of a larger one than svcd takes, svcd says so, and the proxy of one that is
   larger by far.
2. An event comes while its stream goes on.
3. When a connection breaks before there is an answer, a search is sent again, a write is not.
"""
from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, running
from tests.support.reverse_proxies import EXAMPLES, PROXIES, Proxy, running_proxy

LIMIT_MB = 25


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("films"), "--http-payload-size-limit", f"{LIMIT_MB}MB") as daemon:
        daemon.call("PATCH", "/experimental-features", '{"tasksStreamingRoute": true}')
        daemon.done(daemon.call("POST", "/indexes/films/documents", (EXAMPLES / "films.json").read_bytes()))
        yield daemon
        assert daemon.bugs() == []


@pytest.fixture(scope="module", params=PROXIES)
def proxy(request: pytest.FixtureRequest, films: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with running_proxy(request.param, tmp_path_factory.mktemp(request.param), films.port) as started:
        yield started


# -- What passes


def test_searches_pass(proxy: Proxy) -> None:
    status, body = proxy.call("POST", "/indexes/films/search", b'{"q": "star wras", "limit": 1}')
    assert status == 200 and json.loads(body)["hits"][0]["title"] == "Star Wars"
    assert proxy.call("GET", "/health") == (200, b'{"status":"available"}')


def test_a_large_body_arrives_whole(proxy: Proxy, films: Daemon) -> None:
    text = "word " * 200_000
    documents = json.dumps([{"id": 1000 + number, "text": text} for number in range(20)]).encode()
    assert 20_000_000 < len(documents) < LIMIT_MB * 1_000_000
    films.call("PUT", "/indexes/texts/settings/searchable-attributes", '["id"]')
    status, body = proxy.call("POST", "/indexes/texts/documents?wait=120s", documents)
    assert status == 200 and json.loads(body)["details"] == {"receivedDocuments": 20, "indexedDocuments": 20}


def test_svcd_says_what_is_too_large_for_it_and_the_proxy_what_is_too_large_by_far(proxy: Proxy) -> None:
    status, body = proxy.call("POST", "/indexes/texts/documents", b" " * ((LIMIT_MB + 1) * 1_000_000))
    assert status == 413 and json.loads(body)["code"] == "payload_too_large"
    connection = proxy.connection()
    connection.putrequest("POST", "/indexes/texts/documents")
    connection.putheader("Content-Length", str(1 << 30))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_an_event_comes_while_its_stream_goes_on(proxy: Proxy, films: Daemon) -> None:
    connection = proxy.connection()
    connection.request("GET", "/tasks/stream")
    stream = connection.getresponse()
    assert stream.status == 200 and stream.headers["Content-Type"].startswith("text/event-stream")
    for uid in ("first", "second"):
        films.post("/indexes", {"uid": uid})
        statuses = []
        while "succeeded" not in statuses:
            line = stream.readline().decode()
            assert line, "the stream has ended"
            if found := re.match(r"data: (\{.*)", line):
                event: Any = json.loads(found[1])
                statuses.append(event["status"])
                assert event["indexUid"] == uid
        films.call("DELETE", f"/indexes/{uid}")
        while not re.match(r'data: .*"status":"succeeded","type":"indexDeletion"', stream.readline().decode()):
            pass
    connection.close()


# -- What is sent again


class BreakingHost:
    """Answers the first request of each connection, and closes at the second without an answer."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._is_closing = False
        self._others: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            connection = self._listener.accept()[0]
            if self._is_closing:
                connection.close()
                return
            self._others.append(threading.Thread(target=self._serve, args=(connection,)))
            self._others[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as received:
            connection.settimeout(10)
            for number in range(2):
                try:
                    path = received.readline().decode().split(" ")[1]
                    length = 0
                    while (line := received.readline().strip().lower()):
                        length = int(line.split(b":")[1]) if line.startswith(b"content-length:") else length
                    received.read(length)
                except (IndexError, OSError):  # it was closed
                    return
                if path == "/health":
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    return
                self.paths.append(path)
                if number == 0:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    def close(self) -> None:
        self._is_closing = True
        socket.create_connection(("127.0.0.1", self.port)).close()  # the thread waits for one
        self._thread.join()
        self._listener.close()
        for thread in self._others:
            thread.join()


def status_of(connection: http.client.HTTPConnection, method: str, path: str) -> int | None:
    """None: the connection was closed, as HAProxy does it where a connection to the server was used before."""
    connection.request(method, path, b"{}" if method in ("POST", "PATCH") else None)
    try:
        answer = connection.getresponse()
    except http.client.RemoteDisconnected:
        return None
    answer.read()
    return answer.status


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize(("method", "path", "is_sent_again"), [
    ("POST", "/indexes/films/search", True), ("GET", "/indexes/films/search", True), ("POST", "/multi-search", True),
    ("POST", "/indexes/films/documents", False), ("PATCH", "/indexes/films/settings", False), ("DELETE", "/indexes/films", False)])
def test_searches_are_sent_again_and_writes_are_not(name: str, method: str, path: str, is_sent_again: bool, tmp_path: Path) -> None:
    host = BreakingHost()
    try:
        with running_proxy(name, tmp_path, host.port) as proxy:
            connection = proxy.connection()
            assert status_of(connection, "GET", "/version") == 200  # opens the connection that the next request breaks
            assert status_of(connection, method, path) in ([200] if is_sent_again else [502, None])
            connection.close()
        assert host.paths == ["/version", path, path] if is_sent_again else ["/version", path]
    finally:
        host.close()
