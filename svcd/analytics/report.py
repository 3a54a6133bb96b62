"""The anonymous usage report: FIGURES, its one table, and UsageReport, which sends it to the configured address.

Every figure of a report is a row of the table. A row has the group (event) of the figure, its kind, and the words it may have.
The kind decides how values are added, how the states of several processes are joined, and how the figure is shown. No kind holds
free text, so a report cannot contain the text of a query, a document, a name, a key or a host. See
docs/tasks-and-batches.md#usage-report.

Events are sent in batches, once an hour or when a batch is full. A batch is one POST of JSON, of at most LARGEST_BYTES:

    {"instanceUid": "...", "sentAt": "...", "batch": [{"event": "searches", "at": "...", "properties": {...}}]}

Events that could not be sent are kept for the next hour, up to one batch; the oldest are dropped first.

Threads: "svcd-usage-report", started by UsageReport.start(), sleeps until something is due; step() does its work in any thread.
"""
from __future__ import annotations

import json
import operator
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from svcd.base import logs, quantities
from svcd.remote import Undelivered
from svcd.schema.ranking_rules import RULE_NAMES
from svcd.validation.names import LOCALES

State = dict[str, Any]  # figure -> its state so far, by its kind; JSON values, so that processes can exchange it

# Upper bounds of the buckets of response times in milliseconds; each is 1.25 times the previous.
TIME_BOUNDS_MS = tuple(round(1.25 ** power, 2) for power in range(52))
_OTHER = "other"
# The version at the start of an arbitrary text: `6.1.0` of `6.1.0-mary-laptop`. At most three parts, as four may be an address.
_VERSION = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,5}){0,2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a figure is counted.

    nothing: the initial state. joined: two states, the later one second. shown: state -> value in the report. added: state and
    measure of one more value -> state. measure: the default measure of a value of a request.
    """

    nothing: Callable[[], Any]
    joined: Callable[[Any, Any], Any]
    shown: Callable[[Any], Any] = lambda state: state
    added: Callable[[Any, Any], Any] = lambda state, value: value
    measure: Callable[[Any], Any] = lambda value: value


def _sum_of_parts(one: Iterable[float], other: Iterable[float]) -> list[float]:
    return [left + right for left, right in zip(one, other, strict=True)]


def _sum_by_word(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {word: one.get(word, 0) + other.get(word, 0) for word in (*one, *other)}


def _mean(sum_and_count: list[float]) -> float:
    total, count = sum_and_count
    return round(total / count, 2) if count else 0.0


def _extremes_of_both(one: list[float] | None, other: list[float] | None) -> list[float] | None:
    """[minimum, maximum, sum, count] of two such lists together; None means a list without numbers."""
    if one is None or other is None:
        return one or other
    return [min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2], one[3] + other[3]]


def _min_mean_max(state: list[float] | None) -> dict[str, float]:
    lowest, highest, total, count = state or [0.0, 0.0, 0.0, 1]
    return {"max": round(highest, 2), "min": round(lowest, 2), "avg": round(total / count, 2)}


def _most_frequent(counts: Mapping[str, int]) -> str | None:
    return max(counts, key=lambda word: (counts[word], word), default=None)


def _slowest_of_a_hundred(counts: list[int]) -> float:
    """The 99th percentile of response times in milliseconds: the upper bound of its bucket."""
    missing = sum(counts) * 0.99
    for bound, count in zip((*TIME_BOUNDS_MS, TIME_BOUNDS_MS[-1]), counts, strict=True):
        missing -= count
        if missing <= 0:
            return bound if sum(counts) else 0.0
    return TIME_BOUNDS_MS[-1]


def _counted_word(counts: dict[str, int], word: str) -> dict[str, int]:
    counts[word] = counts.get(word, 0) + 1
    return counts


NOW = Kind(lambda: None, lambda one, other: other)  # at the moment of the report
TOTAL = Kind(lambda: 0, operator.add, added=operator.add, measure=lambda value: 1)
MOST = Kind(lambda: 0, max, added=max, measure=int)
ANY = Kind(lambda: False, lambda one, other: one or other, added=lambda state, value: state or value, measure=lambda value: True)
LAST = Kind(lambda: None, lambda one, other: one if other is None else other)
MEAN = Kind(lambda: [0, 0], _sum_of_parts, _mean, lambda state, value: [state[0] + value, state[1] + 1], len)  # sum, count
USUAL = Kind(dict, _sum_by_word, _most_frequent, _counted_word)  # word -> count
WORDS = Kind(dict, _sum_by_word, sorted, _counted_word)
COUNTS = Kind(dict, _sum_by_word, dict, _counted_word)  # word -> count, of all words
EXTREMES = Kind(lambda: None, _extremes_of_both, _min_mean_max,
                lambda state, value: _extremes_of_both(state, [value, value, value, 1]))
TIMES = Kind(lambda: [0] * (len(TIME_BOUNDS_MS) + 1), _sum_of_parts, _slowest_of_a_hundred)


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. words: texts that it may have; is_version: it may also have a version number."""

    name: str
    group: str
    kind: Kind
    words: frozenset[str] = frozenset()
    is_version: bool = False

    def admitted(self, value: Any) -> Any:
        """The value with texts that are not allowed replaced by `other`."""
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, (list, tuple)):
            return [self.admitted(each) for each in value]
        if isinstance(value, dict):
            return {name: self.admitted(each) for name, each in value.items() if name in self.words}
        if isinstance(value, str) and value in self.words:
            return value
        version = _VERSION.match(value) if self.is_version and isinstance(value, str) else None
        return version[0] if version else _OTHER


