"""Bucket sort: the only loop over ranking rules, and the only place that knows how many hits are wanted.

Knows how buckets nest, when enough is found, what a threshold rejects and what happens when the time
is over (relevance.md 3.12, 3.14, 3.16, 3.17); refuses to know what a rule looks at.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from svcd.base.bitmaps import DocIds, to_docids
from svcd.query.graph import Graph, MatchingStrategy
from svcd.ranking.attribute import AttributeRank, WordPosition
from svcd.ranking.distinct import Distinct
from svcd.ranking.exactness import ExactAttribute, ExactWords
from svcd.ranking.forward_index import CandidateBatch
from svcd.ranking.proximity import Proximity
from svcd.ranking.rule import Bucket, RankingContext, Rule
from svcd.ranking.scores import Detail, Skipped, score
from svcd.ranking.sort import GeoSort, Sort, parse_rule
from svcd.ranking.words import Typo, Words

# Which rules a search runs, in which order: from the setting `rankingRules` to rules (relevance.md 3.1).
#
# Knows the names of the setting and what each of them brings; refuses to know what a rule does.


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


Details = tuple[Detail, ...]


class Hit(NamedTuple):
    """A document with what each rule said of it, in the order of the rules."""

    docid: int
    details: Details


@dataclass(frozen=True, slots=True)
class RankingLimits:
    """How much of the ranking is asked for.

    hits: how many at most. threshold: documents of a lower score are left out and not counted.
    to_the_end: rank everything even when there are hits enough, so that the count is exact.
    order_alone: nobody asks how a hit came to its place, so the details of hits may stop early.
    exact_total: with `distinct`, count no document that shares a value with another.
    """

    hits: int
    threshold: float | None = None
    to_the_end: bool = False
    order_alone: bool = False
    exact_total: bool = False


@dataclass(slots=True)
class Ranking:
    """The best documents, and the set over which hits are counted."""

    counted: DocIds
    hits: list[Hit] = field(default_factory=list)


def rank(
    rules: Sequence[Rule], graph: Graph, universe: DocIds, wanted: RankingLimits, expired: Callable[[], bool],
    distinct: Distinct | None = None,
) -> Ranking:
    """The best documents of the universe, by the first rule, then the second one within its buckets...

    Equal documents come by docid. expired: is the time over? Asked before each bucket. distinct: of what no two
    hits may share a value.
    """
    return _BucketSort(rules, wanted, expired, distinct, universe).sort(graph)


class _BucketSort:
    def __init__(
        self, rules: Sequence[Rule], wanted: RankingLimits, expired: Callable[[], bool], distinct: Distinct | None,
        universe: DocIds,
    ) -> None:
        self._rules = rules
        self._wanted = wanted
        self._expired = expired
        self._distinct = distinct
        self._ranking = Ranking(universe)
        self._excluded = 0  # they share a value with a hit

    def sort(self, graph: Graph) -> Ranking:
        ranking, universe = self._ranking, self._ranking.counted
        self._descend(0, lambda: graph, universe, ())
        if self._distinct is not None and self._wanted.exact_total:
            # Without rules the hits are the first of the walk that counts all groups.
            ranking.counted = self._distinct.groups(ranking.counted if self._rules else universe)
        return ranking

    def _descend(
        self, level: int, graph: Callable[[], Graph], universe: DocIds, details: Details, group: CandidateBatch | None = None
    ) -> None:
        """Split the universe by the rules from `level` on. group: the universe is a set of its documents."""
        if level == len(self._rules) or (self._wanted.order_alone and _is_one(universe)):
            self._deliver(universe, details, group)
            return
        group, universe, buckets = _begun(self._rules[level], graph(), universe, group)
        while universe and not self._is_done():
            if self._expired():
                self._deliver(universe, (*details, Skipped()), group)
                return
            bucket = next(buckets, None)
            if bucket is None:
                return
            docids = bucket.docids
            if self._excluded:
                docids &= universe
                if not docids:
                    continue
            found = (*details, bucket.detail)
            if self._is_rejected(found):  # and so is all that comes behind it
                self._ranking.counted &= ~(universe if group is None else group.docids(universe))
                return
            universe ^= docids
            self._descend(level + 1, bucket.graph, docids, found, group)
            if self._excluded:
                universe &= ~(self._excluded if group is None else group.of(self._excluded))

    def _is_done(self) -> bool:
        return len(self._ranking.hits) >= self._wanted.hits and not self._wanted.to_the_end

    def _is_rejected(self, details: Details) -> bool:
        threshold = self._wanted.threshold
        return threshold is not None and score(details) < threshold

    def _deliver(self, universe: DocIds, details: Details, group: CandidateBatch | None) -> None:
        """Hand out a finished bucket."""
        hits = self._ranking.hits
        left = max(self._wanted.hits - len(hits), 0)
        if self._distinct is not None:
            universe, group = self._first_of_each(universe if group is None else group.docids(universe)), None
        docids = to_docids(universe, left) if group is None else group.listed(universe)[:left]
        hits += [Hit(docid, details) for docid in docids]

    def _first_of_each(self, bucket: DocIds) -> DocIds:
        """What `distinct` leaves of a bucket. It takes from all universes and from what is counted, too.

        The whole bucket is walked, however few hits are wanted, but not that of a search without rules.
        """
        assert self._distinct is not None
        kept, values = self._distinct.first(bucket, None if self._rules else self._wanted.hits)
        ranking = self._ranking
        others = ranking.counted & ~(bucket if self._rules else kept)
        excluded = self._distinct.sharing(values, others)
        self._excluded |= excluded
        ranking.counted = others & ~excluded | kept
        return kept


def _begun(
    rule: Rule, graph: Graph, universe: DocIds, group: CandidateBatch | None
) -> tuple[CandidateBatch | None, DocIds, Iterator[Bucket]]:
    """The buckets of a rule, and the universe as a set of a group if its documents are read by now."""
    if group is None:
        group = rule.group(graph, universe)
        if group is None:
            return None, universe, rule.buckets(graph, universe)
        universe = group.everything
    return group, universe, rule.buckets_of(group, graph, universe)


def _is_one(docids: DocIds) -> bool:
    """Is there a single document, which no rule can order?"""
    return not docids & (docids - 1)
