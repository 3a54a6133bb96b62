"""Requests, responses, and their headers and bodies, as the rest of svcd sees them; HttpError.

Values of headers are Latin-1 text, one character per byte, and only space and tab are blank (RFC 9110 5.6.3). Python's
strip() and split() also remove U+0085 and U+00A0: svcd would then see a different request than a proxy in front of it, which
is how request smuggling works.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from socket import socket
from typing import Protocol
from urllib.parse import unquote

from svcd.base.errors import ApiError
from svcd.base.quantities import message_size
from svcd.http import content_coding
from svcd.http.sockets import wait_or_hangup

# Bytes of a piece of a body: large enough that the cost per piece is negligible, small enough to hold one per request.
PIECE = 65536
# Bytes of a portion of a large response: svcd holds up to three copies of a portion for each slow client.
PORTION = 32768

# A body that is read whole has its first FREE_BODY bytes for free, and takes more from BodyMemory in steps of MEMORY_STEP bytes.
FREE_BODY, MEMORY_STEP = 65536, 1 << 20
RETRY_AFTER_S = 10
# A body is a bomb if it unpacks to more than MAX_RATIO times its size and MIN_BOMB bytes. Documents unpack to 5 to 30 times.
MAX_RATIO, MIN_BOMB = 100, 2 << 20

INCOMPLETE = "The provided payload is incomplete and cannot be parsed"
_BLANKS = " \t"


class HttpError(ApiError):
    """A violation of HTTP: code `bad_request` with the status that HTTP prescribes."""

    def __init__(self, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__("bad_request", message, headers)
        self.status = status


class Headers:
    """The headers of a request; names in any case. Values of a repeated header are joined with `, `.

    Values are decoded as Latin-1, so that no byte is lost: `value.encode("latin-1")` gives them back.
    """

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, str]) -> None:
        """values: by name in lower case."""
        self._values = values

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the value of a header, or the default."""
        return self._values.get(name.lower(), default)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def items(self) -> Iterable[tuple[str, str]]:
        """Return the pairs (name in lower case, value) in the order of their first appearance."""
        return self._values.items()


def trimmed(text: str) -> str:
    """Return a value, an element or a parameter without the spaces and tabs around it."""
    return text.strip(_BLANKS)


def elements(value: str) -> list[str]:
    """Return the elements of a case-insensitive comma list, such as Connection, in lower case and in order."""
    return [trimmed(element) for element in value.lower().split(",")]


def media_type(value: str) -> str:
    """Return the `type/subtype` of a Content-Type in lower case, without its parameters (RFC 9110 8.3.1)."""
    return trimmed(value.partition(";")[0]).lower()


class WireBody(Protocol):
    """The bytes of a body as they came over the wire, framing removed (see svcd.http.framing)."""

    @property
    def length(self) -> int | None:
        """The announced length in bytes; None when it is not known before the end."""

    def __iter__(self) -> Iterator[bytes]: ...


class Descriptor(Protocol):
    """Anything with a file descriptor to wait for."""

    def fileno(self) -> int: ...


class NoBody:
    """The empty body of a request without one."""

    length = 0

    def __iter__(self) -> Iterator[bytes]:
        return iter(())


class BodyMemory:
    """The memory of a server for all bodies that it holds whole. most: bytes in total; taken: bytes in use.

    Without it each client that sends nearly all of a large body, and then waits, would hold the memory of a largest body.
    noun: the name of the bodies in the error message.
    """

    def __init__(self, most: int, noun: str = "large bodies") -> None:
        self._most = most
        self._noun = noun
        self.taken = 0
        self._lock = threading.Lock()  # guards taken

    def take(self, size: int) -> None:
        """Take `size` bytes, which release() must give back. Raises HttpError 503 when fewer are left."""
        with self._lock:
            if self.taken + size > self._most:
                raise HttpError(503, f"Other requests take all of the memory that there is for {self._noun}: try again later.",
                                (("Retry-After", str(RETRY_AFTER_S)),))
            self.taken += size

    def release(self, size: int) -> None:
        """Give back `size` bytes."""
        with self._lock:
            self.taken -= size


class Body:
    """The body of a request: read once, as a stream or whole, with its content codings removed.

    Reading raises `payload_too_large` when the bytes on the wire or the unpacked bytes exceed the limit, `bad_request` when the
    body ends too early or its compressed data is broken, `unsupported_media_type` for an unknown coding.
    """

    __slots__ = ("_wire", "_encoding", "_limit", "_memory", "_taken")

    def __init__(self, wire: WireBody, encoding: str | None = None, limit: int = 1 << 62,
                 memory: BodyMemory | None = None) -> None:
        """encoding: the Content-Encoding header; limit: in bytes. memory: read() takes from it, release() gives it back."""
        self._wire = wire
        self._encoding = encoding
        self._limit = limit
        self._memory = memory
        self._taken = 0  # bytes of memory

    def chunks(self, size: int = PIECE) -> Iterator[bytes]:
        """Yield pieces of 1 to `size` bytes; reads each from the client on demand."""
        for piece in self._unpacked():
            if len(piece) <= size:
                yield piece
                continue
            for start in range(0, len(piece), size):
                yield piece[start:start + size]

    def read(self) -> bytes:
        """Return the whole body. Also raises HttpError 503 when `memory` has no room left for it."""
        whole = BytesIO()  # one growing block is returned to the system at once; many pieces would fragment the heap
        for piece in self._unpacked(refuses_bombs=True):
            while self._memory and whole.tell() + len(piece) > FREE_BODY + self._taken:
                self._memory.take(MEMORY_STEP)
                self._taken += MEMORY_STEP
            whole.write(piece)
        return whole.getvalue()

    def release(self) -> None:
        """Give back the memory of read(), when nobody needs its result any longer."""
        if self._memory and self._taken:
            self._memory.release(self._taken)
            self._taken = 0

    def _unpacked(self, refuses_bombs: bool = False) -> Iterator[bytes]:
        """Yield unpacked pieces. refuses_bombs: for bodies held in memory; others are written to disk up to the limit."""
        if (self._wire.length or 0) > self._limit:
            raise _too_large(self._limit)
        wire = _Counted(self._wire)
        pieces = _limited(wire, self._limit)
        for name in reversed(content_codings(self._encoding)):
            # The limits hold for each stage: the one in the middle may be the decompression bomb.
            pieces = _limited(content_coding.UNPACKERS[name](pieces), self._limit, wire if refuses_bombs else None)
        return pieces


