"""Requests to the other instances of a network: several at once, each tried up to four times, all within one deadline.

Failures become errors of the interface (docs/network.md#failures). Clients read their messages, and the reference engine sends
the same ones, to the letter.
svcd sends both names of a header (Svc-..., Meili-...), so that instances of the reference engine can be remotes.

Threads: each call has its own thread, which ends with the call; they share only the pending result.
"""
from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit, urlunsplit

from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, loads
from svcd.remote import Failure, Undelivered
from svcd.validation.answers import read_answer, shortened

if TYPE_CHECKING:
    from svcd.instance.network import Network
    from svcd.remote.client import Answer, Client

T = TypeVar("T")
Exchange = Callable[[float], "Answer"]  # seconds -> the response to one try; raises Undelivered

TIMEOUT_VARIABLE = "SVC_EXPERIMENTAL_REMOTE_SEARCH_TIMEOUT_SECONDS"
DEFAULT_TIMEOUT_S = 25.0
BRANDS = ("Svc", "Meili")
TRIES = 4
REDIRECTS = 10
# svcd holds a whole response in memory. This is far more than a page of documents needs, and keeps a broken host from filling the
# memory.
MOST_BYTES = 512 << 20
# Maximum number of calls in progress in this process, each with a thread. A failed request does not wait for its calls, so the
# limit of requests does not limit them.
MOST_CALLS = 1000

# The begin of an address that can be called; a network may store addresses of other schemes.
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]+")
_IN_URLS = re.compile(r"[!#-;=?-\[\]_a-z~]*")

_free = threading.BoundedSemaphore(MOST_CALLS)

_SAME_VERSION = "\n  - hint: check that the remote instance is a Svc instance running the same version"
_KEY_HINT = ("could not authenticate against the remote host\n  - hint: check that the remote instance was registered with a "
             "valid API key having the `search` action")
_REQUEST_HINTS = ("\n  - hint: check that the remote instance has the correct index configuration for that request"
                  "\n  - hint: check that the `network` experimental feature is enabled on the remote instance")
_MOST_FREQUENT = "error sending request"
_NOT_SENT = {  # kind of failure -> message, if it is not the most frequent one
    Failure.URL: "builder error",
    Failure.FORBIDDEN_ADDRESS: "Rejected IP",
    Failure.REDIRECTS: "error following redirect",
}


def branded(header: str, value: str) -> dict[str, str]:
    """Return a header under both of its names. header: without its brand, such as `Proxy-Search`."""
    return {f"{brand}-{header}": value for brand in BRANDS}


PROXY_SEARCH = branded("Proxy-Search", "true")
INCLUDE_METADATA = branded("Include-Metadata", "true")


def timeout_s(environment: Mapping[str, str]) -> float:
    """Return the seconds in which all other instances must answer a request. Raises ApiError internal for a bad variable."""
    text = environment.get(TIMEOUT_VARIABLE)
    if text is None:
        return DEFAULT_TIMEOUT_S
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        raise ApiError("internal", f"{TIMEOUT_VARIABLE} is not a number of seconds, such as 25.")
    return float(text)


class Pending(Generic[T]):
    """A call in progress, or one that failed before it was sent."""

    def __init__(self, deadline: float, clock: Callable[[], float]) -> None:
        self._deadline, self._clock = deadline, clock
        self._ended = threading.Event()
        self._values: list[T] = []  # at most one
        self._error: ApiError | None = None

    def end(self, value: T) -> None:
        """Set the result."""
        self._values.append(value)
        self._ended.set()

    def fail(self, error: ApiError) -> None:
        """Set the error that result() raises."""
        self._error = error
        self._ended.set()

    def result(self) -> T:
        """Wait for the result of `read` until the deadline, and return it.

        Raises ApiError with one of the codes remote_timeout, remote_could_not_send_request, remote_invalid_api_key,
        remote_bad_request, remote_remote_error, remote_bad_response, invalid_network_url; error.as_json() is the error object
        that `remoteErrors` shows.
        """
        # The call itself ends at the deadline, but a resolver or an unresponsive connection may hold it longer.
        if not self._ended.wait(max(0.0, self._deadline - self._clock())):
            raise _late()
        if self._error is not None:
            raise self._error
        return self._values[0]


