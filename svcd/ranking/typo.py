"""The rule `typo`: how many typos the words of a document have. Costs: docs/ranking.md#typo."""
from __future__ import annotations

from svcd.query.graph import QueryNode
from svcd.query.terms import NONE, Subset
from svcd.ranking.path_search import Edge
from svcd.ranking.rule import GraphRule
from svcd.schema.ranking_rules import TYPO


class Typo(GraphRule):
    """Documents by the number of typos in all words together; narrows each word to one number of typos.

    Costs the typos, and for an n-gram the number of its words besides.
    """

    name = TYPO

    def edges(self, node: QueryNode) -> list[Edge]:
        """One edge for each number of typos that is allowed."""
        subset = node.subset
        base = 0 if node.width == 1 else node.width
        edges: list[Edge] = []
        for typo_count in range(_max_typos(subset) + 1):
            narrowed = Subset(subset.term, subset.zero if typo_count == 0 else NONE, subset.one and typo_count == 1,
                              subset.two and typo_count == 2, subset.is_mandatory)
            edges.append(Edge(base + typo_count, self.context.matches(narrowed), node._replace(subset=narrowed)))
        return edges


def _max_typos(subset: Subset) -> int:
    """How many typos are allowed, whether the index has such words or not; without budget a word still has its split."""
    budget = subset.term.budget
    if budget == 0:
        return 0 if subset.term.phrase is not None else 1
    if budget == 2 and subset.two:
        return 2
    return 1 if subset.one else 0
