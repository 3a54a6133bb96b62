"""Accepts connections, runs request threads, and stops without losing a request.

Threads (docs/http.md#threads):
- One of `http-1` to `http-N` leads (svcd.http.sockets.Lead): it asks the poller for the connections with something to read,
  takes the first, reads the request, runs `answer`, sends the response, registers the connection again, and takes the next.
  Listening sockets are in the same poller: the thread accepts. Another thread takes the lead before a response that may take
  long, and when one takes longer than expected; it takes over the remaining connections. No request is passed between threads,
  which in Python would cost a wait for the interpreter lock each time.
- The server starts a thread when the last idle one has found work, up to the bound. After `Limits.spare_s` without work, all
  but SPARE_THREADS end. No client can hold a thread by doing nothing, except in the middle of a body, which has its
  time-outs (Limits).
- Responses that their clients read slowly, or that are generated in portions, wait in a second poller with one thread
  (svcd.http.delivery). Each stream holds a request thread; the caller bounds their number.
- The thread that calls `serve()` answers no request. Every `Limits.sweep_s` it closes connections whose deadline has
  passed, dismisses spare threads, and calls on_idle and on_sweep.

Queues: the kernel's only (connections not accepted yet; ready sockets, first come first served). Several processes may
serve the same listening sockets: svcd.http.worker_sharing.

Guarantees: a client gets responses in the order of its requests. After `stop()` the server accepts nothing new, answers the
requests that have arrived with `Connection: close` within the grace period, then cuts the connections.
"""
from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from svcd.base import machine
from svcd.http.connection import Answer, Connection, OnError, OnRequest
from svcd.http.delivery import DeliveryThread
from svcd.http.message import MEMORY_STEP, BodyMemory, Request
from svcd.http.sockets import BACKLOG, READABLE, WRITABLE, Lead, Limits, PlainTransport, Pollable, Poller, Transport, listen, wait
from svcd.http.standard_server import HTTPServer

if TYPE_CHECKING:
    import ssl  # at run time only the maker of the context loads it

    from svcd.http.worker_sharing import HandoffQueue, PeerProcesses, RelayThread

ACCEPTS_PER_TURN = 64
# No descriptor or memory for one more connection: close an idle one, or wait until a connection ends.
EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
# Idle threads kept for the next request: starting a thread takes a tenth of a millisecond.
SPARE_THREADS = 2
# A thousand threads may wait for their search; with the usual 8 MB each, small machines refuse them. Python does not know this
# limit, so callers check the depth of a text before anything recurses over it (svcd.base.json_text.is_too_deep).
THREAD_STACK = 1 << 20


class Listener:
    """A listening socket in the poller; accepts connections when it is readable."""

    deadline = float("inf")

    def __init__(self, sock: socket.socket, server: Server) -> None:
        self.sock = sock
        self._server = server
        sock.setblocking(False)

    def fileno(self) -> int:
        return self.sock.fileno()

    def handle(self) -> int:
        """Accept. Returns READABLE to be registered again, 0 if the server has no room for more connections now."""
        for _ in range(self._per_turn()):
            if self._server.is_full:
                if not wait(self.sock, READABLE, 0):  # no client waits, so no room is needed
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
        """Accept the connections that the kernel has completed already, so that their clients are answered."""
        # The main process stops last; processes that stop earlier leave the backlog to it.
        is_last = self._server.is_main and not self._server.are_sockets_kept
        for _ in range(0, BACKLOG if is_last else 0, self._per_turn()):
            self.handle()

    def _per_turn(self) -> int:
        """Return how many connections to accept: one if other processes accept too, so that they get their share."""
        return ACCEPTS_PER_TURN if self._server.accepts_alone else 1


class Dismissal:
    """A pollable that is always ready: the thread that gets it ends, unless it is needed again."""

    deadline = float("inf")

    def __init__(self) -> None:
        self._descriptor, other_end = os.pipe()
        os.close(other_end)  # a pipe without writer is always readable

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


