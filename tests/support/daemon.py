"""A daemon as its users meet it: a process of its own, reached over loopback, killed and started again.

Knows processes, sockets and /proc; refuses to know what any route means, but for the two that tell whether tasks
are left (`/tasks`). Every wait here is for something that happens, with an end of its own.
"""
from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
START_S = 20.0
DRAIN_S = 120.0
ORPHAN_S = 30.0  # a process that has just started may not notice at once on a busy machine
_BANNER = re.compile(r"address\s+https?://127\.0\.0\.1:(\d+)")
_ERROR = re.compile(r"^\S+ ERROR .*(?:\n  .*)*", re.MULTILINE)
_TRACEBACK = re.compile(r"^Traceback .*\n(?:[ \t].*\n)+(.*)", re.MULTILINE)
_WARNING = re.compile(r"^\w+Warning: .*", re.MULTILINE)  # where no code could catch it
_UNFINISHED = "/tasks?statuses=enqueued,processing&limit=0"

Content = bytes | str | Iterable[bytes] | None


@dataclass(frozen=True)
class Reply:
    """One answer, and how long it took."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """The code of an error object, None for another answer."""
        shown = self.json if self.body[:1] == b"{" else {}
        return shown.get("code") if self.status >= 400 else None


class Daemon:
    """One folder with a daemon on it. Its stderr goes to `folder/log`, its data to `folder/data.ms`."""

    def __init__(self, folder: Path, args: Sequence[str] = (), most_files: int | None = None, prelude: str = "",
                 variables: Mapping[str, str] | None = None) -> None:
        """most_files: how many it may have open, as with `ulimit -n`. prelude: Python code that runs in it first. variables:
        `SVC_*` variables of its environment, which otherwise has none."""
        self._module = ["-c", f"{prelude}\nimport runpy\nrunpy.run_module('svcd', run_name='__main__')"] if prelude \
            else ["-m", "svcd"]
        self._shell = ["sh", "-c", f'ulimit -n {most_files} && exec "$@"', "sh"] if most_files else []
        self.folder = folder
        self.data = folder / "data.ms"
        self.log = folder / "log"
        self._args = args
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    # Life

    def start(self) -> Daemon:
        """Start, also again after an end; returns when it listens."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        self.spawn()
        self.port = self._announced(begin)
        return self

    def spawn(self) -> None:
        """Start, and do not wait for anything."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("SVC_", "MEILI_"))}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._shell, sys.executable, *self._module, "--http-addr", "127.0.0.1:0", "--db-path", str(self.data),
                 "--no-analytics", *self._args], cwd=self.folder,
                env={**environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **self._variables},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)

    def _announced(self, begin: int) -> int:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            said = self.log.read_bytes()[begin:].decode()
            found = _BANNER.search(said)
            if found and "pid" in said[found.end():]:
                return int(found[1])
            assert self._process and self._process.poll() is None, f"it did not start: {said}"
            time.sleep(0.005)
        raise AssertionError(f"it does not listen: {said}")

    @property
    def pids(self) -> list[int]:
        """The daemon, and the processes it has started, as far as they live, each before those it has started."""
        assert self._process
        return _tree(self._process.pid)

    def anonymous_mb(self) -> float:
        """What daemon and indexing processes hold in memory of their own, in MB of 10^6 bytes."""
        return sum(map(_anonymous_bytes, self.pids)) / 1e6

    def kill9(self) -> None:
        """End the daemon as a crash does. Its indexing processes must end by themselves, and at once."""
        assert self._process
        pids = self.pids
        self._process.kill()
        self._process.wait()
        deadline = time.monotonic() + ORPHAN_S
        while any(map(_lives, pids)):
            assert time.monotonic() < deadline, f"indexing processes outlive the daemon: {pids}"
            time.sleep(0.002)

    def children(self, module: str) -> list[int]:
        """The processes it has started that run a module."""
        return [pid for pid in self.pids[1:] if module.encode() in _command(pid)]

    def ended(self) -> int:
        """The exit status of one that ends by itself."""
        assert self._process
        return self._process.wait(START_S)

    def stop(self) -> int:
        """End in good order; the exit status."""
        assert self._process
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def bugs(self, expected: str | None = None) -> list[str]:
        """What the log tells of bugs and of Python's warnings: there must be none. An indexing process that finds nobody to answer any more
        is none, and neither is what has the expected text in it."""
        said = self.log.read_text(errors="replace")
        found = [error.strip() for error in _ERROR.findall(said)]
        found += _WARNING.findall(said)
        found += [end for end in _TRACEBACK.findall(said) if not end.startswith("BrokenPipeError")]
        return [bug for bug in found if expected is None or expected not in bug]

    # Requests

    def call(self, method: str, path: str, body: Content = None, headers: Mapping[str, str] | None = None,
             timeout: float = 60.0) -> Reply:
        """One request on a connection of its own. A body without Content-Type is JSON; an iterable is sent in chunks."""
        content = body.encode() if isinstance(body, str) else body
        sent = {"accept": "*/*", **({"content-type": "application/json"} if body is not None else {}), **(headers or {})}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        begin = time.monotonic()
        try:
            try:
                connection.request(method, path, content, sent)
            except (BrokenPipeError, ConnectionResetError):  # refused before its end: the answer is there
                if connection.sock is None:  # killed while it took the connection: there is none
                    raise
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.headers), answer.read(), time.monotonic() - begin)
        finally:
            connection.close()

    def post(self, path: str, value: Any) -> Reply:
        """A POST of a JSON value."""
        return self.call("POST", path, json.dumps(value))

    def get(self, path: str) -> Any:
        """The JSON that a path answers."""
        reply = self.call("GET", path)
        assert reply.status == 200, (path, reply.body)
        return reply.json

    def raw(self, request: bytes, timeout: float = 20.0) -> bytes:
        """What comes back for bytes that no well-behaved client sends, up to the end of the connection."""
        received = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as connection:
            try:
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass
            try:
                while piece := connection.recv(65536):
                    received += piece
            except ConnectionResetError:
                pass
        return received

    # Tasks

    def unfinished(self) -> int:
        """How many tasks wait or run."""
        return self.get(_UNFINISHED)["total"]

    def drain(self, seconds: float = DRAIN_S) -> None:
        """Wait until no task waits or runs."""
        deadline = time.monotonic() + seconds
        while self.unfinished():
            assert time.monotonic() < deadline, f"tasks are left: {self.get('/tasks?statuses=enqueued,processing')}"
            time.sleep(0.01)

    def done(self, summary: Reply, seconds: float = DRAIN_S) -> dict[str, Any]:
        """The task of a 202, once it has ended."""
        assert summary.status == 202, summary.body
        deadline = time.monotonic() + seconds
        while (task := self.get(f"/tasks/{summary.json['taskUid']}"))["status"] in ("enqueued", "processing"):
            assert time.monotonic() < deadline, f"it does not end: {task}"
            time.sleep(0.005)
        return task


def start(args: Sequence[str], folder: Path) -> Daemon:
    """A daemon that listens. Whoever starts it ends it."""
    return Daemon(folder, args).start()


@contextmanager
def running(folder: Path, *args: str, variables: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """A daemon for the length of a block."""
    daemon = Daemon(folder, args, variables=variables).start()
    try:
        yield daemon
    finally:
        daemon.kill9()


@contextmanager
def memory_watched(daemon: Daemon, every_s: float = 0.02) -> Iterator[list[float]]:
    """The anonymous memory of a daemon during a block, in MB: [at its beginning, the most since]."""
    seen = [daemon.anonymous_mb()] * 2
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(every_s):
            seen[1] = max(seen[1], daemon.anonymous_mb())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        ended.set()
        watcher.join()
        seen[1] = max(seen[1], daemon.anonymous_mb())


def _tree(pid: int) -> list[int]:
    found = [pid]
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += _tree(int(child))
    except OSError:  # it ended, or a thread of it
        pass
    return found


def stat_fields(pid: int) -> list[str]:
    """What /proc says of a process, from its state on, the third field in proc(5). Raises OSError when it has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def processor_seconds(pid: int) -> float:
    """The time that the processors have spent on a process. Raises OSError when it has ended."""
    return sum(map(int, stat_fields(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def _lives(pid: int) -> bool:
    try:
        return stat_fields(pid)[0] != "Z"
    except OSError:
        return False


def _command(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it ended
        return []


def _anonymous_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it ended
        return 0
    found = re.search(r"^Anonymous:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