_AGENTS = frozenset("""
    svcd curl wget httpie python-requests python-urllib python-httpx aiohttp axios node undici okhttp java go-http-client
    guzzlehttp ruby faraday dart dotnet postmanruntime insomnia mozilla reqwest prometheus svc
""".split())
_DISTRIBUTIONS = frozenset("""
    alma alpine amzn arch centos debian fedora gentoo linuxmint manjaro nixos ol opensuse opensuse-leap
    opensuse-tumbleweed raspbian rhel rocky sles ubuntu void
""".split())
_PROVIDERS = frozenset(
    "aws azure cloudron digitalocean fly gcp heroku hetzner koyeb linode northflank ovh railway render scaleway vultr".split())
_RULES = frozenset((*RULE_NAMES, "asc", "desc"))
_SOURCES = frozenset("openAi huggingFace ollama userProvided rest composite".split())
_EXTREMES = ("max", "min", "avg")
# Models of chats that are told apart, by the beginnings of their names; the names themselves are free text.
MODELS = ("gpt-3.5", "gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-4", "gpt-5", "chatgpt-4o", "o1", "o3", "o4", "mistral", "ministral",
          "magistral", "codestral", "gemini", "claude", "llama", "qwen", "deepseek", "gemma", "phi")
_LEVELS = frozenset("OFF ERROR WARN INFO DEBUG TRACE".split())


def _rows(group: str, kind: Kind, names: str, words: Iterable[str] = (), is_version: bool = False) -> list[Figure]:
    return [Figure(name, group, kind, frozenset(words), is_version) for name in names.split()]


def _infos(names: str, words: Iterable[str] = ()) -> list[Figure]:
    return _rows("instance", NOW, " ".join(f"infos.{name}" for name in names.split()), words)


