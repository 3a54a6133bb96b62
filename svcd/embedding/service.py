"""One embedding service over HTTP: requests of several inputs, retries with pauses, and errors in the wording of the interface.

Network errors, responses that are not JSON, 5xx and unknown statuses are retried after pauses of 1, 10, 100 ms and so on; 429
after 100 ms more or when the service says; other statuses are not retried. See docs/embedders.md#requests-and-retries.
"""
from __future__ import annotations

import itertools
import json
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from svcd.base import json_text, logs
from svcd.embedding.embedder import RUNTIME, UNDECIDED, USER, EmbeddingError, Environment, RequestCounts, ServiceError
from svcd.remote import Undelivered
from svcd.schema.exchange_templates import ExchangeTemplate, TemplateMismatch
from svcd.validation.urls import shown_reply
from svcd.vectors.vector import LARGEST, vector_of

if TYPE_CHECKING:
    from svcd.remote.client import Answer, Client

TIMEOUT_VARIABLE, DEFAULT_TIMEOUT_S = "SVC_EXPERIMENTAL_REST_EMBEDDER_TIMEOUT_SECONDS", 30.0
PAUSE_VARIABLE, DEFAULT_LONGEST_PAUSE_S = "SVC_EXPERIMENTAL_REST_EMBEDDER_MAX_RETRY_DURATION_SECONDS", 60.0
MOST_RETRIES = 10
# After 429 each pause is longer by this.
RATE_LIMIT_PAUSE_S = 0.1
# Ten vectors of 4,096 numbers have about 1 MB of JSON. A service that sends more than 32 MB is broken or hostile.
MOST_ANSWER_BYTES = 32 << 20


@dataclass(frozen=True)
class Wording:
    """The wording of messages about one kind of service. name: before `server`. key_hint, request_hint: end two messages."""

    name: str
    key_hint: str = "\n  - Hint: Check the `apiKey` parameter in the embedder configuration"
    request_hint: str = ""


REST = Wording("embedding", request_hint="\n  - Hint: check that the `request` in the embedder configuration matches the "
                                         "remote server's API")


@dataclass(frozen=True)
class Endpoint:
    """How to call a service. api_key: None without a key. headers: additional ones, from the settings."""

    url: str
    api_key: str | None
    headers: Mapping[str, str]
    request: ExchangeTemplate
    response: ExchangeTemplate
    wording: Wording


class _Failed(Exception):
    """One attempt failed. again_after_s: attempt number -> seconds to wait before the next one; None: do not retry."""

    def __init__(self, error: EmbeddingError, again_after_s: Callable[[int], float] | None) -> None:
        super().__init__(str(error))
        self.error, self.again_after_s = error, again_after_s


