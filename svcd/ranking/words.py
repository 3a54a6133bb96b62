"""The rule `words`: rank documents by the number of query words that they match. Costs: docs/ranking.md#words."""
from __future__ import annotations

from svcd.query.graph import Graph, removal_groups
from svcd.ranking.path_search import Edge, EdgesBetween
from svcd.ranking.rule import GraphRule
from svcd.schema.ranking_rules import WORDS


class Words(GraphRule):
    """Rank documents with all words first, then documents without the words to drop first, and so on.

    A matched word costs 0; a dropped word costs the number of query words that it covers.
    """

    name = WORDS
    looks_ahead = False  # words that no path reaches must stay underived: highlighting shows derivations

    def edges_between(self, graph: Graph) -> EdgesBetween:
        """Return an edge to match each node, preceded by an edge to skip it if it may be dropped.

        A path that skips a node of one group cannot enter the nodes of earlier groups.
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
        """Return the number of words in phrases, less one: they cannot be dropped, but count among the words to match."""
        count = 0
        for _, node in graph.term_nodes():
            phrase = node.subset.term.phrase
            if phrase:
                count += len(phrase) - phrase.count(None)
        return max(0, count - 1)
