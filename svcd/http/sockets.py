"""Sockets: addresses to listen on, non-blocking transports, and waiting for events.

TLS implements the same Transport in svcd.http.tls, so that a daemon without TLS never loads ssl.
"""
from __future__ import annotations

import errno
import os
import select
import socket
import struct
from typing import Any, Protocol

# The same bits as EPOLLIN and EPOLLOUT; an event set is their sum.
READABLE = 1
WRITABLE = 4

MAX_UNSENT = 131072
_UNSENT_BOUND: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)  # not everywhere
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Transport(Protocol):
    """A connection to one client; used by one thread at a time. Raises OSError when it is broken."""

    blocked_on: int  # the event that the last call without result needs: READABLE or WRITABLE

    @property
    def sock(self) -> socket.socket:
        """The connection itself."""

    def handshake(self) -> bool:
        """Continue the handshake before the first request; True when done."""

    def receive(self, max_bytes: int) -> bytes | None:
        """Up to `most` bytes; none when the client has ended its side; None when there is nothing now."""

    def send(self, view: memoryview) -> int:
        """How many bytes were taken; 0 when none can be now."""

    def has_pending(self) -> bool:
        """There are bytes to receive that the operating system does not know of."""

    def end_output(self) -> None:
        """Signal to the client that nothing more comes."""


class PlainTransport:
    """HTTP without TLS."""

    __slots__ = ("sock", "blocked_on")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.blocked_on = READABLE

    def handshake(self) -> bool:
        return True

    def receive(self, max_bytes: int) -> bytes | None:
        try:
            return self.sock.recv(max_bytes)
        except BlockingIOError:
            self.blocked_on = READABLE
            return None

    def send(self, view: memoryview) -> int:
        try:
            return self.sock.send(view)
        except BlockingIOError:
            self.blocked_on = WRITABLE
            return 0

    def has_pending(self) -> bool:
        return False

    def end_output(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)


# The client has closed its side. Only Linux reports that; a broken connection is reported everywhere.
_HANGUP = getattr(select, "POLLRDHUP", 0)


def wait_or_hangup(sock: socket.socket | None, bell: int, seconds: float) -> bool:
    """Wait for a descriptor to be readable, or for the time to pass; False if the client left before that.

    sock: the client's connection; None where there is none to watch.
    """
    poll = select.poll()
    poll.register(bell, READABLE)
    if sock is not None:
        if sock.fileno() < 0:
            return False
        poll.register(sock, _HANGUP)
    ready = dict(poll.poll(max(0.0, seconds) * 1000))
    return bell in ready or not ready


def wait(sock: socket.socket, events: int, seconds: float) -> bool:
    """Wait for one of the events; False when the time is over."""
    poll = select.poll()  # not select(), which fails for descriptors above 1023
    poll.register(sock, events)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def keep_little_unsent(sock: socket.socket) -> None:
    """Keep the kernel from buffering much of an answer beyond what is in flight.

    By default it buffers 2.5 MB for a client that reads nothing. Bytes in flight are not limited by this, so distant
    clients get their answers as quickly as before.
    """
    if _UNSENT_BOUND is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, _UNSENT_BOUND, MAX_UNSENT)


def reset_on_close(sock: socket.socket) -> None:
    """Make close() tell the client that the answer is broken, not complete."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


# Listening

BACKLOG = 512  # connections that the system keeps until they are accepted
LAST_PORT = 65535

SocketAddress = tuple[socket.AddressFamily, tuple[Any, ...]]  # an address begins with host and port, whatever its family


class ListenError(OSError):
    """The address cannot be listened on: the message says which and why."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, one or two, with the same port; port 0 takes a free one. Raises ListenError.

    A name is listened on where it resolves first, `localhost` on both its addresses.
    """
    if not 0 <= port <= LAST_PORT:  # getaddrinfo would take what is left of it in 16 bits
        raise ListenError(f"cannot listen on {_address_text(host, port)}: ports end at {LAST_PORT}")
    try:
        first, *others = _resolved(host, port)
        sockets = [_listening(first)]
        for family, (other, *_) in others:
            sockets += _listen_too(family, other, sockets[0])
    except (OSError, UnicodeError) as failure:
        raise ListenError(f"cannot listen on {_address_text(host, port)}: {_reason_of(failure)}") from failure
    return sockets


def _resolved(host: str, port: int) -> list[SocketAddress]:
    """Where to listen: (family, address), the one that must succeed first."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    unique: list[SocketAddress] = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    if host.lower() != "localhost":
        return unique[:1]
    # 127.0.0.1 first: more clients try only that one than only ::1.
    return sorted(unique, key=lambda place: place[0] != socket.AF_INET)


def _listening(place: SocketAddress) -> socket.socket:
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


def _address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason_of(failure: Exception) -> str:
    if isinstance(failure, (socket.gaierror, UnicodeError)):
        return "the host name is not known"
    number = getattr(failure, "errno", None)
    return os.strerror(number).lower() if number else str(failure)
