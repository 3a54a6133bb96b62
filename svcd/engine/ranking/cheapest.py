"""Cheapest ways of a few documents through a query graph, without trying any other.

Knows how the cheapest cost of each document follows from the steps into each node, and which paths
are good ones (relevance.md 3.3) without walking those that lead nowhere; refuses to know what a cost
means. Gives what `graph.PathSearch` gives for the same steps, where no step passes a node: a document
takes the cheapest of several steps between two nodes in any case. The tests compare them.
"""
from __future__ import annotations

from typing import Callable, Iterator, NamedTuple, Sequence

from svcd.engine.querygraph import END, START, Graph, Stop
from svcd.engine.ranking.few import Chosen

Path = tuple[Stop, ...]


class Way(NamedTuple):
    """A way into a node: its cost, the documents that may take it, what the next graph keeps of it."""

    cost: int
    chosen: Chosen
    stop: Stop


# (node, next node) -> the ways between them, in the order in which they are tried.
Ways = Callable[[int, int], Sequence[Way]]


class CheapestPaths:
    """The cheapest costs of documents through a graph; `buckets` gives them one by one."""

    def __init__(self, graph: Graph, ways: Ways, chosen: Chosen) -> None:
        # By node: cost of the cheapest way to End -> the documents that have it.
        self._rest: list[dict[int, Chosen]] = [{} for _ in graph.stops]
        self._rest[END] = {0: chosen}
        self._leaving: list[list[tuple[int, Way]]] = [[] for _ in graph.stops]
        self._good: list[Path] = []
        self._left: Chosen = 0
        for node in graph.backwards():
            successors = graph.successors[node]
            if END in successors:  # where it leads elsewhere as well, End is tried first and takes all
                self._rest[node] = self._rest[END]
                continue
            self._leaving[node] = [(target, way) for target in successors for way in ways(node, target) if way.chosen]
            self._rest[node] = self._cheapest(node)

    def _cheapest(self, node: int) -> dict[int, Chosen]:
        reached: dict[int, Chosen] = {}
        for target, way in self._leaving[node]:
            for cost, chosen in self._rest[target].items():
                both = chosen & way.chosen
                if both:
                    cost += way.cost
                    reached[cost] = reached.get(cost, 0) | both
        return _disjoint(reached) if len(reached) > 1 else reached

    def buckets(self) -> Iterator[tuple[int, Chosen, list[Path]]]:
        """(cost, its documents, the paths that found one), cheapest first."""
        for cost, chosen in sorted(self._rest[START].items()):
            self._good = []
            self._left = chosen
            self._walk(START, cost, chosen, ())
            yield cost, chosen, self._good

    def _walk(self, node: int, cost: int, chosen: Chosen, path: Path) -> None:
        """Every document that gets here has this cost to go, so that every path taken finds some."""
        if not self._leaving[node]:
            self._left &= ~chosen
            self._good.append(path)
            return
        for target, way in self._leaving[node]:
            reached = chosen & way.chosen & self._rest[target].get(cost - way.cost, 0)
            if reached:
                self._walk(target, cost - way.cost, reached, (*path, way.stop))
                chosen &= self._left
                if not chosen:
                    return


def _disjoint(reached: dict[int, Chosen]) -> dict[int, Chosen]:
    """Each document at its lowest cost alone."""
    cheapest: dict[int, Chosen] = {}
    seen = 0
    for cost in sorted(reached):
        chosen = reached[cost] & ~seen
        if chosen:
            cheapest[cost] = chosen
            seen |= chosen
    return cheapest
