"""Counts the requests of one process for the anonymous usage report: what each adds, by route, and the state.

Nothing of a request is kept: only numbers, flags and known words are counted, never its texts; distinct names of facets and
remotes are kept as hashes until the report. See docs/tasks-and-batches.md#usage-report.

Threads: all request threads; `_lock` guards the state and is held for a few additions only.
"""
from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from svcd.analytics.report import (
    ANY, FIGURES, MOST, NAMES, TIME_BOUNDS_MS, FigureUpdate, State, adds, adds_distinct, adds_each, agent, all_of, joined,
    model_family, nothing,
)
from svcd.api import admission
from svcd.api.search_parameters import PARAMETERS, Parameter
from svcd.base import logs
from svcd.http.message import media_type
from svcd.schema.ranking_rules import RULE_NAMES

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.http.message import Request


Key = tuple[str, str]  # method, path of a route

_MOST_TEXT = 10_000  # characters of a query that are looked at
_NEGATIVE = re.compile(r'(?:^|\s)-["\w]')
_FILTER_MARKS = {
    "_geoRadius": ("filter.with_geoRadius",), "_geoBoundingBox": ("filter.with_geoBoundingBox",),
    "_vectors": ("filter.on_vectors", "with_vector_filter"),
}
_WITHOUT_PAGES = ("offset", "limit")  # without effect on a search by pages
_MAX_NAMES = 10_000  # distinct names that are counted until the next report

_known_agent = lru_cache(maxsize=256)(agent)


# Searches, by member of their bodies


def _q(state: State, text: str) -> None:
    text = text[:_MOST_TEXT]
    count = len(text.split())
    if count > state["q.max_terms_number"]:
        state["q.max_terms_number"] = count
    if "-" in text and _NEGATIVE.search(text):
        state["requests.total_used_negative_operator"] += 1


def note_filter(state: State, value: Any) -> None:
    """A filter: its syntax, and the functions that it uses."""
    parts, left = [], [value]  # the texts in nested lists
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, str):
            parts.append(each)
    is_mixed = any(" AND " in part or " OR " in part for part in parts)  # the array contains whole expressions
    adds("filter.most_used_syntax")(state, "string" if not isinstance(value, list) else "mixed" if is_mixed else "array")
    text = " ".join(parts)
    for mark, figures in _FILTER_MARKS.items():
        if mark in text:
            for figure in figures:
                state[figure] = True


def _sort(state: State, rules: Sequence[str]) -> None:
    adds("sort.avg_criteria_number")(state, rules)
    if any(rule.startswith("_geoPoint") for rule in rules):
        state["sort.with_geoPoint"] = True


def _hybrid(state: State, value: Mapping[str, Any]) -> None:
    state["hybrid.enabled"] = True
    if value.get("semanticRatio", 0.5) != 0.5:
        state["hybrid.semantic_ratio"] = True


def _update_of(row: Parameter) -> FigureUpdate:
    """How a value of a parameter counts: in a maximum a list by its length, and a value with a default only if it differs from
    it, because a query string decodes to all of them."""
    kind = FIGURES[row.figure].kind
    if kind is MOST:
        return adds(row.figure, lambda value: len(value) if isinstance(value, list) else value)
    return adds(row.figure, (lambda value: value != row.default) if kind is ANY else None)


_SEARCH_MEMBERS: Mapping[str, FigureUpdate] = {
    **{name: _update_of(row) for name, row in PARAMETERS.items() if row.figure},
    "q": _q,
    "filter": note_filter,
    "sort": _sort,
    "locales": adds_each("locales"),
    "hybrid": _hybrid,
    "media": all_of(adds("multimodal"), adds("hybrid.total_media")),
}


def _members(state: State, values: Mapping[str, Any]) -> None:
    """The members of one search; null, false, zero and empty values do not count."""
    is_paged = values.get("page") is not None or values.get("hitsPerPage") is not None
    if values.get("matchingStrategy") is None:
        _SEARCH_MEMBERS["matchingStrategy"](state, "last")
    for name, value in values.items():
        if value and name in _SEARCH_MEMBERS and not (is_paged and name in _WITHOUT_PAGES):
            _SEARCH_MEMBERS[name](state, value)
    pages = state["pagination.most_used_navigation"]
    kind = "exhaustive" if is_paged else "estimated"
    pages[kind] = pages.get(kind, 0) + 1


def search(state: State, ctx: Context) -> None:
    """One search with a body, or with a query string of the same members."""
    values = ctx.body or ctx.query
    _members(state, values)
    if values.get("personalize") is not None:
        state["personalization.total_personalized"] += 1


