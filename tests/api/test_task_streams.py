"""1. Each change of status is one event with the task as it was then; its id is where a client goes on.
2. A client that comes back with its last id misses nothing and gets nothing twice; without one it begins now.
3. Filters are those of the lists; what the key may not see is not told; a key that ends ends the stream.
4. Of batches, progress is told too.
5. A sign of life comes while nothing happens. The stream ends with its client and with svcd, and gives its place back.
"""
from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from svcd.api import streaming
from svcd.auth.keys import Permission
from svcd.base.errors import ApiError
from svcd.instance.task_records import SUCCEEDED


class Follower:
    """A client of a stream, which reads piece by piece."""

    def __init__(self, client: Any, url: str, last_id: str = "", accept: str = "*/*",
                 sock: socket.socket | None = None) -> None:
        headers = {"accept": accept} | ({"last-event-id": last_id} if last_id else {})
        self.response = client.answer("GET", url, headers=headers, sock=sock)
        assert self.response.status == 200, self.response.body
        self.body = self.response.body
        self.last_id = last_id

    def raw(self) -> str:
        return next(self.body).decode()

    def events(self) -> list[Any]:
        """What the next piece tells; it takes the id of each event."""
        told = []
        for block in self.raw().split("\n\n")[:-1]:
            lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            self.last_id = lines.get("id", self.last_id)
            told += [json.loads(lines["data"])] if "data" in lines else []
        return told


@pytest.fixture
def follow(client: Any) -> Iterator[Any]:
    """follow(url, ...) -> Follower that has read the beginning."""
    client.instance.force_feature("tasksStreamingRoute")
    followers = []

    def begin(url: str = "/tasks/stream", **options: Any) -> Follower:
        followers.append(Follower(client, url, **options))
        assert followers[-1].events() == []
        return followers[-1]

    yield begin
    for follower in followers:
        follower.body.close()


def add(client: Any, index_uid: str = "films", documents: int = 2) -> Any:
    return client.instance.queue.enqueue("documentAdditionOrUpdate", index_uid,
                                         details={"receivedDocuments": documents, "indexedDocuments": None})


def start(client: Any, *tasks: Any) -> Any:
    running = client.instance.queue.start(tasks, "test")
    running.batch.stats = {"totalNbTasks": len(tasks), "status": {"processing": len(tasks)}, "types": {},
                           "indexUids": {task.index_uid: 1 for task in tasks}}
    return running


def finish(client: Any, running: Any) -> None:
    queue = client.instance.queue
    with queue.finishing() as connection:
        running.batch.finished_at = queue.next_moment()
        running.batch.stats = {**running.batch.stats, "status": {"succeeded": len(running.tasks)}, "progressTrace": {}}
        queue.finish(connection, running, [
            replace(task, status=SUCCEEDED, finished_at=running.batch.finished_at,
                    details={**task.details, "indexedDocuments": 2}) for task in running.tasks.values()])
    queue.forget(running)


def statuses(events: list[Any]) -> list[tuple[int, str]]:
    return [(event["uid"], event["status"]) for event in events]


def test_it_needs_its_feature(client) -> None:
    for path in ("/tasks/stream", "/batches/stream"):
        assert client.get(path).fault == (
            400, "feature_not_enabled", f"calling the {path} route requires enabling the `tasks_streaming_route` "
            "experimental feature. See https://github.com/orgs/svc/discussions/889")


def test_each_change_is_an_event_as_it_happens(client, follow, check_shape) -> None:
    follower = follow()
    assert follower.response.content_type == "text/event-stream"
    task = add(client)
    (enqueued,) = follower.events()
    assert (enqueued["status"], enqueued["batchUid"], enqueued["startedAt"]) == ("enqueued", None, None)
    running = start(client, task)
    (processing,) = follower.events()
    assert (processing["status"], processing["batchUid"], processing["finishedAt"]) == ("processing", 0, None)
    finish(client, running)
    (succeeded,) = follower.events()
    assert succeeded == client.get("/tasks/0").value
    for event in (enqueued, processing, succeeded):
        check_shape(event, "Task")


