"""Servers for the replay tool that need not load svcd: each is a fork of this process, which has, and so are their indexing processes.

Loading takes most of the processor time of a scenario. Whether `python -m svcd` loads and starts as it should is tested elsewhere.
Only processes without other threads fork: a thread might hold a lock, for ever in the child. So a server first forks a process
that does nothing but fork its indexing processes.
"""
from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn

from svcd.base import machine
from svcd.cli import daemon, serving, wiring  # noqa: F401 (what a daemon loads while it starts)
from svcd.cli.main import main
from svcd.tasks import indexing_client, indexing_process

ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.002

serving.preload_search()
gc.freeze()


class Popen:
    """As far as the tool uses that of `subprocess`. args: the options of svcd, after a word for the program."""

    returncode: int | None = None

    def __init__(self, args: Sequence[str], *, stdout: IO[bytes], stderr: IO[bytes], cwd: str, env: Mapping[str, str],
                 start_new_session: bool) -> None:
        parent, self.pid = os.getpid(), os.fork()
        if not self.pid:
            machine.end_with_parent(parent)
            _serve(args, stdout.fileno(), stderr.fileno(), cwd, env)

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        """The exit status. Raises TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("svcd", timeout)
            time.sleep(_POLL_S)
        return status

    def terminate(self) -> None:
        """End it in good order."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class _IndexingPopen(Popen):
    """As far as a daemon uses that of `subprocess`, for its indexing processes."""

    _lock = threading.Lock()  # of the control

    def __init__(self, control: socket.socket, args: Sequence[str], *, stdin: int, stdout: int, pass_fds: Sequence[int]) -> None:
        (theirs, ours), (results, answers) = os.pipe(), os.pipe()
        with self._lock:
            socket.send_fds(control, [b"fork"], [theirs, answers, *pass_fds])
            self.pid = int(control.recv(16))
        os.close(theirs)
        os.close(answers)
        self.stdin, self.stdout = os.fdopen(ours, "wb"), os.fdopen(results, "rb")

    def poll(self) -> int | None:
        """0 when it has ended; the process that forked it does not keep its status."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            self.returncode = 0
        return self.returncode


def _serve(args: Sequence[str], stdout: int, stderr: int, cwd: str, env: Mapping[str, str]) -> NoReturn:
    """In the child: a session, folder and environment of its own, no other open files; then the daemon."""
    status: Any = 1
    try:
        os.setsid()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.closerange(3, 1024)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env, PYTHONPATH=str(ROOT))  # of the processes that it starts
        control, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.getpid()
        if not os.fork():
            control.close()
            machine.end_with_parent(pid)
            _fork_indexing_processes(other_end)
        other_end.close()
        indexing_client.subprocess = SimpleNamespace(  # type: ignore[assignment]
            **{**vars(subprocess), "Popen": partial(_IndexingPopen, control)})
        sys.argv = [*args]
        main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status if isinstance(status, int) else 0)


def _fork_indexing_processes(control: socket.socket) -> NoReturn:
    """Fork one for each message, until the daemon ends. They are not waited for: the kernel removes them."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while (received := socket.recv_fds(control, 16, 8))[0]:
        stdin, stdout, *_ = descriptors = received[1]
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            sys.stdin, sys.stdout = os.fdopen(stdin), os.fdopen(stdout, "w")
            indexing_process.main(os.getppid())
            break
        control.send(b"%d" % pid)
        for each in descriptors:
            os.close(each)
    os._exit(0)
