"""Make the parts that a daemon starts after it listens from the options: application, runner, webhook delivery, schedule of
snapshots, usage report with the figures of the machine and the options. Log the end of each batch.

A thread of svcd.cli.daemon imports this module, which loads much of the code of a search, so that the start need not wait for it.
Parts that a first search does without are imported in the functions that make them.
"""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from svcd import INTERFACE_VERSION
from svcd.api.admission import SearchQueue
from svcd.api.app import App
from svcd.api.context import Services
from svcd.api.streaming import ConcurrencyLimit
from svcd.api.traffic import Report
from svcd.auth.keys import Keys
from svcd.base import docids, logs, machine, quantities
from svcd.cli import serving
from svcd.cli.config import DEFAULT, FILE, Config
from svcd.cli.options import BY_NAME, COUNT, INTERVAL, LIMIT, OPTIONS, POSITIVE, PROCESSES, SIZE
from svcd.instance.instance import Instance
from svcd.instance.task_records import FAILED, SUCCEEDED, Batch, Task
from svcd.text import segmenters

if TYPE_CHECKING:
    from svcd.analytics.collector import Usage
    from svcd.analytics.report import State, UsageReport
    from svcd.cluster.node import Node
    from svcd.cluster.service import ClusterService
    from svcd.querylog.recorder import Recorder
    from svcd.remote.client import Client
    from svcd.remote.webhook_delivery import WebhookNotifier
    from svcd.tasks.dry_runs import DryRuns
    from svcd.tasks.global_tasks import SnapshotSchedule
    from svcd.tasks.indexing_client import MemoryBudget
    from svcd.tasks.runner import Runner

# Memory of an idle indexing process, and bytes of Python objects for each byte that a budget counts.
PROCESS_BYTES = 40 << 20
BYTES_PER_BUDGETED = 2
# With a smaller share of the default budget, a batch would spend its time on flushing and merging.
SMALLEST_SHARE = 1 / 16
INSTALL_COMPILED = "pip install --only-binary :all: 'svcd[fast]'"
INSTALL_WORD_LISTS = "pip install 'svcd[languages]'"


class WorkerHooks(TypedDict, total=False):
    """The arguments of application() with which it reaches the search workers; empty without workers."""

    reports: Callable[[], Sequence[Report]]
    broadcast: Callable[[Mapping[str, Any]], None]


def application(config: Config, instance: Instance,
                reports: Callable[[], Sequence[Report]] = tuple,
                broadcast: Callable[[Mapping[str, Any]], None] = lambda command: None, usage: Usage | None = None,
                node: ClusterService | None = None, query_log: Recorder | None = None) -> App:
    """The application, which answers requests.

    reports: gets the traffic reports of the search workers; broadcast: sends them a command; usage: counts requests for
    the usage report; query_log: collects searches.
    """
    searches = SearchQueue(
        serving.parallel_searches(config), config.experimental_search_queue_size,
        config.experimental_drop_search_after, head_start_s=serving.HEAD_START_S,
    )
    if node is None:  # the leader of a cluster does it
        add_default_keys(instance)
    instance.webhooks.set_launch_webhook(config.task_webhook_url, config.task_webhook_authorization_header)
    networks = serving.allowed_networks(config)
    return App(Services(
        instance, Keys(config.master_key, instance.keys), searches, instance, node, usage, reports=reports, broadcast=broadcast,
        streams=ConcurrencyLimit(serving.MAX_STREAMS),
        large_answers=ConcurrencyLimit(serving.MAX_LARGE_ANSWERS, "large answers"),
        waiting_writes=ConcurrencyLimit(serving.MAX_WAITING_WRITES, "requests that wait for a task"),
        make_embedders=lambda: serving.embedders(networks, config.experimental_embedding_cache_entries),
        make_client=lambda: serving.remote_client(networks),
        make_reranker=serving.reranker(config.experimental_personalization_api_key, networks),
        make_dry_runs=lambda: dry_runs(config, instance),
        query_log=query_log, keeps_changes=config.changes_keep is not None, shows_page=config.env == "development",
        renames_by_patch=config.experimental_rename_by_patch,
        mcp_writes=config.mcp_write, mcp_calls_per_minute=config.mcp_calls_per_minute,
    ))