class Server(HTTPServer):
    """HTTP on one address; `answer` is called with each request, in any of the threads."""

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
        on_sweep: Callable[[], None] = lambda: None,
        are_sockets_kept: bool = False,
    ) -> None:
        """Listen at once; serve() answers the requests. Raises ListenError.

        address: host and port as for listen(), or listening sockets; no socket if all connections come from other processes.
        threads: maximum number of request threads. payload_limit: maximum bytes of a body, both as sent and unpacked.
        on_request: called after each response. on_error: called with the traceback of a bug (default: standard error).
        peers: the other processes that answer, if any (see share()). on_stopping: called when the stop begins, to end streams.
        on_idle: called in the thread of serve() some time after work, preferably while no request runs: the time to release
        memory. on_sweep: called there every `Limits.sweep_s` until the stop begins. are_sockets_kept: another process keeps
        the listening sockets open, so that connections not accepted before the stop wait for the next process.
        """
        self.answer = answer
        self.payload_limit = payload_limit
        self.body_memory = BodyMemory(payload_limit + MEMORY_STEP)  # a body of the largest size has room when it is alone
        self.ssl_context = ssl_context
        self.on_request: OnRequest = on_request or (lambda *_: None)
        self.on_error: OnError = on_error or sys.stderr.write
        self.on_stopping = on_stopping
        self.on_idle = on_idle
        self.on_sweep = on_sweep
        self.are_sockets_kept = are_sockets_kept
        self.accepted = 0  # connections since the start
        self.limits = limits
        self.is_stopping = False  # the server accepts nothing new
        self.on_message: Callable[[bytes], None] = lambda message: None  # called with each message of another process
        # Returns whether the response is mostly quick to compute, so that the next request may wait for it (Lead).
        self.is_quick: Callable[[Request], bool] = lambda request: False
        self.on_backlog: Callable[[bool], None] = lambda has_backlog: None  # called when requests begin, or cease, to wait for it
        self._is_leaving = False  # the main process takes over the connections
        self._is_serving = False  # serve() has been called, and registers _sources
        self._has_ended = False  # the server starts no more threads
        self._max_threads = max(1, threads)
        self._threads: list[threading.Thread] = []
        self._free_names: list[str] = []  # of threads that have ended
        self._waiting = 0  # idle threads
        self._min_waiting = 0  # the fewest idle threads since threads were last dismissed
        self._dismissed = 0  # threads that were asked to end and have not ended
        self._at_work = 0  # connections that a thread works on
        self._has_worked = False  # since the last call of on_idle
        # Guards _waiting, _min_waiting, _dismissed, _at_work, _has_worked, _threads, _free_names, _is_serving and _has_ended,
        # and _sources until the stop.
        self._lock = threading.Lock()
        self._dismissal = Dismissal()
        self._lead = Lead()
        self.give_lead_away = self._lead.give_away  # called by a thread that has to wait: another thread takes the next requests
        # These belong to the thread that leads. _arrived: pollables taken out of the poller, to be handled in this order.
        self._arrived: deque[Pollable] = deque()
        self._has_backlog = self._told_backlog = False
        self._spare_until = time.monotonic() + limits.spare_s
        self._idle_call_at = time.monotonic() + limits.idle_call_s
        self._connections: set[Connection] = set()
        self._max_connections = machine.connection_limit()
        self._grace_s = 0.0
        self._peers = peers
        self._sources: list[Listener | HandoffQueue] = [*self._listen(address), *self._handoff_queues()]
        self._paused: list[Listener | HandoffQueue] = []  # sources that found no room for more connections
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._poller = Poller()
        self._delivery_thread = DeliveryThread(self._continue_delivery, THREAD_STACK)
        self._relay_thread: RelayThread | None = None

    def _listen(self, address: tuple[str, int] | Sequence[socket.socket]) -> list[Listener]:
        sockets = listen(*address) if isinstance(address, tuple) else address
        # The base would open a socket of its own, and look up the full name of the host, which can take seconds.
        super().__init__(sockets[0].getsockname() if sockets else ("", 0), Connection, bind_and_activate=False)
        self.socket.close()
        self.sockets = tuple(sockets)
        return [Listener(sock, self) for sock in sockets]

    def _handoff_queues(self) -> list[HandoffQueue]:
        if self._peers is None:
            return []
        from svcd.http.worker_sharing import HandoffQueue  # few daemons have several processes

        return [HandoffQueue(self._peers.incoming, self)]

    @property
    def port(self) -> int:
        """The port that the server listens on; a free one if 0 was asked for."""
        return self.server_address[1]

    # Other processes

    def share(self, peers: PeerProcesses) -> None:
        """Answer together with other processes from now on. May be called once."""
        with self._lock:
            if self.is_stopping:
                return
            self._peers = peers
            self._sources += (queues := self._handoff_queues())
            if self.ssl_context is not None:
                from svcd.http.worker_sharing import RelayThread  # few daemons have several processes

                self._relay_thread = RelayThread(self.limits, self._resume_paused)
            self._count_at_work(0)
            if self._is_serving:  # else serve() registers them: twice would give one queue to two threads
                for queue in queues:
                    self._poller.register(queue, READABLE)

    @property
    def accepts_alone(self) -> bool:
        """Whether no other process accepts connections; with TLS none can."""
        return self._peers is None or self.ssl_context is not None

    @property
    def is_main(self) -> bool:
        """Whether this is the main process."""
        return self._peers is None or self._peers.is_main

    @property
    def ends_connections(self) -> bool:
        """Whether each response is the last one on its connection."""
        return self.is_stopping and not self._is_leaving

    # Connections

    @property
    def has_connections(self) -> bool:
        """Whether clients are connected, idle ones included."""
        return bool(self._connections) or self._relay_thread is not None and self._relay_thread.count > 0

    def accept(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Register a new connection with the poller; drops it if the client has closed it already."""
        self.accepted += 1
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport: Transport
            if self.ssl_context is None:
                transport = PlainTransport(sock)
            else:
                from svcd.http.tls import TlsTransport  # lazily: only daemons with TLS load ssl

                transport = TlsTransport(sock, self.ssl_context)
            # IPv4 clients of an IPv6 socket are shown as IPv4.
            connection = Connection(transport, str(address[0]).removeprefix("::ffff:"), self)
        except OSError:
            sock.close()
            return
        self._register(connection, READABLE)

    def _register(self, connection: Connection, events: int) -> None:
        self._connections.add(connection)
        if len(self._connections) > self._max_connections:
            self.evict()
        self._poller.register(connection, events)

    def receive(self, sock: socket.socket, client: str, received: bytes) -> None:
        """Continue a connection that another process has accepted. client: its address; received: the bytes read so far."""
        sock.setblocking(False)
        if self._has_ended:
            sock.close()
        else:
            connection = Connection(PlainTransport(sock), client, self, received)
            self._register(connection, WRITABLE)  # writable at once, so a thread gets it at once

    def hand_off(self, request: Request, connection: Connection, raw: bytes) -> bool:
        """Hand a request, with its connection, to another process. Returns False if this process answers it.

        raw: the head of the request. Raises ConnectionAbortedError.
        """
        peers = self._peers
        target = None if peers is None else peers.target(request)
        if peers is None or target is None:
            return False
        received = connection.received_from(raw)
        if isinstance(connection.transport, PlainTransport):
            return peers.hand_off(request, target, connection.request, connection.client, received)
        near_end, far_end = socket.socketpair()  # the state of TLS cannot be handed off: relay the decrypted bytes
        with far_end:
            if not peers.hand_off(request, target, far_end, connection.client, received):
                near_end.close()
                return False
        connection.relay_end = near_end
        return True

    def before_answer(self, request: Request) -> None:
        """Let another thread take the next requests, unless the response to this one is quick to compute."""
        if self.is_quick(request):
            self._tell_backlog(self._has_backlog)
        else:
            self._lead.give_away()

    @property
    def is_full(self) -> bool:
        """Whether the server has no room for another connection. While it stops, it accepts the whole backlog regardless."""
        # A relay has two descriptors.
        taken = len(self._connections) + (2 * self._relay_thread.count if self._relay_thread else 0)
        return taken >= self._max_connections and not self.is_stopping

    def evict(self) -> bool:
        """Close the connection that was idle longest, else the slowest reader, to make room. Returns False if it found neither.

        It never closes a connection with a request, or one so new that a request may be on its way.
        """
        taken = (self._take_out(Connection.is_idle, max_count=1)
                 or cast(list[Connection], self._delivery_thread.poller.take_out_where(lambda pollable: True, max_count=1)))
        for connection in taken:
            self._close(connection)
        return bool(taken) or self._relay_thread is not None and self._relay_thread.evict()

    def _take_out(self, condition: Callable[[Connection], bool], max_count: int = 1 << 30) -> list[Connection]:
        """Take connections for which the condition holds out of the poller."""
        return cast(list[Connection], self._poller.take_out_where(
            lambda pollable: isinstance(pollable, Connection) and condition(pollable), max_count))

    def _close(self, connection: Connection) -> None:
        with self._lock:
            self._has_worked = True  # the memory of the connection can be released
        self._connections.discard(connection)
        self._poller.unregister(connection)
        self._delivery_thread.poller.unregister(connection)
        try:
            connection.end()
        finally:
            if connection.relay_end is None or self._relay_thread is None:
                connection.request.close()
            else:
                self._relay_thread.add(connection.transport, connection.relay_end)
        self._resume_paused()

    def _start_thread(self) -> None:
        """Start a thread, unless the bound is reached. The caller holds the lock."""
        if len(self._threads) >= self._max_threads or self._has_ended:
            return
        name = self._free_names.pop() if self._free_names else f"http-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        before = threading.stack_size(THREAD_STACK)
        try:
            thread.start()
        except RuntimeError:  # the system allows no more threads: continue with the present ones
            self._free_names.append(name)
            return
        finally:
            threading.stack_size(before)
        self._threads.append(thread)
        self._waiting += 1  # counted now: if it counted itself when it runs, a slow start would start further threads

    def _work(self) -> None:
        pollable: Pollable | None = None
        while (pollable := self._next(pollable)) is not None:
            if pollable is self._dismissal:
                if self._may_end():
                    break
                continue
            with self._lock:
                self._waiting -= 1
                self._min_waiting = min(self._min_waiting, self._waiting)
                self._has_worked = True
                if not self._waiting:
                    self._start_thread()
            self._lead.begin_turn()
            self._turn(cast("Connection | Listener | HandoffQueue", pollable))
            with self._lock:
                self._waiting += 1
                self._count_at_work(-int(isinstance(pollable, Connection)))
        self._lead.give_away()

    def _next(self, last: Pollable | None) -> Pollable | None:
        """Wait until this thread leads; return the pollable to handle next, None at the end. last: the one handled before."""
        self._lead.take()
        if not self._arrived:
            found = self._poller.ready()
            connections = [pollable for pollable in found if isinstance(pollable, Connection)]
            # A client that sends its next request at once, or the first with its connection, has not waited for another client.
            self._has_backlog = len(connections) > 1 or (
                isinstance(last, Connection) and any(connection is not last for connection in connections))
            if not self._has_backlog:
                self._tell_backlog(False)
            if not found:
                if (pollable := self._poller.next()) is None:
                    return None
                found = [pollable]
            self._arrived += found
            with self._lock:
                self._count_at_work(sum(isinstance(pollable, Connection) for pollable in found))
        return self._arrived.popleft()

    def _tell_backlog(self, has_backlog: bool) -> None:
        if has_backlog != self._told_backlog:
            self._told_backlog = has_backlog
            self.on_backlog(has_backlog)

    def _may_end(self) -> bool:
        """Return whether this thread, which got the dismissal, has to end; False if the server needs it again."""
        with self._lock:
            self._dismissed -= 1
            if self._has_ended or self._waiting <= SPARE_THREADS:
                self._dismissed = 0
                return False
            if self._dismissed:
                self._poller.register(self._dismissal, READABLE)
            self._waiting -= 1
            self._has_worked = True  # the memory of the thread can be released, too
            thread = threading.current_thread()
            self._threads.remove(thread)
            self._free_names.append(thread.name)
            return True

    def _count_at_work(self, more: int) -> None:
        """Count connections at work and publish the count to the other processes. The caller holds the lock."""
        self._at_work += more
        if self._peers is not None and not self.is_stopping:
            self._peers.publish_load(self._at_work)

    def _turn(self, pollable: Connection | Listener | HandoffQueue) -> None:
        try:
            blocked_on = pollable.handle()
        except Exception:  # a bug of svcd.http itself must not end a thread
            self.on_error(_traceback())
            blocked_on = 0 if isinstance(pollable, Connection) else READABLE
        if not blocked_on:
            if isinstance(pollable, Connection):
                self._close(pollable)
            else:
                self._paused.append(pollable)
            return
        if isinstance(pollable, Connection) and pollable.is_delivering:
            try:
                self._delivery_thread.register(pollable, blocked_on)
                return
            except RuntimeError:  # the system allows no more threads: the request threads deliver, one portion at a time
                pass
        self._poller.register(pollable, blocked_on)

    def _continue_delivery(self, pollable: Pollable) -> None:
        self._turn(cast(Connection, pollable))
        with self._lock:
            self._has_worked = True

    # The thread of serve(), and the stop

    def serve(self) -> None:
        """Answer requests until `stop()`, then end within its grace period. May be called once."""
        with self._lock:
            self._is_serving = True
            self._start_thread()
            self._count_at_work(0)
            for source in self._sources:
                self._poller.register(source, READABLE)
        while not wait(self._stop_reader, READABLE, self.limits.sweep_s):
            self._sweep()
        until = time.monotonic() + self._grace_s
        # From here on responses close their connections (unless the server leaves), and no process hands any to this one.
        with self._lock:
            self.is_stopping = True
            if self._peers is not None:
                self._peers.mark_absent(self._peers.number)
        for source in self._sources:
            while not self._poller.take_out_where(lambda pollable: pollable is source) and source not in self._paused:  # noqa: B023  # called at once
                wait(self._stop_reader, 0, 0.001)  # a thread is accepting on it
            source.drain()
            self._poller.unregister(source)
            source.sock.close()
        self.on_stopping()
        self._close_unused()
        while self.has_connections and time.monotonic() < until:
            wait(self._stop_reader, 0, 0.01)
            self._sweep()
            self._close_unused()
        self._disconnect_all()

    def stop(self, grace_s: float = 10.0) -> None:
        """Ask `serve()` to end; returns at once. May be called from a signal handler, and repeatedly.

        grace_s: seconds that requests which have arrived may still take.
        """
        self._grace_s = grace_s
        try:
            self._stop_writer.send(b"!")
        except OSError:
            pass  # serve() has returned

    def leave(self, grace_s: float) -> None:
        """As stop(), but leave the clients to the main process: it gets each connection when the request is answered."""
        self._is_leaving = True
        self.stop(grace_s)

    def _sweep(self) -> None:
        """Close connections past their deadline; unless the server stops, dismiss spare threads and call on_idle, on_sweep."""
        now = time.monotonic()
        for pollable in (*self._poller.take_out_where(lambda pollable: pollable.deadline < now and not (
                isinstance(pollable, Connection) and pollable.awaits_thread())),
                         *self._delivery_thread.poller.take_out_where(lambda pollable: pollable.deadline < now)):
            connection = cast(Connection, pollable)  # a listener never expires
            connection.expire()
            self._close(connection)
        if self.is_stopping:
            return
        self._resume_paused()
        if now >= self._spare_until:
            self._spare_until = now + self.limits.spare_s
            with self._lock:
                # Threads that were asked before and have not ended are busy; ask no more meanwhile.
                dismissed = self._min_waiting - SPARE_THREADS if not self._dismissed else 0
                self._min_waiting = self._waiting
                if dismissed > 0:
                    self._dismissed = dismissed
                    self._poller.register(self._dismissal, READABLE)
        self._call_on_idle(now)
        try:
            self.on_sweep()
        except Exception:  # a bug there must not stop the sweep
            self.on_error(_traceback())

    def _resume_paused(self) -> None:
        """Accept again after a pause because the server had no room."""
        while self._paused and not self.is_stopping:
            try:
                source = self._paused.pop()
            except IndexError:  # another thread was faster
                return
            self._poller.register(source, READABLE)

    def _call_on_idle(self, now: float) -> None:
        """Call on_idle: rarely, only after work, and preferably while no request runs."""
        with self._lock:
            is_late = now >= self._idle_call_at + self.limits.idle_call_s
            if not self._has_worked or now < self._idle_call_at or self._at_work and not is_late:
                return
            self._has_worked = False
            self._idle_call_at = now + self.limits.idle_call_s
        try:
            self.on_idle()
        except Exception:  # a bug there must not stop the sweep
            self.on_error(_traceback())

    def _close_unused(self) -> None:
        """Close the connections without a request, or hand them to the main process if the server leaves."""
        if not self._is_leaving:
            # Where the next process takes over at once, this one still answers a client that has just connected.
            for connection in self._take_out(Connection.is_idle if self.are_sockets_kept else Connection.has_no_request):
                self._close(connection)
            return
        assert self._peers is not None
        for connection in self._take_out(Connection.is_between_requests):
            if not self._peers.give_back(connection.request, connection.client, connection.received_from(b"")):
                self._poller.register(connection, READABLE)  # the queue is full: tried again soon
            else:
                self._close(connection)

    def _disconnect_all(self) -> None:
        """Cut all connections and end all threads: the grace period is over."""
        for connection in list(self._connections):
            try:
                connection.request.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        with self._lock:
            self._has_ended = True
        self._poller.close()
        until = time.monotonic() + 0.5
        threads = [*self._threads]  # a copy: no thread removes itself from here on
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        # Ending these two threads ends connections, which takes them out of the poller.
        self._delivery_thread.close(max(0.0, until - time.monotonic()))
        if self._relay_thread:
            self._relay_thread.close(max(0.0, until - time.monotonic()))
        if not any(thread.is_alive() for thread in threads) and not self._delivery_thread.is_alive():
            self._poller.unregister(self._dismissal)
            self._dismissal.close()
            self._poller.release()
        self._stop_reader.close()
        self._stop_writer.close()


def _traceback() -> str:
    """Return the traceback of the exception that is being handled."""
    import traceback  # imported only for bugs

    return traceback.format_exc()
