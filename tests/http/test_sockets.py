"""Sockets: the poller, on each kind of watch, and addresses to listen on.

1. A pollable with an event comes out once, to one caller; also if the event came before it was registered.
2. A pollable that was taken out otherwise does not come out any more.
3. Closing wakes all threads that wait.
4. An address is a host and a port; hosts are names, IPv4 addresses, or IPv6 addresses in brackets.
5. Anything else is rejected with examples of what would be right.
"""
from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator

import pytest

from svcd.http.sockets import READABLE, WRITABLE, EpollWatch, Poller, SelectorWatch, parse_address

MAX_WAIT_S = 10
WATCHES = [pytest.param(SelectorWatch, id="selector")]
if hasattr(select, "epoll"):
    WATCHES.append(pytest.param(EpollWatch, id="epoll"))


class SocketPair:
    """A pollable: the near end of a pair of sockets."""

    def __init__(self, name: str) -> None:
        self.deadline = float("inf")
        self.name = name
        self.near, self.far = socket.socketpair()

    def fileno(self) -> int:
        return self.near.fileno()

    def close(self) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture(params=WATCHES)
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made = Poller(request.param())
    yield made
    made.close()
    assert made.next() is None and made.next() is None
    made.release()


@pytest.fixture
def pollables() -> Iterator[list[SocketPair]]:
    made = [SocketPair(name) for name in "abc"]
    yield made
    for pollable in made:
        pollable.close()


def test_a_pollable_comes_out_once_for_each_registration(poller: Poller, pollables: list[SocketPair]) -> None:
    first, second, _ = pollables
    poller.register(first, READABLE)
    poller.register(second, READABLE)
    second.far.send(b"x")
    assert poller.next() is second
    first.far.send(b"x")
    assert poller.next() is first  # although the second's byte is still there
    poller.register(second, READABLE)
    assert poller.next() is second


def test_a_pollable_may_wait_to_write(poller: Poller, pollables: list[SocketPair]) -> None:
    poller.register(pollables[0], WRITABLE)
    assert poller.next() is pollables[0]


def test_a_pollable_taken_out_does_not_come_out(poller: Poller, pollables: list[SocketPair]) -> None:
    first, second, third = pollables
    for pollable in pollables:
        poller.register(pollable, READABLE)
        pollable.far.send(b"x")
    assert poller.take_out_where(lambda pollable: pollable is not second, max_count=1) == [first]
    assert poller.take_out_where(lambda pollable: pollable is not second) == [third]
    assert poller.next() is second


def test_a_new_pollable_with_an_old_descriptor_is_another(poller: Poller, pollables: list[SocketPair]) -> None:
    first = pollables[0]
    poller.register(first, READABLE)
    assert poller.take_out_where(lambda pollable: True) == [first]
    poller.unregister(first)
    first.close()
    second = SocketPair("d")
    poller.register(second, READABLE)
    second.far.send(b"x")
    assert poller.next() is second
    assert poller.take_out_where(lambda pollable: True) == []
    poller.unregister(second)
    second.close()


@pytest.mark.parametrize("watch", WATCHES)
def test_each_event_goes_to_one_thread_and_closing_wakes_all(watch: type) -> None:
    poller = Poller(watch())
    pollables = [SocketPair(str(n)) for n in range(30)]
    seen: list[str] = []

    def work() -> None:
        while (pollable := poller.next()) is not None:
            pollable.near.recv(1)
            seen.append(pollable.name)
            poller.register(pollable, READABLE)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for pollable in pollables:
        poller.register(pollable, READABLE)
    for pollable in pollables * 20:
        pollable.far.send(b"x")
    done = threading.Event()
    for _ in range(1000):
        if len(seen) == 600:
            break
        done.wait(0.01)
    poller.close()
    for thread in threads:
        thread.join(MAX_WAIT_S)
    assert len(seen) == 600 and not any(thread.is_alive() for thread in threads)
    poller.release()
    for pollable in pollables:
        pollable.close()


# Addresses to listen on


@pytest.mark.parametrize(("text", "host", "port"), [
    ("localhost:7700", "localhost", 7700), ("0.0.0.0:0", "0.0.0.0", 0), ("[::1]:7700", "::1", 7700),
    ("[fe80::1%eth0]:80", "fe80::1%eth0", 80), ("films.example.org:65535", "films.example.org", 65535),
])
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert address == (host, port)
    assert str(address) == text


@pytest.mark.parametrize(("text", "reason"), [
    ("", "lacks a port"), ("localhost", "lacks a port"), (":7700", "lacks a host"), ("7700", "lacks a port"),
    ("localhost:", "not a number"), ("localhost:65536", "not a number"), ("localhost:-1", "not a number"),
    ("localhost:+80", "not a number"), ("localhost:٧٧", "not a number"), ("localhost:8_0", "not a number"),
    ("localhost: 80", "not a number"), ("localhost:" + "1" * 100_000, "not a number"), ("::1:7700", "without brackets"),
    ("[::g]:80", "neither a name"), ("[]:80", "neither a name"), ("a b:80", "neither a name"),
    ("http://localhost:7700", "is a URL"), ("localhost:7700/", "not a number"), ("a/b:80", "neither a name"),
])
def test_what_is_no_address_is_refused_with_examples(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        parse_address(text)
    assert "localhost:7700" in str(refused.value)
