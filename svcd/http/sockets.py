"""Sockets: limits of connections, addresses to listen on, non-blocking transports, the poller, and who waits with it.

The poller waits on behalf of all request threads (docs/http.md#poller): the thread that learns that a request is there
also answers it. With epoll many threads may wait at once, and the kernel gives each event to one of them; on other
systems they wait in turns. Of the request threads one at a time leads, that is, waits and answers.

TLS implements the same Transport in svcd.http.tls, so that a daemon without TLS never loads ssl.
"""
from __future__ import annotations

import errno
import os
import re
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

# The same bits as EPOLLIN and EPOLLOUT; an event set is their sum.
READABLE = 1
WRITABLE = 4

MAX_UNSENT = 131072
BACKLOG = 512  # connections that the system keeps until they are accepted
LAST_PORT = 65535
_EXAMPLES = "write host:port, as localhost:7700, 0.0.0.0:7700 or [::1]:7700"
_LISTEN_HOST = re.compile(r"[A-Za-z0-9_.\-]+", re.ASCII)
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.\-]+)?)\]", re.ASCII)
_UNSENT_BOUND: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)  # not everywhere
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
# The client has closed its side. Only Linux reports that; a broken connection is reported everywhere.
_HANGUP = getattr(select, "POLLRDHUP", 0)

