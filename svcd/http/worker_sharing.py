"""Hands connections between processes that answer on one port, according to their load (docs/http.md#worker-processes).

- The listening sockets are the same in all processes, and each accepts. A new client wakes all processes, and the first one
  gets it: one whose interpreter is free. (EPOLLEXCLUSIVE would wake a single process, which may be busy computing.)
- After reading the head of a request, a process may send the connection, with the bytes that have arrived, to another process:
  a request that only the main process answers goes there and stays there; any other goes to the least loaded process.
- With TLS only the main process accepts. It hands over one end of a pair of sockets, and relays the decrypted bytes to the
  other end (Relay). That process applies the time-outs: the relay ends when it closes its end, and it notices when the client
  ends its side. Without TLS nothing is proxied.
- Processes can also send each other messages, which arrive in order with the connections.
- The load table is shared memory with one integer per process, written by that process, or by the main one for a process
  that has died. A stale entry costs a detour, never a response.

Threads: "http-relay" moves the bytes of all relays; it starts with the first one and ends with the server.
"""
from __future__ import annotations

import mmap
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from svcd.http.framing import MAX_HEAD
from svcd.http.message import PIECE, Request
from svcd.http.sockets import READABLE, WRITABLE, Limits, Transport, wait

MAIN = 0  # number of the main process, which answers everything
ABSENT = -1  # entry of a process that takes no connections now
ENTRY_BYTES = 8  # of the load table
# The most bytes received when a head is complete: nearly a whole head, and the piece that completed it. send() refuses longer
# messages.
MAX_RECEIVED = MAX_HEAD + PIECE
MAX_CLIENT = 64  # bytes before them in a message: the address of a client and a line break
# Seconds that a worker waits for room in the queue of the main process, which alone can answer the request.
MAX_WAIT_S = 10.0
RECEIVED_PER_TURN = 64
_NOTHING = memoryview(b"")
# Pieces moved for one relay before others get their turn.
_TURNS = 8
# A relay may be closed for a new client when the last bytes were a response, and are at least this old.
_IDLE_S = 1.0


class LoadTable:
    """Memory that the processes share. loads: connections at work, or ABSENT, by number of the process.

    changes: one number, for `svcd.instance.data_folder.DataFolderReader.share_changes()`.
    """

    def __init__(self, descriptor: int) -> None:
        """descriptor: of the shared memory, from new_load_table()."""
        entries = memoryview(mmap.mmap(descriptor, 0)).cast("q")
        self.loads, self.changes = entries[:-1], entries[-1:]


def new_load_table(processes: int) -> int:
    """Return the descriptor of shared memory for a LoadTable in which all processes are absent. Linux only."""
    descriptor = os.memfd_create("svcd-load-table")
    os.write(descriptor, ABSENT.to_bytes(ENTRY_BYTES, "little", signed=True) * processes + bytes(ENTRY_BYTES))
    return descriptor


