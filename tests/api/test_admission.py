"""The queue of searches, and the cache of their answers. What must hold:

1. As many searches run at once as there are slots; the others wait.
2. When too many wait, a random waiting one is rejected, not the newest.
3. A slot that becomes free is given to one that waits; none is lost.
4. The same search of the same state of an index is run once; another one, another rule or another state is run again.
5. Nothing is cached of a search that ran out of time, nor of one that reads other indexes.
6. An answer that would evict many others is not cached.
7. Of the searches that wait, the one that came first runs first, or the newest while that one has waited for too long. The next
   one alone looks whether it may run.
8. Searches queue up when they are in each other's way for a while; those of one user who types do not.
9. A long search lets those that wait go first, whether it ranks or is one of many of a request, for half as long as it has run,
   at most a second; between turns of long searches, others get as much time.
10. All searches of a request end their ranking in time together.
11. Large bodies are decoded one by one, with a rest after each.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from svcd.api import admission, context
from svcd.api.admission import CONGESTED_S, Congestion, SearchCache, SearchQueue
from svcd.base.errors import ApiError
from svcd.index.writer import DocumentChange, IndexWriter
from svcd.instance.data_folder import IndexRow
from svcd.search import search as engine


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


def test_a_long_search_lets_one_that_waits_go_first() -> None:
    searches = SearchQueue(1, capacity=2)
    with searches.slot():
        visitor = Visitor(searches)
        until(lambda: searches.waiting == 1)
        visitor.may_go.set()
        is_over = admission.Timer(searches.yield_turn)(60_000)
        until(lambda: is_over() or visitor.inside.is_set())
        until(lambda: searches.running == 1)  # it is this one again
    assert searches.running == searches.waiting == 0 and not visitor.refusal


def test_long_searches_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_YIELD_PART", 1e9)  # or the one that has run for less would be due sooner
    searches, turns = SearchQueue(1, capacity=2), list[int]()

    def rank(number: int) -> None:
        with searches.slot():
            until(lambda: searches.waiting == 1 or bool(turns))
            for _ in range(3):
                turns.append(number)
                searches.yield_turn()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert turns[:4] in ([0, 1, 0, 1], [1, 0, 1, 0]) and len(turns) == 6


def test_two_long_searches_that_take_turns_are_no_congestion() -> None:
    searches, congested = SearchQueue(1, capacity=2), list[bool]()
    searches.on_congestion = lambda: None
    with searches.slot():
        visitor = Visitor(searches)
        until(lambda: searches.waiting == 1)
        assert searches._is_crowded()  # it is new
        turn = threading.Thread(target=lambda: (until(lambda: searches.waiting == 1 and visitor.inside.is_set()),
                                                congested.append(searches._is_crowded()), visitor.leave()))
        turn.start()
        searches.yield_turn()
        turn.join(5)
    assert congested == [False]


def test_a_search_in_its_head_start_yields_to_none() -> None:
    searches = SearchQueue(2, capacity=1, head_start_s=60.0)
    with searches.slot():
        visitor = Visitor(searches)
        until(lambda: searches.waiting == 1)
        searches.yield_turn()
        assert searches.running == searches.waiting == 1
    visitor.leave()


def test_a_long_search_is_not_starved(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the slot before one that waits, when none like it had a turn for a while."""
    monkeypatch.setattr(admission, "_YIELD_S", 0.0)
    searches = SearchQueue(1, capacity=3)
    with searches.slot():
        visitors = [Visitor(searches) for _ in range(2)]
        until(lambda: searches.waiting == 2)
        for _ in range(3):
            searches.yield_turn()  # returns though nobody leaves
        assert searches.running == 1 and searches.waiting == 2
    for visitor in visitors:
        visitor.may_go.set()  # whichever comes in first
    for visitor in visitors:
        visitor.leave()


