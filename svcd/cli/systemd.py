"""The messages between systemd and svcd (docs/systemd.md): sockets that systemd has opened, states of the daemon, the watchdog.

systemd passes descriptors from 3 on and their number in the environment; svcd sends datagrams to the socket of $NOTIFY_SOCKET.
svcd removes the variables after reading them, because they are not meant for the processes that it starts.
"""
from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

FIRST_DESCRIPTOR = 3
_MICROSECONDS = 1_000_000


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
    return [_listening(descriptor) for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))]


def _listening(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:
        raise UnusableSocket(f"descriptor {descriptor} of $LISTEN_FDS is not a socket") from None
    is_tcp = sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM
    if not is_tcp or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise UnusableSocket(f"descriptor {descriptor} of $LISTEN_FDS is not a TCP socket that listens; "
                             "write ListenStream=ADDRESS:PORT and Accept=no in the socket unit")
    return sock


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