def new_handoff_queue() -> tuple[socket.socket, socket.socket]:
    """Return (the end where a process receives connections, the end where the others send them), a pair of sockets."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_RECEIVED + MAX_CLIENT)
    return ends


class PeerProcesses:
    """The other processes, as one process sees them."""

    def __init__(self, number: int, load_table: LoadTable, incoming: socket.socket, outgoing: Sequence[socket.socket],
                 is_for_all: Callable[[Request], bool]) -> None:
        """number: of this process. incoming: its own queue; outgoing: the queues of all processes, by number.

        is_for_all: returns whether any process may answer the request. The main process answers all.
        """
        self.number = number
        self.incoming = incoming
        self._loads = load_table.loads
        self._handoff_queues = outgoing
        self._others = [other for other in range(len(outgoing)) if other != number]
        self._is_for_all = is_for_all

    @property
    def is_main(self) -> bool:
        """Whether this is the main process."""
        return self.number == MAIN

    def publish_load(self, at_work: int) -> None:
        """Write the load of this process: connections at work, or ABSENT to take no more connections."""
        self._loads[self.number] = at_work

    def mark_absent(self, number: int) -> None:
        """Mark a process that has died; it takes nothing until it publishes a load itself."""
        self._loads[number] = ABSENT

    def is_absent(self, number: int) -> bool:
        """Return whether a process takes no connections now."""
        return self._loads[number] == ABSENT

    def others_at_work(self) -> int:
        """Return how many connections the other processes work on."""
        return sum(max(0, self._loads[other]) for other in self._others)

    def target(self, request: Request) -> int | None:
        """Return the process that should answer a request; None for this one.

        Another process gets it if its load stays below the load of this one even with the request.
        """
        if not self._is_for_all(request):
            return None if self.is_main else MAIN
        loads = self._loads
        mine = loads[self.number] - 1
        if mine < 1:  # nearly always: this request is the only work here
            return None
        present = [(loads[other], other) for other in self._others if loads[other] != ABSENT]
        least, target = min(present, default=(mine, MAIN))
        return target if least < mine else None

    def hand_off(self, request: Request, target: int, sock: socket.socket, client: str, received: bytes) -> bool:
        """Send a connection to target(request). Returns False if that process is busy and this one may answer.

        client: its address; received: all bytes from the start of the request. Raises ConnectionAbortedError if only the main
        process may answer, and its queue stays full.
        """
        is_needed = not self._is_for_all(request)
        if self._put(target, (client.encode(), b"\n", received), MAX_WAIT_S if is_needed else 0.0, sock):
            return True
        if is_needed:
            raise ConnectionAbortedError("the main process takes no more connections")
        return False

    def give_back(self, sock: socket.socket, client: str, received: bytes) -> bool:
        """Send a connection with at most the start of a request to the main process. Returns False if its queue is full."""
        return self._put(MAIN, (client.encode(), b"\n", received), 0.0, sock)

    def send_to_all(self, message: bytes) -> None:
        """Send a message to the other processes, except absent ones and ones whose queue is full."""
        for other in self._others:
            if self._loads[other] != ABSENT:
                self.send(other, message, 0.0)

    def send(self, number: int, message: bytes, max_wait_s: float) -> bool:
        """Send a message, waiting while the queue is full. Returns False if it was not sent."""
        return len(message) <= MAX_RECEIVED and self._put(number, (b"\n", message), max_wait_s)

    def _put(self, number: int, parts: Sequence[bytes], max_wait_s: float, sock: socket.socket | None = None) -> bool:
        incoming = self._handoff_queues[number]
        descriptors = [] if sock is None else [sock.fileno()]
        while True:
            try:
                socket.send_fds(incoming, parts, descriptors)
                return True
            except BlockingIOError:
                if not max_wait_s or not wait(incoming, WRITABLE, max_wait_s):
                    return False
            except OSError:  # too many descriptors under way, or the process has died
                return False


class Receiver(Protocol):
    """The part of svcd.http.server.Server that a HandoffQueue uses."""

    on_message: Callable[[bytes], None]

    def receive(self, sock: socket.socket, client: str, received: bytes) -> None:
        """Continue a connection that another process has accepted."""


class HandoffQueue:
    """The incoming queue in the poller; receives connections and messages when it is readable."""

    deadline = float("inf")

    def __init__(self, sock: socket.socket, receiver: Receiver) -> None:
        self.sock = sock
        self._receiver = receiver

    def fileno(self) -> int:
        return self.sock.fileno()

    def handle(self) -> int:
        """Receive the messages that have arrived. Returns READABLE to be registered again, 0 if all senders have closed."""
        for _ in range(RECEIVED_PER_TURN):
            try:
                message, descriptors, _, _ = socket.recv_fds(self.sock, MAX_RECEIVED + MAX_CLIENT, 1, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                break
            if not message:
                return 0
            client, _, received = message.partition(b"\n")
            if not client:
                self._receiver.on_message(received)
            for descriptor in descriptors:  # none if this process is out of descriptors: the client is disconnected
                self._receiver.receive(socket.socket(fileno=descriptor), client.decode(), received)
        return READABLE

    def drain(self) -> None:
        """Receive the connections that were sent before this process stopped taking more."""
        while wait(self.sock, READABLE, 0) and self.handle():
            pass


# Relays of TLS connections


class Relay:
    """One TLS connection and one end of a socket pair. Used by one thread."""

    def __init__(self, transport: Transport, near_end: socket.socket, stall_s: float) -> None:
        """stall_s: seconds for which the client may take nothing after the process has ended its side."""
        self.transport = transport
        self._stall_s = stall_s
        self.near_end = near_end
        near_end.setblocking(False)
        self._to_client = self._to_process = _NOTHING
        self._receive_needs, self._send_needs = READABLE, WRITABLE  # the event that the last call without result needs
        self._client_has_ended = self._process_has_ended = False
        self._has_answered = False  # the last bytes came from the process
        self.moved_at = time.monotonic()

    def pump(self) -> bool:
        """Move bytes both ways; return whether more may be ready. Raises OSError when the client has left."""
        for _ in range(_TURNS):
            if not (self._move_in() | self._move_out()):
                return False
        return True

    @property
    def is_over(self) -> bool:
        """Whether the process has ended its side and the client has got all of it."""
        return self._process_has_ended and not self._to_client

    def is_idle(self, now: float) -> bool:
        """Return whether the last response was sent a while ago, and no new request has begun."""
        return self._has_answered and not self._to_client and now >= self.moved_at + _IDLE_S

    def is_stuck(self, now: float) -> bool:
        """Return whether the process has ended its side, and the client does not take the rest."""
        return self._process_has_ended and now >= self.moved_at + self._stall_s

    def client_events(self) -> int:
        """Return the events of the client's connection to wait for; 0 for none."""
        reading = self._receive_needs if not self._to_process and not self._client_has_ended else 0
        return reading | (self._send_needs if self._to_client else 0)

    def process_events(self) -> int:
        """Return the events of the near end to wait for; 0 for none."""
        reading = READABLE if not self._to_client and not self._process_has_ended else 0
        return reading | (WRITABLE if self._to_process else 0)

    def close(self) -> None:
        """Close both sides."""
        self.near_end.close()
        self.transport.sock.close()

    def _move_in(self) -> bool:
        """Move bytes from the client to the process; return whether any moved."""
        has_moved = False
        if not self._to_process and not self._client_has_ended:
            received = self.transport.receive(PIECE)
            if received is None:
                self._receive_needs = self.transport.blocked_on
            else:
                self._to_process = memoryview(received)
                self._client_has_ended = not received
                self._note_move(has_answered=False)
                has_moved = True
        if has_moved and self._client_has_ended:
            with suppress(OSError):  # the process has closed its end
                self.near_end.shutdown(socket.SHUT_WR)
        if self._to_process:
            try:
                sent = self.near_end.send(self._to_process)
            except BlockingIOError:
                return has_moved
            except OSError:  # the process has closed its end: its last answer may be on the way
                sent, self._client_has_ended = len(self._to_process), True
            self._to_process = self._to_process[sent:]
            return True
        return has_moved

    def _move_out(self) -> bool:
        """Move bytes from the process to the client; return whether any moved."""
        has_moved = False
        if not self._to_client and not self._process_has_ended:
            try:
                received = self.near_end.recv(PIECE)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                received = b""
            self._to_client = memoryview(received)
            self._process_has_ended = not received
            self._note_move(has_answered=True)
            has_moved = True
        if self._to_client:
            sent = self.transport.send(self._to_client)
            if sent:
                self._to_client = self._to_client[sent:]
                self._note_move(has_answered=True)
                return True
            self._send_needs = self.transport.blocked_on
        return has_moved

    def _note_move(self, *, has_answered: bool) -> None:
        self._has_answered, self.moved_at = has_answered, time.monotonic()


