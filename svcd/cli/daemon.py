"""The daemon, put together: store, server, and behind its door application and runner; stopped backwards.

Knows which part is given to which; refuses to know what any of them does. What only requests need is made
in svcd.cli.wiring, after the daemon listens.

Threads: the main thread runs `server.serve()`, and the handlers of signals; "svcd-opening" makes what stands
behind the door, and ends; those of server, runner and notifier are described there.
"""
from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from svcd import INTERFACE_VERSION, __version__
from svcd.api.startup_gate import StartupGate
from svcd.base import logs
from svcd.cli import first_start, machine, serving
from svcd.cli.addresses import Address
from svcd.cli.config import Config
from svcd.http.server import Server
from svcd.instance.instance import Instance

if TYPE_CHECKING:
    from ssl import SSLContext

    from svcd.analytics.report import UsageReport
    from svcd.cli.search_worker_pool import SearchWorkers
    from svcd.remote.webhook_delivery import WebhookNotifier
    from svcd.tasks.archive_tasks import SnapshotSchedule
    from svcd.tasks.runner import Runner

# How long nobody must ask for anything but the health until the rest is loaded all the same.
QUIET_S = 0.05
FORCED_FEATURES = {  # option: the feature that it starts
    "experimental_enable_metrics": "metrics",
    "experimental_contains_filter": "containsFilter",
    "experimental_enable_logs_route": "logsRoute",
    "experimental_legacy_search_default": "legacySearch",
}
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


class BackgroundStart:
    """A thread that makes application and runner once the daemon listens, and opens the door.

    workers: are started then, too. When the parts cannot be made, it ends the server.
    """

    def __init__(self, config: Config, instance: Instance, door: StartupGate, server: Server,
                 workers: SearchWorkers | None) -> None:
        self._config, self._instance, self._door, self._server = config, instance, door, server
        self._workers = workers
        self._failure: Exception | None = None
        self._runner: Runner | None = None
        self._notifier: WebhookNotifier | None = None
        self._report: UsageReport | None = None
        self._snapshots: SnapshotSchedule | None = None
        self._thread = threading.Thread(target=self._run, name="svcd-opening")

    def start(self) -> None:
        """Return at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the server, after the workers; returns at once, and may be called from a signal handler."""
        if self._workers is None or not self._workers.stop(serving.GRACE_S):
            self._server.stop(serving.GRACE_S)

    def end(self) -> None:
        """Stop workers, runner and notifier. Raises what kept the parts from being made."""
        self._door.wanted.set()
        self._thread.join()
        if self._report:
            self._report.stop()
        if self._workers:
            self._workers.end()
        if self._snapshots:
            self._snapshots.stop()
        if self._runner:
            self._runner.stop()
        if self._notifier:
            self._notifier.stop()
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        # Whoever only asks whether the daemon is up gets a whole interpreter for that.
        self._door.wanted.wait(QUIET_S)
        try:
            from svcd.cli import wiring, word_list_log  # two thirds of the code, and half of the time of a start

            self._notifier = wiring.notifier(self._config, self._instance)
            self._runner = wiring.runner(self._config, self._instance, self._notifier.wake)
            others: wiring.Others = {"reports": self._workers.reports, "tell": self._workers.broadcast} if self._workers else {}
            usage = wiring.usage() if serving.reports_usage(self._config) else None
            app = wiring.application(self._config, self._instance, self._runner, **others, usage=usage)
            machine.give_back_large_blocks()
            self._notifier.start()
            self._runner.start()
            self._door.open(app.answer)
            self._instance.keep_reserve()
            if self._workers:
                self._workers.start(self._server)
            if self._config.schedule_snapshot:
                self._snapshots = wiring.snapshots(self._config, self._instance)
                self._snapshots.start()
            if usage:
                self._report = wiring.usage_report(
                    self._config, self._instance, usage, self._workers.usages if self._workers else tuple)
                self._report.start()
            word_list_log.report_at_start()
            serving.warm_up()
            gc.freeze()  # what is here now, stays: the collector need not look at it again
        except Exception as failure:
            self._failure = failure
            self._server.stop(0)


def run(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Raises what keeps the parts from starting."""
    serving.allow_many_files()
    serving.check_descriptors(config)
    context = _tls_context(config)
    with first_start.undone_on_failure(config.db_path) as keep:
        first_start.begin(config)
        return _run(config, context, keep)


def _run(config: Config, context: SSLContext | None, keep: Callable[[], None]) -> int:
    """keep: called when the daemon listens, and what a first start has made shall stay."""
    with StopSignals() as signals:
        instance = Instance(config.db_path)
        try:
            _force_features(config, instance)
            door, workers = StartupGate(), _search_workers(config, instance)
            server = Server(
                door.answer, config.http_addr, threads=serving.threads(config),
                payload_limit=config.http_payload_size_limit, ssl_context=context,
                on_request=serving.log_request, on_error=serving.log_bug, peers=workers.share if workers else None,
                on_stopping=instance.queue.listeners.close, on_idle=machine.give_back_memory,
            )
            keep()
            opening = BackgroundStart(config, instance, door, server, workers)
            signals.call(opening.stop)
            _serve(config, server, opening)
        finally:
            instance.close()
    logs.info("stopped")
    return 0


def _serve(config: Config, server: Server, opening: BackgroundStart) -> None:
    opening.start()
    try:
        _announce(config, server.port)
        server.serve()
        logs.info("stopping; the running batch ends, or is given back")
    finally:
        opening.end()


def _tls_context(config: Config) -> SSLContext | None:
    if not config.ssl_cert_path:
        return None
    from svcd.cli.serving import server_context  # 15 ms that a start without TLS need not pay

    return server_context(config)


def _force_features(config: Config, instance: Instance) -> None:
    for option, feature in FORCED_FEATURES.items():
        if getattr(config, option):
            instance.force_feature(feature)


def _search_workers(config: Config, instance: Instance) -> SearchWorkers | None:
    if not config.search_workers:
        return None
    from svcd.cli.search_worker_pool import SearchWorkers  # 10 ms that few daemons need

    return SearchWorkers(config, instance)


def _usage_words(config: Config) -> str:
    """Whether a usage report leaves the machine, and to which host; the rest of the address may be secret."""
    if config.no_analytics:
        return "none, for --no-analytics is given"
    if not config.analytics_url:
        return "none, for --analytics-url is not given"
    address = urlsplit(config.analytics_url)
    return f"hourly to {address.scheme}://{address.hostname}; --no-analytics turns it off"


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
        "usage report": _usage_words(config),
        "pid": os.getpid(),
    })
