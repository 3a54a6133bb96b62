"""The rule `typo`: rank documents by their number of typos. Costs: docs/ranking.md#typo."""
from __future__ import annotations

from svcd.query.graph import QueryNode
from svcd.query.terms import NONE, Subset
from svcd.ranking.path_search import Edge
from svcd.ranking.rule import GraphRule
from svcd.schema.ranking_rules import TYPO


class Typo(GraphRule):
    """Rank documents by the total number of typos; narrow the subset of each word to one number of typos.

    The cost is the number of typos, plus the number of words for an n-gram.
    """

    name = TYPO

    def edges(self, node: QueryNode) -> list[Edge]:
        """Return one edge for each number of typos that the term allows, even if no word of the index has it."""
        subset = node.subset
        budget = subset.term.budget
        if budget == 0:
            most = 0 if subset.term.phrase is not None else 1  # a word without a budget can still match its split
        else:
            most = 2 if budget == 2 and subset.two else 1 if subset.one else 0
        base = 0 if node.width == 1 else node.width
        edges: list[Edge] = []
        for typo_count in range(most + 1):
            narrowed = Subset(subset.term, subset.zero if typo_count == 0 else NONE, subset.one and typo_count == 1,
                              subset.two and typo_count == 2, subset.is_mandatory)
            edges.append(Edge(base + typo_count, self.context.matches(narrowed), node._replace(subset=narrowed)))
        return edges
