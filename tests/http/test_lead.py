"""The lead among request threads, and what it does for requests:

1. One thread leads; it keeps the lead from turn to turn.
2. Who gives the lead away has another one take it; who has none changes nothing.
3. A turn that lasts too long loses the lead to one who waits, however long nothing happened before; waiting for work never does.
4. Quick requests that arrive together are answered by one thread, one after the other.
5. A request that is not quick, or that waits for its client or for another host, keeps no other waiting.
6. Clients that wait for the lead are told as a backlog; one that asks again and again is none.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from svcd.api.admission import SearchQueue
from svcd.http import sockets
from svcd.http.message import Request, Response
from svcd.http.sockets import Lead
from tests.http.conftest import Serve

MAX_WAIT_S = 10.0
NEVER_S = 3600.0


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MAX_WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


class Follower(threading.Thread):
    """Takes the lead once it may, and keeps it until release()."""

    def __init__(self, among: Lead) -> None:
        super().__init__(daemon=True)
        self._among = among
        self.leads = threading.Event()
        self._released = threading.Event()
        self.start()

    def run(self) -> None:
        self._among.take()
        self.leads.set()
        self._released.wait(MAX_WAIT_S)
        self._among.give_away()

    def release(self) -> None:
        self._released.set()
        self.join(MAX_WAIT_S)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn lasts too long."""
    monkeypatch.setattr(sockets, "PATIENCE_S", NEVER_S)


# -- 1, 2. Taking and giving


@pytest.mark.usefixtures("patient")
def test_1_the_lead_is_kept_from_turn_to_turn_until_it_is_given_away() -> None:
    among = Lead()
    among.take()
    follower = Follower(among)
    for _ in range(3):
        among.begin_turn()
        among.take()
    assert not follower.leads.is_set()
    among.give_away()
    assert follower.leads.wait(MAX_WAIT_S)
    follower.release()
    among.take()


@pytest.mark.usefixtures("patient")
def test_2_who_does_not_lead_gives_nothing_away() -> None:
    among = Lead()
    among.take()
    other = threading.Thread(target=among.give_away)
    other.start()
    other.join()
    follower = Follower(among)
    assert not follower.leads.wait(0.02)
    among.give_away()
    assert follower.leads.wait(MAX_WAIT_S)
    among.give_away()  # no more its own
    second = Follower(among)
    assert not second.leads.wait(0.02)
    follower.release()
    assert second.leads.wait(MAX_WAIT_S)
    second.release()


# -- 3. Long turns


@pytest.mark.parametrize("is_watched", [True, False])
def test_3_a_long_turn_loses_the_lead(monkeypatch: pytest.MonkeyPatch, is_watched: bool) -> None:
    monkeypatch.setattr(sockets, "PATIENCE_S", 0.001)
    among = Lead()
    among.take()
    if is_watched:  # there was a turn of late: one that waits looks again by itself
        among.begin_turn()
        among.take()
    followers = [Follower(among) for _ in range(3)]
    assert not any(follower.leads.wait(0.02) for follower in followers)  # it waits for work
    among.begin_turn()
    until(lambda: any(follower.leads.is_set() for follower in followers))
    assert sum(follower.leads.is_set() for follower in followers) == 1  # who has no turn yet keeps it
    while followers:
        until(lambda: any(follower.leads.is_set() for follower in followers))
        leading = [follower for follower in followers if follower.leads.is_set()]
        assert len(leading) == 1
        leading[0].release()
        followers.remove(leading[0])


# -- 4, 5, 6. Requests


