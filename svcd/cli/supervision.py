"""Once a second the main thread supervises the daemon: the watchdog, reloads, and the exit when idle.

The watchdog is pinged only after a request for /health has passed through the poller and a request thread like any request
(docs/systemd.md#watchdog). So systemd restarts a daemon whose main thread or request threads hang.

Threads: the main thread calls look() and receives the signal; any thread calls set_ready().
"""
from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

from svcd.base import logs
from svcd.cli.config import DEFAULT, Config, ConfigError
from svcd.cli.options import OPTIONS
from svcd.cli.serving import PROBE_CLIENT
from svcd.cli.systemd import ServiceManager
from svcd.http.server import Server

_PROBE = b"GET /health HTTP/1.1\r\nHost: svcd\r\nConnection: close\r\n\r\n"
_GOOD_ANSWER = b"HTTP/1.1 200 "
# Probes in the interval after which systemd restarts the daemon.
_PROBES_PER_INTERVAL = 3
RELOAD_SIGNAL = signal.SIGHUP
RELOADABLE = "log_level"


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
        if self._answer is not None and self._has_answered(self._answer):
            self._answer.close()
            self._answer = None
            self._manager.send("WATCHDOG=1")
        if self._answer is None and now >= self._next_at:
            self._next_at = now + (self._manager.watchdog_s or 0) / _PROBES_PER_INTERVAL
            self._answer, connection = socket.socketpair()
            self._answer.setblocking(False)
            self._server.receive(connection, PROBE_CLIENT, _PROBE)

    @staticmethod
    def _has_answered(sock: socket.socket) -> bool:
        try:
            return sock.recv(65536).startswith(_GOOD_ANSWER)
        except OSError:  # not yet
            return False

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

        stop: begins the stop of the daemon. set_log_level: sets the level in all processes.
        """
        self._config = config
        self._manager = manager
        self._reload_request = reload_request
        self._reload, self._stop, self._set_log_level = reload, stop, set_log_level
        self._watchdog = Watchdog(manager, server) if manager.watchdog_s else None
        self._idle_time = IdleTime(server, has_work) if config.exit_when_idle else None
        self._is_ready = self._is_stopping = False

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
            waiting = [option.flag for option in OPTIONS
                       if option.name != RELOADABLE and _is_changed(option.name, self._config, config)]
            if waiting:
                logs.warn("other options have changed and need a restart", options=", ".join(waiting))
        except ConfigError as wrong:
            logs.error("reload failed; nothing has changed", reason=str(wrong))
        finally:
            self._manager.send("READY=1")


def _is_changed(name: str, before: Config, after: Config) -> bool:
    """Return whether the given value has changed. Defaults do not count, because they may depend on the machine."""
    is_given = DEFAULT not in (before.source(name), after.source(name))
    is_given |= before.source(name) != after.source(name)
    return is_given and getattr(before, name) != getattr(after, name)
