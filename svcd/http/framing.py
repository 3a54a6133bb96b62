"""Requests on the wire: reads their heads, and removes the framing of their bodies (RFC 9112).

Takes the grammar literally: raises HttpError for everything that two readers could understand differently, because a proxy in
front may be the other reader (request smuggling). docs/http.md#malformed-requests lists the cases.
"""
from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from svcd.http.message import INCOMPLETE, PIECE, Headers, HttpError, elements, trimmed
from svcd.http.sockets import Limits, Transport, wait

# Other servers: nginx 8 kB per line, Apache 8 kB and 100 fields, hyper 400 kB and 100 fields. Filters and vectors
# come in the query string of GET /search, so the target may be longer here.
MAX_TARGET = 65536
MAX_LINE = 16384
MAX_HEAD = 131072
MAX_FIELDS = 100

CHUNKED = -1  # Head.length of a body in chunks
END = b"\r\n\r\n"

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
FIELD_VALUE = r"[^\x00-\x08\x0a-\x1f\x7f]"  # visible characters, space, tab, and bytes above ASCII (obs-text)

# Possessive quantifiers (`++`, `*+`): the pattern reads a hostile line once, without backtracking.
REQUEST_LINE = re.compile(rf"({TOKEN}{{1,32}}+) ([^\x00-\x20\x7f#]++) HTTP/1\.([01])")
FIELD_LINE = re.compile(rf"^({TOKEN}++):({FIELD_VALUE}*+)\r\n", re.MULTILINE)
ABSOLUTE_FORM = re.compile(r"https?://[^/?]+", re.IGNORECASE)
HOST = re.compile(r"[0-9A-Za-z._~!$&'()*+,;=:%\[\]-]*+")
LENGTH = re.compile(r"[0-9]{1,18}+", re.ASCII)
# The end of a head with bare LFs: the reader has to find it before it can reject the head.
SLOPPY_END = re.compile(rb"\n\r?\n")

# The reader drops chunk extensions and trailers. Clients do not use them, so the limits are low: Go allows 16 kB of extensions
# in a whole body, Apache one line of 8 kB for each chunk.
MAX_CHUNK_LINE = 4096
MAX_EXTENSIONS = 16384
MAX_TRAILER = 16384

# 15 hexadecimal digits: the number stays below 2^60.
CHUNK_LINE = re.compile(rf"([0-9A-Fa-f]{{1,15}}+)(?:[ \t]*+;({FIELD_VALUE}*+))?\r\n".encode("latin-1"))
TRAILER_LINE = re.compile(rf"{TOKEN}++:{FIELD_VALUE}*+\r\n".encode("latin-1"))
LAST_CHUNK = b"0\r\n\r\n"

# Headers that must not be repeated: two readers could use different values.
SINGLE = frozenset(("host", "content-length", "content-type", "authorization", "expect"))


# Heads


class Head(NamedTuple):
    """A head that all readers understand alike."""

    method: str
    path: str  # as sent, percent-encoded
    query: str  # as sent, without the `?`
    minor: int  # 0 or 1: the version is HTTP/1.minor
    headers: Headers
    length: int  # of the body in bytes, or CHUNKED
    keep_alive: bool  # the client would send another request on this connection
    awaits_continue: bool  # the client waits for `100 Continue` before it sends the body


def head_end(buffer: bytes | bytearray) -> int:
    """Return where the first head in the buffer ends (just after its empty line); -1 while it is incomplete.

    Raises HttpError (414, 431) as soon as the head is certainly too long.
    """
    end = buffer.find(END)
    if end >= 0:
        end += len(END)
    else:
        sloppy = SLOPPY_END.search(buffer)
        end = sloppy.end() if sloppy else -1
    size = len(buffer) if end < 0 else end
    if size > MAX_LINE:
        line_end = buffer.find(b"\n", 0, size)
        if line_end > MAX_TARGET or line_end < 0 and size > MAX_TARGET:
            raise _fault("TARGET_SIZE")
        if size > MAX_HEAD:
            raise _fault("HEAD_SIZE")
    return end


