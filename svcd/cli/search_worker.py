"""A search worker: a process that answers searches on the port of the daemon, beside its main process.

The main process (svcd.cli.search_worker_pool) writes lines of JSON to its standard input; it replies to each command:

    -> {configuration}              once: a WorkerConfiguration; not arguments, which other users could see
    -> {"ask": n, "features": {}}   the features that are on from now on
    -> {"ask": n, "removed": uuid}  an index was deleted
    -> {"ask": n, "log": "info"}    which log lines to print (svcd.base.logs)
    -> {"ask": n, "report": true}   report the requests answered here
    -> {"ask": n, "usage": true}    report the usage figures counted here since the last time
    -> {"ask": n, "stop": seconds}  stop gracefully within this time
    <- {"ask": n, ...}              the reply

A worker opens the files read-only, accepts connections from the shared sockets, and hands those that ask for anything but
a search to the main process (svcd.http.worker_sharing). It ends with the main process: at the end of its input, or killed
by the kernel (parent-death signal).

Threads: the main thread runs `server.serve()`; "svcd-commands" reads the input.
"""
from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from svcd.api.admission import SearchQueue
from svcd.api.app import App
from svcd.api.routes import Traffic, is_for_all
from svcd.auth.keys import Keys
from svcd.base import logs
from svcd.base.process import end_with_parent
from svcd.cli import machine, serving
from svcd.cli.serving import WorkerConfiguration
from svcd.http.server import Server
from svcd.http.worker_sharing import LoadTable, PeerProcesses
from svcd.instance.data_folder import DataFolderReader

if TYPE_CHECKING:
    from svcd.analytics.collector import Usage
    from svcd.instance.instance import Instance


class SearchWorker:
    """The parts of a worker process, put together."""

    def __init__(self, configuration: WorkerConfiguration) -> None:
        self._data_folder = DataFolderReader(Path(configuration.path), configuration.features)
        self._searches = SearchQueue(
            configuration.parallel_searches, configuration.queue_size, configuration.drop_after_s,
            head_start_s=serving.HEAD_START_S, processes=len(configuration.outgoing),
        )
        self._traffic = Traffic()
        self._usage = _usage_counter() if configuration.counts_usage else None
        # A worker has no queue and no runner (None): searches never use them.
        keys = Keys(configuration.master_key, self._data_folder.keys)  # read from the file for each request: always current
        app = App(cast("Instance", self._data_folder), None, keys, self._searches, self._traffic, usage=self._usage,
                  large=serving.MAX_LARGE_ANSWERS)
        self._server = Server(
            app.answer, [socket.socket(fileno=listener) for listener in configuration.listeners], threads=configuration.threads,
            payload_limit=configuration.payload_limit, on_request=serving.log_request, on_error=serving.log_bug,
            peers=_peer_processes(configuration), on_idle=machine.give_back_memory,
        )
        self._handlers: dict[str, Callable[[Any], Mapping[str, Any] | None]] = {
            "features": self._data_folder.use_features,
            "removed": self._data_folder.forget,
            "log": _direct_log,
            "report": self._report,
            "usage": lambda _: {"usage": self._usage.take()} if self._usage else None,
            "stop": self.stop,
        }

    def serve(self) -> None:
        """Serve until stop() is called."""
        self._server.serve()
        self._data_folder.close()

    def stop(self, grace_s: float = serving.GRACE_S) -> None:
        """Make serve() return within this time."""
        self._server.stop(grace_s)

    def handle(self, command: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out a command; returns the reply."""
        reply: Mapping[str, Any] = {}
        for name, value in command.items():
            if name in self._handlers:
                reply = self._handlers[name](value) or {}
        return {**reply, "ask": command["ask"]}

    def _report(self, _: bool) -> Mapping[str, Any]:
        return {"traffic": self._traffic.as_json(), "running": self._searches.running,
                "waiting": self._searches.waiting}


def main(parent: int) -> None:
    """Run a worker. parent: pid of the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the main process sends the command to stop
    end_with_parent(parent)
    configuration = WorkerConfiguration(**json.loads(sys.stdin.buffer.readline()))
    logs.configure(configuration.log_level, configuration.logs_mode)
    if configuration.log_targets:
        _direct_log(configuration.log_targets)
    worker = SearchWorker(configuration)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())  # sent to the whole process group, or to this process alone
    threading.Thread(target=_handle_commands, args=(worker,), name="svcd-commands", daemon=True).start()
    machine.give_back_large_blocks()
    serving.preload_search()
    gc.freeze()  # loaded code stays: exclude it from garbage collection
    worker.serve()
    os._exit(0)  # an ordinary exit would wait for "svcd-commands", which blocks on the input


def _usage_counter() -> Usage:
    from svcd.analytics.collector import Usage  # loaded only where usage is reported

    return Usage()


def _direct_log(text: str) -> None:
    logs.set_targets(logs.parse(text))


def _peer_processes(configuration: WorkerConfiguration) -> PeerProcesses:
    outgoing = [socket.socket(fileno=queue) for queue in configuration.outgoing]
    incoming = socket.socket(fileno=configuration.incoming)
    return PeerProcesses(configuration.number, LoadTable(configuration.load_table), incoming, outgoing, is_for_all)


def _handle_commands(worker: SearchWorker) -> None:
    try:
        for line in sys.stdin.buffer:
            sys.stdout.buffer.write(json.dumps(worker.handle(json.loads(line))).encode() + b"\n")
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        pass
    os._exit(0)  # end of input: the main process is gone


if __name__ == "__main__":
    main(int(sys.argv[1]))
