"""The main process' view of search workers: start, restart, commands, and stop.

svcd.cli.search_processes decides the number of workers. svcd.cli.search_worker describes the commands and replies.

Threads: "svcd-search-worker-N", one for each worker, has the process forked, reads its output, and outlives it. The thread
"svcd-search-workers" calls prepare(), resize(), adapt() and stop(); any thread may call the other methods. The `_lock` of a
worker serializes its commands.
"""
from __future__ import annotations

import json
import mmap
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from svcd.api.routes import is_for_all
from svcd.api.traffic import REGION_BYTES, Report, SharedTraffic
from svcd.base import logs
from svcd.cli import serving
from svcd.cli.config import Config
from svcd.cli.fork_server import ForkServer
from svcd.cli.serving import WorkerConfiguration
from svcd.http.worker_sharing import MAIN, HandoffQueue, LoadTable, PeerProcesses, new_handoff_queue, new_load_table

if TYPE_CHECKING:
    import socket

    from svcd.analytics.report import State
    from svcd.api.app import App
    from svcd.http.server import Server
    from svcd.instance.instance import Instance
    from svcd.querylog.recorder import Recorder

_MODULE = "svcd.cli.search_worker"
# Seconds to wait for the reply to a command. A worker replies within a millisecond, unless a search holds its interpreter lock.
REPLY_S = 1.0
# Seconds to wait until a worker that has just started takes the next cached answer.
ANSWER_WAIT_S = 1.0
# Seconds that the last requests of a superfluous worker may take: a client may be slow to read its response.
LEAVE_S = 60.0
# Seconds before a worker that ran for less than LONG_RUN_S is restarted, because the cause of its end may persist: each
# failure doubles the pause.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
LONG_RUN_S = 10.0


