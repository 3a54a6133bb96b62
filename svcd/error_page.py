"""Make the page docs/errors.md, to which the `link` of every error leads: each code, its causes, and its remedy."""
from __future__ import annotations

import re

from svcd.base.errors import ERRORS

NEVER = "Never: "  # prefix of the description of a code that svcd never answers
_INTRODUCTION = """# Errors

<!-- Written by svcd/error_page.py: change it there. -->

Each error is an object with `message`, `code`, `type` and `link`, as an answer or as the `error` of a task. The message names the
fault, its place and the correct form; the link leads to the code on this page. `--error-docs-url` sets the URL of the page.

| type | cause | action |
|---|---|---|
| `invalid_request` | the request | correct it: the same request fails again |
| `auth` | the key | send another key or token |
| `system` | the machine, or another host | remove the cause, then send the request again |
| `internal` | svcd, or the object store | look at the log |

The status belongs to the response; the error of a task lacks one.
"""

WHEN: dict[str, str] = {  # code: when it occurs
    "api_key_already_exists": "`POST /keys` with a uid that an existing key already has.",
    "api_key_not_found": "`GET, PATCH or DELETE /keys/{uid_or_key}` naming no known key.",
    "bad_parameter": "Never: reserved, found in old dumps only.",
    "bad_request":
        "A body or query string has an unknown, missing or wrong member without its own code, or the request itself is "
        "malformed; `/logs/stream` is in use already; a chat workspace lacks a setting.",
    "batch_not_found": "`GET /batches/{uid}` names an unknown batch, or one that the key may not see.",
    "chat_not_found": "The chat workspace does not exist.",
    "cluster_behind": "A node of a cluster has not applied the task that `Svc-After-Task` names within the time it waits.",
    "cluster_unavailable": "A node of a cluster cannot reach the log, so it accepts no write.",
    "database_size_limit_reached": "Never: the files of svcd may grow as far as the disk.",
    "document_not_found": "The index does not contain a document with this identifier; also for an invalid identifier.",
    "dump_already_processing": "Never: reserved, found in old dumps only.",
    "dump_not_found": "Never: reserved, found in old dumps only.",
    "dump_process_failed":
        "Never: a dump that cannot be written fails with the error of the disk, one that cannot be read ends the start.",
    "duplicate_index_found": "Never: reserved.",
    "dynamic_search_rule_not_found": "`GET /dynamic-search-rules/{uid}` of an unknown rule.",
    "edit_documents_by_function_error":
        "In a task: the edition function does not compile, fails, changes the primary key or makes something other than an "
        "object.",
    "facet_search_disabled": "`POST /facet-search` on an index whose facetSearch setting is false.",
    "feature_not_enabled": "A route, setting or parameter needs an experimental feature that is off.",
    "immutable_api_key_actions": "`PATCH /keys/{key}` with a member `actions`.",
    "immutable_api_key_created_at": "`PATCH /keys/{key}` with a member `createdAt`.",
    "immutable_api_key_expires_at": "`PATCH /keys/{key}` with a member `expiresAt`.",
    "immutable_api_key_indexes": "`PATCH /keys/{key}` with a member `indexes`.",
    "immutable_api_key_key": "Never: reserved.",
    "immutable_api_key_uid": "`PATCH /keys/{key}` with a member `uid`.",
    "immutable_api_key_updated_at": "`PATCH /keys/{key}` with a member `updatedAt`.",
    "immutable_index_created_at": "`PATCH /indexes/{uid}` with a member `createdAt`.",
    "immutable_index_updated_at": "`PATCH /indexes/{uid}` with a member `updatedAt`.",
    "immutable_webhook": "PATCH or DELETE of the webhook set by the launch options.",
    "immutable_webhook_is_editable": "A webhook body has a member `isEditable`.",
    "immutable_webhook_uuid": "A webhook body has a member `uuid`.",
    "import_task_already_received": "Never: belongs to networks with a leader.",
    "import_task_unknown_remote": "Never: belongs to networks with a leader.",
    "import_task_without_network_task": "Never: belongs to networks with a leader.",
    "inconsistent_document_change_headers": "Never: belongs to networks with a leader.",
    "index_already_exists":
        "In a task: an index of this uid is to be created, or another index is to get this name, and it exists.",
    "index_corrupted":
        "The file of the index is damaged. The message names the index; other indexes work.",
    "index_creation_failed": "Never: reserved, found in old dumps only.",
    "index_not_found":
        "The index of a read, search, setting, document deletion, swap or deletion does not exist (404; 400 inside a multi- "
        "search).",
    "index_primary_key_already_exists":
        "In a task: the primary key differs from the one already set while the index holds documents.",
    "index_primary_key_multiple_candidates_found":
        "In a documentAdditionOrUpdate task: no key given and several fields of the first document end with `id`.",
    "index_primary_key_no_candidate_found":
        "In a documentAdditionOrUpdate task: no key given and no field of the first document ends with `id`.",
    "index_scoped_api_key_with_global_action":
        "`POST /keys` where `indexes` is a non-empty list without `*` and `actions` holds an action that is not tied to an "
        "index.",
    "instance_corrupted": "`instance.sqlite`, which holds the tasks, the keys and the list of indexes, is damaged.",
    "internal": "A fault of svcd. The message has nothing that a client could correct.",
    "invalid_api_key":
        "The token is neither the master key nor a valid API key or tenant token with the action and the index that the request "
        "needs.",
    "invalid_api_key_actions": "`POST /keys`: `actions` is not a list of known action names.",
    "invalid_api_key_description": "`POST or PATCH /keys`: `description` is neither a string nor null.",
    "invalid_api_key_expires_at": "`POST /keys`: `expiresAt` is not a future date in an accepted form or null.",
    "invalid_api_key_indexes": "`POST /keys`: `indexes` is not a list of index uids or patterns.",
    "invalid_api_key_limit": "`GET /keys`: `limit` is not a non-negative integer.",
    "invalid_api_key_name": "`POST or PATCH /keys`: `name` is neither a string nor null.",
    "invalid_api_key_offset": "`GET /keys`: `offset` is not a non-negative integer.",
    "invalid_api_key_uid": "`POST /keys`: `uid` is not a UUID.",
    "invalid_batch_uids": "`batchUids` or the path of /batches/{uid} is not made of non-negative integers.",
    "invalid_chat_completion_api_key": "`apiKey` of the workspace settings is badly typed.",
    "invalid_chat_completion_api_version": "`apiVersion` of the workspace settings is not a string or null.",
    "invalid_chat_completion_base_api":
        "`baseUrl` of the workspace settings is not a string or null (missing for azureOpenAi and vLlm gives bad_request).",
    "invalid_chat_completion_deployment_id":
        "`deploymentId` of the workspace settings is not a string or null (missing for azureOpenAi gives bad_request).",
    "invalid_chat_completion_org_id": "`orgId` of the workspace settings is not a string or null.",
    "invalid_chat_completion_pre_query_prompt": "Never: reserved.",
    "invalid_chat_completion_project_id": "`projectId` of the workspace settings is not a string or null.",
    "invalid_chat_completion_prompts": "Never: reserved.",
    "invalid_chat_completion_search_description_prompt": "`prompts.searchDescription` is not a string or null.",
    "invalid_chat_completion_search_filter_param_prompt": "`prompts.searchFilterParam` is not a string or null.",
    "invalid_chat_completion_search_index_uid_param_prompt": "`prompts.searchIndexUidParam` is not a string or null.",
    "invalid_chat_completion_search_query_param_prompt": "`prompts.searchQParam` is not a string or null.",
    "invalid_chat_completion_source": "Never: reserved.",
    "invalid_chat_completion_system_prompt": "`prompts.system` is not a string or null.",
    "invalid_chat_setting_document_template": "In a task: `chat.documentTemplate` does not parse.",
    "invalid_content_type":
        "The Content-Type is not supported by the route, or csvDelimiter is given with a type other than text/csv.",
    "invalid_document_csv_delimiter": "`csvDelimiter` is not exactly one ASCII character.",
    "invalid_document_edition_context": "`context` of `POST /documents/edit` is not an object or null.",
    "invalid_document_edition_function_filter": "`function` of `POST /documents/edit` is not a string.",
    "invalid_document_fields": "`fields` of a document route has the wrong type.",
    "invalid_document_filter":
        "`filter` of document fetch, delete, edit (and the matching tasks) is empty, badly typed, unparsable or uses a non- "
        "filterable attribute.",
    "invalid_document_geo_field":
        "In a task: `_geo` of a document is not null or an object with exactly `lat` and `lng`, numbers or texts of numbers.",
    "invalid_document_geojson_field": "In a task: `_geojson` of a document is not a usable GeoJSON object.",
    "invalid_document_id":
        "In a task: a document identifier has forbidden characters, is too long, is not a string or integer; or a document has "
        "several values for the key. On DELETE and GET the id comes from the path.",
    "invalid_document_ids": "`ids` of the document fetch routes has the wrong type or holds an impossible identifier.",
    "invalid_document_limit": "`limit` of the document fetch routes is not a non-negative integer.",
    "invalid_document_offset": "`offset` of the document fetch routes is not a non-negative integer.",
    "invalid_document_retrieve_vectors": "`retrieveVectors` of the document routes is not a boolean.",
    "invalid_document_sort": "`sort` of the document fetch routes is malformed or names a non-sortable attribute.",
    "invalid_document_use_network": "`useNetwork` of the document routes is not a boolean or null.",
    "invalid_dynamic_search_rule_actions": "`actions` of a rule is badly typed or has unknown members.",
    "invalid_dynamic_search_rule_active": "`active` of a rule is not a boolean or null.",
    "invalid_dynamic_search_rule_conditions":
        "`conditions` of a rule is badly typed, has unknown members, combines isEmpty with words, or ends before it starts.",
    "invalid_dynamic_search_rule_description": "`description` of a rule is not a string or null.",
    "invalid_dynamic_search_rule_filter":
        "`filter` of `POST /dynamic-search-rules` is not an object or null, or has unknown members.",
    "invalid_dynamic_search_rule_filter_active": "`filter.active` of `POST /dynamic-search-rules` is not a boolean or null.",
    "invalid_dynamic_search_rule_filter_query": "`filter.query` of `POST /dynamic-search-rules` is not a string or null.",
    "invalid_dynamic_search_rule_limit": "`limit` of `POST /dynamic-search-rules` is not a non-negative integer.",
    "invalid_dynamic_search_rule_offset": "`offset` of `POST /dynamic-search-rules` is not a non-negative integer.",
    "invalid_dynamic_search_rule_priority": "`precedence` of a rule is not a non-negative integer or null.",
    "invalid_export_api_key": "`apiKey` of `POST /export` is not a string or null.",
    "invalid_export_index_filter": "Never: a bad filter fails the export with the code of the filter.",
    "invalid_export_index_override_settings": "`indexes.{pattern}.overrideSettings` of `POST /export` is not a boolean.",
    "invalid_export_indexes_patterns": "Never: reserved.",
    "invalid_export_payload_size": "`payloadSize` of `POST /export` is not a size text.",
    "invalid_export_url": "`url` of `POST /export` is missing, empty or not a string.",
    "invalid_facet_search_exhaustive_facet_count": "`exhaustiveFacetCount` is not a boolean or null.",
    "invalid_facet_search_facet_name": "`facetName` is not a string, or names an attribute that is not facet-searchable.",
    "invalid_facet_search_name": "Never: reserved.",
    "invalid_facet_search_query": "`facetQuery` is not a string or null.",
    "invalid_header_value": "Never: belongs to networks with a leader.",
    "invalid_index_custom_metadata": "`customMetadata` query parameter has the wrong type.",
    "invalid_index_fields_filter": "`filter` of `POST /indexes/{uid}/fields` is not an object or null, or has unknown members.",
    "invalid_index_fields_filter_attribute_patterns": "`filter.attributePatterns` is not a list of strings.",
    "invalid_index_fields_filter_displayed": "`filter.displayed` is not a boolean or null.",
    "invalid_index_fields_filter_distinct": "`filter.distinct` is not a boolean or null.",
    "invalid_index_fields_filter_filterable": "`filter.filterable` is not a boolean or null.",
    "invalid_index_fields_filter_ranking_rule": "`filter.rankingRule` is not a boolean or null.",
    "invalid_index_fields_filter_searchable": "`filter.searchable` is not a boolean or null.",
    "invalid_index_fields_filter_sortable": "`filter.sortable` is not a boolean or null.",
    "invalid_index_limit": "`GET /indexes` or `POST /indexes/{uid}/fields`: `limit` is not a non-negative integer.",
    "invalid_index_offset": "`GET /indexes` or `POST /indexes/{uid}/fields`: `offset` is not a non-negative integer.",
    "invalid_index_primary_key": "`primaryKey` of an index or document request is not a string or null.",
    "invalid_index_uid":
        "A uid of an index in a path, body or list is empty, longer than 400 bytes, or has other characters than letters, "
        "digits, `-` and `_`.",
    "invalid_multi_search_distinct": "Both `federation.distinct` and a `distinct` in a query are given.",
    "invalid_multi_search_facet_order":
        "Merged facets are sorted differently (alpha against count) by the settings of two of the indexes.",
    "invalid_multi_search_facets": "Never: reserved.",
    "invalid_multi_search_facets_by_index":
        "`federation.facetsByIndex` has the wrong type, or lists an attribute that is not filterable in its index.",
    "invalid_multi_search_federated": "Never: reserved.",
    "invalid_multi_search_federation_options":
        "`federationOptions` in a request without `federation`, or together with useNetwork on a remote query, or badly typed.",
    "invalid_multi_search_max_values_per_facet":
        "`federation.mergeFacets.maxValuesPerFacet` is not a non-negative integer or null.",
    "invalid_multi_search_merge_facets": "`federation.mergeFacets` is not an object or null, or has unknown members.",
    "invalid_multi_search_query_facets": "A query of a federated multi-search has `facets`.",
    "invalid_multi_search_query_pagination": "A query of a federated multi-search has limit, offset, page or hitsPerPage.",
    "invalid_multi_search_query_personalization": "A query of a federated multi-search has `personalize`.",
    "invalid_multi_search_query_position": "`federationOptions.queryPosition` is not a non-negative integer or null.",
    "invalid_multi_search_query_ranking_rules": "Two queries of a federated multi-search sort by rules that cannot be merged.",
    "invalid_multi_search_query_show_performance_details": "A query of a federated multi-search has `showPerformanceDetails`.",
    "invalid_multi_search_remote": "`federationOptions.remote` is not a string or null.",
    "invalid_multi_search_weight": "`federationOptions.weight` is not a number, or is negative.",
    "invalid_network_leader": "`leader` of `PATCH /network` is not a string or null.",
    "invalid_network_remotes":
        "`remotes` of `PATCH /network` is badly typed, has unknown members or a bad URL, or lacks the leader.",
    "invalid_network_search_api_key": "`searchApiKey` of a remote is not a string or null.",
    "invalid_network_self": "`self` of `PATCH /network` is badly typed, or renames this instance in a network with a leader.",
    "invalid_network_shards": "`shards` of `PATCH /network` is badly typed, names an unknown remote, or no shard has an owner.",
    "invalid_network_url": "`url` of a remote is not a string, or is null.",
    "invalid_network_write_api_key": "`writeApiKey` of a remote is not a string or null.",
    "invalid_render_input": "`input` of `POST /render-template` is badly typed or its members do not fit its kind.",
    "invalid_render_template":
        "`template` of `POST /render-template` is badly typed, its members do not fit its kind, or the index, embedder or "
        "fragment it names is unusable.",
    "invalid_s3_snapshot_parameters": "The object store options given at launch are unusable.",
    "invalid_s3_snapshot_request": "The object store refused a request of a snapshot with a status 4xx.",
    "invalid_search_attributes_to_crop": "`attributesToCrop` is badly typed.",
    "invalid_search_attributes_to_highlight": "`attributesToHighlight` is badly typed.",
    "invalid_search_attributes_to_retrieve": "`attributesToRetrieve` is badly typed.",
    "invalid_search_attributes_to_search_on":
        "`attributesToSearchOn` is badly typed or names an attribute that is not searchable.",
    "invalid_search_crop_length": "`cropLength` is not a non-negative integer.",
    "invalid_search_crop_marker": "`cropMarker` is not a string.",
    "invalid_search_distinct": "`distinct` is not a string or names an attribute that is not filterable.",
    "invalid_search_embedder":
        "`hybrid.embedder` (or hybridEmbedder) is badly typed or names no embedder of the index (a missing `hybrid.embedder` "
        "gives invalid_search_hybrid_query).",
    "invalid_search_facets": "`facets` is badly typed, or names an attribute that is not filterable.",
    "invalid_search_filter":
        "`filter` of a search or facet search is badly typed, unparsable, uses a non-filterable attribute or a forbidden "
        "operator, or has bad geo values.",
    "invalid_search_highlight_post_tag": "`highlightPostTag` is not a string.",
    "invalid_search_highlight_pre_tag": "`highlightPreTag` is not a string.",
    "invalid_search_hits_per_page": "`hitsPerPage` is not a non-negative integer or null.",
    "invalid_search_hybrid_query":
        "`hybrid` is not an object or null, lacks `embedder`, has unknown members, or hybridSemanticRatio comes without "
        "hybridEmbedder.",
    "invalid_search_limit": "`limit` of a search is not a non-negative integer.",
    "invalid_search_locales": "`locales` is badly typed or holds an unknown language.",
    "invalid_search_matching_strategy": "`matchingStrategy` is not last, all or frequency.",
    "invalid_search_media": "`media` is not an object.",
    "invalid_search_media_and_vector": "Both `media` and `vector` are given.",
    "invalid_search_offset": "`offset` of a search is not a non-negative integer.",
    "invalid_search_page": "`page` is not a non-negative integer or null.",
    "invalid_search_personalize": "`personalize` is not an object or null, lacks `userContext`, or has unknown members.",
    "invalid_search_personalize_user_context": "`personalize.userContext` (or personalizeUserContext) is not a string.",
    "invalid_search_q": "`q` is not a string or null.",
    "invalid_search_ranking_score_threshold": "`rankingScoreThreshold` is not a number between 0.0 and 1.0.",
    "invalid_search_retrieve_vectors": "`retrieveVectors` of a search is not a boolean.",
    "invalid_search_semantic_ratio": "`hybrid.semanticRatio` (or hybridSemanticRatio) is not a number between 0.0 and 1.0.",
    "invalid_search_show_matches_position": "`showMatchesPosition` is not a boolean.",
    "invalid_search_show_performance_details": "`showPerformanceDetails` is not a boolean.",
    "invalid_search_show_ranking_score": "`showRankingScore` is not a boolean.",
    "invalid_search_show_ranking_score_details": "`showRankingScoreDetails` is not a boolean.",
    "invalid_search_sort":
        "`sort` is badly typed, malformed, names a non-sortable attribute, or the index has no `sort` ranking rule.",
    "invalid_search_use_network": "`useNetwork` of a search is not a boolean or null.",
    "invalid_search_vector": "`vector` is not a list of numbers or null.",
    "invalid_settings_dictionary": "`dictionary` is not a list of strings or null.",
    "invalid_settings_displayed_attributes": "`displayedAttributes` is not a list of strings or null.",
    "invalid_settings_distinct_attribute": "`distinctAttribute` is not a string or null.",
    "invalid_settings_embedders":
        "`embedders` is badly typed, a member is not allowed or missing for the source, a template does not parse, a URL is "
        "bad, there are more than 256 embedders or fragments, or binaryQuantized is switched off.",
    "invalid_settings_facet_search": "`facetSearch` is not a boolean or null.",
    "invalid_settings_faceting": "`faceting` is badly typed or has unknown members or values.",
    "invalid_settings_filterable_attributes":
        "`filterableAttributes` is not null or a list of strings and pattern objects, or uses a reserved geo name wrongly.",
    "invalid_settings_foreign_keys": "`foreignKeys` is not null or a list of {foreignIndexUid, fieldName}.",
    "invalid_settings_index_chat": "`chat` of the index settings is badly typed or has unknown members.",
    "invalid_settings_localized_attributes": "`localizedAttributes` is badly typed or holds an unknown language.",
    "invalid_settings_non_separator_tokens": "`nonSeparatorTokens` is not a list of strings or null.",
    "invalid_settings_pagination": "`pagination` is badly typed, has unknown members, or maxTotalHits is 0.",
    "invalid_settings_prefix_search": "`prefixSearch` is not indexingTime, disabled or null.",
    "invalid_settings_proximity_precision": "`proximityPrecision` is not byWord, byAttribute or null.",
    "invalid_settings_ranking_rules":
        "`rankingRules` is badly typed or holds an unknown rule, or mixes `attribute` with attributeRank or wordPosition.",
    "invalid_settings_search_cutoff_ms": "`searchCutoffMs` is not a non-negative integer or null.",
    "invalid_settings_searchable_attributes": "`searchableAttributes` is not a list of strings or null.",
    "invalid_settings_separator_tokens": "`separatorTokens` is not a list of strings or null.",
    "invalid_settings_sortable_attributes": "`sortableAttributes` is not a list of strings or null.",
    "invalid_settings_stop_words": "`stopWords` is not a list of strings or null.",
    "invalid_settings_synonyms": "`synonyms` is not null or a map of string lists.",
    "invalid_settings_typo_tolerance":
        "`typoTolerance` is badly typed, has unknown members, sizes over 255, or `oneTypo` above `twoTypos`.",
    "invalid_similar_attributes_to_retrieve": "`attributesToRetrieve` of a similar request is badly typed.",
    "invalid_similar_embedder":
        "`embedder` of a similar request is badly typed or names no embedder of the index (missing gives bad_request).",
    "invalid_similar_filter":
        "`filter` of a similar request is badly typed, unparsable, or uses an attribute that is not filterable.",
    "invalid_similar_id": "`id` of a similar request is badly typed or syntactically impossible (missing gives bad_request).",
    "invalid_similar_limit": "`limit` of a similar request is not a non-negative integer.",
    "invalid_similar_offset": "`offset` of a similar request is not a non-negative integer.",
    "invalid_similar_ranking_score_threshold":
        "`rankingScoreThreshold` of a similar request is not a number between 0.0 and 1.0.",
    "invalid_similar_retrieve_vectors": "`retrieveVectors` of a similar request is not a boolean.",
    "invalid_similar_show_performance_details": "`showPerformanceDetails` of a similar request is not a boolean.",
    "invalid_similar_show_ranking_score": "`showRankingScore` of a similar request is not a boolean.",
    "invalid_similar_show_ranking_score_details": "`showRankingScoreDetails` of a similar request is not a boolean.",
    "invalid_skip_creation": "`skipCreation` is not `true` or `false`.",
    "invalid_state": "Never: keys that cannot be read end the start.",
    "invalid_stats_show_internal_database_sizes": "`showInternalDatabaseSizes` is not a boolean.",
    "invalid_stats_size_format": "`sizeFormat` is not human or raw.",
    "invalid_store_file": "Never: reserved, found in old dumps only.",
    "invalid_swap_duplicate_index_found": "The same uid appears more than once in the body of /swap-indexes.",
    "invalid_swap_indexes": "`indexes` of a swap is badly typed or does not hold exactly 2 uids.",
    "invalid_swap_rename": "`rename` of a swap is not a boolean.",
    "invalid_task_after_enqueued_at": "`afterEnqueuedAt` is not a date.",
    "invalid_task_after_finished_at": "`afterFinishedAt` is not a date.",
    "invalid_task_after_started_at": "`afterStartedAt` is not a date.",
    "invalid_task_before_enqueued_at": "`beforeEnqueuedAt` is not a date.",
    "invalid_task_before_finished_at": "`beforeFinishedAt` is not a date.",
    "invalid_task_before_started_at": "`beforeStartedAt` is not a date.",
    "invalid_task_canceled_by": "`canceledBy` is not a list of non-negative integers.",
    "invalid_task_from": "`from` is not a non-negative integer.",
    "invalid_task_limit": "`limit` of the task and batch lists is not a non-negative integer.",
    "invalid_task_reverse": "`reverse` is not a boolean.",
    "invalid_task_statuses": "`statuses` holds an unknown status.",
    "invalid_task_types": "`types` holds an unknown task type.",
    "invalid_task_uids": "`uids` or the path of /tasks/{uid} is not made of non-negative integers.",
    "invalid_vector_dimensions": "A query vector or a document vector has another length than the embedder dimensions.",
    "invalid_vectors_type": "In a task: `_vectors` or one of its entries has the wrong shape.",
    "invalid_webhook_headers":
        "`headers` of a webhook is badly typed, has a bad header name or value, or would hold more than 200 entries.",
    "invalid_webhook_url": "`url` of a webhook is missing at creation, null, badly typed or not a URL.",
    "invalid_webhook_uuid": "The path of /webhooks/{uuid} is not a UUID.",
    "invalid_webhooks": "`POST /webhooks` when 20 webhooks already exist.",
    "io_error": "The disk of the data folder failed, or a file could not be read or written.",
    "malformed_payload": "The body is not valid JSON, NDJSON or CSV, or is cut short.",
    "max_fields_limit_exceeded": "In a task: the index would hold more than 65,535 distinct fields.",
    "missing_api_key_actions": "`POST /keys` without `actions`.",
    "missing_api_key_expires_at": "`POST /keys` without `expiresAt`.",
    "missing_api_key_indexes": "`POST /keys` without `indexes`.",
    "missing_authorization_header": "A master key is set, and the request has no `Authorization: Bearer` header.",
    "missing_content_type": "A request has a body and no `Content-Type`.",
    "missing_document_edition_function": "`POST /documents/edit` without `function`.",
    "missing_document_filter": "`POST /documents/delete` without `filter`.",
    "missing_document_id": "In a task: a document lacks the primary key field.",
    "missing_facet_search_facet_name": "`POST /facet-search` without `facetName`.",
    "missing_index_uid": "`POST /indexes` without `uid`, or a multi-search query without `indexUid`.",
    "missing_master_key": "A `/keys` route is called on an instance without a master key.",
    "missing_network_url": "A new entry of `remotes` in `PATCH /network` has no `url`.",
    "missing_payload": "The body is empty on a route that needs one.",
    "missing_search_hybrid": "`vector` or `media` is given without `hybrid` (or `vector` without `hybridEmbedder` on GET).",
    "missing_swap_indexes": "An object of /swap-indexes has no `indexes`.",
    "missing_task_filters": "`POST /tasks/cancel` or `DELETE /tasks` without any filter.",
    "network_version_mismatch": "Never: belongs to networks with a leader.",
    "network_version_too_old": "Never: belongs to networks with a leader.",
    "no_space_left_on_device": "The disk of the data folder is full.",
    "not_found_similar_id": "The reference document of a similar request does not exist, or has no vector for the embedder.",
    "node_not_found": "The cluster has no node of this name.",
    "not_in_cluster": "A route of clusters is called on an instance that is not a node of one.",
    "not_leader": "Never: belongs to networks with a leader.",
    "payload_too_large":
        "The body is larger than `--http-payload-size-limit`, on the wire or unpacked, or has more values than a route takes.",
    "receive_import_finished_unknown_remote": "Never: belongs to networks with a leader.",
    "remote_bad_request": "A remote answered with a 4xx other than an authentication failure.",
    "remote_bad_response": "A remote answered with something that cannot be understood.",
    "remote_could_not_send_request": "A remote could not be reached.",
    "remote_invalid_api_key": "A remote refused the API key configured for it, or the personalization service refused its key.",
    "remote_remote_error": "A remote answered with a 5xx.",
    "remote_timeout": "A remote did not answer before the deadline of the search.",
    "render_document_not_found": "The document named by `input` of `POST /render-template` does not exist.",
    "requires_enterprise_edition":
        "The request uses a network with a leader, which the reference engine has in its Enterprise Edition alone.",
    "s3_snapshot_server_error": "The object store failed, or its answer cannot be understood.",
    "task_file_not_found": "`GET /tasks/{uid}/documents` of a task that has no stored content.",
    "task_not_found": "`GET /tasks/{uid}` names an unknown task, or one that the key may not see.",
    "template_parsing_error": "The template of `POST /render-template` does not parse.",
    "template_rendering_error": "The template of `POST /render-template` parses but cannot be rendered with the input.",
    "too_many_open_files": "The process has no file descriptor left.",
    "too_many_search_requests": "The search queue is full, or the search waited too long. The answer has `Retry-After`.",
    "too_many_vectors": "In a task: more than 256 vectors for one document and embedder.",
    "unexpected_network_previous_remotes": "`PATCH /network` carries previousRemotes without coming from the leader.",
    "unimplemented_external_function_calling": "A chat completion asks for tools other than those of svcd.",
    "unimplemented_multi_choice_chat_completions": "A chat completion with `n` other than 1.",
    "unimplemented_non_streaming_chat_completions": "A chat completion without `stream: true`.",
    "unknown_remote": "Never: belongs to networks with a leader.",
    "unprocessed_network_task": "Never: belongs to networks with a leader.",
    "unretrievable_document": "Never: reserved, found in old dumps only.",
    "unretrievable_error_code": "A task of an old dump failed with a code that is not known.",
    "unsupported_media_type":
        "The `Content-Encoding` is not supported, or `POST .../documents/delete-batch` has another content type than JSON.",
    "vector_embedding_error": "An embedder failed to compute the vector of a query or of documents.",
    "webhook_not_found": "No webhook has this uuid.",
}

