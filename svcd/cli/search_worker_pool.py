"""The main process' side of search workers: starts them, starts them again, tells them what changes, ends them.

Knows processes and the lines of their pipes (svcd.cli.search_worker); refuses to know what a search is.

Threads: each worker has one here, "svcd-search-worker-N", that starts it, reads what it says and outlives it (the
kernel ends a worker with the thread that started it); "svcd-search-workers" waits for the end and brings it about.
Any thread may call the rest; a worker's `_lock` orders what is said to it.
"""
from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from svcd.api.routes import is_for_all
from svcd.api.traffic import Report
from svcd.base import logs
from svcd.cli import serving
from svcd.cli.config import Config
from svcd.cli.search_worker import WorkerConfiguration
from svcd.http.worker_sharing import MAIN, HandoffQueue, LoadTable, PeerProcesses, new_handoff_queue, new_load_table

if TYPE_CHECKING:
    from svcd.analytics.figures import State
    from svcd.http.server import Server
    from svcd.instance.instance import Instance

_MODULE = "svcd.cli.search_worker"
# A worker answers in a millisecond, or as soon as its interpreter is free; one that does not is not waited for.
ANSWER_S = 1.0
# Before one that has hardly lived is started again: whatever ended it may last.
PAUSE_S = 1.0
HARDLY_S = 10.0


