"""Responses on the wire: encodes each one (head, content coding, CORS headers) and sends it as fast as the client reads it.

See docs/http.md#content-codings and #delivery-of-answers. A response in portions is generated piece by piece, each after the
client has taken the previous one. Bytes that a client does not take at once wait in DeliveryThread, whose one thread serves
all slow clients in turns, so that they hold no request threads and together use no more of the interpreter than one client.
"""
from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from svcd.base.errors import ApiError
from svcd.http import content_coding
from svcd.http.framing import LAST_CHUNK, chunk
from svcd.http.message import Headers, Portions, Request, Response, elements, trimmed
from svcd.http.sockets import WRITABLE, Limits, Pollable, Poller, Transport, wait
from svcd.http.standard_server import formatdate

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# RFC 9110: responses with these statuses never have a body.
BODILESS = frozenset((204, 304))

# Bytes up to which one call sends head and body together; above, copying them costs more than a second call.
ONE_SEND = 262144
# Bytes after which a response lets the responses to other clients continue.
TURN = 262144

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


# Encoding


class EncodedResponse(NamedTuple):
    """A response ready to be sent: head, then body, then the pieces of stream."""

    head: bytes
    body: bytes
    stream: Iterator[bytes] | None
    closes: bool  # the connection ends with the response


def encode_response(request: Request, response: Response, *, minor: int, closes: bool) -> EncodedResponse:
    """Encode a response for a client of HTTP/1.minor. closes: whether the connection ends with it."""
    status, body, stream = response.status, response.body, None
    fields = [STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n", f"Date: {_date()}\r\n"]
    is_packed = bool(body) and status not in BODILESS
    if is_packed:
        fields.append(f"Content-Type: {response.content_type}\r\n")
    for name, value in (*response.headers, *answer_headers(request.headers)):
        if "\n" in value or "\r" in value:
            raise ValueError(f"header {name} with a line end: {value!r}")
        fields.append(f"{name}: {value}\r\n")
        if name.lower() == "content-encoding":
            is_packed = False
    coding = choose_coding(request.headers.get("accept-encoding")) if is_packed else ""
    if is_packed:
        fields.append("Vary: Accept-Encoding\r\n")
    if coding:
        fields.append(f"Content-Encoding: {coding}\r\n")
    if status in BODILESS:
        body = b""
    elif isinstance(body, bytes):
        body = content_coding.pack(coding, body) if coding else body
        fields.append(f"Content-Length: {len(body)}\r\n")
    else:
        pack = content_coding.pack_portions if isinstance(body, Portions) else content_coding.pack_stream
        stream = pack(coding, body) if coding else iter(body)
        stream, body, closes = (_chunks(stream) if minor else stream), b"", closes or not minor
        fields.append("Transfer-Encoding: chunked\r\n" if minor else "")
    if closes:
        fields.append("Connection: close\r\n")
    elif not minor:
        fields.append("Connection: keep-alive\r\n")
    fields.append("\r\n")
    head = "".join(fields).encode("latin-1")
    if request.verb == "HEAD":
        body, stream = b"", None
    return EncodedResponse(head, body, stream, closes)


def error_response(error: ApiError) -> Response:
    """Return the error object of an ApiError as a response."""
    text = json.dumps(error.as_json(), ensure_ascii=False, separators=(",", ":"))
    return Response(error.status, text.encode("utf-8", "replace"), headers=error.headers)


def _chunks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        framed = chunk(piece) if piece else b""
        del piece  # hold one copy only while the client takes it
        yield framed
    yield LAST_CHUNK


def choose_coding(accept_encoding: str | None) -> str:
    """Choose the content coding of a response by the client's Accept-Encoding: a key of content_coding.PACKERS, or "".

    The highest q wins, among equals the first one in PACKERS. Without the header: "".
    """
    if not accept_encoding:
        return ""
    # Clients send the same few values repeatedly; longer values must not fill the cache.
    return _choose_coding(accept_encoding) if len(accept_encoding) < 128 else _choose_coding.__wrapped__(accept_encoding)


@lru_cache(maxsize=128)
def _choose_coding(accept_encoding: str) -> str:
    qualities = dict(map(_quality, elements(accept_encoding)))
    others = qualities.get("*", 0.0)
    # Uncompressed is the fallback; among equal qualities a coding wins.
    best, best_q = "", qualities.get("identity", 0.0)
    for coding in content_coding.PACKERS:
        q = qualities.get(coding, others)
        if q > 0 and (q > best_q or q == best_q and not best) and content_coding.is_available(coding):
            best, best_q = coding, q
    return best


def _quality(part: str) -> tuple[str, float]:
    """Return (coding, q) of one element; a q that is not a number counts as 0."""
    name, _, parameters = part.partition(";")
    key, _, value = parameters.partition("=")
    if trimmed(key) != "q":
        return trimmed(name), 1.0
    digits = trimmed(value)
    is_q = len(digits) <= 5 and digits.isascii() and digits.replace(".", "", 1).isdigit()
    return trimmed(name), min(float(digits), 1.0) if is_q else 0.0


_last_date = (0, "")


def _date() -> str:
    """Return the Date header, formatted once a second: assigning the tuple is atomic, so threads need no lock."""
    global _last_date
    second, text = _last_date
    now = int(time.time())
    if now != second:
        text = formatdate(now, usegmt=True)
        _last_date = now, text
    return text


# Cross-origin requests (Fetch standard, docs/http.md#cors). Permissive on purpose: keys protect an instance, and a page has to
# send them itself (`*` never covers cookies).

MAX_AGE_S = 86_400
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
ALLOW_ORIGIN = ("Access-Control-Allow-Origin", "*")


def preflight(request: Request) -> Response | None:
    """Return the response to a preflight or to `OPTIONS *` (RFC 9110 9.3.7); None for any other request."""
    headers = request.headers
    if request.path == "*":
        return Response(200, headers=(("Allow", METHODS),))
    method = headers.get("access-control-request-method")
    if request.method != "OPTIONS" or method is None or "origin" not in headers:
        return None
    # The requested names, not `*`: a wildcard does not cover Authorization.
    wanted = headers.get("access-control-request-headers")
    allowed = (("Access-Control-Allow-Headers", wanted),) if wanted else ()
    return Response(200, headers=(
        ("Access-Control-Allow-Methods", METHODS),
        *allowed,
        ("Access-Control-Max-Age", str(MAX_AGE_S)),
        ("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
    ))


def answer_headers(headers: Headers) -> tuple[tuple[str, str], ...]:
    """Return the CORS headers of the response to a request with these headers."""
    return (ALLOW_ORIGIN,) if "origin" in headers else ()


# Sending


class Delivery:
    """A response that is being sent.

    response: the original, or its replacement if that failed before its first byte. sent: bytes of the body that the client
    has taken.
    """

    def __init__(self, response: Response, transport: Transport, limits: Limits, write: Callable[[Response], EncodedResponse],
                 replacement: Callable[[Exception, bool], Response]) -> None:
        """write: encodes a response. replacement: (exception, whether a byte was sent) -> the response to send instead."""
        self.response = response
        self.sent = 0
        self._transport, self._limits = transport, limits
        self._write, self._replacement = write, replacement
        self._body = response.body
        self._can_wait = isinstance(response.body, (bytes, Portions))  # in a poller, without holding this thread
        self._pieces: Iterator[bytes] | None = None  # None: nothing was generated yet
        self._head = b""
        self._unsent = memoryview(b"")
        self._size = 0  # bytes of the piece that is being sent
        self._has_begun = False
        self._is_whole = False  # the piece that is being sent is the last one
        self._until = 0.0

    @property
    def is_in_portions(self) -> bool:
        """Whether the body may take long to generate, so that request threads should not generate it."""
        return isinstance(self._body, Portions)

    def send_more(self) -> int:
        """Send as much as the client takes now. Returns 0 at the end, else the event to wait for (READABLE, WRITABLE).

        Sends a stream, whose pieces may block, to its end. Raises OSError if the client has left or takes nothing for too
        long, or if the response broke off.
        """
        left, transport = TURN, self._transport
        while True:
            while self._unsent:
                self._has_begun = True
                taken = transport.send(self._unsent)
                self._unsent = self._unsent[taken:]
                if taken:
                    continue
                if self._can_wait:
                    return transport.blocked_on
                if not wait(transport.sock, transport.blocked_on, self._limits.write_stall_s):
                    raise TimeoutError("the client does not take its answer")
            self.sent += self._size
            self._size = 0
            if self._is_whole:
                return 0
            if left <= 0 and self._can_wait:
                return WRITABLE
            if not self._make():
                return 0
            left -= len(self._unsent)

    def deadline(self) -> float:
        """Return the monotonic time by which the client must have taken more."""
        now = time.monotonic()
        self._until = self._until or now + self._limits.answer_waits_s
        return min(now + self._limits.write_stall_s, self._until + self.sent / self._limits.answer_rate)

    def close(self) -> None:
        """Release the resources that the body is generated from."""
        self._unsent = memoryview(b"")
        close = getattr(self._body, "close", None)
        if close:
            close()

    def _make(self) -> bool:
        """Generate the next bytes. Returns False at the end of the body."""
        try:
            return self._next()
        except OSError:
            raise
        except Exception as broken:
            self.response = self._replacement(broken, self._has_begun)
            if self._has_begun:
                # Reset the connection, so that the client does not mistake the part for the whole.
                raise ConnectionAbortedError from broken
            self._pieces = None
            return self._next()

    def _next(self) -> bool:
        if self._pieces is None:
            response = self.response
            if isinstance(response.body, Portions):
                # A body of one piece is sent as bytes, so that it gets a Content-Length like other small ones.
                first, second = next(response.body, b""), next(response.body, None)
                response = replace(response, body=first if second is None else Portions(_rest(response.body, [second, first])))
            encoded = self._write(response)
            self._head = encoded.head
            if encoded.stream is not None:
                self._pieces = encoded.stream
            elif len(encoded.body) <= ONE_SEND:
                self._pieces = iter((encoded.body,))
                self._is_whole = True
            else:
                self._pieces = iter((b"", encoded.body))
        piece = next(self._pieces, None)
        if piece is None and not self._head:
            return False
        # The head is sent with the first piece: until that exists, a failure can still become an error response.
        self._size = len(piece or b"")
        self._unsent, self._head = memoryview(self._head + piece if piece else self._head), b""
        return True


def _rest(portions: Portions, made: list[bytes]) -> Generator[bytes]:
    while made:
        yield made.pop()  # keep no reference: sending it frees its memory
    yield from portions


class DeliveryThread:
    """A poller with a thread of its own, started when first needed. turn: called with each pollable that has an event."""

    def __init__(self, turn: Callable[[Pollable], None], stack_size: int) -> None:
        self._turn = turn
        self._stack_size = stack_size
        self.poller = Poller()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # over _thread

    def register(self, pollable: Pollable, events: int) -> None:
        """As Poller.register(). Raises RuntimeError, with nothing registered, if the system allows no more threads."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(target=self._work, name="http-delivery", daemon=True)
                    before = threading.stack_size(self._stack_size)
                    try:
                        thread.start()
                    finally:
                        threading.stack_size(before)
                    self._thread = thread
        self.poller.register(pollable, events)

    def _work(self) -> None:
        while (pollable := self.poller.next()) is not None:
            self._turn(pollable)

    def close(self, max_wait_s: float) -> None:
        """End the thread, and close the descriptors if it ends within `max_wait_s` seconds."""
        self.poller.close()
        if self._thread:
            self._thread.join(max_wait_s)
        if not self.is_alive():
            self.poller.release()

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()
