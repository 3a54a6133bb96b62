"""The listening side: threads, connections, and an end that loses nothing.

DESIGN
- Threads: `http-1` to `http-N` all ask one parking (svcd.http.poller) for the next connection that has
  something to read. Who gets it reads the request, runs `answer`, sends the answer, parks the connection and asks
  again. Listening sockets are parked like connections: whoever gets one accepts. So nothing is handed from thread
  to thread, which in Python would cost a wait for the interpreter lock each time.
- A thread is started when the last waiting one has found work, up to the bound; those that found none for
  `Limits.spare_s` end: each takes the dismissal out of the parking, as if it were work. Nothing that a client can leave
  undone holds one, but for a body it is sending, which has its time (Limits): handshakes, heads, idle connections, and
  those that linger after a refusal wait in the parking. Answers that their clients are slow to take, or that are made in
  portions, wait in a second one, which has a thread to itself (svcd.http.delivery_thread). Answers that tell of things as
  they happen hold a thread; who gives them bounds their number.
- The thread that calls `serve()` runs no request. It wakes each `Limits.sweep_s` to close those whose time is
  over, to dismiss threads, to say that the server rests, and once for `stop()`.
- Queues: the kernel's only (connections not yet accepted; sockets ready and not yet taken, first come first served).
- Several processes may serve the same listening sockets: svcd.http.worker_sharing.
- Promised: answers of one connection come in the order of its requests, one at a time. Between connections
  nothing is promised. After `stop()`: nothing new is accepted, requests already here are answered, each with
  `Connection: close`, within the grace; then connections are cut.
"""
from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import HTTPServer
from typing import TYPE_CHECKING, Any, cast

from svcd.base import descriptors
from svcd.http.connection import Connection
from svcd.http.delivery_thread import DeliveryThread
from svcd.http.limits import Limits
from svcd.http.listening import BACKLOG, listen
from svcd.http.message import Request, Response
from svcd.http.poller import Pollable, Poller
from svcd.http.sockets import READABLE, WRITABLE, PlainTransport, Transport, wait

if TYPE_CHECKING:
    import ssl  # loaded at run time only by who makes the context

    from svcd.http.worker_sharing import HandoffQueue, PeerProcesses

Answer = Callable[[Request], Response]
OnRequest = Callable[[Request, int, float, int], None]  # request, status, seconds, bytes of the answer's body
OnError = Callable[[str], None]  # a traceback

ACCEPTS_PER_TURN = 64
# Without descriptors or memory for one more connection: give one back, or wait until something ends.
EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
# Threads without work that stay for the next request: starting one takes a tenth of a millisecond.
SPARE_THREADS = 2
# A thousand threads may wait for their search; with the usual 8 MB each, small machines refuse them. Recursion is
# bounded by Python long before: JSON nested too deeply fails as it should in a quarter of this.
THREAD_STACK = 1 << 20


class Listener:
    """A listening socket as a guest of the parking; its turn is to accept who waits."""

    deadline = float("inf")

    def __init__(self, sock: socket.socket, server: Server, share: PeerProcesses | None = None) -> None:
        self.sock = sock
        self._server = server
        # Among several processes each takes one and looks again, so that others come to their part.
        self._most = ACCEPTS_PER_TURN if share is None else 1
        self._is_last = share is None or share.is_main  # to listen: who leaves earlier leaves the queue to others
        sock.setblocking(False)

    def fileno(self) -> int:
        return self.sock.fileno()

    def handle(self) -> int:
        """Accept; READABLE to be parked again, 0 when there is no room for more connections now."""
        for _ in range(self._most):
            if self._server.is_full:
                if not wait(self.sock, READABLE, 0):  # nobody is there for whom room is to be made
                    break
                if not self._server.evict():
                    return 0
            try:
                self._server.welcome(*self.sock.accept())
            except BlockingIOError:
                break
            except OSError as failure:
                if failure.errno in EXHAUSTED and not self._server.evict():
                    return 0
        return READABLE

    def last_turn(self) -> None:
        """Whoever the system has let in already shall not be refused."""
        for _ in range(0, BACKLOG if self._is_last else 0, self._most):
            self.handle()


