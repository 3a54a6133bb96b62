"""Names of the built-in ranking rules: one row each (docs/ranking.md#rules).

The check of the setting `rankingRules`, its default, the chain of a search and the usage report follow from these rows.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

WORDS, TYPO, PROXIMITY, ATTRIBUTE, SORT, EXACTNESS = "words", "typo", "proximity", "attribute", "sort", "exactness"
# `attribute` means both of these rules; a setting has either it or them.
ATTRIBUTE_RANK, WORD_POSITION = "attributeRank", "wordPosition"


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
}
DEFAULT_RANKING_RULES = [WORDS, TYPO, PROXIMITY, ATTRIBUTE_RANK, SORT, WORD_POSITION, EXACTNESS]


def is_attribute_split(ranking_rules: Iterable[str]) -> bool:
    """Return whether the setting names attribute rank or word position instead of `attribute`."""
    return any(rule in (ATTRIBUTE_RANK, WORD_POSITION) for rule in ranking_rules)
