"""How many processes answer searches: the search workers start when searches queue up, and end when they are idle.

With `--search-workers auto` (docs/http.md#worker-processes) a daemon loads the code for them (svcd.cli.search_worker_pool) and
starts the process that forks them (svcd.cli.fork_server) only when searches of the main process begin to queue up for the first
time. None starts on the core that materializes postings. With a number that many run from the start.

Threads: "svcd-search-workers" starts the workers, looks ten times a second how many are needed while some run, and carries out
the stop; with `auto` it starts when searches begin to queue up. `_lock` guards its start. Request threads call `_on_crowd` and
`_on_congestion`.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from svcd.base import logs, machine
from svcd.cli.config import Config
from svcd.cli.options import AUTO

if TYPE_CHECKING:
    from svcd.analytics.report import State
    from svcd.api.app import App
    from svcd.api.traffic import Report
    from svcd.cli.search_worker_pool import SearchWorkerPool
    from svcd.http.server import Server
    from svcd.instance.instance import Instance

# Seconds without work after which a worker ends, and without workers after which the process ends that forks them: it takes 15
# to 25 MB, and its start a third of a second of processor time.
IDLE_S, KEPT_S = 30.0, 600.0
# How often the load of workers is measured, and the queue of one that leaves is emptied. At 50 searches of 6 ms a second, two
# meet during 4 % of the time: measured once a second, a worker ended by chance nearly every minute, the next began with a cold
# cache.
SAMPLE_S = 0.1


class Demand:
    """How many workers are needed. idle_s: how long one is kept that is not needed. All times are monotonic seconds."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._needed_at: list[float] = []  # of each worker, when it was needed last

    def grow(self, most: int, now: float) -> int:
        """Searches queue up: how many workers there should be. most: how many there may be; workers beyond it stay."""
        workers = len(self._needed_at)
        self._needed_at = [now] * max(workers, min(workers + 1, most))
        return len(self._needed_at)

    def sample(self, searches: int, now: float) -> int:
        """Return how many workers are needed for `searches` concurrent searches in all processes.

        One process can run one search at a time, so the second search needs the first worker.
        """
        for worker in range(min(searches - 1, len(self._needed_at))):
            self._needed_at[worker] = now
        while self._needed_at and now - self._needed_at[-1] >= self._idle_s:
            self._needed_at.pop()
        return len(self._needed_at)


def most_now(most: int, is_materializing: bool) -> int:
    """Return how many workers there may be now. most: at any time. is_materializing: whether postings are being materialized.

    Materializing keeps one core busy. On two cores a worker beside it adds no searches, and the postings, which make searches
    quick, take twice as long (BENCHMARKS.md).
    """
    return min(most, max(0, machine.cores() - 2)) if is_materializing else most


class SearchProcesses:
    """The search workers of a daemon, started when they are needed."""

    def __init__(self, config: Config, instance: Instance, most: int) -> None:
        """most: maximum number of workers, at least 1."""
        self._config = config
        self._instance = instance
        self._most = most
        self._is_auto = config.search_workers == AUTO
        self._demand = Demand(IDLE_S)
        self._pool: SearchWorkerPool | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._changed = threading.Event()  # wakes the thread
        self._queues_up = False
        self._grace_s = 0.0
        self._settings: dict[str, Mapping[str, Any]] = {}  # name: the last command that has changed it

    def start(self, server: Server, app: App, is_materializing: Callable[[], bool]) -> None:
        """Start the workers, or let them start when they are needed; returns at once. The arguments are the main process's.

        is_materializing: returns whether an indexing process materializes postings, which keeps a core busy.
        """
        self._server, self._app, self._is_materializing = server, app, is_materializing
        if self._is_auto:
            app.services.searches.on_crowd, app.services.searches.on_congestion = self._on_crowd, self._on_congestion
        else:
            self._start_thread()

    def stop(self, grace_s: float) -> bool:
        """Stop all workers, then the server; returns at once, and may be called from a signal handler.

        Returns False if no worker was started: the caller has to stop the server.
        """
        self._grace_s = grace_s
        self._stopping.set()
        self._changed.set()
        return self._pool is not None

    def end(self) -> None:
        """Stop, and wait until all workers have ended."""
        self.stop(self._grace_s)
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        if self._pool:
            self._pool.close()

    @property
    def are_running(self) -> bool:
        """Return whether workers run, including workers that are stopping."""
        return self._pool is not None and (self._pool.size > 0 or self._pool.is_shrinking)

    def reports(self) -> Sequence[Report]:
        """Return the traffic of all workers since the start of the daemon, including ended workers."""
        return self._pool.reports() if self._pool else ()

    def usages(self) -> Sequence[State]:
        """Return the counts of the workers for the usage report since the last call."""
        return self._pool.usages() if self._pool else ()

    def broadcast(self, command: Mapping[str, Any]) -> None:
        """Send a command to all workers (svcd.cli.search_worker), also to workers that start later."""
        self._settings.update((name, command) for name in command if name in ("log", "follow"))
        if self._pool:
            self._pool.broadcast(command)

    def _on_congestion(self) -> None:
        self._queues_up = True
        self._on_crowd()

    def _on_crowd(self) -> None:
        self._changed.set()
        if self._thread is None:
            try:
                self._start_thread()
            except RuntimeError:  # the system allows no more threads: searches run without workers
                pass

    def _start_thread(self) -> None:
        with self._lock:
            if self._thread is not None or self._stopping.is_set():
                return
            thread = threading.Thread(target=self._run, name="svcd-search-workers")
            thread.start()
            self._thread = thread

    # The thread

    def _run(self) -> None:
        from svcd.cli.search_worker_pool import SearchWorkerPool  # 10 ms, and few daemons need search workers

        try:
            pool = SearchWorkerPool(self._config, self._instance, self._server, self._app, self._most, self._changed.set)
        except OSError as failure:
            logs.warn("search workers cannot be started", failure=failure)
            return
        self._pool = pool
        for command in [*self._settings.values()]:
            pool.broadcast(command)
        try:
            if not self._is_auto:
                pool.resize(self._most)
            while not self._stopping.is_set():
                has_changed = self._changed.wait(self._pause_s(pool))
                self._changed.clear()
                pool.adapt()
                if self._is_auto and not self._stopping.is_set():
                    self._adjust(pool, has_changed)
        finally:
            pool.stop(self._grace_s)

    def _pause_s(self, pool: SearchWorkerPool) -> float | None:
        """How long to wait for a change; None without limit."""
        if pool.is_shrinking or self._is_auto and pool.size:
            return SAMPLE_S
        return KEPT_S if self._is_auto and pool.fork_server.is_running else None

    def _adjust(self, pool: SearchWorkerPool, has_changed: bool) -> None:
        """Start or stop workers, and the process that forks them, to match the load."""
        most = most_now(self._most, self._is_materializing())
        if not (pool.size or pool.is_shrinking):
            if has_changed and most:
                pool.prepare()
            elif not has_changed:
                pool.fork_server.close()
                self._app.services.searches.on_crowd = self._on_crowd
        queues_up, self._queues_up = self._queues_up, False
        if queues_up and not pool.is_growing:  # start the next worker only when the last one serves
            pool.resize(self._demand.grow(most, time.monotonic()))
        else:
            pool.resize(self._demand.sample(pool.searches_under_way(), time.monotonic()))
