"""TLS with several processes: the main one decrypts, and relays what another process answers. What must hold:

1. Searches that come while another one runs are answered by another process; the connection goes on with any request.
2. Bodies arrive whole in both directions, also when one side is slow.
3. The end of either side reaches the other: a client that left, one that only ends its side, an answer that is the last.
4. While a client takes nothing, others are served.
5. A stop of all processes answers what is under way.
"""
from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.http.message import Response
from svcd.http.tls import tls_context
from tests.http.test_worker_sharing import MAIN, MAX_WAIT_S, SEARCH, WORKER, WRITE, Crew, who

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")

CLOSING = SEARCH.replace(b"Host: a", b"Host: a\r\nConnection: close")


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cert.pem and key.pem."""
    if not shutil.which("openssl"):
        pytest.skip("the openssl command, which makes the certificate, is not installed")
    folder = tmp_path_factory.mktemp("pem")
    line = ("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
            "-addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem")
    subprocess.run(line.split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def crew(serve: Callable[..., Any], pem: Path) -> Iterator[Crew]:
    made = Crew(serve, tls=True)
    made.start(MAIN, ssl_context=tls_context(pem / "cert.pem", pem / "key.pem"))
    made.start(WORKER)
    yield made
    made.close()


@pytest.fixture
def connect(crew: Crew, pem: Path) -> Callable[[], Any]:
    """connect() -> a client of the main process with TLS."""
    context = ssl.create_default_context(cafile=str(pem / "cert.pem"))
    main = crew.served[MAIN]

    def client() -> Any:
        sock = socket.create_connection(("127.0.0.1", main.port), MAX_WAIT_S)
        wrapped = type(main.connect())(0, context.wrap_socket(sock, server_hostname="localhost"))
        main.clients.append(wrapped)
        return wrapped

    return client


@pytest.fixture
def relayed(crew: Crew, connect: Callable[[], Any]) -> Any:
    """A client whose connection is relayed to the worker, because the main process was busy with another search."""
    first, second, third = connect(), connect(), connect()
    crew.gate.clear()
    for client in (first, second, third):
        client.send(SEARCH)
        crew.wait_for(crew.here, 1)
    crew.gate.set()
    answered = {who(client): client for client in (first, second, third)}
    assert set(answered) == {MAIN, WORKER}
    while any(crew.load_table.loads):  # the main process may count its search for a moment after the answer
        threading.Event().wait(0.005)
    return answered[WORKER]


def test_a_relayed_connection_goes_on(relayed: Any) -> None:
    assert [who(relayed.send(SEARCH)) for _ in range(3)] == [WORKER] * 3
    assert relayed.send(WRITE).answer()[2] == b"0 write"
    assert [who(relayed.send(SEARCH)) for _ in range(3)] == [MAIN] * 3


def test_the_client_is_known_behind_a_relay(crew: Crew, connect: Callable[[], Any], relayed: Any) -> None:
    seen: list[str] = []
    for served in crew.served.values():
        served.server.answer = lambda request: seen.append(request.client) or Response(200, b"0 ")
    for request in (SEARCH, WRITE):
        relayed.send(request).answer()
    assert seen == ["127.0.0.1"] * 2


def test_requests_that_follow_are_not_lost(relayed: Any) -> None:
    relayed.send(SEARCH + WRITE + SEARCH)
    assert [relayed.answer()[2] for _ in range(3)] == [b"1 ", b"0 write", b"0 "]


def test_large_bodies_arrive_whole(relayed: Any) -> None:
    body = os.urandom(3 << 20)
    for path in (b"/search", b"/write"):
        head = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (path, len(body))
        assert relayed.send(head + body).answer()[2].split(b" ", 1)[1] == body


def test_the_last_answer_ends_the_connection(relayed: Any) -> None:
    assert who(relayed.send(CLOSING)) == WORKER
    assert relayed.is_closed()


def test_a_client_that_leaves_ends_its_relay(crew: Crew, relayed: Any) -> None:
    for other in crew.served[MAIN].clients:  # another one may be relayed, too
        other.close()
    while crew.served[WORKER].server._connections or crew.served[MAIN].server._relay_thread.count:
        threading.Event().wait(0.005)


def test_a_client_that_takes_nothing_holds_up_nobody(crew: Crew, connect: Callable[[], Any], relayed: Any) -> None:
    crew.served[WORKER].server.answer = lambda request: Response(200, b"1 " + bytes(20 << 20))
    relayed.send(SEARCH)
    other = connect()
    assert other.send(WRITE).answer()[2] == b"0 write"
    assert len(relayed.answer()[2]) == 2 + (20 << 20)


def test_a_process_that_leaves_leaves_relayed_connections_to_the_main_one(crew: Crew, relayed: Any) -> None:
    leaving = crew.served[WORKER]
    leaving.server.leave(MAX_WAIT_S)
    leaving.thread.join(MAX_WAIT_S)
    assert not leaving.thread.is_alive()
    assert [who(relayed.send(request)) for request in (SEARCH, WRITE)] == [MAIN] * 2


def test_a_stop_answers_what_is_under_way(crew: Crew, relayed: Any) -> None:
    crew.gate.clear()
    relayed.send(SEARCH)
    crew.wait_for(crew.here, 1)
    main, worker = crew.served[MAIN], crew.served[WORKER]
    worker.server.stop(MAX_WAIT_S)
    main.server.stop(MAX_WAIT_S)
    while not worker.server.is_stopping:
        threading.Event().wait(0.005)
    crew.gate.set()
    status, headers, body = relayed.answer()
    assert (status, headers["connection"], body) == (200, "close", b"1 ")
    assert relayed.is_closed()
    for served in (worker, main):
        served.thread.join(MAX_WAIT_S)
        assert not served.thread.is_alive()
