"""The rerank service: returns the order in which documents suit a user, by one request with retries until a deadline.

It retries after time-outs, failed connections, unreadable responses, 429, 5xx and unknown statuses, with pauses of 1, 10, 100 ms
and so on, each up to twice as long, 100 ms longer after 429. Import it late: only personalized searches need it. See
docs/personalization.md#the-rerank-service.
"""
from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.remote import Failure, Undelivered
from svcd.validation.answers import read_answer
from svcd.validation.urls import shown_reply

if TYPE_CHECKING:
    from svcd.remote.client import Answer

URL_VARIABLE, DEFAULT_URL = "SVC_EXPERIMENTAL_PERSONALIZATION_URL", "https://api.cohere.ai/v1/rerank"
MODEL = "rerank-english-v3.0"
TIMEOUT_S = 30.0
MOST_ATTEMPTS = 11
RATE_LIMIT_PAUSE_S = 0.1
# A response has about 60 bytes for each document, unless the service repeats the documents.
MOST_ANSWER_BYTES = 32 << 20

Exchange = Callable[[str, Mapping[str, str], bytes, float, int], "Answer"]  # as Client.exchange


class _Failed(Exception):
    """An attempt failed. again_after_s: the shortest pause before the next attempt; None: do not retry."""

    def __init__(self, code: str, reason: str, again_after_s: float | None) -> None:
        super().__init__(reason)
        self.error = ApiError(code, f"Personalization service: {reason}")
        self.again_after_s = again_after_s


class Reranker:
    """Asks one rerank service. Any thread may call.

    Tests replace clock (returns seconds), wait (takes seconds) and randomness (returns 0 to 1).
    """

    def __init__(self, key: str, exchange: Exchange, url: str = DEFAULT_URL, *, clock: Callable[[], float] = time.monotonic,
                 wait: Callable[[float], None] = time.sleep, randomness: Callable[[], float] = random.random) -> None:
        self._key, self._exchange, self._url = key, exchange, url
        self._clock, self._wait = clock, wait
        self._random = randomness

    def order(self, query: str, documents: Sequence[str], within_s: float) -> list[int] | None:
        """Return the positions of the documents, best first; the service may leave some out, or repeat them.

        None if the time is over before the first attempt, or after a failed attempt that may be repeated; a request in progress
        may take up to TIMEOUT_S. Raises remote_invalid_api_key, remote_bad_request, remote_bad_response,
        remote_remote_error, remote_could_not_send_request, too_many_search_requests.
        """
        deadline = self._clock() + within_s
        body = json.dumps({"query": query, "documents": documents, "model": MODEL}, ensure_ascii=False).encode("utf-8", "replace")
        for attempt in range(MOST_ATTEMPTS):
            if self._clock() >= deadline:
                return None
            try:
                return [position for position in self._attempt(body, attempt) if position < len(documents)]
            except _Failed as failed:
                logs.warn("request to the personalization service failed", attempt=attempt + 1, error=str(failed))
                if failed.again_after_s is None or attempt == MOST_ATTEMPTS - 1:
                    raise failed.error from None
                pause_s = failed.again_after_s * (1 + self._random())
                if self._clock() + pause_s >= deadline:
                    return None
                self._wait(pause_s)
        raise AssertionError("unreachable")

    def _attempt(self, body: bytes, attempt: int) -> list[int]:
        pause_s = float(10 ** attempt) / 1000
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Authorization": f"Bearer {self._key}"}
        try:
            answer = self._exchange(self._url, headers, body, TIMEOUT_S, MOST_ANSWER_BYTES)
        except Undelivered as failure:
            kind = "Request timeout" if failure.kind is Failure.TIMEOUT else "Network error"
            raise _Failed("remote_could_not_send_request", f"Network error: {kind}: {failure}",
                          None if failure.is_final else pause_s) from None
        if answer.status != 200:
            raise self._refused(answer.status, shown_reply(answer.body.decode("utf-8", "replace"), self._key), pause_s)
        try:
            return read_answer(answer.body, positions)
        except ValueError as error:
            raise _Failed("remote_bad_response", f"Failed to parse response: Failed to parse response: {error}",
                          pause_s) from None

    def _refused(self, status: int, text: str, pause_s: float) -> _Failed:
        if status == 401:
            return _Failed("remote_invalid_api_key", "Unauthorized: invalid API key", None)
        if status == 400:
            return _Failed("remote_bad_request", f"Bad request: {text}", None)
        if status == 429:
            return _Failed("too_many_search_requests", "Rate limited: too many requests", RATE_LIMIT_PAUSE_S + pause_s)
        if 402 <= status < 500:
            return _Failed("remote_bad_response", f"Cohere API error: Status {status}: {text}", None)
        if 500 <= status < 600:
            return _Failed("remote_remote_error", f"Internal server error: Status {status}: {text}", pause_s)
        return _Failed("remote_bad_response", f"Cohere API error: Unexpected status {status}: {text}", pause_s)


def positions(answer: Any) -> list[int]:
    """Return the positions that a response lists. Raises ValueError if it lists none."""
    rows = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise ValueError("missing field `results`, a list")
    found = []
    for row in rows:
        index = row.get("index") if isinstance(row, dict) else None
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise ValueError("an element of `results` has no `index`, a number from 0")
        found.append(index)
    return found
