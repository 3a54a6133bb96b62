"""Once a second the main thread supervises the daemon: the watchdog, reloads, and the exit when idle; the messages of systemd.

systemd passes descriptors from 3 on and their number in the environment; svcd sends datagrams to the socket of $NOTIFY_SOCKET.
svcd removes the variables after reading them, because they are not meant for the processes that it starts.

svcd pings the watchdog only after a request for /health has passed through the poller and a request thread like any request
(docs/systemd.md#watchdog). So systemd restarts a daemon whose main thread or request threads hang.

Threads: the main thread calls look() and receives the signal; any thread calls set_ready().
"""
from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, MutableMapping
from types import FrameType

from svcd.base import logs
from svcd.cli.config import COMMAND_VARIABLE, DEFAULT, Config, ConfigError
from svcd.cli.options import OPTIONS
from svcd.http.connection import PROBE_CLIENT
from svcd.http.server import Server

_PROBE = b"GET /health HTTP/1.1\r\nHost: svcd\r\nConnection: close\r\n\r\n"
_GOOD_ANSWER = b"HTTP/1.1 200 "
# Probes in the interval after which systemd restarts the daemon.
_PROBES_PER_INTERVAL = 3
FIRST_DESCRIPTOR = 3
_MICROSECONDS = 1_000_000
RELOAD_SIGNAL = signal.SIGHUP
RELOADABLE = "log_level"


class UnusableSocket(RuntimeError):
    """svcd cannot listen on a passed socket."""


def passed_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """Return the listening sockets that systemd has passed to this process. Raises UnusableSocket.

    systemd keeps them open when this process ends: connections that it has not accepted wait for the next process.
    """
    process, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if process != str(os.getpid()) or not count.isdecimal():
        return []
    sockets = []
    for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)):
        os.set_inheritable(descriptor, False)
        try:
            sock = socket.socket(fileno=descriptor)
        except OSError:
            raise UnusableSocket(f"descriptor {descriptor} of $LISTEN_FDS is not a socket") from None
        is_tcp = sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM
        if not is_tcp or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise UnusableSocket(f"descriptor {descriptor} of $LISTEN_FDS is not a TCP socket that listens; "
                                 "write ListenStream=ADDRESS:PORT and Accept=no in the socket unit")
        sockets.append(sock)
    return sockets


