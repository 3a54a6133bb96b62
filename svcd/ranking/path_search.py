"""Cheapest paths through a query graph; graph rules turn their costs into buckets (docs/ranking.md#graph-rules).

A rule puts one or more edges, each with a cost, between two nodes of the query graph:

    Start --- star [0 typos, cost 0] ---+--- wars [0 typos, cost 0] --- End
          \\-- star [1 typo,  cost 1] --/ \\-- wars [1 typo,  cost 1] --/

The bucket of cost 1 contains the documents of all paths whose edges add up to 1. The paths that found documents form the
graph of the next rule. Two evaluators return the same buckets and paths: PathSearch looks up the documents of a condition in
the inverted index; CheapestPaths gets, for each edge, the set of documents that can take it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from svcd.base.docids import DocIds, union_of
from svcd.query.graph import END, START, Graph, QueryNode
from svcd.ranking.forward_index import LocalBitset

Path = tuple[QueryNode, ...]


class Condition(Protocol):
    """A condition that a document must meet to take an edge."""

    def docids(self, candidates: DocIds) -> DocIds:
        """Return the documents that meet the condition; the result only has to be exact for the candidates."""


class Edge(NamedTuple):
    """An edge into a node, or past it.

    condition: None to skip the node, which every document may do. node: the node in the graph of the next rule, None to omit
    it. dropped: the nodes, as bits, that a path must not enter after it skipped this node.
    """

    cost: int
    condition: Condition | None
    node: QueryNode | None
    dropped: int = 0


# (number of a node, number of a successor other than End) -> the edges between them, in the order to try them.
EdgesBetween = Callable[[int, int], Sequence[Edge]]

_TO_END = Edge(0, None, None)
_ONE_NODE = 3  # with Start and End


class Plan:
    """All edges of one rule through one graph, and the possible costs of paths.

    edges: by node, (number of the successor, edge). costs: by node; bit c is set if a path from the node to End can cost c.
    path_costs: all costs of paths from Start to End, ascending.
    """

    def __init__(self, graph: Graph, edges_between: EdgesBetween) -> None:
        self.edges: list[list[tuple[int, Edge]]] = []
        self.can_skip = False
        for number, successors in enumerate(graph.successors):
            leaving: list[tuple[int, Edge]] = []
            for successor in successors:
                for edge in (_TO_END,) if successor == END else edges_between(number, successor):
                    leaving.append((successor, edge))
                    self.can_skip |= edge.condition is None and successor != END
            self.edges.append(leaving)
        self.costs = [0] * len(self.edges)
        self.costs[END] = 1
        for number in graph.successors_first():
            for successor, edge in self.edges[number]:
                self.costs[number] |= self.costs[successor] << edge.cost
        possible = self.costs[START]
        self.max_cost = max(possible.bit_length() - 1, 0)
        self.path_costs = [cost for cost in range(self.max_cost + 1) if possible >> cost & 1]


class PathSearch:
    """Move documents out of `left`, cost by cost, by looking up the documents of conditions.

    The search walks paths depth first. Each edge narrows the documents, so most paths end after an edge or two. Five words
    of ten costs each have thousands of paths of one cost. With looks_ahead the search follows an edge only with documents
    that can reach End from it. This looks up conditions that a plain walk does not reach, so only rules use it whose results
    do not reveal the conditions that were looked up. It does not work for graphs whose nodes can be skipped.
    """

    def __init__(self, plan: Plan, candidates: DocIds, looks_ahead: bool = False) -> None:
        self.left = candidates
        self._plan = plan
        self._docids: dict[Condition, DocIds] = {}
        self._path: list[QueryNode] = []
        self._found_paths: list[Path] = []
        # After a single node only End is ahead.
        self._looks_ahead = looks_ahead and not plan.can_skip and len(plan.edges) > _ONE_NODE
        # By node and remaining cost: the documents that can reach End from the node with this cost.
        self._ahead: dict[tuple[int, int], DocIds] = {}

    def bucket(self, cost: int) -> tuple[DocIds, list[Path]]:
        """Return the documents of all paths of this cost, and each path that found a document before all other paths."""
        before = self.left
        self._found_paths = []
        if self._looks_ahead:
            reached = before & self._docids_ahead(START, cost)
            if reached:
                self._walk_ahead(START, cost, reached)
        else:
            self._walk(START, cost, before, 0)
        return before - self.left, self._found_paths

    def _meeting(self, condition: Condition) -> DocIds:
        """Return the documents that meet a condition; the first call looks them up, with `left` as the candidates."""
        docids = self._docids.get(condition)
        if docids is None:
            docids = self._docids[condition] = condition.docids(self.left)
        return docids

    def _docids_ahead(self, number: int, remaining: int) -> DocIds:
        """Return the documents of `left` that can reach End from a node at exactly this cost."""
        found: list[DocIds] = []
        costs = self._plan.costs
        for successor, edge in self._plan.edges[number]:
            rest = remaining - edge.cost
            if rest < 0 or not costs[successor] >> rest & 1:
                continue
            if successor == END:
                found = [self.left]
                break
            ahead = self._ahead.get((successor, rest))
            if ahead is None:
                ahead = self._docids_ahead(successor, rest)
            if ahead and edge.condition is not None:
                found.append(ahead & self._meeting(edge.condition))
        docids = self._ahead[number, remaining] = union_of(found)
        return docids

    def _walk_ahead(self, number: int, remaining: int, docids: DocIds) -> None:
        """As `_walk`, but all documents can continue from here to End."""
        for successor, (cost, condition, node, _) in self._plan.edges[number]:
            if successor == END and not remaining:
                self._add_path(docids)
                return
            ahead = self._ahead.get((successor, remaining - cost))
            if not ahead or condition is None or node is None:
                continue
            reached = docids & ahead & self._meeting(condition)
            if reached:
                self._path.append(node)
                self._walk_ahead(successor, remaining - cost, reached)
                self._path.pop()
                docids &= self.left
                if not docids:
                    return

    def _walk(self, number: int, remaining: int, docids: DocIds, dropped: int) -> None:
        """Follow all edges out of a node. docids: the documents that reached the node; no path has found them yet."""
        costs = self._plan.costs
        for successor, (cost, condition, node, drops) in self._plan.edges[number]:
            rest = remaining - cost
            if rest < 0 or not costs[successor] >> rest & 1:
                continue
            if successor == END:
                self._add_path(docids)
                return
            if condition is None or node is None:
                self._walk(successor, rest, docids, dropped | drops)
            elif dropped >> successor & 1:
                continue
            else:
                reached = docids & self._meeting(condition)
                if not reached:
                    continue
                self._path.append(node)
                self._walk(successor, rest, reached, dropped)
                self._path.pop()
            docids &= self.left
            if not docids:
                return

    def _add_path(self, docids: DocIds) -> None:
        self.left -= docids
        self._found_paths.append(tuple(self._path))


# For a few documents whose words were read, the documents of each edge are known before any path is tried.


class WeightedEdge(NamedTuple):
    """An edge into a node: its cost, the documents that can take it, and the node in the graph of the next rule."""

    cost: int
    documents: LocalBitset
    node: QueryNode


# As EdgesBetween.
WeightedEdgesBetween = Callable[[int, int], Sequence[WeightedEdge]]


class CheapestPaths:
    """The lowest costs of a few documents through a graph.

    Returns the same results as PathSearch for the same edges if no edge skips a node, but never tries a path without
    documents: it computes the lowest cost of each document from End to Start.
    """

    def __init__(self, graph: Graph, edges_between: WeightedEdgesBetween, documents: LocalBitset) -> None:
        # By node: lowest cost to End -> its documents. Each document is in at most one of the sets.
        self._costs: list[dict[int, LocalBitset]] = [{} for _ in graph.nodes]
        self._costs[END] = {0: documents}
        self._edges: list[list[tuple[int, WeightedEdge]]] = [[] for _ in graph.nodes]
        self._found_paths: list[Path] = []
        self._left: LocalBitset = 0
        for number in graph.successors_first():
            successors = graph.successors[number]
            if END in successors:  # End is tried first and takes all documents, even if the node has other successors
                self._costs[number] = self._costs[END]
                continue
            leaving = self._edges[number]
            for successor in successors:
                for edge in edges_between(number, successor):
                    if edge.documents:
                        leaving.append((successor, edge))
            self._costs[number] = self._lowest_costs(leaving)

    def _lowest_costs(self, leaving: Sequence[tuple[int, WeightedEdge]]) -> dict[int, LocalBitset]:
        reached: dict[int, LocalBitset] = {}
        for successor, edge in leaving:
            for rest, documents in self._costs[successor].items():
                both = documents & edge.documents
                if both:
                    cost = rest + edge.cost
                    reached[cost] = reached.get(cost, 0) | both
        if len(reached) < 2:
            return reached
        lowest: dict[int, LocalBitset] = {}
        seen = 0
        for cost in sorted(reached):
            documents = reached[cost] & ~seen
            if documents:
                lowest[cost] = documents
                seen |= documents
        return lowest

    def buckets(self) -> Iterator[tuple[int, LocalBitset, list[Path]]]:
        """Yield (cost, its documents, the paths that found one), cheapest first."""
        for cost, documents in sorted(self._costs[START].items()):
            self._found_paths = []
            self._left = documents
            self._walk(START, cost, documents, ())
            yield cost, documents, self._found_paths

    def _walk(self, number: int, cost: int, documents: LocalBitset, path: Path) -> None:
        """Follow the edges out of a node. All documents have this remaining cost, so every path finds documents."""
        leaving = self._edges[number]
        if not leaving:
            self._left &= ~documents
            self._found_paths.append(path)
            return
        for successor, edge in leaving:
            reached = documents & edge.documents & self._costs[successor].get(cost - edge.cost, 0)
            if reached:
                self._walk(successor, cost - edge.cost, reached, (*path, edge.node))
                documents &= self._left
                if not documents:
                    return