class Clock:
    """A clock that stands still until it is told to pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=lambda: self.now))

    def waiter(self, arrived_at: float = 0.0, ran_s: float = 0.0, due_at: float = 0.0) -> admission._Waiter:
        waiter = admission._Waiter()
        waiter.arrived_at, waiter.is_long, waiter.ran_s, waiter.due_at = arrived_at, ran_s > 0, ran_s, due_at
        return waiter


@pytest.mark.parametrize(("ran_s", "due_after_s"), [(0.03125, 0.015625), (0.5, 0.25), (2.0, 1.0), (60.0, 1.0)])
def test_a_long_search_is_due_after_half_of_the_time_that_it_has_run(ran_s: float, due_after_s: float,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    searches = SearchQueue(4, capacity=3, head_start_s=0.03125)
    new = clock.waiter(clock.now)
    searches._waiting.append(new)
    with searches.slot():
        long = searches._own.search
        clock.now += ran_s
        began = clock.now
        monkeypatch.setattr(searches, "_wait", lambda *_: None)  # it gets its turn at once in this thread
        searches.yield_turn()
        assert new.started_at == began and long.is_long and long.ran_s == ran_s
        assert long.due_at == began + due_after_s


def test_a_long_search_that_is_due_goes_before_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    searches = SearchQueue(4, capacity=3, head_start_s=0.03125)
    new = clock.waiter(clock.now)
    later, sooner = clock.waiter(ran_s=9.0, due_at=clock.now + 0.9), clock.waiter(ran_s=0.1, due_at=clock.now + 0.0625)
    searches._yielded += [later, sooner]
    assert searches._next() is sooner  # no other waits
    searches._waiting.append(new)
    assert searches._next() is new
    clock.now += 0.0625
    assert searches._next() is sooner
    searches._long_turn_ended_at = clock.now - 0.015625  # new ones had 16 ms since then, less than such a turn
    assert searches._next() is new
    clock.now += 0.015625
    assert searches._next() is sooner


def test_a_long_search_that_is_due_has_a_whole_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    searches = SearchQueue(4, capacity=3, head_start_s=0.03125)
    searches._waiting.append(clock.waiter(clock.now))
    long = clock.waiter(ran_s=0.1, due_at=clock.now + 0.001)
    assert searches._is_to_yield(long, started_at=clock.now)  # it ran because no search waited
    clock.now += 0.002
    assert not searches._is_to_yield(long, started_at=clock.now - 0.002)
    clock.now += 0.03125
    assert searches._is_to_yield(long, started_at=clock.now - 0.033)


def test_searches_start_in_order_until_one_has_waited_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    searches = SearchQueue(1, capacity=3)
    first = clock.waiter(arrived_at=clock.now - 0.9)
    newest = clock.waiter(arrived_at=clock.now)
    searches._waiting += [first, clock.waiter(arrived_at=clock.now - 0.5), newest]
    assert searches._next() is first
    clock.now += 0.2
    assert searches._next() is newest
    searches._waiting.remove(first)
    assert searches._next() is searches._waiting[0]


def test_requests_of_many_searches_leave_room_for_others() -> None:
    searches, inside = SearchQueue(8), list[int]()
    may_go = threading.Event()

    def many() -> None:
        with searches.long_slot():
            inside.append(1)
            may_go.wait(5)

    threads = [threading.Thread(target=many) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: searches.running == 2)
    with searches.slot():
        assert searches.running == 3 and len(inside) == 2
    may_go.set()
    for thread in threads:
        thread.join(5)
    assert len(inside) == 8


def test_a_request_of_many_searches_counts_as_a_wait_though_there_is_room() -> None:
    """Or the thread that leads would answer all of them before a short search that came later."""
    searches, waits = SearchQueue(8), list[int]()
    searches.on_wait = lambda: waits.append(searches.running)
    with searches.slot():
        assert not waits
    with searches.long_slot():
        assert waits == [0]


def test_outside_of_a_search_there_is_nothing_to_yield() -> None:
    searches = SearchQueue(1, capacity=1)
    visitor = Visitor(searches)
    assert visitor.inside.wait(5)
    searches.yield_turn()
    assert searches.running == 1
    visitor.leave()


def test_a_request_ends_all_its_searches() -> None:
    assert admission.Timer(until=0.0)(60_000)()
    assert not admission.Timer()(60_000)()


def test_large_bodies_are_decoded_one_by_one_with_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = list[float]()
    monkeypatch.setattr(admission.time, "sleep", rests.append)
    one_by_one, second_may_end = admission.OneByOne(SearchQueue(1)), threading.Event()
    entered = list[str]()

    def decode() -> None:
        with one_by_one.turn():
            entered.append("second")
        second_may_end.set()

    with one_by_one.turn():
        thread = threading.Thread(target=decode)
        thread.start()
        assert not second_may_end.wait(0.02)
        entered.append("first")
    assert second_may_end.wait(5)
    thread.join(5)
    assert entered == ["first", "second"]
    assert rests[0] >= 0.02


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


def test_the_next_alone_looks_whether_it_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: dict[object, int] = {}

    class CountingEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            looks[self] = looks.get(self, 0) + 1
            return super().wait(timeout)

    searches = SearchQueue(1, capacity=5, head_start_s=0.001)
    running = Visitor(searches)
    assert running.inside.wait(5)
    waiting: list[Visitor] = []
    monkeypatch.setattr(admission, "threading", SimpleNamespace(Event=CountingEvent))
    for number in range(3):
        waiting.append(Visitor(searches))
        until(lambda: searches.waiting == number + 1)
    oldest = searches._waiting[0].wakeup
    until(lambda: looks.get(oldest, 0) > 50)
    assert sum(looks.values()) - looks[oldest] < 20
    running.leave()
    for visitor in waiting:
        assert visitor.inside.wait(5)
        visitor.leave()


def test_without_a_queue_a_head_start_turns_no_search_away() -> None:
    searches = SearchQueue(2, capacity=0, head_start_s=3600)
    with searches.slot(), searches.slot():
        pass


# Times in milliseconds.


def congested_at(crowds: Iterable[tuple[int, int]]) -> list[int]:
    """When searches queued up that were in each other's way from a moment to another, for each of the crowds."""
    congestion, found = Congestion(), []
    for begin, end in crowds:
        for moment in range(begin, end + 1):
            if congestion.note(moment < end, moment / 1000):
                found.append(moment)
    return found