class Dismissal:
    """A guest of the parking that is always ready: the thread that takes it ends."""

    deadline = float("inf")

    def __init__(self) -> None:
        self._descriptor, other_end = os.pipe()
        os.close(other_end)  # which makes it readable for ever

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


class Server(HTTPServer):
    """HTTP on one address; `answer` makes a Response of each Request, in any of the threads."""

    def __init__(
        self,
        answer: Answer,
        address: tuple[str, int] | Sequence[socket.socket],
        *,
        threads: int = 16,
        payload_limit: int = 100 << 20,
        ssl_context: ssl.SSLContext | None = None,
        on_request: OnRequest | None = None,
        on_error: OnError | None = None,
        limits: Limits = Limits(),
        share: PeerProcesses | None = None,
        on_stopping: Callable[[], None] = lambda: None,
        on_rest: Callable[[], None] = lambda: None,
    ) -> None:
        """Listens at once; nobody is answered before `serve()`. Raises ListenError (svcd.http.listening).

        address: host and port, as listen() takes them, or sockets that listen. share: when other processes serve
        them, too; then without TLS, whose state cannot change hands. payload_limit: bytes of a body, as sent and
        unpacked. on_stopping: called when the end begins: answers that have no end of their own shall find it now.
        on_rest: called in the thread of serve() some time after work, best when nothing is at work: the time to tidy up.
        on_error: told the traceback of what escaped `answer` (default: standard error).
        """
        self.answer = answer
        self.payload_limit = payload_limit
        self.ssl_context = ssl_context
        self.on_request = on_request or (lambda *_: None)
        self.on_error = on_error or sys.stderr.write
        self.on_stopping = on_stopping
        self.on_rest = on_rest
        self.limits = limits
        self.is_stopping = False  # answers end their connections
        self._is_over = False  # no more threads
        self._most_threads = max(1, threads)
        self._threads: list[threading.Thread] = []
        self._free_names: list[str] = []  # of threads that have ended
        self._waiting = 0  # threads without work
        self._least_waiting = 0  # since threads were dismissed last
        self._dismissed = 0  # threads that are still to take the dismissal
        self._at_work = 0  # connections that are worked on
        self._has_worked = False  # since on_rest was called last
        # Over _waiting, _least_waiting, _dismissed, _at_work, _has_worked, _threads, _free_names and _is_over.
        self._lock = threading.Lock()
        self._dismissal = Dismissal()
        self._spare_until = time.monotonic() + limits.spare_s
        self._rest_at = time.monotonic() + limits.rest_s
        self._connections: set[Connection] = set()
        self._most_connections = descriptors.connections()
        self._grace_s = 0.0
        self._share = share
        self._doors: list[Listener | HandoffQueue] = [*self._listen(address), *self._trays()]
        self._resting: list[Listener | HandoffQueue] = []  # those that found no room
        self._bell, self._bell_rope = socket.socketpair()
        self._parking = Poller()
        self._lane = DeliveryThread(self._turn_in_lane, THREAD_STACK)

    def _listen(self, address: tuple[str, int] | Sequence[socket.socket]) -> list[Listener]:
        sockets = listen(*address) if isinstance(address, tuple) else address
        # The base would make a socket of its own, and look up the full name of the host, which can take seconds.
        super().__init__(sockets[0].getsockname(), Connection, bind_and_activate=False)
        self.socket.close()
        self.socket = sockets[0]
        self.sockets = tuple(sockets)
        return [Listener(sock, self, self._share) for sock in sockets]

    def _trays(self) -> list[HandoffQueue]:
        if self._share is None:
            return []
        from svcd.http.worker_sharing import HandoffQueue  # few daemons are of several processes

        return [HandoffQueue(self._share.tray, self)]

    @property
    def port(self) -> int:
        """The port it listens on, also where 0 was asked for."""
        return self.server_address[1]

    # From the listener to the threads.

    def welcome(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Park a new connection. Raises OSError when it is gone already."""
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self._transport(sock), _shown(address), self)
        except OSError:
            sock.close()
            return
        self._take_in(connection, READABLE)

    def _take_in(self, connection: Connection, events: int) -> None:
        self._connections.add(connection)
        if len(self._connections) > self._most_connections:
            self.evict()
        self._parking.park(connection, events)

    def adopt(self, sock: socket.socket, received: bytes) -> None:
        """Go on with a connection that another process has accepted, and of which it has read so much."""
        try:
            sock.setblocking(False)
            address = sock.getpeername()
        except OSError:  # the client is gone
            sock.close()
            return
        if self._is_over:
            sock.close()
        else:
            connection = Connection(PlainTransport(sock), _shown(address), self, received)
            self._take_in(connection, WRITABLE)  # that is, its turn comes at once

    def pass_on(self, request: Request, connection: Connection, raw: bytes) -> bool:
        """Leave a request, and its connection, to another process; False: it is to be answered here.

        raw: the head of the request. Raises ConnectionAbortedError.
        """
        share = self._share
        return share is not None and share.pass_on(request, connection.request, connection.received_from(raw))

    def _transport(self, sock: socket.socket) -> Transport:
        if self.ssl_context is None:
            return PlainTransport(sock)
        from svcd.http.tls import TlsTransport  # lazily: whoever made the context has loaded ssl

        return TlsTransport(sock, self.ssl_context)

    @property
    def is_full(self) -> bool:
        """No more connections are to be accepted, but for the last before the end."""
        return len(self._connections) >= self._most_connections and not self.is_stopping

    def evict(self) -> bool:
        """Close the connection that has been idle longest, or takes its answer slowly for longest, to make room; False when
        there is none.

        Who has sent a request, or has only just come and may be about to, waits for an answer: who comes later has to
        wait, too.
        """
        taken = (self._parking.take_where(lambda guest: isinstance(guest, Connection) and guest.is_idle(), most=1)
                 or self._lane.parking.take_where(lambda guest: True, most=1))
        for connection in taken:
            self._close(cast(Connection, connection))
        return bool(taken)

    def _close(self, connection: Connection) -> None:
        with self._lock:
            self._has_worked = True  # what it held is to be tidied up
        self._connections.discard(connection)
        self._parking.forget(connection)
        self._lane.parking.forget(connection)
        try:
            connection.end()
        finally:
            connection.request.close()
        self._wake_resting()

    def _start_thread(self) -> None:
        """One more, unless the bound is reached or all is over. To be called with the lock."""
        if len(self._threads) >= self._most_threads or self._is_over:
            return
        name = self._free_names.pop() if self._free_names else f"http-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        before = threading.stack_size(THREAD_STACK)
        try:
            thread.start()
        except RuntimeError:  # the system gives no more threads: those that are there go on
            self._free_names.append(name)
            return
        finally:
            threading.stack_size(before)
        self._threads.append(thread)
        self._waiting += 1  # from now on: counted when it first runs, a slow start would have others started for it

    def _work(self) -> None:
        while (guest := self._parking.next()) is not None:
            if guest is self._dismissal:
                if self._takes_leave():
                    return
                continue
            connections = int(isinstance(guest, Connection))
            with self._lock:
                self._waiting -= 1
                self._least_waiting = min(self._least_waiting, self._waiting)
                self._has_worked = True
                self._note(connections)
                if not self._waiting:
                    self._start_thread()
            self._turn(cast("Connection | Listener | HandoffQueue", guest))
            with self._lock:
                self._waiting += 1
                self._note(-connections)

    def _takes_leave(self) -> bool:
        """This thread has taken the dismissal. False: it is needed, for others have found work since."""
        with self._lock:
            self._dismissed -= 1
            if self._is_over or self._waiting <= SPARE_THREADS:
                self._dismissed = 0
                return False
            if self._dismissed:
                self._parking.park(self._dismissal, READABLE)
            self._waiting -= 1
            self._has_worked = True  # what it held is to be tidied up, too
            thread = threading.current_thread()
            self._threads.remove(thread)
            self._free_names.append(thread.name)
            return True

    def _note(self, more: int) -> None:
        """So many more connections are worked on; tell the other processes. To be called with the lock."""
        self._at_work += more
        if self._share is not None and not self.is_stopping:
            self._share.note(self._at_work)

    def _turn(self, guest: Connection | Listener | HandoffQueue) -> None:
        try:
            awaited = guest.handle()
        except Exception:  # a bug of svcd.http itself must not cost a thread
            self.on_error(_traceback())
            awaited = 0 if isinstance(guest, Connection) else READABLE
        if awaited:
            self._park(guest, awaited)
        elif isinstance(guest, Connection):
            self._close(guest)
        else:
            self._resting.append(guest)

    def _turn_in_lane(self, guest: Pollable) -> None:
        self._turn(cast(Connection, guest))
        with self._lock:
            self._has_worked = True

    def _park(self, guest: Connection | Listener | HandoffQueue, events: int) -> None:
        if not isinstance(guest, Connection) or not guest.is_delivering:
            self._parking.park(guest, events)
            return
        try:
            self._lane.park(guest, events)
        except RuntimeError:  # the system gives no thread
            self._close(guest)

    # The thread that watches, and the end.

    def serve(self) -> None:
        """Answer requests until `stop()`, then end within its grace. To be called once."""
        with self._lock:
            self._start_thread()
            self._note(0)
        for door in self._doors:
            self._parking.park(door, READABLE)
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
        for guest in (*self._parking.take_where(lambda guest: guest.deadline < now),
                      *self._lane.parking.take_where(lambda guest: guest.deadline < now)):
            connection = cast(Connection, guest)  # listeners have no deadline
            connection.expire()
            self._close(connection)
        if self.is_stopping:
            return
        self._wake_resting()
        self._dismiss_spare(now)
        self._rest(now)

    def _wake_resting(self) -> None:
        """Accept again, if that was given up for want of room."""
        while self._resting and not self.is_stopping:
            try:
                door = self._resting.pop()
            except IndexError:  # another thread has taken it
                return
            self._parking.park(door, READABLE)

    def _dismiss_spare(self, now: float) -> None:
        """Have those threads end that were without work since the last time, but for a few."""
        if now < self._spare_until:
            return
        self._spare_until = now + self.limits.spare_s
        with self._lock:
            # What was dismissed before and is not gone has been needed, or waits for its turn.
            dismissed = self._least_waiting - SPARE_THREADS if not self._dismissed else 0
            self._least_waiting = self._waiting
            if dismissed > 0:
                self._dismissed = dismissed
                self._parking.park(self._dismissal, READABLE)

    def _rest(self, now: float) -> None:
        """Say that the server rests: rarely, after work, and while there is none if that comes soon."""
        with self._lock:
            is_late = now >= self._rest_at + self.limits.rest_s
            if not self._has_worked or now < self._rest_at or self._at_work and not is_late:
                return
            self._has_worked = False
            self._rest_at = now + self.limits.rest_s
        try:
            self.on_rest()
        except Exception:  # whatever it is, connections must be looked after
            self.on_error(_traceback())

    def _end(self) -> None:
        until = time.monotonic() + self._grace_s
        self._leave()
        for door in self._doors:
            self._close_door(door)
        self.on_stopping()
        self._close_quiet()
        while self._connections and time.monotonic() < until:
            wait(self._bell, 0, 0.01)
            self._sweep()
            self._close_quiet()
        self._cut()

    def _leave(self) -> None:
        """From here on answers end their connections, and no process passes on anything to this one."""
        with self._lock:
            self.is_stopping = True
            if self._share is not None:
                self._share.mark_absent(self._share.number)

    def _close_door(self, door: Listener | HandoffQueue) -> None:
        while not self._parking.take_where(lambda guest: guest is door) and door not in self._resting:
            wait(self._bell, 0, 0.001)  # a thread is accepting
        door.last_turn()
        self._parking.forget(door)
        door.sock.close()

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
        threads = [*self._threads]  # which none leaves any more
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if not any(thread.is_alive() for thread in threads):
            self._parking.forget(self._dismissal)
            self._dismissal.close()
            self._parking.release()
        self._lane.close(max(0.0, until - time.monotonic()))
        self._bell.close()
        self._bell_rope.close()


def _traceback() -> str:
    """Of the exception that is being handled."""
    import traceback  # needed only for bugs

    return traceback.format_exc()


def _shown(address: tuple[Any, ...]) -> str:
    """A client's address in requests: an IPv4 client of an IPv6 socket is an IPv4 client."""
    return str(address[0]).removeprefix("::ffff:")