class RelayThread:
    """All relays of the main process, and the thread that works on them. Linux only.

    on_end: called when a relay has ended, because the server may have room for more connections.
    """

    def __init__(self, limits: Limits, on_end: Callable[[], None]) -> None:
        self._limits = limits
        self._on_end = on_end
        self._epoll = select.epoll()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wakeup, READABLE)
        self._lock = threading.Lock()  # guards _thread, _new and _is_closed
        self._thread: threading.Thread | None = None
        self._new: list[Relay] = []
        self._is_closed = False
        self._must_evict = False
        # Used by the thread only:
        self._relays: set[Relay] = set()
        self._by_descriptor: dict[int, Relay] = {}
        self._armed: dict[int, int] = {}  # descriptor: events

    @property
    def count(self) -> int:
        """Number of relays."""
        return len(self._relays) + len(self._new)

    def add(self, transport: Transport, near_end: socket.socket) -> None:
        """Start a relay; it owns both sockets."""
        relay = Relay(transport, near_end, self._limits.write_stall_s)
        with self._lock:
            if self._is_closed:
                relay.close()
                return
            self._new.append(relay)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="http-relay", daemon=True)
                self._thread.start()
        os.eventfd_write(self._wakeup, 1)

    def evict(self) -> bool:
        """Have the thread close the relay that was idle longest. Returns False: the room comes only later."""
        if self._relays:
            self._must_evict = True
            os.eventfd_write(self._wakeup, 1)
        return False

    def close(self, max_wait_s: float) -> None:
        """Cut all relays and end the thread."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            os.eventfd_write(self._wakeup, 1)
            thread.join(max_wait_s)
            if thread.is_alive():
                return
        self._epoll.close()
        os.close(self._wakeup)

    def _work(self) -> None:
        more: set[Relay] = set()  # relays whose turn was over before they had moved everything
        while not self._is_closed:
            events = self._epoll.poll((0.0 if more else 1.0) if self._relays else None)
            if any(descriptor == self._wakeup for descriptor, _ in events):
                os.eventfd_read(self._wakeup)
            ready = {self._by_descriptor.get(descriptor) for descriptor, _ in events}
            turn = [relay for relay in {*ready, *more, *self._take_new()} if relay is not None and relay in self._relays]
            more = {relay for relay in turn if self._pump(relay)}
            now = time.monotonic()
            for relay in [relay for relay in self._relays if relay.is_stuck(now)]:
                self._end(relay)
            if self._must_evict:
                self._must_evict = False
                if idle := [relay for relay in self._relays if relay.is_idle(now)]:
                    self._end(min(idle, key=lambda relay: relay.moved_at))
        for relay in [*self._relays, *self._take_new()]:
            relay.close()

    def _take_new(self) -> list[Relay]:
        with self._lock:
            new, self._new = self._new, []
            self._relays.update(new)
        for relay in new:
            self._by_descriptor[relay.near_end.fileno()] = self._by_descriptor[relay.transport.sock.fileno()] = relay
        return new

    def _pump(self, relay: Relay) -> bool:
        """Let a relay move bytes; return whether it needs another turn without waiting for an event."""
        try:
            has_more = relay.pump()
            has_ended = relay.is_over
        except OSError:  # the client has left
            has_more, has_ended = False, True
        if has_ended:
            self._end(relay)
            return False
        self._arm(relay.transport.sock.fileno(), relay.client_events())
        self._arm(relay.near_end.fileno(), relay.process_events())
        return has_more

    def _arm(self, descriptor: int, events: int) -> None:
        """Wait for these events. Unregisters for 0: epoll would otherwise report the end of the other side repeatedly."""
        before = self._armed.get(descriptor, 0)
        if events == before:
            return
        if not events:
            self._epoll.unregister(descriptor)
        elif before:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
        self._armed[descriptor] = events

    def _end(self, relay: Relay) -> None:
        for descriptor in (relay.transport.sock.fileno(), relay.near_end.fileno()):
            self._arm(descriptor, 0)
            self._armed.pop(descriptor, None)
            self._by_descriptor.pop(descriptor, None)
        self._relays.discard(relay)
        relay.close()
        self._on_end()