def add_default_keys(instance: Instance) -> None:
    """Make the keys that every new instance has."""
    if not instance.keys.page(0, 1)[1]:
        from svcd.api.keys import default_keys  # not loaded before the first search

        instance.keys.add_to_empty(default_keys())


def query_log(config: Config, instance: Instance) -> tuple[Recorder, Callable[[], None]]:
    """The collector of searches, started, and a function that writes the rest of them and closes the file."""
    from svcd.querylog import store  # loaded only with a query log
    from svcd.querylog.recorder import Recorder

    secret = (config.master_key or instance.uid).encode() if config.query_log_hashes else None
    log = store.opened(instance.path / store.FILE, config.query_log, config.query_log_days, secret)
    recorder = Recorder(log.write)

    def close() -> None:
        recorder.stop()
        log.close()

    return recorder, close


def _client(config: Config) -> Client:
    """A client for webhooks and usage reports, within the allowed networks."""
    from svcd.remote.client import Client  # 8 ms and 1 MB, needed only with calls
    from svcd.remote.guard import Guard

    return Client(Guard(config.experimental_allowed_ip_networks))


def usage() -> Usage:
    """The counter of requests for the usage report."""
    from svcd.analytics.collector import Usage  # loaded only where usage is reported

    return Usage()


def usage_report(config: Config, instance: Instance, own: Usage, others: Callable[[], Sequence[State]] = tuple,
                 now: Callable[[], int] = quantities.now, may_send: Callable[[], bool] = lambda: True) -> UsageReport:
    """The sender of usage reports, not started yet. others: takes the counts of the search workers.

    may_send: False while another node of the cluster sends them.
    """
    from svcd.analytics.collector import sum_of
    from svcd.analytics.report import UsageReport, groups

    figures = InstanceFigures(config, instance)
    client = cache(lambda: _client(config))  # the first report loads it

    def send(address: str, content: bytes) -> None:
        if may_send():
            client().post(address, {"Content-Type": "application/json"}, [content], len(content))

    return UsageReport(
        config.analytics_url, instance.uid,
        lambda: groups(sum_of([own.take(), *others()]) | figures.now()), send, now,
    )


def notifier(config: Config, instance: Instance) -> WebhookNotifier:
    """The webhook delivery, not started yet."""
    from svcd.remote.webhook_delivery import WebhookNotifier  # not loaded before the first search

    return WebhookNotifier(instance.webhooks, instance.outbox, lambda: _client(config),
                           on_bug=lambda bug: logs.failure("bug", bug))


def runner(config: Config, instance: Instance, on_batch: Callable[[], None] = lambda: None, node: Node | None = None) -> Runner:
    """The task runner, not started yet. on_batch: called after each batch. node: of a cluster."""
    from svcd.tasks.batching import Limits  # not loaded before the first search
    from svcd.tasks.global_tasks import Folders
    from svcd.tasks.runner import Runner

    limits = Limits(config.experimental_max_number_of_batched_tasks, config.experimental_limit_batched_tasks_total_size)
    workers = indexing_threads(config)
    locales = LocaleWarnings()
    return Runner(
        instance, workers=workers, limits=limits, budget=memory_budget(config.max_indexing_memory, workers),
        on_batch=lambda batch, tasks: _batch_ended(batch, tasks, locales, on_batch),
        on_bug=lambda traceback: logs.failure("bug", traceback),
        folders=Folders(config.dump_dir, config.snapshot_dir, object_store(config)),
        networks=[str(network) for network in config.experimental_allowed_ip_networks],
        payload_limit=config.http_payload_size_limit, cluster=node, parallel_after_s=config.parallel_batches_after,
        changes_keep_s=config.changes_keep,
    )


def dry_runs(config: Config, instance: Instance) -> DryRuns:
    """Return what answers dry runs, with the limits of the runner."""
    from svcd.tasks.dry_runs import DryRuns  # loaded with the first dry run

    workers = indexing_threads(config)
    budget = memory_budget(config.max_indexing_memory, workers)
    return DryRuns(instance, budget, serving.allowed_networks(config), min(2, workers))