def search_by_query_string(state: State, ctx: Context) -> None:
    """One search with a query string."""
    values = dict(ctx.query)
    values["hybrid"] = values.get("hybridEmbedder") and {"semanticRatio": values.get("hybridSemanticRatio") or 0.5}
    _members(state, values)
    if values.get("personalizeUserContext") is not None:
        state["personalization.total_personalized"] += 1


def multi_search(state: State, ctx: Context) -> None:
    """Many searches in one request."""
    queries = ctx.body.get("queries") or ()
    uids = {query.get("indexUid") for query in queries}
    adds("searches.avg_search_count")(state, queries)
    adds("indexes.avg_distinct_index_count")(state, uids)
    state["searches.total_search_count"] += len(queries)
    state["indexes.total_distinct_index_count"] += len(uids)
    state["indexes.total_single_index"] += len(uids) == 1
    if ctx.body.get("federation") is not None:
        state["federation.use_federation"] = True
    remotes = {options["remote"] for query in queries if (options := query.get("federationOptions") or {}).get("remote")}
    if remotes:
        adds("remotes.avg_distinct_remote_count")(state, remotes)
        state["network"] = True
    for remote in remotes:
        adds_distinct("remotes.total_distinct_remote_count")(state, remote)
    for query in queries:
        _members(state, query)


def facet_search(state: State, ctx: Context) -> None:
    """One search in the values of a facet."""
    adds_distinct("facets.total_distinct_facet_count")(state, ctx.body.get("facetName"))
    if ctx.body.keys() - {"facetName", "facetQuery"}:
        state["facets.additional_search_parameters_provided"] = True


# Changes of settings: how many elements and which kind, never a name


def _total(figure: str) -> FigureUpdate:
    return adds(f"{figure}.total", lambda value: len(value or ()))


def _is_set(figure: str) -> FigureUpdate:
    return adds(f"{figure}.set", lambda value: value is not None)


def _ranking_rules(state: State, rules: Sequence[str] | None) -> None:
    """Report the positions of built-in rules, and only the direction of custom ones: their names are names of fields."""
    known = [rule.rpartition(":")[2] for rule in rules or ()]
    state["ranking_rules.values"] = known
    positions: dict[str, int | None] = {row.figure: None for row in RULE_NAMES.values() if row.figure}
    for position, rule in reversed([*enumerate(known)]):
        figure = RULE_NAMES[rule].figure if rule in RULE_NAMES else None
        if figure:
            positions[figure] = position
    state.update({f"ranking_rules.{figure}_position": position for figure, position in positions.items()})


def _patterns(rows: Any) -> list[str]:
    """The names and patterns of filterable attributes."""
    names: list[str] = []
    for row in rows or ():
        names += [row] if isinstance(row, str) else row.get("attributePatterns", ())
    return names


def _typo_tolerance(state: State, value: Mapping[str, Any] | None) -> None:
    given = value or {}
    sizes = given.get("minWordSizeForTypos") or {}
    state["typo_tolerance.enabled"] = given.get("enabled")
    state["typo_tolerance.disable_on_attributes"] = bool(given.get("disableOnAttributes"))
    state["typo_tolerance.disable_on_words"] = bool(given.get("disableOnWords"))
    state["typo_tolerance.min_word_size_for_typos.one_typo"] = sizes.get("oneTypo")
    state["typo_tolerance.min_word_size_for_typos.two_typos"] = sizes.get("twoTypos")


def _faceting(state: State, value: Mapping[str, Any] | None) -> None:
    orders = (value or {}).get("sortFacetValuesBy") or {}
    state["faceting.max_values_per_facet"] = (value or {}).get("maxValuesPerFacet")
    state["faceting.sort_facet_values_by_star_count"] = orders.get("*") == "count"
    state["faceting.sort_facet_values_by_total"] = len(orders)


def _embedders(state: State, value: Mapping[str, Any] | None) -> None:
    rows = [row for row in (value or {}).values() if isinstance(row, dict)]
    state["embedders.total"] = len(rows)
    state["embedders.sources"] = sorted({str(row.get("source") or "openAi") for row in rows})
    state["embedders.document_template_used"] = any(row.get("documentTemplate") is not None for row in rows)
    sizes = [row["documentTemplateMaxBytes"] for row in rows if isinstance(row.get("documentTemplateMaxBytes"), int)]
    state["embedders.document_template_max_bytes"] = max(sizes, default=None)
    state["embedders.binary_quantization_used"] = any(row.get("binaryQuantized") is True for row in rows)


