"""What must hold of the table of figures:

1. The figures are those of the specification, each once, but for those that never change; a report has them all,
   used or not.
2. Figures of many requests, and of several processes, are joined as their kind says.
3. Only booleans, numbers and the words of a figure can be reported, whatever was counted.
"""
from __future__ import annotations

import json
from typing import Any

import pytest

from svcd.analytics.report import (
    COUNTS,
    EXTREMES,
    FIGURES,
    LAST,
    LEFT_OUT,
    MEAN,
    MOST,
    NOW,
    TIME_BOUNDS_MS,
    TIMES,
    TOTAL,
    USUAL,
    WORDS,
    agent,
    groups,
    joined,
    nothing,
)

# The figures that the public documentation of the reference engine names.
NAMES = """
    context.app.version system.distribution system.kernel_version system.cores system.ram_size system.disk_size
    system.server_provider stats.database_size stats.indexes_number start_since_days user_agent

    infos.env infos.db_path infos.import_dump infos.dump_dir infos.ignore_missing_dump infos.ignore_dump_if_db_exists
    infos.import_snapshot infos.schedule_snapshot infos.snapshot_dir infos.ignore_missing_snapshot
    infos.ignore_snapshot_if_db_exists infos.http_addr infos.http_payload_size_limit infos.log_level
    infos.max_indexing_memory infos.max_indexing_threads infos.ssl_auth_path infos.ssl_cert_path infos.ssl_key_path
    infos.ssl_ocsp_path infos.ssl_require_auth infos.ssl_resumption infos.ssl_tickets infos.with_configuration_file
    infos.task_queue_webhook infos.gpu_enabled infos.experimental_composite_embedders
    infos.experimental_contains_filter infos.experimental_edit_documents_by_function infos.experimental_enable_metrics
    infos.experimental_embedding_cache_entries infos.experimental_multimodal
    infos.experimental_no_edition_2024_for_settings infos.experimental_replication_parameters
    infos.experimental_reduce_indexing_memory_usage infos.experimental_logs_mode
    infos.experimental_enable_logs_route infos.experimental_search_queue_size infos.experimental_dumpless_upgrade
    infos.experimental_personalization personalization.total_personalized

    requests.99th_response_time requests.total_succeeded requests.total_failed requests.total_received
    requests.total_degraded requests.total_used_negative_operator

    sort.with_geoPoint sort.avg_criteria_number filter.with_geoBoundingBox filter.with_geoRadius
    filter.most_used_syntax filter.on_vectors q.max_terms_number pagination.max_limit pagination.max_offset
    pagination.max_total_hits pagination.most_used_navigation formatting.max_attributes_to_retrieve
    formatting.max_attributes_to_highlight formatting.highlight_pre_tag formatting.highlight_post_tag
    formatting.max_attributes_to_crop formatting.crop_length formatting.crop_marker
    formatting.show_matches_position facets.avg_facets_number facets.total_distinct_facet_count
    facets.additional_search_parameters_provided scoring.show_ranking_score scoring.show_ranking_score_details
    scoring.ranking_score_threshold attributes_to_search_on.total_number_of_uses matching_strategy.most_used_strategy
    distinct locales searches.avg_search_count searches.total_search_count indexes.avg_distinct_index_count
    indexes.total_distinct_index_count indexes.total_single_index federation.use_federation with_vector_filter

    primary_key payload_type index_creation per_document_id per_filter clear_all per_batch per_index_uid
    swap_operation_number

    per_task_uid filtered_by_uid filtered_by_index_uid filtered_by_type filtered_by_status filtered_by_canceled_by
    filtered_by_before_enqueued_at filtered_by_after_enqueued_at filtered_by_before_started_at
    filtered_by_after_started_at filtered_by_before_finished_at filtered_by_after_finished_at

    ranking_rules.words_position ranking_rules.typo_position ranking_rules.proximity_position
    ranking_rules.attribute_position ranking_rules.sort_position ranking_rules.exactness_position ranking_rules.values
    sortable_attributes.total sortable_attributes.has_geo filterable_attributes.total filterable_attributes.has_geo
    filterable_attributes.has_patterns searchable_attributes.total searchable_attributes.with_wildcard
    typo_tolerance.enabled typo_tolerance.disable_on_attributes typo_tolerance.disable_on_words
    typo_tolerance.min_word_size_for_typos.one_typo typo_tolerance.min_word_size_for_typos.two_typos
    faceting.max_values_per_facet faceting.sort_facet_values_by_star_count faceting.sort_facet_values_by_total
    distinct_attribute.set proximity_precision.set proximity_precision.value facet_search.set facet_search.value
    prefix_search.set prefix_search.value displayed_attributes.total displayed_attributes.with_wildcard
    stop_words.total separator_tokens.total non_separator_tokens.total dictionary.total synonyms.total

    vector.max_vector_size vector.retrieve_vectors hybrid.enabled hybrid.semantic_ratio hybrid.total_media
    embedders.total embedders.sources embedders.document_template_used embedders.document_template_max_bytes
    embedders.binary_quantization_used multimodal

    network_has_self network_size network experimental_network network.total_explicit_use_network
    remotes.total_distinct_remote_count
    remotes.avg_distinct_remote_count export.total_received export.has_api_key export.avg_index_patterns
    export.avg_patterns_with_filter export.avg_payload_size

    webhooks_created webhooks.updated

    infos.experimental_chat_completions chat.set chat.total_received chat.total_succeeded chat.time_spent chat.total_messages
    chat.avg_messages_per_request chat.total_streamed_requests chat.total_non_streamed_requests chat.streaming_ratio
    chat.models_used
""".split()


