"""Checks of the values of settings: shape, messages, and the form in which a value is stored (sorted sets, complete patterns).

What holds across several settings is checked in `svcd.schema.settings`.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from svcd.validation import (
    Check,
    Field,
    array_of,
    boolean,
    bounded,
    map_of,
    non_zero,
    nullable,
    number,
    object_of,
    object_or,
    one_of,
    parsed,
    positive_integer,
    string,
)
from svcd.validation.names import locale

WILDCARD = "*"

_WORD_RULES = frozenset(
    {"words", "typo", "proximity", "attribute", "attributeRank", "wordPosition", "sort", "exactness"})
_INVALID_RULE = (
    "`{}` ranking rule is invalid. Valid ranking rules are words, typo, sort, proximity, attribute, exactness "
    "and custom ranking rules."
)
_RESERVED_RULE = "`{}` is a reserved keyword and thus can't be used as a ranking rule"
# (prefix of the field of a custom rule, reserved name, what this name is for), for the message.
_GEO_CALLS = (
    ("_geoPoint", "_geoPoint", "sorting"),
    ("_geoRadius", "_geoRadius", "filtering"),
    ("_geoBoundingBox", "_geoBoundingBox", "filtering"),
)
_RESERVED = frozenset({"_geo", "_geoDistance"})


def _sorted_set(texts: Sequence[str]) -> list[str]:
    return sorted(set(texts))


def _sorted_map(value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(value.items()))


def _without_wildcard(names: list[str]) -> list[str] | None:
    """None, the value that resets the setting, if one of the names is `*`, which means all."""
    return None if WILDCARD in names else names


def custom_rule(rule: str) -> tuple[str, bool] | None:
    """(attribute, is it ascending?) of a custom ranking rule such as `price:desc`; None for other rules."""
    attribute, _, direction = rule.rpartition(":")
    return (attribute, direction == "asc") if direction in ("asc", "desc") and ":" in rule else None


def parse_ranking_rule(rule: str) -> str:
    """The ranking rule itself. Raises ValueError(reason) when it does not exist."""
    if rule in _WORD_RULES:
        return rule
    custom = custom_rule(rule)
    if custom is None:
        raise ValueError(_INVALID_RULE.format(rule))
    attribute = custom[0]
    for beginning, name, use in _GEO_CALLS:
        if attribute == beginning or attribute.startswith(f"{beginning}("):
            reserved = _RESERVED_RULE.format(name)
            raise ValueError(f"{reserved}. `{name}` can only be used for {use} at search time")
    if attribute in _RESERVED:
        raise ValueError(_RESERVED_RULE.format(attribute))
    return rule


def typo_sizes_refusal(one_typo: int, two_typos: int) -> str:
    """Why two sizes are inconsistent; "" when they are not. The unpaired back-quote is part of the interface."""
    if one_typo <= two_typos:
        return ""
    return (
        "`minWordSizeForTypos` setting is invalid. `oneTypo` and `twoTypos` fields should be between `0` and "
        "`255`, and `twoTypos` should be greater or equals to `oneTypo` but found "
        f"`oneTypo: {one_typo}` and twoTypos: {two_typos}`."
    )


def _checked_typo_sizes(sizes: Mapping[str, int | None]) -> Mapping[str, int | None]:
    one_typo, two_typos = sizes.get("oneTypo"), sizes.get("twoTypos")
    refusal = "" if one_typo is None or two_typos is None else typo_sizes_refusal(one_typo, two_typos)
    if refusal:
        raise ValueError(refusal)
    return sizes


def _ratio(name: str) -> Check:
    """A check of numbers from 0 to 1. name: of the member, for the message."""

    def parse(value: float) -> float:
        if 0 <= value <= 1:
            return value
        raise ValueError(f"the value of `{name}` is invalid, expected a float between `0.0` and `1.0`.")

    return parsed(number, parse)


def _patch_of(checks: Mapping[str, Check]) -> Check:
    """A check of objects whose members may be absent (keep the stored value) or null (reset it)."""
    return object_of({member: Field(nullable(check)) for member, check in checks.items()})


strings = array_of(string)
string_set = parsed(strings, _sorted_set)
attributes = parsed(strings, _without_wildcard)
ranking_rules = array_of(parsed(string, parse_ranking_rule))
synonyms = parsed(map_of(strings), _sorted_map)

_FILTER_FEATURES = {"equality": True, "comparison": False}
_FEATURES = {"facetSearch": False, "filter": _FILTER_FEATURES}


def _switches(defaults: Mapping[str, bool]) -> dict[str, Field]:
    return {name: Field(boolean, default=default) for name, default in defaults.items()}


_attribute_patterns = Field(strings, required=True)
_filter_features = object_of({
    "facetSearch": Field(boolean, default=_FEATURES["facetSearch"]),
    "filter": Field(object_of(_switches(_FILTER_FEATURES)), default=_FILTER_FEATURES),
})
filterable_attributes = array_of(object_or(
    object_of({"attributePatterns": _attribute_patterns, "features": Field(_filter_features, default=_FEATURES)}),
    string,
))
foreign_keys = array_of(object_of({
    "foreignIndexUid": Field(string, required=True),
    "fieldName": Field(string, required=True),
}))
localized_attributes = array_of(object_of({
    "attributePatterns": _attribute_patterns,
    "locales": Field(array_of(locale), required=True),
}))
typo_tolerance = _patch_of({
    "enabled": boolean,
    "minWordSizeForTypos": parsed(_patch_of(dict.fromkeys(("oneTypo", "twoTypos"), bounded(255))), _checked_typo_sizes),
    "disableOnWords": string_set,
    "disableOnAttributes": string_set,
    "disableOnNumbers": boolean,
})
faceting = _patch_of({
    "maxValuesPerFacet": positive_integer,
    "sortFacetValuesBy": parsed(map_of(one_of("alpha", "count")), _sorted_map),
})
pagination = _patch_of({"maxTotalHits": non_zero})
SEARCH_PARAMETERS = {
    "hybrid": object_of({
        "semanticRatio": Field(_ratio("semanticRatio"), default=0.5),
        "embedder": Field(string, required=True),
    }),
    "limit": positive_integer,
    "sort": strings,
    "distinct": string,
    "matchingStrategy": one_of("last", "all", "frequency"),
    "attributesToSearchOn": strings,
    "rankingScoreThreshold": _ratio("rankingScoreThreshold"),
}
chat = _patch_of({
    "description": string,
    "documentTemplate": string,
    "documentTemplateMaxBytes": positive_integer,
    "searchParameters": _patch_of(SEARCH_PARAMETERS),
})
