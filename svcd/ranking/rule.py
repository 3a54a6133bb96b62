"""What a ranking rule is, and what the rules of one search share.

Knows the contract between rules and the loop that runs them, and how a rule that walks the query
graph makes buckets of costs; refuses to know any cost.
"""
from __future__ import annotations

from functools import partial
from typing import Callable, Hashable, Iterator, Mapping, NamedTuple, Protocol, Sequence

from svcd.base.bitmaps import DocIds
from svcd.query.graph import Graph, MatchingStrategy, QueryNode, from_paths
from svcd.query.postings import Postings
from svcd.query.terms import Subset, Terms
from svcd.ranking.forward_index import CandidateBatch, ForwardIndexLoader, LocalBitset, TermPositions
from svcd.ranking.path_search import CheapestPaths, Condition, Edge, EdgesBetween, Path, PathSearch, WeightedEdge, plan
from svcd.ranking.scores import Detail, Ranked


class Bucket(NamedTuple):
    """Documents that a rule holds equal, what it says of them, and the graph for the next rule.

    docids: of a group, the set as the group has it. graph: made when it is asked for, which the last
    rule of all never is.
    """

    docids: DocIds
    detail: Detail
    graph: Callable[[], Graph]


class Rule(Protocol):
    """Splits candidates into buckets, best first; buckets are disjoint subsets of the candidates.

    Lazily: a bucket is worked out when it is asked for. Empty buckets are left out.
    """

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """The buckets of any set of documents."""

    def group(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """The candidates read whole, if they are few enough for that to be the quicker way."""

    def buckets_of(self, group: CandidateBatch, graph: Graph, chosen: LocalBitset) -> Iterator[Bucket]:
        """The buckets of some documents of a group."""


class InvertedIndexRule:
    """A rule that asks the index, however few documents there are."""

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """The buckets of any set of documents."""
        raise NotImplementedError

    def group(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """None: it does not read documents."""
        return None

    def buckets_of(self, group: CandidateBatch, graph: Graph, chosen: LocalBitset) -> Iterator[Bucket]:
        """The same buckets for documents that were read by an earlier rule."""
        for bucket in self.buckets(graph, group.docids(chosen)):
            yield bucket._replace(docids=group.of(bucket.docids))


class KnownDocids:
    """A condition whose documents are known."""

    def __init__(self, docids: DocIds) -> None:
        self._docids = docids

    def docids(self, candidates: DocIds) -> DocIds:
        """All documents that fulfil it."""
        return self._docids


class SubsetDocids:
    """The condition to match a subset, anywhere."""

    def __init__(self, terms: Terms, subset: Subset) -> None:
        self._terms = terms
        self._subset = subset

    def docids(self, candidates: DocIds) -> DocIds:
        """All documents that fulfil it."""
        return self._terms.docids(self._subset)


class RankingContext:
    """What the rules of one search remember together: conditions, graphs by their paths, documents read."""

    def __init__(self, terms: Terms, strategy: MatchingStrategy) -> None:
        self.terms = terms
        self.postings: Postings = terms.postings
        self.strategy = strategy
        self.few = ForwardIndexLoader(terms.postings)
        self._graphs: dict[tuple[Path, ...], Graph] = {}
        self._conditions: dict[Hashable, Condition] = {}
        self._met: dict[tuple[Subset, int | None], TermPositions] = {}

    def graph(self, paths: Sequence[Path]) -> Graph:
        """The graph of these paths, the same one for the same paths."""
        key = tuple(paths)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = from_paths(key)
        return graph

    def condition(self, make: Callable[..., Condition], *parts: Hashable) -> Condition:
        """make(terms, *parts), the same one each time: equal steps are worked out once."""
        key = (make, *parts)
        condition = self._conditions.get(key)
        if condition is None:
            condition = self._conditions[key] = make(self.terms, *parts)
        return condition

    def met(self, subset: Subset, place: int | None = None) -> TermPositions:
        """The words by which a subset is met in documents that are read."""
        met = self._met.get((subset, place))
        if met is None:
            has_phrases = any(map(self.postings.phrase, self.terms.phrases(subset)))
            met = self.met(subset) if place is not None and not has_phrases else TermPositions(self.terms, subset, place)
            self._met[subset, place] = met
        return met

    def matching(self, subset: Subset) -> Condition:
        """The condition to match a subset, anywhere."""
        return self.condition(SubsetDocids, subset)


class GraphRule(InvertedIndexRule):
    """A rule whose buckets are the costs of paths through the query graph."""

    name: str
    # All terms of the graph are derived by now, so that it does not show which conditions are asked for.
    looks_ahead = True

    def __init__(self, shared: RankingContext) -> None:
        self.shared = shared
        self.terms = shared.terms

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """One bucket for each cost that some document has."""
        made = graph.plans.get(self.name)
        if made is None:
            made = graph.plans[self.name] = plan(graph, self.steps_between(graph))
        most = 1 + made.highest + self.extra_rank(graph)
        search = PathSearch(made, candidates, self.looks_ahead)
        for cost in made.ascending():
            if not search.left:
                return
            docids, paths = search.bucket(cost)
            if docids:
                yield Bucket(docids, Ranked(self.name, most - cost, most), partial(self.shared.graph, paths))

    def steps_between(self, graph: Graph) -> Callable[[int, int], Sequence[Edge]]:
        """(node, next node) -> the steps; by default they do not depend on where they come from."""
        into = {node: self.steps(stop) for node, stop in graph.nodes()}
        return lambda node, target: into[target]

    def steps(self, stop: QueryNode) -> list[Edge]:
        """The steps into a node."""
        raise NotImplementedError

    def extra_rank(self, graph: Graph) -> int:
        """What the highest rank is above the number of costs."""
        return 0


class ForwardIndexRule(GraphRule):
    """A rule that finds the costs of a few documents in the documents themselves."""

    FEW = 0  # so many documents are read for it alone

    def group(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """The candidates read whole, if they are few."""
        return self.shared.few.group(candidates, self.FEW)

    def buckets_of(self, group: CandidateBatch, graph: Graph, chosen: LocalBitset) -> Iterator[Bucket]:
        """One bucket for each cost that some of the documents have."""
        most = graph.plans.get((self.name, "most"))
        if most is None:
            most = graph.plans[self.name, "most"] = 1 + graph.highest(self.highest)
        paths = CheapestPaths(graph, self.ways_between(group, graph, chosen), chosen)
        for cost, found, good in paths.buckets():
            yield Bucket(found, Ranked(self.name, most - cost, most), partial(self.shared.graph, good))

    def highest(self, left: QueryNode | None, right: QueryNode) -> int:
        """The highest cost of a step between two stops."""
        raise NotImplementedError

    def ways_between(self, group: CandidateBatch, graph: Graph, chosen: LocalBitset) -> EdgesBetween:
        """(node, next node) -> the steps as far as these documents go; by default those into the next node alone."""
        into = {node: self.ways(group, stop, chosen) for node, stop in graph.nodes()}
        return lambda node, target: into[target]

    def ways(self, group: CandidateBatch, stop: QueryNode, chosen: LocalBitset) -> list[WeightedEdge]:
        """The steps into a node that some of these documents can take."""
        raise NotImplementedError


def edges_by_cost(costs: Mapping[int, LocalBitset], stop: QueryNode) -> list[WeightedEdge]:
    """Ways into a node, cheapest first."""
    return [WeightedEdge(cost, costs[cost], stop) for cost in sorted(costs)]
