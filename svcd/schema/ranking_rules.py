"""The setting `rankingRules`: the built-in rules, one row each, custom rules, and checks (docs/ranking.md#rules).

The check of the setting, its default, the chain of a search and the usage report follow from these rows.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from svcd.base.errors import ApiError

WORDS, TYPO, PROXIMITY, ATTRIBUTE, SORT, EXACTNESS = "words", "typo", "proximity", "attribute", "sort", "exactness"
# `attribute` means both of these rules; a setting has either it or them.
ATTRIBUTE_RANK, WORD_POSITION = "attributeRank", "wordPosition"
# An extension of the interface: its messages do not name it.
BM25 = "bm25"


class RuleName(NamedTuple):
    """ignored_after: entries that make a later entry of this name redundant. figure: its name in the usage report."""

    ignored_after: tuple[str, ...]
    figure: str | None


RULE_NAMES = {
    WORDS: RuleName((WORDS,), "words"),
    TYPO: RuleName((TYPO,), "typo"),
    PROXIMITY: RuleName((PROXIMITY,), "proximity"),
    ATTRIBUTE: RuleName((ATTRIBUTE, ATTRIBUTE_RANK, WORD_POSITION), "attribute"),
    ATTRIBUTE_RANK: RuleName((ATTRIBUTE, ATTRIBUTE_RANK), "attribute"),
    WORD_POSITION: RuleName((ATTRIBUTE, WORD_POSITION), None),
    SORT: RuleName((SORT,), "sort"),
    EXACTNESS: RuleName((EXACTNESS,), "exactness"),
    BM25: RuleName((BM25,), None),
}
DEFAULT_RANKING_RULES = [WORDS, TYPO, PROXIMITY, ATTRIBUTE_RANK, SORT, WORD_POSITION, EXACTNESS]


def with_bm25(ranking_rules: Sequence[str]) -> list[str]:
    """Return the setting with `bm25` in place of its first rule about words and without the others."""
    first = next((rule for rule in ranking_rules if rule in RULE_NAMES and rule != SORT), None)
    return [BM25 if rule == first else rule for rule in ranking_rules if rule in (first, SORT) or rule not in RULE_NAMES]


def is_attribute_split(ranking_rules: Iterable[str]) -> bool:
    """Return whether the setting names attribute rank or word position instead of `attribute`."""
    return any(rule in (ATTRIBUTE_RANK, WORD_POSITION) for rule in ranking_rules)


def custom_rule(rule: str) -> tuple[str, bool] | None:
    """Return (attribute, whether it is ascending) of a custom ranking rule such as `price:desc`; None for other rules."""
    attribute, _, direction = rule.rpartition(":")
    return (attribute, direction == "asc") if direction in ("asc", "desc") and ":" in rule else None


def custom_attributes(rules: Iterable[str]) -> list[str]:
    """Return the attributes of custom ranking rules, sorted."""
    return sorted({custom[0] for rule in rules if (custom := custom_rule(rule))})


_INVALID_RULE = ("`{}` ranking rule is invalid. Valid ranking rules are words, typo, sort, proximity, attribute, exactness and "
                 "custom ranking rules.")
_RESERVED_RULE = "`{}` is a reserved keyword and thus can't be used as a ranking rule"
_GEO_CALLS = {"_geoPoint": "sorting", "_geoRadius": "filtering", "_geoBoundingBox": "filtering"}  # name: its purpose
_RESERVED = frozenset({"_geo", "_geoDistance"})


def parse_ranking_rule(rule: str) -> str:
    """Return the ranking rule itself. Raises ValueError(reason) when it does not exist."""
    if rule in RULE_NAMES:
        return rule
    custom = custom_rule(rule)
    if custom is None:
        raise ValueError(_INVALID_RULE.format(rule))
    attribute = custom[0]
    name = attribute.partition("(")[0]
    if name in _GEO_CALLS:
        raise ValueError(f"{_RESERVED_RULE.format(name)}. `{name}` can only be used for {_GEO_CALLS[name]} at search time")
    if attribute in _RESERVED:
        raise ValueError(_RESERVED_RULE.format(attribute))
    return rule


def check_ranking_rules(rules: Sequence[str]) -> None:
    """Raise invalid_settings_ranking_rules if the setting has `attribute` and also one of the two rules that it means."""
    if ATTRIBUTE in rules and is_attribute_split(rules):
        raise ApiError(
            "invalid_settings_ranking_rules",
            "Mixed usage of the attribute, attributeRank, and wordPosition ranking rules. You must either use "
            "the attribute ranking rule alone or the attributeRank and wordPosition ranking rules.")
