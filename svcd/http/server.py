"""The listening side: threads, connections, and an end that loses nothing.

DESIGN
- Threads: `http-1` to `http-N` all ask one parking (svcd.http.parking) for the next connection that has
  something to read. Who gets it reads the request, runs `answer`, sends the answer, parks the connection and asks
  again. Listening sockets are parked like connections: whoever gets one accepts. So nothing is handed from thread
  to thread, which in Python would cost a wait for the interpreter lock each time.
- A thread is started when the last waiting one has found work, up to the bound. Nothing that a client can leave
  undone holds one, but for a body it is sending and an answer it is taking, and both have their time (Limits):
  handshakes, heads, idle connections, and those that linger after a refusal wait in the parking.
- The thread that calls `serve()` runs no request. It wakes each `Limits.sweep_s` to close those whose time is
  over, and once for `stop()`.
- Queues: the kernel's only (connections not yet accepted; sockets ready and not yet taken, first come first served).
- Promised: answers of one connection come in the order of its requests, one at a time. Between connections
  nothing is promised. After `stop()`: nothing new is accepted, requests already here are answered, each with
  `Connection: close`, within the grace; then connections are cut.
"""
from __future__ import annotations

import errno
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import HTTPServer
from typing import TYPE_CHECKING, cast

from svcd.http.connection import Connection
from svcd.http.limits import Limits
from svcd.http.listening import BACKLOG, listen
from svcd.http.message import Request, Response
from svcd.http.parking import Parking
from svcd.http.transport import READABLE, PlainTransport, Transport, wait

if TYPE_CHECKING:
    import ssl  # loaded at run time only by who makes the context

Answer = Callable[[Request], Response]
OnRequest = Callable[[Request, int, float, int], None]  # request, status, seconds, bytes of the answer's body
OnError = Callable[[str], None]  # a traceback

ACCEPTS_PER_TURN = 64
# Without descriptors or memory for one more connection: give one back, or wait until something ends.
EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
UNLIMITED_CONNECTIONS = 10_000
# A thousand threads may wait for their search; with the usual 8 MB each, small machines refuse them. Recursion is
# bounded by Python long before: JSON nested too deeply fails as it should in a quarter of this.
THREAD_STACK = 1 << 20


