"""Bucket sort: choose the ranking rules of a search (docs/ranking.md#rules) and run them.

The first rule splits the universe into buckets, the second rule splits each bucket, and so on until the search has enough
hits (docs/ranking.md#bucket-sort). No other module knows how many hits are requested.
"""
from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Callable, NamedTuple, Sequence

from svcd.base.docids import EMPTY, DocIds, first
from svcd.query.graph import Graph, MatchingStrategy
from svcd.ranking.attribute import AttributeRank, WordPosition
from svcd.ranking.bm25_rule import Bm25
from svcd.ranking.distinct import Distinct
from svcd.ranking.exactness import ExactAttribute, ExactWords
from svcd.ranking.proximity import Proximity
from svcd.ranking.rule import CandidateBatch, Documents, RankingContext, Rule
from svcd.ranking.scores import Detail, Skipped, score
from svcd.ranking.sort import GeoSort, Sort, parse_rule
from svcd.ranking.typo import Typo, Words
from svcd.schema.ranking_rules import (ATTRIBUTE, ATTRIBUTE_RANK, BM25, EXACTNESS, PROXIMITY, RULE_NAMES, SORT, TYPO,
                                       WORD_POSITION, WORDS, with_bm25)

# follow() compares the words of at most this many documents with `proximity`: one step, 9 us each, which no time limit ends.
MOST_COMPARED = 2_000
# Entry of `rankingRules` -> its rules.
_RULES: dict[str, Sequence[Callable[[RankingContext], Rule]]] = {
    WORDS: (),  # `chain` adds it before the first rule about words
    TYPO: (Typo,),
    PROXIMITY: (Proximity,),
    ATTRIBUTE: (AttributeRank, WordPosition),
    ATTRIBUTE_RANK: (AttributeRank,),
    WORD_POSITION: (WordPosition,),
    EXACTNESS: (ExactAttribute, ExactWords),
    BM25: (Bm25.of,),
}


def chain(context: RankingContext, ranking_rules: Sequence[str], sort: Sequence[str], has_terms: bool,
          vector_sort: Rule | None = None) -> list[Rule]:
    """Return the rules of one search, in order.

    ranking_rules: the setting. sort: the expressions of the request, in the syntax of parse_rule(). has_terms: False for a
    placeholder search, which runs only rules that sort. vector_sort: replaces the first rule about words; the other rules
    about words are omitted. With the strategy `bm25`, that rule replaces them.
    """
    rules: list[Rule] = []
    seen: set[str] = set()
    sorted_fields: set[str] = set()
    if context.strategy is MatchingStrategy.BM25:
        ranking_rules = with_bm25(ranking_rules)

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
            # A dropped word outweighs every other difference in words, so `words` precedes the first rule about words.
            if WORDS not in seen:
                seen.add(WORDS)
                if context.strategy not in (MatchingStrategy.ALL, MatchingStrategy.BM25):
                    rules.append(Words(context))
            if seen.isdisjoint(RULE_NAMES[entry].ignored_after):
                seen.add(entry)
                for make in _RULES[entry]:
                    rules.append(make(context))
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
    """A document with the detail of each rule, in the order of the rules."""

    docid: int
    details: Details


class RankingLimits(NamedTuple):
    """Limits of one ranking.

    hits: maximum number of hits. threshold: omit documents with a lower score, and do not count them.
    to_the_end: rank all documents, even after enough hits, for an exact count.
    order_alone: nobody reads the details of the hits, so ranking stops once the order is known.
    exact_total: with `distinct`, count one document for each value.
    """

    hits: int
    threshold: float | None = None
    to_the_end: bool = False
    order_alone: bool = False
    exact_total: bool = False


@dataclass(slots=True)
class Ranking:
    """The best documents, and the set of documents that count as hits."""

    counted: DocIds
    hits: list[Hit] = field(default_factory=list)


def rank(rules: Sequence[Rule], graph: Graph, universe: DocIds, limits: RankingLimits, expired: Callable[[], bool],
         distinct: Distinct | None = None) -> Ranking:
    """Return the best documents of the universe: ordered by the first rule, within its buckets by the second rule, and so on.

    Equal documents are ordered by docid. expired: returns whether the cutoff has passed; called before each bucket.
    distinct: the field in which no two hits share a value.
    """
    sort = _BucketSort(rules, limits, expired, distinct, universe)
    sort.descend(0, lambda: graph, universe, ())
    if distinct is not None and limits.exact_total:
        # Without rules the hits are the first documents of the walk that counts all groups.
        sort.ranking.counted = distinct.groups(sort.ranking.counted if rules else universe)
    return sort.ranking


