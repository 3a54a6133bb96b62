"""`GET /metrics`: the state of the instance in the text format of Prometheus (docs/http.md#metrics).

Existing dashboards expect these names and labels in this order.
"""
from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from svcd.api.context import Context
from svcd.api.routes import HandlerResult, Route, Text
from svcd.api.traffic import BOUNDS_S, SEARCH_KINDS, Report, Traffic, sum_of
from svcd.base import quantities
from svcd.base.errors import ApiError
from svcd.instance.queue import DATABASE_BYTES
from svcd.instance.task_records import STATUSES, TaskFilter
from svcd.tasks.batching import KINDS
from svcd.tasks.views import parse_duration

_PROC = Path("/proc")  # see proc(5), so on Linux only


def resident_bytes(proc: Path = _PROC) -> int | None:
    """The resident memory of this process in bytes; None on systems without /proc."""
    try:
        return int((proc / "self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


# The text format of Prometheus, version 0.0.4: families of samples with labels.

CONTENT_TYPE = "text/plain; version=0.0.4"
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

Labels = tuple[tuple[str, str], ...]
_Values = TypeVar("_Values", bound=tuple[str, ...])
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Sample(NamedTuple):
    """One figure. suffix: appended to the name of the family, for the parts of a histogram."""

    value: float
    labels: Labels = ()
    suffix: str = ""


class Family(NamedTuple):
    """Figures of one name. kind: GAUGE, COUNTER or HISTOGRAM. Without samples it is left out."""

    name: str
    kind: str
    about: str
    samples: Iterable[Sample]


def labelled(names: Sequence[str], figures: Mapping[_Values, float]) -> list[Sample]:
    """One sample for each figure, its key giving the values of the labels; in the order of the keys."""
    return [Sample(figure, tuple(zip(names, values))) for values, figure in sorted(figures.items())]


def render(families: Iterable[Family]) -> str:
    """The whole text."""
    lines: list[str] = []
    for family in families:
        samples = list(family.samples)
        if samples:
            lines += f"# HELP {family.name} {family.about}", f"# TYPE {family.name} {family.kind}"
        for sample in samples:
            labels = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels)
            lines.append(f"{family.name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {number(sample.value)}")
    return "".join(f"{line}\n" for line in lines)


def number(value: float) -> str:
    """`1`, `0.005`, `+Inf`: whole numbers without a point."""
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)


_ALL_INDEXES = "The provided API key is invalid. The API key for the `/metrics` route must allow access to all indexes."
_MILLISECOND = quantities.SECOND // 1000
# The last batch that indexed documents is looked for among this many recent batches.
_RECENT_BATCHES = 20
_BATCH_STEP = ("batch_uid", "step_name")
_BATCH_INDEX = ("batch_uid", "index")
_BOUNDS = tuple(number(bound) for bound in (*BOUNDS_S, float("inf")))


class _Scrape(NamedTuple):
    """One request for the figures. traffic, reports: of all processes."""

    ctx: Context
    traffic: Traffic
    reports: Sequence[Report]


def get(ctx: Context) -> HandlerResult:
    """All figures. Raises invalid_api_key for a key that may not see every index."""
    if not ctx.permission.allows(None):
        raise ApiError("invalid_api_key", _ALL_INDEXES)
    reports = ctx.services.reports()
    scrape = _Scrape(ctx, sum_of(ctx.services.traffic, reports), reports)
    families = sorted(chain.from_iterable(group(scrape) for group in _GROUPS), key=attrgetter("name"))
    return HandlerResult(200, Text(render((*families, *process_families())), CONTENT_TYPE))


def _gauge(name: str, about: str, value: float) -> Family:
    return Family(name, GAUGE, about, (Sample(value),))


def _sizes(scrape: _Scrape) -> Iterator[Family]:
    ctx = scrape.ctx
    yield _gauge("svc_db_size_bytes", "Svc DB Size In Bytes", ctx.instance.database_size())
    yield _gauge("svc_used_db_size_bytes", "Svc Used DB Size In Bytes", ctx.instance.used_database_size())
    yield _gauge("svc_task_queue_max_size", "Svc Task Queue Max Size", DATABASE_BYTES)
    yield _gauge("svc_task_queue_size_until_stop_registering", "Svc Task Queue Size Until Stop Registering",
                 ctx.queue.bytes_left())
    yield _gauge("svc_task_queue_used_size", "Svc Task Queue Used Size", ctx.queue.bytes()[1])


