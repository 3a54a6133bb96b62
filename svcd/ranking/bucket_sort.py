"""Bucket sort: the only loop over ranking rules, and the only place that knows how many hits are wanted.

Knows how buckets nest, when enough is found, what a threshold rejects and what happens when the time
is over (relevance.md 3.12, 3.14, 3.16, 3.17); refuses to know what a rule looks at.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Iterator, NamedTuple, Sequence

from svcd.base.bitmaps import DocIds, to_docids
from svcd.query.graph import Graph
from svcd.ranking.distinct import Distinct
from svcd.ranking.forward_index import CandidateBatch
from svcd.ranking.rule import Bucket, Rule
from svcd.ranking.scores import Detail, Skipped, score

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