def test_the_figures_are_those_of_the_specification() -> None:
    assert len(NAMES) == 187 and set(FIGURES) == set(NAMES) - set(LEFT_OUT)
    assert set(LEFT_OUT) < set(NAMES)


def test_a_report_of_nothing_has_every_figure() -> None:
    told = groups(nothing())
    assert [name for properties in told.values() for name in properties] == list(FIGURES)
    assert set(told) == {row.group for row in FIGURES.values()}


def test_the_state_is_json_and_joined_with_nothing_stays() -> None:
    assert joined(nothing(), nothing()) == nothing() == json.loads(json.dumps(nothing()))


@pytest.mark.parametrize(("kind", "one", "other", "shown"), [
    (TOTAL, 2, 3, 5), (MOST, 2, 3, 3), (LAST, 1, None, 1), (LAST, 1, False, False), (NOW, 1, 2, 2),
    (MEAN, [3, 2], [4, 2], 1.75), (MEAN, [0, 0], [0, 0], 0.0),
    (COUNTS, {"a": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 1}), (EXTREMES, None, [2, 2, 2, 1], {"max": 2, "min": 2, "avg": 2}),
    (EXTREMES, [1, 1, 1, 1], [3, 8, 11, 2], {"max": 8, "min": 1, "avg": 4}),
    (EXTREMES, None, None, {"max": 0, "min": 0, "avg": 0}), (USUAL, {"a": 1, "b": 2}, {"a": 3}, "a"), (USUAL, {}, {}, None), (WORDS, {"b": 1}, {"a": 1}, ["a", "b"]),
])
def test_figures_are_joined_as_their_kind_says(kind: Any, one: Any, other: Any, shown: Any) -> None:
    assert kind.shown(kind.joined(one, other)) == shown


def times_of(*milliseconds: float) -> list[int]:
    counts = TIMES.nothing()
    for spent in milliseconds:
        counts[next((at for at, bound in enumerate(TIME_BOUNDS_MS) if spent <= bound), len(TIME_BOUNDS_MS))] += 1
    return counts


@pytest.mark.parametrize(("spent", "slowest"), [
    ([3.0] * 99 + [1000.0], 3.0), ([3.0] * 98 + [1000.0] * 2, 1000.0), ([0.1], 0.1), ([10.0**9], TIME_BOUNDS_MS[-1]),
])
def test_one_of_a_hundred_is_slower(spent: list[float], slowest: float) -> None:
    assert slowest <= TIMES.shown(times_of(*spent)) <= max(1.0, slowest * 1.25)


SECRETS = ["secret", "10.0.0.1", "me@example.com", "https://example.com", "films", "a" * 1000, "svcd/secret", "other2"]


@pytest.mark.parametrize("secret", SECRETS)
def test_no_figure_can_hold_a_text(secret: str) -> None:
    for row in FIGURES.values():
        for value in (secret, [secret], [[secret]], {"a": secret}, secret.encode(), (secret, 1)):
            assert secret not in json.dumps(row.admitted(value)), row.name


@pytest.mark.parametrize(("release", "told"), [
    ("6.1.0-18-amd64", "6.1.0"), ("5.15.167.4-microsoft-standard-WSL2", "5.15.167"), ("mary-laptop", "other"),
    ("6.1.0-mary@example.com", "6.1.0"),
])
def test_only_the_version_of_a_kernel_is_reported(release: str, told: str) -> None:
    assert FIGURES["system.kernel_version"].admitted(release) == told


@pytest.mark.parametrize(("header", "told"), [
    ("curl/8.6.0", "curl"), ("Mozilla/5.0 (X11; Mary's laptop)", "mozilla"), ("python-requests/2.31", "python-requests"),
    ("mary@example.com", "other"), ("", "other"), ("mary-app/1.0 curl/8", "other"), ("CURL", "curl"),
])
def test_only_known_programs_of_user_agents_are_reported(header: str, told: str) -> None:
    assert agent(header) == told
