"""Threads, addresses, and the end.

1. No client can hold a thread by doing nothing: not connected, not idle, not in the middle of a head.
2. Threads are started as they are needed, up to the bound, are named, and end when they are needed no more.
3. `stop()` answers what is here, accepts nothing new, and ends within its grace.
4. An address that cannot be listened on raises a ListenError that says why.
5. With more connections than there is room for, those that are idle longest are closed.
6. Some time after work, and only then, on_idle is called.
"""
from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from svcd.base import machine
from svcd.http.connection import Connection
from svcd.http.message import Request, Response
from svcd.http.server import SPARE_THREADS, Server
from svcd.http.sockets import Limits, ListenError
from tests.support.pace import is_within

Serve = Callable[..., Any]
GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
MAX_WAIT_S = 10
QUICK = Limits(sweep_s=0.02)


class Gate:
    """An `answer` that waits until it is let through."""

    def __init__(self) -> None:
        self.here = threading.Semaphore(0)
        self.open = threading.Event()
        self.most = self.now = 0
        self.names: set[str] = set()
        self.lock = threading.Lock()

    def __call__(self, request: Request) -> Response:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.names.add(threading.current_thread().name)
        self.here.release()
        assert self.open.wait(MAX_WAIT_S)
        with self.lock:
            self.now -= 1
        return Response(200, b"through")

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.here.acquire(timeout=MAX_WAIT_S)


def test_silent_clients_hold_no_thread(serve: Serve) -> None:
    served = serve(threads=1)
    for raw in (b"", b"GET", b"GET / HTTP/1.1\r\nHost:", b"\r\n", b"nonsense\r\n\r\n"):
        for _ in range(5):
            served.send(raw)
    idle = served.send(GET % b"")
    assert idle.answer()[0] == 200
    assert served.send(GET % b"").answer()[0] == 200
    assert idle.send(GET % b"").answer()[0] == 200


def test_threads_are_bounded_and_named(serve: Serve) -> None:
    gate = Gate()
    served = serve(gate, threads=3)
    clients = [served.send(GET % b"") for _ in range(6)]
    gate.wait_for(3)
    gate.open.set()
    assert [client.answer()[0] for client in clients] == [200] * 6
    assert gate.most == 3 and gate.names <= {"http-1", "http-2", "http-3"}


def test_one_client_needs_few_threads(serve: Serve) -> None:
    served = serve(threads=50)
    client = served.connect()
    for _ in range(20):
        client.send(GET % b"").answer()
    # At most two have work at once, the listener and the connection; one waits.
    assert sum(thread.name.startswith("http-") for thread in threading.enumerate()) <= 3


def names() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("http-")}


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + MAX_WAIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_threads_that_a_burst_needed_end_and_come_again(serve: Serve) -> None:
    gate = Gate()
    served = serve(gate, threads=30, limits=QUICK._replace(spare_s=0.02))
    for _ in range(2):
        gate.open.clear()
        clients = [served.send(GET % b"") for _ in range(30)]
        gate.wait_for(30)
        gate.open.set()
        assert [client.answer()[0] for client in clients] == [200] * 30
        wait_until(lambda: len(names()) <= SPARE_THREADS + 1)  # one may just have been started
    assert gate.names == {f"http-{number}" for number in range(1, 31)}
    assert served.send(GET % b"").answer()[0] == 200


def test_threads_at_work_are_never_dismissed(serve: Serve) -> None:
    gate = Gate()
    served = serve(gate, threads=12, limits=QUICK._replace(spare_s=0.0, sweep_s=0.001))
    clients = [served.send(GET % b"") for _ in range(8)]
    gate.wait_for(8)
    for _ in range(20):  # and who comes meanwhile finds one
        assert served.connect().send(b"nonsense\r\n\r\n").answer()[0] == 400
    gate.open.set()
    assert [client.answer()[0] for client in clients] == [200] * 8