LEFT_OUT = {  # figures of the specification that would be the same in every report, with the reason
    "infos.gpu_enabled": "svcd never uses a graphics processor",
    "infos.ssl_ocsp_path": "the option refuses the start",
    "infos.experimental_replication_parameters": "svcd does not have this option: the queue assigns the uids of tasks",
}
FIGURES: dict[str, Figure] = {row.name: row for row in (
    *_rows("instance", NOW, "context.app.version", is_version=True),
    *_rows("instance", NOW, "system.distribution", _DISTRIBUTIONS),
    *_rows("instance", NOW, "system.kernel_version", is_version=True),
    *_rows("instance", NOW, "system.cores system.ram_size system.disk_size"),
    *_rows("instance", NOW, "system.server_provider", _PROVIDERS),
    *_rows("instance", NOW, "stats.database_size stats.indexes_number start_since_days"),
    *_infos("env", ("development", "production")),
    *_infos("db_path import_dump dump_dir ignore_missing_dump ignore_dump_if_db_exists import_snapshot schedule_snapshot"
            " snapshot_dir ignore_missing_snapshot ignore_snapshot_if_db_exists http_addr http_payload_size_limit"),
    *_infos("log_level", _LEVELS),
    *_infos("max_indexing_memory max_indexing_threads ssl_auth_path ssl_cert_path ssl_key_path ssl_require_auth ssl_resumption"
            " ssl_tickets with_configuration_file task_queue_webhook experimental_composite_embedders"
            " experimental_contains_filter experimental_edit_documents_by_function experimental_enable_metrics"
            " experimental_embedding_cache_entries experimental_multimodal experimental_chat_completions"
            " experimental_no_edition_2024_for_settings experimental_reduce_indexing_memory_usage"),
    *_infos("experimental_logs_mode", ("HUMAN", "JSON")),
    *_infos("experimental_enable_logs_route experimental_search_queue_size experimental_dumpless_upgrade"
            " experimental_personalization"),

    *_rows("requests", TIMES, "requests.99th_response_time"),
    *_rows("requests", TOTAL, "requests.total_succeeded requests.total_failed requests.total_received requests.total_degraded"
                              " requests.total_used_negative_operator"),
    *_rows("requests", WORDS, "user_agent", _AGENTS),

    *_rows("searches", ANY, "sort.with_geoPoint"),
    *_rows("searches", MEAN, "sort.avg_criteria_number"),
    *_rows("searches", ANY, "filter.with_geoBoundingBox filter.with_geoRadius filter.on_vectors with_vector_filter"),
    *_rows("searches", USUAL, "filter.most_used_syntax", ("string", "array", "mixed")),
    *_rows("searches", MOST, "q.max_terms_number pagination.max_limit pagination.max_offset"),
    *_rows("searches", USUAL, "pagination.most_used_navigation", ("exhaustive", "estimated")),
    *_rows("searches", MOST, "formatting.max_attributes_to_retrieve formatting.max_attributes_to_highlight"),
    *_rows("searches", ANY, "formatting.highlight_pre_tag formatting.highlight_post_tag"),
    *_rows("searches", MOST, "formatting.max_attributes_to_crop"),
    *_rows("searches", ANY, "formatting.crop_length formatting.crop_marker formatting.show_matches_position"),
    *_rows("searches", MEAN, "facets.avg_facets_number"),
    *_rows("searches", TOTAL, "facets.total_distinct_facet_count"),
    *_rows("searches", ANY, "facets.additional_search_parameters_provided scoring.show_ranking_score"
                            " scoring.show_ranking_score_details scoring.ranking_score_threshold"),
    *_rows("searches", TOTAL, "attributes_to_search_on.total_number_of_uses"),
    *_rows("searches", USUAL, "matching_strategy.most_used_strategy", ("last", "all", "frequency", "bm25")),
    *_rows("searches", ANY, "distinct"),
    *_rows("searches", WORDS, "locales", LOCALES),
    *_rows("searches", MEAN, "searches.avg_search_count"),
    *_rows("searches", TOTAL, "searches.total_search_count"),
    *_rows("searches", MEAN, "indexes.avg_distinct_index_count"),
    *_rows("searches", TOTAL, "indexes.total_distinct_index_count indexes.total_single_index"),
    *_rows("searches", ANY, "federation.use_federation"),
    *_rows("searches", TOTAL, "personalization.total_personalized"),

    *_rows("documents and indexes", ANY, "primary_key"),
    *_rows("documents and indexes", WORDS, "payload_type", ("application/json", "application/x-ndjson", "text/csv")),
    *_rows("documents and indexes", ANY, "index_creation per_document_id per_filter clear_all per_batch per_index_uid"),
    *_rows("documents and indexes", TOTAL, "swap_operation_number"),

    *_rows("tasks", ANY, "per_task_uid filtered_by_uid filtered_by_index_uid filtered_by_type filtered_by_status"
                         " filtered_by_canceled_by filtered_by_before_enqueued_at filtered_by_after_enqueued_at"
                         " filtered_by_before_started_at filtered_by_after_started_at filtered_by_before_finished_at"
                         " filtered_by_after_finished_at"),

    *_rows("settings", LAST, "ranking_rules.words_position ranking_rules.typo_position ranking_rules.proximity_position"
                             " ranking_rules.attribute_position ranking_rules.sort_position ranking_rules.exactness_position"),
    *_rows("settings", LAST, "ranking_rules.values", _RULES),
    *_rows("settings", LAST, "sortable_attributes.total sortable_attributes.has_geo filterable_attributes.total"
                             " filterable_attributes.has_geo filterable_attributes.has_patterns searchable_attributes.total"
                             " searchable_attributes.with_wildcard typo_tolerance.enabled typo_tolerance.disable_on_attributes"
                             " typo_tolerance.disable_on_words typo_tolerance.min_word_size_for_typos.one_typo"
                             " typo_tolerance.min_word_size_for_typos.two_typos faceting.max_values_per_facet"
                             " faceting.sort_facet_values_by_star_count faceting.sort_facet_values_by_total"
                             " pagination.max_total_hits distinct_attribute.set proximity_precision.set"),
    *_rows("settings", LAST, "proximity_precision.value", ("byWord", "byAttribute")),
    *_rows("settings", LAST, "facet_search.set facet_search.value prefix_search.set"),
    *_rows("settings", LAST, "prefix_search.value", ("indexingTime", "disabled")),
    *_rows("settings", LAST, "displayed_attributes.total displayed_attributes.with_wildcard stop_words.total"
                             " separator_tokens.total non_separator_tokens.total dictionary.total synonyms.total chat.set"),

    *_rows("vectors", MOST, "vector.max_vector_size"),
    *_rows("vectors", ANY, "vector.retrieve_vectors hybrid.enabled hybrid.semantic_ratio multimodal"),
    *_rows("vectors", TOTAL, "hybrid.total_media"),
    *_rows("vectors", LAST, "embedders.total"),
    *_rows("vectors", LAST, "embedders.sources", _SOURCES),
    *_rows("vectors", LAST, "embedders.document_template_used embedders.document_template_max_bytes"
                            " embedders.binary_quantization_used"),

    *_rows("network and export", LAST, "network_has_self network_size"),
    *_rows("network and export", ANY, "network"),
    *_rows("network and export", NOW, "experimental_network"),
    *_rows("network and export", TOTAL, "network.total_explicit_use_network remotes.total_distinct_remote_count"),
    *_rows("network and export", MEAN, "remotes.avg_distinct_remote_count"),
    *_rows("network and export", TOTAL, "export.total_received"),
    *_rows("network and export", ANY, "export.has_api_key"),
    *_rows("network and export", MEAN, "export.avg_index_patterns export.avg_patterns_with_filter export.avg_payload_size"),

    *_rows("webhooks", TOTAL, "webhooks_created webhooks.updated"),

    *_rows("chat completions", TOTAL, "chat.total_received chat.total_succeeded"),
    *_rows("chat completions", EXTREMES, "chat.time_spent", _EXTREMES),
    *_rows("chat completions", TOTAL, "chat.total_messages"),
    *_rows("chat completions", MEAN, "chat.avg_messages_per_request"),
    *_rows("chat completions", TOTAL, "chat.total_streamed_requests chat.total_non_streamed_requests"),
    *_rows("chat completions", MEAN, "chat.streaming_ratio"),
    *_rows("chat completions", COUNTS, "chat.models_used", (*MODELS, _OTHER)),
)}


