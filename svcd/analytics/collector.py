"""Counts the requests of one process for the anonymous usage report: what each adds, by route, and the state.

Nothing of a request is kept: its values are counted and forgotten; distinct names of facets and remotes are kept as
hashes until the report. See docs/tasks-and-batches.md#usage-report.

Threads: all request threads; `_lock` guards the state and is held for a few additions only.
"""
from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from svcd.analytics import requests
from svcd.analytics.figures import NAMES, TIME_BOUNDS_MS, FigureUpdate, State, adds, agent, all_of, joined, nothing
from svcd.analytics.requests import note_filter
from svcd.api import admission
from svcd.base import logs
from svcd.http.headers import media_type

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.api.routes import Route
    from svcd.http.message import Request


Key = tuple[str, str]  # method, path of a route


# Documents and indexes

def _add_documents(state: State, ctx: Context) -> None:
    if ctx.query.get("primaryKey") is not None:
        state["primary_key"] = True
    adds("payload_type")(state, media_type(ctx.request.headers.get("content-type") or ""))
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
    adds("export.avg_index_patterns")(state, indexes)
    adds("export.avg_patterns_with_filter", int)(
        state, sum(bool((options or {}).get("filter")) for options in indexes.values()))
    size = ctx.body.get("payloadSize")
    if size is not None:
        adds("export.avg_payload_size", int)(state, size)


_SETTINGS_PATH = "/indexes/{index_uid}/settings"
_DOCUMENTS = "/indexes/{index_uid}/documents"
UPDATES: Mapping[Key, FigureUpdate] = {
    ("POST", "/indexes/{index_uid}/search"): requests.search,
    ("GET", "/indexes/{index_uid}/search"): requests.search_by_query_string,
    ("POST", "/multi-search"): requests.multi_search,
    ("POST", "/indexes/{index_uid}/facet-search"): requests.facet_search,
    ("POST", "/indexes/{index_uid}/similar"): requests.search,
    ("GET", "/indexes/{index_uid}/similar"): requests.search,
    ("POST", _DOCUMENTS): _add_documents,
    ("PUT", _DOCUMENTS): _add_documents,
    ("GET", _DOCUMENTS): _fetch,
    ("POST", f"{_DOCUMENTS}/fetch"): _fetch,
    ("GET", f"{_DOCUMENTS}/{{document_id}}"): adds("per_document_id"),
    ("DELETE", f"{_DOCUMENTS}/{{document_id}}"): adds("per_document_id"),
    ("DELETE", _DOCUMENTS): adds("clear_all"),
    ("POST", f"{_DOCUMENTS}/delete-batch"): adds("per_batch"),
    ("POST", f"{_DOCUMENTS}/delete"): adds("per_filter"),
    ("POST", f"{_DOCUMENTS}/edit"): adds("per_filter"),
    ("POST", "/indexes"): all_of(adds("index_creation"), _primary_key),
    ("PATCH", "/indexes/{index_uid}"): _primary_key,
    ("GET", "/indexes/{index_uid}"): adds("per_index_uid"),
    ("GET", "/indexes/{index_uid}/stats"): adds("per_index_uid"),
    ("POST", "/swap-indexes"): _swap,
    ("GET", "/tasks"): _tasks,
    ("DELETE", "/tasks"): _tasks,
    ("POST", "/tasks/cancel"): _tasks,
    ("GET", "/batches"): _tasks,
    ("GET", "/tasks/{task_id}"): adds("per_task_uid"),
    ("PATCH", _SETTINGS_PATH): requests.of_all,
    ("PATCH", "/network"): _network,
    ("POST", "/export"): _export,
    ("POST", "/webhooks"): adds("webhooks_created"),
    ("PATCH", "/webhooks/{uuid}"): adds("webhooks.updated"),
}


@cache  # there are as many as routes
def update_of_route(key: Key) -> FigureUpdate | None:
    """The update for requests of a route; None for routes that add nothing of their own."""
    method, path = key
    before, _, segment = path.rpartition("/")
    if before == _SETTINGS_PATH and method in ("PUT", "PATCH"):
        return requests.of_one(segment)
    return UPDATES.get(key)


# Distinct names that are counted at most until the next report.
_MAX_NAMES = 10_000
_known_agent = lru_cache(maxsize=256)(agent)


class Usage:
    """The state of one process since the last report."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = nothing()
        self._cut_off = admission.degraded_searches()
        self._names: set[tuple[str, int]] = set()

    def answered(self, request: Request, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        bucket = bisect_left(TIME_BOUNDS_MS, seconds * 1000)
        program = _known_agent((request.headers.get("user-agent") or "")[:100])
        with self._lock:
            state = self._state
            state["requests.total_received"] += 1
            state["requests.total_succeeded" if status < 400 else "requests.total_failed"] += 1
            state["requests.99th_response_time"][bucket] += 1
            agents = state["user_agent"]
            agents[program] = agents.get(program, 0) + 1

    def note(self, route: Route, ctx: Context) -> None:
        """Count the values of a decoded request. Errors are logged, and never fail the request."""
        note = update_of_route((route.method, route.path))
        if note is None:
            return
        try:
            with self._lock:
                note(self._state, ctx)
                if NAMES in self._state:
                    self._count_names()
        except Exception as bug:
            logs.failure("usage was not counted", bug, route=route.path)

    def _count_names(self) -> None:
        for figure, name in self._state.pop(NAMES):
            seen = (figure, hash(name))
            if seen not in self._names and len(self._names) < _MAX_NAMES:
                self._names.add(seen)
                self._state[figure] += 1

    def take(self) -> State:
        """The state; counting starts again."""
        with self._lock:
            taken, self._state = self._state, nothing()
            cut_off, self._cut_off = self._cut_off, admission.degraded_searches()
            self._names.clear()
        taken["requests.total_degraded"] = self._cut_off - cut_off
        return taken


def sum_of(states: Sequence[State]) -> State:
    """The joined state of several processes."""
    total = nothing()
    for state in states:
        total = joined(total, state)
    return total