def test_past_changes_are_sent_as_they_were(client, follow) -> None:
    follower = follow()
    finish(client, start(client, add(client)))
    events = follower.events()
    assert statuses(events) == [(0, "enqueued"), (0, "processing"), (0, "succeeded")]
    assert [event["details"]["indexedDocuments"] for event in events] == [None, None, 2]
    assert [event["duration"] is None for event in events] == [True, True, False]


def test_who_comes_back_goes_on_where_it_was(client, follow) -> None:
    first = follow()
    tasks = [add(client), add(client)]
    assert statuses(first.events()) == [(0, "enqueued"), (1, "enqueued")]
    first.body.close()
    finish(client, start(client, *tasks))
    second = follow(last_id=first.last_id)
    assert statuses(second.events()) == [(0, "processing"), (1, "processing"), (0, "succeeded"), (1, "succeeded")]


def test_who_comes_back_before_the_first_event_misses_nothing(client, follow) -> None:
    first = follow()
    first.body.close()
    add(client)
    assert statuses(follow(last_id=first.last_id).events()) == [(0, "enqueued")]


def test_zero_is_the_beginning_and_no_id_is_now(client, follow) -> None:
    finish(client, start(client, add(client)))
    assert len(follow(last_id="0").events()) == 3
    follower = follow()
    add(client)
    assert statuses(follower.events()) == [(1, "enqueued")]


def test_an_id_of_the_future_is_now(client, follow) -> None:
    follower = follow(last_id="9" * 19)
    add(client)
    assert statuses(follower.events()) == [(0, "enqueued")]


def test_an_id_that_is_none_is_refused(client, follow) -> None:
    message = ("Invalid value in header `Last-Event-ID`: `doggo` is not a position: expected the id of an event, "
               "or `0` for the beginning.")
    follow().body.close()
    assert client.get("/tasks/stream", **{"last-event-id": "doggo"}).fault == (400, "bad_request", message)


def test_a_long_past_comes_in_portions(client, follow, monkeypatch) -> None:
    monkeypatch.setattr("svcd.api.event_streams._PORTION", 2)
    finish(client, start(client, add(client), add(client)))
    follower = follow(last_id="0")
    assert [len(follower.events()) for _ in range(3)] == [2, 2, 2]


@pytest.mark.parametrize(("query", "expected"), [
    ("statuses=succeeded", [(0, "succeeded"), (1, "succeeded")]),
    ("indexUids=films", [(0, "enqueued"), (0, "processing"), (0, "succeeded")]),
    ("uids=1&statuses=enqueued,processing", [(1, "enqueued"), (1, "processing")]),
    ("types=documentAdditionOrUpdate&batchUids=0&statuses=processing", [(0, "processing"), (1, "processing")]),
    ("afterFinishedAt=2020-01-01&uids=1", [(1, "succeeded")]),
    ("beforeEnqueuedAt=9999-01-01&uids=1&statuses=*", [(1, "enqueued"), (1, "processing"), (1, "succeeded")]),
])
def test_filters_are_those_of_the_list(client, follow, query: str, expected: Any) -> None:
    finish(client, start(client, add(client, "films"), add(client, "books")))
    assert statuses(follow(f"/tasks/stream?{query}", last_id="0").events()) == expected


@pytest.mark.parametrize("query", ["statuses=doggo", "limit=1", "from=1", "afterStartedAt=x"])
def test_a_wrong_filter_is_refused(client, follow, query: str) -> None:
    assert client.get(f"/tasks/stream?{query}").status == 400


class OfFilms(Permission):
    """A key that may see one index."""

    def allows(self, index_uid: str | None) -> bool:
        return index_uid == "films"


def test_changes_that_the_key_may_not_see_are_not_sent(client, follow, monkeypatch) -> None:
    monkeypatch.setattr(client.keys, "check", lambda *_: OfFilms())
    finish(client, start(client, add(client, "books")))
    finish(client, start(client, add(client, "films")))
    finish(client, start(client, client.instance.queue.enqueue("documentEdition", None, details={})))
    tasks, batches = follow(last_id="0"), follow("/batches/stream", last_id="0")
    assert {event["uid"] for event in tasks.events()} == {1}
    assert {event["uid"] for event in batches.events()} == {1}


