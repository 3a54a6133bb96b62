"""The log over HTTP. What must hold:

1. The log is streamed as it is written: as text, as JSON, or with the duration of each event.
2. One client follows at a time; DELETE, its leaving, and the end of svcd end the stream, and the next may begin.
3. A client that is slower than the log loses events and learns how many; a thread that logs never waits.
4. What is printed on stderr can be changed, in all processes.
5. Events of other processes are streamed, too; they are told what is followed.
6. Bodies are checked before the feature, with the messages that clients expect.
"""
from __future__ import annotations

import io
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from svcd.api import event_streams
from svcd.base import logs
from svcd.base.errors import ApiError


@pytest.fixture
def printed() -> Iterator[io.StringIO]:
    buffer = io.StringIO()
    logs.configure("INFO", "HUMAN", buffer)
    yield buffer
    logs.configure()


@pytest.fixture
def follow(client: Any, printed: io.StringIO) -> Iterator[Any]:
    """follow(**members of the body) -> the body of the answer, its head sent."""
    client.instance.force_feature("logsRoute")
    bodies = []

    def begin(sock: socket.socket | None = None, **body: Any) -> Any:
        response = client.answer("POST", "/logs/stream", json.dumps(body).encode(),
                                 {"content-type": "application/json"}, sock)
        assert response.status == 200, response.body
        assert response.content_type == ("text/plain; charset=utf-8" if body.get("mode", "human") == "human"
                                         else "application/x-ndjson")
        bodies.append(response.body)
        assert next(response.body) == b""
        return response.body

    yield begin
    for body in bodies:
        body.close()


def test_the_human_form_has_the_lines_of_the_console(follow, printed) -> None:
    body = follow()
    logs.info("opened", index="films")
    logs.debug("not by default")
    assert next(body).decode() == printed.getvalue()
    logs.failure("broken", "Traceback\nValueError: x")
    assert next(body).decode().endswith("\n  Traceback\n  ValueError: x\n")


def test_the_json_form_has_objects(follow) -> None:
    body = follow(mode="json", target="debug")
    logs.info("one", a=1)
    logs.debug("two")
    first, second = map(json.loads, next(body).splitlines())
    assert (first["event"], first["level"], first["a"], second["event"]) == ("one", "INFO", 1, "two")


@pytest.mark.parametrize("has_memory", [True, False])
def test_a_profile_shows_how_long_events_took(follow, has_memory: bool) -> None:
    body = follow(mode="profile", profileMemory=has_memory)
    logs.request("GET", "/health", 200, 0.0125, 2, "::1")
    logs.batch(1, kind="k", index_uid=None, tasks=1, failed=0, seconds=1.5)
    logs.info("opened")
    request, batch, opened = map(json.loads, next(body).splitlines())
    assert (request["name"], request["part"], request["took"]) == ("request", "svcd.http", 12_500_000)
    assert (batch["name"], batch["took"], opened["took"]) == ("batch", 1_500_000_000, 0)
    assert request["end"] > 1_600_000_000_000_000_000 and request["fields"]["path"] == "/health"
    assert ("resident" in request) == has_memory and (not has_memory or request["resident"] > 1 << 20)


def test_targets_choose_what_is_streamed(follow) -> None:
    body = follow(target="svcd.http=off,info")
    logs.request("GET", "/health", 200, 0.1, 2, "::1")
    logs.info("opened")
    assert next(body).count(b"\n") == 1


def test_a_stream_holds_no_key(follow) -> None:
    body = follow()
    logs.request("GET", "/keys/secret-key", 200, 0.1, 2, "::1")
    assert b"secret-key" not in next(body)


def test_one_client_follows_at_a_time(client, follow) -> None:
    first = follow()
    message = "The `/logs/stream` route is currently in use by someone else."
    assert client.json("POST", "/logs/stream", {}).fault == (400, "bad_request", message)
    logs.info("still there")
    assert next(first)
    first.close()
    follow()


def test_delete_ends_the_stream(client, follow) -> None:
    for _ in range(2):
        body = follow()
        assert client.send("DELETE", "/logs/stream").status == 204
        assert list(body) == []
        body.close()
    assert client.send("DELETE", "/logs/stream").status == 204


