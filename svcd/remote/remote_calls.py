"""Requests to the other instances of a network: several at once, each tried up to four times, all within one deadline.

What goes wrong is an error of the interface, with the code and words that clients of a network know (docs/network.md#failures).
The two names of a header (Svc-..., Meili-...) are both sent, so that instances of the reference engine can be remotes.

Threads: each call has one, which ends with the call; nothing is shared but the pending result.
"""
from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit, urlunsplit

from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.remote import Undelivered, remote_errors
from svcd.validation.answers import read_answer

if TYPE_CHECKING:
    from svcd.instance.network import Network, Remote
    from svcd.remote.client import Answer, Client

T = TypeVar("T")
Exchange = Callable[[float], "Answer"]  # seconds -> the answer of one try; raises Undelivered

TIMEOUT_VARIABLE = "SVC_EXPERIMENTAL_REMOTE_SEARCH_TIMEOUT_SECONDS"
DEFAULT_TIMEOUT_S = 25.0
BRANDS = ("Svc", "Meili")
TRIES = 4
REDIRECTS = 10
# An answer is held in memory as a whole. This is far more than a page of documents needs, and keeps a broken host from
# filling the memory.
MOST_BYTES = 512 << 20
# Calls under way in this process, each with a thread. A request that fails does not wait for its calls, so that requests alone
# do not bound them.
MOST_CALLS = 1000

# What the address of an instance begins with; those of other schemes are not called, though they may be stored.
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]+")
_IN_URLS = re.compile(r"[!#-;=?-\[\]_a-z~]*")

_free = threading.BoundedSemaphore(MOST_CALLS)


def branded(header: str, value: str) -> dict[str, str]:
    """A header under both of its names. header: without its brand, as `Proxy-Search`."""
    return {f"{brand}-{header}": value for brand in BRANDS}


PROXY_SEARCH = branded("Proxy-Search", "true")
INCLUDE_METADATA = branded("Include-Metadata", "true")


def timeout_s(environment: Mapping[str, str]) -> float:
    """Seconds that the other instances have together to answer one request. Raises ApiError internal for a bad variable."""
    text = environment.get(TIMEOUT_VARIABLE)
    if text is None:
        return DEFAULT_TIMEOUT_S
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        raise ApiError("internal", f"{TIMEOUT_VARIABLE} is not a number of seconds, such as 25.")
    return float(text)


class Pending(Generic[T]):
    """A call under way, or one that failed before anything was sent."""

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
        """What `read` has made of the answer; waits for it until the deadline.

        Raises ApiError with one of the codes remote_timeout, remote_could_not_send_request, remote_invalid_api_key,
        remote_bad_request, remote_remote_error, remote_bad_response, invalid_network_url; error.as_json() is the error object
        that `remoteErrors` shows.
        """
        # The call itself ends at the deadline, but a resolver or a connection without an answer may hold it longer.
        if not self._ended.wait(max(0.0, self._deadline - self._clock())):
            raise remote_errors.late()
        if self._error is not None:
            raise self._error
        return self._values[0]


