"""HTTP requests to other hosts, over connections made by the guard.

post() reads only the status of a response, exchange() reads all of it, stream() gives it as it comes. Callers opt in to redirects
and to the proxies of the environment.
Import it late, with the first request to send: it loads urllib and OpenSSL. See docs/tasks-and-batches.md#outgoing-calls.

Threads: any number may call at once. `_lock` guards `_context` and `_calls`, the calls in progress, which abort() ends. A timer
per call ends it at its deadline, if it has one.
"""
from __future__ import annotations

import base64
import http.client
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import AbstractHTTPHandler, OpenerDirector, Request, getproxies, proxy_bypass

from svcd import __version__
from svcd.http.tls import client_context
from svcd.remote import Failure, Undelivered
from svcd.remote.guard import ForbiddenAddress, Guard

TIMEOUT_S = 30.0
# The deadline of post() grows by a second for each BYTES_PER_S bytes of the body: enough for slow networks, not for slow attacks.
BYTES_PER_S = 16 << 10
_USER_AGENT = f"svcd/{__version__}"
# Headers that users may not set: with a wrong length the receiver would read the rest as another request.
_RESERVED_HEADERS = frozenset(("content-length", "transfer-encoding", "connection"))
# As in browsers and svcd.validation.urls: any number of slashes, and backslashes count as slashes.
_BEGIN = re.compile(r"^(https?):[/\\]*", re.IGNORECASE)
_PLACE = re.compile(r"^[^?#]*")
_KEPT_IN_PATHS = "%/:=&?~+!$,;'@()*[]|"
_LONGEST_REASON = 300
# Redirects that turn a request into a GET without body, and redirects that repeat it (RFC 9110, 15.4).
_TURNED, _REPEATED = frozenset((301, 302, 303)), frozenset((307, 308))
# Headers that must not follow a redirect to another host.
_CREDENTIALS = frozenset(("authorization", "cookie", "api-key"))
# Statuses of a host that is busy or temporarily unavailable.
PASSING = frozenset((408, 429, 500, 502, 503, 504))
RETRIED_S = 15 * 60.0
_FIRST_S, _GROWTH, _LONGEST_S, _JITTER = 0.5, 1.5, 60.0, 0.5

Pause = Callable[[float], object]
_PIECE = 1 << 16  # bytes that one read of a response takes


class Answer(NamedTuple):
    """A response. headers: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Sent(NamedTuple):
    """A request. body: None for no body; length: its bytes. redirects: maximum to follow; the guard checks each.

    uses_proxies: whether to call the proxy of HTTP_PROXY or HTTPS_PROXY, except for hosts in NO_PROXY. The operator chose the
    proxy, so the guard permits it; the proxy then resolves the host of the URL.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: Iterable[bytes] | None
    length: int
    redirects: int = 0
    uses_proxies: bool = False


