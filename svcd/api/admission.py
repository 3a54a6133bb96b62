"""When a search may run and how long: the search queue (SearchQueue), the cutoff (Timer), and the cache that saves searches
(SearchCache).

One interpreter computes one search at a time. Searches that share it all take longer (459 a second with 8 at once, 598
one by one), so each search has the process to itself for a head start, in which nearly all searches end. A longer search then
runs beside others, up to the limit, and lets newer searches go first for half as long as it has run (yield_turn). When
a search ends, the search that has waited longest starts; while that one has waited for too long, the newest: its client is most
likely to be still there. See docs/http.md#search-queue, #cutoff and #search-cache.

Threads: all request threads use it. The `_lock` of the queue guards the running searches, the list of waiting searches and the
measure of congestion; the `_lock` of the module guards the number of searches that were cut off. A timer belongs to one thread.
"""
from __future__ import annotations

import marshal
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from svcd.base.errors import ApiError
from svcd.index.read_transaction import Cache

if TYPE_CHECKING:
    from svcd.api.streaming import ConcurrencyLimit

MAX_ANSWER_BYTES = 64 << 10  # of one answer in the cache
_RETRY_AFTER_S = 10
# Searches count as crowded while one waits, or while more than this run at once. One user who types causes one or two searches at
# a time; slow ones run side by side.
_SIDE_BY_SIDE = 2
# Searches queue up when they were crowded for CONGESTED_S more than they were not; then a worker is forked. CROWDED_S is enough
# to start the process that forks it, which takes a third of a second on a core that is idle until then.
CROWDED_S, CONGESTED_S = 0.05, 0.25
# A search that lets others go first is due for a turn after this part of the time that it has run, at the latest after so many
# seconds; its longest wait.
_YIELD_PART, _YIELD_S, _LONGEST_YIELD_S = 0.5, 1.0, 60.0
# Searches start in the order of their arrival until one has waited for this many seconds. There are then more clients than can be
# served in time, and the newest is served at once. With the newest first always, 1 of 100 searches of 64 clients took 9 s instead
# of half a second.
_IN_ORDER_S = 1.0
# Requests with many searches may take one in this many slots.
_LONG_PART = 4
# Seconds between two checks of a search whether it has to let others go first.
_LOOK_S = 0.002
_MOST_REST_S = 0.2
# All searches of one request together rank no longer than this, even if their own time limits allow more.
REQUEST_S = 30.0

State = tuple[str, int]  # of an index: its uuid and generation
Parts = tuple[bytes, ...]  # UTF-8: in a str, one character outside Latin-1 would double the memory


# The search queue


class _Waiter:
    """One search. arrived_at, started_at: monotonic seconds; started_at is None while it waits.

    is_long: it has had a turn before; ran_s: seconds of all its turns; due_at: when its next turn is due, 0 before the first.
    """

    __slots__ = ("wakeup", "arrived_at", "started_at", "is_long", "ran_s", "due_at")

    def __init__(self) -> None:
        self.wakeup = threading.Event()
        self.arrived_at = time.monotonic()
        self.started_at: float | None = None
        self.is_long = False
        self.ran_s = self.due_at = 0.0


class Congestion:
    """Measures whether searches queue up: the seconds in which they were crowded, minus the seconds in which they were not.

    seconds: the measure. is_over: it is zero, and note() need not be called before searches are crowded again.
    """

    def __init__(self, limit_s: float = CONGESTED_S) -> None:
        self._limit_s = limit_s
        self.seconds = 0.0
        self._since = 0.0
        self._is_crowded = False
        self.is_over = True

    def note(self, is_crowded: bool, now: float) -> bool:
        """Note that searches are crowded, or not, from now on. True if they queue up; measuring then begins again.

        now: monotonic seconds.
        """
        passed = now - self._since
        self.seconds = max(0.0, self.seconds + (passed if self._is_crowded else -passed))
        self._since, self._is_crowded = now, is_crowded
        queues_up = self.seconds >= self._limit_s
        if queues_up:
            self.seconds = 0.0
        self.is_over = not is_crowded and not self.seconds
        return queues_up


