"""Hands connections between processes that answer on one port, according to their load (docs/http.md#worker-processes).

- The listening sockets are the same in all processes, and each accepts. A new client wakes all processes, and the first one
  gets it: one whose interpreter is free. (EPOLLEXCLUSIVE would wake a single process, which may be busy computing.)
- After reading the head of a request, a process may send the connection, with the bytes that have arrived, to another process:
  a request that only the main process answers goes there and stays there; any other goes to the least loaded process.
- With TLS only the main process accepts. It hands over one end of a pair of sockets, and relays the decrypted bytes to the
  other end (svcd.http.relay). Without TLS nothing is proxied.
- Processes can also send each other messages, which arrive in order with the connections.
- The load table is shared memory with one integer per process, written by that process, or by the main one for a process
  that has died. A stale entry costs a detour, never a response.
"""
from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from svcd.http.framing import MAX_HEAD
from svcd.http.message import PIECE, Request
from svcd.http.sockets import READABLE, WRITABLE, wait

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


class LoadTable:
    """The load of each process. loads: connections at work, or ABSENT, by number of the process."""

    def __init__(self, descriptor: int) -> None:
        """descriptor: of the shared memory, from new_load_table()."""
        self.loads = memoryview(mmap.mmap(descriptor, 0)).cast("q")


def new_load_table(processes: int) -> int:
    """Return the descriptor of shared memory for a LoadTable in which all processes are absent. Linux only."""
    descriptor = os.memfd_create("svcd-load-table")
    os.write(descriptor, ABSENT.to_bytes(ENTRY_BYTES, "little", signed=True) * processes)
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
        """Receive what has arrived. Returns READABLE to be registered again, 0 if all senders have closed their ends."""
        for _ in range(RECEIVED_PER_TURN):
            try:
                message, descriptors, _, _ = socket.recv_fds(
                    self.sock, MAX_RECEIVED + MAX_CLIENT, 1, socket.MSG_CMSG_CLOEXEC)
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
