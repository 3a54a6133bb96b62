"""FIGURES: one row for each figure of the anonymous usage report, and nothing else ever is in it.

Of the specification's, LEFT_OUT alone are not told: each would be the same in every report.

Knows their names, how a figure of many requests is made from those of each, and what it may look like: a truth, a
number, or words of a list that stands here. There is no kind for a text, so no text of a query, a document, a name, a
key or a host can be in a report, whoever counts what. Refuses to know where figures come from.
Source: the specification, "Anonymous usage statistics".
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from svcd.validation.names import LOCALES

State = dict[str, Any]  # figure -> what was counted so far, as its kind keeps it; JSON

# Upper bounds of the response times that are told apart, in milliseconds: each 1.25 times the one before.
TIME_BOUNDS_MS = tuple(round(1.25 ** power, 2) for power in range(52))
_OTHER = "other"
# What stands for the version of something in a text that may be anything: `6.1.0` of `6.1.0-mary-laptop`. Three parts:
# four may be an address.
_VERSION = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,5}){0,2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a figure is kept. nothing: before the first; joined: of two, in this order; shown: as the report has it."""

    nothing: Callable[[], Any]
    joined: Callable[[Any, Any], Any]
    shown: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _sum_of_parts(one: Iterable[float], other: Iterable[float]) -> list[float]:
    return [left + right for left, right in zip(one, other, strict=True)]