def test_a_server_rests_after_work(serve: Serve) -> None:
    rests: list[str] = []
    served = serve(limits=QUICK._replace(idle_call_s=0.02), on_idle=lambda: rests.append(threading.current_thread().name))
    served.send(GET % b"").answer()
    wait_until(lambda: bool(rests))
    assert set(rests) == {served.thread.name}


def test_a_server_without_work_does_not_rest(serve: Serve) -> None:
    rests: list[int] = []
    served = serve(limits=QUICK._replace(idle_call_s=0.0, sweep_s=0.001), on_idle=lambda: rests.append(1))
    served.stop()
    assert not rests


def test_a_failing_rest_is_logged_and_ends_nothing(serve: Serve) -> None:
    def fail() -> None:
        raise RuntimeError("kefir")

    served = serve(limits=QUICK._replace(idle_call_s=0.0), on_idle=fail)
    served.send(GET % b"").answer()
    wait_until(lambda: any("kefir" in error for error in served.errors))
    assert served.send(GET % b"").answer()[0] == 200


def test_a_system_without_threads_to_give_is_served_by_those_there_are(
    serve: Serve, monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = serve(threads=5)
    assert served.send(GET % b"").answer()[0] == 200

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert [served.send(GET % b"").answer()[0] for _ in range(5)] == [200] * 5


def test_a_request_that_waits_for_a_thread_is_not_late(serve: Serve) -> None:
    gate = Gate()
    served = serve(gate, threads=1, limits=QUICK._replace(head_s=0.05))
    first = served.send(GET % b"")
    gate.wait_for(1)
    second, silent = served.connect(), served.connect()
    threading.Timer(0.5, gate.open.set).start()
    second.send(GET % b"")
    assert first.answer()[0] == second.answer()[0] == 200
    assert silent.is_closed()


# The end.


def test_stopping_lets_running_requests_end(serve: Serve) -> None:
    gate = Gate()
    served = serve(gate)
    idle, running = served.connect(), served.send(GET % b"")
    gate.wait_for(1)
    served.server.stop(MAX_WAIT_S)
    assert idle.is_closed()
    with pytest.raises(OSError):
        while True:  # until the listener is closed
            socket.create_connection(("127.0.0.1", served.port), MAX_WAIT_S).close()
    gate.open.set()
    status, headers, body = running.answer()
    assert (status, headers["connection"], body) == (200, "close", b"through")
    served.thread.join(MAX_WAIT_S)
    assert not served.thread.is_alive()


def test_stopping_ends_within_its_grace(serve: Serve) -> None:
    gate = Gate()
    served = serve(gate)
    client = served.send(GET % b"")
    gate.wait_for(1)
    started = time.monotonic()
    served.stop(0.05)
    assert is_within(time.monotonic() - started, 5)
    gate.open.set()
    assert client.is_closed()


def test_stopping_twice_or_before_the_start_is_no_error(serve: Serve) -> None:
    server = Server(lambda request: Response(200), ("127.0.0.1", 0))
    server.stop()
    server.stop()
    server.serve()
    server.stop()


def test_a_request_that_is_here_when_stopping_begins_is_answered(serve: Serve) -> None:
    gate = Gate()
    served = serve(gate, threads=1)
    clients = [served.send(GET % b"") for _ in range(3)]
    gate.wait_for(1)
    served.server.stop(MAX_WAIT_S)
    gate.open.set()
    assert [client.answer()[0] for client in clients] == [200] * 3


def test_nothing_is_left_over(serve: Serve) -> None:
    import os
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    served = serve()
    served.send(GET % b"").answer()
    served.connect()
    served.stop()
    for client in served.clients:
        client.close()
    assert not any(thread.name.startswith("http-") for thread in threading.enumerate())
    if before:
        assert len(os.listdir("/proc/self/fd")) <= len(before)


# Addresses.


def test_port_0_takes_a_free_port_and_a_taken_one_is_reported(serve: Serve) -> None:
    served = serve()
    assert served.port > 0
    with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{served.port}: address already in use"):
        Server(lambda request: Response(200), ("127.0.0.1", served.port))


@pytest.mark.parametrize(("address", "words"), [
    (("no-such-host.invalid", 0), "the host name is not known"),
    (("a" * 300, 0), "the host name is not known"),
    (("192.0.2.1", 0), "cannot assign requested address"),
    (("127.0.0.1", 70_000), "cannot listen on 127.0.0.1:70000"),
])
def test_a_wrong_address_is_reported(address: tuple[str, int], words: str) -> None:
    with pytest.raises(ListenError, match=words):
        Server(lambda request: Response(200), address)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_localhost_is_listened_on_at_both_its_addresses(serve: Serve) -> None:
    served = serve(address=("localhost", 0))
    for host in ("127.0.0.1", "localhost"):
        socket.create_connection((host, served.port), MAX_WAIT_S).close()
    names = {found[4][0] for found in socket.getaddrinfo("localhost", 0)}
    if has_ipv6() and "::1" in names:
        socket.create_connection(("::1", served.port), MAX_WAIT_S).close()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "::"])