class Client:
    """Sends requests to other hosts through a guard."""

    def __init__(self, guard: Guard, timeout_s: float = TIMEOUT_S) -> None:
        self._guard, self._timeout_s = guard, timeout_s
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()
        # Without further handlers urllib uses neither proxies, redirects, cookies nor passwords.
        self._opener = OpenerDirector()
        self._opener.addheaders = [("User-Agent", _USER_AGENT)]
        self._opener.add_handler(_Handler())

    def post(self, url: str, headers: Mapping[str, str], body: Iterable[bytes], length: int) -> None:
        """Send a body of `length` bytes. Returns after a status 2xx, else raises Undelivered.

        Exceptions of the iterator `body` pass through.
        """
        request = Sent("POST", url, headers, body, length)
        with self._call(self._timeout_s + length / BYTES_PER_S) as call, _as_undelivered(call):
            with self._response(call, request) as answer:
                status = answer.status
        if not 200 <= status < 300:
            moved = "; redirects are not followed, name the address itself" if 300 <= status < 400 else ""
            raise Undelivered(f"answered with status {status}{moved}", kind=Failure.RESPONSE)

    def exchange(self, url: str, headers: Mapping[str, str], body: bytes | None, within_s: float, most_bytes: int, *,
                 method: str = "POST", redirects: int = 0, proxies: bool = False) -> Answer:
        """Send a request and return the whole response, with any status, within `within_s` seconds.

        redirects, proxies: see Sent. Raises Undelivered, also if the response ends early or is longer than `most_bytes`.
        """
        request = _sent(method, url, headers, body, redirects, proxies)
        with self._call(within_s) as call, _as_undelivered(call), self._response(call, request) as answer:
            received = bytearray()
            while len(received) <= most_bytes and (piece := _read(answer.read, _PIECE)):
                received += piece
            if len(received) > most_bytes:
                raise Undelivered(f"its answer is longer than {most_bytes} bytes", kind=Failure.RESPONSE)
            if call.is_aborted:
                raise TimeoutError
            if answer.length:  # read() with a size does not complain
                raise http.client.IncompleteRead(bytes(received), answer.length)
            return Answer(answer.status, _headers(answer), bytes(received))

    @contextmanager
    def stream(self, url: str, headers: Mapping[str, str], body: bytes | None, *, method: str = "POST", redirects: int = 0,
               proxies: bool = False, connect_s: float = TIMEOUT_S,
               begun: Callable[[Callable[[], None]], None] = lambda abort: None) -> Iterator[Incoming]:
        """Send a request; the context reads the response, without a time limit after the connection is made.

        begun: called before connecting, with a function that ends the call from any thread. Leaving the context closes the
        connection. Raises Undelivered; errors of the context's own code pass through.
        """
        request = _sent(method, url, headers, body, redirects, proxies)
        with self._call(None, connect_s) as call:
            begun(call.abort)
            with _as_undelivered(call):
                answer = self._response(call, request)
            with answer:
                yield Incoming(call, answer)

    def _response(self, call: _Call, request: Sent) -> http.client.HTTPResponse:
        """Send a request, follow its redirects, and return the open response."""
        left = request.redirects
        while True:
            answer: http.client.HTTPResponse = self._opener.open(_Request(call, request), timeout=call.connect_s)
            try:
                moved = _redirected(request, answer)
            except BaseException:  # an invalid Location
                answer.close()
                raise
            if moved is None or not request.redirects:
                return answer
            answer.close()
            if not left:
                raise Undelivered("it redirects too often", kind=Failure.REDIRECTS)
            request, left = moved, left - 1

    @contextmanager
    def _call(self, within_s: float | None, connect_s: float | None = None) -> Iterator[_Call]:
        """Yield a call that is aborted after `within_s` seconds; None: no deadline."""
        connect_s = self._timeout_s if connect_s is None else connect_s
        if within_s is not None:
            connect_s = min(connect_s, within_s)
        call = _Call(self._guard, connect_s, None if within_s is None else connect_s, self._tls_context)
        timer = None if within_s is None else threading.Timer(within_s, call.abort)
        with self._lock:
            self._calls.add(call)
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            yield call
        finally:
            if timer is not None:
                timer.cancel()
            with self._lock:
                self._calls.discard(call)

    def _tls_context(self) -> ssl.SSLContext:
        """Return the TLS context, created once, because creating it reads all certificate authorities of the system."""
        with self._lock:
            self._context = self._context or client_context()
            return self._context

    def abort(self) -> None:
        """End the calls in progress; they raise Undelivered."""
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.abort()