def _sum_by_word(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {word: one.get(word, 0) + other.get(word, 0) for word in (*one, *other)}


def _mean(sum_and_count: list[float]) -> float:
    total, count = sum_and_count
    return round(total / count, 2) if count else 0.0


def _most_frequent(counts: Mapping[str, int]) -> str | None:
    return max(counts, key=lambda word: (counts[word], word), default=None)


def _slowest_of_a_hundred(counts: list[int]) -> float:
    """The time that 99 of 100 requests keep below, in milliseconds: the bound above it."""
    missing = sum(counts) * 0.99
    for bound, count in zip((*TIME_BOUNDS_MS, TIME_BOUNDS_MS[-1]), counts, strict=True):
        missing -= count
        if missing <= 0:
            return bound if sum(counts) else 0.0
    return TIME_BOUNDS_MS[-1]


NOW = Kind(lambda: None, lambda one, other: other, _same)  # of the moment of the report
TOTAL = Kind(lambda: 0, lambda one, other: one + other, _same)
MOST = Kind(lambda: 0, max, _same)
ANY = Kind(lambda: False, lambda one, other: one or other, _same)
LAST = Kind(lambda: None, lambda one, other: one if other is None else other, _same)
MEAN = Kind(lambda: [0, 0], _sum_of_parts, _mean)  # sum, count
USUAL = Kind(dict, _sum_by_word, _most_frequent)  # word -> how often
WORDS = Kind(dict, _sum_by_word, sorted)
TIMES = Kind(lambda: [0] * (len(TIME_BOUNDS_MS) + 1), _sum_of_parts, _slowest_of_a_hundred)


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. words: the texts that it may have; is_version: or one that is nothing but numbers and points."""

    name: str
    group: str
    kind: Kind
    words: frozenset[str] = frozenset()
    is_version: bool = False

    def admitted(self, value: Any) -> Any:
        """The value as far as it may be told: another word becomes `other`."""
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, (list, tuple)):
            return [self.admitted(each) for each in value]
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
_RULES = frozenset("words typo proximity attribute attributeRank wordPosition sort exactness asc desc".split())
_SOURCES = frozenset("openAi huggingFace ollama userProvided rest composite".split())
_LEVELS = frozenset("OFF ERROR WARN INFO DEBUG TRACE".split())


def _rows(group: str, kind: Kind, names: str, words: Iterable[str] = (), is_version: bool = False) -> list[Figure]:
    return [Figure(name, group, kind, frozenset(words), is_version) for name in names.split()]


def _infos(names: str, words: Iterable[str] = ()) -> list[Figure]:
    return _rows("instance", NOW, " ".join(f"infos.{name}" for name in names.split()), words)


LEFT_OUT = {  # figure: why
    "infos.gpu_enabled": "svcd never uses a graphics processor",
    "infos.ssl_ocsp_path": "the option refuses the start",
    "infos.experimental_replication_parameters": "there is no such option: uids of tasks are given out by the queue",
}
FIGURES: dict[str, Figure] = {row.name: row for row in (
    *_rows("instance", NOW, "context.app.version", is_version=True),
    *_rows("instance", NOW, "system.distribution", _DISTRIBUTIONS),
    *_rows("instance", NOW, "system.kernel_version", is_version=True),
    *_rows("instance", NOW, "system.cores system.ram_size system.disk_size"),
    *_rows("instance", NOW, "system.server_provider", _PROVIDERS),
    *_rows("instance", NOW, "stats.database_size stats.indexes_number start_since_days"),
    *_infos("env", ("development", "production")),
    *_infos("db_path import_dump dump_dir ignore_missing_dump ignore_dump_if_db_exists import_snapshot"),
    *_infos("schedule_snapshot snapshot_dir ignore_missing_snapshot ignore_snapshot_if_db_exists http_addr"),
    *_infos("http_payload_size_limit"),
    *_infos("log_level", _LEVELS),
    *_infos("max_indexing_memory max_indexing_threads ssl_auth_path ssl_cert_path ssl_key_path"),
    *_infos("ssl_require_auth ssl_resumption ssl_tickets with_configuration_file task_queue_webhook"),
    *_infos("experimental_composite_embedders experimental_contains_filter experimental_edit_documents_by_function"),
    *_infos("experimental_enable_metrics experimental_embedding_cache_entries experimental_multimodal"),
    *_infos("experimental_no_edition_2024_for_settings experimental_reduce_indexing_memory_usage"),
    *_infos("experimental_logs_mode", ("HUMAN", "JSON")),
    *_infos("experimental_enable_logs_route experimental_search_queue_size experimental_dumpless_upgrade"),

    *_rows("requests", TIMES, "requests.99th_response_time"),
    *_rows("requests", TOTAL, "requests.total_succeeded requests.total_failed requests.total_received"),
    *_rows("requests", TOTAL, "requests.total_degraded requests.total_used_negative_operator"),
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
    *_rows("searches", ANY, "facets.additional_search_parameters_provided"),
    *_rows("searches", ANY, "scoring.show_ranking_score scoring.show_ranking_score_details"),
    *_rows("searches", ANY, "scoring.ranking_score_threshold"),
    *_rows("searches", TOTAL, "attributes_to_search_on.total_number_of_uses"),
    *_rows("searches", USUAL, "matching_strategy.most_used_strategy", ("last", "all", "frequency")),
    *_rows("searches", ANY, "distinct"),
    *_rows("searches", WORDS, "locales", LOCALES),
    *_rows("searches", MEAN, "searches.avg_search_count"),
    *_rows("searches", TOTAL, "searches.total_search_count"),
    *_rows("searches", MEAN, "indexes.avg_distinct_index_count"),
    *_rows("searches", TOTAL, "indexes.total_distinct_index_count indexes.total_single_index"),
    *_rows("searches", ANY, "federation.use_federation"),

    *_rows("documents and indexes", ANY, "primary_key"),
    *_rows("documents and indexes", WORDS, "payload_type", ("application/json", "application/x-ndjson", "text/csv")),
    *_rows("documents and indexes", ANY, "index_creation per_document_id per_filter clear_all per_batch per_index_uid"),
    *_rows("documents and indexes", TOTAL, "swap_operation_number"),

    *_rows("tasks", ANY, "per_task_uid filtered_by_uid filtered_by_index_uid filtered_by_type filtered_by_status"),
    *_rows("tasks", ANY, "filtered_by_canceled_by filtered_by_before_enqueued_at filtered_by_after_enqueued_at"),
    *_rows("tasks", ANY, "filtered_by_before_started_at filtered_by_after_started_at"),
    *_rows("tasks", ANY, "filtered_by_before_finished_at filtered_by_after_finished_at"),

    *_rows("settings", LAST, "ranking_rules.words_position ranking_rules.typo_position"),
    *_rows("settings", LAST, "ranking_rules.proximity_position ranking_rules.attribute_position"),
    *_rows("settings", LAST, "ranking_rules.sort_position ranking_rules.exactness_position"),
    *_rows("settings", LAST, "ranking_rules.values", _RULES),
    *_rows("settings", LAST, "sortable_attributes.total sortable_attributes.has_geo filterable_attributes.total"),
    *_rows("settings", LAST, "filterable_attributes.has_geo filterable_attributes.has_patterns"),
    *_rows("settings", LAST, "searchable_attributes.total searchable_attributes.with_wildcard"),
    *_rows("settings", LAST, "typo_tolerance.enabled typo_tolerance.disable_on_attributes"),
    *_rows("settings", LAST, "typo_tolerance.disable_on_words typo_tolerance.min_word_size_for_typos.one_typo"),
    *_rows("settings", LAST, "typo_tolerance.min_word_size_for_typos.two_typos faceting.max_values_per_facet"),
    *_rows("settings", LAST, "faceting.sort_facet_values_by_star_count faceting.sort_facet_values_by_total"),
    *_rows("settings", LAST, "pagination.max_total_hits distinct_attribute.set proximity_precision.set"),
    *_rows("settings", LAST, "proximity_precision.value", ("byWord", "byAttribute")),
    *_rows("settings", LAST, "facet_search.set facet_search.value prefix_search.set"),
    *_rows("settings", LAST, "prefix_search.value", ("indexingTime", "disabled")),
    *_rows("settings", LAST, "displayed_attributes.total displayed_attributes.with_wildcard stop_words.total"),
    *_rows("settings", LAST, "separator_tokens.total non_separator_tokens.total dictionary.total synonyms.total"),

    *_rows("vectors", MOST, "vector.max_vector_size"),
    *_rows("vectors", ANY, "vector.retrieve_vectors hybrid.enabled hybrid.semantic_ratio multimodal"),
    *_rows("vectors", TOTAL, "hybrid.total_media"),
    *_rows("vectors", LAST, "embedders.total"),
    *_rows("vectors", LAST, "embedders.sources", _SOURCES),
    *_rows("vectors", LAST, "embedders.document_template_used embedders.document_template_max_bytes"),
    *_rows("vectors", LAST, "embedders.binary_quantization_used"),

    *_rows("network and export", LAST, "network_has_self network_size"),
    *_rows("network and export", ANY, "network"),
    *_rows("network and export", NOW, "experimental_network"),
    *_rows("network and export", TOTAL, "remotes.total_distinct_remote_count"),
    *_rows("network and export", MEAN, "remotes.avg_distinct_remote_count"),
    *_rows("network and export", TOTAL, "export.total_received"),
    *_rows("network and export", ANY, "export.has_api_key"),
    *_rows("network and export", MEAN, "export.avg_index_patterns export.avg_patterns_with_filter"),
    *_rows("network and export", MEAN, "export.avg_payload_size"),

    *_rows("webhooks", TOTAL, "webhooks_created webhooks.updated"),
)}


def nothing() -> State:
    """Of no request at all."""
    return {row.name: row.kind.nothing() for row in FIGURES.values()}


def joined(one: State, other: State) -> State:
    """Of the requests of both; the other ones came later."""
    return {name: row.kind.joined(one[name], other[name]) for name, row in FIGURES.items()}


def groups(state: State) -> dict[str, dict[str, Any]]:
    """Group -> figure -> value as the report tells it; every figure is there."""
    told: dict[str, dict[str, Any]] = {}
    for name, row in FIGURES.items():
        told.setdefault(row.group, {})[name] = row.admitted(row.kind.shown(state[name]))
    return told


def agent(header: str) -> str:
    """The program that a User-Agent names first, if it is one that everybody has."""
    product = header.partition("/")[0].partition(" ")[0].lower()
    return product if product in _AGENTS else _OTHER