def read_head(raw: bytes) -> Head:
    """Read the head of a request, given its bytes up to and including the empty line. Raises HttpError."""
    line, _, fields = raw.decode("latin-1").partition("\r\n")
    request = REQUEST_LINE.fullmatch(line)
    if request is None:
        if "\n" in line or not fields:
            raise _fault("BARE_LF")
        if "\r" in line:
            raise _fault("BARE_CR")
        raise _fault(next((wrong for fault, wrong in REQUEST_LINE_FAULTS if re.fullmatch(fault, line)), "REQUEST_LINE"))
    headers = _headers(fields)
    method, target, minor = request[1], request[2], int(request[3])
    host = headers.get("host")
    if host is None:
        if minor:
            raise _fault("HOST_MISSING")
    elif not HOST.fullmatch(host):
        raise _fault("HOST_VALUE")
    path, _, query = _origin_form(method, target).partition("?")
    length = _body_length(headers, minor)
    keep_alive = minor == 1
    if "connection" in headers:
        options = elements(headers["connection"])
        keep_alive = "close" not in options and (keep_alive or "keep-alive" in options)
    # Other expectations are ignored: RFC 9110 10.1.1 lets a server choose, and some clients send `200-OK` with every request.
    # A client of HTTP/1.0 does not wait.
    awaits_continue = minor == 1 and length != 0 and headers.get("expect", "").lower() == "100-continue"
    return Head(method, path, query, minor, Headers(headers), length, keep_alive, awaits_continue)


def _headers(fields: str) -> dict[str, str]:
    """Return the values by name in lower case. fields: the lines after the first, with the empty one at the end."""
    pairs = FIELD_LINE.findall(fields)
    # Every match is one whole line: with as many matches as line ends, the pattern skipped no line.
    if len(pairs) != fields.count("\n") - 1 or not fields.endswith("\r\n"):
        raise _fault(next((wrong for fault, wrong in FIELD_FAULTS if re.search(fault, fields)), "FIELD"))
    if len(pairs) > MAX_FIELDS:
        raise _fault("FIELDS")
    headers: dict[str, str] = {}
    for name, value in pairs:
        name = name.lower()
        value = trimmed(value)
        if len(value) > MAX_LINE:
            raise _fault("LINE_SIZE")
        if name in headers:
            if name in SINGLE:
                raise HttpError(400, f"The request is ambiguous: it has more than one `{name}` header.")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


def _origin_form(method: str, target: str) -> str:
    """Return the target as `/path?query`, or `*` of an OPTIONS for the whole server."""
    if target[0] == "/":
        return target
    absolute = ABSOLUTE_FORM.match(target)
    if absolute:
        rest = target[absolute.end():]
        return rest if rest.startswith("/") else f"/{rest}"
    if target == "*" and method == "OPTIONS":
        return target
    raise _fault("TARGET_FORM")


def _body_length(headers: dict[str, str], minor: int) -> int:
    """Return the length of the body or CHUNKED, by RFC 9112 6.3 without its leniencies."""
    length = headers.get("content-length")
    coding = headers.get("transfer-encoding")
    if coding is None:
        if length is None:
            return 0
        if not LENGTH.fullmatch(length):
            raise _fault("LENGTH")
        return int(length)
    if length is not None:
        raise _fault("LENGTH_AND_CODING")
    if not minor:
        raise _fault("CODING_IN_1_0")
    names = elements(coding)
    if names == ["chunked"]:
        return CHUNKED
    raise _fault("CODING_ORDER" if names[-1] != "chunked" or names.count("chunked") > 1 else "CODING")