class RemoteCalls:
    """Calls instances of a network; made for one request, since its deadline is that of the request."""

    def __init__(self, network: Network, client: Client, deadline: float, at_once: int | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """deadline: by `clock`, in seconds. at_once: how many calls run at the same time; None for all."""
        self._network, self._client = network, client
        self._deadline, self._clock = deadline, clock
        self._slots = threading.BoundedSemaphore(at_once) if at_once else None

    def start(self, name: str, method: str, path: str, body: Any, read: Callable[[Any], T],
              headers: Mapping[str, str] = PROXY_SEARCH) -> Pending[T]:
        """Begin a call, and return while it runs. Calls of the same or other remotes may be started before its result is read.

        name: of a remote of the network. path: replaces path and query of its URL. body: any JSON, encoded before this
        returns. headers: beside Content-Type and the search key of the remote.
        read: given the parsed JSON of an answer with status 2xx; what it returns is the result. It raises any of MISFITS for an
        answer that it cannot use: such a call is tried again, and is at last remote_bad_response.
        It runs in the thread of the call. An ApiError of it is passed on as the result, without another try.
        """
        pending: Pending[T] = Pending(self._deadline, self._clock)
        remote = self._network.remotes[name]
        try:
            url = _address(remote.url, path)
        except ApiError as error:
            pending.fail(error)
            return pending
        text = dumps(body).encode()
        all_headers = {"Content-Type": "application/json", **_authorization(remote), **headers}

        def exchange(within_s: float) -> Answer:
            return self._client.exchange(url, all_headers, text, within_s, MOST_BYTES, method=method, redirects=REDIRECTS,
                                         proxies=True)

        thread = threading.Thread(target=self._run, args=(exchange, read, pending), name="svcd-remote-call", daemon=True)
        if not _is_started(thread):
            pending.fail(remote_errors.not_sent())
        return pending

    def _run(self, exchange: Exchange, read: Callable[[Any], T], pending: Pending[T]) -> None:
        """The main function of the thread of a call."""
        try:
            with self._slot():
                pending.end(self._tried(exchange, read))
        except ApiError as error:
            pending.fail(error)
        except BaseException:
            pending.fail(ApiError("internal", "Internal error: a call to a remote ended unexpectedly."))
            raise
        finally:
            _free.release()

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Be one of the calls that run at once. Raises remote_timeout."""
        if self._slots is None:
            yield
            return
        if not self._slots.acquire(timeout=max(0.0, self._left_s())):
            raise remote_errors.late()
        try:
            yield
        finally:
            self._slots.release()

    def _tried(self, exchange: Exchange, read: Callable[[Any], T]) -> T:
        """The first result of several tries, without pauses between them: a client waits. Raises the error of the last try."""
        error = remote_errors.late()
        for _ in range(TRIES):
            left_s = self._left_s()
            if left_s <= 0:
                raise remote_errors.late()
            try:
                return _read(exchange(left_s), read)
            except Undelivered as failure:
                error = remote_errors.error_of_failure(failure)
                if failure.is_final:
                    break
            except _Unusable as unusable:
                error = unusable.error
        raise error

    def _left_s(self) -> float:
        return self._deadline - self._clock()


def _is_started(thread: threading.Thread) -> bool:
    """Start the thread of a call if there may be one more; it releases `_free`."""
    if not _free.acquire(blocking=False):
        return False
    try:
        thread.start()
    except RuntimeError:  # the system has no more threads
        _free.release()
        return False
    return True


class _Unusable(Exception):
    """An answer that another try may replace by a better one. error: what it is if none does."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(str(error))
        self.error = error


def _read(answer: Answer, read: Callable[[Any], T]) -> T:
    """What an answer contains. Raises ApiError, and _Unusable when another try is worth it."""
    if answer.status >= 400:
        error = remote_errors.error_of_status(answer.status, remote_errors.quoted_reply(answer.body))
        raise _Unusable(error) if answer.status >= 500 else error
    try:
        return read_answer(answer.body, read)
    except ValueError:
        raise _Unusable(remote_errors.unreadable(remote_errors.quoted_reply(answer.body))) from None


def _authorization(remote: Remote) -> dict[str, str]:
    return {} if remote.search_key is None else {"Authorization": f"Bearer {remote.search_key}"}


def _address(url: str, path: str) -> str:
    """The URL that is called: scheme, host and port of the remote, and a path. Raises invalid_network_url."""
    if not _IN_URLS.fullmatch(url):
        raise _invalid_url("invalid uri character")
    if not _ORIGIN.match(url):
        raise _invalid_url("invalid format" if re.search(r"[/?#]", url) else "scheme missing")
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _invalid_url(reason: str) -> ApiError:
    return ApiError("invalid_network_url", f"Invalid remote url: {reason}")
