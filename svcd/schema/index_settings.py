"""The settings of one state of an index, typed, with the objects derived from them.

Readers return one IndexSettings per state of an index (`Reader.settings`); searching and indexing use it instead of
the JSON object of the interface. Expensive parts (tokenizer, synonyms) are made on first use.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from svcd.schema import settings
from svcd.schema.attributes import WILDCARD, Filterable, Searchable, is_everything, locales_test
from svcd.schema.ranking_rules import BM25
from svcd.schema.word_weights import Stemming, WordWeights
from svcd.text.analyzer import WORD, Analyzer, shared_analyzer, whole_lemma
from svcd.text.stop_words import stop_words

# Bytes of the words of a synonym's key in UTF-8, plus one for each word; synonyms with longer keys have no effect.
LONGEST_KEY = 500
# Estimates for caches, in bytes: the object without the values of settings, and an alternative of a synonym, tokenized.
_OWN_BYTES, _SYNONYM_BYTES = 2000, 400


class TypoTolerance(NamedTuple):
    """The number of typos that a query word may have (docs/ranking.md#typos).

    one_typo, two_typos: the least number of characters of a word for this many typos. exact_words: lemmas of words
    without typos. exact_attributes, has_exact_numbers: attributes and numbers that are found without typos only.
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
        """Return the number of typos that a word may have: 0, 1 or 2."""
        if not self.is_enabled or len(word) < self.one_typo or word in self.exact_words:
            return 0
        return 1 if len(word) < self.two_typos else 2

    def budget_of_length(self, length: int) -> int:
        """Return the number of typos that a text of this length may have: 0, 1 or 2. Exact words are not considered."""
        if not self.is_enabled or length < self.one_typo:
            return 0
        return 1 if length < self.two_typos else 2


class Bm25(NamedTuple):
    """The parameters of BM25 (docs/ranking.md#bm25). weights: attribute -> weight of its words; 1 for all others."""

    weights: Mapping[str, float]
    k1: float
    b: float


class Faceting(NamedTuple):
    """The number and the order of shown facet values. orders: attribute, or `*` -> `alpha` or `count`."""

    max_values: int
    orders: Mapping[str, str]

    def order_of(self, field: str) -> str:
        """Return the order of the values of a field: `alpha` or `count`."""
        return self.orders.get(field) or self.orders.get(WILDCARD) or "alpha"


@dataclass(frozen=True, eq=False, repr=False)
class IndexSettings:
    """The settings of one state of an index, defaults filled in. Threads may share it; it never changes.

    resolved: all settings as answers show them, {name: value}. foreign_keys: attribute -> uid of the index whose documents
    it identifies. search_cutoff_ms: None for the default. localized_attributes: the rules of this setting, or [].
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
    default_matching_strategy: str

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> IndexSettings:
        """Return the settings of an index. stored: the settings that were set."""
        full = settings.resolved(stored)
        foreign_keys: dict[str, str] = {}
        for key in full["foreignKeys"]:  # the first key for an attribute counts
            foreign_keys.setdefault(key["fieldName"], key["foreignIndexUid"])
        return cls(
            resolved=full, displayed_attributes=full["displayedAttributes"], searchable=Searchable(full["searchableAttributes"]),
            filterable=Filterable(full["filterableAttributes"]), sortable_attributes=full["sortableAttributes"],
            ranking_rules=full["rankingRules"], foreign_keys=foreign_keys, distinct_attribute=full["distinctAttribute"],
            is_proximity_by_attribute=full["proximityPrecision"] == "byAttribute",
            faceting=Faceting(full["faceting"]["maxValuesPerFacet"], full["faceting"]["sortFacetValuesBy"]),
            max_total_hits=full["pagination"]["maxTotalHits"], embedders=full["embedders"],
            search_cutoff_ms=full["searchCutoffMs"], localized_attributes=full["localizedAttributes"] or [],
            has_facet_search=full["facetSearch"], has_prefix_search=full["prefixSearch"] != "disabled",
            default_matching_strategy=full["defaultMatchingStrategy"])

    @cached_property
    def is_everything_displayed(self) -> bool:
        """Whether hits may show every attribute."""
        return is_everything(self.displayed_attributes)

    @cached_property
    def typo_tolerance(self) -> TypoTolerance:
        """The words that may have typos, and the number of typos."""
        return TypoTolerance.of(self.resolved["typoTolerance"])

    @cached_property
    def analyzer(self) -> Analyzer:
        """The tokenizer of documents and queries; indexes with equal settings share it."""
        return shared_analyzer(*(tuple(self.resolved[name]) for name in (
            "stopWords", "separatorTokens", "nonSeparatorTokens", "dictionary")),
            self.resolved["cjk"] == "bigrams", self.resolved["foldWidth"])

    @cached_property
    def synonyms(self) -> Mapping[tuple[str, ...], Sequence[tuple[str, ...]]]:
        """Words of a key -> the phrases that are also found, sorted; keys with the same words are merged."""
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
        """attribute -> the possible languages of its texts, None if the settings name none."""
        return locales_test(self.localized_attributes)

    @cached_property
    def bm25(self) -> Bm25:
        """The parameters of BM25."""
        return Bm25(**(self.resolved["bm25"] or settings.BM25_DEFAULTS))

    @cached_property
    def stemming(self) -> Stemming:
        """The languages of fields whose words are stemmed."""
        rules = [entry for entry in self.resolved["stemming"] if not isinstance(entry, str)]
        of_all = [entry for entry in self.resolved["stemming"] if isinstance(entry, str)]
        # The first rule that matches decides, so the languages of all attributes come after all others.
        return Stemming([*rules, {"attributePatterns": [WILDCARD], "locales": of_all}] if of_all else rules)

    @cached_property
    def word_weights(self) -> WordWeights:
        """The index terms, frequencies and lengths of BM25."""
        return WordWeights(self.bm25.weights, self.stemming)

    @cached_property
    def common_words(self) -> frozenset[str]:
        """The stop words of the languages in `stemming`, which BM25 does not count; none if the setting `stopWords` replaces
        them."""
        return frozenset() if self.resolved["stopWords"] else stop_words(self.stemming.languages)

    @property
    def stores_word_weights(self) -> bool:
        """Whether the index stores frequencies and lengths for BM25: a setting asks for it."""
        return (self.default_matching_strategy == "bm25" or BM25 in self.ranking_rules
                or self.resolved["bm25"] is not None)

    def _words(self, text: str) -> tuple[str, ...]:
        return tuple(token.lemma for token in self.analyzer.tokens(text) if token.kind == WORD and token.lemma)

    def __sizeof__(self) -> int:
        """Return an estimate of its bytes for caches, including parts that may be made later; the tokenizer is shared."""
        synonyms = sum(map(len, self.resolved["synonyms"].values()))
        return _OWN_BYTES + sum(map(sys.getsizeof, self.resolved.values())) + synonyms * _SYNONYM_BYTES
