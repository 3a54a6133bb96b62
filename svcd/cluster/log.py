"""The interface of a replicated log: numbered entries, pieces of payloads beside them, and small records with revisions.

A log is kept by a service on several servers, of which a majority must be up. Each backend (rqlite, nats) satisfies `Log`.
"""
from __future__ import annotations

import re
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote

# Both leave room for headers below the largest message that a NATS server takes by default (1 MiB).
MOST_PIECE_BYTES = 960_000
MOST_ENTRY_BYTES = 960_000

# Where a server listens when its address names no port.
PORTS = {"rqlite": 4001, "nats": 4222}
_OPTIONS = {"rqlite": ("name",), "nats": ("name", "replicas")}
_TLS = "+tls"
_MOST_REPLICAS = 5
_NAME = "svcd"
_IDENTITY = re.compile(r"[A-Za-z0-9_-]+")
_PART = r"[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=-]+)*"
_KEY = re.compile(f"{_PART}(?:/{_PART})*")
_FORM = "it must look like rqlite://HOST:PORT,HOST:PORT,HOST:PORT or nats://HOST:PORT,HOST:PORT,HOST:PORT"


class Unavailable(Exception):
    """The log could not be used within the time limit: no majority, no answer. str(): the reason, without credentials.

    Whether an append or a compare_and_set took effect is then unknown; an append is safely repeated with the same identity.
    """


class Trimmed(Exception):
    """The entry after the one that was named has been forgotten. first: the lowest number that can still be read."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the log begins with entry {first}")
        self.first = first


class MissingPiece(Exception):
    """The log has no such piece: it was never put, or has been dropped."""

    def __init__(self, payload: str, place: int) -> None:
        super().__init__(f"piece {place} of payload {payload} is not in the log")
        self.payload = payload
        self.place = place


class Record(NamedTuple):
    """A small value under a key. revision: above 0, and another one after each change of this key."""

    value: bytes
    revision: int


class Log(Protocol):
    """A log on a majority of servers.

    Any thread may call. A call lasts at most the time limit given to open_log(), then raises Unavailable; each of several steps
    (trim, last, get_piece) may last as long. What a call returned has been written by a majority of the servers, and survives the
    loss of the others.
    """

    def append(self, identity: str, body: bytes) -> int:
        """Add an entry; its number: from 1, higher than that of all entries that were appended before, not always by one.

        An identity that has been appended already gives the first number again, and nothing is added. That holds until the entry
        is trimmed, and some time longer: rqlite for the next 10,000 entries, NATS for ten minutes. identity: letters, digits,
        `-`, `_`; body: at most MOST_ENTRY_BYTES; otherwise ValueError.
        """
        ...

    def read(self, after: int, most: int, wait_s: float) -> list[tuple[int, bytes]]:
        """At most `most` entries with numbers above `after`, ascending; waits up to wait_s for the first one.

        No entry will ever appear between those of the list, or between `after` and its first. The list may lack entries that
        were appended a moment ago. Raises Trimmed when entries above `after` have been forgotten.
        """
        ...

    def last(self) -> int:
        """Number of the last entry that has been appended, trimmed or not; 0 without one. Never stale."""
        ...

    def trim(self, upto: int) -> None:
        """Forget the entries with numbers up to `upto`; the last number is kept."""
        ...

    def put_piece(self, payload: str, place: int, piece: bytes) -> None:
        """Keep a piece of a payload, or replace it.

        payload: a name like an identity; place: from 0; piece: at most MOST_PIECE_BYTES; otherwise ValueError.
        """
        ...

    def get_piece(self, payload: str, place: int) -> bytes:
        """The piece. Raises MissingPiece."""
        ...

    def drop_pieces(self, payload: str) -> None:
        """Forget the pieces of a payload, if there are any."""
        ...

    def records(self, prefix: str) -> dict[str, Record]:
        """The records whose keys begin with `prefix`, by key: as the leader has them.

        A leader that is being replaced, or has just become it, may give older ones or none for a moment (NATS: for some
        seconds); compare_and_set() notices.
        """
        ...

    def compare_and_set(self, key: str, value: bytes | None, revision: int) -> int | None:
        """Replace the record of `key` if it has this revision; its new revision, or None when it has another one.

        revision 0: there must be no such record. value None: delete it; the revision returned is then of no use.
        key: parts of letters, digits, `-`, `_`, `=`, `.`, separated by `/`, dots only inside; otherwise ValueError.
        """
        ...

    def close(self) -> None:
        """End the connections. Calls under way raise Unavailable, later ones too."""
        ...


class Address(NamedTuple):
    """Where a log is: what `--cluster` names."""

    scheme: str  # a key of PORTS
    servers: tuple[tuple[str, int], ...]
    user: str | None = None
    password: str | None = None
    token: str | None = None
    is_tls: bool = False
    name: str = _NAME  # of the log: several of them may be on the same servers
    replicas: int | None = None  # of NATS streams; None: as many as there are servers, up to 3

    def __str__(self) -> str:
        """The address without its credentials."""
        servers = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)
        return f"{self.scheme}{_TLS if self.is_tls else ''}://{servers}"


def parsed_address(text: str) -> Address:
    """The address in `SCHEME[+tls]://[USER:PASSWORD@|TOKEN@]HOST[:PORT],...[?name=NAME&replicas=N]`. Raises ValueError.

    USER, PASSWORD and TOKEN may be percent-encoded. An IPv6 host stands in brackets.
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
    options = _options(scheme, query)
    replicas = options.get("replicas")
    if replicas is not None and not (replicas.isascii() and replicas.isdigit() and 1 <= int(replicas) <= _MOST_REPLICAS):
        raise ValueError(f"`replicas` must be a number from 1 to {_MOST_REPLICAS}")
    name = options.get("name", _NAME)
    if not (name.isascii() and name.replace("_", "").isalnum()):
        raise ValueError("`name` must consist of letters, digits and underscores")
    return Address(
        scheme, servers,
        user=unquote(user) if colon else None, password=unquote(password) if colon else None,
        token=unquote(user) if user and not colon else None,
        is_tls=is_tls, name=name, replicas=int(replicas) if replicas else None)


