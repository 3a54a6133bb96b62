"""Sockets: limits of connections, addresses to listen on, non-blocking transports, the poller, and the lead among threads.

The poller waits on behalf of all request threads (docs/http.md#poller): the thread that learns of a request also answers it.
With epoll many threads may wait at once, and the kernel gives each event to one of them; on other systems they wait in turns.
One request thread at a time leads: it waits and answers.

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


class Limits(NamedTuple):
    """Limits of a connection (docs/http.md#limits-and-time-outs): times in seconds, amounts in bytes.

    svcd.http.framing has the limits of heads and chunks."""

    head_s: float = 10.0  # the TLS handshake, or a head from its first byte to its last
    idle_s: float = 75.0  # between requests; browsers and proxies keep a connection for 60 to 120
    body_stall_s: float = 20.0  # without a byte of a body
    # All waits for one body together. Each body_rate bytes win back a second, up to this limit: after a quick begin a client must
    # not be able to send a byte now and then for hours.
    body_waits_s: float = 60.0
    body_rate: int = 1024
    write_stall_s: float = 30.0  # without taking a byte of a response
    # All waits for one response together, and a second more for each answer_rate bytes taken. The response holds its snapshot of
    # an index as long: a client that takes a byte now and then must not hold it for ever.
    answer_waits_s: float = 60.0
    answer_rate: int = 32768
    linger_s: float = 3.0  # in which a client that is still sending can read why it was rejected
    linger_bytes: int = 1 << 26
    skip_bytes: int = 1 << 20  # of a body nobody read; if more is to come, the server closes the connection instead
    sweep_s: float = 1.0  # between two looks for connections past their deadline
    spare_s: float = 10.0  # threads that were idle for this time end
    idle_call_s: float = 5.0  # between work and a call of on_idle, and between two calls


# One connection


class Transport(Protocol):
    """A connection to one client; used by one thread at a time. Raises OSError when it is broken."""

    blocked_on: int  # the event that the last call without result needs: READABLE or WRITABLE

    @property
    def sock(self) -> socket.socket:
        """The socket of the connection."""

    def handshake(self) -> bool:
        """Continue the handshake before the first request; return whether it is done."""

    def receive(self, max_bytes: int) -> bytes | None:
        """Return up to `max_bytes` bytes: b"" when the client has ended its side, None when nothing has arrived."""

    def send(self, view: memoryview) -> int:
        """Send bytes; return how many were taken, 0 when the call would block."""

    def has_pending(self) -> bool:
        """Return whether bytes wait to be received that the operating system does not know of."""

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
    """Wait for a descriptor to be readable, or for the time to pass. Returns False if the client left before that.

    sock: the client's connection; None to watch no connection.
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
    """Wait for one of the events. Returns False when the time is over."""
    poll = select.poll()  # not select(), which fails for descriptors above 1023
    poll.register(sock, events)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def keep_little_unsent(sock: socket.socket) -> None:
    """Keep the kernel from buffering much of a response beyond the bytes in flight.

    By default it buffers 2.5 MB for a client that reads nothing. Bytes in flight are not limited, so distant clients get their
    responses as quickly as without this.
    """
    if _UNSENT_BOUND is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, _UNSENT_BOUND, MAX_UNSENT)