def object_store(config: Config) -> dict[str, Any] | None:
    """The fields of the ObjectStore (svcd.remote.object_store) that gets snapshots; None for a folder."""
    if config.s3_bucket_url is None:
        return None
    token_file = config.experimental_s3_web_identity_token_file
    return {
        "url": config.s3_bucket_url, "region": config.s3_bucket_region, "bucket": config.s3_bucket_name,
        "prefix": config.s3_snapshot_prefix, "access_key": config.s3_access_key, "secret_key": config.s3_secret_key,
        "role_arn": config.experimental_s3_role_arn, "token_file": None if token_file is None else str(token_file),
        "parts_at_once": config.experimental_s3_max_in_flight_parts, "level": config.experimental_s3_compression_level,
        "signature_s": config.experimental_s3_signature_duration_seconds,
        "part_bytes": config.experimental_s3_multipart_part_size,
    }


def snapshots(config: Config, instance: Instance, is_ours: Callable[[], bool] = lambda: True) -> SnapshotSchedule:
    """The schedule of snapshots, not started yet; for --schedule-snapshot. is_ours: False while another node makes them."""
    from svcd.tasks.global_tasks import SnapshotSchedule  # loaded only with a schedule

    return SnapshotSchedule(instance.queue, config.schedule_snapshot, on_refusal=logs.warn, is_ours=is_ours)


def indexing_threads(config: Config) -> int:
    """Return the maximum number of indexing processes, including processes that analyze documents for others."""
    return config.max_indexing_threads or machine.cores()


def import_budget(config: Config) -> MemoryBudget:
    """Return the memory budget of the indexing process of an import, and of the process that analyzes documents for it."""
    return memory_budget(config.max_indexing_memory, min(2, indexing_threads(config)))