def nothing() -> State:
    """The state before the first request."""
    return {row.name: row.kind.nothing() for row in FIGURES.values()}


def joined(one: State, other: State) -> State:
    """The state of the requests of `one` and, later, `other`."""
    return {name: row.kind.joined(one[name], other[name]) for name, row in FIGURES.items()}


def groups(state: State) -> dict[str, dict[str, Any]]:
    """Group -> figure -> value in the report; every figure is present."""
    shown_groups: dict[str, dict[str, Any]] = {}
    for name, row in FIGURES.items():
        shown_groups.setdefault(row.group, {})[name] = row.admitted(row.kind.shown(state[name]))
    return shown_groups


def agent(header: str) -> str:
    """The first program of a User-Agent header if it is a common one, else `other`."""
    product = header.partition("/")[0].partition(" ")[0].lower()
    return product if product in _AGENTS else _OTHER


def model_family(name: str) -> str:
    """The family of a model of chats, by the beginning of its name; `other` for unknown ones."""
    return next((family for family in MODELS if name.startswith(family)), _OTHER)


# Functions that add a value of a request to a figure.

FigureUpdate = Callable[[State, Any], None]
# Not a figure: (figure, name) pairs of the present request, to be counted once per name and dropped (see Usage).
NAMES = "names"


def adds(figure: str, measure: Callable[[Any], Any] | None = None) -> FigureUpdate:
    """Return a function that adds a value to a figure. measure: maps the value to the added one; default: by its kind."""
    kind = FIGURES[figure].kind
    measured = measure or kind.measure

    def update(state: State, value: Any) -> None:
        state[figure] = kind.added(state[figure], measured(value))

    return update


