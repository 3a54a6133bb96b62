"""Several svcd that share a log: started as processes, called over HTTP, killed, paused, started again."""
from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support.daemon import ROOT
from tests.support.log_servers import LOOPBACK, free_ports

KEY = "a-master-key-of-the-cluster"


class Node:
    """One svcd. wrapper: what stands before its command, such as one that enters a network namespace."""

    def __init__(self, name: str, folder: Path, address: str, host: str = LOOPBACK, port: int | None = None,
                 wrapper: Sequence[str] = (), arguments: Sequence[str] = ()) -> None:
        self.name, self.folder, self.host = name, folder / name, host
        self.port = port or free_ports(1)[0]
        self._command = [*wrapper, sys.executable, "-m", "svcd", "--cluster", address, "--node-name", name,
                         "--http-addr", f"{host}:{self.port}", "--db-path", str(self.folder / "data"), "--master-key", KEY,
                         "--dump-dir", str(folder / "dumps"), "--snapshot-dir", str(folder / "snapshots"), "--no-analytics",
                         *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; does not wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / "log"

    @property
    def is_running(self) -> bool:
        """Is there a process, paused or not?"""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the daemon and all its processes."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End it as a crash does."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self) -> int:
        """End it as a service manager does; its status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(60)

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None,
             timeout: float = 30.0) -> tuple[int, Any]:
        """Status and JSON of an answer. Raises OSError, HTTPException."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
            connection.request(method, path, content, {"Authorization": f"Bearer {KEY}", "Content-Type": kind, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: Any = None, **kwargs: Any) -> Any:
        """The JSON of an answer that must not be an error."""
        status, value = self.call(method, path, body, **kwargs)
        assert status < 400, (self.name, method, path, status, value)
        return value

    def is_ready(self) -> bool:
        """Does it answer, and know who leads?"""
        try:
            status, value = self.call("GET", "/cluster", timeout=2)
        except (OSError, http.client.HTTPException):
            return False
        return status == 200 and value["leader"] is not None and value["fault"] is None

    def finished(self, uid: int, within_s: float = 30.0) -> Any:
        """The task once it has ended on this node."""
        deadline = time.monotonic() + within_s
        while True:
            status, task = self.call("GET", f"/tasks/{uid}")
            if status == 200 and task["status"] in ("succeeded", "failed", "canceled"):
                return task
            assert time.monotonic() < deadline, (self.name, status, task)
            time.sleep(0.01)


class Nodes:
    """The nodes of one cluster."""

    def __init__(self, folder: Path, address: str, names: Iterable[str] = "abc", **kwargs: Any) -> None:
        self.all = [Node(name, folder, address, **kwargs) for name in names]

    def __getitem__(self, number: int) -> Node:
        return self.all[number]

    def start(self) -> None:
        """Start all, and wait until they are ready."""
        for node in self.all:
            node.start()
        for node in self.all:
            self.await_true(node.is_ready)

    def await_true(self, is_so: Callable[[], bool], within_s: float = 30.0) -> None:
        """Return when is_so() holds."""
        deadline = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline, "\n".join(f"{n.name}: {n.log.read_text()[-1500:]}" for n in self.all)
            time.sleep(0.02)

    def leader(self) -> Node | None:
        """The node that leads by its own account."""
        for node in self.all:
            try:
                status, value = node.call("GET", "/cluster", timeout=1)
            except (OSError, http.client.HTTPException):
                continue
            if status == 200 and value["leader"] == node.name:
                return node
        return None

    def close(self) -> None:
        """End all."""
        for node in self.all:
            node.kill()
