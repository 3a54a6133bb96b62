"""The daemon: puts its parts together, serves until a stop signal, and stops the parts in reverse order.

A start first opens the data folder and listens; the code of requests is loaded in the background after that: first the code of
a search by words, so that requests that have come are answered; then the runner; then the other routes and kinds of searches,
unless a request has needed them before. See docs/architecture.md#processes-and-threads. The first start of an instance may import
a dump or a snapshot before, and removes the data folder again if it fails.

Threads: the main thread runs `server.serve()`, the signal handlers and the supervision; "svcd-startup" loads and starts the
rest, and ends; the threads of server, runner and webhook delivery are described there.
"""
from __future__ import annotations

import fcntl
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from svcd import INTERFACE_VERSION, __version__
from svcd.base import logs, machine
from svcd.base.errors import DOCUMENTATION_VARIABLE
from svcd.cli import serving
from svcd.cli.config import DEFAULT, Config, ConfigError
from svcd.cli.options import BY_NAME
from svcd.cli.search_processes import SearchProcesses
from svcd.http.connection import StartupGate, log_bug, log_request
from svcd.cli.supervision import ReloadRequest, ServiceManager, Supervision, passed_sockets
from svcd.http.server import Server
from svcd.http.sockets import Address, listen
from svcd.index.connections import open_reader
from svcd.index.schema import INSTANCE, NewerFormat
from svcd.instance import applied_log
from svcd.instance.instance import Instance

if TYPE_CHECKING:
    from ssl import SSLContext

    from svcd.analytics.collector import Usage
    from svcd.analytics.report import UsageReport
    from svcd.api.app import App
    from svcd.cluster.node import Node
    from svcd.cluster.service import ClusterService
    from svcd.remote.webhook_delivery import WebhookNotifier
    from svcd.tasks.global_tasks import SnapshotSchedule
    from svcd.tasks.runner import Runner

