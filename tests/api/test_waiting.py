"""1. A write that waits is answered with its finished task and 200; when time is up, with its summary, as without.
2. Every write takes `wait`, beside its other parameters, and nothing else does.
3. A duration has a unit and a bound; another is refused before anything is enqueued.
4. A client that leaves, the stop of svcd, and too many that wait, end the waiting at once.
"""
from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from svcd.api.all_routes import ROUTES
from svcd.api.openapi import operation_id
from svcd.api.routes import Route
from svcd.api.tasks import MAX_S, is_write, parse_duration
from svcd.instance.task_records import FAILED, SUCCEEDED
from tests.api.conftest import JSON_TYPE

CREATE = b'{"uid":"films"}'


def finish(client: Any, status: str = SUCCEEDED) -> None:
    """End all tasks that wait, as one batch."""
    queue = client.instance.queue
    running = queue.start(list(queue.enqueued([row.kind for row in queue.tasks_of(range(100))])), "test")
    with queue.finishing() as connection:
        running.batch.finished_at = queue.next_moment()
        queue.finish(connection, running, [replace(task, status=status, finished_at=running.batch.finished_at)
                                           for task in running.tasks.values()])
    queue.forget(running)


@pytest.fixture
def at_once(client: Any) -> Any:
    """A client of an instance that ends each task as soon as it is enqueued."""
    client.instance.queue.on_enqueued = lambda task: finish(client)
    return client


def test_the_finished_task_is_the_answer(at_once, check_shape) -> None:
    got = at_once.send("POST", "/indexes?wait=5m", CREATE, JSON_TYPE)
    assert got.status == 200
    check_shape(got.value, "Task")
    assert (got.value["uid"], got.value["status"], got.value["type"]) == (0, "succeeded", "indexCreation")
    assert got.value == at_once.get("/tasks/0").value


def test_a_failed_task_is_an_answer_too(client) -> None:
    client.instance.queue.on_enqueued = lambda task: finish(client, FAILED)
    got = client.send("POST", "/indexes?wait=5m", CREATE, JSON_TYPE)
    assert (got.status, got.value["status"]) == (200, "failed")


def test_it_wakes_when_the_task_ends(client) -> None:
    got: list[Any] = []
    listening = threading.Event()
    when_ended = client.instance.queue.listeners.when_ended
    client.instance.queue.listeners.when_ended = lambda uid: (listening.set(), when_ended(uid))[1]
    waits = threading.Thread(target=lambda: got.append(client.send("POST", "/indexes?wait=5m", CREATE, JSON_TYPE)))
    waits.start()
    assert listening.wait(10)
    finish(client)
    waits.join(10)
    assert got[0].status == 200 and got[0].value["status"] == "succeeded"


@pytest.mark.parametrize("wait", ["0ms", "1ms", "0.001s", "0m"])
def test_when_time_is_up_the_summary_is_the_answer(client, check_shape, wait: str) -> None:
    got = client.send("POST", f"/indexes?wait={wait}", CREATE, JSON_TYPE)
    assert got.status == 202
    check_shape(got.value, "TaskSummary")
    got = client.send("POST", f"/tasks/cancel?wait={wait}&uids=*")
    assert got.status == 200
    check_shape(got.value, "TaskSummary")


WRITES = [row for row in ROUTES if is_write(row)]


@pytest.mark.parametrize("row", WRITES, ids=operation_id)
def test_every_write_knows_it(client, row: Route) -> None:
    path = row.path.replace("{index_uid}", "films").replace("{document_id}", "1").replace("{uid}", "1")
    message = client.send(row.method, f"{path}?wait=soon", b"{}", JSON_TYPE).value["message"]
    assert message.startswith("Invalid value in parameter `wait`: could not parse `soon` as a duration")
    assert "`wait`" not in client.send(row.method, f"{path}?wait=1ms", b"{}", JSON_TYPE).text


def test_other_parameters_stay_what_they_are(at_once) -> None:
    got = at_once.send("DELETE", "/indexes/films/documents?customMetadata=a%26wait%3D1&wait=1m")
    assert (got.status, got.value["customMetadata"]) == (200, "a&wait=1")
    fault = at_once.send("DELETE", "/tasks?wait=1m&doggo=1").fault
    assert fault[:2] == (400, "bad_request") and "`doggo`" in fault[2]
    assert at_once.send("DELETE", "/tasks?wait=1m").fault[1] == "missing_task_filters"


def test_lists_do_not_wait(client) -> None:
    assert client.get("/tasks?wait=1ms").fault[1] == "bad_request"


@pytest.mark.parametrize(("text", "seconds"), [
    ("500ms", 0.5), ("2s", 2.0), ("1.5s", 1.5), ("0.25m", 15.0), ("0ms", 0.0), (f"{MAX_S}s", MAX_S), ("5m", 300.0),
])
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "500", "ms", "-1s", "+1s", "1 s", "1h", "1S", "1e3ms", ".5s", "1.s", "nan", "١s"])
def test_what_is_no_duration_enqueues_nothing(client, text: str) -> None:
    got = client.send("POST", f"/indexes?wait={text.replace('+', '%2B').replace(' ', '%20')}", CREATE, JSON_TYPE)
    assert got.fault == (400, "bad_request", f"Invalid value in parameter `wait`: could not parse `{text}` as a "
                         "duration, expected a number with a unit: `500ms`, `1.5s` or `2m`")
    assert client.get("/tasks").value["total"] == 0


@pytest.mark.parametrize("text", [f"{MAX_S + 1}s", "999999999m"])
def test_a_wait_has_a_bound(client, text: str) -> None:
    assert client.send("POST", f"/indexes?wait={text}", CREATE, JSON_TYPE).fault[2].endswith("expected at most `300s`")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a client's connection."""
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def test_a_client_that_leaves_is_not_waited_for(client, pair) -> None:
    pair[1].close()
    assert client.answer("POST", "/indexes?wait=5m", CREATE, JSON_TYPE, pair[0]).status == 202


def test_a_client_that_sends_its_next_request_is_waited_for(client, pair) -> None:
    pair[1].send(b"GET / HTTP/1.1\r\n\r\n")
    assert client.answer("POST", "/indexes?wait=1ms", CREATE, JSON_TYPE, pair[0]).status == 202
    client.instance.queue.on_enqueued = lambda task: finish(client)
    assert client.answer("POST", "/indexes?wait=5m", CREATE, JSON_TYPE, pair[0]).status == 200


def test_no_request_waits_while_svcd_stops(client) -> None:
    client.instance.queue.listeners.close()
    assert client.send("POST", "/indexes?wait=5m", CREATE, JSON_TYPE).status == 202


def test_beyond_the_limit_of_waiting_writes_the_summary_is_answered_at_once(connect) -> None:
    client = connect(waiting_writes=0)
    assert client.send("POST", "/indexes?wait=5m", CREATE, JSON_TYPE).status == 202


def test_a_place_is_given_back(at_once) -> None:
    for _ in range(3):
        assert at_once.send("POST", "/indexes?wait=5m", CREATE, JSON_TYPE).status == 200
