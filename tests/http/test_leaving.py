"""1. A request learns at once that its client has left, and gives its thread back.
2. An answer without an end of its own is ended when the server stops, and does not delay that.
3. Such answers take no thread from other requests.
"""
from __future__ import annotations

import threading
from typing import Any

import pytest

from svcd.http.message import Request, Response
from svcd.instance.task_changes import WakeupPipe

ASK = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def wakeup() -> Any:
    pipe = WakeupPipe()
    yield pipe
    pipe.close()


class Endless:
    """Answers that wait for a wake-up pipe; `left` is set when the client left before the pipe was."""

    def __init__(self, wakeup: WakeupPipe) -> None:
        self.wakeup = wakeup
        self.begun, self.left, self.closed = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, request: Request) -> Response:
        return Response(200, self.pieces(request), "text/plain") if request.path == "/stream" else Response(200, b"here")

    def pieces(self, request: Request) -> Any:
        try:
            yield b""
            self.begun.set()
            if not request.wait(self.wakeup, 60):
                self.left.set()
                return
            yield b"woken"
        finally:
            self.closed.set()


def test_a_client_that_leaves_frees_its_thread(serve, wakeup) -> None:
    answer = Endless(wakeup)
    client = serve(answer).send(ASK % b"stream")
    assert answer.begun.wait(10)
    client.close()
    assert answer.left.wait(10) and answer.closed.wait(10)


def test_one_that_says_more_has_not_left(serve, wakeup) -> None:
    answer = Endless(wakeup)
    client = serve(answer).send(ASK % b"stream")
    assert answer.begun.wait(10)
    client.send(ASK % b"next")
    wakeup.set()
    assert client.answer()[2] == b"woken" and client.answer()[2] == b"here"
    assert not answer.left.is_set()


def test_the_stop_ends_it(serve, wakeup) -> None:
    answer = Endless(wakeup)
    served = serve(answer, on_stopping=wakeup.set)
    client = served.send(ASK % b"stream")
    assert answer.begun.wait(10)
    served.stop()
    assert client.answer()[2] == b"woken" and client.is_closed()


def test_others_are_answered_meanwhile(serve, wakeup) -> None:
    answer = Endless(wakeup)
    served = serve(answer, threads=3)
    for _ in range(2):
        served.send(ASK % b"stream")
    assert answer.begun.wait(10)
    assert served.send(ASK % b"other").answer()[2] == b"here"
    wakeup.set()
