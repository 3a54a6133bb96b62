"""Error codes of the HTTP interface, each with its type and HTTP status, the exception that carries one, and quoted texts.

The table is checked against `tests/contract/`.
"""
from __future__ import annotations

import json
import os
from typing import TypedDict

INVALID_REQUEST = "invalid_request"
AUTH = "auth"
INTERNAL = "internal"
SYSTEM = "system"

# The page that explains the codes (docs/errors.md), and the variable that names another place for it; the code is its anchor.
DOCUMENTATION = "https://docs.svc.com/errors"
DOCUMENTATION_VARIABLE = "SVC_ERROR_DOCS_URL"

ERRORS: dict[str, tuple[str, int]] = {  # code: (type, HTTP status)
    "api_key_already_exists": (INVALID_REQUEST, 409),
    "api_key_not_found": (INVALID_REQUEST, 404),
    "bad_parameter": (INVALID_REQUEST, 400),
    "bad_request": (INVALID_REQUEST, 400),
    "batch_not_found": (INVALID_REQUEST, 404),
    "chat_not_found": (INVALID_REQUEST, 404),
    "cluster_behind": (SYSTEM, 503),
    "cluster_unavailable": (SYSTEM, 503),
    "database_size_limit_reached": (INTERNAL, 500),
    "document_not_found": (INVALID_REQUEST, 404),
    "dump_already_processing": (INVALID_REQUEST, 409),
    "dump_not_found": (INVALID_REQUEST, 404),
    "dump_process_failed": (INTERNAL, 500),
    "duplicate_index_found": (INVALID_REQUEST, 400),
    "dynamic_search_rule_not_found": (INVALID_REQUEST, 404),
    "edit_documents_by_function_error": (INVALID_REQUEST, 400),
    "facet_search_disabled": (INVALID_REQUEST, 400),
    "feature_not_enabled": (INVALID_REQUEST, 400),
    "immutable_api_key_actions": (INVALID_REQUEST, 400),
    "immutable_api_key_created_at": (INVALID_REQUEST, 400),
    "immutable_api_key_expires_at": (INVALID_REQUEST, 400),
    "immutable_api_key_indexes": (INVALID_REQUEST, 400),
    "immutable_api_key_key": (INVALID_REQUEST, 400),
    "immutable_api_key_uid": (INVALID_REQUEST, 400),
    "immutable_api_key_updated_at": (INVALID_REQUEST, 400),
    "immutable_index_created_at": (INVALID_REQUEST, 400),
    "immutable_index_updated_at": (INVALID_REQUEST, 400),
    "immutable_webhook": (INVALID_REQUEST, 400),
    "immutable_webhook_is_editable": (INVALID_REQUEST, 400),
    "immutable_webhook_uuid": (INVALID_REQUEST, 400),
    "import_task_already_received": (INVALID_REQUEST, 412),
    "import_task_unknown_remote": (INVALID_REQUEST, 412),
    "import_task_without_network_task": (INVALID_REQUEST, 503),
    "inconsistent_document_change_headers": (INVALID_REQUEST, 400),
    "index_already_exists": (INVALID_REQUEST, 409),
    "index_corrupted": (INTERNAL, 500),
    "index_creation_failed": (INTERNAL, 500),
    "index_not_found": (INVALID_REQUEST, 404),
    "index_primary_key_already_exists": (INVALID_REQUEST, 400),
    "index_primary_key_multiple_candidates_found": (INVALID_REQUEST, 400),
    "index_primary_key_no_candidate_found": (INVALID_REQUEST, 400),
    "index_scoped_api_key_with_global_action": (INVALID_REQUEST, 400),
    "instance_corrupted": (INTERNAL, 500),
    "internal": (INTERNAL, 500),
    "invalid_api_key": (AUTH, 403),
    "invalid_api_key_actions": (INVALID_REQUEST, 400),
    "invalid_api_key_description": (INVALID_REQUEST, 400),
    "invalid_api_key_expires_at": (INVALID_REQUEST, 400),
    "invalid_api_key_indexes": (INVALID_REQUEST, 400),
    "invalid_api_key_limit": (INVALID_REQUEST, 400),
    "invalid_api_key_name": (INVALID_REQUEST, 400),
    "invalid_api_key_offset": (INVALID_REQUEST, 400),
    "invalid_api_key_uid": (INVALID_REQUEST, 400),
    "invalid_batch_uids": (INVALID_REQUEST, 400),
    "invalid_chat_completion_api_key": (INVALID_REQUEST, 400),
    "invalid_chat_completion_api_version": (INVALID_REQUEST, 400),
    "invalid_chat_completion_base_api": (INVALID_REQUEST, 400),
    "invalid_chat_completion_deployment_id": (INVALID_REQUEST, 400),
    "invalid_chat_completion_org_id": (INVALID_REQUEST, 400),
    "invalid_chat_completion_pre_query_prompt": (INVALID_REQUEST, 400),
    "invalid_chat_completion_project_id": (INVALID_REQUEST, 400),
    "invalid_chat_completion_prompts": (INVALID_REQUEST, 400),
    "invalid_chat_completion_search_description_prompt": (INVALID_REQUEST, 400),
    "invalid_chat_completion_search_filter_param_prompt": (INVALID_REQUEST, 400),
    "invalid_chat_completion_search_index_uid_param_prompt": (INVALID_REQUEST, 400),
    "invalid_chat_completion_search_query_param_prompt": (INVALID_REQUEST, 400),
    "invalid_chat_completion_source": (INVALID_REQUEST, 400),
    "invalid_chat_completion_system_prompt": (INVALID_REQUEST, 400),
    "invalid_chat_setting_document_template": (INVALID_REQUEST, 400),
    "invalid_content_type": (INVALID_REQUEST, 415),
    "invalid_document_csv_delimiter": (INVALID_REQUEST, 400),
    "invalid_document_edition_context": (INVALID_REQUEST, 400),
    "invalid_document_edition_function_filter": (INVALID_REQUEST, 400),
    "invalid_document_fields": (INVALID_REQUEST, 400),
    "invalid_document_filter": (INVALID_REQUEST, 400),
    "invalid_document_geo_field": (INVALID_REQUEST, 400),
    "invalid_document_geojson_field": (INVALID_REQUEST, 400),
    "invalid_document_id": (INVALID_REQUEST, 400),
    "invalid_document_ids": (INVALID_REQUEST, 400),
    "invalid_document_limit": (INVALID_REQUEST, 400),
    "invalid_document_offset": (INVALID_REQUEST, 400),
    "invalid_document_retrieve_vectors": (INVALID_REQUEST, 400),
    "invalid_document_sort": (INVALID_REQUEST, 400),
    "invalid_document_use_network": (INVALID_REQUEST, 400),
    "invalid_dynamic_search_rule_actions": (INVALID_REQUEST, 400),
    "invalid_dynamic_search_rule_active": (INVALID_REQUEST, 400),
    "invalid_dynamic_search_rule_conditions": (INVALID_REQUEST, 400),
    "invalid_dynamic_search_rule_description": (INVALID_REQUEST, 400),
    "invalid_dynamic_search_rule_filter": (INVALID_REQUEST, 400),
    "invalid_dynamic_search_rule_filter_active": (INVALID_REQUEST, 400),
    "invalid_dynamic_search_rule_filter_query": (INVALID_REQUEST, 400),
    "invalid_dynamic_search_rule_limit": (INVALID_REQUEST, 400),
    "invalid_dynamic_search_rule_offset": (INVALID_REQUEST, 400),
    "invalid_dynamic_search_rule_priority": (INVALID_REQUEST, 400),
    "invalid_export_api_key": (INVALID_REQUEST, 400),
    "invalid_export_index_filter": (INVALID_REQUEST, 400),
    "invalid_export_index_override_settings": (INVALID_REQUEST, 400),
    "invalid_export_indexes_patterns": (INVALID_REQUEST, 400),
    "invalid_export_payload_size": (INVALID_REQUEST, 400),
    "invalid_export_url": (INVALID_REQUEST, 400),
    "invalid_facet_search_exhaustive_facet_count": (INVALID_REQUEST, 400),
    "invalid_facet_search_facet_name": (INVALID_REQUEST, 400),
    "invalid_facet_search_name": (INVALID_REQUEST, 400),
    "invalid_facet_search_query": (INVALID_REQUEST, 400),
    "invalid_header_value": (INVALID_REQUEST, 400),
    "invalid_index_custom_metadata": (INVALID_REQUEST, 400),
    "invalid_index_fields_filter": (INVALID_REQUEST, 400),
    "invalid_index_fields_filter_attribute_patterns": (INVALID_REQUEST, 400),
    "invalid_index_fields_filter_displayed": (INVALID_REQUEST, 400),
    "invalid_index_fields_filter_distinct": (INVALID_REQUEST, 400),
    "invalid_index_fields_filter_filterable": (INVALID_REQUEST, 400),
    "invalid_index_fields_filter_ranking_rule": (INVALID_REQUEST, 400),
    "invalid_index_fields_filter_searchable": (INVALID_REQUEST, 400),
    "invalid_index_fields_filter_sortable": (INVALID_REQUEST, 400),
    "invalid_index_limit": (INVALID_REQUEST, 400),
    "invalid_index_offset": (INVALID_REQUEST, 400),
    "invalid_index_primary_key": (INVALID_REQUEST, 400),
    "invalid_index_uid": (INVALID_REQUEST, 400),
    "invalid_multi_search_distinct": (INVALID_REQUEST, 400),
    "invalid_multi_search_facet_order": (INVALID_REQUEST, 400),
    "invalid_multi_search_facets": (INVALID_REQUEST, 400),
    "invalid_multi_search_facets_by_index": (INVALID_REQUEST, 400),
    "invalid_multi_search_federated": (INVALID_REQUEST, 400),
    "invalid_multi_search_federation_options": (INVALID_REQUEST, 400),
    "invalid_multi_search_max_values_per_facet": (INVALID_REQUEST, 400),
    "invalid_multi_search_merge_facets": (INVALID_REQUEST, 400),
    "invalid_multi_search_query_facets": (INVALID_REQUEST, 400),
    "invalid_multi_search_query_pagination": (INVALID_REQUEST, 400),
    "invalid_multi_search_query_personalization": (INVALID_REQUEST, 400),
    "invalid_multi_search_query_position": (INVALID_REQUEST, 400),
    "invalid_multi_search_query_ranking_rules": (INVALID_REQUEST, 400),
    "invalid_multi_search_query_show_performance_details": (INVALID_REQUEST, 400),
    "invalid_multi_search_remote": (INVALID_REQUEST, 400),
    "invalid_multi_search_weight": (INVALID_REQUEST, 400),
    "invalid_network_leader": (INVALID_REQUEST, 400),
    "invalid_network_remotes": (INVALID_REQUEST, 400),
    "invalid_network_search_api_key": (INVALID_REQUEST, 400),
    "invalid_network_self": (INVALID_REQUEST, 400),
    "invalid_network_shards": (INVALID_REQUEST, 400),
    "invalid_network_url": (INVALID_REQUEST, 400),
    "invalid_network_write_api_key": (INVALID_REQUEST, 400),
    "invalid_render_input": (INVALID_REQUEST, 400),
    "invalid_render_template": (INVALID_REQUEST, 400),
    "invalid_s3_snapshot_parameters": (INTERNAL, 400),
    "invalid_s3_snapshot_request": (INTERNAL, 400),
    "invalid_search_attributes_to_crop": (INVALID_REQUEST, 400),
    "invalid_search_attributes_to_highlight": (INVALID_REQUEST, 400),
    "invalid_search_attributes_to_retrieve": (INVALID_REQUEST, 400),
    "invalid_search_attributes_to_search_on": (INVALID_REQUEST, 400),
    "invalid_search_crop_length": (INVALID_REQUEST, 400),
    "invalid_search_crop_marker": (INVALID_REQUEST, 400),
    "invalid_search_distinct": (INVALID_REQUEST, 400),
    "invalid_search_embedder": (INVALID_REQUEST, 400),
    "invalid_search_facets": (INVALID_REQUEST, 400),
    "invalid_search_filter": (INVALID_REQUEST, 400),
    "invalid_search_highlight_post_tag": (INVALID_REQUEST, 400),
    "invalid_search_highlight_pre_tag": (INVALID_REQUEST, 400),
    "invalid_search_hits_per_page": (INVALID_REQUEST, 400),
    "invalid_search_hybrid_query": (INVALID_REQUEST, 400),
    "invalid_search_limit": (INVALID_REQUEST, 400),
    "invalid_search_locales": (INVALID_REQUEST, 400),
    "invalid_search_matching_strategy": (INVALID_REQUEST, 400),
    "invalid_search_media": (INVALID_REQUEST, 400),
    "invalid_search_media_and_vector": (INVALID_REQUEST, 400),
    "invalid_search_offset": (INVALID_REQUEST, 400),
    "invalid_search_page": (INVALID_REQUEST, 400),
    "invalid_search_personalize": (INVALID_REQUEST, 400),
    "invalid_search_personalize_user_context": (INVALID_REQUEST, 400),
    "invalid_search_q": (INVALID_REQUEST, 400),
    "invalid_search_ranking_score_threshold": (INVALID_REQUEST, 400),
    "invalid_search_retrieve_vectors": (INVALID_REQUEST, 400),
    "invalid_search_semantic_ratio": (INVALID_REQUEST, 400),
    "invalid_search_show_matches_position": (INVALID_REQUEST, 400),
    "invalid_search_show_performance_details": (INVALID_REQUEST, 400),
    "invalid_search_show_ranking_score": (INVALID_REQUEST, 400),
    "invalid_search_show_ranking_score_details": (INVALID_REQUEST, 400),
    "invalid_search_sort": (INVALID_REQUEST, 400),
    "invalid_search_use_network": (INVALID_REQUEST, 400),
    "invalid_search_vector": (INVALID_REQUEST, 400),
    "invalid_settings_dictionary": (INVALID_REQUEST, 400),
    "invalid_settings_displayed_attributes": (INVALID_REQUEST, 400),
    "invalid_settings_distinct_attribute": (INVALID_REQUEST, 400),
    "invalid_settings_embedders": (INVALID_REQUEST, 400),
    "invalid_settings_facet_search": (INVALID_REQUEST, 400),
    "invalid_settings_faceting": (INVALID_REQUEST, 400),
    "invalid_settings_filterable_attributes": (INVALID_REQUEST, 400),
    "invalid_settings_foreign_keys": (INVALID_REQUEST, 400),
    "invalid_settings_index_chat": (INVALID_REQUEST, 400),
    "invalid_settings_localized_attributes": (INVALID_REQUEST, 400),
    "invalid_settings_non_separator_tokens": (INVALID_REQUEST, 400),
    "invalid_settings_pagination": (INVALID_REQUEST, 400),
    "invalid_settings_prefix_search": (INVALID_REQUEST, 400),
    "invalid_settings_proximity_precision": (INVALID_REQUEST, 400),
    "invalid_settings_ranking_rules": (INVALID_REQUEST, 400),
    "invalid_settings_search_cutoff_ms": (INVALID_REQUEST, 400),
    "invalid_settings_searchable_attributes": (INVALID_REQUEST, 400),
    "invalid_settings_separator_tokens": (INVALID_REQUEST, 400),
    "invalid_settings_sortable_attributes": (INVALID_REQUEST, 400),
    "invalid_settings_stop_words": (INVALID_REQUEST, 400),
    "invalid_settings_synonyms": (INVALID_REQUEST, 400),
    "invalid_settings_typo_tolerance": (INVALID_REQUEST, 400),
    "invalid_similar_attributes_to_retrieve": (INVALID_REQUEST, 400),
    "invalid_similar_embedder": (INVALID_REQUEST, 400),
    "invalid_similar_filter": (INVALID_REQUEST, 400),
    "invalid_similar_id": (INVALID_REQUEST, 400),
    "invalid_similar_limit": (INVALID_REQUEST, 400),
    "invalid_similar_offset": (INVALID_REQUEST, 400),
    "invalid_similar_ranking_score_threshold": (INVALID_REQUEST, 400),
    "invalid_similar_retrieve_vectors": (INVALID_REQUEST, 400),
    "invalid_similar_show_performance_details": (INVALID_REQUEST, 400),
    "invalid_similar_show_ranking_score": (INVALID_REQUEST, 400),
    "invalid_similar_show_ranking_score_details": (INVALID_REQUEST, 400),
    "invalid_skip_creation": (INVALID_REQUEST, 400),
    "invalid_state": (INTERNAL, 500),
    "invalid_stats_show_internal_database_sizes": (INVALID_REQUEST, 400),
    "invalid_stats_size_format": (INVALID_REQUEST, 400),
    "invalid_store_file": (INTERNAL, 500),
    "invalid_swap_duplicate_index_found": (INVALID_REQUEST, 400),
    "invalid_swap_indexes": (INVALID_REQUEST, 400),
    "invalid_swap_rename": (INVALID_REQUEST, 400),
    "invalid_task_after_enqueued_at": (INVALID_REQUEST, 400),
    "invalid_task_after_finished_at": (INVALID_REQUEST, 400),
    "invalid_task_after_started_at": (INVALID_REQUEST, 400),
    "invalid_task_before_enqueued_at": (INVALID_REQUEST, 400),
    "invalid_task_before_finished_at": (INVALID_REQUEST, 400),
    "invalid_task_before_started_at": (INVALID_REQUEST, 400),
    "invalid_task_canceled_by": (INVALID_REQUEST, 400),
    "invalid_task_from": (INVALID_REQUEST, 400),
    "invalid_task_limit": (INVALID_REQUEST, 400),
    "invalid_task_reverse": (INVALID_REQUEST, 400),
    "invalid_task_statuses": (INVALID_REQUEST, 400),
    "invalid_task_types": (INVALID_REQUEST, 400),
    "invalid_task_uids": (INVALID_REQUEST, 400),
    "invalid_vector_dimensions": (INVALID_REQUEST, 400),
    "invalid_vectors_type": (INVALID_REQUEST, 400),
    "invalid_webhook_headers": (INVALID_REQUEST, 400),
    "invalid_webhook_url": (INVALID_REQUEST, 400),
    "invalid_webhook_uuid": (INVALID_REQUEST, 400),
    "invalid_webhooks": (INVALID_REQUEST, 400),
    "io_error": (SYSTEM, 422),
    "malformed_payload": (INVALID_REQUEST, 400),
    "max_fields_limit_exceeded": (INVALID_REQUEST, 400),
    "missing_api_key_actions": (INVALID_REQUEST, 400),
    "missing_api_key_expires_at": (INVALID_REQUEST, 400),
    "missing_api_key_indexes": (INVALID_REQUEST, 400),
    "missing_authorization_header": (AUTH, 401),
    "missing_content_type": (INVALID_REQUEST, 415),
    "missing_document_edition_function": (INVALID_REQUEST, 400),
    "missing_document_filter": (INVALID_REQUEST, 400),
    "missing_document_id": (INVALID_REQUEST, 400),
    "missing_facet_search_facet_name": (INVALID_REQUEST, 400),
    "missing_index_uid": (INVALID_REQUEST, 400),
    "missing_master_key": (AUTH, 401),
    "missing_network_url": (INVALID_REQUEST, 400),
    "missing_payload": (INVALID_REQUEST, 400),
    "missing_search_hybrid": (INVALID_REQUEST, 400),
    "missing_swap_indexes": (INVALID_REQUEST, 400),
    "missing_task_filters": (INVALID_REQUEST, 400),
    "network_version_mismatch": (INVALID_REQUEST, 412),
    "network_version_too_old": (INVALID_REQUEST, 400),
    "no_space_left_on_device": (SYSTEM, 422),
    "not_found_similar_id": (INVALID_REQUEST, 400),
    "node_not_found": (INVALID_REQUEST, 404),
    "not_in_cluster": (INVALID_REQUEST, 400),
    "not_leader": (INVALID_REQUEST, 400),
    "payload_too_large": (INVALID_REQUEST, 413),
    "receive_import_finished_unknown_remote": (INVALID_REQUEST, 412),
    "remote_bad_request": (INVALID_REQUEST, 400),
    "remote_bad_response": (SYSTEM, 502),
    "remote_could_not_send_request": (SYSTEM, 502),
    "remote_invalid_api_key": (AUTH, 403),
    "remote_remote_error": (SYSTEM, 502),
    "remote_timeout": (SYSTEM, 502),
    "render_document_not_found": (INVALID_REQUEST, 404),
    "requires_enterprise_edition": (INVALID_REQUEST, 451),
    "s3_snapshot_server_error": (INTERNAL, 502),
    "task_file_not_found": (INVALID_REQUEST, 404),
    "task_not_found": (INVALID_REQUEST, 404),
    "template_parsing_error": (INVALID_REQUEST, 400),
    "template_rendering_error": (INVALID_REQUEST, 400),
    "too_many_open_files": (SYSTEM, 422),
    "too_many_search_requests": (SYSTEM, 503),
    "too_many_vectors": (INVALID_REQUEST, 400),
    "unexpected_network_previous_remotes": (INVALID_REQUEST, 400),
    "unimplemented_external_function_calling": (INVALID_REQUEST, 501),
    "unimplemented_multi_choice_chat_completions": (INVALID_REQUEST, 501),
    "unimplemented_non_streaming_chat_completions": (INVALID_REQUEST, 501),
    "unknown_remote": (INVALID_REQUEST, 400),
    "unprocessed_network_task": (INVALID_REQUEST, 400),
    "unretrievable_document": (INTERNAL, 400),
    "unretrievable_error_code": (INVALID_REQUEST, 400),
    "unsupported_media_type": (INVALID_REQUEST, 415),
    "vector_embedding_error": (INVALID_REQUEST, 400),
    "webhook_not_found": (INVALID_REQUEST, 404),
}


