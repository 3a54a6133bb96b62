"""The search workers as the main process sees them: starts, restarts, commands, and stop.

The commands and replies are described in svcd.cli.search_worker.

Threads: "svcd-search-worker-N", one for each worker, starts the process, reads its replies, and lives longer than it (the
kernel kills a worker when the thread that started it ends); "svcd-search-workers" waits for the stop and carries it out.
All other methods may be called from any thread; the `_lock` of a worker serializes what is sent to it.
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

from svcd.api.routes import Report, is_for_all
from svcd.base import logs
from svcd.cli import serving
from svcd.cli.config import Config
from svcd.cli.serving import WorkerConfiguration
from svcd.http.worker_sharing import MAIN, HandoffQueue, LoadTable, PeerProcesses, new_handoff_queue, new_load_table

if TYPE_CHECKING:
    from svcd.analytics.figures import State
    from svcd.http.server import Server
    from svcd.instance.instance import Instance

_MODULE = "svcd.cli.search_worker"
# Seconds to wait for the reply to a command. A worker replies within a millisecond, unless a search keeps its interpreter.
REPLY_S = 1.0
# Seconds before a worker that ran for less than LONG_RUN_S is restarted, because what ended it may persist: the first
# pause is doubled from failure to failure. A start takes a third of a second of processor time.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
LONG_RUN_S = 10.0


class _Worker:
    """One worker, over all its restarts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._lock = threading.Lock()  # guards _process, _last_ask and _is_ending, and serializes commands
        self._process: subprocess.Popen[bytes] | None = None
        self._replies: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._last_ask = 0
        self._is_ending = False

    def run(self, configure: Callable[[], WorkerConfiguration], lock_descriptor: int) -> int:
        """Start the process and read its replies until it ends; its exit status. lock_descriptor: of the folder's lock."""
        with self._lock:
            if self._is_ending:
                return 0
            configuration = configure()  # with the lock held: later changes are sent as commands
            self._replies = queue.SimpleQueue()
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                pass_fds=[*configuration.descriptors, lock_descriptor])
            self._send(configuration.as_json())
        assert process.stdout
        with process.stdout:
            for line in process.stdout:
                if line.endswith(b"\n"):  # an incomplete line: it was killed while writing
                    self._replies.put(json.loads(line))
        self._replies.put(None)
        with self._lock:
            self._process = None
        self._close_input(process)
        return process.wait()

    def ask(self, command: Mapping[str, Any], timeout_s: float = REPLY_S) -> dict[str, Any] | None:
        """Send a command; its reply, None if the worker is not running or does not reply in time."""
        with self._lock:
            self._last_ask += 1
            if not self._send(json.dumps({"ask": self._last_ask, **command})):
                return None
            until = time.monotonic() + timeout_s
            while (left := until - time.monotonic()) > 0:
                reply = self._next_reply(left)
                if reply is None or reply["ask"] == self._last_ask:
                    return reply
            return None

    def end(self, grace_s: float) -> None:
        """Make it stop gracefully, and do not restart it."""
        with self._lock:
            self._is_ending = True
            self._send(json.dumps({"ask": 0, "stop": grace_s}))

    def kill(self) -> None:
        """Kill the process."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def _next_reply(self, seconds: float) -> dict[str, Any] | None:
        try:
            return self._replies.get(timeout=seconds)
        except queue.Empty:
            return None

    def _send(self, line: str) -> bool:
        """Write a line to the worker; False if it is not running. The caller holds the lock."""
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


def keep_running(run: Callable[[], Mapping[str, Any]], stopping: threading.Event,
                 now: Callable[[], float] = time.monotonic) -> None:
    """Run a worker, and again each time it ends, until `stopping` is set; each end is logged, and pauses grow.

    run: returns when the worker has ended, with fields for the log; now: seconds.
    """
    pause_s = 0.0
    while not stopping.is_set():
        started = now()
        end = run()
        if stopping.is_set():
            return
        pause_s = _next_pause_s(pause_s, now() - started)
        logs.warn("search worker ended unexpectedly; restarting it", **end, pause_s=pause_s)
        stopping.wait(pause_s)


def _next_pause_s(last_pause_s: float, ran_s: float) -> float:
    return 0.0 if ran_s >= LONG_RUN_S else min(max(FIRST_PAUSE_S, 2 * last_pause_s), LONGEST_PAUSE_S)


class SearchWorkerPool:
    """The search workers of a daemon. peers: how the main process exchanges connections with them, for its Server."""

    def __init__(self, config: Config, instance: Instance) -> None:
        processes = config.search_workers + 1
        self._instance = instance
        self._config = config
        self._load_table = new_load_table(processes)
        self._incoming, self._outgoing = zip(*(new_handoff_queue() for _ in range(processes)))
        self.peers = PeerProcesses(MAIN, LoadTable(self._load_table), self._incoming[MAIN], self._outgoing, is_for_all)
        self._workers = [_Worker(number) for number in range(1, processes)]
        self._threads = [threading.Thread(target=self._supervise, args=(worker,), name=f"svcd-search-worker-{worker.number}")
                         for worker in self._workers]
        self._stopper = threading.Thread(target=self._stop_all, name="svcd-search-workers")
        self._stopping = threading.Event()
        self._grace_s = 0.0
        self._log_targets = ""
        self._server: Server | None = None

    def start(self, server: Server) -> None:
        """Start the workers; returns at once. server: of the main process."""
        self._server = server
        self._instance.on_features = self._broadcast_features
        self._instance.on_removal = lambda uuid: self.broadcast({"removed": uuid})
        for thread in (*self._threads, self._stopper):
            thread.start()

    def stop(self, grace_s: float) -> bool:
        """Stop all workers, then the server; returns at once, and may be called from a signal handler.

        False if start() was not called: the caller has to stop the server.
        """
        self._grace_s = grace_s
        self._stopping.set()
        return self._server is not None

    def end(self) -> None:
        """Stop, and wait until all workers have ended."""
        self._stopping.set()
        if self._server is not None:
            self._stopper.join()
        for sock in (*self._incoming, *self._outgoing):
            sock.close()
        os.close(self._load_table)

    def reports(self) -> list[Report]:
        """The traffic reports of the running workers."""
        replies = [worker.ask({"report": True}) for worker in self._workers]
        return [Report.of_json(reply) for reply in replies if reply is not None]

    def usages(self) -> list[State]:
        """What the running workers have counted for the usage report since the last call."""
        replies = [worker.ask({"usage": True}) for worker in self._workers]
        return [reply["usage"] for reply in replies if reply is not None]

    def _broadcast_features(self) -> None:
        """Returns when all workers know: a change of features applies to every search that follows its response."""
        self.broadcast({"features": self._instance.features()})

    def broadcast(self, command: Mapping[str, Any]) -> None:
        """Send a command to all workers (svcd.cli.search_worker)."""
        self._log_targets = command.get("log", self._log_targets)  # also for workers that are started later
        for worker in self._workers:
            worker.ask(command)

    # Start and end

    def _supervise(self, worker: _Worker) -> None:
        """The main function of a worker's thread."""
        keep_running(lambda: self._run_once(worker), self._stopping)

    def _run_once(self, worker: _Worker) -> dict[str, Any]:
        """Run a worker until it ends; how it ended, as fields for the log."""
        try:
            status = worker.run(lambda: self._configuration(worker.number), self._instance.lock_descriptor)
            return {"number": worker.number, "status": status}
        except OSError as failure:  # no process could be started; it may work later
            return {"number": worker.number, "failure": failure}
        finally:
            self._take_over_connections(worker.number)

    def _take_over_connections(self, number: int) -> None:
        """Serve the connections that were handed off to a worker that has ended."""
        assert self._server
        self.peers.mark_absent(number)
        HandoffQueue(self._incoming[number], self._server).drain()

    def _stop_all(self) -> None:
        assert self._server
        self._stopping.wait()
        until = time.monotonic() + self._grace_s
        for worker in self._workers:
            worker.end(self._grace_s)
        for worker, thread in zip(self._workers, self._threads):
            thread.join(max(0.0, until - time.monotonic()) + REPLY_S)
            worker.kill()
            thread.join()
        # Last: until now the workers handed off requests that only this process answers.
        self._server.stop(max(REPLY_S, until - time.monotonic()))

    def _configuration(self, number: int) -> WorkerConfiguration:
        assert self._server
        config = self._config
        return WorkerConfiguration(
            number=number, listeners=[sock.fileno() for sock in self._server.sockets], load_table=self._load_table,
            incoming=self._incoming[number].fileno(), outgoing=[sock.fileno() for sock in self._outgoing],
            path=str(self._instance.path), features=self._instance.features(), master_key=config.master_key,
            payload_limit=config.http_payload_size_limit, threads=serving.threads(config),
            parallel_searches=serving.parallel_searches(config), queue_size=config.experimental_search_queue_size,
            drop_after_s=config.experimental_drop_search_after, log_level=config.log_level,
            logs_mode=config.experimental_logs_mode, log_targets=self._log_targets,
            counts_usage=serving.reports_usage(config),
        )
