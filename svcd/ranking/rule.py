"""The protocol of ranking rules, their base classes, and the context that the rules of one search share.

`svcd.ranking.bucket_sort` runs the rules. Graph rules compute their buckets from the costs of paths through the query graph
(docs/ranking.md#graph-rules).
"""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Hashable, Iterator, Mapping, NamedTuple, Protocol, Sequence

from svcd.base.docids import DocIds
from svcd.query.graph import Graph, MatchingStrategy, QueryNode, from_paths
from svcd.query.postings import Postings
from svcd.query.terms import Subset, Terms
from svcd.ranking.forward_index import CandidateBatch, ForwardIndexLoader, LocalBitset, TermPositions
from svcd.ranking.path_search import (
    CheapestPaths, Condition, Edge, EdgesBetween, Path, PathSearch, Plan, WeightedEdge, WeightedEdgesBetween,
)
from svcd.ranking.scores import Detail, Ranked

# DocIds, or a LocalBitset of a batch.
Documents = Any


class Bucket(NamedTuple):
    """Documents that a rule considers equal, their score detail, and the graph for the next rule.

    docids: for a candidate batch, a LocalBitset. graph: builds the graph when called; nobody calls it after the last rule.
    """

    docids: Documents
    detail: Detail
    graph: Callable[[], Graph]


