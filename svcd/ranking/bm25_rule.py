"""The rule `bm25`: rank documents by their scores (docs/ranking.md#bm25)."""
from __future__ import annotations

from collections.abc import Iterator

from svcd.base.docids import DocIds
from svcd.query.graph import Graph
from svcd.ranking.bm25 import MOST_RANK, Scorer
from svcd.ranking.rule import Bucket, RankingContext, Rule
from svcd.ranking.scores import Ranked
from svcd.schema.ranking_rules import BM25


class Bm25(Rule):
    """Buckets of equal scores, best first. The graph stays unchanged."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    @classmethod
    def of(cls, context: RankingContext) -> Bm25:
        """Return the rule of a search by words."""
        assert context.scorer is not None
        return cls(context.scorer)

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Yield one bucket for each rank."""
        for rank, docids in self._scorer.buckets(candidates):
            yield Bucket(docids, Ranked(BM25, rank, MOST_RANK), lambda: graph)