class ServiceManager:
    """The connection to systemd; without systemd it sends nothing.

    watchdog_s: maximum seconds between two pings; None without a watchdog.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        interval, process = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_watched = self._address and interval.isdecimal() and int(interval) and process in ("", str(os.getpid()))
        self.watchdog_s = int(interval) / _MICROSECONDS if is_watched else None

    def send(self, *assignments: str) -> None:
        """Send assignments such as READY=1 (sd_notify(3)). Errors are ignored: nobody listens."""
        if not self._address:
            return
        # An address that begins with @ is in the abstract namespace, where it begins with a zero byte.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.sendto("\n".join(assignments).encode(), address)
        except OSError:
            pass


class ReloadRequest:
    """Handles SIGHUP within a `with` block: is_there becomes true.

    With a controlling terminal SIGHUP keeps its meaning: the terminal has closed, and the daemon ends.
    """

    def __init__(self) -> None:
        self.is_there = False
        self._before: signal.Handlers | Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> ReloadRequest:
        if not _has_terminal():
            self._before = signal.signal(RELOAD_SIGNAL, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(RELOAD_SIGNAL, self._before)

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        self.is_there = True


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Watchdog:
    """Pings systemd after each answered request for /health; at most one request is in progress."""

    def __init__(self, manager: ServiceManager, server: Server) -> None:
        self._manager = manager
        self._server = server
        self._next_at = 0.0
        self._answer: socket.socket | None = None  # receives the response to the request in progress

    def look(self, now: float) -> None:
        """Ping after a response; send the next request if it is time. now: monotonic seconds."""
        if self._answer is not None:
            try:
                has_answered = self._answer.recv(65536).startswith(_GOOD_ANSWER)
            except OSError:  # not yet
                has_answered = False
            if has_answered:
                self._answer.close()
                self._answer = None
                self._manager.send("WATCHDOG=1")
        if self._answer is None and now >= self._next_at:
            self._next_at = now + (self._manager.watchdog_s or 0) / _PROBES_PER_INTERVAL
            self._answer, connection = socket.socketpair()
            self._answer.setblocking(False)
            self._server.receive(connection, PROBE_CLIENT, _PROBE)

    def close(self) -> None:
        """Drop the request in progress."""
        if self._answer is not None:
            self._answer.close()


class IdleTime:
    """Measures how long the daemon has been idle."""

    def __init__(self, server: Server, has_work: Callable[[], bool]) -> None:
        """has_work: returns whether tasks or notices are waiting; called only after a long time without connections."""
        self._server = server
        self._has_work = has_work
        self._accepted = -1  # the first look counts as use: before it the daemon was not ready
        self._busy_at = 0.0

    def exceeds(self, seconds: float, now: float) -> bool:
        """Return whether the daemon has had no connection and no work for `seconds`. now: monotonic seconds."""
        accepted = self._server.accepted
        if accepted != self._accepted or self._server.has_connections:
            self._accepted, self._busy_at = accepted, now
        if now - self._busy_at < seconds:
            return False
        if self._has_work():
            self._busy_at = now
            return False
        return True


class Supervision:
    """Supervises one daemon: reports its states to systemd, and acts once a second."""

    def __init__(self, config: Config, manager: ServiceManager, server: Server, reload_request: ReloadRequest, *,
                 reload: Callable[[], Config], has_work: Callable[[], bool], stop: Callable[[], None],
                 set_log_level: Callable[[str], None]) -> None:
        """reload: loads the configuration again; raises ConfigError. has_work: returns whether tasks or notices are waiting.

        stop: begins the stop of the daemon. set_log_level: sets the level in all processes. Takes COMMAND_VARIABLE out of the
        environment.
        """
        self._config = config
        self._manager = manager
        self._reload_request = reload_request
        self._reload, self._stop, self._set_log_level = reload, stop, set_log_level
        self._watchdog = Watchdog(manager, server) if manager.watchdog_s else None
        self._idle_time = IdleTime(server, has_work) if config.exit_when_idle else None
        self._is_ready = self._is_stopping = False
        self._command = os.environ.pop(COMMAND_VARIABLE, "")

    def set_ready(self, status: str) -> None:
        """Report that the daemon answers every request from now on."""
        self._manager.send("READY=1", f"STATUS={status}")
        self._is_ready = True

    def set_stopping(self) -> None:
        """Report the beginning of the stop."""
        self._is_stopping = True
        self._manager.send("STOPPING=1", "STATUS=stopping")

    def look(self) -> None:
        """Ping, reload or exit, if it is time; called once a second."""
        if not self._is_ready or self._is_stopping:
            return
        now = time.monotonic()
        if self._watchdog is not None:  # before a reload, after which the stop may have begun
            self._watchdog.look(now)
        if self._reload_request.is_there:
            self._reload_request.is_there = False
            self._reload_now()
        if self._idle_time is not None and self._idle_time.exceeds(self._config.exit_when_idle, now):
            logs.info("idle: exiting", seconds=self._config.exit_when_idle)
            self._stop()
        elif self._command and self._command != str(os.getppid()):
            logs.info("the command that started this daemon has ended: exiting")
            self._stop()

    def close(self) -> None:
        """Release the watchdog's connection after the server has stopped."""
        if self._watchdog is not None:
            self._watchdog.close()

    def _reload_now(self) -> None:
        self._manager.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            config = self._reload()
            self._set_log_level(config.log_level)
            logs.info("reloaded", log_level=config.log_level, source=config.where(RELOADABLE))
            waiting = []
            for option in OPTIONS:  # changed defaults do not count, because they may depend on the machine
                before, after = self._config.source(option.name), config.source(option.name)
                is_given = before != after or before != DEFAULT
                if is_given and option.name != RELOADABLE and getattr(self._config, option.name) != getattr(config, option.name):
                    waiting.append(option.flag)
            if waiting:
                logs.warn("other options have changed and need a restart", options=", ".join(waiting))
        except ConfigError as wrong:
            logs.error("reload failed; nothing has changed", reason=str(wrong))
        finally:
            self._manager.send("READY=1")
