"""The interface of a replicated log: numbered entries, pieces of payloads beside them, and small records with revisions.

The address of a log, which `--cluster` names.

A service keeps a log on several servers; a majority of them must be up. Each backend (rqlite, nats) satisfies `Log`.
"""
from __future__ import annotations

import re
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote

# Both leave room for headers below the largest message that a NATS server takes by default (1 MiB).
MOST_PIECE_BYTES = 960_000
MOST_ENTRY_BYTES = 960_000

_IDENTITY = re.compile(r"[A-Za-z0-9_-]+")
_PART = r"[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=-]+)*"
_KEY = re.compile(f"{_PART}(?:/{_PART})*")

# The port of a server whose address names none.
PORTS = {"rqlite": 4001, "nats": 4222}
_OPTIONS = {"rqlite": ("name",), "nats": ("name", "replicas")}
_TLS = "+tls"
_MOST_REPLICAS = 5
_FORM = "it must look like rqlite://HOST:PORT,HOST:PORT,HOST:PORT or nats://HOST:PORT,HOST:PORT,HOST:PORT"


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
        self.payload, self.place = payload, place


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

    def read(self, after: int, most: int, wait_s: float) -> list[tuple[int, bytes]]:
        """Return at most `most` entries (number, body) above `after`, ascending; waits up to wait_s for the first one.

        No entry will ever appear between two entries of the list, or between `after` and its first. The list may lack entries
        that were appended a moment ago. Raises Trimmed when entries above `after` have been trimmed.
        """

    def last(self) -> int:
        """Return the number of the last appended entry, trimmed or not; 0 without an entry. Never stale."""

    def trim(self, upto: int) -> None:
        """Delete the entries with numbers up to `upto`; the log keeps the last number."""

    def put_piece(self, payload: str, place: int, piece: bytes) -> None:
        """Store a piece of a payload, or replace it.

        payload: a name like an identity; place: from 0; piece: at most MOST_PIECE_BYTES; otherwise ValueError.
        """

    def get_piece(self, payload: str, place: int) -> bytes:
        """Return a piece. Raises MissingPiece."""

    def drop_pieces(self, payload: str) -> None:
        """Delete the pieces of a payload, if it has any."""

    def records(self, prefix: str) -> dict[str, Record]:
        """Return the leader's records whose keys begin with `prefix`, by key.

        A server that is about to lose the lead, or has just taken it, may give older records or none for a moment (NATS: for some
        seconds); compare_and_set() notices.
        """

    def compare_and_set(self, key: str, value: bytes | None, revision: int) -> int | None:
        """Replace the record of `key` if it has this revision; return its new revision, or None if the revision differs.

        revision 0: the record must not exist. value None: delete it; the returned revision is then meaningless.
        key: parts of letters, digits, `-`, `_`, `=`, `.`, separated by `/`, dots only inside; otherwise ValueError.
        """

    def close(self) -> None:
        """Close the connections. Calls in progress raise Unavailable, and so do later calls."""


class Address(NamedTuple):
    """The address of a log, from parsed_address()."""

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


def parsed_address(text: str) -> Address:
    """Parse `SCHEME[+tls]://[USER:PASSWORD@|TOKEN@]HOST[:PORT],...[?name=NAME&replicas=N]`. Raises ValueError.

    USER, PASSWORD and TOKEN may be percent-encoded. An IPv6 host needs brackets.
    """
    scheme, separator, rest = text.partition("://")
    is_tls = scheme.endswith(_TLS)
    scheme = scheme.removesuffix(_TLS)
    if not separator or scheme not in PORTS:
        raise ValueError(_FORM)
    rest, _, query = rest.partition("?")
    credentials, _, hosts = rest.rpartition("@")
    servers = tuple(_server(each, PORTS[scheme]) for each in hosts.rstrip("/").split(","))
    if len(set(servers)) < len(servers):
        raise ValueError("a server is named twice")
    user, colon, password = credentials.partition(":")
    if user and not colon and scheme == "rqlite":
        raise ValueError("rqlite wants USER:PASSWORD before the @")
    options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
    for key in options:
        if key not in _OPTIONS[scheme]:
            raise ValueError(f"`{key}` is not an option of {scheme}: {', '.join(_OPTIONS[scheme])}")
    replicas = options.get("replicas")
    if replicas is not None and not (replicas.isascii() and replicas.isdigit() and 1 <= int(replicas) <= _MOST_REPLICAS):
        raise ValueError(f"`replicas` must be a number from 1 to {_MOST_REPLICAS}")
    name = options.get("name", "svcd")
    if not (name.isascii() and name.replace("_", "").isalnum()):
        raise ValueError("`name` must consist of letters, digits and underscores")
    return Address(
        scheme, servers, user=unquote(user) if colon else None, password=unquote(password) if colon else None,
        token=unquote(user) if user and not colon else None, is_tls=is_tls, name=name,
        replicas=int(replicas) if replicas else None)


def _server(text: str, port: int) -> tuple[str, int]:
    """Return host and port of a server. Raises ValueError."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        colon, number = rest[:1], rest[1:]
        is_right = bool(bracket) and (not rest or colon == ":")
    else:
        host, colon, number = text.partition(":")
        is_right = True
    if not is_right or not host or any(character in host for character in " /@?#"):
        raise ValueError(_FORM)
    if not colon:
        return host, port
    if not (number.isascii() and number.isdigit() and 0 < int(number) < 1 << 16):
        raise ValueError(f"`{number}` is not a port")
    return host, int(number)


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
