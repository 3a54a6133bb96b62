"""1. As many searches run at once as there are places; the others wait.
2. When too many wait, a random waiting one is turned away, not the newest.
3. A place that becomes free is given to one that waits; none is lost.
"""
from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from svcd.api.admission import SearchQueue
from svcd.base.errors import ApiError


class Visitor(threading.Thread):
    """A thread that takes a place and keeps it until it is told to go."""

    def __init__(self, searches: SearchQueue) -> None:
        super().__init__(daemon=True)
        self.searches = searches
        self.inside = threading.Event()
        self.may_go = threading.Event()
        self.refusal: ApiError | None = None
        self.start()

    def run(self) -> None:
        try:
            with self.searches.slot():
                self.inside.set()
                self.may_go.wait(5)
        except ApiError as error:
            self.refusal = error

    def leave(self) -> None:
        self.may_go.set()
        self.join(5)


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread to reach a state, a short while at most."""
    for _ in range(5000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("the state was not reached")


def test_a_free_place_is_given_at_once() -> None:
    searches = SearchQueue(1, capacity=0)
    for _ in range(3):
        with searches.slot():
            pass


def test_without_waiting_room_a_full_house_turns_away() -> None:
    searches = SearchQueue(1, capacity=0)
    with searches.slot(), pytest.raises(ApiError) as refusal, searches.slot():
        pass
    assert refusal.value.code == "too_many_search_requests"
    assert refusal.value.message == "Too many search requests running at the same time: 0. Retry after 10s."
    assert ("Retry-After", "10") in refusal.value.headers


def test_a_waiting_search_takes_the_place_that_becomes_free() -> None:
    searches = SearchQueue(1, capacity=1)
    first = Visitor(searches)
    assert first.inside.wait(5)
    second = Visitor(searches)
    until(lambda: searches.waiting == 1)
    assert not second.inside.is_set()
    first.leave()
    assert second.inside.wait(5)
    second.leave()
    with searches.slot():
        pass


def test_one_of_those_who_wait_makes_room_for_the_newest() -> None:
    searches = SearchQueue(1, capacity=1)
    first = Visitor(searches)
    assert first.inside.wait(5)
    second = Visitor(searches)
    until(lambda: searches.waiting == 1)
    third = Visitor(searches)
    second.join(5)
    assert second.refusal and second.refusal.code == "too_many_search_requests"
    first.leave()
    assert third.inside.wait(5)
    third.leave()


def test_patience_ends() -> None:
    searches = SearchQueue(1, capacity=1, max_wait_s=0.01)
    with searches.slot(), pytest.raises(ApiError), searches.slot():
        pass
    assert searches.waiting == 0


def test_processes_share_the_places() -> None:
    searches = SearchQueue(8, 10, processes=3)  # 3 places, 4 that wait
    visitors = [Visitor(searches) for _ in range(3)]
    until(lambda: searches.running == 3)
    visitors += [Visitor(searches) for _ in range(4)]
    until(lambda: searches.waiting == 4)
    visitors.append(Visitor(searches))
    until(lambda: any(visitor.refusal for visitor in visitors))
    assert searches.waiting == 4
    refusal = next(visitor.refusal for visitor in visitors if visitor.refusal)
    assert "at the same time: 10." in refusal.message  # the option's, which the operator knows
    for visitor in visitors:
        visitor.may_go.set()
    for visitor in visitors:
        visitor.join(5)


def test_no_process_waits_where_none_may() -> None:
    searches = SearchQueue(1, 0, processes=2)
    first = Visitor(searches)
    until(lambda: searches.running == 1)
    with pytest.raises(ApiError), searches.slot():
        pass
    first.leave()


def test_a_search_has_its_process_to_itself_for_its_head_start() -> None:
    searches = SearchQueue(2, capacity=5, head_start_s=3600)
    first, second = Visitor(searches), Visitor(searches)
    until(lambda: searches.running == 1 and searches.waiting == 1)
    inside = first if first.inside.is_set() else second
    inside.leave()
    until(lambda: searches.running == 1 and searches.waiting == 0)
    (second if inside is first else first).leave()
    assert searches.running == 0


def test_a_long_search_gives_way_to_others() -> None:
    searches = SearchQueue(2, capacity=5, head_start_s=0.01)
    long = Visitor(searches)
    assert long.inside.wait(5)
    other = Visitor(searches)
    assert other.inside.wait(5)
    assert searches.running == 2
    other.leave()
    long.leave()


def test_where_none_may_wait_a_head_start_turns_nobody_away() -> None:
    searches = SearchQueue(2, capacity=0, head_start_s=3600)
    with searches.slot(), searches.slot():
        pass
