"""A daemon as a service of systemd, which a test stands in for. What must hold:

1. It listens on the sockets that are passed, and only where they are meant for it; others refuse the start.
2. READY=1 comes when every request is answered, STOPPING=1 when the stop begins.
3. The watchdog is pinged as long as requests are answered, and no longer.
4. SIGHUP sets the log level of the file, and says which other options need a restart.
5. With --exit-when-idle it exits after that time without connections and work; a connection that comes then is answered
   by the next process.
6. The units are valid, and their exposure stays within the bound.
"""
from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from svcd.cli.supervision import IdleTime, ReloadRequest, ServiceManager, UnusableSocket, Watchdog, passed_sockets
from svcd.http.message import Response
from svcd.http.server import Server

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20.0
MAX_EXPOSURE = 2.0  # of 10, as systemd-analyze counts it
# Passes a descriptor as systemd does: as the third, and with the id of the process that svcd will be.
PASS_ON = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "svcd", *sys.argv[2:]])
"""


class Manager:
    """The socket that services send their states to. states: all assignments that have come, in order."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self.states: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))

    def until(self, state: str, seconds: float = SECONDS) -> None:
        """Wait for a state."""
        self._socket.settimeout(seconds)
        while state not in (said := self._socket.recv(4096).decode().split("\n")):
            self.states += said
        self.states += said

    def rest(self) -> list[str]:
        """The states that have come and were not waited for."""
        self._socket.settimeout(0.05)
        said: list[str] = []
        while True:
            try:
                said += self._socket.recv(4096).decode().split("\n")
            except TimeoutError:
                return said

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path)
    yield made
    made.close()


class Service:
    """A daemon with a passed socket, in a session without a terminal. log: what it prints."""

    def __init__(self, folder: Path, manager: Manager, listener: socket.socket, *arguments: str, **variables: str) -> None:
        self.log = folder / "log"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SVC_")}
        variables = {"NOTIFY_SOCKET": str(manager.path), "LISTEN_FDS": "1", "PYTHONPATH": str(ROOT), **variables}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PASS_ON, str(listener.fileno()), "--db-path", str(folder / "data.ms"), *arguments],
                cwd=folder, env={**environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                start_new_session=True, pass_fds=[listener.fileno()])

    def said(self, words: str, seconds: float = SECONDS) -> str:
        """The log, once it has these words."""
        deadline = time.monotonic() + seconds
        while words not in (log := self.log.read_text()):
            assert time.monotonic() < deadline, log
            time.sleep(0.01)
        return log

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


