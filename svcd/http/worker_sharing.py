"""Several processes that answer on one port: who is at work, and how a connection changes hands.

DESIGN
- The listening sockets are the same in all of them, and each accepts. All are told of a new client, and the first
  to come gets it: one whose interpreter is free. (EPOLLEXCLUSIVE would tell a single one, which may be the one that
  computes: a client would then wait for its interpreter while another process sleeps.)
- Once the head of a request is read, its connection may go to another process, with the bytes that have arrived:
  what only the main process answers goes there and stays there; what every process answers goes from one that has
  more at work to one that has less. So it does not matter who accepted a client that keeps its connection, nor that
  such a client mixes searches and writes.
- Who answers a request has its connection to itself, as after an accept: nothing is proxied.
- The board is memory that all share: a number each, written by its own process, or by the main one for a process
  that has died. A number that is read too late costs a detour, not an answer.

Knows processes by their numbers, descriptors and bytes; refuses to know what a request means and who starts whom.
"""
from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from svcd.http.message import PIECE
from svcd.http.request_head import MAX_HEAD
from svcd.http.sockets import READABLE, WRITABLE, wait

if TYPE_CHECKING:
    from svcd.http.message import Request
    from svcd.http.server import Server

MAIN = 0  # the process that answers everything
ABSENT = -1  # on the board: takes nothing now
ENTRY_BYTES = 8  # bytes of a number on the board
# A head that was nearly complete, and the piece that completed it.
MAX_RECEIVED = MAX_HEAD + PIECE
# How long a process that only the main one can relieve waits for room in its tray.
MAX_WAIT_S = 10.0
RECEIVED_PER_TURN = 64


class LoadTable:
    """How many connections each process works on, or ABSENT."""

    def __init__(self, descriptor: int) -> None:
        """descriptor: of the memory, as new_board() or another process has made it."""
        self.loads = memoryview(mmap.mmap(descriptor, 0)).cast("q")


def new_load_table(processes: int) -> int:
    """The descriptor of memory for a Board on which all are absent. Linux only."""
    descriptor = os.memfd_create("svcd-board")
    os.write(descriptor, ABSENT.to_bytes(ENTRY_BYTES, "little", signed=True) * processes)
    return descriptor


def new_handoff_queue() -> tuple[socket.socket, socket.socket]:
    """Where a process takes connections out, and where all others put them in."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_RECEIVED)
    return ends


class PeerProcesses:
    """One process' part in answering."""

    def __init__(self, number: int, load_table: LoadTable, incoming: socket.socket, outgoing: Sequence[socket.socket],
                 is_for_all: Callable[[Request], bool]) -> None:
        """number: its own. tray: to take out of; trays: to put into, by number.

        is_for_all: every process can answer the request; the main process answers all.
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

    def note(self, at_work: int) -> None:
        """So many connections are worked on in this process; ABSENT: it takes nothing more."""
        self._loads[self.number] = at_work

    def mark_absent(self, number: int) -> None:
        """Another process has died: it takes nothing until it notes something itself."""
        self._loads[number] = ABSENT

    def hand_off(self, request: Request, sock: socket.socket, received: bytes) -> bool:
        """Give the connection to who should answer; False when that is this process.

        received: from the first byte of the request. Raises ConnectionAbortedError when it is the main process, and
        that does not take it.
        """
        if self._is_for_all(request):
            target = self._least_loaded()
            return target is not None and self._put(target, sock, received, 0.0)
        if self.is_main:
            return False
        if not self._put(MAIN, sock, received, MAX_WAIT_S):
            raise ConnectionAbortedError("the main process takes no more connections")
        return True

    def _least_loaded(self) -> int | None:
        """The process with the least work, if it has less even after taking some of ours."""
        loads = self._loads
        mine = loads[self.number] - 1
        if mine < 1:  # this request is the only work here: so it is nearly always
            return None
        present = [(loads[other], other) for other in self._others if loads[other] != ABSENT]
        least, target = min(present, default=(mine, MAIN))
        return target if least < mine else None

    def _put(self, number: int, sock: socket.socket, received: bytes, max_wait_s: float) -> bool:
        incoming = self._handoff_queues[number]
        while True:
            try:
                socket.send_fds(incoming, [received], [sock.fileno()])
                return True
            except BlockingIOError:
                if not max_wait_s or not wait(incoming, WRITABLE, max_wait_s):
                    return False
            except OSError:  # too many on their way, or nobody there
                return False


class HandoffQueue:
    """Connections from other processes, as a guest of the parking; its turn is to take them."""

    deadline = float("inf")

    def __init__(self, sock: socket.socket, server: Server) -> None:
        self.sock = sock
        self._server = server

    def fileno(self) -> int:
        return self.sock.fileno()

    def handle(self) -> int:
        """Take what is here; READABLE to be parked again, 0 when nobody is left who could put something in."""
        for _ in range(RECEIVED_PER_TURN):
            try:
                received, descriptors, _, _ = socket.recv_fds(self.sock, MAX_RECEIVED, 1, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                break
            if not received:
                return 0
            for descriptor in descriptors:  # none when this process has too many already: the client is cut off
                self._server.receive(socket.socket(fileno=descriptor), received)
        return READABLE

    def drain(self) -> None:
        """Who puts something in now comes too late: take the rest."""
        while wait(self.sock, READABLE, 0) and self.handle():
            pass