class Listener:
    """A listening socket as a guest of the parking; its turn is to accept who waits."""

    deadline = float("inf")

    def __init__(self, sock: socket.socket, server: Server) -> None:
        self.sock = sock
        self._server = server
        sock.setblocking(False)

    def fileno(self) -> int:
        return self.sock.fileno()

    def handle(self) -> int:
        """Accept; READABLE to be parked again, 0 when there is no room for more connections now."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                self._server.welcome(*self.sock.accept())
            except BlockingIOError:
                break
            except OSError as failure:
                if failure.errno in EXHAUSTED and not self._server.evict():
                    return 0
        return READABLE


class Server(HTTPServer):
    """HTTP on one address; `answer` makes a Response of each Request, in any of the threads."""

    def __init__(
        self,
        answer: Answer,
        address: tuple[str, int],
        *,
        threads: int = 16,
        payload_limit: int = 100 << 20,
        ssl_context: ssl.SSLContext | None = None,
        on_request: OnRequest | None = None,
        on_error: OnError | None = None,
        limits: Limits = Limits(),
    ) -> None:
        """Listens at once; nobody is answered before `serve()`. Raises ListenError (svcd.http.listening).

        address: host and port, as listen() takes them. payload_limit: bytes of a body, as sent and unpacked.
        on_error: told the traceback of what escaped `answer` (default: standard error).
        """
        self.answer = answer
        self.payload_limit = payload_limit
        self.ssl_context = ssl_context
        self.on_request = on_request or (lambda *_: None)
        self.on_error = on_error or sys.stderr.write
        self.limits = limits
        self.is_stopping = False  # answers end their connections
        self._is_over = False  # no more threads
        self._most_threads = max(1, threads)
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        self._lock = threading.Lock()  # over _waiting, _threads and _is_over
        self._connections: set[Connection] = set()
        self._most_connections = _most_connections()
        self._grace_s = 0.0
        self._listeners = self._listen(address)
        self._resting: list[Listener] = []  # those that found no room
        self._bell, self._bell_rope = socket.socketpair()
        self._parking = Parking()

    def _listen(self, address: tuple[str, int]) -> list[Listener]:
        sockets = listen(*address)
        # The base would make a socket of its own, and look up the full name of the host, which can take seconds.
        super().__init__(sockets[0].getsockname(), Connection, bind_and_activate=False)
        self.socket.close()
        self.socket = sockets[0]
        return [Listener(sock, self) for sock in sockets]

    @property
    def port(self) -> int:
        """The port it listens on, also where 0 was asked for."""
        return cast(int, self.server_address[1])

    # From the listener to the threads.

    def welcome(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Park a new connection. Raises OSError when it is gone already."""
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self._transport(sock), address[0].removeprefix("::ffff:"), self)
        except OSError:
            sock.close()
            return
        self._connections.add(connection)
        if len(self._connections) > self._most_connections:
            self.evict()
        self._parking.park(connection, READABLE)

    def _transport(self, sock: socket.socket) -> Transport:
        if self.ssl_context is None:
            return PlainTransport(sock)
        from svcd.http.tls import TlsTransport  # lazily: whoever made the context has loaded ssl

        return TlsTransport(sock, self.ssl_context)

    def evict(self) -> bool:
        """Close the connection that has been waiting longest, to make room; False when none waits."""
        taken = self._parking.take_where(lambda guest: isinstance(guest, Connection), most=1)
        for connection in taken:
            self._close(cast(Connection, connection))
        return bool(taken)

    def _close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._parking.forget(connection)
        connection.request.close()

    def _start_thread(self) -> None:
        """One more, unless the bound is reached or all is over. To be called with the lock."""
        if len(self._threads) >= self._most_threads or self._is_over:
            return
        name = f"http-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        before = threading.stack_size(THREAD_STACK)
        try:
            thread.start()
        except RuntimeError:  # the system gives no more threads: those that are there go on
            return
        finally:
            threading.stack_size(before)
        self._threads.append(thread)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._waiting += 1
            guest = self._parking.next()
            with self._lock:
                self._waiting -= 1
                if guest is not None and not self._waiting:
                    self._start_thread()
            if guest is None:
                return
            self._turn(cast("Connection | Listener", guest))

    def _turn(self, guest: Connection | Listener) -> None:
        try:
            awaited = guest.handle()
        except Exception:  # a bug of svcd.http itself must not cost a thread
            import traceback  # needed only here

            self.on_error(traceback.format_exc())
            awaited = 0 if isinstance(guest, Connection) else READABLE
        if awaited:
            self._parking.park(guest, awaited)
        elif isinstance(guest, Connection):
            self._close(guest)
        else:
            self._resting.append(guest)

    # The thread that watches, and the end.

    def serve(self) -> None:
        """Answer requests until `stop()`, then end within its grace. To be called once."""
        with self._lock:
            self._start_thread()
        for listener in self._listeners:
            self._parking.park(listener, READABLE)
        while not wait(self._bell, READABLE, self.limits.sweep_s):
            self._sweep()
        self._end()

    def stop(self, grace_s: float = 10.0) -> None:
        """Ask `serve()` to end; returns at once. May be called from a signal handler, and again.

        grace_s: how long requests that are here may still take.
        """
        self._grace_s = grace_s
        try:
            self._bell_rope.send(b"!")
        except OSError:
            pass  # it has ended

    def _sweep(self) -> None:
        now = time.monotonic()
        for guest in self._parking.take_where(lambda guest: guest.deadline < now):
            connection = cast(Connection, guest)  # listeners have no deadline
            connection.expire()
            self._close(connection)
        while self._resting and not self.is_stopping:
            self._parking.park(self._resting.pop(), READABLE)

    def _end(self) -> None:
        until = time.monotonic() + self._grace_s
        self.is_stopping = True
        for listener in self._listeners:
            self._close_listener(listener)
        self._close_quiet()
        while self._connections and time.monotonic() < until:
            wait(self._bell, 0, 0.01)
            self._sweep()
            self._close_quiet()
        self._cut()

    def _close_listener(self, listener: Listener) -> None:
        while not self._parking.take_where(lambda guest: guest is listener) and listener not in self._resting:
            wait(self._bell, 0, 0.001)  # a thread is accepting
        for _ in range(0, BACKLOG, ACCEPTS_PER_TURN):
            listener.handle()  # whoever the system has let in already shall not be refused
        self._parking.forget(listener)
        listener.sock.close()

    def _close_quiet(self) -> None:
        for guest in self._parking.take_where(lambda guest: isinstance(guest, Connection) and guest.is_quiet()):
            self._close(cast(Connection, guest))

    def _cut(self) -> None:
        """What is still running has had its time."""
        for connection in list(self._connections):
            try:
                connection.request.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        with self._lock:
            self._is_over = True
        self._parking.close()
        until = time.monotonic() + 0.5
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if not any(thread.is_alive() for thread in self._threads):
            self._parking.release()
        self._bell.close()
        self._bell_rope.close()


def _most_connections() -> int:
    """Half the descriptors that the process may have: the other half is for files."""
    try:
        import resource  # not everywhere
    except ImportError:
        return UNLIMITED_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED_CONNECTIONS if soft == resource.RLIM_INFINITY else min(UNLIMITED_CONNECTIONS, max(16, soft // 2))
