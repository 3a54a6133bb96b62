"""HTTP requests to other hosts, over connections made by the guard.

No redirect is followed, no proxy is used; post() reads nothing of a response but its status, exchange() reads its body, too.
Import it late, when there is something to send: it loads urllib and OpenSSL. See docs/tasks-and-batches.md#outgoing-calls.

Threads: any number may call at once. `_lock` guards `_context` and `_calls`, the calls in progress, which abort() ends. One
timer per call ends it at its deadline.
"""
from __future__ import annotations

import base64
import http.client
import re
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import AbstractHTTPHandler, OpenerDirector, Request

from svcd import __version__
from svcd.remote import Undelivered
from svcd.remote.guard import ForbiddenAddress, Guard

TIMEOUT_S = 30.0
# The deadline of a call grows by a second per so many bytes of the body: enough for slow networks, not for slow attacks.
BYTES_PER_S = 16 << 10
_USER_AGENT = f"svcd/{__version__}"
# Headers that users may not set: with a wrong length the receiver would read the rest as another request.
_RESERVED_HEADERS = frozenset(("content-length", "transfer-encoding", "connection"))
# As in browsers and svcd.validation.urls: any number of slashes, and backslashes count as slashes.
_BEGIN = re.compile(r"^(https?):[/\\]*", re.IGNORECASE)
_PLACE = re.compile(r"^[^?#]*")
_KEPT_IN_PATHS = "%/:=&?~+!$,;'@()*[]|"
_LONGEST_REASON = 300


# Responses are read in pieces of this size.
_PIECE = 1 << 16


class Answer(NamedTuple):
    """A response. headers: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Sends requests to other hosts through a guard."""

    def __init__(self, guard: Guard, timeout_s: float = TIMEOUT_S) -> None:
        self._guard = guard
        self._timeout_s = timeout_s
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()
        # Without further handlers there are no proxies, redirects, cookies or passwords.
        self._opener = OpenerDirector()
        self._opener.addheaders = [("User-Agent", _USER_AGENT)]
        self._opener.add_handler(_Handler())

    def post(self, url: str, headers: Mapping[str, str], body: Iterable[bytes], length: int) -> None:
        """Send a body of `length` bytes. Returns after a status 2xx, else raises Undelivered.

        Exceptions of the iterator `body` are passed through.
        """
        with self._response(url, headers, body, length, self._timeout_s + length / BYTES_PER_S) as (_, answer):
            status = answer.status
        if not 200 <= status < 300:
            moved = "; redirects are not followed, name the address itself" if 300 <= status < 400 else ""
            raise Undelivered(f"answered with status {status}{moved}")

    def exchange(self, url: str, headers: Mapping[str, str], body: bytes, within_s: float, most_bytes: int) -> Answer:
        """Send a body and return the whole response, whatever its status, within so many seconds.

        Raises Undelivered, also when the response ends early or is longer than `most_bytes`.
        """
        with self._response(url, headers, (body,), len(body), within_s) as (call, answer):
            received = bytearray()
            while len(received) <= most_bytes and (piece := answer.read(_PIECE)):
                received += piece
            if len(received) > most_bytes:
                raise Undelivered(f"its answer is longer than {most_bytes} bytes")
            if call.is_aborted:
                raise TimeoutError
            if answer.length:  # read() with a size does not complain
                raise http.client.IncompleteRead(bytes(received), answer.length)
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, bytes(received))

    @contextmanager
    def _response(
        self, url: str, headers: Mapping[str, str], body: Iterable[bytes], length: int, within_s: float,
    ) -> Iterator[tuple[_Call, http.client.HTTPResponse]]:
        """Send a request; the response is open within the context. Errors in the context become Undelivered, too."""
        target, own = request_target(url)
        given = {name: value for name, value in headers.items() if name.lower() not in _RESERVED_HEADERS}
        with self._call(within_s) as call, _as_undelivered(call):
            request = _Request(call, target, body, {**own, **given, "Content-Length": str(length)})
            with self._opener.open(request, timeout=min(self._timeout_s, within_s)) as answer:
                yield call, answer

    @contextmanager
    def _call(self, within_s: float) -> Iterator[_Call]:
        call = _Call(self._guard, self._timeout_s, self._tls_context)
        deadline = threading.Timer(within_s, call.abort)
        deadline.daemon = True
        with self._lock:
            self._calls.add(call)
        deadline.start()
        try:
            yield call
        finally:
            deadline.cancel()
            with self._lock:
                self._calls.discard(call)

    def _tls_context(self) -> ssl.SSLContext:
        """The TLS context; made once, because it reads all certificate authorities of the system."""
        with self._lock:
            self._context = self._context or ssl.create_default_context()
            return self._context

    def abort(self) -> None:
        """End the calls in progress; they raise Undelivered."""
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.abort()