class _BucketSort:
    def __init__(self, rules: Sequence[Rule], limits: RankingLimits, expired: Callable[[], bool], distinct: Distinct | None,
                 universe: DocIds) -> None:
        self._rules = rules
        self._limits = limits
        # Ranking ends after this number of hits; None to rank all documents.
        self._enough = None if limits.to_the_end else limits.hits
        self._expired = expired
        self._distinct = distinct
        self.ranking = Ranking(universe)
        self._excluded = EMPTY  # documents that share a value with a hit

    def descend(self, level: int, graph: Callable[[], Graph], universe: Documents, details: Details,
                batch: CandidateBatch | None = None) -> None:
        """Split the universe by the rules from `level` on. batch: None, or the batch whose numbering the universe uses."""
        # A single document needs no order.
        if level == len(self._rules) or (self._limits.order_alone
                                         and (len(universe) if batch is None else universe.bit_count()) < 2):
            self._deliver(universe, details, batch)
            return
        rule, hits, threshold, query = self._rules[level], self.ranking.hits, self._limits.threshold, graph()
        if batch is None and (batch := rule.read_batch(query, universe)) is not None:
            universe = batch.all_documents
        buckets = rule.buckets(query, universe) if batch is None else rule.batch_buckets(batch, query, universe)
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
            # Further rules only lower the score, and later buckets have lower scores.
            if threshold is not None and score(bucket_details) < threshold:
                self.ranking.counted -= universe if batch is None else batch.docids(universe)
                return
            universe = universe - docids if batch is None else universe & ~docids
            self.descend(level + 1, bucket.graph, docids, bucket_details, batch)
            if self._excluded:
                universe = universe - self._excluded if batch is None else universe & ~batch.local(self._excluded)

    def _deliver(self, universe: Documents, details: Details, batch: CandidateBatch | None) -> None:
        """Add the documents of a finished bucket to the hits.

        With `distinct`, the other documents with a value of a kept document leave all universes and the count.
        """
        ranking, hits = self.ranking, self.ranking.hits
        left = max(self._limits.hits - len(hits), 0)
        if self._distinct is not None:
            bucket = universe if batch is None else batch.docids(universe)
            # A search with rules walks the whole bucket, even if it needs few hits; a search without rules stops early.
            kept = self._distinct.first(bucket, None if self._rules else self._limits.hits)
            others = ranking.counted - (bucket if self._rules else kept.docids)
            excluded = self._distinct.sharing(kept, others)
            self._excluded |= excluded
            ranking.counted = (others - excluded) | kept.docids
            universe, batch = kept.docids, None
        for docid in first(universe, left) if batch is None else batch.ordered_docids(universe)[:left]:
            hits.append(Hit(docid, details))


class Followed(NamedTuple):
    """A document in a ranking. before: number of documents ranked before it.

    better: the details of the last bucket before its own that a rule found better, and the number of documents in it; None if the
    rules put no document before it.
    """

    details: Details
    before: int
    better: tuple[Details, int] | None


class _Follow(_BucketSort):
    """A bucket sort for one document: it counts the documents of better buckets instead of ranking them, and then stops."""

    def __init__(self, rules: Sequence[Rule], universe: DocIds, docid: int, expired: Callable[[], bool]) -> None:
        super().__init__(rules, RankingLimits(1), expired, None, universe)
        self._docid = docid
        self.before = 0
        self.better: tuple[Details, int] | None = None

    def descend(self, level: int, graph: Callable[[], Graph], universe: Documents, details: Details,
                batch: CandidateBatch | None = None) -> None:
        docids = universe if batch is None else batch.docids(universe)
        if self._docid not in docids:
            self.before += len(docids)
            self.better = details, len(docids)
        elif len(docids) > MOST_COMPARED and level < len(self._rules) and isinstance(
                rule := self._rules[level], Proximity) and rule.has_neighbours(graph()):
            self._deliver(universe, (*details, Skipped()), batch)
        else:
            super().descend(level, graph, universe, details, batch)

    def _deliver(self, universe: Documents, details: Details, batch: CandidateBatch | None) -> None:
        docids = universe if batch is None else batch.docids(universe)
        self.before += bisect_left(docids.to_array(), self._docid)
        self.ranking.hits.append(Hit(self._docid, details))


def follow(rules: Sequence[Rule], graph: Graph, universe: DocIds, docid: int, expired: Callable[[], bool]) -> Followed:
    """Rank one document of the universe as rank() does, without `distinct` and threshold. Arguments: see rank().

    The details end with Skipped if the time is over, or where `proximity` would read more than MOST_COMPARED documents.
    """
    sort = _Follow(rules, universe, docid, expired)
    sort.descend(0, lambda: graph, universe, ())
    return Followed(sort.ranking.hits[0].details, sort.before, sort.better)