class SearchQueue:
    """A queue of searches. parallel: how many may run at once; capacity: how many may wait; max_wait_s: for how long.

    head_start_s: how long a search has its process to itself. processes: how many processes share parallel and capacity; each
    gets an equal part, and requests are handed to the least loaded one. on_crowd: called once by a thread with a request when
    searches begin to queue up; on_congestion: when they do, and again while they continue to. on_wait: called before a search
    waits, for its turn or for another host.
    """

    def __init__(self, parallel: int, capacity: int = 1000, max_wait_s: float = 60.0, *, head_start_s: float = 0.0,
                 processes: int = 1) -> None:
        self._most = parallel
        self.capacity = capacity
        self.share(processes)
        self.on_crowd: Callable[[], None] | None = None
        self.on_congestion: Callable[[], None] | None = None
        self.on_wait: Callable[[], None] = lambda: None
        self._congestion = Congestion()
        self._has_backlog = False
        self._max_wait_s = max_wait_s
        self._head_start_s = head_start_s
        self._own = threading.local()  # `search`: the one of a thread, while it has a slot
        self._started: list[float] = []  # start of each running search, the newest last
        self._waiting: list[_Waiter] = []  # searches that have not run, the newest last
        self._yielded: list[_Waiter] = []  # searches that let others go first
        self._long_turn_ended_at = 0.0  # the last whole turn of such a search
        self._long = threading.BoundedSemaphore(max(1, parallel // _LONG_PART))
        self._lock = threading.Lock()

    def share(self, processes: int) -> None:
        """Use an equal part of the searches that `processes` processes together may run and hold waiting."""
        self._parallel = max(-(-self._most // processes), 1)
        self._own_capacity = -(-self.capacity // processes)

    @property
    def running(self) -> int:
        """Number of running searches."""
        return len(self._started)

    @property
    def waiting(self) -> int:
        """Number of waiting searches."""
        return len(self._waiting) + len(self._yielded)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Run the block as one search. Raises too_many_search_requests if the queue is full or the wait too long."""
        waiter = _Waiter()
        with self._lock:
            if self._has_room() and not self._is_full() or not self.capacity and len(self._started) < self._parallel:
                self._run(waiter)
            elif not self.capacity:
                raise self.too_many_searches()
            else:
                if len(self._waiting) >= self._own_capacity:
                    # Drop a random one, so that under load no client is rejected for being early or late.
                    # Importing `random` would take longer than importing this whole module.
                    place = int.from_bytes(os.urandom(4), "big") % len(self._waiting)
                    self._waiting.pop(place).wakeup.set()
                self._waiting.append(waiter)
        self._watch()
        if waiter.started_at is None:
            self.on_wait()
            self._wait(waiter, self._max_wait_s)
            self._watch()
        if waiter.started_at is None:
            raise self.too_many_searches()
        self._own.search = waiter
        try:
            yield
        finally:
            self._own.search = None
            self._leave(waiter.started_at)

    @contextmanager
    def long_slot(self) -> Iterator[None]:
        """Like slot(), for a request with many searches: only a few of them run or wait here, to leave room for others.

        Each counts as a wait from its start: if the leading thread answered them in turn, a short search would come after all of
        those that arrived before it.
        """
        self.on_wait()
        if not self._long.acquire(timeout=self._max_wait_s):
            raise self.too_many_searches()
        try:
            with self.slot():
                yield
        finally:
            self._long.release()

    def yield_turn(self) -> None:
        """Let other searches go first, if this thread has a slot and has had its head start.

        A long search calls this frequently (Timer). It gives up its slot to a search that waits or has just started, and takes it
        again when no new search needs it, or when it has let others go first for half as long as it has run. So long searches
        take turns, and short searches need not share the interpreter with them.
        """
        search: _Waiter | None = getattr(self._own, "search", None)
        if search is None or search.started_at is None or not self._is_to_yield(search, search.started_at):
            return
        with self._lock:
            now = time.monotonic()
            turn_s = now - search.started_at
            search.ran_s += turn_s
            if turn_s >= self._head_start_s:  # a whole turn, not one that it got while no search waited
                search.due_at = now + min(search.ran_s * _YIELD_PART, _YIELD_S)
                if search.is_long:
                    self._long_turn_ended_at = now
            self._started.remove(search.started_at)
            search.started_at, search.is_long = None, True
            search.wakeup.clear()
            self._yielded.append(search)
            self._start_next()
        if search.started_at is None:
            self.on_wait()
            self._wait(search, _LONGEST_YIELD_S)
        with self._lock:
            if search.started_at is None:
                self._run(search)
        self._watch()

    def _is_to_yield(self, search: _Waiter, started_at: float) -> bool:
        """Return whether another search waits, or has just started. Reads without the lock: the next check corrects an error."""
        newest, now = self._started[-1:], time.monotonic()
        is_early = now < search.due_at  # its turn was not due: it runs because no search waited
        if now - started_at < self._head_start_s and not (is_early and self._waiting and not self._is_full()):
            return False
        return bool(self._waiting or self._yielded) or newest > [started_at] and now - newest[0] < self._head_start_s

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Give up the slot of this thread in the block, which waits for another host.

        The search then continues at once: it has waited for its turn before, and is half done.
        """
        search: _Waiter | None = getattr(self._own, "search", None)
        if search is None or search.started_at is None:
            yield
            return
        self.on_wait()
        started_at = search.started_at
        self._leave(started_at)
        search.started_at = None
        try:
            yield
        finally:
            with self._lock:
                search.started_at = started_at
                self._started.insert(0, started_at)  # the newest is the last one
            self._watch()

    def _has_room(self) -> bool:
        if len(self._started) >= self._parallel:
            return False
        return not self._started or time.monotonic() - self._started[-1] >= self._head_start_s

    def _is_full(self) -> bool:
        """Return whether too many searches are half done to start a new one: each keeps an index open."""
        return len(self._started) + len(self._yielded) >= 2 * self._parallel

    def _run(self, waiter: _Waiter) -> None:
        waiter.started_at = time.monotonic()
        self._started.append(waiter.started_at)

    def _wait(self, waiter: _Waiter, max_wait_s: float) -> None:
        """Wait until a search ends, or, as the one that is next, until the head start of the newest running search is over."""
        until = time.monotonic() + max_wait_s
        while (left := until - time.monotonic()) > 0:
            with self._lock:
                is_next = self._next() is waiter
            # Only the next search checks again: a thousand waiting threads would take the interpreter from running searches.
            waiter.wakeup.wait(min(left, self._head_start_s or left) if is_next else left)
            with self._lock:
                if waiter not in self._waiting and waiter not in self._yielded:
                    return
                waiter.wakeup.clear()
                if self._next() is waiter:
                    self._start_next()
                    if waiter.started_at is not None:
                        return
                elif is_next:
                    self._wake_next()
        with self._lock:
            for queue in (self._waiting, self._yielded):
                if waiter in queue:
                    queue.remove(waiter)
                    self._wake_next()

    def _next(self) -> _Waiter | None:
        """The search that starts next: a new one, or a long one that is due. The caller holds the lock.

        Between two turns of long searches, new ones get at least as much time.
        """
        now = time.monotonic()
        if self._yielded:
            search = min(self._yielded, key=lambda search: search.due_at)
            if not self._waiting or self._is_full() or now >= max(search.due_at, self._long_turn_ended_at + self._head_start_s):
                return search
        if not self._waiting:
            return None
        return self._waiting[0 if now - self._waiting[0].arrived_at < _IN_ORDER_S else -1]

    def _start_next(self) -> None:
        """Start the next search if a slot is free. The caller holds the lock."""
        waiter = self._next()
        if waiter is None or not self._has_room() or not waiter.is_long and self._is_full():
            return
        (self._yielded if waiter.is_long else self._waiting).remove(waiter)
        self._run(waiter)
        waiter.wakeup.set()
        self._wake_next()

    def _wake_next(self) -> None:
        """Make the next search check from now on whether it may run."""
        if self._head_start_s and (waiter := self._next()) is not None:
            waiter.wakeup.set()

    def _leave(self, started_at: float) -> None:
        with self._lock:
            self._started.remove(started_at)
            self._start_next()
        self._watch()

    def note_backlog(self, has_backlog: bool) -> None:
        """Note whether requests outside this queue wait until a search is answered."""
        self._has_backlog = has_backlog
        self._watch()

    def _watch(self) -> None:
        """Measure whether searches queue up, after a search came or left."""
        if self.on_congestion is None:
            return
        if self._congestion.is_over and not self._is_crowded():  # nearly always
            return
        on_crowd = None
        with self._lock:
            queues_up = self._congestion.note(self._is_crowded(), time.monotonic())
            if self._congestion.seconds >= CROWDED_S:
                on_crowd, self.on_crowd = self.on_crowd, None
        if queues_up:
            self.on_congestion()
        elif on_crowd:
            on_crowd()

    def _is_crowded(self) -> bool:
        return self._has_backlog or bool(self._waiting) or len(self._started) + len(self._yielded) > _SIDE_BY_SIDE

    @contextmanager
    def one_of(self, places: ConcurrencyLimit) -> Iterator[None]:
        """Be one of the searches that wait for another host in this block. Raises too_many_search_requests."""
        if not places.try_acquire():
            raise self.too_many_searches()
        try:
            yield
        finally:
            places.release()

    def too_many_searches(self) -> ApiError:
        """The error of a search that the queue cannot take."""
        return ApiError("too_many_search_requests",
                        f"Too many search requests running at the same time: {self.capacity}. Retry after {_RETRY_AFTER_S}s.",
                        (("Retry-After", str(_RETRY_AFTER_S)),))


class OneByOne:
    """Lets one thread at a time do work that holds the interpreter for long, such as parsing a body of many megabytes.

    Each thread sleeps afterwards for as long as its work took, so that quick requests get at least half of the time.
    """

    def __init__(self, searches: SearchQueue) -> None:
        self._searches = searches
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run the block when no other thread runs its block."""
        self._searches.on_wait()
        with self._lock:
            started = time.monotonic()
            try:
                yield
            finally:
                time.sleep(min(time.monotonic() - started, _MOST_REST_S))


# The cutoff

_lock = threading.Lock()
_ran_out = 0


class Timer:
    """The cutoff of one search. A call with milliseconds returns a predicate: whether they have passed since the call.

    The time of paused() does not count. The search calls the predicate frequently, so the predicate also lets other searches go
    first. yield_turn: of the queue; until: the time (monotonic) at which the whole request has ranked for too long.
    """

    def __init__(self, yield_turn: Callable[[], None] = lambda: None, until: float = float("inf")) -> None:
        self.has_run_out = False
        self._yield_turn = yield_turn
        self._until = until
        self._started = self._looked_at = time.monotonic()
        self._paused_s = 0.0

    def __call__(self, milliseconds: int) -> Callable[[], bool]:
        end = min(time.monotonic() + milliseconds / 1000, self._until) - self._paused_s

        def has_passed() -> bool:
            now = time.monotonic()
            if now - self._looked_at >= _LOOK_S:
                self._yield_turn()
                self._looked_at = now = time.monotonic()
            return now - self._paused_s >= end and self._run_out()

        return has_passed

    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._started - self._paused_s

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock in the block."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._paused_s += time.monotonic() - started

    def _run_out(self) -> bool:
        global _ran_out
        if not self.has_run_out:
            self.has_run_out = True
            with _lock:
                _ran_out += 1
        return True


def degraded_searches() -> int:
    """Number of searches of this process that reached their cutoff."""
    return _ran_out


# The cache


class SearchCache:
    """Caches the hits of searches until their index changes; thread-safe.

    Many users type the same prefixes, and every visitor of a page requests the same first list. The least recently used
    entries are evicted first; answers of more than max_answer_bytes are not cached.

    All processes that answer searches cache the same answers: the process that computes an answer sends it to the others. So no
    client waits for an answer that another process has computed, and connections may go to any process.
    limit: returns the bytes that the cache may take now. publish: sends a message to receive() of the other processes.
    """

    def __init__(self, limit: Callable[[], int], max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._limit = limit
        self._cache = Cache(0)
        self._max_answer_bytes = max_answer_bytes
        self.publish: Callable[[bytes], None] | None = None

    def receive(self, message: bytes) -> None:
        """Cache an answer that another process has computed."""
        self._put(*marshal.loads(message))

    def messages(self) -> Iterator[bytes]:
        """All cached answers, for receive() of a process that has just started."""
        for (state, asked), (_, *parts) in self._cache.items():
            yield marshal.dumps((state, asked, tuple(parts)))

    def _put(self, state: State, asked: str, parts: Parts) -> None:
        self._cache.limit = self._limit()
        self._cache.put((state, asked), (asked, *parts))  # the key takes memory, too

    def peek(self, state: State, asked: str) -> Parts | None:
        """The parts of an answer if they are cached.

        state: of the index, different after each write. asked: everything else that the answer depends on.
        """
        held = self._cache.peek((state, asked))
        return None if held is None else held[1:]

    def get(self, state: State, asked: str, make: Callable[[], tuple[Parts, bool]]) -> Parts:
        """The parts of an answer, cached or made.

        make: computes (parts, whether to cache them); a search that was cut off must not be cached.
        """
        held = self.peek(state, asked)
        if held is not None:
            return held
        parts, is_whole = make()
        if is_whole and sum(map(len, parts)) <= self._max_answer_bytes:
            self._put(state, asked, parts)
            if self.publish is not None:
                self.publish(marshal.dumps((state, asked, parts)))
        return parts
