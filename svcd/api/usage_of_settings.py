"""What a change of settings adds to the usage report: how many and which kind, never a name.

Knows the settings by their names in bodies; refuses to know what they do.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from svcd.api.usage_kinds import Note, each_of, last
from svcd.remote.usage_figures import State

if TYPE_CHECKING:
    from svcd.api.context import Context


def _total(figure: str) -> Note:
    return last(f"{figure}.total", lambda value: len(value or ()))


def _is_set(figure: str) -> Note:
    return last(f"{figure}.set", lambda value: value is not None)


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
    "sortableAttributes": each_of(_total("sortable_attributes"),
                               last("sortable_attributes.has_geo", lambda names: "_geo" in (names or ()))),
    "filterableAttributes": each_of(
        last("filterable_attributes.total", lambda rows: len(_patterns(rows))),
        last("filterable_attributes.has_geo", lambda rows: "_geo" in _patterns(rows)),
        last("filterable_attributes.has_patterns", lambda rows: any("*" in name for name in _patterns(rows)))),
    "searchableAttributes": each_of(_total("searchable_attributes"),
                                 last("searchable_attributes.with_wildcard", _has_wildcard)),
    "displayedAttributes": each_of(_total("displayed_attributes"),
                                last("displayed_attributes.with_wildcard", _has_wildcard)),
    "typoTolerance": _typo_tolerance,
    "faceting": _faceting,
    "pagination": last("pagination.max_total_hits", lambda value: (value or {}).get("maxTotalHits")),
    "distinctAttribute": _is_set("distinct_attribute"),
    "proximityPrecision": each_of(_is_set("proximity_precision"), last("proximity_precision.value")),
    "facetSearch": each_of(_is_set("facet_search"), last("facet_search.value")),
    "prefixSearch": each_of(_is_set("prefix_search"), last("prefix_search.value")),
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


def of_one(segment: str) -> Note | None:
    """What a change of one setting adds. segment: the last of its route, `stop-words`."""
    first, *rest = segment.split("-")
    note = _SETTINGS.get(first + "".join(word.capitalize() for word in rest))
    return None if note is None else lambda state, ctx: note(state, ctx.body)
