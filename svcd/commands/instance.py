"""The instance that a command talks to: requests over HTTP to a running daemon, or to one started for a data folder.

By default it is the daemon of the same configuration (--http-addr, --master-key, SVC_* variables, ./config.toml). With --folder
the command starts its own daemon on that data folder, on a free port of loopback with a random master key, and stops it at the
end; it fails if another svcd uses the folder.
"""
from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

from svcd.base.json_text import loads_wrapped
from svcd.cli.config import COMMAND_VARIABLE, load
from svcd.http.tls import client_context

FAILED, MISUSED, UNREACHABLE = 1, 2, 3
TIMEOUT_S = 60.0
# The time that a daemon may take to open a data folder; the upgrade of a large folder takes minutes.
START_S = 3600.0
_STOP_S = 60.0
_ADDRESS = re.compile(r"address\s+(https?://\S+)")
_SHORTEST_POLL_S, _LONGEST_POLL_S = 0.02, 0.5

Tell = Callable[[Mapping[str, Any]], None]


class CommandFailed(click.ClickException):
    """The command fails. message: the fault and its correction; exit_code: the status of the command."""

    def __init__(self, reason: str, status: int = FAILED) -> None:
        super().__init__(reason)
        self.exit_code = status  # type: ignore[misc]  # click declares it for the class


class Refused(CommandFailed):
    """The instance refused a request. code: the code of the error."""

    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.code = code


def options(command: Any) -> Any:
    """Add the options that name an instance; the command passes their values to opened()."""
    for option in (
        click.option("--folder", type=click.Path(path_type=Path),
                     help="Use a data folder that no daemon has open, instead of a daemon."),
        click.option("--key", help="API key or master key; by default the master key of the configuration."),
        click.option("--url", help="Address of the daemon; by default the address in the configuration."),
    ):
        command = option(command)
    return command


class Instance:
    """Requests to one instance. url: with the scheme; key: None for none."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CommandFailed(f"--url {url}: not an address; write for example http://localhost:7700", MISUSED)
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._parts = parts
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def call(self, method: str, path: str, value: Any = None) -> Any:
        """Send a request and return the JSON of the response. value: the body, unless it is None. Raises CommandFailed."""
        body = None if value is None else json.dumps(value).encode()
        return self.send(method, path, body, "application/json")

    def send(self, method: str, path: str, body: bytes | None, content_type: str) -> Any:
        """Send a request with an encoded body and return the JSON of the response. Raises CommandFailed."""
        status, text = self.exchange(method, path, body, {} if body is None else {"Content-Type": content_type})
        try:
            value = loads_wrapped(text) if text else None
        except ValueError:
            raise CommandFailed(f"{self.url} answers, but not like svcd; check the address", UNREACHABLE) from None
        if status >= 400:
            fault = value if isinstance(value, dict) else {}
            hint = "; name a key with --key" if status in (401, 403) else ""
            raise Refused(f"{fault.get('message', f'status {status}')}{hint}", str(fault.get("code", "")))
        return value

    def exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a request and return (status, body) of the response. Raises CommandFailed if there is none."""
        host, port = self._parts.hostname or "", self._parts.port
        connection = (http.client.HTTPSConnection(host, port or 443, timeout=TIMEOUT_S, context=client_context())
                      if self._parts.scheme == "https" else http.client.HTTPConnection(host, port or 80, timeout=TIMEOUT_S))
        try:
            connection.request(method, path, body, {**self._headers, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as failure:
            reason = getattr(failure, "strerror", None) or str(failure) or type(failure).__name__
            raise CommandFailed(f"{self.url} does not answer: {reason}; start the daemon with `svcd`, name another with --url, "
                                "or a data folder with --folder", UNREACHABLE) from None
        finally:
            connection.close()

    def finished(self, task_uid: int, tell: Tell = lambda task: None) -> Mapping[str, Any]:
        """Wait for a task. tell: called with the task after each poll. Raises CommandFailed when the task failed."""
        pause_s = _SHORTEST_POLL_S
        while True:
            task: Mapping[str, Any] = self.call("GET", f"/tasks/{task_uid}")
            tell(task)
            if task["status"] == "succeeded":
                return task
            if task["status"] in ("failed", "canceled"):
                reason = (task["error"] or {}).get("message", "it was canceled")
                raise CommandFailed(f"task {task_uid} ({task['type']}) {task['status']}: {reason}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_POLL_S)

    def progress(self, task: Mapping[str, Any]) -> float | None:
        """Return the progress of the batch of a task, 0 to 1; None when it is unknown."""
        if task["status"] != "processing" or task["batchUid"] is None:
            return None
        progress = self.call("GET", f"/batches/{task['batchUid']}").get("progress")
        return progress["percentage"] / 100 if progress else None


def index_path(index_uid: str) -> str:
    """Return the path of an index in URLs."""
    return f"/indexes/{quote(index_uid, safe='')}"


def read_object(path: Path) -> dict[str, Any]:
    """The object in a file of TOML or JSON. Raises CommandFailed."""
    try:
        text = path.read_text(encoding="utf-8")
        value = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as failure:
        raise CommandFailed(f"{path} cannot be read: {failure.strerror}", MISUSED) from None
    except ValueError as wrong:  # of either format, and of UTF-8
        raise CommandFailed(f"{path} is not {'TOML' if path.suffix == '.toml' else 'JSON'}: {wrong}", MISUSED) from None
    if not isinstance(value, dict):
        raise CommandFailed(f"{path} must contain an object", MISUSED)
    return value


@contextmanager
def opened(context: click.Context, url: str | None, key: str | None, folder: Path | None, *arguments: str) -> Iterator[Instance]:
    """Yield the instance that the options name. arguments: of a daemon for a folder. Raises CommandFailed, ConfigError."""
    if folder is not None:
        if url or key:
            raise CommandFailed("--folder starts its own daemon: leave out --url and --key", MISUSED)
        with started(folder, *arguments) as instance:
            yield instance
        return
    config = load(context.find_root().obj or {}, os.environ)
    if url is None:
        scheme = "https" if config.ssl_cert_path else "http"
        url = f"{scheme}://{config.http_addr}"
    yield Instance(url, key or config.master_key)


@contextmanager
def started(folder: Path, *arguments: str, must_exist: bool = True) -> Iterator[Instance]:
    """Start a daemon on a data folder and yield it. arguments: further options. Raises CommandFailed with its last message."""
    if must_exist and not (folder / "instance.sqlite").exists():
        raise CommandFailed(f"{folder} is not a data folder of svcd: instance.sqlite not found")
    key = secrets.token_urlsafe(24)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SVC_", "MEILI_"))}
    with tempfile.TemporaryDirectory(prefix="svcd-command-") as work, open(Path(work) / "log", "w+b") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "svcd", "--config-file-path", os.devnull, "--http-addr", "127.0.0.1:0", "--no-analytics",
             "--db-path", str(folder.absolute()), "--dump-dir", work, *(() if "--snapshot-dir" in arguments
             else ("--snapshot-dir", work)), *arguments],
            env={**environ, "SVC_MASTER_KEY": key, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                 COMMAND_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        try:
            yield Instance(_address(process, Path(log.name)), key)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:  # nothing is lost: acknowledged writes are on disk
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        is_over = process.poll() is not None  # asked before the log is read, so that the log is complete then
        said = log.read_text(errors="replace")
        found = _ADDRESS.search(said)
        if found:
            return found[1]
        if is_over:
            last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
            raise CommandFailed(last.removeprefix("svcd: "))
        time.sleep(_SHORTEST_POLL_S)
    raise CommandFailed(f"the daemon does not start within {START_S:.0f} s")
