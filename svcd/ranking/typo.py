"""The rules `words` and `typo`: rank documents by the number of query words that they match, and by typos.

Costs: docs/ranking.md#words and docs/ranking.md#typo.
"""
from __future__ import annotations

from svcd.query.graph import Graph, QueryNode, removal_groups
from svcd.query.terms import NONE, Subset
from svcd.ranking.rule import Edge, EdgesBetween, GraphRule
from svcd.schema.ranking_rules import TYPO, WORDS


class Words(GraphRule):
    """Rank documents with all words first, then documents without the words to drop first, and so on.

    A matched word costs 0; a dropped word costs the number of query words that it covers.
    """

    name = WORDS
    is_revealing, looks_ahead = True, False  # looking up a word derives it, and highlighting shows its derivations

    def edges_between(self, graph: Graph) -> EdgesBetween:
        """Return an edge to match each node, preceded by an edge to skip it if it may be dropped.

        A path that skips a node of one group cannot enter the nodes of earlier groups.
        """
        nodes = dict(graph.term_nodes)
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
        return {(number, successor): entering[successor] for number, successor, _, _ in graph.steps}

    def extra_rank(self, graph: Graph) -> int:
        """Return the number of words in phrases, less one: they cannot be dropped, but count among the words to match."""
        count = 0
        for _, node in graph.term_nodes:
            phrase = node.subset.term.phrase
            if phrase:
                count += len(phrase) - phrase.count(None)
        return max(0, count - 1)


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
