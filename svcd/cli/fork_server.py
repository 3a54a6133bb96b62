"""A process without threads that has loaded the code of search workers, and forks them: each starts within milliseconds.

ForkServer is the main process' side, serve() the other; they exchange messages over a pair of sockets:

    -> load     once, with the descriptor of a file that it loads after its code
    <- 0
    -> fork     with two descriptors, the standard input and output of the new process
    <- pid
    -> pid      kill this process, unless it has ended, and forget it
    <- status   its exit status, negative for a signal
    -> run      with the name of a module: replace the program of the process
    <- 0

While no further worker may start, the process runs this module alone (rest()), which takes 6 MB instead of 33. It stays the
parent of the workers, and loads their code again for the next fork.

The fork server ends when the main process has closed its socket or has ended, and the kernel kills its children with it.

Threads: any thread may use a ForkServer; its `_lock` serializes the messages.
"""
from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from svcd.base.machine import end_with_parent

if TYPE_CHECKING:
    import subprocess

# Seconds to wait for a reply. The start takes a third of a second of processor time, a fork 10 ms.
_REPLY_S = 30.0
_MESSAGE_BYTES = 128
_LOAD, _FORK, _RUN = b"load", b"fork", b"run "
_RESTING = "svcd.cli.fork_server"


class ForkServer:
    """The fork server of this process, started when it is needed first, and again after it was killed."""

    def __init__(self, module: str, descriptors: Callable[[], Sequence[int]],
                 write: Callable[[IO[bytes]], object] = lambda file: None) -> None:
        """module: calls serve() with the numbers in its arguments. descriptors: returns those that its children inherit.

        write: writes the file that it loads, while its code is being loaded.
        """
        self._module = module
        self._descriptors = descriptors
        self._write = write
        self._process: subprocess.Popen[bytes] | None = None
        self._has_code = False
        self._lock = threading.Lock()  # guards _process, _has_code and _socket

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not been closed."""
        return self._process is not None

    def start(self) -> None:
        """Start it unless it runs; returns when all is loaded. Raises OSError."""
        with self._lock:
            self._start()

    def rest(self) -> None:
        """Have it give up the code of the workers until the next start() or fork()."""
        with self._lock, suppress(OSError):
            if self._process is not None and self._has_code:
                self._has_code = False
                self._ask(_RUN + _RESTING.encode())

    def fork(self) -> tuple[int, IO[bytes], IO[bytes]]:
        """Start a process: (its pid, its standard input, its standard output). Raises OSError."""
        (commands, ours), (theirs, replies) = os.pipe(), os.pipe()
        try:
            with self._lock:
                self._start()
                pid = self._ask(_FORK, [commands, replies])
        except BaseException:
            os.close(ours)
            os.close(theirs)
            raise
        finally:
            os.close(commands)
            os.close(replies)
        return pid, open(ours, "wb"), open(theirs, "rb")

    def end(self, pid: int) -> int | None:
        """Kill a process of fork() unless it has ended; return its exit status, None if the fork server has ended, too."""
        with self._lock, suppress(OSError):
            return self._ask(b"%d" % pid) if self._process else None
        return None

    def close(self) -> None:
        """End it, and with it the processes of fork()."""
        with self._lock:
            self._close()

    def _start(self) -> None:
        import subprocess  # the resting process does without

        if self._process is not None and self._process.poll() is None:
            if self._has_code:
                return
            self._ask(_RUN + self._module.encode())
        else:
            self._close()
            self._socket, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.settimeout(_REPLY_S)
            with other_end:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", self._module, str(other_end.fileno())], stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, pass_fds=[other_end.fileno(), *self._descriptors()])
        with open(os.memfd_create("svcd-fork-server"), "w+b") as file:
            self._write(file)
            file.seek(0)
            self._ask(_LOAD, [file.fileno()])
        self._has_code = True

    def _ask(self, message: bytes, descriptors: Sequence[int] = ()) -> int:
        """Send a message and return the reply. Raises OSError, and closes, if the fork server has ended or does not reply."""
        try:
            socket.send_fds(self._socket, [message], descriptors)
            reply = self._socket.recv(_MESSAGE_BYTES)
            if not reply:
                raise ConnectionResetError("the fork server of the search workers has ended")
            return int(reply)
        except OSError:
            self._close()
            raise

    def _close(self) -> None:
        if self._process is not None:
            self._socket.close()
            self._process.kill()
            self._process.wait()
            self._process = None


def serve(descriptor: int, run: Callable[[], object] = lambda: None, load: Callable[[IO[bytes]], object] = lambda file: None,
          earlier: Iterable[int] = ()) -> None:
    """Fork a process that calls run() for each request, until the main process ends. Call it without other threads.

    descriptor: of the socket. load: called once with the file that ForkServer has written. earlier: pids of children that another
    program of this process has forked.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # sent to the whole process group: the main process decides
        signal.signal(number, signal.SIG_IGN)
    own_pid, children = os.getpid(), set(earlier)
    with socket.socket(fileno=descriptor) as control, suppress(ConnectionError):
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 2)
            reply = 0
            if not message:
                return
            elif message.startswith(_RUN):
                control.send(b"0")
                os.execv(sys.executable, [sys.executable, "-m", message.removeprefix(_RUN).decode(),
                                          *map(str, (descriptor, *children))])
            elif message == _LOAD:
                with open(descriptors[0], "rb") as file:
                    load(file)
            elif message == _FORK:
                reply = os.fork()
                if not reply:
                    control.close()
                    _run(run, own_pid, descriptors)
                children.add(reply)
                for each in descriptors:
                    os.close(each)
            else:
                reply = _end(int(message), children)
            control.send(b"%d" % reply)


def _end(pid: int, children: set[int]) -> int:
    """Only children are killed: another process may have got the pid of one that has ended."""
    if pid not in children:
        return 0
    children.remove(pid)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run(run: Callable[[], object], parent: int, descriptors: Sequence[int]) -> None:
    """In the child: call run() and exit."""
    status = 1
    try:
        end_with_parent(parent)
        for standard, descriptor in enumerate(descriptors):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        run()
        status = 0
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)  # an ordinary exit would wait for threads that block on their input


if __name__ == "__main__":
    serve(int(sys.argv[1]), earlier=map(int, sys.argv[2:]))