class Answering:
    """Answers requests, each once its path is released; which thread has begun which."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []  # path, name of the thread
        self._released: dict[str, threading.Event] = {}

    def __call__(self, request: Request) -> Response:
        self.begun.append((request.path, threading.current_thread().name))
        body = request.body.read()
        assert self._of(request.path).wait(MAX_WAIT_S)
        return Response(200, body)

    def _of(self, path: str) -> threading.Event:
        return self._released.setdefault(path, threading.Event())

    def release(self, *paths: str) -> None:
        for path in paths:
            self._of(path).set()

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.begun]


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def is_quick(request: Request) -> bool:
    return request.path.startswith("/quick")


@pytest.mark.usefixtures("patient")
def test_4_quick_requests_wait_for_each_other(serve: Serve) -> None:
    answering = Answering()
    served = serve(answering)
    served.server.is_quick = is_quick
    paths = [f"/quick{number}" for number in range(5)]
    clients = [served.send(get(paths[0]))]
    until(lambda: answering.paths == paths[:1])
    clients += [served.send(get(path)) for path in paths[1:]]
    assert answering.paths == paths[:1]
    answering.release(*paths)
    for client in clients:
        assert client.answer()[0] == 200
    assert sorted(answering.paths) == paths and len({thread for _, thread in answering.begun}) == 1


@pytest.mark.usefixtures("patient")
def test_5_what_is_not_quick_keeps_no_other_waiting(serve: Serve) -> None:
    answering = Answering()
    served = serve(answering)
    served.server.is_quick = is_quick
    clients = [served.send(get(path)) for path in ("/a", "/b", "/quick", "/c")]
    until(lambda: "/quick" in answering.paths and {"/a", "/b"} <= set(answering.paths))
    answering.release("/quick")
    until(lambda: "/c" in answering.paths)
    answering.release("/a", "/b", "/c")
    for client in clients:
        assert client.answer()[0] == 200


@pytest.mark.usefixtures("patient")
def test_5_a_quick_request_whose_body_is_awaited_keeps_no_other_waiting(serve: Serve) -> None:
    answering = Answering()
    served = serve(answering)
    served.server.is_quick = is_quick
    slow = served.send(b"POST /quick1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
    until(lambda: answering.paths == ["/quick1"])
    answering.release("/quick1", "/quick2")
    assert served.send(get("/quick2")).answer()[0] == 200
    slow.send(b"}")
    assert slow.answer()[2] == b"{}"


@pytest.mark.usefixtures("patient")
def test_5_a_search_that_waits_for_another_host_keeps_no_other_waiting(serve: Serve) -> None:
    searches, waits, answered = SearchQueue(4), threading.Event(), threading.Event()

    def answer(request: Request) -> Response:
        with searches.slot():
            if request.path == "/quick1":
                with searches.paused():
                    waits.set()
                    assert answered.wait(MAX_WAIT_S)
        return Response(200, b"")

    served = serve(answer)
    served.server.is_quick, searches.on_wait = is_quick, served.server.give_lead_away
    first = served.send(get("/quick1"))
    assert waits.wait(MAX_WAIT_S)
    assert served.send(get("/quick2")).answer()[0] == 200
    answered.set()
    assert first.answer()[0] == 200


def test_5_a_quick_request_that_takes_long_keeps_others_waiting_for_a_moment(serve: Serve) -> None:
    answering = Answering()
    served = serve(answering)
    served.server.is_quick = is_quick
    first = served.send(get("/quick1"))
    until(lambda: answering.paths == ["/quick1"])
    answering.release("/quick2")
    assert served.send(get("/quick2")).answer()[0] == 200
    answering.release("/quick1")
    assert first.answer()[0] == 200


@pytest.mark.usefixtures("patient")
def test_6_who_waits_for_the_lead_is_told(serve: Serve) -> None:
    answering, told = Answering(), []
    served = serve(answering)
    served.server.is_quick, served.server.on_backlog = is_quick, told.append
    client, other = served.connect(), served.connect()
    answering.release("/quick1")
    for _ in range(20):
        assert client.send(get("/quick1")).answer()[0] == 200
    assert told == []
    client.send(get("/quick2"))
    until(lambda: answering.paths[-1] == "/quick2")
    other.send(get("/quick3"))
    answering.release("/quick2")
    until(lambda: answering.paths[-1] == "/quick3")
    assert told == [True]
    answering.release("/quick3")
    assert client.answer()[0] == 200 and other.answer()[0] == 200
    until(lambda: told == [True, False])
