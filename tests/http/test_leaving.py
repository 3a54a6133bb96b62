"""1. A request learns at once that its client has left, and gives its thread back.
2. An answer without an end of its own is told when the server stops, and delays that by nothing.
3. Such answers take no thread from others.
"""
from __future__ import annotations

import threading
from typing import Any

import pytest

from svcd.http.message import Request, Response
from svcd.instance.task_changes import WakeupPipe

ASK = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def bell() -> Any:
    rung = WakeupPipe()
    yield rung
    rung.close()


class Endless:
    """Answers that wait for the bell; `left` is set when the client left before it rang."""

    def __init__(self, bell: WakeupPipe) -> None:
        self.bell = bell
        self.begun, self.left, self.closed = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, request: Request) -> Response:
        return Response(200, self.pieces(request), "text/plain") if request.path == "/stream" else Response(200, b"here")

    def pieces(self, request: Request) -> Any:
        try:
            yield b""
            self.begun.set()
            if not request.wait(self.bell, 60):
                self.left.set()
                return
            yield b"rung"
        finally:
            self.closed.set()


def test_a_client_that_leaves_frees_its_thread(serve, bell) -> None:
    answer = Endless(bell)
    client = serve(answer).send(ASK % b"stream")
    assert answer.begun.wait(10)
    client.close()
    assert answer.left.wait(10) and answer.closed.wait(10)


def test_one_that_says_more_has_not_left(serve, bell) -> None:
    answer = Endless(bell)
    client = serve(answer).send(ASK % b"stream")
    assert answer.begun.wait(10)
    client.send(ASK % b"next")
    bell.set()
    assert client.answer()[2] == b"rung" and client.answer()[2] == b"here"
    assert not answer.left.is_set()


def test_the_stop_ends_it(serve, bell) -> None:
    answer = Endless(bell)
    served = serve(answer, on_stopping=bell.set)
    client = served.send(ASK % b"stream")
    assert answer.begun.wait(10)
    served.stop()
    assert client.answer()[2] == b"rung" and client.is_closed()


def test_others_are_answered_meanwhile(serve, bell) -> None:
    answer = Endless(bell)
    served = serve(answer, threads=3)
    for _ in range(2):
        served.send(ASK % b"stream")
    assert answer.begun.wait(10)
    assert served.send(ASK % b"other").answer()[2] == b"here"
    bell.set()