def _has_wildcard(names: Sequence[str] | None) -> bool:
    return names is None or "*" in names  # null is all of them, and `*` decodes to it


_SETTINGS: Mapping[str, FigureUpdate] = {
    "rankingRules": _ranking_rules,
    "sortableAttributes": all_of(_total("sortable_attributes"),
                                 adds("sortable_attributes.has_geo", lambda names: "_geo" in (names or ()))),
    "filterableAttributes": all_of(
        adds("filterable_attributes.total", lambda rows: len(_patterns(rows))),
        adds("filterable_attributes.has_geo", lambda rows: "_geo" in _patterns(rows)),
        adds("filterable_attributes.has_patterns", lambda rows: any("*" in name for name in _patterns(rows)))),
    "searchableAttributes": all_of(_total("searchable_attributes"), adds("searchable_attributes.with_wildcard", _has_wildcard)),
    "displayedAttributes": all_of(_total("displayed_attributes"), adds("displayed_attributes.with_wildcard", _has_wildcard)),
    "typoTolerance": _typo_tolerance,
    "faceting": _faceting,
    "pagination": adds("pagination.max_total_hits", lambda value: (value or {}).get("maxTotalHits")),
    "distinctAttribute": _is_set("distinct_attribute"),
    "proximityPrecision": all_of(_is_set("proximity_precision"), adds("proximity_precision.value")),
    "facetSearch": all_of(_is_set("facet_search"), adds("facet_search.value")),
    "prefixSearch": all_of(_is_set("prefix_search"), adds("prefix_search.value")),
    "stopWords": _total("stop_words"),
    "separatorTokens": _total("separator_tokens"),
    "nonSeparatorTokens": _total("non_separator_tokens"),
    "dictionary": _total("dictionary"),
    "synonyms": _total("synonyms"),
    "embedders": _embedders,
    "chat": _is_set("chat"),
}


def of_all(state: State, ctx: Context) -> None:
    """A change of many settings."""
    for name, value in ctx.body.items():
        if name in _SETTINGS:
            _SETTINGS[name](state, value)


def of_one(segment: str) -> FigureUpdate | None:
    """The update for a change of one setting. segment: the last of its route, such as `stop-words`."""
    first, *rest = segment.split("-")
    note = _SETTINGS.get(first + "".join(word.capitalize() for word in rest))
    return None if note is None else lambda state, ctx: note(state, ctx.body)


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


# Network and export


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
    adds("export.avg_patterns_with_filter", int)(state, sum(bool((options or {}).get("filter")) for options in indexes.values()))
    size = ctx.body.get("payloadSize")
    if size is not None:
        adds("export.avg_payload_size", int)(state, size)


# Chats: (model, messages of the request, milliseconds until the stream begins)


_chat = all_of(
    adds("chat.total_received"), adds("chat.total_succeeded"), adds("chat.total_streamed_requests"),
    adds("chat.total_non_streamed_requests", lambda chat: 0),
    adds("chat.models_used", lambda chat: model_family(chat[0])),
    adds("chat.total_messages", lambda chat: chat[1]), adds("chat.avg_messages_per_request", lambda chat: chat[1]),
    adds("chat.time_spent", lambda chat: chat[2]), adds("chat.streaming_ratio", lambda chat: 1),
)


# By route


_SETTINGS_PATH = "/indexes/{index_uid}/settings"
_DOCUMENTS = "/indexes/{index_uid}/documents"
UPDATES: Mapping[Key, FigureUpdate] = {
    ("POST", "/indexes/{index_uid}/search"): search,
    ("GET", "/indexes/{index_uid}/search"): search_by_query_string,
    ("POST", "/multi-search"): multi_search,
    ("POST", "/indexes/{index_uid}/facet-search"): facet_search,
    ("POST", "/indexes/{index_uid}/similar"): search,
    ("GET", "/indexes/{index_uid}/similar"): search,
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
    ("PATCH", _SETTINGS_PATH): of_all,
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
        return of_one(segment)
    return UPDATES.get(key)


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

    def note(self, route: Key, ctx: Context) -> None:
        """Count the values of a decoded request. Errors are logged, and never fail the request."""
        note = update_of_route(route)
        if note is None:
            return
        try:
            with self._lock:
                note(self._state, ctx)
                if NAMES in self._state:
                    self._count_names()
        except Exception as bug:
            logs.failure("usage was not counted", bug, route=route[1])

    def chat_began(self, model: str, messages: int, milliseconds: float) -> None:
        """Count a chat whose stream has begun; others are refused, and not counted here."""
        with self._lock:
            _chat(self._state, (model, messages, milliseconds))

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
