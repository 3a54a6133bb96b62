"""A socket that never blocks: bytes in and out, and what to wait for when there are none.

Knows plain sockets; TLS is the same interface in svcd.http.tls, so that a plain daemon never loads it there.
Refuses to know HTTP.
"""
from __future__ import annotations

import select
import socket
import struct
from typing import Protocol

# The same bits as EPOLLIN and EPOLLOUT; an event set is their sum.
READABLE = 1
WRITABLE = 4

MOST_UNSENT = 131072
_UNSENT_BOUND: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)  # not everywhere
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Transport(Protocol):
    """A connection to one client; used by one thread at a time. Raises OSError when it is broken."""

    awaited: int  # what the last call that could do nothing waits for: READABLE or WRITABLE

    @property
    def sock(self) -> socket.socket:
        """The connection itself."""

    def handshake(self) -> bool:
        """Go on with what comes before the first request; True when done."""

    def receive(self, most: int) -> bytes | None:
        """Up to `most` bytes; none when the client has ended its side; None when there is nothing now."""

    def send(self, view: memoryview) -> int:
        """How many bytes were taken; 0 when none can be now."""

    def has_pending(self) -> bool:
        """There are bytes to receive that the operating system does not know of."""

    def end_output(self) -> None:
        """Tell the client that nothing more comes."""


class PlainTransport:
    """HTTP without TLS."""

    __slots__ = ("sock", "awaited")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.awaited = READABLE

    def handshake(self) -> bool:
        return True

    def receive(self, most: int) -> bytes | None:
        try:
            return self.sock.recv(most)
        except BlockingIOError:
            self.awaited = READABLE
            return None

    def send(self, view: memoryview) -> int:
        try:
            return self.sock.send(view)
        except BlockingIOError:
            self.awaited = WRITABLE
            return 0

    def has_pending(self) -> bool:
        return False

    def end_output(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)


# That a client has closed; a broken connection is always reported. Elsewhere than on Linux, only that is.
_LEFT = getattr(select, "POLLRDHUP", 0)


def wait_beside(sock: socket.socket | None, bell: int, seconds: float) -> bool:
    """Wait for a descriptor to be readable, or for the time to pass; False when the client left before that.

    sock: the client's connection; None where there is none to watch.
    """
    poll = select.poll()
    poll.register(bell, READABLE)
    if sock is not None:
        if sock.fileno() < 0:
            return False
        poll.register(sock, _LEFT)
    ready = dict(poll.poll(max(0.0, seconds) * 1000))
    return bell in ready or not ready


def wait(sock: socket.socket, events: int, seconds: float) -> bool:
    """Wait for one of the events; False when the time is over."""
    poll = select.poll()  # not select(): descriptors above 1023 are nothing special
    poll.register(sock, events)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def keep_little_unsent(sock: socket.socket) -> None:
    """Let the system hold little of an answer beyond what is on its way, however much the client could take.

    Left alone it takes 2.5 MB ahead of a client that reads nothing. What is on its way is not bounded by this, so that
    a distant client gets its answer as quickly as before.
    """
    if _UNSENT_BOUND is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, _UNSENT_BOUND, MOST_UNSENT)


def reset_on_close(sock: socket.socket) -> None:
    """Make close() tell the client that the answer is broken, not complete."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
