"""What must hold of requests to embedding services:

1. Network errors, answers that are no JSON, 5xx and unknown statuses are tried again ten times, after pauses of 1, 10, 100 ms
   and so on, at most a minute, of which a random part from a half to the whole is waited.
2. 429 waits 100 ms more, or as long as the service says.
3. 400, 401, other 4xx, answers without vectors, of another number or length, and addresses that are not allowed end it at once.
4. Errors have the words of the interface; keys are masked in them.
5. A search waits for no more than its time.
6. Several requests are made at once; the first error ends the others; abort() ends all.
7. Requests and failures are counted.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from svcd.embedding import EmbeddingError, Environment, RequestCounts, embedder_of
from svcd.embedding.embedder import USER
from svcd.remote.guard import Guard
from tests.embedding.conftest import Pauses
from tests.support.scripted_server import PATIENCE_S, Reply, ScriptedServer, by_body

Make = Callable[..., Environment]
ONE = {"request": "{{text}}", "response": "{{embedding}}", "dimensions": 2}
MANY = {"request": {"input": ["{{text}}", "{{..}}"]}, "response": {"output": [{"e": "{{embedding}}"}, "{{..}}"]}, "dimensions": 2}
GOOD = Reply([1, 2])


def rest(service: ScriptedServer, environment: Environment, **members: Any) -> Any:
    return embedder_of({"source": "rest", "url": service.url, **ONE, **members}, environment)


def failure(embedder: Any, *texts: str) -> str:
    with pytest.raises(EmbeddingError) as error:
        embedder.embed(texts or ("a",))
    return str(error.value)


def test_passing_faults_are_tried_again_after_growing_pauses(service: ScriptedServer, environment: Make, pauses: Pauses) -> None:
    service.replies = [Reply(b"half", length=100), Reply(b"no JSON"), Reply(status=500), Reply(status=302), GOOD]
    assert [list(vector) for vector in rest(service, environment()).embed(["a"])] == [[1, 2]]
    assert pauses.seconds == [0.001, 0.01, 0.1, 1.0]
    assert service.bodies == ["a"] * 5


def test_after_ten_pauses_it_ends(service: ScriptedServer, environment: Make, pauses: Pauses) -> None:
    service.replies = [Reply(b"sorry", 503)]
    counts = RequestCounts()
    with pytest.raises(EmbeddingError) as error:
        rest(service, environment()).embed(["a"], counts)
    assert str(error.value) == ("runtime error: received internal error HTTP 503 from embedding server\n"
                                "  - server replied with `sorry`")
    assert error.value.fault != USER
    assert pauses.seconds == [0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 60.0, 60.0, 60.0, 60.0]
    assert (counts.total, counts.failed, counts.last_error) == (11, 11, str(error.value))


def test_pauses_are_random_and_the_environment_limits_them(service: ScriptedServer, environment: Make, pauses: Pauses) -> None:
    service.replies = [Reply(status=500)]
    limited = environment(SVC_EXPERIMENTAL_REST_EMBEDDER_MAX_RETRY_DURATION_SECONDS="0.05")
    object.__setattr__(limited, "random", lambda: 0.0)
    failure(rest(service, limited))
    assert pauses.seconds[:4] == [0.0005, 0.005, 0.025, 0.025]


def test_too_many_requests_wait_longer(service: ScriptedServer, environment: Make, pauses: Pauses) -> None:
    busy = [Reply("slow down", 429, {"Retry-After": after}) for after in ("", "7", "Wed, 21 Oct 2026 07:28:00 GMT", "3600")]
    service.replies = [*busy, GOOD]
    rest(service, environment()).embed(["a"])
    assert pauses.seconds == [pytest.approx(0.101), 7.0, pytest.approx(0.2), 60.0]


@pytest.mark.parametrize("answer, message", [
    (Reply(b"no", 400), "user error: sent a bad request to embedding server\n  - Hint: check that the `request` in the embedder "
                         "configuration matches the remote server's API\n  - server replied with `no`"),
    (Reply(b"no", 401), "user error: could not authenticate against embedding server\n  - server replied with `no`\n"
                         "  - Hint: Check the `apiKey` parameter in the embedder configuration"),
    (Reply(b"no", 404), "error: received unexpected HTTP 404 from embedding server\n  - server replied with `no`"),
    (Reply(b"\xff", 403), "error: received unexpected HTTP 403 from embedding server"),
    (Reply({"data": 1}), "runtime error: error extracting embeddings from the response:\n  - in `response`, while extracting a "
                          'single "{{embedding}}", expected `response` to be an array of numbers, but failed to parse server '
                          "response:\n  - invalid type: map, expected a sequence"),
    (Reply([1, 2, 3]), "runtime error: was expecting embeddings of dimension `2`, got embeddings of dimensions `3`"),
])
def test_other_faults_end_it_at_once(service: ScriptedServer, environment: Make, pauses: Pauses, answer: Reply, message: str) -> None:
    service.replies = [answer]
    assert failure(rest(service, environment())) == message
    assert (len(service.requests), pauses.seconds) == (1, [])


def test_a_wrong_number_of_vectors_ends_it(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply({"output": [{"e": [1, 2]}]})]
    assert failure(rest(service, environment(), **MANY), "a", "b") == (
        "runtime error: expected a response containing 2 embeddings, got only 1")


def test_addresses_that_are_not_allowed_are_not_tried_again(service: ScriptedServer, environment: Make, pauses: Pauses) -> None:
    walled = environment()
    object.__setattr__(walled, "guard", Guard())
    message = failure(rest(service, walled))
    assert message.startswith("runtime error: could not reach embedding server:\n  - 127.0.0.1 is a loopback address")
    assert (pauses.seconds, service.requests) == ([], [])


def test_the_key_is_sent_and_masked_in_errors(service: ScriptedServer, environment: Make) -> None:
    key = "sk-0123456789abcdef0123456789abcdef"
    service.replies = [Reply(f"wrong key: {key}".encode(), 401)]
    message = failure(rest(service, environment(), apiKey=key, headers={"X-Team": "a", "content-type": "text/x"}))
    assert key not in message and "wrong key: sk-01XXXXXX..." in message
    sent = service.requests[0].headers
    assert (sent["authorization"], sent["x-team"], sent["content-type"]) == (f"Bearer {key}", "a", "text/x")


def test_a_long_reply_is_shortened(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply(b"x" * 100_000, 400)]
    assert len(failure(rest(service, environment()))) < 11_000


def test_a_search_waits_for_no_more_than_its_time(service: ScriptedServer, environment: Make, pauses: Pauses) -> None:
    service.replies = [Reply(status=500)]
    with pytest.raises(EmbeddingError, match="HTTP 500"):
        rest(service, environment()).embed_query("a", within_s=3.0)
    assert sum(pauses.seconds) < 3.0


def test_a_service_that_says_nothing_is_left(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply(is_held=True)]
    with pytest.raises(EmbeddingError, match="could not reach embedding server:\n  - no answer in time"):
        rest(service, environment()).embed_query("a", within_s=0.05)


def test_the_environment_limits_the_time_of_a_request(service: ScriptedServer, environment: Make, pauses: Pauses) -> None:
    service.replies = [Reply(is_held=True), GOOD]
    embedder = rest(service, environment(SVC_EXPERIMENTAL_REST_EMBEDDER_TIMEOUT_SECONDS="0.05"))
    assert len(embedder.embed(["a"])) == 1
    assert pauses.seconds == [0.001]


def test_inputs_are_sent_in_tens_and_come_back_in_order(service: ScriptedServer, environment: Make) -> None:
    service.replies = [by_body(lambda body: Reply({"output": [{"e": [float(text), 0]} for text in body["input"]]}))]
    counts = RequestCounts()
    embedder = rest(service, environment(), **MANY)
    assert [vector[0] for vector in embedder.embed([str(number) for number in range(95)], counts)] == list(range(95))
    assert sorted(len(body["input"]) for body in service.bodies) == [5] + [10] * 9
    assert (counts.total, counts.failed, counts.last_error) == (10, 0, None)
    assert (embedder.inputs_per_request, embedder.embed([])) == (10, [])


def test_several_requests_are_made_at_once(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply([1, 2], is_held=True)]
    embedder = rest(service, environment())
    thread = threading.Thread(target=embedder.embed, args=(["a"] * 20,))
    thread.start()
    for _ in range(embedder.requests_at_once):
        service.wait_for_call()
    service.release()
    thread.join(PATIENCE_S)
    assert service.most_at_once == embedder.requests_at_once
    assert len(service.requests) == 20


def test_the_first_error_ends_the_others(service: ScriptedServer, environment: Make) -> None:
    service.replies = [by_body(lambda body: Reply(b"no", 400 if body == "3" else 500))]
    waits = threading.Event()
    patient = environment()
    object.__setattr__(patient, "wait", lambda stop, seconds: waits.set() or stop.wait(PATIENCE_S))
    assert "bad request" in failure(rest(service, patient), *map(str, range(50)))
    assert len(service.requests) < 50


def test_abort_ends_pauses_and_requests(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply(status=500), Reply(is_held=True)]
    paused = threading.Event()
    patient = environment()
    object.__setattr__(patient, "wait", lambda stop, seconds: paused.set() or stop.wait(PATIENCE_S))
    embedder = rest(service, patient)
    messages: list[str] = []
    thread = threading.Thread(target=lambda: messages.append(failure(embedder, "a", "b")))
    thread.start()
    assert paused.wait(PATIENCE_S)
    service.wait_for_call()
    service.wait_for_call()
    embedder.abort()
    thread.join(PATIENCE_S)
    assert messages and not thread.is_alive()
