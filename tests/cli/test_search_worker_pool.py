"""Restarts of search workers. What must hold:

1. A worker that ends soon after its start is restarted after pauses of 1, 2, 4 ... seconds, up to a minute.
2. After it has run for a while it is restarted at once, and later pauses are short again.
3. Each end is logged in one line, and none is restarted once the daemon stops.
4. A worker whose main process was killed before it sent the configuration ends, and prints nothing.
"""
from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable
from contextlib import closing

import pytest

from svcd.cli import search_worker
from svcd.cli.fork_server import ForkServer
from svcd.cli.search_worker_pool import LONG_RUN_S, keep_running
from svcd.index.read_transaction import Cache


class Stopping(threading.Event):
    """The event of a daemon that stops after some runs of a worker; pauses pass at once. clock: seconds."""

    def __init__(self, runs: Iterable[float]) -> None:
        super().__init__()
        self.runs = list(runs)
        self.clock = 0.0
        self.pauses: list[float] = []

    def run(self) -> dict[str, int]:
        """A run of the worker."""
        self.clock += self.runs.pop(0)
        return {"number": 1, "status": 3}

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        self.clock += timeout or 0.0
        if not self.runs:
            self.set()
        return self.is_set()


def pauses_after(*runs: float) -> list[float]:
    """The pauses between runs of so many seconds."""
    stopping = Stopping(runs)
    keep_running(stopping.run, stopping, lambda: stopping.clock)
    return stopping.pauses


def test_pauses_double_up_to_a_minute() -> None:
    assert pauses_after(*[0.25] * 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_long_run_ends_the_pauses() -> None:
    assert pauses_after(0.25, 0.25, 0.25, LONG_RUN_S, 0.25, 0.25) == [1, 2, 4, 0, 1, 2]


def test_each_end_is_one_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    pauses_after(0.25, 0.25, 0.25)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all("number=1" in line and "status=3" in line for line in lines)
    assert "pause_s=4" in lines[2]


def test_a_worker_that_ends_with_the_daemon_is_not_restarted(capsys: pytest.CaptureFixture[str]) -> None:
    stopping = threading.Event()
    keep_running(lambda: {"ended": stopping.set()}, stopping)
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_a_worker_without_a_configuration_ends(capfd: pytest.CaptureFixture[str]) -> None:
    with closing(ForkServer(search_worker.__name__, list, lambda file: Cache(0).dump(file, 0))) as server:
        pid, commands, replies = server.fork()
        commands.close()
        with replies:
            assert replies.read() == b""
        assert server.end(pid) in (0, -signal.SIGKILL)  # perhaps it is still about to exit
    assert capfd.readouterr().err == ""
