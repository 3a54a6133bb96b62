"""A search worker: a process that answers searches on the port of the daemon, next to its main process.

    -> {orders}                     once: Orders, secrets included, which a command line would show
    -> {"ask": n, "features": {}}   they are these from now on
    -> {"ask": n, "removed": uuid}  an index is gone
    -> {"ask": n, "log": "info"}    print this of the log (svcd.base.logs)
    -> {"ask": n, "report": true}   what was answered here
    -> {"ask": n, "usage": true}    what was counted here for the usage report, from the last time on
    -> {"ask": n, "stop": seconds}  end in good order, within this time
    <- {"ask": n, ...}              after each

It opens the files read-only, takes connections from the shared sockets, and gives those that ask for anything but a
search to the main process (svcd.http.worker_sharing). It ends with it: at the end of its input, or by the kernel's hand.

Threads: the main thread runs `server.serve()`; "svcd-orders" reads the input.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from svcd.api.admission import SearchQueue
from svcd.api.app import App
from svcd.api.routes import is_for_all
from svcd.api.traffic import Traffic
from svcd.auth.keys import Keys
from svcd.base import logs
from svcd.base import logs as targets
from svcd.base.process import end_with_parent
from svcd.cli import machine, serving
from svcd.http.server import Server
from svcd.http.worker_sharing import LoadTable, PeerProcesses
from svcd.instance.data_folder import DataFolderReader

if TYPE_CHECKING:
    from svcd.analytics.collector import Usage
    from svcd.instance.instance import Instance


class SearchWorker:
    """The parts of a worker."""

    def __init__(self, orders: WorkerConfiguration) -> None:
        self._library = DataFolderReader(Path(orders.path), orders.features)
        self._searches = SearchQueue(
            orders.parallel_searches, orders.queue_size, orders.drop_after_s, head_start_s=serving.HEAD_START_S,
            processes=len(orders.trays),
        )
        self._traffic = Traffic()
        self._usage = _usage() if orders.counts_usage else None
        # What a search never asks for, the queue and the runner, is not there.
        keys = Keys(orders.master_key, self._library.keys)  # those of the files, which are always the present ones
        app = App(cast("Instance", self._library), None, keys, self._searches, self._traffic, usage=self._usage,
                  large=serving.MOST_LARGE_ANSWERS)
        self._server = Server(
            app.answer, [socket.socket(fileno=listener) for listener in orders.listeners], threads=orders.threads,
            payload_limit=orders.payload_limit, on_request=serving.log_request, on_error=serving.log_bug,
            peers=_share(orders), on_idle=machine.give_back_memory,
        )
        self._answers: dict[str, Callable[[Any], Mapping[str, Any] | None]] = {
            "features": self._library.use_features,
            "removed": self._library.forget,
            "log": _direct_log,
            "report": self._report,
            "usage": lambda _: {"usage": self._usage.take()} if self._usage else None,
            "stop": self.stop,
        }

    def serve(self) -> None:
        """Answer until stopped."""
        self._server.serve()
        self._library.close()

    def stop(self, grace_s: float = serving.GRACE_S) -> None:
        """Ask serve() to end."""
        self._server.stop(grace_s)

    def answer(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do what is asked; what is to be said."""
        said: Mapping[str, Any] = {}
        for name, value in order.items():
            if name in self._answers:
                said = self._answers[name](value) or {}
        return {**said, "ask": order["ask"]}

    def _report(self, _: bool) -> Mapping[str, Any]:
        return {"traffic": self._traffic.as_json(), "running": self._searches.running,
                "waiting": self._searches.waiting}


def main(parent: int) -> None:
    """Serve until told to stop. parent: pid of the daemon."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which tells us
    end_with_parent(parent)
    orders = WorkerConfiguration(**json.loads(sys.stdin.buffer.readline()))
    logs.configure(orders.log_level, orders.logs_mode)
    if orders.log_targets:
        _direct_log(orders.log_targets)
    worker = SearchWorker(orders)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())  # to all of the daemon's processes, or to this one
    threading.Thread(target=_obey, args=(worker,), name="svcd-orders", daemon=True).start()
    machine.give_back_large_blocks()
    serving.warm_up()
    gc.freeze()  # what is here now, stays: the collector need not look at it again
    worker.serve()
    os._exit(0)  # "svcd-orders" holds the input, for which an ordinary end would wait


def _usage() -> Usage:
    from svcd.analytics.collector import Usage  # few daemons report

    return Usage()


def _direct_log(text: str) -> None:
    logs.direct(targets.parse(text))


def _share(orders: WorkerConfiguration) -> PeerProcesses:
    trays = [socket.socket(fileno=tray) for tray in orders.trays]
    return PeerProcesses(orders.number, LoadTable(orders.board), socket.socket(fileno=orders.tray), trays, is_for_all)


def _obey(worker: SearchWorker) -> None:
    try:
        for line in sys.stdin.buffer:
            sys.stdout.buffer.write(json.dumps(worker.answer(json.loads(line))).encode() + b"\n")
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        pass
    os._exit(0)  # the daemon is gone


if __name__ == "__main__":
    main(int(sys.argv[1]))


# What the main process tells a search worker at its start.
#
# Knows the shape of it alone, so that who writes it need not load what a worker needs.


@dataclass(frozen=True)
class WorkerConfiguration:
    """What a worker has to know. Sockets and memory are descriptors, which it has inherited.

    number: its own; listeners: sockets that listen; board, tray, trays: see svcd.http.worker_sharing.
    log_targets: what is printed of the log in place of its level; "" when nobody changed it.
    counts_usage: for the usage report.
    """

    number: int
    listeners: list[int]
    board: int
    tray: int
    trays: list[int]
    path: str
    features: Mapping[str, bool | None]
    master_key: str | None
    payload_limit: int
    threads: int
    parallel_searches: int
    queue_size: int
    drop_after_s: float
    log_level: str
    logs_mode: str
    log_targets: str = ""
    counts_usage: bool = False

    @property
    def descriptors(self) -> list[int]:
        """All that it has to inherit."""
        return [*self.listeners, self.board, self.tray, *self.trays]

    def as_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))