class ErrorObject(TypedDict):
    """The error as responses and tasks show it."""

    message: str
    code: str
    type: str
    link: str


class ApiError(Exception):
    """A failure that the caller can correct. The message names the fault, its place, and the correct form.

    code: a key of ERRORS; KeyError otherwise, so that a misspelt code never reaches a client.
    headers: additional headers of the response, such as Retry-After.
    """

    def __init__(self, code: str, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.type, self.status = ERRORS[code]
        self.code = code
        self.message = message
        self.headers = headers

    def inside(self, place: str) -> ApiError:
        """Return the same failure with a part of the body named at the beginning of its message.

        404 becomes 400: the path exists, and a body that names a missing object is an invalid request.
        """
        error = ApiError(self.code, f"{place}: {self.message}", self.headers)
        error.status = 400 if self.status == 404 else self.status
        return error

    def as_json(self) -> ErrorObject:
        """Return the error object, its members in the order of the interface."""
        return error_object(self.code, self.message)


def error_object(code: str, message: str) -> ErrorObject:
    """Return the error object of a code of ERRORS."""
    return {"message": message, "code": code, "type": ERRORS[code][0], "link": f"{documentation()}#{code}"}


def documentation() -> str:
    """Return the URL of the page that explains the codes.

    An environment variable sets it, because every process of the daemon raises errors, some before it reads its configuration.
    """
    return os.environ.get(DOCUMENTATION_VARIABLE) or DOCUMENTATION


_MOST_QUOTED = 80  # characters


def quoted(text: str) -> str:
    """Quote an external text for one of our own messages: in double quotes, on one line, shortened."""
    return json.dumps(text if len(text) <= _MOST_QUOTED else text[:_MOST_QUOTED - 3] + "...", ensure_ascii=not text.isprintable())


def quoted_name(text: str) -> str:
    """Quote an external name for one of our own messages: like quoted(), but in backticks."""
    return f"`{quoted(text)[1:-1]}`"
