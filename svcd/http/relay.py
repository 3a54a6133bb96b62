"""Relays between TLS connections and the processes that answer their requests (docs/http.md#worker-processes).

The main process decrypts and encrypts. Each relay has a socket pair; the process that answers holds the other end, which
looks to it like a client without TLS. That process applies the time-outs: the relay ends when it closes its end, and it
notices when the client ends its side.

Threads: "http-relay" moves all bytes; it starts with the first relay and ends with the server. `_lock` guards the start and
the relays that other threads add.
"""
from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from svcd.http.message import PIECE
from svcd.http.sockets import READABLE, WRITABLE, Limits, Transport

_NOTHING = memoryview(b"")
# Pieces moved for one relay before others get their turn.
_TURNS = 8
# A relay may be closed for a new client when the last bytes were a response, and are at least this old.
_IDLE_S = 1.0


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
