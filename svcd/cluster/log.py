"""The interface of a replicated log: numbered entries, pieces of payloads beside them, and small records with revisions.

A service keeps a log on several servers; a majority of them must be up. Each backend (rqlite, nats) satisfies `Log`.
"""
from __future__ import annotations

import re
from typing import NamedTuple, Protocol

# Both leave room for headers below the largest message that a NATS server takes by default (1 MiB).
MOST_PIECE_BYTES = 960_000
MOST_ENTRY_BYTES = 960_000

_IDENTITY = re.compile(r"[A-Za-z0-9_-]+")
_PART = r"[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=-]+)*"
_KEY = re.compile(f"{_PART}(?:/{_PART})*")


class Unavailable(Exception):
    """The log was not available within the time limit: no majority, no reply. str(): the reason, without credentials.

    An append or a compare_and_set may have taken effect or not; a caller may safely repeat an append with the same identity.
    """


class Trimmed(Exception):
    """The log has trimmed the next entry to read. first: the lowest number that can still be read."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the log begins with entry {first}")
        self.first = first


class MissingPiece(Exception):
    """The log does not have this piece: nobody put it, or it was dropped."""

    def __init__(self, payload: str, place: int) -> None:
        super().__init__(f"piece {place} of payload {payload} is not in the log")
        self.payload = payload
        self.place = place


class Record(NamedTuple):
    """A small value under a key. revision: above 0, different after each change of the key."""

    value: bytes
    revision: int


class Log(Protocol):
    """A log on a majority of servers.

    Any thread may call. A call lasts at most the time limit given to open_log(), then raises Unavailable; in a call with several
    steps (trim, last, get_piece) each may last as long. When a call returns, a majority of the servers has written its effect,
    which survives the loss of the other servers.
    """

    def append(self, identity: str, body: bytes) -> int:
        """Add an entry; return its number, which is at least 1 and above all earlier numbers, but may skip some.

        Appending an identity again adds nothing and returns the first number. That holds until the entry is trimmed, and longer:
        rqlite for the next 10,000 entries, NATS for ten minutes. identity: letters, digits, `-`, `_`; body: at most
        MOST_ENTRY_BYTES; otherwise ValueError.
        """
        ...

    def read(self, after: int, most: int, wait_s: float) -> list[tuple[int, bytes]]:
        """Return at most `most` entries (number, body) above `after`, ascending; waits up to wait_s for the first one.

        No entry will ever appear between two entries of the list, or between `after` and its first. The list may lack entries
        that were appended a moment ago. Raises Trimmed when entries above `after` have been trimmed.
        """
        ...

    def last(self) -> int:
        """Return the number of the last appended entry, trimmed or not; 0 without an entry. Never stale."""
        ...

    def trim(self, upto: int) -> None:
        """Delete the entries with numbers up to `upto`; the log keeps the last number."""
        ...

    def put_piece(self, payload: str, place: int, piece: bytes) -> None:
        """Store a piece of a payload, or replace it.

        payload: a name like an identity; place: from 0; piece: at most MOST_PIECE_BYTES; otherwise ValueError.
        """
        ...

    def get_piece(self, payload: str, place: int) -> bytes:
        """Return a piece. Raises MissingPiece."""
        ...

    def drop_pieces(self, payload: str) -> None:
        """Delete the pieces of a payload, if it has any."""
        ...

    def records(self, prefix: str) -> dict[str, Record]:
        """Return the leader's records whose keys begin with `prefix`, by key.

        A server that is about to lose the lead, or has just taken it, may give older records or none for a moment (NATS: for some
        seconds); compare_and_set() notices.
        """
        ...

    def compare_and_set(self, key: str, value: bytes | None, revision: int) -> int | None:
        """Replace the record of `key` if it has this revision; return its new revision, or None if the revision differs.

        revision 0: the record must not exist. value None: delete it; the returned revision is then meaningless.
        key: parts of letters, digits, `-`, `_`, `=`, `.`, separated by `/`, dots only inside; otherwise ValueError.
        """
        ...

    def close(self) -> None:
        """Close the connections. Calls in progress raise Unavailable, and so do later calls."""
        ...


class Address(NamedTuple):
    """The address of a log, which `--cluster` names; svcd.cluster.log_address parses it."""

    scheme: str  # rqlite or nats
    servers: tuple[tuple[str, int], ...]
    user: str | None = None
    password: str | None = None
    token: str | None = None
    is_tls: bool = False
    name: str = "svcd"  # of the log: the same servers may have several logs
    replicas: int | None = None  # of NATS streams; None: as many as there are servers, up to 3

    def __str__(self) -> str:
        """Return the address without its credentials."""
        servers = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)
        return f"{self.scheme}{'+tls' if self.is_tls else ''}://{servers}"


def check_size(content: bytes, most: int) -> None:
    """Raise ValueError if content has more than `most` bytes."""
    if len(content) > most:
        raise ValueError(f"{len(content)} bytes, more than {most}")


def check_key(key: str) -> None:
    """Raise ValueError if this is not a valid key of a record."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"`{key}` is not a key of a record")


def check_identity(identity: str) -> None:
    """Raise ValueError if this is not a valid identity of an entry."""
    if not _IDENTITY.fullmatch(identity):
        raise ValueError(f"`{identity}` is not an identity of an entry")