class RemoteCalls:
    """Calls instances of a network on behalf of one request, with the deadline of the request."""

    def __init__(self, network: Network, client: Client, deadline: float, at_once: int | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """deadline: by `clock`, in seconds. at_once: maximum number of concurrent calls; None for no limit."""
        self._network, self._client = network, client
        self._deadline, self._clock = deadline, clock
        self._slots = threading.BoundedSemaphore(at_once) if at_once else None

    def start(self, name: str, method: str, path: str, body: Any, read: Callable[[Any], T],
              headers: Mapping[str, str] = PROXY_SEARCH) -> Pending[T]:
        """Begin a call, and return while it runs. Further calls may start before its result is read.

        name: of a remote of the network. path: replaces path and query of its URL. body: any JSON, encoded before this
        returns. headers: sent in addition to Content-Type and the search key of the remote.
        read: turns the parsed JSON of a response with status 2xx into the result, in the thread of the call. It raises any of
        MISFITS for a response that it cannot use: the call is then tried again, and the last try gives remote_bad_response.
        An ApiError of it becomes the error of the call, without another try.
        """
        pending: Pending[T] = Pending(self._deadline, self._clock)
        remote = self._network.remotes[name]
        try:
            url = _address(remote.url, path)
        except ApiError as error:
            pending.fail(error)
            return pending
        text = dumps(body).encode()
        key = {} if remote.search_key is None else {"Authorization": f"Bearer {remote.search_key}"}
        all_headers = {"Content-Type": "application/json", **key, **headers}

        def exchange(within_s: float) -> Answer:
            return self._client.exchange(url, all_headers, text, within_s, MOST_BYTES, method=method, redirects=REDIRECTS,
                                         proxies=True)

        thread = threading.Thread(target=self._run, args=(exchange, read, pending), name="svcd-remote-call", daemon=True)
        is_started = _free.acquire(blocking=False)  # _run() releases it
        if is_started:
            try:
                thread.start()
            except RuntimeError:  # the system allows no more threads
                _free.release()
                is_started = False
        if not is_started:
            pending.fail(_not_sent())
        return pending

    def _run(self, exchange: Exchange, read: Callable[[Any], T], pending: Pending[T]) -> None:
        """The main function of the thread of a call."""
        try:
            if self._slots is not None and not self._slots.acquire(timeout=max(0.0, self._deadline - self._clock())):
                raise _late()
            try:
                pending.end(self._tried(exchange, read))
            finally:
                if self._slots is not None:
                    self._slots.release()
        except ApiError as error:
            pending.fail(error)
        except BaseException:
            pending.fail(ApiError("internal", "Internal error: a call to a remote ended unexpectedly."))
            raise
        finally:
            _free.release()

    def _tried(self, exchange: Exchange, read: Callable[[Any], T]) -> T:
        """Return the first result of several tries, without pauses, because a client waits. Raises the error of the last try."""
        error = _late()
        for _ in range(TRIES):
            left_s = self._deadline - self._clock()
            if left_s <= 0:
                raise _late()
            try:
                answer = exchange(left_s)
            except Undelivered as failure:
                error = _error_of_failure(failure)
                if failure.is_final:
                    break
                continue
            if answer.status >= 400:
                error = _error_of_status(answer.status, _quoted_reply(answer.body))
                if answer.status < 500:
                    break
                continue
            try:
                return read_answer(answer.body, read)
            except ValueError:
                error = _unreadable(_quoted_reply(answer.body))
        raise error

def _address(url: str, path: str) -> str:
    """Return the URL to call: scheme, host and port of the remote, and a path. Raises invalid_network_url."""
    fault = None
    if not _IN_URLS.fullmatch(url):
        fault = "invalid uri character"
    elif not _ORIGIN.match(url):
        fault = "invalid format" if re.search(r"[/?#]", url) else "scheme missing"
    if fault is not None:
        raise ApiError("invalid_network_url", f"Invalid remote url: {fault}")
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def missing_in_hit(path: str) -> ApiError:
    """The error for a remote whose hit lacks a member. path: such as `._federation`."""
    return ApiError("remote_bad_response", f"remote hit does not contain `{path}`{_SAME_VERSION}")


def unexpected_in_hit(path: str, expected: str, value: Any) -> ApiError:
    """The error for a remote whose hit has a member of a wrong type. expected: such as `map`."""
    return ApiError("remote_bad_response", f"remote hit contains an unexpected value at path `{path}`: expected {expected}, "
                                           f"received `{shortened(dumps(value))}`{_SAME_VERSION}")


def unreadable_scores(reason: str) -> ApiError:
    """The error for a remote whose hit has weighted score values that cannot be compared."""
    return ApiError("remote_bad_response", f"could not parse weighted score values in the remote hit: {reason}")


def _late() -> ApiError:
    return ApiError("remote_timeout", "remote host did not answer before the deadline")


def _unreadable(reply: str) -> ApiError:
    """The error for a response of unexpected form. reply: from _quoted_reply()."""
    return ApiError("remote_bad_response", "could not parse response from the remote host as a federated search "
                                           f"response{reply}{_SAME_VERSION}")


def _error_of_status(status: int, reply: str) -> ApiError:
    """The error for a status of 400 or more. reply: from _quoted_reply()."""
    if status in (401, 403):
        return ApiError("remote_invalid_api_key", _KEY_HINT)
    if status < 500:
        return ApiError("remote_bad_request", f"remote host responded with code {status}{reply}{_REQUEST_HINTS}")
    return ApiError("remote_remote_error", f"remote host responded with code {status}{reply}")


def _not_sent(reason: str = _MOST_FREQUENT) -> ApiError:
    """The error for a remote that svcd could not connect to, or may not call."""
    return ApiError("remote_could_not_send_request", reason)


def _error_of_failure(failure: Undelivered) -> ApiError:
    """The error for a request without a response."""
    if failure.kind is Failure.TIMEOUT:
        return _late()
    if failure.kind is Failure.RESPONSE:
        return _unreadable(f":\n  - additionally, could not retrieve response from remote: {failure}")
    return _not_sent(_NOT_SENT.get(failure.kind, _MOST_FREQUENT))


def _quoted_reply(body: bytes) -> str:
    """Return a response body as error messages quote it."""
    if not body:
        return ""
    try:
        text = dumps(loads(body))
    except ValueError:
        text = body.decode(errors="replace")
    return f":\n  - response from remote: {shortened(text)}"
