"""1. Before there is an application, the health is told, as the application tells it; everything else waits.
2. From then on the application answers everything, those first that wait.
"""
from __future__ import annotations

import threading

import pytest

from svcd.cli.serving import StartupGate
from svcd.http.message import Body, Headers, NoBody, Request, Response


def request(path: str, verb: str = "GET") -> Request:
    return Request(verb, path, "", Headers({}), Body(NoBody()), "127.0.0.1")


@pytest.mark.parametrize("verb", ["GET", "HEAD"])
def test_the_health_is_told_as_the_application_tells_it(client, verb: str) -> None:
    early, late = StartupGate().answer(request("/health", verb)), client.answer(verb, "/health")
    assert (early.status, early.body, early.content_type) == (late.status, late.body, late.content_type)


def test_asking_for_the_health_does_not_hurry_the_application() -> None:
    door = StartupGate()
    door.answer(request("/health"))
    assert not door.wanted.is_set()


@pytest.mark.parametrize(("verb", "path"), [("GET", "/indexes"), ("POST", "/health"), ("GET", "/health/x")])
def test_other_requests_wait_for_the_application(verb: str, path: str) -> None:
    door, answers = StartupGate(), []
    waiting = threading.Thread(target=lambda: answers.append(door.answer(request(path, verb)).status))
    waiting.start()
    assert door.wanted.wait(5) and not answers
    door.open(lambda _request: Response(299))
    waiting.join(5)
    assert answers == [299]


def test_an_open_door_leaves_everything_to_the_application() -> None:
    door = StartupGate()
    door.open(lambda _request: Response(299))
    assert door.answer(request("/health")).status == 299