FAULTS: dict[str, tuple[int, str]] = {  # fault: (status, message)
    "TARGET_SIZE": (414, f"The request line is too long: at most {MAX_TARGET} bytes are read."),
    "LINE_SIZE": (431, f"A header is too long: at most {MAX_LINE} bytes are read."),
    "HEAD_SIZE": (431, f"The headers are too long: at most {MAX_HEAD} bytes are read."),
    "FIELDS": (431, f"There are too many headers: at most {MAX_FIELDS} are read."),
    "HTTP_2": (505, "HTTP/2 is not spoken here: expected HTTP/1.1."),
    "VERSION": (505, "The version of HTTP is not spoken here: expected HTTP/1.1."),
    "REQUEST_LINE": (400, "The request line is malformed: expected `METHOD /path HTTP/1.1`."),
    "TARGET": (400, "The target of the request has a character that must be percent-encoded."),
    "TARGET_FORM": (400, "The target of the request is malformed: expected a path that begins with `/`."),
    "BARE_LF": (400, "A line of the request head ends with LF alone: expected CR LF."),
    "BARE_CR": (400, "There is a CR without LF in the request head."),
    "FOLD": (400, "A header is continued on a second line: expected one line for each."),
    "CONTROL": (400, "There is a control character in a header."),
    "SPACE": (400, "There is a space between the name of a header and its colon."),
    "FIELD": (400, "A header is malformed: expected `name: value`."),
    "HOST_MISSING": (400, "The `Host` header is missing."),
    "HOST_VALUE": (400, "The `Host` header is malformed: expected `host` or `host:port`."),
    "LENGTH": (400, "The `Content-Length` header is malformed: expected a number in digits."),
    "LENGTH_AND_CODING": (400, "The request is ambiguous: it has both `Content-Length` and `Transfer-Encoding`."),
    "CODING": (501, "The transfer coding is not supported: expected `chunked`."),
    "CODING_ORDER": (400, "The transfer coding leaves the end of the body open: expected `chunked`."),
    "CODING_IN_1_0": (400, "HTTP/1.0 has no `Transfer-Encoding`: expected `Content-Length`."),
}

# Find the fault of a line that did not match; the first match wins. Used only for lines that are certainly wrong.
REQUEST_LINE_FAULTS = (
    (r"PRI \* HTTP/2\.0", "HTTP_2"),
    (rf"{TOKEN}{{1,32}}+ [^\x00-\x20\x7f#]++ HTTP/[0-9]\.[0-9]", "VERSION"),
    (rf"{TOKEN}{{1,32}}+ [^\r\n]*+(?<= HTTP/1\.[01])", "TARGET"),
)
FIELD_FAULTS = (
    (r"(?<!\r)\n", "BARE_LF"),
    (r"\r(?!\n)", "BARE_CR"),
    (r"(?m)^[ \t]", "FOLD"),
    (r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "CONTROL"),
    (rf"(?m)^{TOKEN}++[ \t]++:", "SPACE"),
)


def _fault(wrong: str) -> HttpError:
    return HttpError(*FAULTS[wrong])


# Bodies: announced lengths and chunks (RFC 9112 6 and 7)


class Wire(Protocol):
    """Bytes from the client. Raises HttpError when they end too early (400) or stop coming (408)."""

    def take(self, max_bytes: int) -> bytes:
        """Return 1 to `max_bytes` bytes."""

    def take_line(self, max_bytes: int) -> bytes:
        """Return the bytes up to and including LF, or `max_bytes` bytes without LF."""


class SizedBody:
    """A body of an announced length; iterates over its pieces."""

    __slots__ = ("_wire", "length", "remaining")

    def __init__(self, wire: Wire, length: int) -> None:
        self._wire = wire
        self.length: int | None = length
        self.remaining: int | None = length

    @property
    def is_over(self) -> bool:
        """Whether the whole body was read."""
        return not self.remaining

    def __iter__(self) -> Iterator[bytes]:
        while self.remaining:
            piece = self._wire.take(min(self.remaining, PIECE))
            self.remaining -= len(piece)
            yield piece


class ChunkedBody:
    """A body in chunks; iterates over pieces of their bytes. Raises HttpError (400, 431) for malformed chunks."""

    __slots__ = ("_wire", "_extensions", "length", "remaining", "is_over")

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._extensions = 0
        self.length: int | None = None
        self.remaining: int | None = None
        self.is_over = False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            line = CHUNK_LINE.fullmatch(self._wire.take_line(MAX_CHUNK_LINE))
            if line is None:
                raise HttpError(400, "The size of a chunk of the body is malformed: expected hexadecimal digits.")
            self._extensions += len(line[2] or b"")
            if self._extensions > MAX_EXTENSIONS:
                raise HttpError(400, f"There are too many chunk extensions: at most {MAX_EXTENSIONS} bytes are read.")
            size = int(line[1], 16)
            if not size:
                break
            while size:
                piece = self._wire.take(min(size, PIECE))
                size -= len(piece)
                yield piece
            if self._wire.take_line(2) != b"\r\n":
                raise HttpError(400, "A chunk of the body is longer than its size says.")
        trailer_bytes = 0
        while (trailer := self._wire.take_line(MAX_TRAILER)) != b"\r\n":
            trailer_bytes += len(trailer)
            if trailer_bytes >= MAX_TRAILER:
                raise HttpError(431, f"The trailer of the body is too long: at most {MAX_TRAILER} bytes are read.")
            if not TRAILER_LINE.fullmatch(trailer):
                raise HttpError(400, "The trailer of the body is malformed: expected `name: value`.")
        self.is_over = True


