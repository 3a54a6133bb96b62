"""A whole daemon, from its start to its end. What must hold:

1. The banner shows the address with the real port, the version, and whether there is a master key.
2. It answers, and each request is a line of its log.
3. SIGTERM and SIGINT stop it with status 0, and the folder can be used again.
4. A folder or an address in use makes the start fail: one line, status 1.
5. Neither banner nor log contains the master key.
"""
from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEY = "a-master-key-of-some-length"
SECONDS = 20


class Daemon:
    """A daemon on a free port and a folder; `banner` is what it says at its start."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SVC_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "svcd", "--http-addr", "127.0.0.1:0", "--db-path", str(folder / "data.ms"),
             *arguments],
            cwd=folder, env={**environ, "PYTHONPATH": str(ROOT), "SVC_MASTER_KEY": KEY},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        self.banner = ""

    def wait_for(self, mark: str) -> str:
        """The text on stderr up to the line with this mark."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.banner += line
            if mark in line:
                return self.banner
        raise AssertionError(f"{mark!r} never came: {self.banner}")

    def stop(self, number: int = signal.SIGTERM) -> str:
        """The rest of stderr after this signal."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=SECONDS)[1]

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose banner has been read."""
    with Daemon(tmp_path) as daemon:
        daemon.wait_for("pid")
        yield daemon


def _address(banner: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:[1-9]\d*", banner)
    assert found, banner
    return found[0]


def _get(url: str) -> int:
    with urlopen(Request(url, headers={"Authorization": f"Bearer {KEY}"}), timeout=SECONDS) as answer:
        answer.read()
        return int(answer.status)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_starts_answers_and_stops(number: int, started: Daemon, tmp_path: Path) -> None:
    address = _address(started.banner)
    assert str(tmp_path / "data.ms") in started.banner
    assert "master key" in started.banner
    assert _get(f"{address}/health") == 200
    assert _get(f"{address}/version?q=private") == 200
    rest = started.stop(number)
    assert started.process.returncode == 0
    assert "INFO request method=GET path=/version status=200" in rest
    assert rest.rstrip().endswith("stopped")
    assert "private" not in rest and "Traceback" not in rest
    assert KEY not in started.banner + rest


def test_in_json_every_line_is_an_object(tmp_path: Path) -> None:
    with Daemon(tmp_path, "--experimental-logs-mode", "json") as daemon:
        lines = daemon.wait_for('"pid"').splitlines()
        _get(_address(daemon.banner) + "/health")
        lines += daemon.stop().splitlines()
    assert {"request", "stopped"} <= {json.loads(line)["event"] for line in lines}


def test_a_folder_in_use_refuses_the_start(started: Daemon, tmp_path: Path) -> None:
    with Daemon(tmp_path) as second:
        err = second.process.communicate(timeout=SECONDS)[1]
    assert second.process.returncode == 1
    assert err.startswith("svcd: ") and err.count("\n") == 1
    assert "in use" in err and "data.ms" in err
    assert _get(f"{_address(started.banner)}/health") == 200


def test_the_folder_is_free_after_the_end(started: Daemon, tmp_path: Path) -> None:
    started.stop()
    with Daemon(tmp_path) as second:
        second.wait_for("pid")
        second.stop()
    assert second.process.returncode == 0


def test_an_address_in_use_refuses_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Daemon(tmp_path, "--http-addr", f"127.0.0.1:{port}") as daemon:
            err = daemon.process.communicate(timeout=SECONDS)[1]
    assert daemon.process.returncode == 1
    assert err.startswith("svcd: ") and err.count("\n") == 1
    assert f"127.0.0.1:{port}" in err


def test_a_host_that_does_not_exist_refuses_the_start(tmp_path: Path) -> None:
    with Daemon(tmp_path, "--http-addr", "no-such-host.invalid:7700") as daemon:
        err = daemon.process.communicate(timeout=SECONDS)[1]
    assert daemon.process.returncode == 1
    assert err.startswith("svcd: ") and err.count("\n") == 1
    assert "no-such-host.invalid:7700" in err