def _traffic(scrape: _Scrape) -> Iterator[Family]:
    counts = {(method, path, str(status)): count for (method, path, status), count in scrape.traffic.answered().items()}
    yield Family("svc_http_requests_total", COUNTER, "Svc HTTP requests total", labelled(("method", "path", "status"), counts))
    samples = []
    for (method, path), timing in sorted(scrape.traffic.timings().items(), key=lambda row: row[0]):
        labels, cumulative = (("method", method), ("path", path)), timing.cumulative()
        samples += [Sample(count, (*labels, ("le", bound)), "_bucket") for bound, count in zip(_BOUNDS, cumulative)]
        samples += [Sample(timing.seconds, labels, "_sum"), Sample(cumulative[-1], labels, "_count")]
    yield Family("svc_http_response_time_seconds", HISTOGRAM, "Svc HTTP response times", samples)


def _indexes(scrape: _Scrape) -> Iterator[Family]:
    ctx = scrape.ctx
    counts = {(row.uid,): row.stats.get("documents", 0) for row in ctx.instance.each_index()}
    damaged = ctx.instance.damaged_indexes()
    last_update = ctx.instance.last_update()
    yield _gauge("svc_index_count", "Svc Index Count", len(counts))
    yield Family("svc_index_docs_count", GAUGE, "Svc Index Docs Count", labelled(("index",), counts))
    yield Family("svc_damaged_index", GAUGE, "Svc Index In Whose File Damage Was Met", labelled(
        ("index",), {(row.uid,): 1 for row in ctx.instance.each_index() if row.uuid in damaged} if damaged else {}))
    if last_update is not None:
        yield _gauge("svc_last_update", "Svc Last Update", last_update // quantities.SECOND)


def _tasks(scrape: _Scrape) -> Iterator[Family]:
    ctx = scrape.ctx
    counts = ctx.queue.counts()
    counts["statuses"] = dict.fromkeys(STATUSES, 0) | counts["statuses"]
    counts["types"] = dict.fromkeys(KINDS, 0) | counts["types"]
    figures = {(kind, value): count for kind, by_value in counts.items() for value, count in by_value.items()}
    oldest = ctx.queue.oldest_enqueued_at()
    latency = 0.0 if oldest is None else max(0, quantities.now() - oldest) / quantities.SECOND
    yield Family("svc_nb_tasks", GAUGE, "Svc Number of tasks", labelled(("kind", "value"), figures))
    yield _gauge("svc_is_indexing", "Svc Is Indexing", bool(ctx.queue.running()))
    yield _gauge("svc_task_queue_latency_seconds", "Svc Task Queue Latency in Seconds", latency)


def _searches(scrape: _Scrape) -> Iterator[Family]:
    searches = scrape.ctx.services.searches
    running = searches.running + sum(report.running for report in scrape.reports)
    waiting = searches.waiting + sum(report.waiting for report in scrape.reports)
    yield _gauge("svc_search_queue_size", "Svc Search Queue Size", searches.capacity)
    yield _gauge("svc_searches_running", "Svc Searches Running", running)
    yield _gauge("svc_searches_waiting_to_be_processed", "Svc Searches Being Processed", waiting)
    for kind in SEARCH_KINDS:
        if count := scrape.traffic.searches(kind):
            yield _gauge(f"svc_{kind}_search_requests", f"Svc number of {kind} search requests", count)


def _batches(scrape: _Scrape) -> Iterator[Family]:
    """The progress of running batches, the steps of the last batch, and the last batch that indexed documents."""
    queue = scrape.ctx.queue
    recent = queue.list_batches(TaskFilter(), limit=_RECENT_BATCHES, from_uid=None, reverse=False).results
    finished = [batch for batch in recent if batch.finished_at is not None]
    shares = {(str(running.batch.uid), step["currentStep"]): step["finished"] / step["total"] if step["total"] else 0.0
              for running in queue.running() for step in (running.batch.progress or {}).get("steps", ())}
    yield Family("svc_batch_running_progress_trace", GAUGE, "The currently running progress trace", labelled(_BATCH_STEP, shares))
    trace = {(str(batch.uid), path): parse_duration(text) // _MILLISECOND
             for batch in finished[:1] for path, text in batch.stats.get("progressTrace", {}).items()}
    yield Family("svc_last_finished_batches_progress_trace_ms", GAUGE,
                 "The last few batches progress trace in milliseconds", labelled(_BATCH_STEP, trace))
    counts: dict[tuple[str, ...], float] = {}
    durations: dict[tuple[str, ...], float] = {}
    for batch in [batch for batch in finished if batch.details.get("indexedDocuments") is not None][:1]:
        labels = str(batch.uid), next(iter(batch.stats.get("indexUids", {})), "")  # a batch with documents has one index
        counts[labels] = batch.details["indexedDocuments"]
        durations[labels] = ((batch.finished_at or batch.started_at) - batch.started_at) // _MILLISECOND
    yield Family("svc_last_indexed_documents_count", GAUGE, "The last number of indexed documents in a batch",
                 labelled(_BATCH_INDEX, counts))
    yield Family("svc_last_indexed_documents_duration_ms", GAUGE,
                 "The duration in ms of the last batch that indexed documents", labelled(_BATCH_INDEX, durations))


def _chats(scrape: _Scrape) -> Iterator[Family]:
    """Searches of chats, and the tokens that language models have reported."""
    chats = scrape.ctx.services.chats
    searches = chats.searches
    yield Family("svc_chat_searches_total", COUNTER, "Total number of searches performed by chats",
                 labelled(("type",), {("internal",): searches} if searches else {}))
    tokens = chats.tokens()
    for place, (name, what) in enumerate((("prompt_tokens", "prompt tokens"), ("completion_tokens", "completion tokens"),
                                          ("tokens", "tokens"))):
        yield Family(f"svc_chat_{name}_total", COUNTER, f"Total number of {what} used by chats",
                     labelled(("workspace", "model"), {pair: counts[place] for pair, counts in tokens.items()}))


_GROUPS: tuple[Callable[[_Scrape], Iterator[Family]], ...] = (_sizes, _traffic, _indexes, _tasks, _searches, _batches, _chats)


def process_families(proc: Path = _PROC) -> Iterator[Family]:
    """The figures of this process; none on systems without /proc."""
    try:
        # The name of the program, in parentheses, may contain spaces; field 3 of proc(5) follows it.
        fields = (proc / "self/stat").read_text().rpartition(")")[2].split()
        open_files = len(list((proc / "self/fd").iterdir()))
        booted_at = next(int(line.split()[1]) for line in (proc / "stat").read_text().splitlines() if line.startswith("btime "))
    except (OSError, StopIteration):
        return
    user, system, threads, started, virtual, pages = (int(fields[number - 3]) for number in (14, 15, 20, 22, 23, 24))
    ticks, (soft, _) = os.sysconf("SC_CLK_TCK"), resource.getrlimit(resource.RLIMIT_NOFILE)
    most_files = float("inf") if soft == resource.RLIM_INFINITY else soft
    yield Family("process_cpu_seconds_total", COUNTER, "Total user and system CPU time spent in seconds.",
                 (Sample((user + system) / ticks),))
    yield _gauge("process_max_fds", "Maximum number of open file descriptors.", most_files)
    yield _gauge("process_open_fds", "Number of open file descriptors.", open_files)
    yield _gauge("process_resident_memory_bytes", "Resident memory size in bytes.", pages * os.sysconf("SC_PAGE_SIZE"))
    yield _gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.",
                 int(booted_at + started / ticks))
    yield _gauge("process_threads", "Number of OS threads in the process.", threads)
    yield _gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", virtual)


ROUTES = (
    Route("GET", "/metrics", get, "metrics.get", {200: {"type": "string"}}, "Get metrics for Prometheus", "Stats",
          feature=("metrics", "Getting metrics"), answer_type=CONTENT_TYPE),
)
