"""What a search adds to the usage report, alone, among others, or in a facet.

Knows the members of their bodies; refuses to know how a search is done.
"""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from svcd.api.usage_kinds import Note, average, distinct, each_of, is_given, is_not, largest, one_more, word, words
from svcd.remote.usage_figures import State

if TYPE_CHECKING:
    from svcd.api.context import Context

# Of a query, enough to count its words.
_MOST_TEXT = 10_000
_NEGATIVE = re.compile(r'(?:^|\s)-["\w]')


def _q(state: State, text: str) -> None:
    text = text[:_MOST_TEXT]
    count = len(text.split())
    if count > state["q.max_terms_number"]:
        state["q.max_terms_number"] = count
    if "-" in text and _NEGATIVE.search(text):
        state["requests.total_used_negative_operator"] += 1


def note_filter(state: State, value: Any) -> None:
    """A filter: how it is written, and which of its functions it uses."""
    parts = _flat(value)
    syntax = "string" if not isinstance(value, list) else "mixed" if _is_mixed(parts) else "array"
    word("filter.most_used_syntax")(state, syntax)
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
    """The elements of lists in lists, however deep."""
    flat, left = [], [value]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        else:
            flat.append(each)
    return flat


def _is_mixed(parts: Sequence[Any]) -> bool:
    """Whole expressions inside an array, too."""
    return any(isinstance(part, str) and (" AND " in part or " OR " in part) for part in parts)


def _sort(state: State, rules: Sequence[str]) -> None:
    average("sort.avg_criteria_number")(state, rules)
    if any(rule.startswith("_geoPoint") for rule in rules):
        state["sort.with_geoPoint"] = True


def _hybrid(state: State, value: Mapping[str, Any]) -> None:
    state["hybrid.enabled"] = True
    if value.get("semanticRatio", 0.5) != 0.5:
        state["hybrid.semantic_ratio"] = True


# Of members with a default only what differs from it: a query string has them all.
_SEARCH_MEMBERS: Mapping[str, Note] = {
    "q": _q,
    "offset": largest("pagination.max_offset"),
    "limit": largest("pagination.max_limit"),
    "hitsPerPage": largest("pagination.max_limit"),
    "attributesToRetrieve": largest("formatting.max_attributes_to_retrieve", len),
    "attributesToCrop": largest("formatting.max_attributes_to_crop", len),
    "cropLength": is_not("formatting.crop_length", 10),
    "cropMarker": is_not("formatting.crop_marker", "…"),
    "attributesToHighlight": largest("formatting.max_attributes_to_highlight", len),
    "highlightPreTag": is_not("formatting.highlight_pre_tag", "<em>"),
    "highlightPostTag": is_not("formatting.highlight_post_tag", "</em>"),
    "showMatchesPosition": is_given("formatting.show_matches_position"),
    "filter": note_filter,
    "sort": _sort,
    "distinct": is_given("distinct"),
    "facets": average("facets.avg_facets_number"),
    "matchingStrategy": word("matching_strategy.most_used_strategy"),
    "attributesToSearchOn": one_more("attributes_to_search_on.total_number_of_uses"),
    "rankingScoreThreshold": is_given("scoring.ranking_score_threshold"),
    "locales": words("locales"),
    "hybrid": _hybrid,
    "vector": largest("vector.max_vector_size", len),
    "retrieveVectors": is_given("vector.retrieve_vectors"),
    "media": each_of(is_given("multimodal"), one_more("hybrid.total_media")),
    "showRankingScore": is_given("scoring.show_ranking_score"),
    "showRankingScoreDetails": is_given("scoring.show_ranking_score_details"),
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


def search(state: State, ctx: Context) -> None:
    """One search with a body, or with a query string of the same members."""
    _members(state, ctx.body or ctx.query)


def search_by_query_string(state: State, ctx: Context) -> None:
    """One search with a query string."""
    values = dict(ctx.query)
    values["sort"] = (values.get("sort") or "").split(",") if values.get("sort") else None
    values["hybrid"] = values.get("hybridEmbedder") and {"semanticRatio": values.get("hybridSemanticRatio") or 0.5}
    _members(state, values)


def multi_search(state: State, ctx: Context) -> None:
    """Many searches in one request."""
    queries = ctx.body.get("queries") or ()
    uids = {query.get("indexUid") for query in queries}
    average("searches.avg_search_count")(state, queries)
    average("indexes.avg_distinct_index_count")(state, uids)
    state["searches.total_search_count"] += len(queries)
    state["indexes.total_distinct_index_count"] += len(uids)
    state["indexes.total_single_index"] += len(uids) == 1
    if ctx.body.get("federation") is not None:
        state["federation.use_federation"] = True
    remotes = {options["remote"] for query in queries if (options := query.get("federationOptions") or {}).get("remote")}
    if remotes:
        average("remotes.avg_distinct_remote_count")(state, remotes)
        state["network"] = True
    for remote in remotes:
        distinct("remotes.total_distinct_remote_count")(state, remote)
    for query in queries:
        _members(state, query)


def facet_search(state: State, ctx: Context) -> None:
    """One search in the values of a facet."""
    distinct("facets.total_distinct_facet_count")(state, ctx.body.get("facetName"))
    if ctx.body.keys() - {"facetName", "facetQuery"}:
        state["facets.additional_search_parameters_provided"] = True