def test_clients_without_pause_queue_up_and_go_on_doing_so() -> None:
    limit = round(CONGESTED_S * 1000)
    first, second, *_ = congested_at([(10_000, 10_000 + 3 * limit)])
    assert first - 10_000 in (limit, limit + 1) and second - first in (limit, limit + 1)


def test_two_clients_without_pause_queue_up() -> None:
    assert congested_at((begin, begin + 9) for begin in range(0, 2000, 10))


def test_one_who_types_does_not_queue_up() -> None:
    """Ten keys a second, each with several searches that take 40 ms together."""
    assert not congested_at((begin, begin + 40) for begin in range(0, 60_000, 100))


def test_a_crowd_that_is_over_is_forgotten() -> None:
    assert not congested_at((begin, begin + 140) for begin in range(0, 10_000, 500))


def test_a_queue_tells_when_searches_queue_up() -> None:
    searches, told = SearchQueue(1), threading.Event()
    searches.on_congestion = told.set
    with searches.slot():
        waiting = Visitor(searches)
        until(lambda: searches.waiting == 1)
        threading.Event().wait(CONGESTED_S)
        assert not told.is_set()
    waiting.leave()
    assert told.is_set()


def test_searches_queue_up_when_requests_wait_for_one_after_the_other() -> None:
    searches, told = SearchQueue(4), threading.Event()
    searches.on_congestion = told.set
    searches.note_backlog(True)
    threading.Event().wait(CONGESTED_S)
    assert not told.is_set()
    with searches.slot():
        assert told.is_set()
    searches.note_backlog(False)
    told.clear()
    threading.Event().wait(CONGESTED_S)
    with searches.slot():
        assert not told.is_set()


def test_alone_a_search_is_not_measured() -> None:
    searches = SearchQueue(1)
    searches.on_congestion = lambda: pytest.fail("nothing queues up")
    for _ in range(3):
        with searches.slot():
            threading.Event().wait(CONGESTED_S)