def memory_budget(memory: int | None, workers: int) -> MemoryBudget:
    """Return the budget of each of `workers` indexing processes, so that all stay within `memory` bytes; None: no limit."""
    from svcd.tasks.indexing_client import MemoryBudget

    full = MemoryBudget()
    if memory is None:
        return full
    room = (memory // workers - PROCESS_BYTES) // BYTES_PER_BUDGETED
    share = min(1.0, max(SMALLEST_SHARE, room / sum(full)))
    return MemoryBudget(*(int(part * share) for part in full))


def _batch_ended(batch: Batch, tasks: Sequence[Task], locales: LocaleWarnings, on_batch: Callable[[], None]) -> None:
    ended = batch.finished_at or batch.started_at
    logs.batch(
        batch.uid, kind=",".join(sorted({task.kind for task in tasks})),
        index_uid=",".join(sorted({task.index_uid for task in tasks if task.index_uid})) or None, tasks=len(tasks),
        failed=sum(task.status == FAILED for task in tasks), seconds=(ended - batch.started_at) / quantities.SECOND,
    )
    locales.check(tasks)
    on_batch()


# Packages that are not installed


def log_missing_packages() -> None:
    """Log the compiled packages that are not installed (docs/installation.md#compiled-packages), and the effect of their lack."""
    effects = {}
    if docids.IMPLEMENTATION == docids.PLAIN_PYTHON:
        effects["pyroaring"] = "large indexes are searched more slowly"
    if find_spec("brotli") is None:  # not imported: few clients ask for its coding
        effects["brotli"] = "responses are compressed by gzip alone"
    if effects:
        logs.info(f"compiled packages not installed: {', '.join(effects.values())}", packages=", ".join(effects),
                  get=INSTALL_COMPILED)


# Word lists that are not installed (docs/text-analysis.md#segmentation-with-word-lists)


def log_missing_lists() -> None:
    """Log the word lists that are not installed: one line, not a warning, because most instances do not need them."""
    if languages := segmenters.missing():
        logs.info("word lists not installed; text in these languages is segmented coarsely", languages=", ".join(languages),
                  get=INSTALL_WORD_LISTS)


class LocaleWarnings:
    """Warns, once for each list, when settings name a language whose word list is missing. Thread-safe."""

    def __init__(self) -> None:
        self._warned: set[str] = set()
        self._lock = threading.Lock()  # guards _warned

    def check(self, tasks: Iterable[Task]) -> None:
        """Check the settings tasks of a finished batch."""
        locales = [(task, locale) for task in tasks if task.kind == "settingsUpdate" and task.status == SUCCEEDED
                   for rule in (task.details or {}).get("localizedAttributes") or () for locale in rule["locales"]]
        for task, locale in locales:
            name = segmenters.list_of(locale)
            if not name or segmenters.is_installed(name):
                continue
            with self._lock:
                is_new = name not in self._warned
                self._warned.add(name)
            if is_new:
                language = segmenters.language_of(name)
                get = {"get": INSTALL_WORD_LISTS} if language else {}  # no package contains the other lists
                logs.warn("settings name a locale whose word list is not installed: its text is segmented coarsely, so searches "
                          "find other documents than with the list", locale=locale, language=language or name,
                          index_uid=task.index_uid, **get)


# Figures of the usage report that describe the machine and the launch options. For an option that names a path, an address or a
# secret, the report says only whether it was given.

_DAY_S = 86_400
_PREFIX = "infos."
_NUMBERS = (SIZE, COUNT, POSITIVE, PROCESSES, LIMIT, INTERVAL)
_CHOICES = ("env", "log_level", "experimental_logs_mode")
OTHER_NAMES = {"task_queue_webhook": "task_webhook_url", "experimental_dumpless_upgrade": "upgrade_db",
               "experimental_personalization": "experimental_personalization_api_key"}
FEATURES = {  # figure: the experimental feature that it reports
    "experimental_composite_embedders": "compositeEmbedders",
    "experimental_contains_filter": "containsFilter",
    "experimental_edit_documents_by_function": "editDocumentsByFunction",
    "experimental_enable_metrics": "metrics",
    "experimental_enable_logs_route": "logsRoute",
    "experimental_multimodal": "multimodal",
    "experimental_chat_completions": "chatCompletions",
}
# The environment variable with which hosting images name their provider.
_PROVIDER = "SVC_SERVER_PROVIDER"


class InstanceFigures:
    """The figures of one daemon since its start."""

    def __init__(self, config: Config, instance: Instance) -> None:
        self._config = config
        self._instance = instance
        self._started = time.monotonic()

    def now(self) -> dict[str, Any]:
        """Return name -> current value of all figures that do not count requests."""
        from svcd.analytics.report import FIGURES  # loaded only where usage is reported

        features, memory = self._instance.features(), machine.memory()
        return {
            **{name: self._option(name.removeprefix(_PREFIX), features) for name in FIGURES if name.startswith(_PREFIX)},
            "context.app.version": INTERFACE_VERSION,
            "system.distribution": distribution_id(),
            "system.kernel_version": os.uname().release,
            "system.cores": machine.cores(),
            "system.ram_size": None if memory is None else memory // 1024,
            "system.disk_size": largest_disk(self._config.db_path),
            "system.server_provider": os.environ.get(_PROVIDER),
            "stats.database_size": self._instance.database_size(),
            "stats.indexes_number": self._instance.list_indexes(0, 0)[1],
            "start_since_days": int((time.monotonic() - self._started) // _DAY_S),
            "experimental_network": bool(features.get("network")),
        }

    def _option(self, name: str, features: Mapping[str, bool | None]) -> Any:
        """Return the value of a figure `infos.<name>`: a boolean, a number, or one of a few fixed words."""
        if name == "with_configuration_file":
            return any(self._config.source(option.name) == FILE for option in OPTIONS)
        if name in FEATURES:
            return bool(features.get(FEATURES[name]))
        name = OTHER_NAMES.get(name, name)
        option = BY_NAME.get(name)
        if option is None:  # svcd lacks this option
            return False
        if option.is_switch or option.kind in _NUMBERS or name in _CHOICES:
            return getattr(self._config, name)
        return self._config.source(name) != DEFAULT


def distribution_id(path: Path = Path("/etc/os-release")) -> str | None:
    """Return the ID field of os-release(5), None if unknown."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, ValueError):
        return None
    return next((line.removeprefix("ID=").strip("\"'") for line in lines if line.startswith("ID=")), None)


def largest_disk(folder: Path, mounts: Path = Path("/proc/mounts")) -> int | None:
    """Return the bytes of the largest mounted block device; of the data folder's file system if no device is known."""
    import shutil  # loads compressors, which no other part of an idle daemon needs

    try:
        rows = [line.split() for line in mounts.read_text().splitlines()]
    except (OSError, ValueError):
        rows = []
    sizes = []
    for place in (*(row[1] for row in rows if len(row) > 1 and row[0].startswith("/dev/")), str(folder)):
        with suppress(OSError):
            sizes.append(shutil.disk_usage(place).total)
    return max(filter(None, sizes), default=None)
