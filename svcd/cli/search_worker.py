"""A search worker: a process that answers searches on the port of the daemon, besides its main process.

It is forked from a process that has loaded this module (svcd.cli.fork_server). The main process (svcd.cli.search_worker_pool)
writes lines of JSON to its standard input; it replies to each command:

    -> {configuration}              once: a WorkerConfiguration; not arguments, which other users could see
    -> {"ask": n, "features": {}}   the enabled features from now on
    -> {"ask": n, "network": {}}    the network from now on (svcd.instance.network)
    -> {"ask": n, "removed": uuid}  an index was deleted
    -> {"ask": n, "processes": m}   the number of processes that answer searches now, and share limits and memory
    -> {"ask": n, "log": "info"}    which log lines to print (svcd.base.logs)
    -> {"ask": n, "follow": "info"} which log events to send to the main process; "" to send nothing
    -> {"ask": n, "report": true}   report the running and waiting searches of the worker
    -> {"ask": n, "usage": true}    report the usage figures that the worker has counted since the last report
    -> {"ask": n, "stop": seconds}  stop gracefully within this time
    -> {"ask": n, "leave": seconds} as stop, but the main process takes over the connections
    <- {"ask": n, ...}              the reply
    <- {"ready": true}              once: the worker answers searches from now on
    <- {"logged": [...]}            an event of the log, as the fields of logs.Event
    <- {"searched": [...]}          searches for the query log, as the fields of svcd.querylog.recorder.Search
    <- {"last_usage": {}}           before it ends: the usage figures since the last report

A worker opens the files read-only and accepts connections from the shared sockets (with TLS it gets them from the main
process). It hands connections with other requests than searches to the main process (svcd.http.worker_sharing). It counts
requests in memory shared with the main process (svcd.api.traffic). It ends with the main process: at the end of its
input, or killed by the kernel with the fork server.

Threads: the main thread runs `server.serve()`; "svcd-commands" reads the input. Any thread may write; `_output_lock` keeps lines
whole.
"""
from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from svcd.api.admission import SearchQueue
from svcd.api.app import App
from svcd.api.context import Services
from svcd.api.routes import is_for_all
from svcd.api.streaming import ConcurrencyLimit
from svcd.api.traffic import REGION_BYTES, SharedTraffic
from svcd.auth.keys import Keys
from svcd.base import logs, machine
from svcd.cli import fork_server, serving
from svcd.cli.serving import WorkerConfiguration
from svcd.http.connection import log_bug, log_request
from svcd.http.server import Server
from svcd.http.worker_sharing import LoadTable, PeerProcesses
from svcd.index.read_transaction import Cache
from svcd.instance.data_folder import DataFolderReader

if TYPE_CHECKING:
    from svcd.analytics.collector import Usage
    from svcd.querylog.recorder import Recorder

_output_lock = threading.Lock()


