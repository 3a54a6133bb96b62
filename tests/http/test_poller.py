"""The parking, on each kind of watch.

1. A guest whose event is there comes out once, to one caller; so does one whose event came before it was parked.
2. A guest taken out otherwise does not come out any more.
3. Closing wakes everybody.
"""
from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator

import pytest

from svcd.http.poller import EpollWatch, Poller, SelectorWatch
from svcd.http.sockets import READABLE, WRITABLE

PATIENCE_S = 10
WATCHES = [pytest.param(SelectorWatch, id="selector")]
if hasattr(select, "epoll"):
    WATCHES.append(pytest.param(EpollWatch, id="epoll"))


class Guest:
    """One end of a pair of sockets."""

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
def parking(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made = Poller(request.param())
    yield made
    made.close()
    assert made.next() is None and made.next() is None
    made.release()


@pytest.fixture
def guests() -> Iterator[list[Guest]]:
    made = [Guest(name) for name in "abc"]
    yield made
    for guest in made:
        guest.close()


def test_a_guest_comes_out_once_for_each_parking(parking: Poller, guests: list[Guest]) -> None:
    first, second, _ = guests
    parking.park(first, READABLE)
    parking.park(second, READABLE)
    second.far.send(b"x")
    assert parking.next() is second
    first.far.send(b"x")
    assert parking.next() is first  # although the second's byte is still there
    parking.park(second, READABLE)
    assert parking.next() is second


def test_a_guest_may_wait_to_write(parking: Poller, guests: list[Guest]) -> None:
    parking.park(guests[0], WRITABLE)
    assert parking.next() is guests[0]


def test_a_guest_taken_out_does_not_come_out(parking: Poller, guests: list[Guest]) -> None:
    first, second, third = guests
    for guest in guests:
        parking.park(guest, READABLE)
        guest.far.send(b"x")
    assert parking.take_where(lambda guest: guest is not second, most=1) == [first]
    assert parking.take_where(lambda guest: guest is not second) == [third]
    assert parking.next() is second


def test_a_new_guest_with_an_old_number_is_another(parking: Poller, guests: list[Guest]) -> None:
    first = guests[0]
    parking.park(first, READABLE)
    assert parking.take_where(lambda guest: True) == [first]
    parking.forget(first)
    first.close()
    second = Guest("d")
    parking.park(second, READABLE)
    second.far.send(b"x")
    assert parking.next() is second
    assert parking.take_where(lambda guest: True) == []
    parking.forget(second)
    second.close()


@pytest.mark.parametrize("watch", WATCHES)
def test_each_event_goes_to_one_thread_and_closing_wakes_all(watch: type) -> None:
    parking = Poller(watch())
    guests = [Guest(str(n)) for n in range(30)]
    seen: list[str] = []

    def work() -> None:
        while (guest := parking.next()) is not None:
            guest.near.recv(1)
            seen.append(guest.name)
            parking.park(guest, READABLE)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for guest in guests:
        parking.park(guest, READABLE)
    for guest in guests * 20:
        guest.far.send(b"x")
    done = threading.Event()
    for _ in range(1000):
        if len(seen) == 600:
            break
        done.wait(0.01)
    parking.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(seen) == 600 and not any(thread.is_alive() for thread in threads)
    parking.release()
    for guest in guests:
        guest.close()
