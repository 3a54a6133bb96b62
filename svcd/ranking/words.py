"""The rules `words` and `typo`: how much of the query a document matches, and with how many typos.

Costs: docs/ranking.md#words and docs/ranking.md#typo.
"""
from __future__ import annotations

from svcd.query.graph import Graph, QueryNode, removal_groups
from svcd.query.terms import NONE, Subset
from svcd.ranking.path_search import Edge, EdgesBetween
from svcd.ranking.rule import GraphRule
from svcd.ranking.scores import TYPO, WORDS


class Words(GraphRule):
    """Documents with all words, then those without the ones that may be dropped first.

    A word that is matched costs 0, a dropped one as many as the query words it covers.
    """

    name = WORDS
    looks_ahead = False  # words that no path gets to must not be derived: highlighting shows which were

    def edges_between(self, graph: Graph) -> EdgesBetween:
        """An edge to match each node, and before it one to skip a node that may be dropped.

        Skipping a node of one group forbids the nodes of all groups before it.
        """
        nodes = dict(graph.term_nodes())
        entering: dict[int, list[Edge]] = {number: [] for number in nodes}
        dropped = 0
        for group in removal_groups(graph, self.terms, self.context.strategy):
            bits = 0
            for number in group:
                entering[number].append(Edge(nodes[number].width, None, None, dropped))
                bits |= 1 << number
            dropped |= bits
        for number, node in nodes.items():
            entering[number].append(Edge(0, self.context.matches(node.subset), node))
        return lambda number, successor: entering[successor]

    def extra_rank(self, graph: Graph) -> int:
        """The words of phrases cannot be dropped, but count among the words to match."""
        count = 0
        for _, node in graph.term_nodes():
            phrase = node.subset.term.phrase
            if phrase:
                count += len(phrase) - phrase.count(None)
        return max(0, count - 1)


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