def test_a_key_that_ends_ends_the_stream(client, follow, monkeypatch) -> None:
    follower = follow()
    add(client)
    follower.events()

    def refuse(*_: Any) -> Permission:
        raise ApiError("invalid_api_key", "It ended.")

    monkeypatch.setattr(client.keys, "check", refuse)
    add(client)
    assert list(follower.body) == []


def test_batches_are_sent_with_their_progress(client, follow, check_shape) -> None:
    follower = follow("/batches/stream")
    running = start(client, add(client))
    (begun,) = follower.events()
    assert (begun["uid"], begun["finishedAt"], begun["stats"]["status"]) == (0, None, {"processing": 1})
    at_begin = follower.last_id
    for percentage in (25.0, 50.0):
        running.batch.progress = {"steps": [], "percentage": percentage}
        client.instance.queue.listeners.notify()
        assert [event["progress"]["percentage"] for event in follower.events()] == [percentage]
    assert follower.last_id == at_begin
    running.batch.progress = None
    finish(client, running)
    (ended,) = follower.events()
    assert ended == client.get("/batches/0").value
    for event in (begun, ended):
        check_shape(event, "Batch")


def test_who_comes_back_gets_the_progress_of_now(client, follow) -> None:
    follower = follow("/batches/stream")
    running = start(client, add(client))
    follower.events()
    follower.body.close()
    running.batch.progress = {"steps": [], "percentage": 75.0}
    again = follow("/batches/stream", last_id=follower.last_id)
    assert [event["progress"]["percentage"] for event in again.events()] == [75.0]


def test_past_batches_are_sent_as_they_were(client, follow, check_shape) -> None:
    finish(client, start(client, add(client)))
    begun, ended = follow("/batches/stream", last_id="0").events()
    assert (begun["finishedAt"], begun["stats"]["status"]) == (None, {"processing": 1})
    assert ended == client.get("/batches/0").value
    check_shape(begun, "Batch")


@pytest.mark.parametrize(("query", "uids"), [("indexUids=books", {1}), ("uids=0", {0}), ("batchUids=1", {1}),
                                             ("statuses=failed", set()), ("batchUids=0&uids=1", set())])
def test_batches_are_filtered_by_their_tasks(client, follow, monkeypatch, query: str, uids: set[int]) -> None:
    monkeypatch.setattr(streaming, "HEARTBEAT_S", 0.0)
    finish(client, start(client, add(client, "films")))
    finish(client, start(client, add(client, "books")))
    follower = follow(f"/batches/stream?{query}", last_id="0")
    assert {event["uid"] for event in follower.events()} == uids


def test_lines_of_json_for_who_asks_for_them(client, follow) -> None:
    follower = follow(accept="application/x-ndjson")
    assert follower.response.content_type == "application/x-ndjson"
    add(client)
    assert json.loads(follower.raw())["status"] == "enqueued"


def test_a_sign_of_life_comes_while_nothing_happens(client, follow, monkeypatch) -> None:
    monkeypatch.setattr(streaming, "HEARTBEAT_S", 0.0)
    assert follow().raw() == ":\n\n"
    assert follow(accept="application/x-ndjson").raw() == "\n"


def test_it_ends_with_its_client(client, follow) -> None:
    here, there = socket.socketpair()
    with here, there:
        follower = follow(sock=here)
        there.close()
        assert list(follower.body) == []


def test_it_ends_with_svcd(client, follow) -> None:
    follower = follow()
    client.instance.queue.listeners.close()
    assert list(follower.body) == []


def test_streams_have_their_places(client, follow) -> None:
    first, _second = follow(), follow("/batches/stream")
    refused = client.get("/tasks/stream")
    assert refused.status == 503 and refused.headers["retry-after"] == "10"
    first.body.close()
    first.body.close()
    follow().body.close()
    unread = client.answer("GET", "/tasks/stream")
    unread.body.close()
    follow()