def adds_each(figure: str) -> FigureUpdate:
    """Adds each element of a list to a figure."""
    add = adds(figure)

    def update(state: State, values: Iterable[Any]) -> None:
        for value in values:
            add(state, value)

    return update


def adds_distinct(figure: str) -> FigureUpdate:
    """Adds a name to a figure that counts distinct names."""
    def update(state: State, value: Any) -> None:
        state.setdefault(NAMES, []).append((figure, value))

    return update


def all_of(*updates: FigureUpdate) -> FigureUpdate:
    """Runs several updates with the same value."""
    def update(state: State, value: Any) -> None:
        for each in updates:
            each(state, value)

    return update


# Sending


LARGEST_BYTES = 500_000
EVERY_S = 3600.0
STOP_S = 0.5  # longer than collecting the figures takes

Send = Callable[[str, bytes], None]  # address, JSON; raises Undelivered


class UsageReport:
    """The report of one instance."""

    def __init__(self, address: str, instance_uid: str, figures: Callable[[], Mapping[str, Mapping[str, Any]]],
                 send: Send, now: Callable[[], int] = quantities.now) -> None:
        """figures: returns event -> properties, called once an hour. now: nanoseconds since 1970."""
        self._address = address
        self._instance_uid = instance_uid
        self._figures = figures
        self._send = send
        self._now = now
        self._due = now() + int(EVERY_S * quantities.SECOND)
        self._waiting: deque[bytes] = deque()  # events as JSON, the oldest first
        self._frame_bytes = len(self._batch((), 1))  # the longest text of a moment
        self._changed = threading.Condition()  # guards the state
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="svcd-usage-report", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; nothing is sent at the end, and a request in progress is waited for briefly."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    def add(self, event: str, properties: Mapping[str, Any]) -> None:
        """Add an event; a full batch is sent at once. An event larger than a batch is dropped."""
        encoded = json.dumps({"event": event, "at": quantities.rfc3339(self._now()), "properties": properties},
                          separators=(",", ":")).encode()
        with self._changed:
            if self.batch_bytes([encoded]) > LARGEST_BYTES:
                return
            self._waiting.append(encoded)
            if self._is_full():
                self._changed.notify_all()

    def step(self) -> float:
        """Send the reports that are due. Return the seconds until the next one."""
        if self._now() >= self._due:
            self._due = self._now() + int(EVERY_S * quantities.SECOND)
            for event, properties in self._figures().items():
                self.add(event, properties)
            self._send_batches(lambda: bool(self._waiting))
        else:
            self._send_batches(self._is_full)
        return max(0.0, (self._due - self._now()) / quantities.SECOND)

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                seconds = self.step()
            except Exception as bug:  # this report is lost, later ones are not
                logs.failure("no usage report could be made", bug)
                seconds = EVERY_S
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopping or self._is_full(), seconds)

    def _is_full(self) -> bool:
        return self.batch_bytes(self._waiting) > LARGEST_BYTES

    def batch_bytes(self, events: Iterable[bytes]) -> int:
        """Bytes of a batch of these events, given as JSON."""
        return self._frame_bytes + sum(len(event) + 1 for event in events)

    def _send_batches(self, is_wanted: Callable[[], bool]) -> None:
        while is_wanted() and not self._is_stopping:
            events: list[bytes] = []  # the oldest that fit into a batch
            room = LARGEST_BYTES - self.batch_bytes(())
            with self._changed:
                for event in self._waiting:
                    room -= len(event) + 1
                    if room < 0:
                        break
                    events.append(event)
            try:
                self._send(self._address, self._batch(events, self._now()))
            except Undelivered as failure:
                logs.debug("the usage report was not sent", why=failure)
                with self._changed:
                    while self._is_full():
                        self._waiting.popleft()
                return
            with self._changed:
                for _ in events:
                    self._waiting.popleft()

    def _batch(self, events: Iterable[bytes], moment: int) -> bytes:
        head = json.dumps({"instanceUid": self._instance_uid, "sentAt": quantities.rfc3339(moment)},
                          separators=(",", ":")).encode()
        return head[:-1] + b',"batch":[' + b",".join(events) + b"]}"
