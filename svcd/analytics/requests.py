"""What searches and changes of settings add to the usage report, by member of their bodies.

Only numbers, flags and known words are taken from a request, never its texts.
"""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from svcd.analytics.figures import FigureUpdate, State, adds, adds_distinct, adds_each, all_of

if TYPE_CHECKING:
    from svcd.api.context import Context


# Characters of a query that are looked at.
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
    """A filter: its syntax, and the functions that it uses."""
    parts = _flat(value)
    syntax = "string" if not isinstance(value, list) else "mixed" if _is_mixed(parts) else "array"
    adds("filter.most_used_syntax")(state, syntax)
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
    """The elements of nested lists."""
    flat, left = [], [value]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        else:
            flat.append(each)
    return flat


def _is_mixed(parts: Sequence[Any]) -> bool:
    """Are there whole expressions inside an array?"""
    return any(isinstance(part, str) and (" AND " in part or " OR " in part) for part in parts)


def _sort(state: State, rules: Sequence[str]) -> None:
    adds("sort.avg_criteria_number")(state, rules)
    if any(rule.startswith("_geoPoint") for rule in rules):
        state["sort.with_geoPoint"] = True


def _hybrid(state: State, value: Mapping[str, Any]) -> None:
    state["hybrid.enabled"] = True
    if value.get("semanticRatio", 0.5) != 0.5:
        state["hybrid.semantic_ratio"] = True


# Members with a default count only when they differ from it, because a query string decodes to all of them.
_SEARCH_MEMBERS: Mapping[str, FigureUpdate] = {
    "q": _q,
    "offset": adds("pagination.max_offset"),
    "limit": adds("pagination.max_limit"),
    "hitsPerPage": adds("pagination.max_limit"),
    "attributesToRetrieve": adds("formatting.max_attributes_to_retrieve", len),
    "attributesToCrop": adds("formatting.max_attributes_to_crop", len),
    "cropLength": adds("formatting.crop_length", lambda value: value != 10),
    "cropMarker": adds("formatting.crop_marker", lambda value: value != "…"),
    "attributesToHighlight": adds("formatting.max_attributes_to_highlight", len),
    "highlightPreTag": adds("formatting.highlight_pre_tag", lambda value: value != "<em>"),
    "highlightPostTag": adds("formatting.highlight_post_tag", lambda value: value != "</em>"),
    "showMatchesPosition": adds("formatting.show_matches_position"),
    "filter": note_filter,
    "sort": _sort,
    "distinct": adds("distinct"),
    "facets": adds("facets.avg_facets_number"),
    "matchingStrategy": adds("matching_strategy.most_used_strategy"),
    "attributesToSearchOn": adds("attributes_to_search_on.total_number_of_uses"),
    "rankingScoreThreshold": adds("scoring.ranking_score_threshold"),
    "locales": adds_each("locales"),
    "hybrid": _hybrid,
    "vector": adds("vector.max_vector_size", len),
    "retrieveVectors": adds("vector.retrieve_vectors"),
    "media": all_of(adds("multimodal"), adds("hybrid.total_media")),
    "showRankingScore": adds("scoring.show_ranking_score"),
    "showRankingScoreDetails": adds("scoring.show_ranking_score_details"),
}


_WITHOUT_PAGES = ("offset", "limit")  # without effect on a search by pages


def _members(state: State, values: Mapping[str, Any]) -> None:
    """The members of one search; null, false, zero and empty values do not count."""
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


# Changes of settings: how many elements and which kind, never a name.

def _total(figure: str) -> FigureUpdate:
    return adds(f"{figure}.total", lambda value: len(value or ()))


def _is_set(figure: str) -> FigureUpdate:
    return adds(f"{figure}.set", lambda value: value is not None)


_RULE_FIGURES = {"words": ("words",), "typo": ("typo",), "proximity": ("proximity",),
                 "attribute": ("attribute", "attributeRank"), "sort": ("sort",), "exactness": ("exactness",)}


def _ranking_rules(state: State, rules: Sequence[str] | None) -> None:
    """Of custom rules only the direction: their names are names of fields."""
    known = [rule.rpartition(":")[2] for rule in rules or ()]
    state["ranking_rules.values"] = known
    for figure, names in _RULE_FIGURES.items():
        state[f"ranking_rules.{figure}_position"] = next((at for at, rule in enumerate(known) if rule in names), None)


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
    "searchableAttributes": all_of(_total("searchable_attributes"),
                                 adds("searchable_attributes.with_wildcard", _has_wildcard)),
    "displayedAttributes": all_of(_total("displayed_attributes"),
                                adds("displayed_attributes.with_wildcard", _has_wildcard)),
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
