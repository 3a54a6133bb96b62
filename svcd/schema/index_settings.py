"""The settings of one state of an index, typed, with what follows from them.

Readers hand out one IndexSettings per state of an index (`Reader.settings`); searching and indexing ask it instead of
the JSON object that the interface shows. What takes time to make (tokenizer, synonyms) is made when it is first asked for.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from svcd.schema import settings
from svcd.schema.attributes import WILDCARD, Filterable, Searchable, is_everything, locales_test
from svcd.text.analyzer import WORD, Analyzer, shared_analyzer, whole_lemma

# Bytes of the words of a synonym's key in UTF-8, plus one for each word; synonyms with longer keys have no effect.
LONGEST_KEY = 500
# Estimates for caches, in bytes: the object without the values of settings, and an alternative of a synonym, tokenized.
_OWN_BYTES, _SYNONYM_BYTES = 2000, 400


class TypoTolerance(NamedTuple):
    """How many typos a query word may have (docs/ranking.md#typos).

    one_typo, two_typos: the least number of characters of a word that may have so many. exact_words: lemmas of words
    that may have none. exact_attributes, has_exact_numbers: where and what is only found without typos.
    """

    is_enabled: bool
    one_typo: int
    two_typos: int
    exact_words: frozenset[str]
    exact_attributes: Sequence[str]
    has_exact_numbers: bool

    @classmethod
    def of(cls, setting: Mapping[str, Any]) -> TypoTolerance:
        """The resolved setting `typoTolerance`."""
        sizes = setting["minWordSizeForTypos"]
        return cls(setting["enabled"], sizes["oneTypo"], sizes["twoTypos"],
                   frozenset(map(whole_lemma, setting["disableOnWords"])), setting["disableOnAttributes"],
                   setting["disableOnNumbers"])

    def budget(self, word: str) -> int:
        """How many typos a word may have: 0, 1 or 2."""
        return 0 if word in self.exact_words else self.budget_of_length(len(word))

    def budget_of_length(self, length: int) -> int:
        """How many typos a text of this length may have: 0, 1 or 2. The list of exact words is not asked."""
        if not self.is_enabled or length < self.one_typo:
            return 0
        return 1 if length < self.two_typos else 2


class Faceting(NamedTuple):
    """How many values of a facet are shown, and in which order. orders: attribute, or `*` -> `alpha` or `count`."""

    max_values: int
    orders: Mapping[str, str]

    def order_of(self, field: str) -> str:
        """`alpha` or `count`: how the values of a field are ordered."""
        return self.orders.get(field) or self.orders.get(WILDCARD) or "alpha"


@dataclass(frozen=True, eq=False, repr=False)
class IndexSettings:
    """The settings of one state of an index, defaults filled in. Threads may share it; it never changes.

    resolved: all of them as answers show them, {name: value}. foreign_keys: attribute -> uid of the index whose documents
    it identifies. search_cutoff_ms: None for the default. localized_attributes: the rules of this setting, [] for none.
    """

    resolved: Mapping[str, Any]
    displayed_attributes: Sequence[str]
    searchable: Searchable
    filterable: Filterable
    sortable_attributes: Sequence[str]
    ranking_rules: Sequence[str]
    foreign_keys: Mapping[str, str]
    distinct_attribute: str | None
    is_proximity_by_attribute: bool
    faceting: Faceting
    max_total_hits: int
    embedders: Mapping[str, Any]
    search_cutoff_ms: int | None
    localized_attributes: Sequence[Mapping[str, Any]]
    has_facet_search: bool
    has_prefix_search: bool

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> IndexSettings:
        """The settings of an index of which these were set."""
        full = settings.resolved(stored)
        return cls(
            resolved=full,
            displayed_attributes=full["displayedAttributes"],
            searchable=Searchable(full["searchableAttributes"]),
            filterable=Filterable(full["filterableAttributes"]),
            sortable_attributes=full["sortableAttributes"],
            ranking_rules=full["rankingRules"],
            foreign_keys=_foreign_keys(full["foreignKeys"]),
            distinct_attribute=full["distinctAttribute"],
            is_proximity_by_attribute=full["proximityPrecision"] == "byAttribute",
            faceting=Faceting(full["faceting"]["maxValuesPerFacet"], full["faceting"]["sortFacetValuesBy"]),
            max_total_hits=full["pagination"]["maxTotalHits"],
            embedders=full["embedders"],
            search_cutoff_ms=full["searchCutoffMs"],
            localized_attributes=full["localizedAttributes"] or [],
            has_facet_search=full["facetSearch"],
            has_prefix_search=full["prefixSearch"] != "disabled",
        )

    @cached_property
    def is_everything_displayed(self) -> bool:
        """May hits show every attribute?"""
        return is_everything(self.displayed_attributes)

    @cached_property
    def typo_tolerance(self) -> TypoTolerance:
        """Which words may have typos, and how many."""
        return TypoTolerance.of(self.resolved["typoTolerance"])

    @cached_property
    def analyzer(self) -> Analyzer:
        """The tokenizer of documents and queries; indexes with equal settings share it."""
        return shared_analyzer(*(tuple(self.resolved[name]) for name in (
            "stopWords", "separatorTokens", "nonSeparatorTokens", "dictionary")))

    @cached_property
    def synonyms(self) -> Mapping[tuple[str, ...], Sequence[tuple[str, ...]]]:
        """Words of a key -> the phrases that are found in its place, sorted; keys of the same words are one."""
        merged: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for text, alternatives in self.resolved["synonyms"].items():
            key = self._words(text)
            phrases = {words for words in map(self._words, alternatives) if words}
            size = sum(len(word.encode()) for word in key) + len(key)
            if key and phrases and size < LONGEST_KEY:
                merged.setdefault(key, set()).update(phrases)
        return {key: sorted(phrases) for key, phrases in merged.items()}

    @cached_property
    def locales_of(self) -> Callable[[str], Sequence[str] | None]:
        """attribute -> the languages its texts may be in, None where the settings do not say."""
        return locales_test(self.localized_attributes)

    def _words(self, text: str) -> tuple[str, ...]:
        return tuple(token.lemma for token in self.analyzer.tokens(text) if token.kind == WORD and token.lemma)

    def __sizeof__(self) -> int:
        """An estimate of its bytes for caches, with what may be made later; the tokenizer is shared."""
        synonyms = sum(map(len, self.resolved["synonyms"].values()))
        return _OWN_BYTES + sum(map(sys.getsizeof, self.resolved.values())) + synonyms * _SYNONYM_BYTES


def _foreign_keys(keys: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Attribute -> index uid; of several keys for one attribute the first counts."""
    found: dict[str, str] = {}
    for key in keys:
        found.setdefault(key["fieldName"], key["foreignIndexUid"])
    return found
