"""What each request adds to the usage report, by route.

A route that svcd does not have yet is noted as soon as it has it. Refuses to know how the whole is counted.
"""
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from svcd.api import usage_of_searches, usage_of_settings
from svcd.api.usage_kinds import Note, average, each_of, is_given, one_more, word
from svcd.api.usage_of_searches import note_filter
from svcd.http.headers import media_type
from svcd.remote.usage_figures import State

if TYPE_CHECKING:
    from svcd.api.context import Context

Key = tuple[str, str]  # method, path of a route


# Documents and indexes

def _add_documents(state: State, ctx: Context) -> None:
    if ctx.query.get("primaryKey") is not None:
        state["primary_key"] = True
    word("payload_type")(state, media_type(ctx.request.headers.get("content-type") or ""))
    if ctx.instance.index(ctx.index_uid) is None:
        state["index_creation"] = True


def _primary_key(state: State, ctx: Context) -> None:
    if ctx.body.get("primaryKey") is not None:
        state["primary_key"] = True


def _fetch(state: State, ctx: Context) -> None:
    asked = ctx.body or ctx.query
    if asked.get("filter"):
        state["per_filter"] = True
        note_filter(state, asked["filter"])
    if asked.get("ids"):
        state["per_document_id"] = True
    if asked.get("retrieveVectors"):
        state["vector.retrieve_vectors"] = True


def _swap(state: State, ctx: Context) -> None:
    state["swap_operation_number"] += len(ctx.body)


# Tasks

_TASK_FILTERS = {
    "uids": "filtered_by_uid", "indexUids": "filtered_by_index_uid", "types": "filtered_by_type",
    "statuses": "filtered_by_status", "canceledBy": "filtered_by_canceled_by",
} | {f"{bound}{event}At": f"filtered_by_{bound.lower()}_{event.lower()}_at"
     for bound in ("before", "after") for event in ("Enqueued", "Started", "Finished")}


def _tasks(state: State, ctx: Context) -> None:
    for name, figure in _TASK_FILTERS.items():
        if ctx.query.get(name) is not None:
            state[figure] = True


# Network, export, webhooks

def _network(state: State, ctx: Context) -> None:
    if "self" in ctx.body:
        state["network_has_self"] = ctx.body["self"] is not None
    if "remotes" in ctx.body:
        state["network_size"] = len(ctx.body["remotes"] or ())
    state["network"] = True


def _export(state: State, ctx: Context) -> None:
    indexes = ctx.body.get("indexes") or {}
    state["export.total_received"] += 1
    if ctx.body.get("apiKey"):
        state["export.has_api_key"] = True
    average("export.avg_index_patterns")(state, indexes)
    average("export.avg_patterns_with_filter", int)(
        state, sum(bool((options or {}).get("filter")) for options in indexes.values()))
    size = ctx.body.get("payloadSize")
    if size is not None:
        average("export.avg_payload_size", int)(state, size)


_SETTINGS_PATH = "/indexes/{index_uid}/settings"
_DOCUMENTS = "/indexes/{index_uid}/documents"
NOTES: Mapping[Key, Note] = {
    ("POST", "/indexes/{index_uid}/search"): usage_of_searches.search,
    ("GET", "/indexes/{index_uid}/search"): usage_of_searches.search_by_query_string,
    ("POST", "/multi-search"): usage_of_searches.multi_search,
    ("POST", "/indexes/{index_uid}/facet-search"): usage_of_searches.facet_search,
    ("POST", "/indexes/{index_uid}/similar"): usage_of_searches.search,
    ("GET", "/indexes/{index_uid}/similar"): usage_of_searches.search,
    ("POST", _DOCUMENTS): _add_documents,
    ("PUT", _DOCUMENTS): _add_documents,
    ("GET", _DOCUMENTS): _fetch,
    ("POST", f"{_DOCUMENTS}/fetch"): _fetch,
    ("GET", f"{_DOCUMENTS}/{{document_id}}"): is_given("per_document_id"),
    ("DELETE", f"{_DOCUMENTS}/{{document_id}}"): is_given("per_document_id"),
    ("DELETE", _DOCUMENTS): is_given("clear_all"),
    ("POST", f"{_DOCUMENTS}/delete-batch"): is_given("per_batch"),
    ("POST", f"{_DOCUMENTS}/delete"): is_given("per_filter"),
    ("POST", f"{_DOCUMENTS}/edit"): is_given("per_filter"),
    ("POST", "/indexes"): each_of(is_given("index_creation"), _primary_key),
    ("PATCH", "/indexes/{index_uid}"): _primary_key,
    ("GET", "/indexes/{index_uid}"): is_given("per_index_uid"),
    ("GET", "/indexes/{index_uid}/stats"): is_given("per_index_uid"),
    ("POST", "/swap-indexes"): _swap,
    ("GET", "/tasks"): _tasks,
    ("DELETE", "/tasks"): _tasks,
    ("POST", "/tasks/cancel"): _tasks,
    ("GET", "/batches"): _tasks,
    ("GET", "/tasks/{task_id}"): is_given("per_task_uid"),
    ("PATCH", _SETTINGS_PATH): usage_of_settings.of_all,
    ("PATCH", "/network"): _network,
    ("POST", "/export"): _export,
    ("POST", "/webhooks"): one_more("webhooks_created"),
    ("PATCH", "/webhooks/{uuid}"): one_more("webhooks.updated"),
}


@cache  # there are as many as routes
def noted(key: Key) -> Note | None:
    """What a request of a route adds; None for those that nothing is told of."""
    method, path = key
    before, _, segment = path.rpartition("/")
    if before == _SETTINGS_PATH and method in ("PUT", "PATCH"):
        return usage_of_settings.of_one(segment)
    return NOTES.get(key)