def open_log(address: str, timeout_s: float) -> Log:
    """The log at an address, as parsed_address() reads it. Servers are called at the first use, not here.

    timeout_s: limit of each call; read() may wait wait_s longer.
    Raises ValueError: the address is wrong, or an extra is not installed.
    """
    parsed = parsed_address(address)
    # Imported late: each is only needed by those who use it, and one of them needs an extra.
    if parsed.scheme == "rqlite":
        from svcd.cluster.rqlite import RqliteLog

        return RqliteLog(parsed, timeout_s)
    try:
        from svcd.cluster.nats import NatsLog
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "nats":
            raise
        raise ValueError("a log in NATS needs an extra: pip install 'svcd[nats]'") from None
    return NatsLog(parsed, timeout_s)


def check_size(content: bytes, most: int) -> None:
    """Raise ValueError when content has more bytes than a backend takes."""
    if len(content) > most:
        raise ValueError(f"{len(content)} bytes, more than {most}")


def check_key(key: str) -> None:
    """Raise ValueError when this is no key of a record."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"`{key}` is not a key of a record")


def check_identity(identity: str) -> None:
    """Raise ValueError when this is no identity of an entry."""
    if not _IDENTITY.fullmatch(identity):
        raise ValueError(f"`{identity}` is not an identity of an entry")


def _server(text: str, port: int) -> tuple[str, int]:
    """Host and port of one server. Raises ValueError."""
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


def _options(scheme: str, query: str) -> dict[str, str]:
    """The options after the question mark. Raises ValueError."""
    options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
    for key in options:
        if key not in _OPTIONS[scheme]:
            raise ValueError(f"`{key}` is not an option of {scheme}: {', '.join(_OPTIONS[scheme])}")
    return options
