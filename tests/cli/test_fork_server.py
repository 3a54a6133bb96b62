"""The process that forks others. What must hold:

1. A child has the standard input and output that its caller got, and the descriptors that it was promised.
2. Its exit status is known when it has ended; one that runs is killed; no other process ever is.
3. The fork server takes its children along when it is closed or killed, and is started again when it is needed.
4. A child that fails says why, and ends. A fork server that does not start raises OSError each time.
5. A resting fork server keeps its children, takes less memory, and loads its code again for the next fork.
"""
from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from svcd.cli.fork_server import ForkServer
from tests.support.daemon import stat_fields

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")

_CHILD = r"""
import os, sys
from svcd.cli import fork_server

def run():
    for line in sys.stdin:
        if line == "fail\n":
            raise ValueError("it was asked to")
        print(os.pread(int(line), 9, 0).decode(), os.getpid(), flush=True)

fork_server.serve(int(sys.argv[1]), run, earlier=map(int, sys.argv[2:]))
"""


@pytest.fixture
def given() -> Iterator[int]:
    """A descriptor that children inherit."""
    descriptor = os.memfd_create("given")
    os.write(descriptor, b"inherited")
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def server(tmp_path: Path, given: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "child.py").write_text(_CHILD)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    one = ForkServer("child", lambda: [given])
    yield one
    one.close()


def answer(commands: IO[bytes], replies: IO[bytes], command: bytes) -> bytes:
    commands.write(command + b"\n")
    commands.flush()
    return replies.readline()


def test_children_answer_over_their_pipes_and_end_with_their_input(server: ForkServer, given: int) -> None:
    children = [server.fork() for _ in range(3)]
    for pid, commands, replies in children:
        with commands, replies:
            assert answer(commands, replies, b"%d" % given) == b"inherited %d\n" % pid
            commands.close()
            assert replies.read() == b""
        assert server.end(pid) == 0


def test_a_child_that_runs_is_killed_once_and_nobody_else(server: ForkServer, given: int) -> None:
    pid, commands, replies = server.fork()
    with commands, replies:
        assert [server.end(pid), server.end(pid), server.end(os.getpid())] == [-signal.SIGKILL, 0, 0]
        assert replies.read() == b""


def test_a_child_that_fails_says_why(server: ForkServer, capfd: pytest.CaptureFixture[str]) -> None:
    pid, commands, replies = server.fork()
    with commands, replies:
        assert answer(commands, replies, b"fail") == b""
    assert server.end(pid) == 1
    assert "ValueError: it was asked to" in capfd.readouterr().err


@pytest.mark.parametrize("is_killed", [False, True])
def test_children_end_with_the_fork_server(server: ForkServer, given: int, is_killed: bool) -> None:
    pid, commands, replies = server.fork()
    with commands, replies:
        if is_killed:
            parent = stat_fields(pid)[1]
            os.kill(int(parent), signal.SIGKILL)
        else:
            server.close()
        assert replies.read() == b"" and server.end(pid) is None
    assert server.is_running is False
    again, commands, replies = server.fork()
    with commands, replies:
        assert answer(commands, replies, b"%d" % given) == b"inherited %d\n" % again


def test_signals_to_all_processes_do_not_end_it(server: ForkServer) -> None:
    server.start()
    assert server.is_running and server._process
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        server._process.send_signal(number)
    pid, commands, replies = server.fork()
    commands.close()
    replies.close()
    assert server.end(pid) in (0, -signal.SIGKILL) and server._process.poll() is None


def test_a_resting_one_keeps_its_children_and_forks_again(server: ForkServer, given: int) -> None:
    children = [server.fork()]
    server.rest()
    server.rest()
    children.append(server.fork())
    assert server._process
    server.rest()
    for pid, commands, replies in children:
        with commands, replies:
            assert stat_fields(pid)[1] == str(server._process.pid)
            assert answer(commands, replies, b"%d" % given) == b"inherited %d\n" % pid
        assert server.end(pid) in (0, -signal.SIGKILL)
        assert server.end(pid) == 0
    assert b"svcd.cli.fork_server" in Path(f"/proc/{server._process.pid}/cmdline").read_bytes()


def test_one_that_does_not_start_is_told_each_time() -> None:
    server = ForkServer("svcd.cli.no_such_module", list)
    for call in (server.start, server.fork, server.start):
        with pytest.raises(OSError):
            call()
    assert not server.is_running
