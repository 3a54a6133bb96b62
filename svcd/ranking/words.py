"""The rules that ask how much of the query is there: `words` and `typo` (relevance.md 3.4, 3.5).

Words costs: a word that is there 0, a dropped one as many as the query words it covers.
Typo costs: the typos; for words written as one also 2 for two of them, 3 for three.
"""
from __future__ import annotations

from typing import Callable, Sequence

from svcd.query.graph import Graph, QueryNode, removal_groups
from svcd.query.terms import NONE, Subset
from svcd.ranking.path_search import Edge
from svcd.ranking.rule import GraphRule
from svcd.ranking.scores import TYPO, WORDS


class Words(GraphRule):
    """Documents with all words, then those without the ones that may be dropped first."""

    name = WORDS
    looks_ahead = False  # what no path gets to is not derived, and not highlighted (7.2)

    def steps_between(self, graph: Graph) -> Callable[[int, int], Sequence[Edge]]:
        """A step to match each node, and before it one to skip those that may be dropped."""
        stops = dict(graph.nodes())
        into: dict[int, list[Edge]] = {node: [] for node in stops}
        dropped = 0
        for group in removal_groups(graph, self.terms, self.shared.strategy):
            for node in group:
                into[node].append(Edge(stops[node].width, None, None, dropped))
            dropped |= sum(1 << node for node in group)
        for node, stop in stops.items():
            into[node].append(Edge(0, self.shared.matching(stop.subset), stop))
        return lambda node, target: into[target]

    def extra_rank(self, graph: Graph) -> int:
        """The words of phrases cannot be dropped, but count among the words to match."""
        phrases = [stop.subset.term.phrase for _, stop in graph.nodes()]
        words = [word for phrase in phrases if phrase for word in phrase if word is not None]
        return max(0, len(words) - 1)


class Typo(GraphRule):
    """Documents by the fewest typos in all words together; narrows each word to one number of typos."""

    name = TYPO

    def steps(self, stop: QueryNode) -> list[Edge]:
        """One step for each number of typos that is allowed."""
        base = 0 if stop.width == 1 else stop.width
        return [self._step(stop, base, typo_count) for typo_count in range(_most_typos(stop.subset) + 1)]

    def _step(self, stop: QueryNode, base: int, typo_count: int) -> Edge:
        subset = stop.subset
        kept = subset._replace(
            zero=subset.zero if typo_count == 0 else NONE,
            one=subset.one and typo_count == 1,
            two=subset.two and typo_count == 2,
        )
        return Edge(base + typo_count, self.shared.matching(kept), stop._replace(subset=kept))


def _most_typos(subset: Subset) -> int:
    """By what is allowed, not by what exists; without budget there is still the split, at one typo."""
    budget = subset.term.budget
    if budget == 0:
        return 0 if subset.term.phrase is not None else 1
    if budget == 2 and subset.two:
        return 2
    return 1 if subset.one else 0