# Seconds before the application is loaded even if no request needs it: a probe of /health is answered first.
QUIET_S = 0.05
# Seconds for which the rest of the start waits if a request waits for the application: it gets the processor for itself.
FIRST_ANSWER_S = 0.2
FORCED_FEATURES = {  # option: the feature that it turns on
    "experimental_enable_metrics": "metrics",
    "experimental_contains_filter": "containsFilter",
    "experimental_enable_logs_route": "logsRoute",
    "experimental_legacy_search_default": "legacySearch",
    "experimental_mcp": "mcp",
}
_CONTENT_TABLES = ("tasks", "indexes", "keys", "webhooks", "features")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Handles SIGTERM and SIGINT within a `with` block: the first signal stops the daemon gracefully.

    The second ends the process at once. That is safe: acknowledged writes are on disk, and an interrupted batch is
    processed again at the next start (docs/tasks-and-batches.md#runner).
    """

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None
        self._is_stopping = False

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._receive) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, action in self._before.items():
            signal.signal(number, action)

    def call(self, stop: Callable[[], None]) -> None:
        """Set the function that a signal calls; it must return at once. Called now if a signal has already arrived."""
        self._stop = stop
        if self._is_stopping:
            stop()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._is_stopping:
            os._exit(128 + number)
        self._is_stopping = True
        if self._stop:
            self._stop()


class MustStartAgain(RuntimeError):
    """The daemon ends so that a service manager starts it again."""


class BackgroundStart:
    """Loads and starts application, runner, webhook delivery and search workers in a thread while the daemon listens.

    It opens the gate for waiting requests. If a part cannot be started, it stops the server; end() raises the error.
    """

    def __init__(self, config: Config, instance: Instance, gate: StartupGate, server: Server,
                 cluster: ClusterService | None = None) -> None:
        self._config, self._instance, self._gate, self._server = config, instance, gate, server
        self._cluster = cluster
        self.on_ready: Callable[[], None] = lambda: None  # called once every request can be answered
        most = serving.most_search_workers(config)
        self._workers = SearchProcesses(config, instance, most) if most else None
        self._node: Node | None = None
        self._usage: Usage | None = None
        self._failure: Exception | None = None
        self._runner: Runner | None = None
        self._notifier: WebhookNotifier | None = None
        self._report: UsageReport | None = None
        self._snapshots: SnapshotSchedule | None = None
        self._close_query_log: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="svcd-startup")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the workers, then the server; returns at once, and may be called from a signal handler."""
        if self._workers is None or not self._workers.stop(serving.GRACE_S):
            self._server.stop(serving.GRACE_S)

    def has_work(self) -> bool:
        """Return whether tasks or notices are waiting, or search workers run, whose connections are unknown here."""
        return bool(self._workers and self._workers.are_running or self._instance.queue.count_enqueued()
                    or any(self._instance.outbox.head(webhook.uuid) for webhook in self._instance.webhooks.all()))

    def set_log_level(self, level: str) -> None:
        """Set the lowest level of events that all processes print."""
        targets = logs.of_level(logs.LEVELS[level])
        logs.set_targets(targets)
        if self._workers:
            self._workers.broadcast({"log": str(targets)})

    def end(self) -> None:
        """Stop all started parts and wait for them. Raises the error that kept a part from starting."""
        self._gate.wanted.set()
        self._gate.answered.set()
        self._thread.join()
        if self._report:
            self._report.stop()
        if self._workers:
            self._workers.end()
        self._close_query_log()  # after the workers, which pass on their last searches
        if self._snapshots:
            self._snapshots.stop()
        if self._cluster and self._runner:
            self._cluster.stop_following()
        if self._runner:
            self._runner.stop()
        if self._notifier:
            self._notifier.stop()
        if self._failure:
            raise self._failure

    def _lose(self, reason: str) -> None:
        """End because the log has lost entries that this node needs: the next start copies another node's data."""
        self._failure = MustStartAgain(f"this node must be started again, to get a copy of another node's data: {reason}")
        self._server.stop(serving.GRACE_S)

    def _run(self) -> None:
        # Loading keeps the interpreter busy, so a probe of /health may be answered first.
        self._gate.wanted.wait(QUIET_S)
        try:
            app = self._make_application()
            if self._cluster is None:
                self._open_gate(app)
            runner = self._start_parts(app)
            if self._cluster:  # a request may need the log
                self._open_gate(app)
            self._instance.keep_reserve()
            if self._workers:
                self._workers.start(self._server, app, runner.is_materializing)
            self.on_ready()
            self._start_schedules()
            serving.preload_search()
            time.sleep(QUIET_S)  # a first search has the interpreter for itself
            serving.preload_search_parameters()
            serving.preload_routes()
            serving.settle()
        except Exception as failure:
            self._failure = failure
            self._server.stop(0)

    def _make_application(self) -> App:
        from svcd.cli import wiring  # imports half of the code

        if self._cluster:
            self._node = self._cluster.open(self._instance, self._lose, lambda: wiring.add_default_keys(self._instance))
        hooks: wiring.WorkerHooks = {}
        if self._workers:
            hooks = {"reports": self._workers.reports, "broadcast": self._workers.broadcast}
        self._usage = wiring.usage() if serving.reports_usage(self._config) else None
        query_log = None
        if self._config.query_log:
            query_log, self._close_query_log = wiring.query_log(self._config, self._instance)
        return wiring.application(self._config, self._instance, **hooks, usage=self._usage, node=self._cluster,
                                  query_log=query_log)

    def _open_gate(self, app: App) -> None:
        serving.answer_in_turn(self._server, app.services.searches)
        self._gate.open(app.answer)
        if self._gate.wanted.is_set():
            self._gate.answered.wait(FIRST_ANSWER_S)

    def _start_parts(self, app: App) -> Runner:
        """Start runner and webhook delivery; tasks and notices that came before wait in the data folder."""
        import shutil  # noqa: F401  # see svcd.http.standard_server

        from svcd.cli import wiring

        self._notifier = wiring.notifier(self._config, self._instance)
        if self._node:
            self._notifier.may_deliver = self._node.is_leading
            self._node.on_leadership.append(self._notifier.wake)
        self._runner = wiring.runner(self._config, self._instance, self._notifier.wake, self._node)
        self._notifier.start()
        self._runner.start()
        if self._cluster:
            self._cluster.start()
        return self._runner

    def _start_schedules(self) -> None:
        from svcd.cli import wiring

        leads = self._node.is_leading if self._node else lambda: True  # a single instance does the work of a cluster's leader
        if self._config.schedule_snapshot:
            self._snapshots = wiring.snapshots(self._config, self._instance, leads)
            self._snapshots.start()
        if self._usage:
            self._report = wiring.usage_report(
                self._config, self._instance, self._usage, self._workers.usages if self._workers else tuple, may_send=leads)
            self._report.start()
        wiring.log_missing_packages()
        wiring.log_missing_lists()


def run(config: Config, reload: Callable[[], Config] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status. Raises the error that keeps a part from starting.

    reload: loads the configuration again, for SIGHUP; by default SIGHUP changes nothing.
    """
    if config.source("error_docs_url") != DEFAULT:
        os.environ[DOCUMENTATION_VARIABLE] = config.error_docs_url  # for this process and all that it starts
    os.environ[BY_NAME["models_dir"].variable] = str(config.models_dir)
    manager, sockets = ServiceManager(os.environ), passed_sockets(os.environ)
    serving.raise_file_limit()
    serving.check_descriptors(config)
    machine.limit_malloc()  # before any thread starts, which would get an arena of its own
    context = serving.server_context(config)
    with remove_on_failure(config.db_path) as keep_folder, _told_from_damage(config.db_path / "instance.sqlite"):
        import_archive(config)
        return _run(config, context, keep_folder, manager, sockets, reload or (lambda: config))


class InstanceDamaged(RuntimeError):
    """The daemon cannot start, since instance.sqlite is damaged."""


@contextmanager
def _told_from_damage(path: Path) -> Iterator[None]:
    """Turn an error of the start that damage of instance.sqlite causes into InstanceDamaged, with advice."""
    try:
        yield
    except (OSError, ConfigError, NewerFormat):
        raise
    except Exception as error:
        from svcd.index import damage  # few starts ever need it

        fault = damage.first_fault(path, INSTANCE) if damage.may_be_damage(error) and path.exists() else None
        if fault is None:
            raise
        raise InstanceDamaged(f"{path} is damaged: {fault}. {damage.INSTANCE_ADVICE} `svcd verify` lists all faults") from error


def _run(config: Config, context: SSLContext | None, keep_folder: Callable[[], None], manager: ServiceManager,
         sockets: Sequence[socket.socket], reload: Callable[[], Config]) -> int:
    """keep_folder: called once the daemon listens; until then a failure removes a data folder made by this start.

    sockets: the passed sockets; the daemon listens on them instead of --http-addr.
    """
    with StopSignals() as signals, ReloadRequest() as reload_request:
        joined = _join(config)
        instance = Instance(config.db_path)
        instance.limit_cache(config.search_memory)
        try:
            force_features(config, instance)
            gate = StartupGate()
            server = Server(
                gate.answer, sockets or config.http_addr, threads=serving.threads(config),
                payload_limit=config.http_payload_size_limit, ssl_context=context,
                on_request=log_request, on_error=log_bug,
                on_stopping=instance.queue.listeners.close, on_idle=instance.give_back,
                are_sockets_kept=bool(sockets),
            )
            keep_folder()
            startup = BackgroundStart(config, instance, gate, server, joined)

            def stop() -> None:
                supervision.set_stopping()
                startup.stop()

            supervision = Supervision(config, manager, server, reload_request, reload=reload, has_work=startup.has_work,
                                      stop=stop, set_log_level=startup.set_log_level)
            server.on_sweep = supervision.look
            startup.on_ready = lambda: supervision.set_ready(f"listening on {', '.join(_urls(config, server))}")
            signals.call(stop)
            try:
                startup.start()
                try:
                    _announce(config, server)
                    server.serve()
                    logs.info("stopping: the running batch finishes or returns to the queue")
                finally:
                    startup.end()
            finally:
                supervision.close()
        finally:
            instance.close()
            if joined:
                joined.close()
    logs.info("stopped")
    return 0


def _join(config: Config) -> ClusterService | None:
    """Join the data folder to the cluster in the configuration; None without a cluster. Raises CannotJoin, ConfigError."""
    if config.cluster is None:
        check_alone(config)
        return None
    from svcd.cluster.service import joined  # few instances are nodes of a cluster
    from svcd.tasks.archive_import import import_snapshot

    scheme = "https" if config.ssl_cert_path else "http"
    return joined(config.cluster, config.db_path, config.node_name, config.node_url or f"{scheme}://{config.http_addr}",
                  config.master_key, lambda path, folder: import_snapshot(path, folder, keeps_cluster=True))


def force_features(config: Config, instance: Instance) -> None:
    """Turn on the features of options."""
    for option, feature in FORCED_FEATURES.items():
        if getattr(config, option):
            instance.force_feature(feature)


def _urls(config: Config, server: Server) -> list[str]:
    """Return the addresses on which the server listens."""
    scheme = "https" if config.ssl_cert_path else "http"
    if not server.are_sockets_kept:
        return [f"{scheme}://{Address(config.http_addr.host, server.port)}"]
    return [f"{scheme}://{Address(*sock.getsockname()[:2])}" for sock in server.sockets]


def _announce(config: Config, server: Server) -> None:
    if server.are_sockets_kept and config.source("http_addr") != DEFAULT:
        logs.warn(f"{config.where('http_addr')}: has no effect, because the service manager has passed sockets")
    if config.exit_when_idle and not server.are_sockets_kept:
        logs.warn(f"{config.where('exit_when_idle')}: no socket was passed, so nothing starts svcd again after its exit")
    for name, value, source in config.described() if logs.is_enabled(logs.DEBUG) else ():
        logs.debug("option", name=name, value=value, source=source)
    usage = "off (--no-analytics)" if config.no_analytics else "off (no --analytics-url)"
    if serving.reports_usage(config):
        address = urlsplit(config.analytics_url)  # the rest of the URL may be secret
        usage = f"hourly to {address.scheme}://{address.hostname}; --no-analytics turns it off"
    logs.announce(f"svcd {__version__}, interface {INTERFACE_VERSION}", {
        "address": ", ".join(_urls(config, server)) + " (passed)" * server.are_sockets_kept,
        "folder": config.db_path.absolute(),
        "env": config.env,
        "master key": "set" if config.master_key else "not set: every request is allowed",
        "log": f"{config.log_level}, {config.experimental_logs_mode}",
        "usage report": usage,
        "pid": os.getpid(),
    })


# The first start of an instance


def import_archive(config: Config) -> None:
    """Import the dump or snapshot that the options name, if any (docs/dumps.md#import-of-a-dump).

    Raises ConfigError, ArchiveRefused, NewerFormat, OSError; a failed import leaves no files.
    """
    for kind in ("dump", "snapshot"):
        path = getattr(config, f"import_{kind}")
        if path is not None and _should_import(config, kind, path):
            for sock in listen(*config.http_addr):  # an address in use is an error now, not after an import of hours
                sock.close()
            logs.info(f"importing a {kind}", path=str(path), folder=str(config.db_path))
            with _exit_on_sigterm():
                from svcd.tasks import archive_import  # loaded only for an import

                if kind == "snapshot":
                    archive_import.import_snapshot(path, config.db_path)
                else:
                    from svcd.cli.wiring import import_budget, indexing_threads  # imports two thirds of the code

                    archive_import.import_dump(path, config.db_path, import_budget(config), indexing_threads(config),
                                               networks=list(map(str, config.experimental_allowed_ip_networks)))


def check_alone(config: Config) -> None:
    """Raise ConfigError for the data folder of a node of a cluster: the other nodes would never get its writes."""
    if applied_log.position_of(config.db_path / "instance.sqlite") is not None:
        raise ConfigError(f"{config.where('db_path')}: {config.db_path} is the data folder of a node of a cluster; give "
                          f"{BY_NAME['cluster'].flag}, or make a single instance of it: svcd backup, then svcd restore")


@contextmanager
def remove_on_failure(folder: Path) -> Iterator[Callable[[], None]]:
    """Remove the data folder if it was created in this block and the block fails before it calls the yielded function.

    The next start would take a rest for a database, and refuse to import. A folder with content is kept: it was imported, or
    another svcd has started on it meanwhile.
    """
    is_kept = False
    parents = [parent for parent in folder.absolute().parents if not machine.file_exists(parent)]
    was_new, was_there = _is_new(folder), machine.file_exists(folder)

    def keep() -> None:
        nonlocal is_kept
        is_kept = True

    try:
        yield keep
    except BaseException:
        if was_new and not is_kept and folder.is_dir():
            with suppress(OSError), (folder / "LOCK").open("a") as lock:  # in use by another process, or a folder is not empty
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_empty_instance(folder / "instance.sqlite"):
                    import shutil

                    for entry in folder.iterdir():
                        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
                    for empty in [] if was_there else [folder, *parents]:
                        empty.rmdir()
        raise


def _is_empty_instance(path: Path) -> bool:
    """Return whether the file of an instance has neither tasks, indexes, keys, webhooks nor features."""
    if not machine.file_exists(path):
        return True
    try:
        with closing(open_reader(path)) as reader:
            tables = {name for (name,) in reader.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return not any(reader.execute(f"SELECT EXISTS (SELECT 1 FROM {table})").fetchone()[0]
                           for table in tables.intersection(_CONTENT_TABLES))
    except sqlite3.Error:
        return False


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end an import like Ctrl-C, so that the import removes its unfinished files."""
    def end(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _should_import(config: Config, kind: str, path: Path) -> bool:
    """Return whether to import an archive. Raises ConfigError."""
    if not _is_new(config.db_path):
        if getattr(config, f"ignore_{kind}_if_db_exists"):
            return False
        raise ConfigError(f"{config.where(f'import_{kind}')}: the database {config.db_path} already exists; move it away, "
                          f"or start with it unchanged by {BY_NAME[f'ignore_{kind}_if_db_exists'].flag}")
    if not machine.file_exists(path):
        if getattr(config, f"ignore_missing_{kind}"):
            return False
        raise ConfigError(f"{config.where(f'import_{kind}')}: {kind} {path} does not exist; name an existing one, or start "
                          f"with an empty database by {BY_NAME[f'ignore_missing_{kind}'].flag}")
    return True


def _is_new(folder: Path) -> bool:
    return not machine.file_exists(folder) or folder.is_dir() and not any(folder.iterdir())