class Service:
    """Sends inputs to one endpoint. Any thread may call concurrently."""

    def __init__(self, endpoint: Endpoint, environment: Environment) -> None:
        self._endpoint, self._environment = endpoint, environment
        self._timeout_s = environment.seconds(TIMEOUT_VARIABLE, DEFAULT_TIMEOUT_S)
        self._longest_pause_s = environment.seconds(PAUSE_VARIABLE, DEFAULT_LONGEST_PAUSE_S)
        self._lock = threading.Lock()
        self._client: Client | None = None

    def vectors(self, inputs: Sequence[Any], count: int, dimensions: int | None, stop: threading.Event,
                counts: RequestCounts | None = None, deadline: float | None = None) -> list[array[float]]:
        """Return the vectors of one request. Raises EmbeddingError.

        inputs: injected into the request. count: number of vectors expected, each with `dimensions` numbers, if known. stop: set
        to end pauses. deadline: by the clock of the environment; None if retries may take minutes.
        """
        body = json.dumps(self._endpoint.request.inject(inputs), ensure_ascii=False).encode("utf-8", "replace")
        for attempt in itertools.count():
            within_s = self._timeout_s if deadline is None else min(self._timeout_s, deadline - self._environment.clock())
            try:
                vectors = self._attempt(body, count, dimensions, max(within_s, 0.001))
            except _Failed as failed:
                if counts is not None:
                    counts.add(failed.error)
                logs.warn("request to an embedding service failed", attempt=attempt + 1, error=str(failed.error))
                if failed.again_after_s is None or attempt >= MOST_RETRIES or stop.is_set():
                    raise failed.error from None
                pause_s = min(failed.again_after_s(attempt), self._longest_pause_s) * (0.5 + self._environment.random() / 2)
                if deadline is not None and self._environment.clock() + pause_s >= deadline:
                    raise failed.error from None
                if self._environment.wait(stop, pause_s):
                    raise EmbeddingError(RUNTIME, "the work was stopped") from None
            else:
                if counts is not None:
                    counts.add()
                return vectors
        raise AssertionError("the last attempt returns or raises")

    def abort(self) -> None:
        """End running requests."""
        with self._lock:
            client = self._client
        if client is not None:
            client.abort()

    def _attempt(self, body: bytes, count: int, dimensions: int | None, within_s: float) -> list[array[float]]:
        answer = self._answer(body, within_s)
        if not 200 <= answer.status < 300:
            raise self._refused(answer)
        try:
            response = json_text.loads(answer.body)
        except ValueError as error:
            raise _Failed(EmbeddingError(
                RUNTIME, f"error deserializing the response body as JSON:\n  - {error}"), _growing) from None
        vectors: list[array[float]] = []
        try:
            for numbers in self._endpoint.response.extract(response):
                try:
                    vectors.append(vector_of(numbers))
                except OverflowError:  # an integer of more than 300 digits
                    vectors.append(vector_of(max(-LARGEST, min(LARGEST, number)) for number in numbers))
        except TemplateMismatch as mismatch:
            raise _Failed(EmbeddingError(
                RUNTIME, f"error extracting embeddings from the response:\n  - {mismatch}"), None) from None
        if len(vectors) != count:
            raise _Failed(EmbeddingError(
                RUNTIME, f"expected a response containing {count} embeddings, got only {len(vectors)}"), None)
        for vector in vectors:
            if dimensions is not None and len(vector) != dimensions:
                raise _Failed(EmbeddingError(RUNTIME, f"was expecting embeddings of dimension `{dimensions}`, got embeddings of "
                                                      f"dimensions `{len(vector)}`"), None)
            if not vector:
                raise _Failed(EmbeddingError(RUNTIME, "expected embeddings of at least one number, got an empty one"), None)
        return vectors

    def _answer(self, body: bytes, within_s: float) -> Answer:
        from svcd.remote.client import Client  # loaded for the first request, because it loads urllib and OpenSSL

        with self._lock:
            client = self._client = self._client or Client(self._environment.guard, self._timeout_s)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._endpoint.api_key:
            headers["Authorization"] = f"Bearer {self._endpoint.api_key}"
        try:
            return client.exchange(self._endpoint.url, {**headers, **self._endpoint.headers}, body, within_s, MOST_ANSWER_BYTES)
        except Undelivered as failure:
            error = EmbeddingError(RUNTIME, f"could not reach embedding server:\n  - {failure}")
            raise _Failed(error, None if failure.is_final else _growing) from None

    def _refused(self, answer: Answer) -> _Failed:
        status, words = answer.status, self._endpoint.wording
        try:  # messages repeat the response, with key and headers masked
            shown = shown_reply(answer.body.decode(), self._endpoint.api_key or "", *self._endpoint.headers.values())
            reply = f"\n  - server replied with `{shown}`"
        except UnicodeDecodeError:
            reply = ""
        if status == 401:
            reason = f"could not authenticate against {words.name} server{reply}{words.key_hint}"
            return _Failed(ServiceError(USER, reason, status, ""), None)
        if status == 400:
            reason = f"sent a bad request to embedding server{words.request_hint}"
            return _Failed(ServiceError(USER, reason, status, reply), None)
        if status == 429:
            given = answer.headers.get("retry-after", "").strip()  # in seconds; a date is ignored
            wait_s = float(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0.0
            error = ServiceError(RUNTIME, "sent too many requests to embedding server", status, reply)
            return _Failed(error, lambda attempt: max(RATE_LIMIT_PAUSE_S + _growing(attempt), wait_s))
        if 500 <= status < 600:
            reason = f"received internal error HTTP {status} from embedding server"
            return _Failed(ServiceError(RUNTIME, reason, status, reply), _growing)
        reason = f"received unexpected HTTP {status} from embedding server"
        error = ServiceError(UNDECIDED, reason, status, reply)
        return _Failed(error, None if 400 < status < 500 else _growing)


def _growing(attempt: int) -> float:
    """Return the pause in seconds after an attempt, counted from 0."""
    return float(10 ** attempt) / 1000
