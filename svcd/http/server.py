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
  portions, wait in a second one, which has a thread to itself (svcd.http.delivery). Answers that tell of things as
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
from svcd.http.delivery import DeliveryThread
from svcd.http.limits import Limits
from svcd.http.message import Request, Response
from svcd.http.poller import Pollable, Poller
from svcd.http.sockets import BACKLOG, READABLE, WRITABLE, PlainTransport, Transport, listen, wait

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

    def __init__(self, sock: socket.socket, server: Server, peers: PeerProcesses | None = None) -> None:
        self.sock = sock
        self._server = server
        # Among several processes each takes one and looks again, so that others come to their part.
        self._most = ACCEPTS_PER_TURN if peers is None else 1
        self._is_last = peers is None or peers.is_main  # to listen: who leaves earlier leaves the queue to others
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
                self._server.accept(*self.sock.accept())
            except BlockingIOError:
                break
            except OSError as failure:
                if failure.errno in EXHAUSTED and not self._server.evict():
                    return 0
        return READABLE

    def drain(self) -> None:
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
        peers: PeerProcesses | None = None,
        on_stopping: Callable[[], None] = lambda: None,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        """Listens at once; nobody is answered before `serve()`. Raises ListenError (svcd.http.sockets).

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
        self.on_idle = on_idle
        self.limits = limits
        self.is_stopping = False  # answers end their connections
        self._has_ended = False  # no more threads
        self._max_threads = max(1, threads)
        self._threads: list[threading.Thread] = []
        self._free_names: list[str] = []  # of threads that have ended
        self._waiting = 0  # threads without work
        self._min_waiting = 0  # since threads were dismissed last
        self._dismissed = 0  # threads that are still to take the dismissal
        self._at_work = 0  # connections that are worked on
        self._has_worked = False  # since on_rest was called last
        # Over _waiting, _least_waiting, _dismissed, _at_work, _has_worked, _threads, _free_names and _is_over.
        self._lock = threading.Lock()
        self._dismissal = Dismissal()
        self._spare_until = time.monotonic() + limits.spare_s
        self._idle_call_at = time.monotonic() + limits.idle_call_s
        self._connections: set[Connection] = set()
        self._max_connections = descriptors.connections()
        self._grace_s = 0.0
        self._peers = peers
        self._sources: list[Listener | HandoffQueue] = [*self._listen(address), *self._handoff_queues()]
        self._paused: list[Listener | HandoffQueue] = []  # those that found no room
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._poller = Poller()
        self._delivery_thread = DeliveryThread(self._continue_delivery, THREAD_STACK)

    def _listen(self, address: tuple[str, int] | Sequence[socket.socket]) -> list[Listener]:
        sockets = listen(*address) if isinstance(address, tuple) else address
        # The base would make a socket of its own, and look up the full name of the host, which can take seconds.
        super().__init__(sockets[0].getsockname(), Connection, bind_and_activate=False)
        self.socket.close()
        self.socket = sockets[0]
        self.sockets = tuple(sockets)
        return [Listener(sock, self, self._peers) for sock in sockets]

    def _handoff_queues(self) -> list[HandoffQueue]:
        if self._peers is None:
            return []
        from svcd.http.worker_sharing import HandoffQueue  # few daemons are of several processes

        return [HandoffQueue(self._peers.incoming, self)]

    @property
    def port(self) -> int:
        """The port it listens on, also where 0 was asked for."""
        return self.server_address[1]

    # From the listener to the threads.

    def accept(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Park a new connection. Raises OSError when it is gone already."""
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self._transport(sock), _address_text(address), self)
        except OSError:
            sock.close()
            return
        self._register(connection, READABLE)

    def _register(self, connection: Connection, events: int) -> None:
        self._connections.add(connection)
        if len(self._connections) > self._max_connections:
            self.evict()
        self._poller.register(connection, events)

    def receive(self, sock: socket.socket, received: bytes) -> None:
        """Go on with a connection that another process has accepted, and of which it has read so much."""
        try:
            sock.setblocking(False)
            address = sock.getpeername()
        except OSError:  # the client is gone
            sock.close()
            return
        if self._has_ended:
            sock.close()
        else:
            connection = Connection(PlainTransport(sock), _address_text(address), self, received)
            self._register(connection, WRITABLE)  # that is, its turn comes at once

    def hand_off(self, request: Request, connection: Connection, raw: bytes) -> bool:
        """Leave a request, and its connection, to another process; False: it is to be answered here.

        raw: the head of the request. Raises ConnectionAbortedError.
        """
        peers = self._peers
        return peers is not None and peers.hand_off(request, connection.request, connection.received_from(raw))

    def _transport(self, sock: socket.socket) -> Transport:
        if self.ssl_context is None:
            return PlainTransport(sock)
        from svcd.http.tls import TlsTransport  # lazily: whoever made the context has loaded ssl

        return TlsTransport(sock, self.ssl_context)

    @property
    def is_full(self) -> bool:
        """No more connections are to be accepted, but for the last before the end."""
        return len(self._connections) >= self._max_connections and not self.is_stopping

    def evict(self) -> bool:
        """Close the connection that has been idle longest, or takes its answer slowly for longest, to make room; False when
        there is none.

        Who has sent a request, or has only just come and may be about to, waits for an answer: who comes later has to
        wait, too.
        """
        taken = (self._poller.take_out_where(lambda pollable: isinstance(pollable, Connection) and pollable.is_idle(), max_count=1)
                 or self._delivery_thread.poller.take_out_where(lambda pollable: True, max_count=1))
        for connection in taken:
            self._close(cast(Connection, connection))
        return bool(taken)

    def _close(self, connection: Connection) -> None:
        with self._lock:
            self._has_worked = True  # what it held is to be tidied up
        self._connections.discard(connection)
        self._poller.unregister(connection)
        self._delivery_thread.poller.unregister(connection)
        try:
            connection.end()
        finally:
            connection.request.close()
        self._resume_paused()

    def _start_thread(self) -> None:
        """One more, unless the bound is reached or all is over. To be called with the lock."""
        if len(self._threads) >= self._max_threads or self._has_ended:
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
        while (pollable := self._poller.next()) is not None:
            if pollable is self._dismissal:
                if self._may_end():
                    return
                continue
            connections = int(isinstance(pollable, Connection))
            with self._lock:
                self._waiting -= 1
                self._min_waiting = min(self._min_waiting, self._waiting)
                self._has_worked = True
                self._note(connections)
                if not self._waiting:
                    self._start_thread()
            self._turn(cast("Connection | Listener | HandoffQueue", pollable))
            with self._lock:
                self._waiting += 1
                self._note(-connections)

    def _may_end(self) -> bool:
        """This thread has taken the dismissal. False: it is needed, for others have found work since."""
        with self._lock:
            self._dismissed -= 1
            if self._has_ended or self._waiting <= SPARE_THREADS:
                self._dismissed = 0
                return False
            if self._dismissed:
                self._poller.register(self._dismissal, READABLE)
            self._waiting -= 1
            self._has_worked = True  # what it held is to be tidied up, too
            thread = threading.current_thread()
            self._threads.remove(thread)
            self._free_names.append(thread.name)
            return True

    def _note(self, more: int) -> None:
        """So many more connections are worked on; tell the other processes. To be called with the lock."""
        self._at_work += more
        if self._peers is not None and not self.is_stopping:
            self._peers.note(self._at_work)

    def _turn(self, pollable: Connection | Listener | HandoffQueue) -> None:
        try:
            blocked_on = pollable.handle()
        except Exception:  # a bug of svcd.http itself must not cost a thread
            self.on_error(_traceback())
            blocked_on = 0 if isinstance(pollable, Connection) else READABLE
        if blocked_on:
            self._register_again(pollable, blocked_on)
        elif isinstance(pollable, Connection):
            self._close(pollable)
        else:
            self._paused.append(pollable)

    def _continue_delivery(self, pollable: Pollable) -> None:
        self._turn(cast(Connection, pollable))
        with self._lock:
            self._has_worked = True

    def _register_again(self, pollable: Connection | Listener | HandoffQueue, events: int) -> None:
        if not isinstance(pollable, Connection) or not pollable.is_delivering:
            self._poller.register(pollable, events)
            return
        try:
            self._delivery_thread.register(pollable, events)
        except RuntimeError:  # the system gives no thread
            self._close(pollable)

    # The thread that watches, and the end.

    def serve(self) -> None:
        """Answer requests until `stop()`, then end within its grace. To be called once."""
        with self._lock:
            self._start_thread()
            self._note(0)
        for source in self._sources:
            self._poller.register(source, READABLE)
        while not wait(self._stop_reader, READABLE, self.limits.sweep_s):
            self._sweep()
        self._end()

    def stop(self, grace_s: float = 10.0) -> None:
        """Ask `serve()` to end; returns at once. May be called from a signal handler, and again.

        grace_s: how long requests that are here may still take.
        """
        self._grace_s = grace_s
        try:
            self._stop_writer.send(b"!")
        except OSError:
            pass  # it has ended

    def _sweep(self) -> None:
        now = time.monotonic()
        for pollable in (*self._poller.take_out_where(lambda pollable: pollable.deadline < now),
                      *self._delivery_thread.poller.take_out_where(lambda pollable: pollable.deadline < now)):
            connection = cast(Connection, pollable)  # listeners have no deadline
            connection.expire()
            self._close(connection)
        if self.is_stopping:
            return
        self._resume_paused()
        self._dismiss_spare(now)
        self._rest(now)

    def _resume_paused(self) -> None:
        """Accept again, if that was given up for want of room."""
        while self._paused and not self.is_stopping:
            try:
                source = self._paused.pop()
            except IndexError:  # another thread has taken it
                return
            self._poller.register(source, READABLE)

    def _dismiss_spare(self, now: float) -> None:
        """Have those threads end that were without work since the last time, but for a few."""
        if now < self._spare_until:
            return
        self._spare_until = now + self.limits.spare_s
        with self._lock:
            # What was dismissed before and is not gone has been needed, or waits for its turn.
            dismissed = self._min_waiting - SPARE_THREADS if not self._dismissed else 0
            self._min_waiting = self._waiting
            if dismissed > 0:
                self._dismissed = dismissed
                self._poller.register(self._dismissal, READABLE)

    def _rest(self, now: float) -> None:
        """Say that the server rests: rarely, after work, and while there is none if that comes soon."""
        with self._lock:
            is_late = now >= self._idle_call_at + self.limits.idle_call_s
            if not self._has_worked or now < self._idle_call_at or self._at_work and not is_late:
                return
            self._has_worked = False
            self._idle_call_at = now + self.limits.idle_call_s
        try:
            self.on_idle()
        except Exception:  # whatever it is, connections must be looked after
            self.on_error(_traceback())

    def _end(self) -> None:
        until = time.monotonic() + self._grace_s
        self._begin_stop()
        for source in self._sources:
            self._close_source(source)
        self.on_stopping()
        self._close_unused()
        while self._connections and time.monotonic() < until:
            wait(self._stop_reader, 0, 0.01)
            self._sweep()
            self._close_unused()
        self._disconnect_all()

    def _begin_stop(self) -> None:
        """From here on answers end their connections, and no process passes on anything to this one."""
        with self._lock:
            self.is_stopping = True
            if self._peers is not None:
                self._peers.mark_absent(self._peers.number)

    def _close_source(self, source: Listener | HandoffQueue) -> None:
        while not self._poller.take_out_where(lambda pollable: pollable is source) and source not in self._paused:
            wait(self._stop_reader, 0, 0.001)  # a thread is accepting
        source.drain()
        self._poller.unregister(source)
        source.sock.close()

    def _close_unused(self) -> None:
        for pollable in self._poller.take_out_where(lambda pollable: isinstance(pollable, Connection) and pollable.has_no_request()):
            self._close(cast(Connection, pollable))

    def _disconnect_all(self) -> None:
        """What is still running has had its time."""
        for connection in list(self._connections):
            try:
                connection.request.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        with self._lock:
            self._has_ended = True
        self._poller.close()
        until = time.monotonic() + 0.5
        threads = [*self._threads]  # which none leaves any more
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if not any(thread.is_alive() for thread in threads):
            self._poller.unregister(self._dismissal)
            self._dismissal.close()
            self._poller.release()
        self._delivery_thread.close(max(0.0, until - time.monotonic()))
        self._stop_reader.close()
        self._stop_writer.close()


def _traceback() -> str:
    """Of the exception that is being handled."""
    import traceback  # needed only for bugs

    return traceback.format_exc()


def _address_text(address: tuple[Any, ...]) -> str:
    """A client's address in requests: an IPv4 client of an IPv6 socket is an IPv4 client."""
    return str(address[0]).removeprefix("::ffff:")