class Incoming:
    """A response that is read as it comes. headers: names in lower case."""

    def __init__(self, call: _Call, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = _headers(answer)
        self._call, self._answer = call, answer

    def read(self, most_bytes: int = _PIECE) -> bytes:
        """Return the next bytes as soon as some arrive; b"" at the end. Raises Undelivered if the response breaks off."""
        with _as_undelivered(self._call):
            piece = _read(self._answer.read1, most_bytes)
            if not piece and self._call.is_aborted:
                raise TimeoutError
            if not piece and self._answer.length:
                raise http.client.IncompleteRead(b"", self._answer.length)
            return piece

    def abort(self) -> None:
        """End the response; from any thread. A read in progress raises Undelivered."""
        self._call.abort()


def _read(read: Callable[[int], bytes], most_bytes: int) -> bytes:
    """Return the next bytes of a response."""
    try:
        return read(most_bytes)
    except ValueError:  # a chunk with a negative size, not a fault of the URL
        raise http.client.IncompleteRead(b"") from None


def _sent(method: str, url: str, headers: Mapping[str, str], body: bytes | None, redirects: int, proxies: bool) -> Sent:
    return Sent(method, url, headers, None if body is None else (body,), len(body or b""), redirects, proxies)


def _headers(answer: http.client.HTTPResponse) -> Mapping[str, str]:
    return {name.lower(): value for name, value in answer.getheaders()}


def _redirected(request: Sent, answer: http.client.HTTPResponse) -> Sent | None:
    """Return the request that a redirect asks for; None for any other response."""
    place = answer.getheader("Location")
    if answer.status not in _TURNED | _REPEATED or place is None:
        return None
    url = urljoin(request_target(request.url)[0], place)
    headers = request.headers
    if _origin(url) != _origin(request.url):
        headers = {name: value for name, value in headers.items() if name.lower() not in _CREDENTIALS}
    request = request._replace(url=url, headers=headers)
    if answer.status in _REPEATED:
        return request
    return request._replace(method="GET" if request.method != "HEAD" else "HEAD", body=None, length=0)


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(request_target(url)[0])
    return parts.scheme, parts.netloc


class _Call:
    """One request and its connection, which another thread may abort.

    connect_s: time limit of connecting; silence_s: time limit of a read or write, None for no limit.
    """

    def __init__(self, guard: Guard, connect_s: float, silence_s: float | None, tls_context: Any) -> None:
        self._guard, self.connect_s, self._silence_s, self._tls_context = guard, connect_s, silence_s, tls_context
        self._socket: socket.socket | None = None
        self.is_aborted = False

    def connect(self, host: str, port: int, is_proxy: bool = False) -> socket.socket:
        """Open a plain connection; bypasses the guard for a proxy, which the operator chose."""
        opened = socket.create_connection((host, port), self.connect_s) if is_proxy \
            else self._guard.connect(host, port, self.connect_s)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the body follows the head in a packet of its own
        return self._use(opened)

    def wrap_tls(self, plain: socket.socket, host: str) -> socket.socket:
        """Begin TLS on a connection and verify the certificate of the host."""
        try:
            wrapped: ssl.SSLSocket = self._tls_context().wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
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

    def expect_answer(self, opened: socket.socket) -> None:
        """Apply the time limit for reads and writes, now that the connection is made."""
        opened.settimeout(self._silence_s)

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
    """A request for urllib. is_by_proxy: whether it goes to a proxy."""

    def __init__(self, call: _Call, sent: Sent) -> None:
        target, own = request_target(sent.url)
        given = {name: value for name, value in sent.headers.items() if name.lower() not in _RESERVED_HEADERS}
        length = {} if sent.body is None else {"Content-Length": str(sent.length)}
        super().__init__(target, sent.body, {**own, **given, **length}, method=sent.method)
        self.call = call
        parts, proxies = urlsplit(target), getproxies() if sent.uses_proxies else {}
        proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
        self.is_by_proxy = bool(proxy) and not proxy_bypass(parts.netloc)
        if self.is_by_proxy:
            place, credentials = request_target(proxy if "://" in proxy else f"http://{proxy}")
            for name, value in credentials.items():
                self.add_unredirected_header(f"Proxy-{name}", value)
            self.set_proxy(urlsplit(place).netloc, "http")


class _Connection(http.client.HTTPConnection):
    def __init__(self, host: str, *, call: _Call, is_by_proxy: bool, **others: Any) -> None:
        super().__init__(host, **others)
        self._call, self._is_by_proxy = call, is_by_proxy

    def connect(self) -> None:
        self.sock = self._call.connect(self.host, self.port, self._is_by_proxy)
        self._call.expect_answer(self.sock)


class _TlsConnection(_Connection):
    default_port = 443
    _tunnel_host: str | None  # set by urllib when a proxy is to pass the connection on
    _tunnel: Any

    def connect(self) -> None:
        self.sock = self._call.connect(self.host, self.port, self._is_by_proxy)
        if self._tunnel_host:
            self._tunnel()
        self.sock = self._call.wrap_tls(self.sock, self._tunnel_host or self.host)
        self._call.expect_answer(self.sock)


class _Handler(AbstractHTTPHandler):
    """Opens both schemes; HTTPSHandler of the library would read the certificate authorities even without TLS."""

    http_request = https_request = AbstractHTTPHandler.do_request_

    def http_open(self, req: Any) -> http.client.HTTPResponse:
        return self._open(_Connection, req)

    def https_open(self, req: Any) -> http.client.HTTPResponse:
        return self._open(_TlsConnection, req)

    def _open(self, connection: type[_Connection], request: Any) -> http.client.HTTPResponse:
        return self.do_open(partial(connection, call=request.call, is_by_proxy=request.is_by_proxy), request)


@contextmanager
def _as_undelivered(call: _Call) -> Iterator[None]:
    """Turn errors of a call into Undelivered."""
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as failure:  # ValueError: invalid headers, which its text contains
        cause = failure.reason if isinstance(failure, URLError) else failure
        is_late = call.is_aborted or isinstance(cause, TimeoutError)
        raise Undelivered(
            "no answer in time" if is_late else _reason(cause)[:_LONGEST_REASON],
            is_final=isinstance(cause, (ForbiddenAddress, ValueError)), kind=Failure.TIMEOUT if is_late else _kind(cause),
        ) from None


def _kind(failure: Any) -> Failure:
    if isinstance(failure, ForbiddenAddress):
        return Failure.FORBIDDEN_ADDRESS if failure.is_literal else Failure.FORBIDDEN_HOST
    if isinstance(failure, http.client.IncompleteRead):
        return Failure.RESPONSE
    return Failure.URL if isinstance(failure, ValueError) and not isinstance(failure, OSError) else Failure.CONNECTION


def _reason(failure: Any) -> str:
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {failure.verify_message}"
    if isinstance(failure, OSError):
        return failure.strerror or str(failure) or type(failure).__name__
    if isinstance(failure, http.client.IncompleteRead):
        return "its answer ends early"
    return type(failure).__name__  # its text may contain the request


def request_target(url: str) -> tuple[str, dict[str, str]]:
    """Return the URL to request, in ASCII, and the Authorization header for its user and password, if any.

    Raises Undelivered if it is not an HTTP URL.
    """
    if not _BEGIN.match(url.strip()):
        raise Undelivered("its URL begins with neither http: nor https:", is_final=True, kind=Failure.URL)
    try:
        parts = urlsplit(_PLACE.sub(lambda place: place[0].replace("\\", "/"), _BEGIN.sub(r"\1://", url.strip())))
        host, port = parts.hostname or "", parts.port
        place = f"[{host}]" if ":" in host else host.encode("idna").decode()
    except ValueError:  # UnicodeError is one
        raise Undelivered("its URL names no host that can be called", is_final=True, kind=Failure.URL) from None
    if not host:
        raise Undelivered("its URL names no host", is_final=True, kind=Failure.URL)
    place += f":{port}" if port is not None else ""
    query = f"?{quote(parts.query, _KEPT_IN_PATHS)}" if parts.query else ""
    credentials = {}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return f"{parts.scheme}://{place}{quote(parts.path, _KEPT_IN_PATHS) or '/'}{query}", credentials


def repeated(call: Callable[[], Answer], is_passing: Callable[[Answer], bool], pause: Pause = time.sleep,
             clock: Callable[[], float] = time.monotonic) -> Answer:
    """Return the response of call(), repeating it while it fails or its response is a temporary failure.

    Once a further pause would exceed RETRIED_S, returns the last response or raises the last failure. pause: waits a number of
    seconds; an exception that it raises ends the repetition. Raises Undelivered, at once if it is final.
    """
    began, longest = clock(), _FIRST_S
    while True:
        answer, failure = None, None
        try:
            answer = call()
        except Undelivered as undelivered:
            if undelivered.is_final:
                raise
            failure = undelivered
        if answer is not None and not is_passing(answer):
            return answer
        seconds = longest * random.uniform(1 - _JITTER, 1 + _JITTER)
        if clock() - began + seconds > RETRIED_S:
            if answer is None:
                raise failure or AssertionError
            return answer
        pause(seconds)
        longest = min(longest * _GROWTH, _LONGEST_S)
