"""When a search may run and how long: the search queue (SearchQueue), the cutoff (Timer), and the cache that spares a search
(SearchCache).

One interpreter computes one search at a time. Searches that share it all take longer (459 a second with 8 at once, 598
one by one), so each search has the process to itself for a head start, in which nearly all end; a longer one then runs
beside others, up to the limit. When a search ends, the newest waiting one starts: its client is the likeliest to be
still there. See docs/http.md#search-queue, #cutoff and #search-cache.

Threads: every request thread comes here; the `_lock` of the queue guards the running searches, the list of waiting
ones and the measure of congestion, that of the module the count of searches that were cut off. A timer belongs to one thread.
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
# Searches are in each other's way while one waits, or while more than this run at once. One user who types has one or two
# under way, and where these are slow, they run side by side.
_SIDE_BY_SIDE = 2
# Searches queue up when they were in each other's way for so many seconds more than they were not. A worker pays off only for
# clients that go on: its start, and the caches that it has to fill, take 0.6 to 1 s of processor time, but of a core that is idle
# until then. Eight clients got 104, 110 and 153 searches a second with 1 s here, by turns with 124, 114 and 196 with 0.25 s.
CONGESTED_S = 0.25

State = tuple[str, int]  # of an index: its uuid and generation
Parts = tuple[bytes, ...]  # UTF-8: in a str, one character outside Latin-1 would double the memory


# The search queue


class _Waiter:
    """One search. started_at: monotonic seconds; None while it waits."""

    __slots__ = ("wakeup", "started_at")

    def __init__(self) -> None:
        self.wakeup = threading.Event()
        self.started_at: float | None = None


class Congestion:
    """Measures whether searches queue up: for how many seconds they were in each other's way, less those they were not.

    is_over: nothing is measured now, and nothing needs to be noted before the next crowd.
    """

    def __init__(self, limit_s: float = CONGESTED_S) -> None:
        self._limit_s = limit_s
        self._seconds = 0.0
        self._since = 0.0
        self._is_crowded = False
        self.is_over = True

    def note(self, is_crowded: bool, now: float) -> bool:
        """From now on searches are, or are not, in each other's way. True if they queue up; measuring then begins again.

        now: monotonic seconds.
        """
        passed = now - self._since
        self._seconds = max(0.0, self._seconds + (passed if self._is_crowded else -passed))
        self._since, self._is_crowded = now, is_crowded
        queues_up = self._seconds >= self._limit_s
        if queues_up:
            self._seconds = 0.0
        self.is_over = not is_crowded and not self._seconds
        return queues_up


class SearchQueue:
    """A queue of searches. parallel: how many may run at once; capacity: how many may wait; max_wait_s: for how long.

    head_start_s: how long a search has its process to itself. processes: how many processes share parallel and
    capacity; each gets an equal part, and requests are handed to the least loaded one.
    on_congestion: called, by a thread with a request, when searches queue up, and again while they go on doing so.
    on_wait: called before a search waits, for its turn or for another host.
    """

    def __init__(self, parallel: int, capacity: int = 1000, max_wait_s: float = 60.0, *, head_start_s: float = 0.0,
                 processes: int = 1) -> None:
        self._most = parallel
        self.capacity = capacity
        self.share(processes)
        self.on_congestion: Callable[[], None] | None = None
        self.on_wait: Callable[[], None] = lambda: None
        self._congestion = Congestion()
        self._has_backlog = False
        self._max_wait_s = max_wait_s
        self._head_start_s = head_start_s
        self._own = threading.local()  # `started_at` of the search of a thread
        self._started: list[float] = []  # start of each running search, the newest last
        self._waiting: list[_Waiter] = []
        self._lock = threading.Lock()

    def share(self, processes: int) -> None:
        """Keep to an equal part of all that so many processes may run and have waiting."""
        self._parallel = max(-(-self._most // processes), 1)
        self._own_capacity = -(-self.capacity // processes)

    @property
    def running(self) -> int:
        """How many searches run."""
        return len(self._started)

    @property
    def waiting(self) -> int:
        """How many searches wait."""
        return len(self._waiting)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Run the block as one search. Raises too_many_search_requests if the queue is full or the wait too long."""
        waiter = self._admit()
        self._watch()
        if waiter.started_at is None:
            self.on_wait()
            self._wait(waiter)
            self._watch()
        if waiter.started_at is None:
            raise self.too_many_searches()
        self._own.started_at = waiter.started_at
        try:
            yield
        finally:
            self._own.started_at = None
            self._leave(waiter.started_at)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Give up the slot of this thread in the block, which waits for another host.

        The search then goes on at once: it has waited for its turn before, and is half done.
        """
        started_at: float | None = getattr(self._own, "started_at", None)
        if started_at is None:
            yield
            return
        self.on_wait()
        self._leave(started_at)
        try:
            yield
        finally:
            with self._lock:
                self._started.insert(0, started_at)  # the newest is the last one
            self._watch()

    def _has_room(self) -> bool:
        if len(self._started) >= self._parallel:
            return False
        return not self._started or time.monotonic() - self._started[-1] >= self._head_start_s

    def _run(self, waiter: _Waiter) -> None:
        waiter.started_at = time.monotonic()
        self._started.append(waiter.started_at)

    def _admit(self) -> _Waiter:
        """A search that runs, or that waits in the queue. Raises too_many_search_requests without a queue."""
        waiter = _Waiter()
        with self._lock:
            if self._has_room() or not self.capacity and len(self._started) < self._parallel:
                self._run(waiter)
                return waiter
            if not self.capacity:
                raise self.too_many_searches()
            if len(self._waiting) >= self._own_capacity:
                # Drop a random one, so that under load no client is rejected for being early or late.
                self._waiting.pop(_random_index(len(self._waiting))).wakeup.set()
            self._waiting.append(waiter)
            return waiter

    def _wait(self, waiter: _Waiter) -> None:
        """Wait until a search ends, or, as the newest that waits, until the head start of the newest running search is over."""
        until = time.monotonic() + self._max_wait_s
        while (left := until - time.monotonic()) > 0:
            # The newest alone looks again: a thousand threads that did would take the interpreter from those that search.
            waiter.wakeup.wait(min(left, self._head_start_s or left) if self._waiting[-1:] == [waiter] else left)
            with self._lock:
                if waiter not in self._waiting:
                    return
                waiter.wakeup.clear()
                if waiter is self._waiting[-1] and self._has_room():
                    self._start(waiter)
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                self._wake_newest()

    def _start(self, waiter: _Waiter) -> None:
        self._waiting.remove(waiter)
        self._run(waiter)
        waiter.wakeup.set()
        self._wake_newest()

    def _wake_newest(self) -> None:
        """Have the newest that waits look from now on whether it may run."""
        if self._waiting and self._head_start_s:
            self._waiting[-1].wakeup.set()

    def _leave(self, started_at: float) -> None:
        with self._lock:
            self._started.remove(started_at)
            if self._waiting and self._has_room():
                self._start(self._waiting[-1])
        self._watch()

    def note_backlog(self, has_backlog: bool) -> None:
        """From now on requests have arrived, or not, that wait until a search is answered, and are not in this queue."""
        self._has_backlog = has_backlog
        self._watch()

    def _watch(self) -> None:
        """Measure whether searches queue up, after one came or left."""
        if self.on_congestion is None:
            return
        if self._congestion.is_over and not self._is_crowded():  # nearly always
            return
        with self._lock:
            queues_up = self._congestion.note(self._is_crowded(), time.monotonic())
        if queues_up:
            self.on_congestion()

    def _is_crowded(self) -> bool:
        return self._has_backlog or bool(self._waiting) or len(self._started) > _SIDE_BY_SIDE

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
        """The error of a search for which there is no room."""
        return ApiError(
            "too_many_search_requests",
            f"Too many search requests running at the same time: {self.capacity}. Retry after {_RETRY_AFTER_S}s.",
            (("Retry-After", str(_RETRY_AFTER_S)),),
        )


def _random_index(count: int) -> int:
    """A random number below `count`. Importing `random` would take longer than the whole of this module."""
    return int.from_bytes(os.urandom(4), "big") % count


# The cutoff

_lock = threading.Lock()
_ran_out = 0


class Timer:
    """The cutoff of one search: called with milliseconds, returns a predicate: have they passed since the call?

    The time of paused() does not count.
    """

    def __init__(self) -> None:
        self.has_run_out = False
        self._started = time.monotonic()
        self._paused_s = 0.0

    def __call__(self, milliseconds: int) -> Callable[[], bool]:
        end = time.monotonic() + milliseconds / 1000 - self._paused_s
        return lambda: time.monotonic() - self._paused_s >= end and self._run_out()

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
        if not self.has_run_out:
            self.has_run_out = True
            _count()
        return True


def _count() -> None:
    global _ran_out
    with _lock:
        _ran_out += 1


def degraded_searches() -> int:
    """How many searches of this process reached their cutoff."""
    return _ran_out


# The cache


class SearchCache:
    """Caches the hits of searches until their index changes; thread-safe.

    While people type, many type the same prefixes, and every visitor of a page asks for the same first list. Least
    recently used entries are evicted first; answers of more than max_answer_bytes are not cached.

    Every process that answers searches caches the same answers: the one that has computed an answer sends it to the others,
    so that no client waits for what was computed already, and connections may go to any process.
    limit: the bytes that the cache may take now. publish: sends a message to the other processes, whose receive() gets it.
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
        """Everything that is cached now, for the receive() of a process that has just started."""
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

        make: computes (parts, may they be cached?); a search that was cut off must not be.
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
