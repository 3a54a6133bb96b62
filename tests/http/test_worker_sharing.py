"""Several servers on one socket. Here they are in one process, and an answer names the one that gave it.

1. What is not for all is answered by the main one, whoever has accepted; the connection stays there.
2. What is for all is answered by the one that has accepted while it has nothing else to do, or no more than others.
3. However clients were accepted: of eight that ask at once, two servers have four each.
4. Nothing that has arrived is lost on the way: bodies, requests behind the first.
5. Nothing is handed to a process that is absent, or that has stopped.
6. A process that stops answers what was handed to it before.
7. The clients of a process that leaves notice nothing: they go on with the main process, where the next request is
   answered, whatever of it had come.
8. A message reaches every process that is present, in order with the connections; one that is too long is not sent.
9. Processes may share while a server is starting: no two threads get its queue at once.

With TLS: tests/http/test_relay.py.
"""
from __future__ import annotations

import os
import queue
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from svcd.http import server, worker_sharing
from svcd.http.message import Request, Response
from svcd.http.sockets import Poller, listen
from svcd.http.worker_sharing import ABSENT, MAIN, HandoffQueue, LoadTable, PeerProcesses

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")

MAX_WAIT_S = 10
SEARCH = b"GET /search HTTP/1.1\r\nHost: a\r\n\r\n"
WRITE = b"POST /write HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nwrite"
WORKER = 1


class Crew:
    """Servers on one socket, started one by one; each answers with its number."""

    def __init__(self, serve: Callable[..., Any], processes: int = 2, tls: bool = False) -> None:
        """tls: only the main one accepts."""
        self._serve = serve
        self._tls = tls
        self.socket, = listen("127.0.0.1", 0)
        self._memory = worker_sharing.new_load_table(processes)
        self.load_table = LoadTable(self._memory)
        self._takers, self._givers = zip(*(worker_sharing.new_handoff_queue() for _ in range(processes)))
        self.gate = threading.Event()
        self.gate.set()
        self.here = threading.Semaphore(0)  # requests that are being answered
        self.read = threading.Semaphore(0)  # requests whose head was read
        self.served: dict[int, Any] = {}
        self.peers: dict[int, PeerProcesses] = {}
        self.messages: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()  # receiver, message

    def start(self, number: int, is_shared: bool = True, **options: Any) -> Any:
        def answer(request: Request) -> Response:
            self.here.release()
            assert self.gate.wait(MAX_WAIT_S)
            return Response(200, b"%d %s" % (number, request.body.read()))

        def is_for_all(request: Request) -> bool:
            self.read.release()
            return request.path == "/search"

        address = [] if self._tls and number != MAIN else [self.socket.dup()]
        served = self.served[number] = self._serve(answer, address=address, **options)
        served.server.on_message = lambda message: self.messages.put((number, message))
        self.peers[number] = PeerProcesses(number, self.load_table, self._takers[number], self._givers, is_for_all)
        if is_shared:
            self.share(number)
        return served

    def share(self, number: int) -> None:
        self.served[number].server.share(self.peers[number])

    def close(self) -> None:
        self.gate.set()
        for number in sorted(self.served, reverse=True):  # the main one last, as a daemon does
            self.served[number].stop()
        for sock in (self.socket, *self._takers, *self._givers):
            sock.close()
        os.close(self._memory)

    def connect(self) -> Any:
        return self.served[min(self.served)].connect()

    @staticmethod
    def wait_for(events: threading.Semaphore, count: int) -> None:
        for _ in range(count):
            assert events.acquire(timeout=MAX_WAIT_S)


@pytest.fixture
def crew(serve: Callable[..., Any]) -> Iterator[Crew]:
    made = Crew(serve)
    yield made
    made.close()


def who(client: Any) -> int:
    return int(client.answer()[2].split()[0])


def test_only_the_main_one_answers_what_is_not_for_all(crew: Crew) -> None:
    crew.start(WORKER)
    client = crew.connect().send(SEARCH)
    assert who(client) == WORKER
    crew.start(MAIN)
    client.send(WRITE)
    assert client.answer()[2] == b"0 write"
    client.send(SEARCH)
    assert who(client) == MAIN


def test_it_waits_for_a_main_one_that_is_not_there_yet(crew: Crew) -> None:
    crew.start(WORKER)
    client = crew.connect().send(WRITE)
    crew.start(MAIN)
    assert who(client) == MAIN


def test_a_search_stays_where_nothing_else_is_done(crew: Crew) -> None:
    crew.start(WORKER)
    client = crew.connect()
    assert [who(client.send(SEARCH)) for _ in range(5)] == [WORKER] * 5
    crew.start(MAIN)
    assert [who(client.send(SEARCH)) for _ in range(5)] == [WORKER] * 5


@pytest.mark.parametrize("first", [MAIN, WORKER])
def test_eight_clients_are_dealt_out_evenly(crew: Crew, first: int) -> None:
    crew.start(first)
    clients = [crew.connect() for _ in range(8)]
    for client in clients:
        assert who(client.send(SEARCH)) == first
    crew.start(1 - first)
    while crew.load_table.loads[1 - first] != 0:
        threading.Event().wait(0.001)
    crew.wait_for(crew.here, 8)
    crew.gate.clear()
    for client in clients:
        client.send(SEARCH)
        crew.wait_for(crew.here, 1)
    crew.gate.set()
    assert Counter(map(who, clients)) == {MAIN: 4, WORKER: 4}