# Pattern of codes: remedy. The first pattern that matches the whole code counts.
ACTIONS: tuple[tuple[str, str], ...] = (
    ("missing_authorization_header", "Send the key: `Authorization: Bearer KEY`. See [security](guide/security.md)."),
    ("invalid_api_key", "Use a key that has the action and the index, and is not expired. See [security](guide/security.md)."),
    ("missing_master_key", "Start svcd with `--master-key` or `--master-key-file`."),
    ("missing_content_type|invalid_content_type", "Send `Content-Type: application/json`; uploads of documents may also be "
     "`application/x-ndjson` or `text/csv`."),
    ("unsupported_media_type", "Send JSON with `Content-Type: application/json`, compressed by `br`, `gzip`, `deflate` or not at "
     "all."),
    ("missing_payload", "Send a body."),
    ("malformed_payload", "Correct the syntax at the line and column that the message names."),
    ("payload_too_large", "Send the documents in several requests, or raise `--http-payload-size-limit`."),
    ("missing_task_filters", "Name the tasks, for example by `uids` or `statuses`; `uids=*` is all of them."),
    ("missing_search_hybrid", "Add `hybrid` with an `embedder`. See [vectors](vectors.md)."),
    ("missing_document_id", "Give every document the primary key, or name a different attribute with `primaryKey`."),
    ("missing_.*", "Add the member that the message names."),
    ("immutable_webhook", "Change the options `--task-webhook-url` and `--task-webhook-authorization-header`."),
    ("immutable_.*", "Leave the member out."),
    ("unimplemented_.*", "Change the request as the message says. See [chats](chats.md)."),
    ("index_not_found", "Create the index, or correct the uid; `GET /indexes` lists the indexes that the key may see."),
    ("index_already_exists", "Use another uid, or delete the existing index before."),
    ("index_primary_key_already_exists", "Keep the primary key, or delete all documents before."),
    ("index_primary_key_.*", "Name the primary key: `primaryKey` in the request, or when the index is created."),
    ("max_fields_limit_exceeded", "Use fewer names of fields: variable names belong into values."),
    ("api_key_already_exists", "Use another uid, or leave it out."),
    ("invalid_swap_duplicate_index_found", "Name each index once."),
    ("index_scoped_api_key_with_global_action", "Leave the action out, or give the key all indexes: `*`."),
    ("(api_key|batch|task|chat|document|dynamic_search_rule|webhook|render_document|node|not_found_similar)_(not_found|id)",
     "Correct the identifier; the list of the same kind shows what exists."),
    ("task_file_not_found", "Only tasks that wait or run, and have documents, still have them."),
    ("not_in_cluster|cluster_.*", "See [cluster](cluster.md)."),
    ("feature_not_enabled", "Enable the feature: `PATCH /experimental-features`, or a launch option."),
    ("facet_search_disabled", "Set the setting `facetSearch` to true."),
    ("requires_enterprise_edition", "Use a network without a leader. See [network](network.md)."),
    ("remote_.*", "Look at the remote that the message names. See [network](network.md#failures)."),
    ("too_many_search_requests", "Try again after the seconds of `Retry-After`; if it stays, see [sizing](guide/sizing.md)."),
    ("too_many_open_files", "Raise the limit of open files: `ulimit -n`, `LimitNOFILE=` of systemd."),
    ("no_space_left_on_device", "Make space on the disk of the data folder, then send the request again."),
    ("io_error", "Look at the disk and the log of the system; `svcd verify` checks the data folder."),
    ("index_corrupted", "Restore a backup; or stop svcd and rebuild the index from its stored documents with `svcd repair "
     "INDEX`; or delete the index and add the documents again. See [damage](storage.md#damage)."),
    ("instance_corrupted", "Stop svcd and restore a backup. `svcd verify` names the damaged rows. See "
     "[damage](storage.md#damage)."),
    ("internal", "Look at the log, which has the cause, and report it."),
    ("invalid_s3_.*|s3_.*", "Correct the options of the object store, or wait for it. See [dumps](dumps.md#object-store)."),
    ("vector_embedding_error", "Look at the embedder that the message names. See [embedders](embedders.md)."),
    ("invalid_vectors_type|too_many_vectors", "Correct `_vectors` of the document. See [vectors](vectors.md)."),
    ("invalid_vector_dimensions", "Send vectors of the length that the message names, or change `dimensions` of the embedder."),
    ("invalid_settings_embedders", "Correct the embedder as the message says. See [embedders](embedders.md)."),
    ("invalid_settings_.*", "Correct the setting as the message says. See [settings](guide/settings.md)."),
    ("invalid_(search|similar|document)_filter", "Correct the filter at the place that the message shows; attributes must be in "
     "`filterableAttributes`. See [filters](guide/filters.md)."),
    ("invalid_(search|document)_sort", "Write `attribute:asc` or `attribute:desc`; attributes must be in `sortableAttributes`."),
    ("invalid_document_(geo|geojson)_field", "Correct the location. See [geometries](filters-and-facets.md#geometries)."),
    ("invalid_document_id", "Use integers, or texts of letters, digits, `-` and `_`, of at most 511 bytes."),
    ("invalid_webhooks", "Delete a webhook before."),
    ("edit_documents_by_function_error", "Correct the function as the message says."),
    ("template_.*", "Correct the template as the message says. See [templates](templates.md)."),
    ("unexpected_network_previous_remotes", "Leave `previousRemotes` out."),
    ("unretrievable_error_code", "Nothing: the message of the task is the one it had."),
    ("invalid_.*|bad_request", "Correct the member or parameter that the message names; the message gives the expected form."),
)


def action(code: str) -> str:
    """Return the remedy of a code. Raises KeyError for a code without a pattern."""
    if WHEN[code].startswith(NEVER):
        return "Nothing: svcd never answers it."
    for pattern, text in ACTIONS:
        if re.fullmatch(pattern, code):
            return text
    raise KeyError(code)


def error_page() -> str:
    """Return the page as Markdown, a section for each code."""
    sections = [f"## {code}\n\n`{kind}`, status {status}. {WHEN[code]}\n\n{action(code)}\n"
                for code, (kind, status) in ERRORS.items()]
    return "\n".join([_INTRODUCTION, *sections])
