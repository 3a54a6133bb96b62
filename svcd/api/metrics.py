"""`GET /metrics`: what the instance does, as figures that Prometheus reads.

Knows which figures there are, their names and where each is asked for; refuses to know how they are written
(api.exposition) and counted. Names and order are those of the recordings.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from svcd import times
from svcd.api.context import Answer, Context, Text
from svcd.api.exposition import CONTENT_TYPE, COUNTER, GAUGE, HISTOGRAM, Family, Sample, labelled, number, render
from svcd.api.process_figures import process_figures
from svcd.api.routes import Route
from svcd.api.traffic import BOUNDS_S, Report, Traffic, sum_of
from svcd.errors import ApiError
from svcd.store.queue import DATABASE_BYTES
from svcd.store.records import STATUSES, Batch, TaskFilter
from svcd.tasks.details import duration_of_text
from svcd.tasks.kinds import KINDS

_ALL_INDEXES = (
    "The provided API key is invalid. The API key for the `/metrics` route must allow access to all indexes."
)
_MILLISECOND = times.SECOND // 1000
# Where the last batch that indexed documents is looked for.
_RECENT_BATCHES = 20
_BATCH_STEP = ("batch_uid", "step_name")
_BATCH_INDEX = ("batch_uid", "index")
_BOUNDS = tuple(number(bound) for bound in (*BOUNDS_S, float("inf")))


def get(ctx: Context) -> Answer:
    """All figures. Raises invalid_api_key for a key that may not see every index."""
    if not ctx.permission.allows(None):
        raise ApiError("invalid_api_key", _ALL_INDEXES)
    reports = ctx.reports()
    traffic = sum_of(ctx.traffic, reports)
    groups = (_sizes(ctx), _traffic(traffic), _indexes(ctx), _tasks(ctx), _searches(ctx, reports), _batches(ctx))
    families = sorted(chain(*groups), key=attrgetter("name"))
    return Answer(200, Text(render((*families, *_process())), CONTENT_TYPE))


def _gauge(name: str, about: str, value: float) -> Family:
    return Family(name, GAUGE, about, (Sample(value),))


def _sizes(ctx: Context) -> Iterator[Family]:
    yield _gauge("svc_db_size_bytes", "Svc DB Size In Bytes", ctx.instance.database_size())
    yield _gauge("svc_used_db_size_bytes", "Svc Used DB Size In Bytes", ctx.instance.used_database_size())
    yield _gauge("svc_task_queue_max_size", "Svc Task Queue Max Size", DATABASE_BYTES)
    yield _gauge("svc_task_queue_size_until_stop_registering", "Svc Task Queue Size Until Stop Registering",
                 ctx.queue.room())
    yield _gauge("svc_task_queue_used_size", "Svc Task Queue Used Size", ctx.queue.bytes()[1])


def _traffic(traffic: Traffic) -> Iterator[Family]:
    answered = {(method, path, str(status)): count for (method, path, status), count in traffic.answered().items()}
    yield Family("svc_http_requests_total", COUNTER, "Svc HTTP requests total",
                 labelled(("method", "path", "status"), answered))
    yield Family("svc_http_response_time_seconds", HISTOGRAM, "Svc HTTP response times", list(_timings(traffic)))


def _timings(traffic: Traffic) -> Iterator[Sample]:
    for (method, path), timing in sorted(traffic.timings().items(), key=lambda row: row[0]):
        labels = (("method", method), ("path", path))
        counts = timing.cumulated()
        for bound, count in zip(_BOUNDS, counts):
            yield Sample(count, (*labels, ("le", bound)), "_bucket")
        yield Sample(timing.seconds, labels, "_sum")
        yield Sample(counts[-1], labels, "_count")


def _indexes(ctx: Context) -> Iterator[Family]:
    rows, total = ctx.instance.list_indexes()
    last_update = ctx.instance.last_update()
    yield _gauge("svc_index_count", "Svc Index Count", total)
    yield Family("svc_index_docs_count", GAUGE, "Svc Index Docs Count",
                 labelled(("index",), {(row.uid,): row.stats.get("documents", 0) for row in rows}))
    if last_update is not None:
        yield _gauge("svc_last_update", "Svc Last Update", last_update // times.SECOND)


def _tasks(ctx: Context) -> Iterator[Family]:
    counts = ctx.queue.counts()
    counts["statuses"] = dict.fromkeys(STATUSES, 0) | counts["statuses"]
    counts["types"] = dict.fromkeys(KINDS, 0) | counts["types"]
    figures = {(kind, value): count for kind, by_value in counts.items() for value, count in by_value.items()}
    oldest = ctx.queue.oldest_enqueued_at()
    latency = 0.0 if oldest is None else max(0, times.now() - oldest) / times.SECOND
    yield Family("svc_nb_tasks", GAUGE, "Svc Number of tasks", labelled(("kind", "value"), figures))
    yield _gauge("svc_is_indexing", "Svc Is Indexing", bool(ctx.queue.running()))
    yield _gauge("svc_task_queue_latency_seconds", "Svc Task Queue Latency in Seconds", latency)


def _searches(ctx: Context, reports: Sequence[Report]) -> Iterator[Family]:
    searches = ctx.searches
    running = searches.running + sum(report.running for report in reports)
    waiting = searches.waiting + sum(report.waiting for report in reports)
    yield _gauge("svc_search_queue_size", "Svc Search Queue Size", searches.capacity)
    yield _gauge("svc_searches_running", "Svc Searches Running", running)
    yield _gauge("svc_searches_waiting_to_be_processed", "Svc Searches Being Processed", waiting)


def _batches(ctx: Context) -> Iterator[Family]:
    """What running batches are at, what the last one took, and the last one that indexed documents."""
    running = [running.batch for running in ctx.queue.running()]
    recent = ctx.queue.list_batches(TaskFilter(), limit=_RECENT_BATCHES, from_uid=None, reverse=False).results
    finished = [batch for batch in recent if batch.finished_at is not None]
    yield Family("svc_batch_running_progress_trace", GAUGE, "The currently running progress trace",
                 labelled(_BATCH_STEP, {step: share for batch in running for step, share in _progress(batch)}))
    yield Family("svc_last_finished_batches_progress_trace_ms", GAUGE,
                 "The last few batches progress trace in milliseconds",
                 labelled(_BATCH_STEP, dict(_trace(finished[0])) if finished else {}))
    counts, durations = _last_indexed(next(filter(_has_indexed, finished), None))
    yield Family("svc_last_indexed_documents_count", GAUGE, "The last number of indexed documents in a batch",
                 labelled(_BATCH_INDEX, counts))
    yield Family("svc_last_indexed_documents_duration_ms", GAUGE,
                 "The duration in ms of the last batch that indexed documents", labelled(_BATCH_INDEX, durations))


def _progress(batch: Batch) -> Iterator[tuple[tuple[str, str], float]]:
    for step in (batch.progress or {}).get("steps", ()):
        yield (str(batch.uid), step["currentStep"]), step["finished"] / step["total"] if step["total"] else 0.0


def _trace(batch: Batch) -> Iterator[tuple[tuple[str, str], float]]:
    for path, text in batch.stats.get("progressTrace", {}).items():
        yield (str(batch.uid), path), duration_of_text(text) // _MILLISECOND


def _has_indexed(batch: Batch) -> bool:
    return batch.details.get("indexedDocuments") is not None


_Figures = dict[tuple[str, ...], float]


def _last_indexed(batch: Batch | None) -> tuple[_Figures, _Figures]:
    """By batch and index: documents, milliseconds. A batch with documents is of one index."""
    if batch is None:
        return {}, {}
    labels: Any = (str(batch.uid), next(iter(batch.stats.get("indexUids", {})), ""))
    spent = (batch.finished_at or batch.started_at) - batch.started_at
    return {labels: batch.details["indexedDocuments"]}, {labels: spent // _MILLISECOND}


def _process() -> Iterator[Family]:
    figures = process_figures()
    if figures is None:
        return
    yield Family("process_cpu_seconds_total", COUNTER, "Total user and system CPU time spent in seconds.",
                 (Sample(figures.cpu_s),))
    yield _gauge("process_max_fds", "Maximum number of open file descriptors.", figures.most_files)
    yield _gauge("process_open_fds", "Number of open file descriptors.", figures.open_files)
    yield _gauge("process_resident_memory_bytes", "Resident memory size in bytes.", figures.resident)
    yield _gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.",
                 int(figures.started_at))
    yield _gauge("process_threads", "Number of OS threads in the process.", figures.threads)
    yield _gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", figures.virtual)


ROUTES = (
    Route("GET", "/metrics", get, "metrics.get", {200: {"type": "string"}}, "Get metrics for Prometheus", "Stats",
          feature=("metrics", "Getting metrics"), answer_type=CONTENT_TYPE),
)
