"""Cheapest ways through a query graph: how the rules that look at words make their buckets.

Knows steps, costs and how documents are gathered along paths (relevance.md 3.3); refuses to know what
a cost means: a rule supplies the steps. Between two nodes lie one or more steps:

    Start --- star [0 typos, cost 0] ---+--- wars [0 typos, cost 0] --- End
          \\-- star [1 typo,  cost 1] --/ \\-- wars [1 typo,  cost 1] --/

The bucket of cost 1 are the documents of all paths whose steps sum up to 1. Paths are walked depth
first, each step narrowing the documents, so that most are left after a step or two. What a path finds
is not looked for again; the paths that found something make the graph of the next rule.
"""
from __future__ import annotations

from typing import Callable, Iterator, NamedTuple, Protocol, Sequence

from svcd.engine.querygraph import END, START, Graph, Stop
from svcd.engine.reader import DocIds

Path = tuple[Stop, ...]


class Condition(Protocol):
    """What a document must fulfil to take a step."""

    def docids(self, candidates: DocIds) -> DocIds:
        """The documents that fulfil it; need only be right for the candidates."""


class Step(NamedTuple):
    """A way into a node, or past it.

    condition: None to pass the node: every document may, and the next graph keeps nothing of it.
    stop: what the next graph keeps of it. dropped: nodes, as bits, that no later step of the path may
    match, when it passes.
    """

    cost: int
    condition: Condition | None
    stop: Stop | None
    dropped: int = 0


class Plan:
    """The steps of one rule through one graph, with all costs that can come out."""

    def __init__(self, edges: Sequence[Sequence[tuple[int, Step]]]) -> None:
        self.edges = edges
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


_TO_END = Step(0, None, None)


def plan(graph: Graph, steps: Callable[[int, int], Sequence[Step]]) -> Plan:
    """The plan of a rule.

    steps: gives the steps from one node (its number) into another one.
    """
    edges: list[list[tuple[int, Step]]] = []
    for node, successors in enumerate(graph.successors):
        leaving: list[tuple[int, Step]] = []
        for target in successors:
            into = [_TO_END] if target == END else steps(node, target)
            leaving.extend((target, step) for step in into)
        edges.append(leaving)
    return Plan(edges)


class PathSearch:
    """Takes documents out of `left`, cost by cost."""

    def __init__(self, plan: Plan, candidates: DocIds) -> None:
        self.left = candidates
        self._plan = plan
        self._docids: dict[Condition, DocIds] = {}
        self._path: list[Stop | None] = []
        self._good: list[Path] = []

    def bucket(self, cost: int) -> tuple[DocIds, list[Path]]:
        """The documents of all paths of this cost, and the paths that found one."""
        before = self.left
        self._good = []
        self._walk(START, cost, before, 0)
        return before ^ self.left, self._good

    def _walk(self, node: int, remaining: int, docids: DocIds, dropped: int) -> None:
        """Follow all steps out of a node with the documents that got there; none of them is found yet."""
        costs = self._plan.costs
        for target, step in self._plan.edges[node]:
            rest = remaining - step.cost
            if rest < 0 or not costs[target] >> rest & 1:
                continue
            if target == END:
                self._found(docids)
                return
            if step.condition is None:
                self._walk(target, rest, docids, dropped | step.dropped)
            elif not dropped >> target & 1:
                reached = docids & self._docids_of(step.condition)
                if reached:
                    self._take(target, step, rest, reached, dropped)
            docids &= self.left
            if not docids:
                return

    def _take(self, target: int, step: Step, rest: int, reached: DocIds, dropped: int) -> None:
        self._path.append(step.stop)
        self._walk(target, rest, reached, dropped)
        self._path.pop()

    def _found(self, docids: DocIds) -> None:
        self.left ^= docids
        self._good.append(tuple(stop for stop in self._path if stop is not None))

    def _docids_of(self, condition: Condition) -> DocIds:
        docids = self._docids.get(condition)
        if docids is None:
            docids = self._docids[condition] = condition.docids(self.left)
        return docids