class _Worker:
    """One worker, over all its restarts. is_ready: it answers searches. has_answers: it has received the cached results."""

    def __init__(self, number: int, fork_server: ForkServer, on_ready: Callable[[], None],
                 on_last_usage: Callable[[State], None], query_log: Recorder | None) -> None:
        """on_ready: called when it begins to answer searches; on_last_usage: called with its counts when it ends.

        query_log: gets its searches.
        """
        self.number = number
        self.thread = threading.Thread()
        self.ending = threading.Event()  # it is not restarted
        self.is_ready = False
        self.has_answers = False
        self._fork_server = fork_server
        self._on_ready = on_ready
        self._on_last_usage = on_last_usage
        self._query_log = query_log
        self._lock = threading.Lock()  # guards _pid, _input and _last_ask, and serializes commands
        self._pid: int | None = None  # None while it does not run
        self._input: IO[bytes]
        self._replies: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._last_ask = 0

    def run(self, configure: Callable[[], WorkerConfiguration]) -> int | None:
        """Start the process, read its output until it ends, and return its exit status. Raises OSError."""
        with self._lock:
            if self.ending.is_set():
                return 0
            configuration = configure()  # with the lock held: commands report later changes
            self._replies = queue.SimpleQueue()
            pid, self._input, output = self._fork_server.fork()
            self._pid = pid
            self._send(configuration.as_json())
        with output:
            for line in output:
                if line.endswith(b"\n"):  # a killed worker may leave an incomplete line
                    self._receive(json.loads(line))
        self.is_ready = self.has_answers = False
        self._replies.put(None)
        with self._lock:
            self._pid = None
            with suppress(BrokenPipeError):
                self._input.close()
        return self._fork_server.end(pid)

    def _receive(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            self._replies.put(message)
        elif "logged" in message:
            logs.pass_on(logs.Event(*message["logged"]))
        elif "ready" in message:
            self.is_ready = True
            logs.info("search worker answers searches", number=self.number)
            self._on_ready()
        elif "searched" in message and self._query_log is not None:
            from svcd.querylog.recorder import Search

            self._query_log.add([Search(*fields) for fields in message["searched"]])
        elif "last_usage" in message:
            self._on_last_usage(message["last_usage"])

    def ask(self, command: Mapping[str, Any], timeout_s: float = REPLY_S) -> dict[str, Any] | None:
        """Send a command and return the reply; None if the worker is not running or does not reply in time."""
        with self._lock:
            if not self._tell(command):
                return None
            until = time.monotonic() + timeout_s
            while (left := until - time.monotonic()) > 0:
                try:
                    reply = self._replies.get(timeout=left)
                except queue.Empty:
                    return None
                if reply is None or reply["ask"] == self._last_ask:
                    return reply
            return None

    def tell(self, command: Mapping[str, Any]) -> None:
        """Send a command without waiting for its reply."""
        with self._lock:
            self._tell(command)

    def end(self, command: Mapping[str, Any]) -> None:
        """Let it end gracefully without a restart. command: `stop` or `leave`."""
        with self._lock:
            self.ending.set()
            self._tell(command)

    def kill(self) -> None:
        """Kill the process."""
        with self._lock:
            if self._pid is not None:
                self._fork_server.end(self._pid)

    def _tell(self, command: Mapping[str, Any]) -> bool:
        self._last_ask += 1
        return self._send(json.dumps({"ask": self._last_ask, **command}))

    def _send(self, line: str) -> bool:
        """Write a line to the worker; returns False if it is not running. The caller holds the lock."""
        if self._pid is None:
            return False
        try:
            self._input.write(line.encode() + b"\n")
            self._input.flush()
        except BrokenPipeError:
            return False
        return True


def keep_running(run: Callable[[], Mapping[str, Any]], stopping: threading.Event,
                 now: Callable[[], float] = time.monotonic) -> None:
    """Run a worker, and restart it each time it ends, until `stopping` is set. Logs each end; pauses grow.

    run: returns when the worker has ended, with fields for the log; now: seconds.
    """
    pause_s = 0.0
    while not stopping.is_set():
        started = now()
        end = run()
        if stopping.is_set():
            return
        ran_s = now() - started
        pause_s = 0.0 if ran_s >= LONG_RUN_S else min(max(FIRST_PAUSE_S, 2 * pause_s), LONGEST_PAUSE_S)
        logs.warn("search worker ended unexpectedly; restarting it", **end, pause_s=pause_s)
        stopping.wait(pause_s)


class SearchWorkerPool:
    """The search workers of a daemon, from none at first up to `most`.

    on_change: called when a worker begins to answer searches and when it has ended; the owner then calls adapt().
    """

    def __init__(self, config: Config, instance: Instance, server: Server, app: App, most: int,
                 on_change: Callable[[], None]) -> None:
        """server, app: the objects of the main process. Raises OSError without descriptors or memory."""
        processes = most + 1
        self._config, self._instance, self._server, self._app = config, instance, server, app
        self._on_change = on_change
        self._load_table = new_load_table(processes)
        self._incoming, self._outgoing = zip(*(new_handoff_queue() for _ in range(processes)))
        load_table = LoadTable(self._load_table)
        instance.share_changes(load_table.changes)
        self._peers = PeerProcesses(MAIN, load_table, self._incoming[MAIN], self._outgoing, is_for_all)
        self._counters = os.memfd_create("svcd-counters")
        os.ftruncate(self._counters, processes * REGION_BYTES)
        self._counter_memory = memoryview(mmap.mmap(self._counters, 0))
        self.fork_server = ForkServer(_MODULE, self._descriptors, instance.write_cache)
        self._free_numbers = list(range(most, 0, -1))  # the lowest last
        self._used_numbers: set[int] = set()
        self._workers: list[_Worker] = []  # replaced as a whole, so that other threads may read it
        self._processes = 1  # number of processes that answer searches
        self._last_usages: list[State] = []  # counts of ended workers
        self._settings = {"log": "", "follow": ""}
        instance.on_features = self._broadcast_features
        instance.on_network = lambda: self.broadcast({"network": self._instance.stored_network})
        instance.on_removal = lambda uuid: self.broadcast({"removed": uuid})
        app.services.search_cache.publish, server.on_message = self._peers.send_to_all, app.services.search_cache.receive
        server.share(self._peers)

    # The number of workers

    @property
    def size(self) -> int:
        """Return the number of running workers, without workers that are stopping."""
        return sum(not worker.ending.is_set() for worker in self._workers)

    @property
    def is_growing(self) -> bool:
        """Return whether a worker is starting."""
        return not all(worker.is_ready or worker.ending.is_set() for worker in self._workers)

    @property
    def is_shrinking(self) -> bool:
        """Return whether a worker is stopping."""
        return any(worker.ending.is_set() for worker in self._workers)

    def searches_under_way(self) -> int:
        """Return the number of running and waiting searches of all processes."""
        return self._app.services.searches.running + self._app.services.searches.waiting + self._peers.others_at_work()

    def prepare(self) -> None:
        """Start the fork server, so that later workers start within milliseconds."""
        try:
            self.fork_server.start()
        except OSError as failure:
            logs.warn("search workers cannot be started", failure=failure)

    def resize(self, size: int) -> None:
        """Start or stop workers until `size` run; fewer while stopping workers still occupy the places."""
        while self.size < size and self._free_numbers and self._start(self._free_numbers[-1]):
            pass
        for worker in [worker for worker in self._workers if not worker.ending.is_set()][size:]:
            logs.info("search worker is no longer needed", number=worker.number)
            worker.end({"leave": LEAVE_S})

    def _start(self, number: int) -> bool:
        """Start a worker with a free number; returns False if the system allows no more threads."""
        worker = _Worker(number, self.fork_server, self._on_change, self._last_usages.append, self._app.services.query_log)
        worker.thread = threading.Thread(target=self._supervise, args=(worker,), name=f"svcd-search-worker-{number}")
        try:
            worker.thread.start()
        except RuntimeError as failure:
            logs.warn("a search worker cannot be started", number=number, failure=failure)
            return False
        self._free_numbers.remove(number)
        self._used_numbers.add(number)
        self._workers = [*self._workers, worker]
        return True

    def adapt(self) -> None:
        """Forget workers that have ended, and share limits among the processes that answer searches now."""
        for worker in [worker for worker in self._workers if not worker.thread.is_alive()]:
            worker.thread.join()
            self._workers = [other for other in self._workers if other is not worker]
            self._free_numbers.append(worker.number)
        for worker in self._workers:
            if worker.ending.is_set() and self._peers.is_absent(worker.number):
                self._drain(worker.number)  # connections handed off just before its end
        if not self._free_numbers and not self.is_growing:
            self.fork_server.rest()
        processes = 1 + sum(worker.is_ready for worker in self._workers)
        if processes != self._processes:
            self._processes = processes
            self._app.share(processes)
            for worker in self._workers:
                worker.tell({"processes": processes})
        for worker in self._workers:
            if worker.is_ready and not worker.has_answers:
                worker.has_answers = True
                for message in self._app.services.search_cache.messages():
                    if not self._peers.send(worker.number, message, ANSWER_WAIT_S):
                        break

    def stop(self, grace_s: float) -> None:
        """Stop all workers within this time, then the server, and return when the workers have ended."""
        until = time.monotonic() + grace_s
        for worker in self._workers:
            worker.end({"stop": grace_s})
        for worker in self._workers:
            worker.thread.join(max(0.0, until - time.monotonic()) + REPLY_S)
            worker.kill()
            worker.thread.join()
        self.fork_server.close()
        # Last, because the workers have handed off requests that only this process answers.
        self._server.stop(max(REPLY_S, until - time.monotonic()))

    def close(self) -> None:
        """Close the shared sockets and memory, after the server has ended."""
        for sock in (*self._incoming, *self._outgoing):
            sock.close()
        os.close(self._load_table)
        os.close(self._counters)

    # Commands and reports

    def reports(self) -> list[Report]:
        """Return the traffic of all workers since the start, and the searches of running workers."""
        running = {worker.number: worker.ask({"report": True}) or {} for worker in self._workers}
        reports = []
        for number in sorted(self._used_numbers):
            counters = SharedTraffic(self._counter_memory[number * REGION_BYTES:(number + 1) * REGION_BYTES])
            now = running.get(number, {})
            reports.append(Report(counters.as_json(), now.get("running", 0), now.get("waiting", 0)))
        return reports

    def usages(self) -> list[State]:
        """Return the counts of the workers for the usage report since the last call."""
        replies = [worker.ask({"usage": True}) for worker in self._workers]
        ended = [self._last_usages.pop() for _ in range(len(self._last_usages))]
        return [*ended, *(reply["usage"] for reply in replies if reply is not None)]

    def _broadcast_features(self) -> None:
        """Return when all workers know: a change of features applies to every search after its response."""
        self.broadcast({"features": self._instance.features()})

    def broadcast(self, command: Mapping[str, Any]) -> None:
        """Send a command to all workers (svcd.cli.search_worker)."""
        for name in self._settings.keys() & command.keys():
            self._settings[name] = command[name]  # also for workers that start later
        for worker in self._workers:
            worker.ask(command)

    # Start and end of one

    def _supervise(self, worker: _Worker) -> None:
        """The main function of a worker's thread."""
        try:
            keep_running(lambda: self._run_once(worker), worker.ending)
        finally:
            self._on_change()

    def _run_once(self, worker: _Worker) -> dict[str, Any]:
        """Run a worker until it ends; return the fields of its log line."""
        try:
            status = worker.run(lambda: self._configuration(worker.number))
            return {"number": worker.number, "status": status}
        except OSError as failure:  # the process could not be started; a later start may work
            return {"number": worker.number, "failure": failure}
        finally:
            self._peers.mark_absent(worker.number)
            self._drain(worker.number)
            self._on_change()

    def _drain(self, number: int) -> None:
        """Serve the connections that were handed off to a worker that has ended."""
        HandoffQueue(self._incoming[number], self._server).drain()

    def _descriptors(self) -> list[int]:
        """Return the descriptors that workers inherit, with the lock of the folder."""
        sockets = (*self._listeners(), *self._incoming, *self._outgoing)
        return [*(sock.fileno() for sock in sockets), self._load_table, self._counters, self._instance.lock_descriptor]

    def _listeners(self) -> Sequence[socket.socket]:
        """Return the sockets on which workers accept."""
        return () if self._config.ssl_cert_path else self._server.sockets

    def _configuration(self, number: int) -> WorkerConfiguration:
        config = self._config
        return WorkerConfiguration(
            number=number, listeners=[sock.fileno() for sock in self._listeners()],
            load_table=self._load_table, incoming=self._incoming[number].fileno(),
            outgoing=[sock.fileno() for sock in self._outgoing], counters=self._counters, processes=self._processes + 1,
            path=str(self._instance.path), start=self._instance.start, features=self._instance.features(),
            search_memory=config.search_memory, master_key=config.master_key,
            payload_limit=config.http_payload_size_limit, threads=serving.threads(config),
            parallel_searches=serving.parallel_searches(config), queue_size=config.experimental_search_queue_size,
            drop_after_s=config.experimental_drop_search_after, log_level=config.log_level,
            logs_mode=config.experimental_logs_mode, log_targets=self._settings["log"], followed=self._settings["follow"],
            counts_usage=serving.reports_usage(config), logs_queries=self._app.services.query_log is not None,
            embedding_cache=config.experimental_embedding_cache_entries,
            networks=serving.allowed_networks(config), network=self._instance.stored_network,
            personalization_key=config.experimental_personalization_api_key, files=self._instance.open_files(),
        )