class Rule(Protocol):
    """A rule splits candidates into buckets, best first; buckets are disjoint subsets of the candidates, and never empty.

    Rules are lazy: they compute a bucket when the caller asks for it. is_ready: whether the next bucket is already known;
    bucket sort then takes it even after the cutoff.
    """

    is_ready: bool

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Return the buckets of any set of documents."""

    def read_batch(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """Return the candidates with their words if they are few enough for reading them to be faster."""

    def batch_buckets(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> Iterator[Bucket]:
        """Return the buckets of some documents of a batch."""


class InvertedIndexRule:
    """A rule that uses the inverted index for any number of documents."""

    is_ready = False

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Return the buckets of any set of documents."""
        raise NotImplementedError

    def read_batch(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """Return None: the rule does not read documents."""
        return None

    def batch_buckets(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> Iterator[Bucket]:
        """Return the same buckets for documents that an earlier rule has read."""
        for bucket in self.buckets(graph, batch.docids(documents)):
            yield bucket._replace(docids=batch.local(bucket.docids))


class KnownDocids:
    """A condition whose documents are known."""

    def __init__(self, docids: DocIds) -> None:
        self._docids = docids

    def docids(self, candidates: DocIds) -> DocIds:
        """Return all documents that meet the condition."""
        return self._docids


class SubsetDocids:
    """Condition: the document matches a subset, anywhere."""

    def __init__(self, terms: Terms, subset: Subset) -> None:
        self._terms = terms
        self._subset = subset

    def docids(self, candidates: DocIds) -> DocIds:
        """Return all documents that meet the condition."""
        return self._terms.docids(self._subset)


class RankingContext:
    """State that the rules of one search share: conditions, graphs by their paths, documents that were read."""

    def __init__(self, terms: Terms, strategy: MatchingStrategy) -> None:
        self.terms = terms
        self.postings: Postings = terms.postings
        self.strategy = strategy
        self.forward_index = ForwardIndexLoader(terms.postings)
        self._graphs: dict[tuple[Path, ...], Graph] = {}
        self._conditions: dict[Hashable, Condition] = {}
        self._matches: dict[Subset, Condition] = {}
        self._term_positions: dict[tuple[Subset, int | None], TermPositions] = {}

    def graph(self, paths: Sequence[Path]) -> Graph:
        """Return the graph of these paths; the same object for the same paths."""
        key = tuple(paths)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = from_paths(key)
        return graph

    def condition(self, make: Callable[..., Condition], *parts: Hashable) -> Condition:
        """Return make(terms, *parts); the same object for the same parts, so that equal conditions are computed once."""
        key = (make, *parts)
        condition = self._conditions.get(key)
        if condition is None:
            condition = self._conditions[key] = make(self.terms, *parts)
        return condition

    def matches(self, subset: Subset) -> Condition:
        """Return the condition that a document matches a subset, anywhere."""
        condition = self._matches.get(subset)
        if condition is None:
            condition = self._matches[subset] = SubsetDocids(self.terms, subset)
        return condition

    def term_positions(self, subset: Subset, phrase_end: int | None = None) -> TermPositions:
        """Return the positions of a subset in documents of a batch. phrase_end: see TermPositions."""
        found = self._term_positions.get((subset, phrase_end))
        if found is None:
            # Without phrases `phrase_end` makes no difference, and the positions are shared.
            has_phrases = phrase_end is not None and any(map(self.postings.phrase, self.terms.phrases(subset)))
            if phrase_end is None or has_phrases:
                found = TermPositions(self.terms, subset, phrase_end)
            else:
                found = self.term_positions(subset)
            self._term_positions[subset, phrase_end] = found
        return found


class GraphRule(InvertedIndexRule):
    """A rule with one bucket for each cost of paths through the query graph."""

    name: str
    # Whether a search may look up conditions that no path reaches. Most rules may: all terms of the graph are derived before
    # they run, so highlighting does not show the difference.
    looks_ahead = True

    def __init__(self, context: RankingContext) -> None:
        self.context = context
        self.terms = context.terms
        self._edges_into: dict[QueryNode, list[Edge]] = {}  # the graphs of several buckets share most of their nodes

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Yield one bucket for each cost that some document has."""
        plan: Plan | None = graph.plans.get(self.name)
        if plan is None:
            plan = graph.plans[self.name] = Plan(graph, self.edges_between(graph))
        max_rank = 1 + plan.max_cost + self.extra_rank(graph)
        search = PathSearch(plan, candidates, self.looks_ahead)
        for cost in plan.path_costs:
            if not search.left:
                return
            docids, paths = search.bucket(cost)
            if docids:
                yield Bucket(docids, Ranked(self.name, max_rank - cost, max_rank), partial(self.context.graph, paths))

    def edges_between(self, graph: Graph) -> EdgesBetween:
        """Return the edges between two nodes of the graph; by default they depend only on the second node."""
        known = self._edges_into
        entering: dict[int, list[Edge]] = {}
        for number, node in graph.term_nodes():
            edges = known.get(node)
            if edges is None:
                edges = known[node] = self.edges(node)
            entering[number] = edges
        return lambda number, successor: entering[successor]

    def edges(self, node: QueryNode) -> list[Edge]:
        """Return the edges into a node."""
        raise NotImplementedError

    def extra_rank(self, graph: Graph) -> int:
        """Return the difference between the highest rank and the number of costs."""
        return 0


class ForwardIndexRule(GraphRule):
    """A graph rule that can compute costs from the words of a few documents (docs/ranking.md#two-ways-to-evaluate-a-rule)."""

    READ_LIMIT = 0  # maximum number of documents to read for this rule

    def read_batch(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """Return the candidates with their words if they are few."""
        return self.context.forward_index.read(candidates, self.READ_LIMIT)

    def batch_buckets(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> Iterator[Bucket]:
        """Yield one bucket for each cost that some of the documents have."""
        key = self.name, "max rank"
        max_rank = graph.plans.get(key)
        if max_rank is None:
            max_rank = graph.plans[key] = 1 + graph.max_cost(self.max_cost)
        paths = CheapestPaths(graph, self.batch_edges_between(batch, graph, documents), documents)
        for cost, found, found_paths in paths.buckets():
            yield Bucket(found, Ranked(self.name, max_rank - cost, max_rank), partial(self.context.graph, found_paths))

    def max_cost(self, left: QueryNode | None, right: QueryNode) -> int:
        """Return the highest cost of an edge from one node (None: Start) to the next."""
        raise NotImplementedError

    def batch_edges_between(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> WeightedEdgesBetween:
        """Return the edges between two nodes that some of the documents can take; by default the edges into the second node."""
        entering = {number: self.batch_edges(batch, node, documents) for number, node in graph.term_nodes()}
        return lambda number, successor: entering[successor]

    def batch_edges(self, batch: CandidateBatch, node: QueryNode, documents: LocalBitset) -> list[WeightedEdge]:
        """Return the edges into a node that some of the documents can take."""
        raise NotImplementedError


def edges_by_cost(costs: Mapping[int, LocalBitset], node: QueryNode) -> list[WeightedEdge]:
    """Return one edge into a node for each cost, cheapest first."""
    return [WeightedEdge(cost, costs[cost], node) for cost in sorted(costs)]