SocketAddress = tuple[socket.AddressFamily, tuple[Any, ...]]  # an address begins with host and port, whatever its family


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a connection (docs/http.md#limits-and-time-outs): times in seconds, amounts in bytes.

    Sizes of heads and chunks stand beside the rules they belong to."""

    head_s: float = 10.0  # the TLS handshake, or a head from its first byte to its last
    idle_s: float = 75.0  # between requests; browsers and proxies keep a connection for 60 to 120
    body_stall_s: float = 20.0  # without a byte of a body
    # All waits for one body together. Each body_rate bytes win back a second of it: what came quickly at first must not make a
    # client of one byte now and then welcome for hours.
    body_waits_s: float = 60.0
    body_rate: int = 1024
    write_stall_s: float = 30.0  # without taking a byte of an answer
    # All waits for one answer together, and a second more for each answer_rate bytes taken. The snapshot of an index that
    # the answer is read from is kept as long: a client that takes a byte now and then must not keep it for ever.
    answer_waits_s: float = 60.0
    answer_rate: int = 32768
    linger_s: float = 3.0  # for a client that is still sending to read why it was rejected
    linger_bytes: int = 1 << 26
    skip_bytes: int = 1 << 20  # of a body nobody read; where more is to come, the connection is closed instead
    sweep_s: float = 1.0  # how often the server looks for connections past their deadline
    spare_s: float = 10.0  # threads that were idle for so long end
    idle_call_s: float = 20.0  # after work until on_idle is called, and between two calls


# One connection


class Transport(Protocol):
    """A connection to one client; used by one thread at a time. Raises OSError when it is broken."""

    blocked_on: int  # the event that the last call without result needs: READABLE or WRITABLE

    @property
    def sock(self) -> socket.socket:
        """The connection itself."""

    def handshake(self) -> bool:
        """Continue the handshake before the first request; True when done."""

    def receive(self, max_bytes: int) -> bytes | None:
        """Up to `max_bytes` bytes; none when the client has ended its side; None when there is nothing now."""

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


def wait_or_hangup(sock: socket.socket | None, wakeup: int, seconds: float) -> bool:
    """Wait for a descriptor to be readable, or for the time to pass; False if the client left before that.

    sock: the client's connection; None where there is none to watch.
    """
    poll = select.poll()
    poll.register(wakeup, READABLE)
    if sock is not None:
        if sock.fileno() < 0:
            return False
        poll.register(sock, _HANGUP)
    ready = dict(poll.poll(max(0.0, seconds) * 1000))
    return wakeup in ready or not ready


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


class Address(NamedTuple):
    """Where to listen. host: a name or an IP address, without brackets; port: 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`host:port` -> Address. Raises ValueError with what would be right."""
    if "://" in text:
        raise ValueError(f"is a URL, not an address; {_EXAMPLES}")
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"lacks a {'host' if colon else 'port'}; {_EXAMPLES}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(f"has a port that is no number from 0 to 65535; {_EXAMPLES}")
    return Address(_listen_host(host), int(port))


def _listen_host(text: str) -> str:
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed and _is_ipv6(bracketed[1]):
        return bracketed[1]
    if ":" in text and _is_ipv6(text):
        raise ValueError(f"holds an IPv6 address without brackets; {_EXAMPLES}")
    if not _LISTEN_HOST.fullmatch(text):
        raise ValueError(f"has a host that is neither a name nor an IP address; {_EXAMPLES}")
    return text


def _is_ipv6(text: str) -> bool:
    """True for an IPv6 address, with or without a zone (`%eth0`)."""
    try:
        socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
    except OSError:
        return False
    return True


class ListenError(OSError):
    """The address cannot be listened on: the message says which and why."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, one or two, with the same port; port 0 takes a free one. Raises ListenError.

    A name is listened on where it resolves first, `localhost` on both its addresses.
    """
    if not 0 <= port <= LAST_PORT:  # getaddrinfo would take what is left of it in 16 bits
        raise ListenError(f"cannot listen on {Address(host, port)}: ports end at {LAST_PORT}")
    try:
        first, *others = _resolved(host, port)
        sockets = [_listening(first)]
        for family, (other, *_) in others:
            sockets += _listen_too(family, other, sockets[0])
    except (OSError, UnicodeError) as failure:
        raise ListenError(f"cannot listen on {Address(host, port)}: {_reason_of(failure)}") from failure
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


def _reason_of(failure: Exception) -> str:
    if isinstance(failure, (socket.gaierror, UnicodeError)):
        return "the host name is not known"
    number = getattr(failure, "errno", None)
    return os.strerror(number).lower() if number else str(failure)


# The poller


class Pollable(Protocol):
    """What can be registered. deadline: monotonic time at which it has waited too long."""

    deadline: float

    def fileno(self) -> int: ...


class Watch(Protocol):
    """Reports descriptors, each once per arm(). Thread-safe."""

    def arm(self, descriptor: int, events: int) -> None:
        """Report the descriptor once when one of the events is there, or was there before."""

    def wake(self, descriptor: int) -> None:
        """Report the descriptor to every thread, again and again, once it is readable."""

    def next(self) -> int:
        """Wait for a descriptor with an event; may return -1 without one."""

    def ready(self) -> list[int]:
        """The descriptors that have an event now, as if next() had returned each."""

    def disarm(self, descriptor: int) -> None:
        """Stop watching a descriptor; must be called before it is closed.

        If a forked process still holds it open, the kernel would go on reporting it.
        """

    def release(self) -> None:
        """Close the descriptors of the watch itself; no thread may be waiting."""


# The most that Poller.ready() takes out.
AT_ONCE = 64


class EpollWatch:
    """Linux: EPOLLONESHOT reports each event to one thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._known: set[int] = set()  # descriptors that the kernel has, armed or not

    def arm(self, descriptor: int, events: int) -> None:
        if descriptor in self._known:
            self._epoll.modify(descriptor, events | select.EPOLLONESHOT)
            return
        self._known.add(descriptor)
        self._epoll.register(descriptor, events | select.EPOLLONESHOT)

    def wake(self, descriptor: int) -> None:
        self._epoll.register(descriptor, select.EPOLLIN)

    def next(self) -> int:
        ready = self._epoll.poll(None, 1)
        return ready[0][0] if ready else -1

    def ready(self) -> list[int]:
        return [descriptor for descriptor, _ in self._epoll.poll(0, AT_ONCE)]

    def disarm(self, descriptor: int) -> None:
        if descriptor in self._known:
            self._known.discard(descriptor)
            self._epoll.unregister(descriptor)

    def release(self) -> None:
        self._epoll.close()


class SelectorWatch:
    """Other systems: one thread waits for all, the others for their turn.

    Registering while another thread waits works with kqueue as it does with epoll.
    """

    def __init__(self) -> None:
        import selectors  # not needed where there is epoll

        self._selector = selectors.DefaultSelector()
        self._events = {READABLE: selectors.EVENT_READ, WRITABLE: selectors.EVENT_WRITE}
        self._turn = threading.Lock()
        self._ready: deque[int] = deque()
        self._closed_reader = -1

    def arm(self, descriptor: int, events: int) -> None:
        self._selector.register(descriptor, self._events[events])

    def wake(self, descriptor: int) -> None:
        self._closed_reader = descriptor
        self.arm(descriptor, READABLE)

    def next(self) -> int:
        with self._turn:
            if not self._ready:
                self._ready.extend(key.fd for key, _ in self._selector.select())
            if not self._ready:
                return -1
            descriptor = self._ready.popleft()
        if descriptor != self._closed_reader:
            self.disarm(descriptor)
        return descriptor

    def ready(self) -> list[int]:
        with self._turn:  # nobody waits in next() then
            found = [*self._ready, *(key.fd for key, _ in self._selector.select(0))]
            self._ready.clear()
            for descriptor in found:
                if descriptor != self._closed_reader:
                    self.disarm(descriptor)
        return found

    def disarm(self, descriptor: int) -> None:
        try:
            self._selector.unregister(descriptor)
        except KeyError:
            pass  # reported and not armed again

    def release(self) -> None:
        self._selector.close()


class Poller:
    """Registered pollables, the one that waits longest first.

    A pollable that `next()` or `take_out_where()` has returned belongs to that caller until it is registered again.
    """

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch or (EpollWatch() if hasattr(select, "epoll") else SelectorWatch())
        self._pollables: dict[int, Pollable] = {}  # by descriptor, the longest registered first
        # Guards _pollables together with arming: between the two, a pollable must not be taken out and closed, and its
        # descriptor be given to another file.
        self._lock = threading.Lock()
        self._closed_reader, self._closed_writer = os.pipe()
        self._watch.wake(self._closed_reader)  # a pipe without writer is always readable

    def register(self, pollable: Pollable, events: int) -> None:
        """Wait for events (READABLE or WRITABLE). From here on another thread may get the pollable."""
        descriptor = pollable.fileno()
        with self._lock:
            self._pollables[descriptor] = pollable
            self._watch.arm(descriptor, events)

    def next(self) -> Pollable | None:
        """Wait for a pollable with an event and take it out; None once the poller is closed."""
        while True:
            descriptor = self._watch.next()
            if descriptor == self._closed_reader:
                return None
            with self._lock:
                pollable = self._pollables.pop(descriptor, None)
            if pollable is not None:  # else another thread took it out meanwhile
                return pollable

    def ready(self) -> list[Pollable]:
        """Take out those that have an event now, AT_ONCE at most; not to be called while another thread is in next()."""
        descriptors = self._watch.ready()
        if not descriptors:
            return []
        with self._lock:
            found = [self._pollables.pop(descriptor, None) for descriptor in descriptors]
        return [pollable for pollable in found if pollable is not None]

    def take_out_where(self, condition: Callable[[Pollable], bool], max_count: int = 1 << 30) -> list[Pollable]:
        """Take out those for which the condition holds, the longest registered first."""
        with self._lock:
            pollables = list(self._pollables.values())
        taken: list[Pollable] = []
        for pollable in filter(condition, pollables):
            if len(taken) == max_count:
                break
            if self._take(pollable):
                taken.append(pollable)
        return taken

    def _take(self, pollable: Pollable) -> bool:
        with self._lock:
            # A closed pollable has descriptor -1; its old descriptor may belong to another one by now.
            is_registered = self._pollables.get(pollable.fileno()) is pollable
            if is_registered:
                del self._pollables[pollable.fileno()]
            return is_registered

    def unregister(self, pollable: Pollable) -> None:
        """Stop watching a pollable that was taken out; must be called before its descriptor is closed."""
        self._watch.disarm(pollable.fileno())

    def close(self) -> None:
        """Make every call of next() return None."""
        os.close(self._closed_writer)

    def release(self) -> None:
        """Close the descriptors of the poller, once no thread is left."""
        self._watch.release()
        os.close(self._closed_reader)


# Who asks the poller. Python runs one thread at a time. Threads that read requests beside one that computes an answer take the
# interpreter from it at each call of the system: with eight clients that searched at once, each answer had 16 changes of the
# thread, a seventh of its processor time. So the thread that leads takes what has arrived, and answers it itself, one request
# after the other, as long as that is quick. Another one takes the lead when it is given away, before what may take long, and when
# a turn has lasted for PATIENCE_S.

# So long a turn keeps the lead: longer than nearly every search takes, too short to be noticed by who waits behind it.
PATIENCE_S = 0.02
# One of the threads that wait looks after the turns, until there was none for so long.
_WATCHED_S = 0.05


class Lead:
    """The lead among the threads of a server. Any may call; `_changed` guards everything."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._holder: int | None = None  # identity of the thread that leads
        self._turn_began: float | None = None  # monotonic seconds; None while the thread that leads has nothing to answer
        self._watched_until = float("-inf")
        self._is_watched = False  # a thread that waits looks again by itself

    def take(self) -> None:
        """Wait until this thread leads, which it may do already. A turn of it ends."""
        thread = threading.get_ident()
        with self._changed:
            while self._holder not in (None, thread) and self._left_s() > 0:
                self._wait()
            self._holder, self._turn_began = thread, None

    def begin_turn(self) -> None:
        """This thread, which leads, has something to answer."""
        with self._changed:
            self._turn_began = now = time.monotonic()
            self._watched_until = now + _WATCHED_S
            if not self._is_watched:
                self._changed.notify()  # so that one looks after this turn

    def give_away(self) -> None:
        """Let another thread lead, if this one does."""
        thread = threading.get_ident()
        if self._holder != thread:  # looked at without the lock: only this thread makes itself the holder
            return
        with self._changed:
            if self._holder == thread:
                self._holder = None
                self._changed.notify()

    def _left_s(self) -> float:
        """How long the turn may still keep the lead."""
        return PATIENCE_S if self._turn_began is None else self._turn_began + PATIENCE_S - time.monotonic()

    def _wait(self) -> None:
        """Wait for a change, with the lock; the first that waits looks again by itself."""
        if self._is_watched or time.monotonic() > self._watched_until:
            self._changed.wait()
            return
        self._is_watched = True
        try:
            self._changed.wait(self._left_s())
        finally:
            self._is_watched = False