def test_ipv6_is_listened_on(serve: Serve, host: str) -> None:
    served = serve(lambda request: Response(200, request.client.encode()), address=(host, 0))
    with socket.create_connection(("::1", served.port), MAX_WAIT_S) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert sock.makefile("rb").read().endswith(b"\r\n\r\n::1")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_client_of_the_other_family_has_its_own_address(serve: Serve) -> None:
    served = serve(lambda request: Response(200, request.client.encode()), address=("::", 0))
    try:
        client = served.send(GET % b"")
    except OSError:
        pytest.skip("here, listening on IPv6 is not listening on IPv4")
    assert client.answer()[2] == b"127.0.0.1"


# Too many.


def test_beyond_the_bound_the_longest_waiting_connection_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "connection_limit", lambda: 2)
    served = serve()
    first, second, third = (served.connect() for _ in range(3))
    assert first.is_closed()
    assert second.send(GET % b"").answer()[0] == third.send(GET % b"").answer()[0] == 200


def test_a_connection_whose_request_is_here_is_not_pushed_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "connection_limit", lambda: 2)
    gate = Gate()
    served = serve(gate, threads=1)  # which is busy: both that follow wait with their requests
    clients = [served.send(GET % b"")]
    gate.wait_for(1)
    clients += [served.send(GET % b""), served.send(GET % b"")]
    quiet = served.connect()
    gate.open.set()
    assert [client.answer()[0] for client in clients] == [200] * 3
    quiet.close()


def has_idle_connection(server: Server) -> bool:
    return any(isinstance(each, Connection) and each.is_idle() for each in list(server._poller._pollables.values()))


def test_without_descriptors_accepting_makes_room_or_waits(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve()
    first = served.send(GET % b"")
    assert first.answer()[0] == 200
    failures = iter([errno.EMFILE, errno.EMFILE])
    accept = served.server.accept

    def exhausted(sock: socket.socket, address: Any) -> None:
        sock.close()
        number = next(failures, None)
        if number is None:
            monkeypatch.setattr(served.server, "accept", accept)
        raise OSError(number or errno.ECONNABORTED, "")

    wait_until(lambda: has_idle_connection(served.server))  # the thread that answered it has given it back
    monkeypatch.setattr(served.server, "accept", exhausted)
    served.connect()  # makes room
    assert first.is_closed()
    served.connect()  # finds none to make: the listener rests until the next sweep
    served.connect()
    deadline = time.monotonic() + MAX_WAIT_S
    while time.monotonic() < deadline:
        try:
            assert served.send(GET % b"").answer()[0] == 200
            return
        except (ConnectionResetError, IndexError):
            continue
    raise AssertionError("accepting did not go on")
