"""The daemon, put together: store, runner, application, server; started in this order, stopped backwards.

Knows which part is given to which; refuses to know what any of them does.

Threads: the main thread runs `server.serve()`, and the handlers of signals; those of the server and the
runner are described there.
"""
from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Sequence
from dataclasses import astuple
from types import FrameType
from typing import TYPE_CHECKING

from svcd import INTERFACE_VERSION, __version__, logs, times
from svcd.api.admission import SearchQueue
from svcd.api.app import App
from svcd.auth.keys import Keys
from svcd.cli import machine
from svcd.cli.addresses import Address
from svcd.cli.config import Config
from svcd.engine.sorting import sort_value
from svcd.engine.settings import resolved
from svcd.http.server import Server
from svcd.store.instance import Instance
from svcd.store.records import FAILED, Batch, Task
from svcd.tasks.batching import Limits
from svcd.tasks.indexing import Budget
from svcd.tasks.runner import Runner

if TYPE_CHECKING:
    from ssl import SSLContext

    from svcd.http.message import Request

# How long running requests may take to end after a signal.
GRACE_S = 20.0
# Threads for all that is no search. A search that waits for its place holds a thread, too; the server starts
# threads only when they are needed, but beyond this many waiting the memory of a small machine would be.
OTHER_THREADS = 8
MOST_WAITING_THREADS = 1000
MOST_FILES = 65536
# An indexing process without a batch, and what a budgeted byte takes in Python's objects.
PROCESS_BYTES = 40 << 20
BYTES_PER_BUDGETED = 2
# With less than this share of the usual budget a batch would spend its time writing and merging.
SMALLEST_SHARE = 1 / 16
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """SIGTERM and SIGINT, from here to the end of the `with`: the first stops the daemon in good order.

    A second one ends the process at once. That is safe: whatever was acknowledged is on disk, and what was
    being done is done again at the next start.
    """

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None
        self._is_asked = False

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._receive) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, action in self._before.items():
            signal.signal(number, action)

    def call(self, stop: Callable[[], None]) -> None:
        """Stop by this call, which must return at once; at once if a signal has come before."""
        self._stop = stop
        if self._is_asked:
            stop()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._is_asked:
            os._exit(128 + number)
        self._is_asked = True
        if self._stop:
            self._stop()


def run(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Raises what keeps the parts from starting."""
    _allow_many_files()
    with StopSignals() as signals:
        context = _tls_context(config)
        instance = Instance(config.db_path, resolved, sort_value)
        try:
            runner = _runner(config, instance)
            app = App(instance, runner, Keys(config.master_key), _searches(config))
            server = Server(
                app.answer, config.http_addr, threads=_threads(config),
                payload_limit=config.http_payload_size_limit, ssl_context=context,
                on_request=_log_request, on_error=_log_bug,
            )
            signals.call(lambda: server.stop(GRACE_S))
            _serve(config, server, runner)
        finally:
            instance.close()
    logs.info("stopped")
    return 0


def _serve(config: Config, server: Server, runner: Runner) -> None:
    runner.start()
    try:
        _announce(config, server.port)
        server.serve()
        logs.info("stopping; the running batch ends, or is given back")
    finally:
        runner.stop()


def _allow_many_files() -> None:
    """Take what the system allows: each connection and each open index is a file, and 1024 is a usual limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _tls_context(config: Config) -> SSLContext | None:
    if not config.ssl_cert_path:
        return None
    from svcd.cli.tls import server_context  # 15 ms that a start without TLS need not pay

    return server_context(config)


def _runner(config: Config, instance: Instance) -> Runner:
    limits = Limits(
        config.experimental_max_number_of_batched_tasks, config.experimental_limit_batched_tasks_total_size,
    )
    workers = config.max_indexing_threads or machine.cores()
    return Runner(
        instance, workers=workers, limits=limits, budget=_budget(config.max_indexing_memory, workers),
        on_batch=_log_batch, on_bug=_log_bug,
    )


def _budget(memory: int | None, workers: int) -> Budget:
    """What one of the indexing processes may hold, so that all stay within `memory` bytes; None is no bound."""
    full = Budget()
    if memory is None:
        return full
    room = (memory // workers - PROCESS_BYTES) // BYTES_PER_BUDGETED
    share = min(1.0, max(SMALLEST_SHARE, room / sum(astuple(full))))
    return Budget(*(int(part * share) for part in astuple(full)))


def _parallel_searches(config: Config) -> int:
    return config.experimental_nb_searches_per_core * machine.cores()


def _searches(config: Config) -> SearchQueue:
    return SearchQueue(
        _parallel_searches(config), config.experimental_search_queue_size, config.experimental_drop_search_after,
    )


def _threads(config: Config) -> int:
    """Threads that answer requests: running searches, waiting ones, and all else."""
    waiting = min(config.experimental_search_queue_size, MOST_WAITING_THREADS)
    return _parallel_searches(config) + waiting + OTHER_THREADS


def _log_request(request: Request, status: int, seconds: float, size: int) -> None:
    path = "/" + "/".join(request.segments)  # decoded: a key in it is known only then, and hidden
    logs.request(request.verb, path, status, seconds, size, request.client)


def _log_batch(batch: Batch, tasks: Sequence[Task]) -> None:
    ended = batch.finished_at or batch.started_at
    logs.batch(
        batch.uid, kind=",".join(sorted({task.kind for task in tasks})),
        index_uid=",".join(sorted({task.index_uid for task in tasks if task.index_uid})) or None, tasks=len(tasks),
        failed=sum(task.status == FAILED for task in tasks), seconds=(ended - batch.started_at) / times.SECOND,
    )


def _log_bug(traceback: str) -> None:
    logs.failure("bug", traceback)


def _announce(config: Config, port: int) -> None:
    scheme = "https" if config.ssl_cert_path else "http"
    for name, value, source in config.shown():
        logs.debug("option", name=name, value=value, source=source)
    logs.announce(f"svcd {__version__}, interface {INTERFACE_VERSION}", {
        "address": f"{scheme}://{Address(config.http_addr.host, port)}",
        "folder": config.db_path.absolute(),
        "env": config.env,
        "key": "a master key protects it" if config.master_key else "none: anybody may do everything",
        "log": f"{config.log_level}, {config.experimental_logs_mode}",
        "pid": os.getpid(),
    })
