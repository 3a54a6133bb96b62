"""From an address to sockets that listen on it, or the reason in words why that cannot be.

Knows host names, address families and ports; refuses to know who is accepted.
"""
from __future__ import annotations

import errno
import os
import socket
from typing import Any

BACKLOG = 512  # connections that the system keeps until they are accepted
LAST_PORT = 65535

Place = tuple[socket.AddressFamily, tuple[Any, ...]]  # an address begins with host and port, whatever its family


class ListenError(OSError):
    """The address cannot be listened on: the message says which and why."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, one or two, with the same port; port 0 takes a free one. Raises ListenError.

    A name is listened on where it resolves first, `localhost` on both its addresses.
    """
    if not 0 <= port <= LAST_PORT:  # getaddrinfo would take what is left of it in 16 bits
        raise ListenError(f"cannot listen on {_shown(host, port)}: ports end at {LAST_PORT}")
    try:
        first, *others = _resolved(host, port)
        sockets = [_listening(first)]
        for family, (other, *_) in others:
            sockets += _listen_too(family, other, sockets[0])
    except (OSError, UnicodeError) as failure:
        raise ListenError(f"cannot listen on {_shown(host, port)}: {_words(failure)}") from failure
    return sockets


def _resolved(host: str, port: int) -> list[Place]:
    """Where to listen: (family, address), the one that must succeed first."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    unique: list[Place] = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    if host.lower() != "localhost":
        return unique[:1]
    # 127.0.0.1 first: more clients try only that one than only ::1.
    return sorted(unique, key=lambda place: place[0] != socket.AF_INET)


def _listening(place: Place) -> socket.socket:
    """As socket.create_server(), but `::` takes IPv4 clients too where that is the system's default."""
    family, address = place
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port whose last connections are still winding down is free.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _listen_too(family: socket.AddressFamily, host: str, first: socket.socket) -> list[socket.socket]:
    """A second socket with the port of the first, unless the machine does not have that address."""
    try:
        return [_listening((family, (host, first.getsockname()[1])))]
    except OSError as failure:
        if failure.errno != errno.EADDRINUSE:
            return []
        first.close()
        raise


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _words(failure: Exception) -> str:
    if isinstance(failure, (socket.gaierror, UnicodeError)):
        return "the host name is not known"
    number = getattr(failure, "errno", None)
    return os.strerror(number).lower() if number else str(failure)
