"""Cheapest ways through a query graph: how the rules that look at words make their buckets.

Knows steps, costs and how documents are gathered along paths (relevance.md 3.3); refuses to know what
a cost means: a rule supplies the steps. Between two nodes lie one or more steps:

    Start --- star [0 typos, cost 0] ---+--- wars [0 typos, cost 0] --- End
          \\-- star [1 typo,  cost 1] --/ \\-- wars [1 typo,  cost 1] --/

The bucket of cost 1 are the documents of all paths whose steps sum up to 1. Paths are walked depth
first, each step narrowing the documents, so that most are left after a step or two. What a path finds
is not looked for again; the paths that found something make the graph of the next rule. Five words of
ten costs each have thousands of paths of one cost: where it does not matter which conditions are asked
for, and nothing is dropped on the way, a step is only taken by documents that can get to End from it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from svcd.base.bitmaps import DocIds
from svcd.query.graph import END, START, Graph, QueryNode
from svcd.ranking.forward_index import LocalBitset

Path = tuple[QueryNode, ...]


class Condition(Protocol):
    """What a document must fulfil to take a step."""

    def docids(self, candidates: DocIds) -> DocIds:
        """The documents that fulfil it; need only be right for the candidates."""


class Edge(NamedTuple):
    """A way into a node, or past it.

    condition: None to pass the node: every document may, and the next graph keeps nothing of it.
    stop: what the next graph keeps of it. dropped: nodes, as bits, that no later step of the path may
    match, when it passes.
    """

    cost: int
    condition: Condition | None
    stop: QueryNode | None
    dropped: int = 0


class Plan:
    """The steps of one rule through one graph, with all costs that can come out."""

    def __init__(self, edges: Sequence[Sequence[tuple[int, Edge]]]) -> None:
        self.edges = edges
        steps = (step for leaving in edges for target, step in leaving if target != END)
        self.has_passing = any(step.condition is None for step in steps)  # of nodes that may be left out
        # Bit c is set when the way from the node to End can cost c.
        self.costs = [0] * len(edges)
        self.costs[END] = 1
        self._fill_costs(START, set())

    def _fill_costs(self, node: int, done: set[int]) -> None:
        if node == END or node in done:
            return
        done.add(node)
        costs = 0
        for target, step in self.edges[node]:
            self._fill_costs(target, done)
            costs |= self.costs[target] << step.cost
        self.costs[node] = costs

    @property
    def highest(self) -> int:
        """The highest cost of any path."""
        return max(self.costs[START].bit_length() - 1, 0)

    def ascending(self) -> Iterator[int]:
        """All costs a path can have."""
        return (cost for cost in range(self.highest + 1) if self.costs[START] >> cost & 1)


_TO_END = Edge(0, None, None)


def plan(graph: Graph, steps: Callable[[int, int], Sequence[Edge]]) -> Plan:
    """The plan of a rule.

    steps: gives the steps from one node (its number) into another one.
    """
    edges: list[list[tuple[int, Edge]]] = []
    for node, successors in enumerate(graph.successors):
        leaving: list[tuple[int, Edge]] = []
        for target in successors:
            into = [_TO_END] if target == END else steps(node, target)
            leaving.extend((target, step) for step in into)
        edges.append(leaving)
    return Plan(edges)


class PathSearch:
    """Takes documents out of `left`, cost by cost.

    looks_ahead: may conditions be asked for that no path would get to?
    """

    def __init__(self, plan: Plan, candidates: DocIds, looks_ahead: bool = False) -> None:
        self.left = candidates
        self._plan = plan
        self._docids = _Fulfilled(self)
        self._path: list[QueryNode | None] = []
        self._good: list[Path] = []
        self._looks_ahead = looks_ahead and not plan.has_passing
        # By node and the cost left there: the documents that can go on from there and get to End with it.
        self._ahead: dict[tuple[int, int], DocIds] = {}

    def bucket(self, cost: int) -> tuple[DocIds, list[Path]]:
        """The documents of all paths of this cost, and the paths that found one."""
        before = self.left
        self._good = []
        if self._looks_ahead:
            reached = before & self._of_rest(START, cost)
            if reached:
                self._walk_ahead(START, cost, reached)
        else:
            self._walk(START, cost, before, 0)
        return before ^ self.left, self._good

    def _of_rest(self, node: int, rest: int) -> DocIds:
        docids = self._ahead.get((node, rest))
        if docids is None:
            docids = self._ahead[node, rest] = self._find_of_rest(node, rest)
        return docids

    def _find_of_rest(self, node: int, remaining: int) -> DocIds:
        docids, costs = 0, self._plan.costs
        for target, (cost, condition, _, _) in self._plan.edges[node]:
            rest = remaining - cost
            if rest < 0 or not costs[target] >> rest & 1:
                continue
            if target == END:
                return self.left
            ahead = self._of_rest(target, rest)
            if ahead and condition is not None:
                docids |= ahead & self._docids[condition]
        return docids

    def _walk_ahead(self, node: int, remaining: int, docids: DocIds) -> None:
        """As `_walk`, but every document that gets here can go on."""
        for target, (cost, condition, stop, _) in self._plan.edges[node]:
            if target == END and not remaining:
                self._found(docids)
                return
            ahead = self._ahead.get((target, remaining - cost), 0)
            reached = docids & ahead & self._docids[condition] if ahead and condition is not None else 0
            if reached:
                self._path.append(stop)
                self._walk_ahead(target, remaining - cost, reached)
                self._path.pop()
                docids &= self.left
                if not docids:
                    return

    def _walk(self, node: int, remaining: int, docids: DocIds, dropped: int) -> None:
        """Follow all steps out of a node with the documents that got there; none of them is found yet."""
        costs = self._plan.costs
        for target, step in self._plan.edges[node]:
            cost, condition, stop, drops = step
            rest = remaining - cost
            if rest < 0 or not costs[target] >> rest & 1:
                continue
            if target == END:
                self._found(docids)
                return
            if condition is None:
                self._walk(target, rest, docids, dropped | drops)
            elif not dropped >> target & 1:
                reached = docids & self._docids[condition]
                if not reached:
                    continue
                self._path.append(stop)
                self._walk(target, rest, reached, dropped)
                self._path.pop()
            else:
                continue
            docids &= self.left
            if not docids:
                return

    def _found(self, docids: DocIds) -> None:
        self.left ^= docids
        self._good.append(tuple([stop for stop in self._path if stop is not None]))


class _Fulfilled(dict[Condition, DocIds]):
    """Condition -> the documents that fulfil it, asked for with those left when it is first tried."""

    def __init__(self, search: PathSearch) -> None:
        super().__init__()
        self._search = search

    def __missing__(self, condition: Condition) -> DocIds:
        self[condition] = condition.docids(self._search.left)
        return self[condition]


# Cheapest ways of a few documents through a query graph, without trying any other.
#
# Knows how the cheapest cost of each document follows from the steps into each node, and which paths
# are good ones (relevance.md 3.3) without walking those that lead nowhere; refuses to know what a cost
# means. Gives what `graph.PathSearch` gives for the same steps, where no step passes a node: a document
# takes the cheapest of several steps between two nodes in any case. The tests compare them.


class WeightedEdge(NamedTuple):
    """A way into a node: its cost, the documents that may take it, what the next graph keeps of it."""

    cost: int
    chosen: LocalBitset
    stop: QueryNode


# (node, next node) -> the ways between them, in the order in which they are tried.
EdgesBetween = Callable[[int, int], Sequence[WeightedEdge]]


class CheapestPaths:
    """The cheapest costs of documents through a graph; `buckets` gives them one by one."""

    def __init__(self, graph: Graph, ways: EdgesBetween, chosen: LocalBitset) -> None:
        # By node: cost of the cheapest way to End -> the documents that have it.
        self._rest: list[dict[int, LocalBitset]] = [{} for _ in graph.stops]
        self._rest[END] = {0: chosen}
        self._leaving: list[list[tuple[int, WeightedEdge]]] = [[] for _ in graph.stops]
        self._good: list[Path] = []
        self._left: LocalBitset = 0
        for node in graph.backwards():
            successors = graph.successors[node]
            if END in successors:  # where it leads elsewhere as well, End is tried first and takes all
                self._rest[node] = self._rest[END]
                continue
            self._leaving[node] = [(target, way) for target in successors for way in ways(node, target) if way.chosen]
            self._rest[node] = self._cheapest(node)

    def _cheapest(self, node: int) -> dict[int, LocalBitset]:
        reached: dict[int, LocalBitset] = {}
        for target, way in self._leaving[node]:
            for cost, chosen in self._rest[target].items():
                both = chosen & way.chosen
                if both:
                    cost += way.cost
                    reached[cost] = reached.get(cost, 0) | both
        return _disjoint(reached) if len(reached) > 1 else reached

    def buckets(self) -> Iterator[tuple[int, LocalBitset, list[Path]]]:
        """(cost, its documents, the paths that found one), cheapest first."""
        for cost, chosen in sorted(self._rest[START].items()):
            self._good = []
            self._left = chosen
            self._walk(START, cost, chosen, ())
            yield cost, chosen, self._good

    def _walk(self, node: int, cost: int, chosen: LocalBitset, path: Path) -> None:
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


def _disjoint(reached: dict[int, LocalBitset]) -> dict[int, LocalBitset]:
    """Each document at its lowest cost alone."""
    cheapest: dict[int, LocalBitset] = {}
    seen = 0
    for cost in sorted(reached):
        chosen = reached[cost] & ~seen
        if chosen:
            cheapest[cost] = chosen
            seen |= chosen
    return cheapest