def status_of(listener: socket.socket, path: str) -> int:
    with urlopen(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", timeout=SECONDS) as answer:
        return int(answer.status)


# -- A whole service


def test_a_service_lives_and_ends(tmp_path: Path, manager: Manager, listener: socket.socket) -> None:
    """Sockets, states, watchdog, reload and stop of one daemon."""
    (tmp_path / "config.toml").write_text('log_level = "WARN"\n')
    with Service(tmp_path, manager, listener, WATCHDOG_USEC="3000000") as service:
        manager.until("READY=1")
        port = listener.getsockname()[1]
        assert manager.states == ["READY=1", f"STATUS=listening on http://127.0.0.1:{port}"]
        assert status_of(listener, "/version") == 200
        for _ in range(2):
            manager.until("WATCHDOG=1")
        (tmp_path / "config.toml").write_text('log_level = "INFO"\nexperimental_search_queue_size = 7\n')
        service.process.send_signal(signal.SIGHUP)
        manager.until("RELOADING=1")
        manager.until("READY=1")
        log = service.said("reloaded log_level=INFO")
        assert "need a restart options=--experimental-search-queue-size" in service.said("need a restart")
        assert "INFO request" not in log
        assert status_of(listener, "/version") == 200
        assert "path=/health" not in service.said("path=/version")
        (tmp_path / "config.toml").write_text("log_level = 7\n")
        service.process.send_signal(signal.SIGHUP)
        manager.until("READY=1")
        assert "expected one of" in service.said("reload failed")
        service.process.send_signal(signal.SIGTERM)
        manager.until("STOPPING=1")
        assert service.process.wait(SECONDS) == 0
        assert "WATCHDOG=1" not in manager.rest()


def test_an_idle_service_exits_and_the_next_connection_waits_for_its_successor(
    tmp_path: Path, manager: Manager, listener: socket.socket,
) -> None:
    arguments = ("--exit-when-idle", "2")
    with Service(tmp_path, manager, listener, *arguments) as service:
        manager.until("READY=1")
        assert status_of(listener, "/version") == 200
        manager.until("STOPPING=1")
        assert service.process.wait(SECONDS) == 0
        assert "idle: exiting" in service.said("stopped")
    with socket.create_connection(listener.getsockname(), SECONDS) as client:
        client.sendall(b"GET /version HTTP/1.1\r\nHost: svcd\r\n\r\n")
        with Service(tmp_path, manager, listener, *arguments):
            assert client.recv(15) == b"HTTP/1.1 200 OK"


def test_what_was_passed_and_is_no_listening_socket_refuses_the_start(tmp_path: Path, manager: Manager) -> None:
    with socket.socket() as unbound, Service(tmp_path, manager, unbound) as service:
        assert service.process.wait(SECONDS) == 1
        assert "svcd: descriptor 3 of $LISTEN_FDS is not a TCP socket that listens" in service.log.read_text()
        assert manager.rest() == []


# -- Parts


def test_sockets_for_another_process_are_not_taken() -> None:
    environ = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "svcd.socket"}
    assert passed_sockets(environ) == [] and environ == {}
    assert passed_sockets({}) == []


def test_a_file_is_not_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setattr("svcd.cli.supervision.FIRST_DESCRIPTOR", file.fileno())
        with pytest.raises(UnusableSocket, match="is not a socket"):
            passed_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})


def test_without_systemd_nothing_is_sent_or_expected() -> None:
    service_manager = ServiceManager({"WATCHDOG_USEC": "1000000"})
    assert service_manager.watchdog_s is None
    service_manager.send("READY=1")


@pytest.mark.parametrize(("variables", "watchdog_s"), [
    ({"WATCHDOG_USEC": "30000000"}, 30.0),
    ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
    ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
    ({"WATCHDOG_USEC": "0"}, None),
    ({"WATCHDOG_USEC": "soon"}, None),
    ({}, None),
])
def test_the_interval_of_the_watchdog(variables: dict[str, str], watchdog_s: float | None) -> None:
    environ = {"NOTIFY_SOCKET": "/nowhere", **variables}
    assert ServiceManager(environ).watchdog_s == watchdog_s
    assert environ == {}


def test_an_abstract_socket_and_one_that_is_gone() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = f"svcd-test-{os.getpid()}"
        sock.bind(f"\0{name}")
        sock.settimeout(SECONDS)
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).send("READY=1", "STATUS=x")
        assert sock.recv(100) == b"READY=1\nSTATUS=x"
    ServiceManager({"NOTIFY_SOCKET": "/nowhere"}).send("READY=1")


class Stub:
    """A server, as far as the supervision asks it. connections: those that were handed to it."""

    def __init__(self) -> None:
        self.accepted = 0
        self.has_connections = False
        self.connections: list[socket.socket] = []

    def receive(self, sock: socket.socket, _client: str, request: bytes) -> None:
        assert request.startswith(b"GET /health ")
        self.connections.append(sock)