class SearchWorker:
    """The parts of a worker process, put together."""

    def __init__(self, configuration: WorkerConfiguration, cache: Cache) -> None:
        self._data_folder = DataFolderReader(Path(configuration.path), configuration.features, configuration.start, cache)
        self._data_folder.use_network(configuration.network)
        self._data_folder.open(configuration.files)
        self._data_folder.limit_cache(configuration.search_memory)
        self._searches = SearchQueue(
            configuration.parallel_searches, configuration.queue_size, configuration.drop_after_s,
            head_start_s=serving.HEAD_START_S,
        )
        self._usage: Usage | None = None
        if configuration.counts_usage:
            from svcd.analytics.collector import Usage  # loaded only if usage is reported

            self._usage = Usage()
        self._query_log: Recorder | None = None
        if configuration.logs_queries:
            from svcd.querylog.recorder import Recorder  # loaded only with a query log

            self._query_log = Recorder(lambda searches: _write({"searched": searches}))
        memory = memoryview(mmap.mmap(configuration.counters, 0))
        begin = configuration.number * REGION_BYTES
        traffic = SharedTraffic(memory[begin:begin + REGION_BYTES])
        keys = Keys(configuration.master_key, self._data_folder.keys)  # read from the file for each request: always current
        app = App(Services(
            self._data_folder, keys, self._searches, usage=self._usage, traffic=traffic, query_log=self._query_log,
            large_answers=ConcurrencyLimit(serving.MAX_LARGE_ANSWERS, "large answers"),
            waiting_writes=ConcurrencyLimit(serving.MAX_WAITING_WRITES, "requests that wait for a task"),
            make_embedders=lambda: serving.embedders(configuration.networks, configuration.embedding_cache),
            make_client=lambda: serving.remote_client(configuration.networks),
            make_reranker=serving.reranker(configuration.personalization_key, configuration.networks),
        ))
        app.share(configuration.processes)
        outgoing = [socket.socket(fileno=queue) for queue in configuration.outgoing]
        incoming = socket.socket(fileno=configuration.incoming)
        load_table = LoadTable(configuration.load_table)
        self._data_folder.share_changes(load_table.changes)
        peers = PeerProcesses(configuration.number, load_table, incoming, outgoing, is_for_all)
        self._server = Server(
            app.answer, [socket.socket(fileno=listener) for listener in configuration.listeners], threads=configuration.threads,
            payload_limit=configuration.payload_limit, on_request=log_request, on_error=log_bug,
            peers=peers, on_idle=self._data_folder.give_back,
        )
        serving.answer_in_turn(self._server, self._searches)
        app.services.search_cache.publish, self._server.on_message = peers.send_to_all, app.services.search_cache.receive
        self._handlers: dict[str, Callable[[Any], Mapping[str, Any] | None]] = {
            "features": self._data_folder.use_features,
            "network": self._data_folder.use_network,
            "removed": self._data_folder.forget,
            "processes": app.share,
            "log": _direct_log,
            "follow": _follow,
            "report": self._report,
            "usage": lambda _: {"usage": self._usage.take()} if self._usage else None,
            "stop": self.stop,
            "leave": self._server.leave,
        }

    def serve(self) -> None:
        """Serve until stop() is called."""
        self._server.serve()
        self._data_folder.close()
        if self._query_log:
            self._query_log.stop()
        if self._usage:
            _write({"last_usage": self._usage.take()})

    def stop(self, grace_s: float = serving.GRACE_S) -> None:
        """Make serve() return within this time."""
        self._server.stop(grace_s)

    def handle(self, command: Mapping[str, Any]) -> Mapping[str, Any]:
        """Execute a command; return the reply."""
        reply: Mapping[str, Any] = {}
        for name, value in command.items():
            if name in self._handlers:
                reply = self._handlers[name](value) or {}
        return {**reply, "ask": command["ask"]}

    def _report(self, _: bool) -> Mapping[str, Any]:
        return {"running": self._searches.running, "waiting": self._searches.waiting}


def main(descriptor: int, *earlier: int) -> None:
    """Run the fork server of the workers. descriptor: of the socket to the main process; earlier: see fork_server.serve()."""
    cache = Cache(0)

    def load(file: IO[bytes]) -> None:
        cache.load(file)
        serving.settle()

    machine.limit_malloc()
    serving.preload_search()
    serving.preload_search_parameters()
    fork_server.serve(descriptor, lambda: run(cache), load, earlier)


def run(cache: Cache) -> None:
    """Run a worker. cache: a copy of the main process's cache at the start of the fork server."""
    if not (line := sys.stdin.buffer.readline()):  # the main process has ended
        return
    configuration = WorkerConfiguration(**json.loads(line))
    logs.configure(configuration.log_level, configuration.logs_mode)
    if configuration.log_targets:
        _direct_log(configuration.log_targets)
    _follow(configuration.followed)
    worker = SearchWorker(configuration, cache)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())  # sent to the whole process group, or to this process alone
    threading.Thread(target=_handle_commands, args=(worker,), name="svcd-commands", daemon=True).start()
    _write({"ready": True})
    worker.serve()


def _direct_log(text: str) -> None:
    logs.set_targets(logs.parse(text))


def _follow(text: str) -> None:
    logs.unfollow(_send_event)
    if text:
        logs.follow(logs.parse(text), _send_event)


def _send_event(event: logs.Event) -> None:
    _write({"logged": event})


def _handle_commands(worker: SearchWorker) -> None:
    for line in sys.stdin.buffer:
        _write(worker.handle(json.loads(line)))
    os._exit(0)  # end of input: the main process has ended


def _write(message: Mapping[str, Any]) -> None:
    """Write a line to the main process. If that has ended, this process is about to end, too."""
    line = json.dumps(message, default=str).encode() + b"\n"
    try:
        with _output_lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    except (BrokenPipeError, ValueError):
        pass


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
