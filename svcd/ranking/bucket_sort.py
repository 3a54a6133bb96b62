"""The ranking of a search: which rules run (docs/ranking.md#rules), and the loop that runs them.

Bucket sort splits the universe by the first rule, each bucket by the second one, and so on until there are enough hits
(docs/ranking.md#bucket-sort). No other module knows how many hits are wanted.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Iterable, Iterator, NamedTuple, Sequence

from svcd.base.docids import EMPTY, DocIds, first
from svcd.query.graph import Graph, MatchingStrategy
from svcd.ranking.attribute import AttributeRank, WordPosition
from svcd.ranking.distinct import Distinct
from svcd.ranking.exactness import ExactAttribute, ExactWords
from svcd.ranking.forward_index import CandidateBatch
from svcd.ranking.proximity import Proximity
from svcd.ranking.rule import Bucket, Documents, RankingContext, Rule
from svcd.ranking.scores import Detail, Skipped, score
from svcd.ranking.sort import GeoSort, Sort, parse_rule
from svcd.ranking.typo import Typo
from svcd.ranking.words import Words
from svcd.schema.ranking_rules import (
    ATTRIBUTE, ATTRIBUTE_RANK, EXACTNESS, PROXIMITY, RULE_NAMES, SORT, TYPO, WORD_POSITION, WORDS,
)

# Entry of `rankingRules` -> the rules that it stands for.
_RULES: dict[str, Sequence[Callable[[RankingContext], Rule]]] = {
    WORDS: (),  # `chain` adds it before the first rule about words
    TYPO: (Typo,),
    PROXIMITY: (Proximity,),
    ATTRIBUTE: (AttributeRank, WordPosition),
    ATTRIBUTE_RANK: (AttributeRank,),
    WORD_POSITION: (WordPosition,),
    EXACTNESS: (ExactAttribute, ExactWords),
}


def chain(
    context: RankingContext, ranking_rules: Iterable[str], sort: Sequence[str], has_terms: bool, vector_sort: Rule | None = None
) -> list[Rule]:
    """The rules of one search.

    ranking_rules: the setting. sort: of the request, as parse_rule takes them. has_terms: False for a placeholder search,
    of which only the rules that sort are left. vector_sort: takes the place of the first rule about words, and the others are
    left out.
    """
    rules: list[Rule] = []
    seen: set[str] = set()
    sorted_fields: set[str] = set()

    def add_sort(entry: str) -> None:
        name, _, direction = entry.rpartition(":")
        if name not in sorted_fields:
            sorted_fields.add(name)
            rules.append(Sort(context, name, direction == "asc"))

    for entry in ranking_rules:
        if entry in _RULES:
            if vector_sort is not None and vector_sort not in rules:
                rules.append(vector_sort)
            if vector_sort is not None or not has_terms:
                continue
            # Dropped words weigh more than anything else about words, so `words` comes before the first such rule.
            if WORDS not in seen:
                seen.add(WORDS)
                if context.strategy is not MatchingStrategy.ALL:
                    rules.append(Words(context))
            if seen.isdisjoint(RULE_NAMES[entry].ignored_after):
                seen.add(entry)
                rules += [make(context) for make in _RULES[entry]]
        elif entry != SORT:
            add_sort(entry)
        elif entry not in seen:
            seen.add(entry)
            for expression in sort:
                rule = parse_rule(expression)
                if rule.point:
                    rules.append(GeoSort(context, rule.point, rule.is_ascending))
                else:
                    add_sort(expression)
    return rules


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
    order_alone: nothing shows the details of hits, so they may stop early.
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
    rules: Sequence[Rule], graph: Graph, universe: DocIds, limits: RankingLimits, expired: Callable[[], bool],
    distinct: Distinct | None = None,
) -> Ranking:
    """The best documents of the universe, by the first rule, then the second one within its buckets...

    Equal documents come by docid. expired: has the cutoff passed? Asked before each bucket. distinct: the field of which
    no two hits may share a value.
    """
    return _BucketSort(rules, limits, expired, distinct, universe).sort(graph)


class _BucketSort:
    def __init__(
        self, rules: Sequence[Rule], limits: RankingLimits, expired: Callable[[], bool], distinct: Distinct | None,
        universe: DocIds,
    ) -> None:
        self._rules = rules
        self._limits = limits
        # Ranking ends with so many hits; None to rank to the end.
        self._enough = None if limits.to_the_end else limits.hits
        self._expired = expired
        self._distinct = distinct
        self._ranking = Ranking(universe)
        self._excluded = EMPTY  # documents that share a value with a hit

    def sort(self, graph: Graph) -> Ranking:
        ranking, universe = self._ranking, self._ranking.counted
        self._descend(0, lambda: graph, universe, ())
        if self._distinct is not None and self._limits.exact_total:
            # Without rules the hits are the first of the walk that counts all groups.
            ranking.counted = self._distinct.groups(ranking.counted if self._rules else universe)
        return ranking

    def _descend(
        self, level: int, graph: Callable[[], Graph], universe: Documents, details: Details,
        batch: CandidateBatch | None = None
    ) -> None:
        """Split the universe by the rules from `level` on. batch: the universe is a set of its documents, as it numbers
        them."""
        # Nothing can order a single document.
        if level == len(self._rules) or (self._limits.order_alone
                                         and (len(universe) if batch is None else universe.bit_count()) < 2):
            self._deliver(universe, details, batch)
            return
        rule, hits, threshold = self._rules[level], self._ranking.hits, self._limits.threshold
        batch, universe, buckets = _start(rule, graph(), universe, batch)
        while universe and (self._enough is None or len(hits) < self._enough):
            if not rule.is_ready and self._expired():
                self._deliver(universe, (*details, Skipped()), batch)
                return
            bucket = next(buckets, None)
            if bucket is None:
                return
            docids = bucket.docids
            if self._excluded:
                docids &= universe
                if not docids:
                    continue
            bucket_details = (*details, bucket.detail)
            # Further rules can only lower a score, and later buckets have lower ones.
            if threshold is not None and score(bucket_details) < threshold:
                self._ranking.counted -= universe if batch is None else batch.docids(universe)
                return
            universe = universe - docids if batch is None else universe & ~docids
            self._descend(level + 1, bucket.graph, docids, bucket_details, batch)
            if self._excluded:
                universe = universe - self._excluded if batch is None else universe & ~batch.local(self._excluded)

    def _deliver(self, universe: Documents, details: Details, batch: CandidateBatch | None) -> None:
        """Add the documents of a finished bucket to the hits."""
        hits = self._ranking.hits
        left = max(self._limits.hits - len(hits), 0)
        if self._distinct is not None:
            universe, batch = self._first_of_each(universe if batch is None else batch.docids(universe)), None
        for docid in first(universe, left) if batch is None else batch.ordered_docids(universe)[:left]:
            hits.append(Hit(docid, details))

    def _first_of_each(self, bucket: DocIds) -> DocIds:
        """The documents of a bucket that `distinct` keeps; those it excludes leave all universes and the count.

        The whole bucket is walked, however few hits are wanted, but not that of a search without rules.
        """
        assert self._distinct is not None
        kept, values = self._distinct.first(bucket, None if self._rules else self._limits.hits)
        ranking = self._ranking
        others = ranking.counted - (bucket if self._rules else kept)
        excluded = self._distinct.sharing(values, others)
        self._excluded |= excluded
        ranking.counted = (others - excluded) | kept
        return kept


def _start(
    rule: Rule, graph: Graph, universe: Documents, batch: CandidateBatch | None
) -> tuple[CandidateBatch | None, Documents, Iterator[Bucket]]:
    """The buckets of a rule; also the batch, and the universe as it numbers it, if the documents have been read."""
    if batch is None:
        batch = rule.read_batch(graph, universe)
        if batch is None:
            return None, universe, rule.buckets(graph, universe)
        universe = batch.all_documents
    return batch, universe, rule.batch_buckets(batch, graph, universe)