class _Call:
    """One request and its connection, which another thread may abort."""

    def __init__(self, guard: Guard, timeout_s: float, tls_context: Any) -> None:
        self._guard = guard
        self._timeout_s = timeout_s
        self._tls_context = tls_context
        self._socket: socket.socket | None = None
        self.is_aborted = False

    def connect(self, host: str, port: int) -> socket.socket:
        """Open a plain connection."""
        return self._use(self._guard.connect(host, port, self._timeout_s))

    def connect_tls(self, host: str, port: int) -> socket.socket:
        """Open a TLS connection and verify the certificate of the host."""
        plain = self.connect(host, port)
        try:
            wrapped = self._tls_context().wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
        except BaseException:
            plain.close()
            raise
        self._use(wrapped)
        try:
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped

    def _use(self, opened: socket.socket) -> socket.socket:
        self._socket = opened
        if self.is_aborted:
            self.abort()
        return opened

    def abort(self) -> None:
        """Shut the connection down, so that blocked reads and writes return."""
        self.is_aborted = True
        opened = self._socket
        try:
            if opened:
                socket.socket.shutdown(opened, socket.SHUT_RDWR)  # SSLSocket's would drop the TLS session in use
        except OSError:  # it is closed already
            pass


class _Request(Request):
    def __init__(self, call: _Call, url: str, body: Iterable[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(url, body, dict(headers), method="POST")
        self.call = call


class _Connection(http.client.HTTPConnection):
    def __init__(self, host: str, *, call: _Call, **others: Any) -> None:
        super().__init__(host, **others)
        self._call = call

    def connect(self) -> None:
        self.sock = self._call.connect(self.host, self.port)


class _TlsConnection(_Connection):
    default_port = 443

    def connect(self) -> None:
        self.sock = self._call.connect_tls(self.host, self.port)


class _Handler(AbstractHTTPHandler):
    """Opens both schemes; HTTPSHandler of the library would read the certificate authorities even without TLS."""

    http_request = https_request = AbstractHTTPHandler.do_request_

    def http_open(self, req: Any) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, call=req.call), req)

    def https_open(self, req: Any) -> http.client.HTTPResponse:
        return self.do_open(partial(_TlsConnection, call=req.call), req)


@contextmanager
def _as_undelivered(call: _Call) -> Iterator[None]:
    """Turn errors of a call into Undelivered."""
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as failure:  # ValueError: of invalid headers; its text contains them
        cause = failure.reason if isinstance(failure, URLError) else failure
        reason = "no answer in time" if call.is_aborted else _reason(cause)
        raise Undelivered(reason[:_LONGEST_REASON], is_final=isinstance(cause, (ForbiddenAddress, ValueError))) from None


def _reason(failure: Any) -> str:
    if isinstance(failure, TimeoutError):
        return "no answer in time"
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {failure.verify_message}"
    if isinstance(failure, OSError):
        return failure.strerror or str(failure) or type(failure).__name__
    if isinstance(failure, http.client.IncompleteRead):
        return "its answer ends early"
    return type(failure).__name__  # its text may repeat what was sent


def request_target(url: str) -> tuple[str, dict[str, str]]:
    """The URL to request, in ASCII, and the Authorization header for its user and password, if any.

    Raises Undelivered when it is not an HTTP URL.
    """
    if not _BEGIN.match(url.strip()):
        raise Undelivered("its URL begins with neither http: nor https:", is_final=True)
    try:
        parts = urlsplit(_PLACE.sub(lambda place: place[0].replace("\\", "/"), _BEGIN.sub(r"\1://", url.strip())))
        host, port = parts.hostname or "", parts.port
        place = f"[{host}]" if ":" in host else host.encode("idna").decode()
    except ValueError:  # UnicodeError is one
        raise Undelivered("its URL names no host that can be called", is_final=True) from None
    if not host:
        raise Undelivered("its URL names no host", is_final=True)
    place += f":{port}" if port is not None else ""
    query = f"?{quote(parts.query, _KEPT_IN_PATHS)}" if parts.query else ""
    return f"{parts.scheme}://{place}{quote(parts.path, _KEPT_IN_PATHS) or '/'}{query}", _credentials(parts)


def _credentials(parts: Any) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