def reset_on_close(sock: socket.socket) -> None:
    """Make close() reset the connection, so that the client sees that the response is broken, not complete."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


# Listening


class Address(NamedTuple):
    """Where to listen. host: a name or an IP address, without brackets; port: 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse `host:port`. Raises ValueError, which says the right form."""
    if "://" in text:
        raise ValueError(f"is a URL, not an address; {_EXAMPLES}")
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"lacks a {'host' if colon else 'port'}; {_EXAMPLES}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(f"has a port that is not a number from 0 to 65535; {_EXAMPLES}")
    bracketed = _BRACKETED.fullmatch(host)
    if bracketed and _is_ipv6(bracketed[1]):
        return Address(bracketed[1], int(port))
    if ":" in host and _is_ipv6(host):
        raise ValueError(f"holds an IPv6 address without brackets; {_EXAMPLES}")
    if not _LISTEN_HOST.fullmatch(host):
        raise ValueError(f"has a host that is neither a name nor an IP address; {_EXAMPLES}")
    return Address(host, int(port))


def _is_ipv6(text: str) -> bool:
    """Return whether a text is an IPv6 address, with or without a zone (`%eth0`)."""
    try:
        socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
    except OSError:
        return False
    return True


class ListenError(OSError):
    """svcd cannot listen on an address: the message says which and why."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Return one or two listening sockets with the same port; port 0 takes a free port. Raises ListenError.

    Listens on the first address that a name resolves to, and on both addresses of `localhost`.
    """
    if not 0 <= port <= LAST_PORT:  # getaddrinfo would cut it to 16 bits
        raise ListenError(f"cannot listen on {Address(host, port)}: ports end at {LAST_PORT}")
    try:
        # As bytes: for a text Python would load its tables of international names, at each start.
        found = socket.getaddrinfo(host.encode() or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        unique: list[SocketAddress] = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        # 127.0.0.1 first: more clients try only 127.0.0.1 than only ::1.
        first, *others = sorted(unique, key=lambda place: place[0] != socket.AF_INET) if host.lower() == "localhost" \
            else unique[:1]
        sockets = [_listening(first)]
        for family, (other, *_) in others:
            sockets += _listen_too(family, other, sockets[0])
    except (OSError, UnicodeError) as failure:
        if isinstance(failure, (socket.gaierror, UnicodeError)):
            reason = "the host name is not known"
        else:
            reason = os.strerror(failure.errno).lower() if failure.errno else str(failure)
        raise ListenError(f"cannot listen on {Address(host, port)}: {reason}") from failure
    return sockets


def _listening(place: SocketAddress) -> socket.socket:
    """As socket.create_server(), but `::` also accepts IPv4 clients where the system does so by default."""
    family, address = place
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Take a port whose last connections are still closing.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _listen_too(family: socket.AddressFamily, host: str, first: socket.socket) -> list[socket.socket]:
    """Return a second socket with the port of the first, or none if the machine does not have that address."""
    try:
        return [_listening((family, (host, first.getsockname()[1])))]
    except OSError as failure:
        if failure.errno != errno.EADDRINUSE:
            return []
        first.close()
        raise


# The poller


class Pollable(Protocol):
    """An object that a Poller can wait for. deadline: monotonic time at which it has waited too long."""

    deadline: float

    def fileno(self) -> int: ...


class Watch(Protocol):
    """Reports descriptors, each once per arm(). Thread-safe."""

    def arm(self, descriptor: int, events: int) -> None:
        """Report the descriptor once when one of the events occurs, or has occurred before."""

    def wake(self, descriptor: int) -> None:
        """Report the descriptor to every thread, repeatedly, once it is readable."""

    def next(self) -> int:
        """Wait for a descriptor with an event; may return -1 without an event."""

    def ready(self) -> list[int]:
        """Return the descriptors that have an event now, as if next() had returned each."""

    def disarm(self, descriptor: int) -> None:
        """Stop watching a descriptor; must be called before it is closed.

        If a forked process still held it open, the kernel would continue to report it.
        """

    def release(self) -> None:
        """Close the descriptors of the watch itself; no thread may be waiting."""


AT_ONCE = 64  # maximum number of pollables that Poller.ready() takes out


class EpollWatch:
    """Linux: EPOLLONESHOT reports each event to one thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._known: set[int] = set()  # descriptors that the kernel knows, armed or not

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
    """Other systems: one thread waits for all descriptors, the other threads for their turn.

    A thread can register a descriptor while another thread waits, with kqueue as with epoll.
    """

    def __init__(self) -> None:
        import selectors  # not needed on systems with epoll

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
                self.disarm(descriptor)  # before another thread selects, which would report it again
        return descriptor

    def ready(self) -> list[int]:
        with self._turn:  # so no thread waits in next()
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
    """Registered pollables, in the order of their registration.

    A pollable that `next()`, `ready()` or `take_out_where()` has returned belongs to that caller until it is registered again.
    """

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch or (EpollWatch() if hasattr(select, "epoll") else SelectorWatch())
        self._pollables: dict[int, Pollable] = {}  # by descriptor, the longest registered first
        # Guards _pollables together with arming: between the two, no thread may take a pollable out and close it, or its
        # descriptor could belong to another file.
        self._lock = threading.Lock()
        self._closed_reader, self._closed_writer = os.pipe()
        self._watch.wake(self._closed_reader)  # a pipe without writer is always readable

    def register(self, pollable: Pollable, events: int) -> None:
        """Wait for events (READABLE or WRITABLE). From now on another thread may get the pollable."""
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
        """Take out pollables that have an event now, at most AT_ONCE; no other thread may be in next()."""
        descriptors = self._watch.ready()
        if not descriptors:
            return []
        with self._lock:
            found = [self._pollables.pop(descriptor, None) for descriptor in descriptors]
        return [pollable for pollable in found if pollable is not None]

    def take_out_where(self, condition: Callable[[Pollable], bool], max_count: int = 1 << 30) -> list[Pollable]:
        """Take out pollables for which the condition holds, at most `max_count`, the longest registered first."""
        with self._lock:
            pollables = list(self._pollables.values())
        taken: list[Pollable] = []
        for pollable in filter(condition, pollables):
            if len(taken) == max_count:
                break
            with self._lock:
                # A closed pollable has descriptor -1; its old descriptor may belong to another pollable by now.
                if self._pollables.get(pollable.fileno()) is pollable:
                    del self._pollables[pollable.fileno()]
                    taken.append(pollable)
        return taken

    def unregister(self, pollable: Pollable) -> None:
        """Stop watching a pollable that was taken out; must be called before its descriptor is closed."""
        self._watch.disarm(pollable.fileno())

    def close(self) -> None:
        """Make every call of next() return None."""
        os.close(self._closed_writer)

    def release(self) -> None:
        """Close the descriptors of the poller, after all threads have ended."""
        self._watch.release()
        os.close(self._closed_reader)