def test_what_follows_is_not_lost(crew: Crew) -> None:
    crew.start(WORKER)
    crew.start(MAIN)
    client = crew.connect().send(WRITE + SEARCH + WRITE)
    assert [client.answer()[2] for _ in range(3)] == [b"0 write", b"0 ", b"0 write"]


def test_a_body_longer_than_what_was_received_arrives_whole(crew: Crew) -> None:
    crew.start(WORKER)
    crew.start(MAIN)
    body = os.urandom(1 << 20)
    client = crew.connect().send(b"POST /write HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert client.answer()[2] == b"0 " + body


def test_nothing_goes_to_one_that_is_absent(crew: Crew) -> None:
    crew.start(MAIN)
    assert crew.load_table.loads[WORKER] == ABSENT
    clients = [crew.connect() for _ in range(4)]
    crew.gate.clear()
    for client in clients:
        client.send(SEARCH)
    crew.wait_for(crew.here, 4)
    crew.gate.set()
    assert [who(client) for client in clients] == [MAIN] * 4


def test_one_that_has_stopped_is_absent(crew: Crew) -> None:
    crew.start(MAIN)
    crew.start(WORKER).stop()
    assert crew.load_table.loads[WORKER] == ABSENT
    assert who(crew.connect().send(SEARCH)) == MAIN


def test_a_stop_answers_what_was_passed_on_before(crew: Crew) -> None:
    """As a worker does that ends with its main process: what it has read goes there first."""
    crew.start(WORKER)
    clients = [crew.connect().send(WRITE) for _ in range(3)]
    crew.wait_for(crew.read, 3)
    crew.served[WORKER].stop()
    crew.start(MAIN)
    crew.served[MAIN].stop()
    assert [who(client) for client in clients] == [MAIN] * 3


def test_a_process_that_leaves_leaves_its_clients_to_the_main_one(crew: Crew) -> None:
    crew.start(WORKER)
    idle, half, busy = (crew.connect() for _ in range(3))
    assert [who(client.send(SEARCH)) for client in (idle, half, busy)] == [WORKER] * 3
    crew.wait_for(crew.here, 3)
    half.send(SEARCH[:10])
    crew.gate.clear()
    busy.send(SEARCH)
    crew.wait_for(crew.here, 1)
    crew.start(MAIN)
    leaving = crew.served[WORKER]
    leaving.server.leave(MAX_WAIT_S)
    crew.gate.set()
    assert who(busy) == WORKER
    leaving.thread.join(MAX_WAIT_S)
    assert not leaving.thread.is_alive()
    assert [who(client) for client in (idle.send(SEARCH), half.send(SEARCH[10:]), busy.send(WRITE))] == [MAIN] * 3


def test_a_client_that_left_does_not_disturb_others(crew: Crew) -> None:
    crew.start(WORKER)
    gone = crew.connect().send(WRITE)
    gone.close()
    crew.start(MAIN)
    assert who(crew.connect().send(WRITE)) == MAIN


def test_messages_reach_the_others_in_order(crew: Crew) -> None:
    crew.start(MAIN)
    crew.peers[MAIN].send_to_all(b"to nobody")
    crew.start(WORKER)
    long = b"\n\0" * (worker_sharing.MAX_RECEIVED // 2)
    crew.peers[MAIN].send_to_all(long + b"x")
    for number, text in ((WORKER, b"to main"), (MAIN, long)):
        crew.peers[number].send_to_all(text)
    assert {crew.messages.get(timeout=MAX_WAIT_S) for _ in range(2)} == {(MAIN, b"to main"), (WORKER, long)}
    assert who(crew.connect().send(WRITE)) == MAIN


def test_sharing_while_the_server_starts_registers_the_queue_once(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    is_starting, has_shared = threading.Event(), threading.Event()

    class StartingPoller(Poller):
        def register(self, pollable: Any, events: int) -> None:
            registered.append(pollable)
            super().register(pollable, events)
            if not is_starting.is_set():  # serve() has registered the listening socket
                is_starting.set()
                has_shared.wait(0.02)

    monkeypatch.setattr(server, "Poller", StartingPoller)
    crew.start(MAIN, is_shared=False)
    assert is_starting.wait(MAX_WAIT_S)
    crew.share(MAIN)
    has_shared.set()
    assert who(crew.connect().send(SEARCH)) == MAIN
    crew.served[MAIN].stop()
    assert sum(isinstance(pollable, HandoffQueue) for pollable in registered) == 1


def test_a_full_tray_leaves_a_search_where_it_is() -> None:
    outgoing, memory, clients = [worker_sharing.new_handoff_queue() for _ in range(2)], worker_sharing.new_load_table(2), socket.socketpair()
    load_table = LoadTable(memory)
    peers = PeerProcesses(WORKER, load_table, outgoing[WORKER][0], [giver for _, giver in outgoing], lambda request: True)
    load_table.loads[MAIN], load_table.loads[WORKER] = 0, 5
    passed = 0
    while peers.hand_off(None, MAIN, clients[0], "::1", b"x" * 50_000):  # type: ignore[arg-type]
        passed += 1
        assert passed < 1000
    assert passed
    for sock in (*clients, *outgoing[0], *outgoing[1]):
        sock.close()
    os.close(memory)