@pytest.mark.parametrize(("answer", "pings"), [(b"HTTP/1.1 200 OK\r\n", ["WATCHDOG=1"]), (b"HTTP/1.1 503 No\r\n", []), (b"", [])])
def test_the_watchdog_is_pinged_after_a_good_answer_only(tmp_path: Path, manager: Manager, answer: bytes, pings: list[str]) -> None:
    server: Any = Stub()
    watchdog = Watchdog(ServiceManager({"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "3000000"}), server)
    watchdog.look(10.0)
    watchdog.look(10.5)
    assert len(server.connections) == 1 and manager.rest() == []
    server.connections[0].sendall(answer)
    watchdog.look(10.9)
    assert manager.rest() == pings
    watchdog.look(11.0)  # a third of the interval later
    assert len(server.connections) == (2 if pings else 1)
    watchdog.close()
    for sock in server.connections:
        sock.close()


def test_the_watchdog_is_not_pinged_while_the_threads_of_requests_hang(manager: Manager) -> None:
    """A request that never ends takes the only thread."""
    import threading

    released = threading.Event()

    def answer(request: Any) -> Response:
        if request.segments != ("health",):
            released.wait(SECONDS)
        return Response(200, b"{}")

    server = Server(answer, ("127.0.0.1", 0), threads=1)
    watchdog = Watchdog(ServiceManager({"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "1"}), server)
    serving = threading.Thread(target=server.serve)
    serving.start()
    try:
        watchdog.look(1.0)
        until = time.monotonic() + SECONDS
        while not (said := manager.rest()) and time.monotonic() < until:
            watchdog.look(1.0)
        assert said == ["WATCHDOG=1"]
        with socket.create_connection(("127.0.0.1", server.port), SECONDS) as client:
            client.sendall(b"GET /stuck HTTP/1.1\r\nHost: svcd\r\n\r\n")
            time.sleep(0.1)
            manager.rest()
            for moment in (3.0, 4.0, 5.0):
                watchdog.look(moment)
                assert manager.rest() == []
            released.set()
            assert client.recv(15) == b"HTTP/1.1 200 OK"
    finally:
        released.set()
        server.stop(SECONDS)
        serving.join(SECONDS)
        watchdog.close()


def test_idle_is_no_connection_and_no_work() -> None:
    server: Any = Stub()
    work = [True, False]
    idle = IdleTime(server, lambda: work.pop(0))
    now = 1000.0
    assert not idle.exceeds(5, now + 2)  # the first look
    assert not idle.exceeds(5, now + 4)
    server.accepted = 1  # a short one, between two looks
    assert not idle.exceeds(5, now + 6)
    server.has_connections = True
    assert not idle.exceeds(5, now + 20)
    server.has_connections = False
    assert not idle.exceeds(5, now + 24)
    assert not idle.exceeds(5, now + 25)  # there is work
    assert not idle.exceeds(5, now + 29)
    assert work == [False]
    assert idle.exceeds(5, now + 30)


def test_a_hangup_of_the_terminal_still_ends_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGHUP)
    monkeypatch.setattr("svcd.cli.supervision._has_terminal", lambda: True)
    with ReloadRequest():
        assert signal.getsignal(signal.SIGHUP) == before
    monkeypatch.setattr("svcd.cli.supervision._has_terminal", lambda: False)
    with ReloadRequest() as request:
        signal.raise_signal(signal.SIGHUP)
        assert request.is_there
    assert signal.getsignal(signal.SIGHUP) == before


# -- Units

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@needs_systemd
@pytest.mark.parametrize("unit", ["svcd.service", "svcd.socket"])
def test_the_units_are_valid(unit: str) -> None:
    made = subprocess.run(["systemd-analyze", "verify", "--man=no", ROOT / "examples" / unit], capture_output=True, text=True,
                          check=False)
    faults = [line for line in made.stderr.splitlines() if "svcd." in line and "not executable" not in line]
    assert faults == []


def exposure(unit: Path) -> float:
    """How much a service could do to the system, from 0 to 10."""
    made = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit], capture_output=True, text=True,
                          check=False)
    found = re.search(r"Overall exposure level for .*: ([\d.]+)", made.stdout)
    if not found:
        pytest.skip(f"this systemd-analyze rates no units offline: {made.stderr.strip()[:80]}")
    return float(found[1])


@needs_systemd
def test_the_service_could_do_little_harm() -> None:
    assert exposure(ROOT / "examples" / "svcd.service") <= MAX_EXPOSURE