# Which thread asks the poller. Python runs one thread at a time. Threads that read requests while another thread computes a
# response take the interpreter from it at each system call: with eight clients that searched at once, each response cost 16
# context switches, a seventh of its processor time. So the thread that leads takes the requests that have arrived, and answers
# them itself, one after the other, as long as that is quick. Another thread takes the lead when the leader gives it away, before
# work that may take long, and when a turn has lasted for PATIENCE_S.

# Seconds for which a turn keeps the lead: longer than nearly every search takes, too short for waiting clients to notice.
PATIENCE_S = 0.02
# One of the waiting threads watches the turns, until none has begun for this many seconds.
_WATCHED_S = 0.05


class Lead:
    """The lead among the threads of a server. Any of them may call; `_changed` guards everything."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._holder: int | None = None  # identity of the thread that leads
        self._turn_began: float | None = None  # monotonic seconds; None while the thread that leads has nothing to answer
        self._watched_until = float("-inf")
        self._is_watched = False  # a waiting thread wakes up by itself to look again

    def take(self) -> None:
        """Wait until this thread leads, which it may do already. Ends its turn."""
        thread = threading.get_ident()
        with self._changed:
            while self._holder not in (None, thread) and self._left_s() > 0:
                if self._is_watched or time.monotonic() > self._watched_until:
                    self._changed.wait()
                    continue
                self._is_watched = True  # the first thread that waits watches the turn
                try:
                    self._changed.wait(self._left_s())
                finally:
                    self._is_watched = False
            self._holder, self._turn_began = thread, None

    def begin_turn(self) -> None:
        """Begin a turn of this thread, which leads and has something to answer."""
        with self._changed:
            self._turn_began = now = time.monotonic()
            self._watched_until = now + _WATCHED_S
            if not self._is_watched:
                self._changed.notify()  # so that a waiting thread watches this turn

    def give_away(self) -> None:
        """Let another thread lead, if this one does."""
        thread = threading.get_ident()
        if self._holder != thread:  # without the lock: only this thread makes itself the holder
            return
        with self._changed:
            if self._holder == thread:
                self._holder = None
                self._changed.notify()

    def _left_s(self) -> float:
        """Return the seconds for which the turn may still keep the lead."""
        return PATIENCE_S if self._turn_began is None else self._turn_began + PATIENCE_S - time.monotonic()
