"""The rule `words`: how much of the query a document matches. Costs: docs/ranking.md#words."""
from __future__ import annotations

from svcd.query.graph import Graph, removal_groups
from svcd.ranking.path_search import Edge, EdgesBetween
from svcd.ranking.rule import GraphRule
from svcd.schema.ranking_rules import WORDS


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
