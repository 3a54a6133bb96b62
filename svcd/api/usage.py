"""What each request adds to the anonymous usage report: figures, and words of known lists.

Knows which members of which requests count, by route; refuses to know when a report is made, and where it goes.
A route that svcd does not have yet is noted as soon as it has it. Nothing is kept of a request: what a client wrote is
looked at, counted, and forgotten; the distinct names of facets and remotes stay as hashes until the report.

Threads: every request thread comes here; `_lock` guards the state, and is held for a few additions only.
"""
from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from svcd import logs
from svcd.api import cutoff
from svcd.remote.usage_figures import TIME_BOUNDS_MS, State, agent, joined, nothing

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.api.routes import Route
    from svcd.http.message import Request

Note = Callable[[State, Any], None]  # what a value adds
_Key = tuple[str, str]  # method, path of a route

_NEGATIVE = re.compile(r'(?:^|\s)-["\w]')
# Distinct names that are told apart until the next report.
_MOST_NAMES = 10_000
_known_agent = lru_cache(maxsize=256)(agent)


class Usage:
    """What was asked of this process since the last report."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = nothing()
        self._cut_off = cutoff.ran_out()
        self._names: set[tuple[str, int]] = set()

    def answered(self, request: Request, status: int, seconds: float) -> None:
        """One more request was answered."""
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
        """A request was understood, and is answered: also when what it adds cannot be found out."""
        note = _noted((route.method, route.path))
        if note is None:
            return
        try:
            with self._lock:
                note(self._state, ctx)
                if _NAMES in self._state:
                    self._count_names()
        except Exception as bug:
            logs.failure("usage was not counted", bug, route=route.path)

    def _count_names(self) -> None:
        for figure, name in self._state.pop(_NAMES):
            seen = (figure, hash(name))
            if seen not in self._names and len(self._names) < _MOST_NAMES:
                self._names.add(seen)
                self._state[figure] += 1

    def take(self) -> State:
        """What was counted, and begin anew."""
        with self._lock:
            taken, self._state = self._state, nothing()
            cut_off, self._cut_off = self._cut_off, cutoff.ran_out()
            self._names.clear()
        taken["requests.total_degraded"] = self._cut_off - cut_off
        return taken


def sum_of(states: Sequence[State]) -> State:
    """Of several processes."""
    total = nothing()
    for state in states:
        total = joined(total, state)
    return total


# What a figure takes. Each returns a Note of the value.

def _is_given(figure: str) -> Note:
    """The member is there, and says something."""
    def note(state: State, value: Any) -> None:
        state[figure] = True

    return note


def _is_not(figure: str, default: Any) -> Note:
    def note(state: State, value: Any) -> None:
        if value != default:
            state[figure] = True

    return note


def _largest(figure: str, measure: Callable[[Any], int] = int) -> Note:
    def note(state: State, value: Any) -> None:
        state[figure] = max(state[figure], measure(value))

    return note


def _average(figure: str, measure: Callable[[Any], int] = len) -> Note:
    def note(state: State, value: Any) -> None:
        parts = state[figure]
        parts[0] += measure(value)
        parts[1] += 1

    return note


def _word(figure: str) -> Note:
    def note(state: State, value: str) -> None:
        counts = state[figure]
        counts[value] = counts.get(value, 0) + 1

    return note


def _words(figure: str) -> Note:
    add = _word(figure)

    def note(state: State, value: Sequence[str]) -> None:
        for word in value:
            add(state, word)

    return note


def _one_more(figure: str) -> Note:
    def note(state: State, value: Any) -> None:
        state[figure] += 1

    return note


_NAMES = "names"  # not a figure: names met by the request at hand, told apart and dropped by Usage


def _distinct(figure: str) -> Note:
    def note(state: State, value: Any) -> None:
        state.setdefault(_NAMES, []).append((figure, value))

    return note


def _all(*notes: Note) -> Note:
    def note(state: State, value: Any) -> None:
        for each in notes:
            each(state, value)

    return note


# Searches

def _q(state: State, text: str) -> None:
    words = len(text.split())
    if words > state["q.max_terms_number"]:
        state["q.max_terms_number"] = words
    if "-" in text and _NEGATIVE.search(text):
        state["requests.total_used_negative_operator"] += 1


def _filter(state: State, value: Any) -> None:
    parts = _flat(value) if isinstance(value, list) else [value]
    syntax = "string" if not isinstance(value, list) else "mixed" if _is_mixed(value) else "array"
    _word("filter.most_used_syntax")(state, syntax)
    text = " ".join(part for part in parts if isinstance(part, str))
    for mark, figures in _FILTER_MARKS.items():
        if mark in text:
            for figure in figures:
                state[figure] = True


_FILTER_MARKS = {
    "_geoRadius": ("filter.with_geoRadius",), "_geoBoundingBox": ("filter.with_geoBoundingBox",),
    "_vectors": ("filter.on_vectors", "with_vector_filter"),
}


def _flat(value: Any) -> list[Any]:
    return [part for each in value for part in _flat(each)] if isinstance(value, list) else [value]


def _is_mixed(value: list[Any]) -> bool:
    """Whole expressions inside an array, too."""
    return any(isinstance(part, str) and (" AND " in part or " OR " in part) for part in _flat(value))


def _sort(state: State, rules: Sequence[str]) -> None:
    _average("sort.avg_criteria_number")(state, rules)
    if any(rule.startswith("_geoPoint") for rule in rules):
        state["sort.with_geoPoint"] = True


def _hybrid(state: State, value: Mapping[str, Any]) -> None:
    state["hybrid.enabled"] = True
    if value.get("semanticRatio", 0.5) != 0.5:
        state["hybrid.semantic_ratio"] = True


# Of members with a default only what differs from it: a query string has them all.
_SEARCH_MEMBERS: Mapping[str, Note] = {
    "q": _q,
    "offset": _largest("pagination.max_offset"),
    "limit": _largest("pagination.max_limit"),
    "hitsPerPage": _largest("pagination.max_limit"),
    "attributesToRetrieve": _largest("formatting.max_attributes_to_retrieve", len),
    "attributesToCrop": _largest("formatting.max_attributes_to_crop", len),
    "cropLength": _is_not("formatting.crop_length", 10),
    "cropMarker": _is_not("formatting.crop_marker", "…"),
    "attributesToHighlight": _largest("formatting.max_attributes_to_highlight", len),
    "highlightPreTag": _is_not("formatting.highlight_pre_tag", "<em>"),
    "highlightPostTag": _is_not("formatting.highlight_post_tag", "</em>"),
    "showMatchesPosition": _is_given("formatting.show_matches_position"),
    "filter": _filter,
    "sort": _sort,
    "distinct": _is_given("distinct"),
    "facets": _average("facets.avg_facets_number"),
    "matchingStrategy": _word("matching_strategy.most_used_strategy"),
    "attributesToSearchOn": _one_more("attributes_to_search_on.total_number_of_uses"),
    "rankingScoreThreshold": _is_given("scoring.ranking_score_threshold"),
    "locales": _words("locales"),
    "hybrid": _hybrid,
    "vector": _largest("vector.max_vector_size", len),
    "retrieveVectors": _is_given("vector.retrieve_vectors"),
    "media": _all(_is_given("multimodal"), _one_more("hybrid.total_media")),
    "showRankingScore": _is_given("scoring.show_ranking_score"),
    "showRankingScoreDetails": _is_given("scoring.show_ranking_score_details"),
}


_WITHOUT_PAGES = ("offset", "limit")  # of no effect on a search by pages


def _members(state: State, values: Mapping[str, Any]) -> None:
    """One search: null, false, zero and empty ask for nothing."""
    is_paged = values.get("page") is not None or values.get("hitsPerPage") is not None
    for name, value in values.items():
        if value and name in _SEARCH_MEMBERS and not (is_paged and name in _WITHOUT_PAGES):
            _SEARCH_MEMBERS[name](state, value)
    pages = state["pagination.most_used_navigation"]
    kind = "exhaustive" if is_paged else "estimated"
    pages[kind] = pages.get(kind, 0) + 1


def _search(state: State, ctx: Context) -> None:
    _members(state, ctx.body or ctx.query)


def _search_by_query_string(state: State, ctx: Context) -> None:
    values = dict(ctx.query)
    values["sort"] = (values.get("sort") or "").split(",") if values.get("sort") else None
    values["hybrid"] = values.get("hybridEmbedder") and {"semanticRatio": values.get("hybridSemanticRatio") or 0.5}
    _members(state, values)


def _multi_search(state: State, ctx: Context) -> None:
    queries = ctx.body.get("queries") or ()
    uids = {query.get("indexUid") for query in queries}
    _average("searches.avg_search_count")(state, queries)
    _average("indexes.avg_distinct_index_count")(state, uids)
    state["searches.total_search_count"] += len(queries)
    state["indexes.total_distinct_index_count"] += len(uids)
    state["indexes.total_single_index"] += len(uids) == 1
    if ctx.body.get("federation") is not None:
        state["federation.use_federation"] = True
    remotes = {options["remote"] for query in queries if (options := query.get("federationOptions") or {}).get("remote")}
    if remotes:
        _average("remotes.avg_distinct_remote_count")(state, remotes)
        state["network"] = True
    for remote in remotes:
        _distinct("remotes.total_distinct_remote_count")(state, remote)
    for query in queries:
        _members(state, query)


def _facet_search(state: State, ctx: Context) -> None:
    _distinct("facets.total_distinct_facet_count")(state, ctx.body.get("facetName"))
    if ctx.body.keys() - {"facetName", "facetQuery"}:
        state["facets.additional_search_parameters_provided"] = True


# Documents and indexes

def _add_documents(state: State, ctx: Context) -> None:
    if ctx.query.get("primaryKey") is not None:
        state["primary_key"] = True
    kind = (ctx.request.headers.get("content-type") or "").partition(";")[0].strip().lower()
    _word("payload_type")(state, kind)
    if ctx.instance.index(ctx.index_uid) is None:
        state["index_creation"] = True


def _primary_key(state: State, ctx: Context) -> None:
    if ctx.body.get("primaryKey") is not None:
        state["primary_key"] = True


def _fetch(state: State, ctx: Context) -> None:
    asked = ctx.body or ctx.query
    if asked.get("filter"):
        state["per_filter"] = True
        _filter(state, asked["filter"])
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


# Settings

def _last(figure: str, measure: Callable[[Any], Any] = lambda value: value) -> Note:
    def note(state: State, value: Any) -> None:
        state[figure] = measure(value)

    return note


def _total(figure: str) -> Note:
    return _last(f"{figure}.total", lambda value: len(value or ()))


def _is_set(figure: str) -> Note:
    return _last(f"{figure}.set", lambda value: value is not None)


_RULE_FIGURES = {"words": ("words",), "typo": ("typo",), "proximity": ("proximity",),
                 "attribute": ("attribute", "attributeRank"), "sort": ("sort",), "exactness": ("exactness",)}


def _ranking_rules(state: State, rules: Sequence[str] | None) -> None:
    """Of rules of the owner only whether they go up or down: their names are those of fields."""
    known = [rule.rpartition(":")[2] for rule in rules or ()]
    state["ranking_rules.values"] = known
    for figure, names in _RULE_FIGURES.items():
        state[f"ranking_rules.{figure}_position"] = next((at for at, rule in enumerate(known) if rule in names), None)


def _patterns(rows: Any) -> list[str]:
    """The names that filterable attributes have: plain, or as patterns."""
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


_SETTINGS: Mapping[str, Note] = {
    "rankingRules": _ranking_rules,
    "sortableAttributes": _all(_total("sortable_attributes"),
                               _last("sortable_attributes.has_geo", lambda names: "_geo" in (names or ()))),
    "filterableAttributes": _all(
        _last("filterable_attributes.total", lambda rows: len(_patterns(rows))),
        _last("filterable_attributes.has_geo", lambda rows: "_geo" in _patterns(rows)),
        _last("filterable_attributes.has_patterns", lambda rows: any("*" in name for name in _patterns(rows)))),
    "searchableAttributes": _all(_total("searchable_attributes"),
                                 _last("searchable_attributes.with_wildcard", _has_wildcard)),
    "displayedAttributes": _all(_total("displayed_attributes"),
                                _last("displayed_attributes.with_wildcard", _has_wildcard)),
    "typoTolerance": _typo_tolerance,
    "faceting": _faceting,
    "pagination": _last("pagination.max_total_hits", lambda value: (value or {}).get("maxTotalHits")),
    "distinctAttribute": _is_set("distinct_attribute"),
    "proximityPrecision": _all(_is_set("proximity_precision"), _last("proximity_precision.value")),
    "facetSearch": _all(_is_set("facet_search"), _last("facet_search.value")),
    "prefixSearch": _all(_is_set("prefix_search"), _last("prefix_search.value")),
    "stopWords": _total("stop_words"),
    "separatorTokens": _total("separator_tokens"),
    "nonSeparatorTokens": _total("non_separator_tokens"),
    "dictionary": _total("dictionary"),
    "synonyms": _total("synonyms"),
    "embedders": _embedders,
}
_SETTINGS_PATH = "/indexes/{index_uid}/settings"


def _settings(state: State, ctx: Context) -> None:
    for name, value in ctx.body.items():
        if name in _SETTINGS:
            _SETTINGS[name](state, value)


def _of_one_setting(segment: str) -> Note | None:
    """segment: the last of its route, `stop-words`."""
    first, *rest = segment.split("-")
    note = _SETTINGS.get(first + "".join(word.capitalize() for word in rest))
    return None if note is None else lambda state, ctx: note(state, ctx.body)


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
    _average("export.avg_index_patterns")(state, indexes)
    _average("export.avg_patterns_with_filter", int)(
        state, sum(bool((options or {}).get("filter")) for options in indexes.values()))
    size = ctx.body.get("payloadSize")
    if isinstance(size, int):
        _average("export.avg_payload_size", int)(state, size)


_DOCUMENTS = "/indexes/{index_uid}/documents"
_NOTES: Mapping[_Key, Note] = {
    ("POST", "/indexes/{index_uid}/search"): _search,
    ("GET", "/indexes/{index_uid}/search"): _search_by_query_string,
    ("POST", "/multi-search"): _multi_search,
    ("POST", "/indexes/{index_uid}/facet-search"): _facet_search,
    ("POST", "/indexes/{index_uid}/similar"): _search,
    ("GET", "/indexes/{index_uid}/similar"): _search,
    ("POST", _DOCUMENTS): _add_documents,
    ("PUT", _DOCUMENTS): _add_documents,
    ("GET", _DOCUMENTS): _fetch,
    ("POST", f"{_DOCUMENTS}/fetch"): _fetch,
    ("GET", f"{_DOCUMENTS}/{{document_id}}"): _is_given("per_document_id"),
    ("DELETE", f"{_DOCUMENTS}/{{document_id}}"): _is_given("per_document_id"),
    ("DELETE", _DOCUMENTS): _is_given("clear_all"),
    ("POST", f"{_DOCUMENTS}/delete-batch"): _is_given("per_batch"),
    ("POST", f"{_DOCUMENTS}/delete"): _is_given("per_filter"),
    ("POST", f"{_DOCUMENTS}/edit"): _is_given("per_filter"),
    ("POST", "/indexes"): _all(_is_given("index_creation"), _primary_key),
    ("PATCH", "/indexes/{index_uid}"): _primary_key,
    ("GET", "/indexes/{index_uid}"): _is_given("per_index_uid"),
    ("GET", "/indexes/{index_uid}/stats"): _is_given("per_index_uid"),
    ("POST", "/swap-indexes"): _swap,
    ("GET", "/tasks"): _tasks,
    ("DELETE", "/tasks"): _tasks,
    ("POST", "/tasks/cancel"): _tasks,
    ("GET", "/batches"): _tasks,
    ("GET", "/tasks/{task_id}"): _is_given("per_task_uid"),
    ("PATCH", _SETTINGS_PATH): _settings,
    ("PATCH", "/network"): _network,
    ("POST", "/export"): _export,
    ("POST", "/webhooks"): _one_more("webhooks_created"),
    ("PATCH", "/webhooks/{uuid}"): _one_more("webhooks.updated"),
}


@lru_cache(maxsize=None)  # there are as many as routes
def _noted(key: _Key) -> Note | None:
    """What a request of a route adds; None for those that nothing is told of."""
    method, path = key
    before, _, segment = path.rpartition("/")
    if before == _SETTINGS_PATH and method in ("PUT", "PATCH"):
        return _of_one_setting(segment)
    return _NOTES.get(key)