def test_it_ends_with_svcd(client, follow) -> None:
    body = follow()
    client.instance.queue.listeners.close()
    assert list(body) == []


def test_it_ends_with_its_client(follow) -> None:
    here, there = socket.socketpair()
    with here, there:
        body = follow(here)
        there.close()
        assert list(body) == []


def test_it_ends_with_its_key(client, follow, monkeypatch) -> None:
    body = follow()

    def refuse(*_: Any) -> None:
        raise ApiError("invalid_api_key", "It ended.")

    monkeypatch.setattr(client.keys, "check", refuse)
    logs.info("secret by now")
    assert list(body) == []


def test_a_slow_client_learns_how_many_events_it_lost(follow, monkeypatch) -> None:
    monkeypatch.setattr(event_streams, "MAX_WAITING_EVENTS", 3)
    body = follow(mode="json")
    for number in range(8):
        logs.info("event", number=number)
    *received, last = map(json.loads, next(body).splitlines())
    assert [event["number"] for event in received] == [0, 1, 2]
    assert (last["level"], last["lost"]) == ("WARN", 5)


def test_many_events_come_in_pieces(follow, monkeypatch) -> None:
    monkeypatch.setattr(event_streams, "MAX_EVENTS_PER_PIECE", 2)
    body = follow()
    for _ in range(5):
        logs.info("event")
    assert [next(body).count(b"\n") for _ in range(3)] == [2, 2, 1]


def test_what_is_printed_can_be_changed(client, follow, printed) -> None:
    client.instance.force_feature("logsRoute")
    assert client.json("POST", "/logs/stderr", {"target": "debug,svcd.http=off"}).status == 204
    logs.debug("printed now")
    assert "printed now" in printed.getvalue()
    assert client.json("POST", "/logs/stderr", {}).status == 204
    logs.debug("not any more")
    assert "not any more" not in printed.getvalue()
    assert client.broadcasts == [{"log": "svcd.http=0,4"}, {"log": "3"}]


def test_other_processes_are_told_what_is_followed(client, follow) -> None:
    body = follow(target="debug")
    body.close()
    assert client.broadcasts == [{"follow": "4"}, {"follow": ""}]


def test_events_of_other_processes_are_streamed(follow) -> None:
    body = follow(mode="json")
    for level in (logs.INFO, logs.DEBUG):
        logs.pass_on(logs.Event(1_700_000_000_000_000_000, level, "svcd.http", "request", {"path": "/a"}))
    event, = map(json.loads, next(body).splitlines())
    assert (event["timestamp"][:10], event["event"], event["path"]) == ("2023-11-14", "request", "/a")


@pytest.mark.parametrize("path", ["/logs/stream", "/logs/stderr"])
@pytest.mark.parametrize(("target", "reason"), [
    (True, "type at `.target`: expected a string, but found a boolean: `true`"),
    ("==", " at `.target`: invalid filter directive: too many '=' in filter directive, expected 0 or 1"),
    ("", " at `.target`: Empty string is not a valid target. If you want to get no logs use `OFF`. Usage: `info`, "
         "`svc=info`, or you can write multiple filters in one target: `index_scheduler=info,milli=trace`"),
])
def test_targets_are_checked_first(client, path: str, target: Any, reason: str) -> None:
    status, code, message = client.json("POST", path, {"target": target}).fault
    assert (status, code) == (400, "bad_request") and message in (f"Invalid value {reason}", f"Invalid value{reason}")


@pytest.mark.parametrize(("mode", "shown"), [("human", "Human"), ("json", "Json"), (None, "Human")])
def test_memory_is_for_profiles(client, mode: str | None, shown: str) -> None:
    body = {"profileMemory": True} | ({"mode": mode} if mode else {})
    message = ("Invalid value: `profile_memory` can only be used while profiling code and is not compatible with the "
               f"{shown} mode.")
    assert client.json("POST", "/logs/stream", body).fault == (400, "invalid_settings_typo_tolerance", message)


@pytest.mark.parametrize(("method", "path"), [("POST", "/logs/stream"), ("DELETE", "/logs/stream"), ("POST", "/logs/stderr")])
def test_the_feature_is_needed(client, method: str, path: str) -> None:
    assert client.json(method, path, {}).fault[:2] == (400, "feature_not_enabled")