# The cache


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the searches that the engine was asked for."""
    asked: list[str] = []
    whole = engine.search

    def search(readers: Any, queries: Any, *args: Any) -> Any:
        asked.append(queries[0].query.q)
        return whole(readers, queries, *args)

    monkeypatch.setattr(engine, "search", search)
    return asked


def write(instance: Any, uid: str, docid: int) -> None:
    """A document `{"id": docid}` comes into an index, made when absent."""
    with instance.changing():
        row = instance.index(uid)
        if row is None:
            row = IndexRow(uid, f"uuid-of-{uid}", 1, 1, "id")
            with instance.queue.finishing() as connection:
                instance.create_index(connection, row)
        writer = IndexWriter(instance.index_path(row.uuid))
        with writer.transaction():
            writer.register(["id"])
            writer.write([DocumentChange(docid, str(docid), f'{{"id":{docid}}}', {"id": [str(docid)]})])
        writer.close()


@pytest.fixture
def films(instance: Any, client: Any) -> Any:
    write(instance, "films", 1)
    return client


def ids(got: Any) -> list[int]:
    return [hit["id"] for hit in got.value["hits"]]


def test_the_same_search_is_run_once(films: Any, runs: list[str]) -> None:
    first, second = (films.json("POST", "/indexes/films/search", {"q": "1"}) for _ in range(2))
    assert runs == ["1"]
    assert first.value.pop("requestUid") != second.value.pop("requestUid")
    assert {**first.value, "processingTimeMs": 0, "requestUid": 0} == {**second.value, "processingTimeMs": 0, "requestUid": 0}
    films.get("/indexes/films/search?q=2")
    films.json("POST", "/indexes/films/search", {"q": "1", "limit": 1})
    assert runs == ["1", "2", "1"]


def test_after_a_write_it_is_run_again(films: Any, runs: list[str], instance: Any) -> None:
    assert ids(films.json("POST", "/indexes/films/search", {"q": ""})) == [1]
    write(instance, "films", 2)
    assert ids(films.json("POST", "/indexes/films/search", {"q": ""})) == [1, 2]
    write(instance, "other", 3)
    assert ids(films.json("POST", "/indexes/other/search", {"q": ""})) == [3]
    assert len(runs) == 3


def test_a_write_under_way_is_seen_as_soon_as_it_is_committed(films: Any, runs: list[str], instance: Any) -> None:
    assert ids(films.json("POST", "/indexes/films/search", {"q": ""})) == [1]
    with instance.changing():
        assert ids(films.json("POST", "/indexes/films/search", {"q": ""})) == [1]
        write(instance, "films", 2)
        for _ in range(2):
            assert ids(films.json("POST", "/indexes/films/search", {"q": ""})) == [1, 2]
    assert ids(films.json("POST", "/indexes/films/search", {"q": ""})) == [1, 2]
    assert len(runs) == 2


def test_a_cached_answer_needs_no_slot(films: Any, runs: list[str]) -> None:
    films.get("/indexes/films/search?q=1")
    with films.searches.slot(), films.searches.slot():  # all there are
        assert ids(films.get("/indexes/films/search?q=1")) == [1]
    assert runs == ["1"]


def test_a_search_that_ran_out_of_time_is_not_cached(films: Any, runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Over(context.Timer):
        def __call__(self, milliseconds: int) -> Any:
            return super().__call__(-1)

    monkeypatch.setattr(context, "Timer", Over)
    for _ in range(2):
        films.json("POST", "/indexes/films/search", {"q": "1", "showRankingScore": True})
    assert runs == ["1", "1"]


def _search_cache(**others: int) -> SearchCache:
    return SearchCache(lambda: 1 << 20, **others)


def test_answers_are_cached_by_state_and_question() -> None:
    answers, made = _search_cache(), []

    def make(text: str, is_whole: bool = True) -> Any:
        return lambda: (made.append(text), ((text.encode(),), is_whole))[1]

    for state, asked in (("a", "x"), ("a", "y"), ("b", "x")):
        for _ in range(2):
            assert answers.get(state, asked, make(state + asked)) == ((state + asked).encode(),)
    assert made == ["ax", "ay", "bx"]
    for _ in range(2):
        answers.get("a", "partial", make("p", False))
    assert made[3:] == ["p", "p"]


def test_a_large_answer_is_not_cached() -> None:
    answers, made = _search_cache(max_answer_bytes=3), []
    for text in ("abc", "abc", "abcd", "abcd"):
        answers.get("state", text, lambda text=text: (made.append(text), ((text.encode(),), True))[1])
    assert made == ["abc", "abcd", "abcd"]


def test_answers_give_way_when_there_is_less_room_for_them() -> None:
    room = [1 << 20]
    answers = SearchCache(lambda: room[0])
    for number in range(10):
        answers.get("state", str(number), lambda: ((b"x" * 10_000,), True))
    assert all(answers.peek("state", str(number)) for number in range(10))
    room[0] = 35_000
    answers.get("state", "one more", lambda: ((b"x" * 10_000,), True))
    kept = [number for number in range(10) if answers.peek("state", str(number))]
    assert kept == [8, 9] and answers.peek("state", "one more")


def test_answers_go_to_the_other_processes() -> None:
    here, there, later = _search_cache(), _search_cache(), _search_cache()
    here.publish = there.receive
    answers = {("uuid", 1): (b"hits", b"rest"), ("uuid", 2): (b"", b"none")}
    for state, parts in answers.items():
        here.get(state, "question", lambda parts=parts: (parts, True))
    here.get(("uuid", 3), "question", lambda: ((b"partial",), False))
    for message in there.messages():
        later.receive(message)
    for cache in (here, there, later):
        assert {state: cache.peek(state, "question") for state in answers} == answers
        assert cache.peek(("uuid", 3), "question") is None
