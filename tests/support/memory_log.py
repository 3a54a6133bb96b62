"""A replicated log in memory, as several nodes of one test process share it, with its faults.

MemoryServers stands for the servers, MemoryLog for the connection of one node. See svcd.cluster.log for what each method promises.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from svcd.cluster.log import (
    MOST_ENTRY_BYTES,
    MOST_PIECE_BYTES,
    MissingPiece,
    Record,
    Trimmed,
    Unavailable,
    check_identity,
    check_key,
    check_size,
)


class MemoryServers:
    """The state of a log, and what goes wrong with it.

    has_majority: without, every call fails after its time limit. delay_s: each call takes so long before it takes effect.
    lost_answers: so many of the next appends and compare_and_sets take effect, and raise Unavailable nevertheless.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()  # guards all of this
        self.has_majority = True
        self.delay_s = 0.0
        self.lost_answers = 0
        self.entries: dict[int, bytes] = {}
        self.identities: dict[str, int] = {}
        self.last = 0
        self.trimmed = 0
        self.pieces: dict[tuple[str, int], bytes] = {}
        self.records: dict[str, Record] = {}
        self.revision = 0

    def set_majority(self, has_majority: bool) -> None:
        """Lose the majority of the servers, or get it back."""
        with self.changed:
            self.has_majority = has_majority
            self.changed.notify_all()

    def log(self, timeout_s: float = 1.0) -> MemoryLog:
        """The connection of one more node."""
        return MemoryLog(self, timeout_s)


class MemoryLog:
    """The connection of one node. is_cut_off: it reaches no server."""

    def __init__(self, servers: MemoryServers, timeout_s: float) -> None:
        self._servers = servers
        self._timeout_s = timeout_s
        self._is_closed = False
        self.is_cut_off = False

    def append(self, identity: str, body: bytes) -> int:
        check_identity(identity)
        check_size(body, MOST_ENTRY_BYTES)
        with self._reached() as servers:
            if identity not in servers.identities:
                servers.last += 1
                servers.identities[identity] = servers.last
                servers.entries[servers.last] = bytes(body)
                servers.changed.notify_all()
            self._answer()
            return servers.identities[identity]

    def read(self, after: int, most: int, wait_s: float) -> list[tuple[int, bytes]]:
        deadline = time.monotonic() + wait_s
        while True:
            with self._reached() as servers:
                if after < servers.trimmed:
                    raise Trimmed(servers.trimmed + 1)
                if servers.last > after:
                    numbers = range(after + 1, min(after + most, servers.last) + 1)
                    return [(number, servers.entries[number]) for number in numbers]
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return []
                servers.changed.wait(left_s)

    def last(self) -> int:
        with self._reached() as servers:
            return servers.last

    def trim(self, upto: int) -> None:
        with self._reached() as servers:
            servers.trimmed = max(servers.trimmed, min(upto, servers.last))
            servers.entries = {number: body for number, body in servers.entries.items() if number > servers.trimmed}

    def put_piece(self, payload: str, place: int, piece: bytes) -> None:
        check_identity(payload)
        check_size(piece, MOST_PIECE_BYTES)
        with self._reached() as servers:
            servers.pieces[payload, place] = bytes(piece)

    def get_piece(self, payload: str, place: int) -> bytes:
        with self._reached() as servers:
            if (payload, place) not in servers.pieces:
                raise MissingPiece(payload, place)
            return servers.pieces[payload, place]

    def drop_pieces(self, payload: str) -> None:
        with self._reached() as servers:
            servers.pieces = {key: piece for key, piece in servers.pieces.items() if key[0] != payload}

    def records(self, prefix: str) -> dict[str, Record]:
        with self._reached() as servers:
            return {key: record for key, record in sorted(servers.records.items()) if key.startswith(prefix)}

    def compare_and_set(self, key: str, value: bytes | None, revision: int) -> int | None:
        check_key(key)
        check_size(value or b"", MOST_ENTRY_BYTES)
        with self._reached() as servers:
            there = servers.records.get(key)
            if (there.revision if there else 0) != revision:
                return None
            servers.revision += 1
            if value is None:
                servers.records.pop(key, None)
            else:
                servers.records[key] = Record(bytes(value), servers.revision)
            self._answer()
            return servers.revision

    def close(self) -> None:
        with self._servers.changed:
            self._is_closed = True
            self._servers.changed.notify_all()

    @contextmanager
    def _reached(self) -> Iterator[MemoryServers]:
        """The servers, locked. Raises Unavailable after the time limit when they cannot be reached."""
        servers = self._servers
        if servers.delay_s:
            time.sleep(min(servers.delay_s, self._timeout_s))
            if servers.delay_s > self._timeout_s:
                raise Unavailable("no answer in time")
        with servers.changed:
            servers.changed.wait_for(lambda: self._is_closed or (servers.has_majority and not self.is_cut_off), self._timeout_s)
            if self._is_closed:
                raise Unavailable("the log has been closed")
            if self.is_cut_off or not servers.has_majority:
                raise Unavailable("no majority of the servers answers")
            yield servers

    def _answer(self) -> None:
        if self._servers.lost_answers:
            self._servers.lost_answers -= 1
            raise Unavailable("the answer was lost")
