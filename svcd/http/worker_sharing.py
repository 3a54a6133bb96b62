"""Hands connections between processes that answer on one port, according to their load (docs/http.md#worker-processes).

- The listening sockets are the same in all processes, and each accepts. All are woken by a new client, and the first one
  gets it: one whose interpreter is free. (EPOLLEXCLUSIVE would wake a single one, which may be busy computing.)
- Once the head of a request is read, its connection may go to another process, with the bytes that have arrived: a request
  that only the main process answers goes there and stays there; any other goes to the least loaded process.
- With TLS only the main process accepts. What it hands over is one end of a pair of sockets, to whose other end it relays
  the decrypted bytes (svcd.http.relay). Without TLS nothing is proxied.
- The load table is shared memory with one integer per process, written by that process, or by the main one for a process
  that has died. A stale entry costs a detour, never an answer.
"""
from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from svcd.http.framing import MAX_HEAD
from svcd.http.message import PIECE
from svcd.http.sockets import READABLE, WRITABLE, wait

if TYPE_CHECKING:
    from svcd.http.message import Request
    from svcd.http.server import Server

MAIN = 0  # number of the main process, which answers everything
ABSENT = -1  # entry of a process that takes nothing now
ENTRY_BYTES = 8  # of the load table
# The most that is received when a head is complete: nearly a whole head, and the piece that completed it.
MAX_RECEIVED = MAX_HEAD + PIECE
MAX_CLIENT = 64  # bytes of the address of a client, which stands before them in a message, and a line break
# How long a worker waits for room in the queue of the main process, which alone can answer the request.
MAX_WAIT_S = 10.0
RECEIVED_PER_TURN = 64


class LoadTable:
    """How many connections each process works on, or ABSENT: `loads`, by number of the process."""

    def __init__(self, descriptor: int) -> None:
        """descriptor: of the shared memory that new_load_table() has made."""
        self.loads = memoryview(mmap.mmap(descriptor, 0)).cast("q")


def new_load_table(processes: int) -> int:
    """The descriptor of shared memory for a LoadTable in which all are absent. Linux only."""
    descriptor = os.memfd_create("svcd-load-table")
    os.write(descriptor, ABSENT.to_bytes(ENTRY_BYTES, "little", signed=True) * processes)
    return descriptor


def new_handoff_queue() -> tuple[socket.socket, socket.socket]:
    """(where a process receives connections, where the others send them): a pair of sockets that carry descriptors."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_RECEIVED + MAX_CLIENT)
    return ends


class PeerProcesses:
    """The other processes, as one process sees them."""

    def __init__(self, number: int, load_table: LoadTable, incoming: socket.socket, outgoing: Sequence[socket.socket],
                 is_for_all: Callable[[Request], bool]) -> None:
        """number: of this process. incoming: its own queue; outgoing: the queues of all, by number.

        is_for_all: may any process answer the request? The main process answers all.
        """
        self.number = number
        self.incoming = incoming
        self._loads = load_table.loads
        self._handoff_queues = outgoing
        self._others = [other for other in range(len(outgoing)) if other != number]
        self._is_for_all = is_for_all

    @property
    def is_main(self) -> bool:
        """This is the main process."""
        return self.number == MAIN

    def publish_load(self, at_work: int) -> None:
        """Write the load of this process: connections at work, or ABSENT to take no more."""
        self._loads[self.number] = at_work

    def mark_absent(self, number: int) -> None:
        """Mark a process that has died; it takes nothing until it publishes a load itself."""
        self._loads[number] = ABSENT

    def is_absent(self, number: int) -> bool:
        """A process takes nothing now."""
        return self._loads[number] == ABSENT

    def others_at_work(self) -> int:
        """How many connections the other processes work on."""
        return sum(max(0, self._loads[other]) for other in self._others)

    def target(self, request: Request) -> int | None:
        """The process that should answer a request; None if that is this one."""
        if self._is_for_all(request):
            return self._least_loaded()
        return None if self.is_main else MAIN

    def hand_off(self, request: Request, target: int, sock: socket.socket, client: str, received: bytes) -> bool:
        """Send a connection to target(request); False if that is busy, and this process may answer.

        client: its address. received: all bytes from the start of the request. Raises ConnectionAbortedError if only the
        main process may answer, and its queue stays full.
        """
        is_needed = not self._is_for_all(request)
        if self._put(target, sock, client, received, MAX_WAIT_S if is_needed else 0.0):
            return True
        if is_needed:
            raise ConnectionAbortedError("the main process takes no more connections")
        return False

    def give_back(self, sock: socket.socket, client: str, received: bytes) -> bool:
        """Send a connection without a request, or with the start of one, to the main process; False if its queue is full."""
        return self._put(MAIN, sock, client, received, 0.0)

    def _least_loaded(self) -> int | None:
        """The least loaded process, if it stays below this one even after taking the request; else None."""
        loads = self._loads
        mine = loads[self.number] - 1
        if mine < 1:  # nearly always: this request is the only work here
            return None
        present = [(loads[other], other) for other in self._others if loads[other] != ABSENT]
        least, target = min(present, default=(mine, MAIN))
        return target if least < mine else None

    def _put(self, number: int, sock: socket.socket, client: str, received: bytes, max_wait_s: float) -> bool:
        incoming = self._handoff_queues[number]
        while True:
            try:
                socket.send_fds(incoming, [client.encode(), b"\n", received], [sock.fileno()])
                return True
            except BlockingIOError:
                if not max_wait_s or not wait(incoming, WRITABLE, max_wait_s):
                    return False
            except OSError:  # too many descriptors under way, or the process has died
                return False


class HandoffQueue:
    """The incoming queue in the poller; when it is readable, it receives connections."""

    deadline = float("inf")

    def __init__(self, sock: socket.socket, server: Server) -> None:
        self.sock = sock
        self._server = server

    def fileno(self) -> int:
        return self.sock.fileno()

    def handle(self) -> int:
        """Receive what is here; READABLE to be registered again, 0 if all senders are gone."""
        for _ in range(RECEIVED_PER_TURN):
            try:
                message, descriptors, _, _ = socket.recv_fds(
                    self.sock, MAX_RECEIVED + MAX_CLIENT, 1, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                break
            if not message:
                return 0
            client, _, received = message.partition(b"\n")
            for descriptor in descriptors:  # none if this process is out of descriptors: the client is disconnected
                self._server.receive(socket.socket(fileno=descriptor), client.decode(), received)
        return READABLE

    def drain(self) -> None:
        """Receive what was sent before this process stopped taking more."""
        while wait(self.sock, READABLE, 0) and self.handle():
            pass
