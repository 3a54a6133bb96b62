"""Reads requests from one client's connection, calls the server's `answer`, logs them, and sends the responses; the gate that
holds requests during the start.

One thread at a time uses a connection. `handle()` works until the client has to send or read something, and returns the event
to wait for. It blocks its thread only while it reads a body or sends a stream.
Phases: handshake, serve, deliver (per response), linger. Time-outs: docs/http.md#limits-and-time-outs.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.http.delivery import CONTINUE, Delivery, EncodedResponse, encode_response, error_response, preflight
from svcd.http.framing import ReceiveBuffer, framed, head_end, read_head
from svcd.http.message import PIECE, Body, BodyMemory, Headers, HttpError, NoBody, Request, Response
from svcd.http.sockets import READABLE, WRITABLE, Limits, Transport, keep_little_unsent, reset_on_close, wait
from svcd.http.standard_server import BaseHTTPRequestHandler

if TYPE_CHECKING:
    import socket

Answer = Callable[[Request], Response]
OnRequest = Callable[[Request, int, float, int], None]  # request, status, seconds, bytes of the response body
OnError = Callable[[str], object]  # a traceback

# The client of the requests that the daemon sends to itself for the watchdog (svcd.cli.supervision).
PROBE_CLIENT = "watchdog"
AVAILABLE = b'{"status":"available"}'  # a test compares it with the answer of the route

CLOSE = 0  # handle() returns it when the server has to close the connection
# A new connection is not idle: the first request of a client comes within a round trip.
FIRST_REQUEST_S = 0.25


class Owner(Protocol):
    """The part of svcd.http.server.Server that a connection uses; its methods are documented there."""

    limits: Limits
    payload_limit: int
    body_memory: BodyMemory
    answer: Answer
    on_request: OnRequest
    on_error: OnError

    @property
    def ends_connections(self) -> bool: ...

    def give_lead_away(self) -> None: ...

    def before_answer(self, request: Request) -> None: ...

    def hand_off(self, request: Request, connection: Connection, raw: bytes) -> bool: ...


class Connection(BaseHTTPRequestHandler):
    """A connection as a pollable.

    deadline: monotonic time by which the client must have sent or taken more, while no thread works on the connection.
    is_delivering: the connection waits for the client to take a response; handle() then returns before the next request, so
    that the delivery thread never answers one.
    relay_end: when set, a relay takes over the client over this socket after the connection is closed here.
    """

    def __init__(self, transport: Transport, client: str, owner: Owner, received: bytes = b"") -> None:
        """client: its address, as requests show it.

        received: bytes that another process has read before it handed the connection off; this process answers the first
        request in them.
        """
        # The constructor of the base is not called: it would serve the connection to its end at once.
        self.transport = transport
        self.request = transport.sock
        self.client = client
        self._owner = owner
        self.limits = owner.limits
        self.close_connection = False
        self.deadline = time.monotonic() + self.limits.head_s
        self._phase: Callable[[], int | None] = self._serve if received else self._handshake
        self._received = ReceiveBuffer(transport, self.limits, self._send_continue, owner.give_lead_away)
        self._received.buffer += received
        self._is_answered_here = bool(received)  # the next request must not be handed off again
        self._has_answered = False
        self._accepted_at = time.monotonic()
        self._has_head_begun = False  # a byte of the next request has come, even of an empty line before it
        self._skip = 0  # bytes still to come of a body that was not read
        self._delivery: Delivery | None = None
        self._at_end: Callable[[Delivery], None] = lambda delivery: None  # called when the delivery ends
        self.is_delivering = False
        self.relay_end: socket.socket | None = None
        self._must_linger = False  # the client may still be sending bytes that nobody will read
        self._linger_left = self.limits.linger_bytes

    def fileno(self) -> int:
        """Return the descriptor for selectors."""
        return self.request.fileno()

    def handle(self) -> int:  # type: ignore[override]  # the base class would expect None, but never calls it
        """Continue. Returns CLOSE, or the events (READABLE, WRITABLE) to wait for before the next call."""
        try:
            while True:
                blocked_on = self._phase()
                if blocked_on is not None:
                    return blocked_on
        except OSError:  # the client has left, or does not take its response
            return CLOSE

    def has_no_request(self) -> bool:
        """Return whether no request has begun to arrive."""
        try:
            return not self._is_answered_here and not wait(self.request, READABLE, 0)
        except ValueError:  # the thread that used the connection has closed it
            return True

    def is_between_requests(self) -> bool:
        """Return whether no request is being answered, and at most the start of the next head has come."""
        return (self._phase in (self._handshake, self._serve)
                and not (self._delivery or self._skip or self.close_connection or self._is_answered_here))

    def end(self) -> None:
        """Break off the current response, if any; must be called before the connection is closed."""
        if self._delivery:
            reset_on_close(self.request)
            self._end_delivery()

    def is_idle(self) -> bool:
        """Return whether no request is expected soon: one was answered before, or nothing has come for FIRST_REQUEST_S."""
        return self.has_no_request() and (self._has_answered or time.monotonic() >= self._accepted_at + FIRST_REQUEST_S)

    def awaits_thread(self) -> bool:
        """Return whether a request has come that no thread has looked at yet: the client is not to blame for the delay."""
        return self._phase in (self._handshake, self._serve) and not self._has_head_begun and not self.has_no_request()

    def expire(self) -> None:
        """After the deadline: send a 408 to a client in the middle of a head, if the send does not block."""
        if self._phase == self._serve and self._received.buffer:
            self._refuse(HttpError(408, "The head of the request took too long to arrive."))
            try:
                self._deliver()
            except OSError:
                pass

    def received_from(self, raw: bytes) -> bytes:
        """Return all bytes that have arrived from the start of a request whose head is `raw`."""
        return raw + self._received.buffer

    # Phases: each returns the events to wait for, or None to continue with the next phase.

    def _handshake(self) -> int | None:
        if not self.transport.handshake():
            return self.transport.blocked_on
        self._phase = self._serve
        return None

    def _serve(self) -> int | None:
        """Read heads and answer their requests; after the last one, linger if the client may still be sending."""
        while not self.close_connection:
            end = self._head_end()
            if end >= 0:
                self._exchange(end)
            if self._delivery:
                self._phase = self._deliver
                return None
            if end < 0:
                is_first = not self._has_head_begun and not self._skip
                count = self._received.fill()
                if count is None:
                    return self.transport.blocked_on
                if count == 0:
                    return CLOSE
                if is_first:
                    self._has_head_begun = True
                    self.deadline = time.monotonic() + self.limits.head_s
        if not self._must_linger and not self._received.buffer:
            return CLOSE
        self._phase = self._linger
        self.deadline = time.monotonic() + self.limits.linger_s
        self.transport.end_output()
        return None

    def _deliver(self) -> int | None:
        """Send as much of the response as the client takes now; never blocks, except for streams."""
        delivery = self._delivery
        assert delivery is not None
        if delivery.is_in_portions and not self.is_delivering:
            keep_little_unsent(self.request)
            blocked_on = WRITABLE  # the delivery thread generates the response
        else:
            try:
                blocked_on = delivery.send_more()
            except OSError:
                self.end()
                raise
        was_delivering, self.is_delivering = self.is_delivering, bool(blocked_on)
        if blocked_on:
            self.deadline = delivery.deadline()
            return blocked_on
        self._end_delivery()
        self._phase = self._serve
        if self.close_connection:
            return None
        if not self._received.buffer and not self.transport.has_pending():
            return READABLE  # mostly nothing has come yet, so trying to receive first would waste a call
        return WRITABLE if was_delivering else None  # the next request at once, but not in the delivery thread

    def _linger(self) -> int:
        """Read and drop: closing with unread bytes would make the client lose the response (RFC 9112 9.6)."""
        while self._linger_left > 0:
            piece = self.transport.receive(PIECE)
            if piece is None:
                return self.transport.blocked_on
            if not piece:
                break
            self._linger_left -= len(piece)
        return CLOSE

    # One request and its response

    def _head_end(self) -> int:
        """Return head_end() of the buffer, after dropping bytes before the head; refuses a head that is too long."""
        buffer = self._received.buffer
        if self._skip:
            dropped = min(self._skip, len(buffer))
            del buffer[:dropped]
            self._skip -= dropped
        while buffer.startswith(b"\r\n"):  # RFC 9112 2.2: old clients end their bodies with one
            del buffer[:2]
        if not buffer:
            return -1
        try:
            return head_end(buffer)
        except HttpError as fault:
            self._refuse(fault)
            return -1

    def _exchange(self, end: int) -> None:
        """Take the request whose head ends at `end`, and compute its response, which _deliver() sends."""
        owner, buffer = self._owner, self._received.buffer
        raw = bytes(buffer[:end])
        del buffer[:end]
        try:
            head = read_head(raw)
        except HttpError as fault:
            self._refuse(fault)
            return
        self.close_connection = not head.keep_alive
        wire = framed(self._received, head.length) if head.length else None
        self._received.begin_body(head.awaits_continue)
        body = Body(wire or NoBody(), head.headers.get("content-encoding"), owner.payload_limit, owner.body_memory)
        request = Request(head.method, head.path, head.query, head.headers, body, self.client, self.request)
        if not self._is_answered_here and owner.hand_off(request, self, raw):
            buffer.clear()  # another process has the connection: close this descriptor without reading or sending
            self.close_connection, self._must_linger = True, False
            return
        self._is_answered_here = False
        owner.before_answer(request)
        started = time.perf_counter()
        try:
            response = preflight(request) or owner.answer(request)
        except ApiError as error:
            response = error_response(error)
        except Exception:  # a bug: the client gets an error, the log the traceback
            response = self._internal_error()
        body.release()

        def write(response: Response) -> EncodedResponse:
            if wire is not None and not wire.is_over:
                self._discard_body(wire.remaining)
            encoded = encode_response(request, response, minor=head.minor, closes=self.close_connection or owner.ends_connections)
            self.close_connection = encoded.closes
            return encoded

        self._begin_delivery(request, response, started, write)

    def _begin_delivery(self, request: Request, response: Response, started: float,
                        write: Callable[[Response], EncodedResponse]) -> None:
        def at_end(delivery: Delivery) -> None:
            self._owner.on_request(request, delivery.response.status, time.perf_counter() - started, delivery.sent)

        self._at_end = at_end
        self._delivery = Delivery(response, self.transport, self.limits, write, self._replacement)

    def _end_delivery(self) -> None:
        delivery, self._delivery = self._delivery, None
        assert delivery is not None
        self.is_delivering = False
        self._has_answered = True
        now, buffer = time.monotonic(), self._received.buffer
        self._has_head_begun = len(buffer) > self._skip
        self.deadline = now + (self.limits.head_s if buffer or self._skip else self.limits.idle_s)
        try:
            delivery.close()
        finally:
            self._at_end(delivery)

    def _internal_error(self) -> Response:
        import traceback  # needed only for bugs

        self._owner.on_error(traceback.format_exc())
        return error_response(ApiError("internal", "An internal error has occurred."))

    def _replacement(self, broken: Exception, has_begun: bool) -> Response:
        """Return the response that replaces one that failed before its first byte."""
        if isinstance(broken, ApiError) and not has_begun:
            return error_response(broken)
        return self._internal_error()

    def _discard_body(self, rest: int | None) -> None:
        """Skip the rest of an unread body, or close the connection if it is long. rest: bytes to come, None if unknown."""
        inbox = self._received
        if rest is None or rest > self.limits.skip_bytes or inbox.awaits_continue or inbox.is_broken:
            self.close_connection = True
        self._must_linger = self.close_connection and not inbox.is_broken
        self._skip = 0 if self.close_connection else rest or 0

    def _refuse(self, fault: HttpError) -> None:
        """Answer a malformed head with an error, then close: nobody knows where the next request begins."""
        self.close_connection = self._must_linger = True
        request = Request("-", "-", "", Headers({}), Body(NoBody()), self.client)

        def write(response: Response) -> EncodedResponse:
            return encode_response(request, response, minor=1, closes=True)

        self._begin_delivery(request, error_response(fault), time.perf_counter(), write)

    def _send_continue(self) -> None:
        """Send `100 Continue`, blocking. Raises OSError if the client has left or takes nothing for too long."""
        transport, view = self.transport, memoryview(CONTINUE)
        while view:
            taken = transport.send(view)
            view = view[taken:]
            if not taken and not wait(self.request, transport.blocked_on, self.limits.write_stall_s):
                raise TimeoutError("the client does not take its answer")


def log_request(request: Request, status: int, seconds: float, size: int) -> None:
    """Log one answered request, unless it comes from the daemon itself."""
    if request.client == PROBE_CLIENT:
        return
    path = "/" + "/".join(request.segments)  # decoded, so that an API key in the path is recognized and redacted
    logs.request(request.verb, path, status, seconds, size, request.client)


def log_bug(traceback: str) -> None:
    """Log an unexpected exception with its traceback."""
    logs.failure("bug", traceback)


class StartupGate:
    """Passes each request to the application once it is loaded; until then it answers `/health` and holds all others.

    So a daemon listens before it has loaded two thirds of its code, which only requests need.
    Threads: request threads call `answer`; the loading thread calls `open`, once.
    """

    def __init__(self) -> None:
        self.wanted = threading.Event()  # a request waits for the application
        self.answered = threading.Event()  # the application has answered a request that had waited
        self._is_open = threading.Event()
        self._application: Callable[[Request], Response] | None = None

    def open(self, application: Callable[[Request], Response]) -> None:
        """Answer all waiting and future requests with this application."""
        self._application = application
        self._is_open.set()

    def answer(self, request: Request) -> Response:
        """Answer a request; blocks until the application is loaded, except for `/health`."""
        application = self._application
        if application is None:
            if request.method == "GET" and request.segments == ("health",):
                return Response(200, AVAILABLE)
            self.wanted.set()
            self._is_open.wait()
            assert self._application is not None
            try:
                return self._application(request)
            finally:
                self.answered.set()
        return application(request)
