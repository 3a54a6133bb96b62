"""The gate that holds requests until the application is loaded. What must hold:

1. Before there is an application, only `/health` is answered; everything else waits.
2. From then on the application answers everything, waiting requests first.
"""
from __future__ import annotations

import threading

import pytest

from svcd.cli.serving import StartupGate
from svcd.http.message import Body, Headers, NoBody, Request, Response


def request(path: str, verb: str = "GET") -> Request:
    return Request(verb, path, "", Headers({}), Body(NoBody()), "127.0.0.1")


def test_a_request_for_the_health_does_not_load_the_application_early() -> None:
    gate = StartupGate()
    assert gate.answer(request("/health")).status == 200
    assert not gate.wanted.is_set()


@pytest.mark.parametrize(("verb", "path"), [("GET", "/indexes"), ("POST", "/health"), ("GET", "/health/x")])
def test_other_requests_wait_for_the_application(verb: str, path: str) -> None:
    gate, answers = StartupGate(), []
    waiting = threading.Thread(target=lambda: answers.append(gate.answer(request(path, verb)).status))
    waiting.start()
    assert gate.wanted.wait(5) and not answers
    gate.open(lambda _request: Response(299))
    waiting.join(5)
    assert answers == [299]


def test_an_open_gate_leaves_everything_to_the_application() -> None:
    gate = StartupGate()
    gate.open(lambda _request: Response(299))
    assert gate.answer(request("/health")).status == 299