class _Worker:
    """One worker, over all its lives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._lock = threading.Lock()  # guards _process, _asked and _is_over, and orders what is said
        self._process: subprocess.Popen[bytes] | None = None
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._asked = 0
        self._is_over = False

    def live(self, orders: Callable[[], WorkerConfiguration], lock_descriptor: int) -> int:
        """Start it and read what it says until it ends: its status. lock_descriptor: of the folder; it shares it."""
        with self._lock:
            if self._is_over:
                return 0
            now = orders()  # with the lock: what changes later is said later
            self._said = queue.SimpleQueue()
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                pass_fds=[*now.descriptors, lock_descriptor])
            self._say(now.as_json())
        assert process.stdout
        with process.stdout:
            for line in process.stdout:
                if line.endswith(b"\n"):  # else it was killed in the middle
                    self._said.put(json.loads(line))
        self._said.put(None)
        with self._lock:
            self._process = None
        self._close_input(process)
        return process.wait()

    def ask(self, order: Mapping[str, Any], patience_s: float = ANSWER_S) -> dict[str, Any] | None:
        """What it answers; None when it does not live, or not answer in time."""
        with self._lock:
            self._asked += 1
            if not self._say(json.dumps({"ask": self._asked, **order})):
                return None
            until = time.monotonic() + patience_s
            while (left := until - time.monotonic()) > 0:
                said = self._next(left)
                if said is None or said["ask"] == self._asked:
                    return said
            return None

    def end(self, grace_s: float) -> None:
        """Let it end in good order, and have no further life."""
        with self._lock:
            self._is_over = True
            self._say(json.dumps({"ask": 0, "stop": grace_s}))

    def kill(self) -> None:
        """End it at once."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def _next(self, seconds: float) -> dict[str, Any] | None:
        try:
            return self._said.get(timeout=seconds)
        except queue.Empty:
            return None

    def _say(self, line: str) -> bool:
        """To be called with the lock. False when nobody listens."""
        if self._process is None:
            return False
        assert self._process.stdin
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    @staticmethod
    def _close_input(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass


class SearchWorkers:
    """The workers of a daemon. share: the main process' part, for its server."""

    def __init__(self, config: Config, instance: Instance) -> None:
        processes = config.search_workers + 1
        self._instance = instance
        self._config = config
        self._board = new_load_table(processes)
        self._takers, self._givers = zip(*(new_handoff_queue() for _ in range(processes)))
        self.share = PeerProcesses(MAIN, LoadTable(self._board), self._takers[MAIN], self._givers, is_for_all)
        self._workers = [_Worker(number) for number in range(1, processes)]
        self._threads = [threading.Thread(target=self._keep, args=(worker,), name=f"svcd-search-worker-{worker.number}")
                         for worker in self._workers]
        self._overseer = threading.Thread(target=self._oversee, name="svcd-search-workers")
        self._stopping = threading.Event()
        self._grace_s = 0.0
        self._log_targets = ""
        self._server: Server | None = None

    def start(self, server: Server) -> None:
        """Begin; returns at once. server: of the main process."""
        self._server = server
        self._instance.on_features = self._tell_features
        self._instance.on_removal = lambda uuid: self.broadcast({"removed": uuid})
        for thread in (*self._threads, self._overseer):
            thread.start()

    def stop(self, grace_s: float) -> bool:
        """Ask all to end, the server last; returns at once, and may be called from a signal handler.

        False when they were not started: nobody will end the server.
        """
        self._grace_s = grace_s
        self._stopping.set()
        return self._server is not None

    def end(self) -> None:
        """Stop, and wait for the end."""
        self._stopping.set()
        if self._server is not None:
            self._overseer.join()
        for sock in (*self._takers, *self._givers):
            sock.close()
        os.close(self._board)

    def reports(self) -> list[Report]:
        """What each worker that lives has answered."""
        said = [worker.ask({"report": True}) for worker in self._workers]
        return [Report.of_json(one) for one in said if one is not None]

    def usages(self) -> list[State]:
        """What each worker that lives has counted for the usage report since it was asked last."""
        said = [worker.ask({"usage": True}) for worker in self._workers]
        return [one["usage"] for one in said if one is not None]

    # What changes

    def _tell_features(self) -> None:
        """A change of features counts for every search that comes after its answer."""
        self.broadcast({"features": self._instance.features()})

    def broadcast(self, order: Mapping[str, Any]) -> None:
        """Have all of them do something (svcd.cli.search_worker)."""
        self._log_targets = order.get("log", self._log_targets)  # for those that are started later, too
        for worker in self._workers:
            worker.ask(order)

    # Lives and ends

    def _keep(self, worker: _Worker) -> None:
        while not self._stopping.is_set():
            begin = time.monotonic()
            end = self._live(worker)
            if self._stopping.is_set():
                return
            logs.warn("a search worker ended, and is started again", number=worker.number, **end)
            self._stopping.wait(PAUSE_S if time.monotonic() - begin < HARDLY_S else 0)

    def _live(self, worker: _Worker) -> dict[str, Any]:
        """One life of a worker; how it ended."""
        try:
            return {"status": worker.live(lambda: self._orders(worker.number), self._instance.lock_descriptor)}
        except OSError as failure:  # the system gives no more processes: it may later
            return {"failure": failure}
        finally:
            self._take_over(worker.number)

    def _take_over(self, number: int) -> None:
        """What was passed on to a worker that has ended."""
        assert self._server
        self.share.mark_absent(number)
        HandoffQueue(self._takers[number], self._server).drain()

    def _oversee(self) -> None:
        assert self._server
        self._stopping.wait()
        until = time.monotonic() + self._grace_s
        for worker in self._workers:
            worker.end(self._grace_s)
        for worker, thread in zip(self._workers, self._threads):
            thread.join(max(0.0, until - time.monotonic()) + ANSWER_S)
            worker.kill()
            thread.join()
        # Only now: until here, workers pass on what only this process answers.
        self._server.stop(max(ANSWER_S, until - time.monotonic()))

    def _orders(self, number: int) -> WorkerConfiguration:
        assert self._server
        config = self._config
        return WorkerConfiguration(
            number=number, listeners=[sock.fileno() for sock in self._server.sockets], board=self._board,
            tray=self._takers[number].fileno(), trays=[giver.fileno() for giver in self._givers],
            path=str(self._instance.path), features=self._instance.features(), master_key=config.master_key,
            payload_limit=config.http_payload_size_limit, threads=serving.threads(config),
            parallel_searches=serving.parallel_searches(config), queue_size=config.experimental_search_queue_size,
            drop_after_s=config.experimental_drop_search_after, log_level=config.log_level,
            logs_mode=config.experimental_logs_mode, log_targets=self._log_targets,
            counts_usage=serving.reports_usage(config),
        )
