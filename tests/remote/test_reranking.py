"""The client of the rerank service. What must hold:

1. The request has query, documents and model, and the key; the answer gives the order, less positions out of range.
2. Each failure has its code, its message and its number of attempts.
3. Pauses grow by ten, up to twice that; after 429 they are longer.
4. At the deadline there is no order, before the first attempt or after a failed one; nothing waits beyond it.
5. No message shows the key.
"""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.remote import Failure, Undelivered
from svcd.remote.client import Answer
from svcd.remote.reranking import DEFAULT_URL, MOST_ATTEMPTS, Reranker

KEY = "a-key-of-a-rerank-service"
LONG_S = 1e12  # longer than all pauses
DOCUMENTS = ['{"id":1}', '{"id":2}', '{"id":3}']


def results(*positions: Any) -> Any:
    return {"results": [{"index": position, "relevance_score": 0.5} for position in positions]}


class Service:
    """Answers with each of `answers` in turn, the last one again and again: a status and a body, or an exception.

    requests: url, headers, body and limit in seconds of each; pauses: as the reranker waited. Each request takes request_s.
    """

    def __init__(self, *answers: Any, request_s: float = 0.0, randomness: float = 0.0) -> None:
        self._answers = list(answers)
        self._request_s = request_s
        self.now = 100.0
        self.requests: list[Any] = []
        self.pauses: list[float] = []
        self.reranker = Reranker(KEY, self._exchange, clock=lambda: self.now, wait=self._wait, randomness=lambda: randomness)

    def order(self, within_s: float = LONG_S) -> list[int] | None:
        return self.reranker.order("Query: q", DOCUMENTS, within_s)

    def _exchange(self, url: str, headers: Any, body: bytes, within_s: float, most_bytes: int) -> Answer:
        self.requests.append((url, headers, json.loads(body), within_s))
        self.now += self._request_s
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, body = answer
        return Answer(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())

    def _wait(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def failure(service: Service) -> tuple[str, str]:
    with pytest.raises(ApiError) as failed:
        service.order()
    return failed.value.code, failed.value.message.removeprefix("Personalization service: ")


def test_the_request_has_what_the_service_expects() -> None:
    service = Service((200, results(2, 0, 1)))
    assert service.order() == [2, 0, 1]
    ((url, headers, body, within_s),) = service.requests
    assert (url, within_s) == (DEFAULT_URL, 30.0) == ("https://api.cohere.ai/v1/rerank", 30.0)
    assert body == {"query": "Query: q", "documents": DOCUMENTS, "model": "rerank-english-v3.0"}
    assert headers["Authorization"] == f"Bearer {KEY}" and headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(("given", "order"), [((2, 7, 0, 3), [2, 0]), ((1, 1), [1, 1]), ((), [])])
def test_positions_are_kept_as_they_come_less_those_out_of_range(given: Any, order: list[int]) -> None:
    assert Service((200, results(*given))).order() == order


@pytest.mark.parametrize(("answer", "code", "message", "attempts"), [
    ((401, {}), "remote_invalid_api_key", "Unauthorized: invalid API key", 1),
    ((400, b"no"), "remote_bad_request", "Bad request: no", 1),
    ((402, b"no"), "remote_bad_response", "Cohere API error: Status 402: no", 1),
    ((404, b"no"), "remote_bad_response", "Cohere API error: Status 404: no", 1),
    ((429, b"no"), "too_many_search_requests", "Rate limited: too many requests", MOST_ATTEMPTS),
    ((500, b"no"), "remote_remote_error", "Internal server error: Status 500: no", MOST_ATTEMPTS),
    ((599, b"no"), "remote_remote_error", "Internal server error: Status 599: no", MOST_ATTEMPTS),
    ((302, b"no"), "remote_bad_response", "Cohere API error: Unexpected status 302: no", MOST_ATTEMPTS),
    ((201, b"no"), "remote_bad_response", "Cohere API error: Unexpected status 201: no", MOST_ATTEMPTS),
    (Undelivered("late", kind=Failure.TIMEOUT), "remote_could_not_send_request", "Network error: Request timeout: late",
     MOST_ATTEMPTS),
    (Undelivered("gone"), "remote_could_not_send_request", "Network error: Network error: gone", MOST_ATTEMPTS),
    (Undelivered("never", is_final=True), "remote_could_not_send_request", "Network error: Network error: never", 1),
])
def test_each_failure_has_its_code_and_attempts(answer: Any, code: str, message: str, attempts: int) -> None:
    service = Service(answer)
    assert failure(service) == (code, message)
    assert len(service.requests) == attempts


@pytest.mark.parametrize("body", [b"", b"{", b"[]", {}, {"results": 1}, {"results": [1]}, {"results": [{}]}, results(-1),
                                  results(1.5), results(True), results(None)])
def test_an_answer_that_cannot_be_read_is_tried_again(body: Any) -> None:
    code, message = failure(Service((200, body)))
    assert code == "remote_bad_response" and message.startswith("Failed to parse response: Failed to parse response: ")
    service = Service((200, body), (200, results(1)))
    assert service.order() == [1] and len(service.requests) == 2


def test_pauses_grow_by_ten() -> None:
    service = Service((500, b""), (429, b""), (500, b""), (200, results(0)))
    assert service.order() == [0]
    assert service.pauses == pytest.approx([0.001, 0.11, 0.1])


def test_pauses_are_up_to_twice_as_long() -> None:
    service = Service((500, b""), (500, b""), (200, results(0)), randomness=0.999)
    assert service.order() == [0]
    assert service.pauses == pytest.approx([0.002, 0.02], rel=0.01)


def test_nothing_is_asked_after_the_deadline() -> None:
    service = Service((200, results(0)))
    assert service.order(0.0) is None and service.order(-1.0) is None
    assert service.requests == []


def test_a_request_under_way_is_waited_for() -> None:
    assert Service((200, results(1)), request_s=5.0).order(1.5) == [1]


@pytest.mark.parametrize(("make", "attempts"), [
    (lambda: Service((500, b""), request_s=2.0), 1),  # over after the request
    (lambda: Service((500, b"")), 5),  # after 1, 10, 100, 1000 ms the pause of 10 s would be too long
])
def test_no_pause_goes_beyond_the_deadline(make: Callable[[], Service], attempts: int) -> None:
    service = make()
    assert service.order(1.5) is None
    assert len(service.requests) == attempts and service.now < 100.0 + max(1.5, 2.0) + 0.001


def test_failures_that_are_final_are_said_after_the_deadline_as_well() -> None:
    with pytest.raises(ApiError):
        Service((401, {}), request_s=2.0).order(1.5)


def test_messages_never_show_the_key() -> None:
    _, message = failure(Service((400, f"bad key {KEY}".encode())))
    assert KEY not in message and message.startswith("Bad request: bad key a-k")


def test_a_long_answer_is_cut_in_messages() -> None:
    _, message = failure(Service((400, b"x" * 20_000)))
    assert len(message) < 10_100 and message.endswith("...")
