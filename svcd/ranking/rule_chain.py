"""Which rules a search runs, in which order: from the setting `rankingRules` to rules (relevance.md 3.1).

Knows the names of the setting and what each of them brings; refuses to know what a rule does.
"""
from __future__ import annotations

from typing import Callable, Iterable, Sequence

from svcd.query.graph import MatchingStrategy
from svcd.query.sort_expressions import parse_rule
from svcd.ranking.attribute import AttributeRank, WordPosition
from svcd.ranking.exactness import ExactAttribute, ExactWords
from svcd.ranking.proximity import Proximity
from svcd.ranking.rule import RankingContext, Rule
from svcd.ranking.sort import GeoSort, Sort
from svcd.ranking.words import Typo, Words

_WORDS = "words"
_SORT = "sort"
_ATTRIBUTE_RULES = ("attribute", "attributeRank", "wordPosition")

# entry: (rules it brings, entries that make it void when met before it)
_WORD_RULES: dict[str, tuple[Sequence[Callable[[RankingContext], Rule]], Sequence[str]]] = {
    "typo": ((Typo,), ("typo",)),
    "proximity": ((Proximity,), ("proximity",)),
    "attribute": ((AttributeRank, WordPosition), _ATTRIBUTE_RULES),
    "attributeRank": ((AttributeRank,), ("attribute", "attributeRank")),
    "wordPosition": ((WordPosition,), ("attribute", "wordPosition")),
    "exactness": ((ExactAttribute, ExactWords), ("exactness",)),
}


def is_separated(ranking_rules: Iterable[str]) -> bool:
    """Are the two halves of `attribute` shown as rules of their own (3.2)?"""
    return any(rule in ("attributeRank", "wordPosition") for rule in ranking_rules)


def chain(
    shared: RankingContext, ranking_rules: Iterable[str], sort: Sequence[str], has_terms: bool
) -> list[Rule]:
    """The rules of one search.

    sort: of the request, as parse_rule takes them. has_terms: without terms (placeholder
    search) only the rules that sort are left.
    """
    built = _Chain(shared, sort, has_terms)
    for entry in ranking_rules:
        built.add(entry)
    return built.rules


class _Chain:
    def __init__(self, shared: RankingContext, sort: Sequence[str], has_terms: bool) -> None:
        self.rules: list[Rule] = []
        self._shared = shared
        self._sort = sort
        self._has_terms = has_terms
        self._met: set[str] = set()
        self._sorted_fields: set[str] = set()

    def add(self, entry: str) -> None:
        """The rules of one entry of the setting."""
        if entry == _WORDS:
            self._add_words()
        elif entry in _WORD_RULES:
            self._add_word_rules(entry)
        elif entry == _SORT:
            self._add_sorts()
        else:
            self._add_sort(entry)

    def _add_words(self) -> None:
        if _WORDS not in self._met and self._has_terms:
            self._met.add(_WORDS)
            if self._shared.strategy is not MatchingStrategy.ALL:
                self.rules.append(Words(self._shared))

    def _add_word_rules(self, entry: str) -> None:
        if not self._has_terms:
            return
        self._add_words()  # dropped words weigh more than anything else about words
        made, void_after = _WORD_RULES[entry]
        if self._met.isdisjoint(void_after):
            self._met.add(entry)
            self.rules.extend(make(self._shared) for make in made)

    def _add_sorts(self) -> None:
        if _SORT not in self._met:
            self._met.add(_SORT)
            for entry in self._sort:
                rule = parse_rule(entry)
                if rule.point:
                    self.rules.append(GeoSort(self._shared, rule.point, rule.is_ascending))
                else:
                    self._add_sort(entry)

    def _add_sort(self, entry: str) -> None:
        field, _, direction = entry.rpartition(":")
        if field not in self._sorted_fields:
            self._sorted_fields.add(field)
            self.rules.append(Sort(self._shared, field, direction == "asc"))
