"""What systemd and svcd tell each other (docs/systemd.md): sockets that systemd has opened, states of the daemon, the watchdog.

Both ways are plain: descriptors from 3 on, counted in the environment, and datagrams to the socket of $NOTIFY_SOCKET.
The variables are removed when they have been read, because they are not meant for the processes that svcd starts.
"""
from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

FIRST_DESCRIPTOR = 3
_MICROSECONDS = 1_000_000


class UnusableSocket(RuntimeError):
    """A socket that was passed is not one that svcd can listen on."""


def passed_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The listening sockets that were passed to this process, none if there are none. Raises UnusableSocket.

    They stay open with systemd when this process ends: connections that were not accepted wait for the next one.
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
    """systemd as seen from a service; without it nothing is sent.

    watchdog_s: seconds within which ping() is expected again and again; None if it is not.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        interval, process = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_watched = self._address and interval.isdecimal() and int(interval) and process in ("", str(os.getpid()))
        self.watchdog_s = int(interval) / _MICROSECONDS if is_watched else None

    def send(self, *assignments: str) -> None:
        """Send assignments such as READY=1, as of sd_notify(3). What cannot be sent is dropped: nobody listens."""
        if not self._address:
            return
        # An address that begins with @ is in the abstract namespace, where it begins with a zero byte.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.sendto("\n".join(assignments).encode(), address)
        except OSError:
            pass