def content_codings(encoding: str | None) -> list[str]:
    """Return the codings of a Content-Encoding header in the order they were applied, without identity."""
    if not encoding:
        return []
    names = [name for name in elements(encoding) if name not in ("", "identity")]
    unknown = [name for name in names if name not in content_coding.UNPACKERS or not content_coding.is_available(name)]
    if unknown or len(names) > content_coding.MAX_CODINGS:
        known = list(filter(content_coding.is_available, content_coding.PACKERS))
        expected = ", ".join(f"`{name}`" for name in (*known, "identity"))
        raise ApiError("unsupported_media_type", f"The content encoding `{(unknown or [encoding])[0]}` is not supported: "
                       f"expected at most {content_coding.MAX_CODINGS} of {expected}.", (("Accept-Encoding", ", ".join(known)),))
    return names


def _too_large(limit: int) -> ApiError:
    return ApiError("payload_too_large",
                    f"The provided payload reached the size limit. The maximum accepted payload size is {message_size(limit)}.")


def _limited(pieces: Iterable[bytes], limit: int, wire: _Counted | None = None) -> Iterator[bytes]:
    """Yield the pieces. Raises payload_too_large once they exceed `limit` bytes together, and `bad_request` for broken data.

    wire: the packed body; raises payload_too_large, too, once it has unpacked to MAX_RATIO times its bytes.
    """
    total = 0
    try:
        for piece in pieces:
            total += len(piece)
            if total > limit:
                raise _too_large(limit)
            if wire is not None and total > MIN_BOMB and total > MAX_RATIO * wire.size:
                raise ApiError("payload_too_large", f"The provided payload unpacks to more than {MAX_RATIO} times its size. Send "
                                                    "it without compression.")
            yield piece
    except content_coding.BrokenCoding as broken:
        raise HttpError(400, INCOMPLETE) from broken


class _Counted:
    """Pieces on the wire. size: bytes that have come."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size += len(piece)
            yield piece


class Request:
    """A request with a complete, checked head; its body is read on demand.

    method: for routes (GET also for HEAD); verb: as sent by the client.
    path, query: as sent, percent-encoded; query without its `?`. client: the address of the client.
    """

    __slots__ = ("method", "verb", "path", "query", "headers", "body", "client", "_sock", "_segments")

    def __init__(self, verb: str, path: str, query: str, headers: Headers, body: Body, client: str,
                 sock: socket | None = None) -> None:
        """sock: the connection, to notice that the client has left."""
        self.verb = verb
        self.method = "GET" if verb == "HEAD" else verb
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.client = client
        self._sock = sock
        self._segments: tuple[str, ...] | None = None

    def wait(self, wakeup: Descriptor, seconds: float) -> bool:
        """Wait until a descriptor is readable or the time is over. Returns False if the client left before that."""
        return wait_or_hangup(self._sock, wakeup.fileno(), seconds)

    @property
    def segments(self) -> tuple[str, ...]:
        """The non-empty parts of the path, percent-decoded after the split."""
        if self._segments is None:
            parts = [part for part in self.path.split("/") if part]
            if "%" in self.path or not self.path.isascii():
                # The head was decoded as Latin-1; clients send unescaped characters as UTF-8.
                parts = [unquote(part.encode("latin-1")) for part in parts]
            self._segments = tuple(parts)
        return self._segments


class Portions:
    """A large body as an iterator of pieces; next() generates a piece and never blocks.

    A single thread can therefore generate all responses, each piece when the client has taken the previous one. Any thread may
    request a piece, one thread at a time. pieces: a generator of non-empty pieces of about PORTION bytes. at_end: called once,
    after the generator was closed, at the end or when the client has left.
    """

    __slots__ = ("_pieces", "_at_end")

    def __init__(self, pieces: Generator[bytes], at_end: Callable[[], object] = lambda: None) -> None:
        self._pieces = pieces
        self._at_end: Callable[[], object] | None = at_end

    def __iter__(self) -> Portions:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        """Stop the generator and call at_end."""
        at_end, self._at_end = self._at_end, None
        if at_end:
            try:
                self._pieces.close()
            finally:
                at_end()


@dataclass(slots=True)
class Response:
    """A response. body: bytes, Portions, or an iterator that may block, whose pieces are sent as they come.

    An empty first piece sends the head alone. The server calls the iterator's close() at its end, also if the client left.
    headers: sent in addition to the headers of HTTP itself.
    """

    status: int
    body: bytes | Portions | Iterator[bytes] = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