FramedBody = SizedBody | ChunkedBody


def framed(wire: Wire, length: int) -> FramedBody:
    """Return the body that Head.length announces."""
    return ChunkedBody(wire) if length == CHUNKED else SizedBody(wire, length)


def chunk(piece: bytes) -> bytes:
    """Return a piece as a chunk of a response. It must not be empty: an empty chunk marks the end."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


class ReceiveBuffer:
    """The bytes that have arrived on one connection and were not read yet; the Wire of its bodies, which waits for more bytes.

    buffer: those bytes; the reader of heads takes them from its front.
    is_broken: the client announced more bytes, but they cannot be read.
    """

    __slots__ = ("buffer", "is_broken", "awaits_continue", "_transport", "_limits", "_send_continue", "_on_wait", "_patience")

    def __init__(self, transport: Transport, limits: Limits, send_continue: Callable[[], None],
                 on_wait: Callable[[], None] = lambda: None) -> None:
        """send_continue: sends `100 Continue`, for which a client may wait before it sends its body.

        on_wait: called before each wait for the client.
        """
        self.buffer = bytearray()
        self.is_broken = False
        self.awaits_continue = False
        self._transport = transport
        self._limits = limits
        self._send_continue = send_continue
        self._on_wait = on_wait
        self._patience = 0.0  # seconds left to wait for more of the body

    def begin_body(self, awaits_continue: bool) -> None:
        """Begin a new body; the next bytes belong to it. awaits_continue: whether the client waits for `100 Continue`."""
        self.awaits_continue = awaits_continue
        self._patience = self._limits.body_waits_s

    def fill(self) -> int | None:
        """Receive once, without waiting. Returns the number of bytes, 0 at the end, None if no bytes have arrived."""
        piece = self._transport.receive(PIECE)
        if piece is None:
            return None
        self.buffer += piece
        return len(piece)

    def take(self, max_bytes: int) -> bytes:
        """Return 1 to `max_bytes` bytes of the body. Raises HttpError: 400 if the client ends early, 408 if it is too slow."""
        return self._take_front(max_bytes) if self.buffer else self._from_client(max_bytes)

    def take_line(self, max_bytes: int) -> bytes:
        """Return the bytes up to and including LF, or `max_bytes` bytes without LF. Raises HttpError as take()."""
        end = self.buffer.find(b"\n", 0, max_bytes) + 1
        while not end and len(self.buffer) < max_bytes:
            self.buffer += self._from_client(PIECE)
            end = self.buffer.find(b"\n", 0, max_bytes) + 1
        return self._take_front(end or max_bytes)

    def _take_front(self, max_bytes: int) -> bytes:
        piece = bytes(self.buffer[:max_bytes])
        del self.buffer[:max_bytes]
        return piece

    def _from_client(self, max_bytes: int) -> bytes:
        piece: bytes | None = None
        try:
            if self.awaits_continue:
                self.awaits_continue = False
                self._send_continue()
            while (piece := self._transport.receive(max_bytes)) is None:
                self._wait()
        except OSError:
            pass
        if not piece:
            self.is_broken = True
            raise HttpError(400, INCOMPLETE)
        self._patience = min(self._limits.body_waits_s, self._patience + len(piece) / self._limits.body_rate)
        return piece

    def _wait(self) -> None:
        """Wait for the client within the limits: a client that sends a byte now and then must not hold a thread for ever."""
        self._on_wait()
        started = time.monotonic()
        if not wait(self._transport.sock, self._transport.blocked_on, min(self._limits.body_stall_s, self._patience)):
            self.is_broken = True
            raise HttpError(408, "The body of the request took too long to arrive.")
        self._patience -= time.monotonic() - started
