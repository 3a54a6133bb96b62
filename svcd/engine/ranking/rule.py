"""What a ranking rule is, and what the rules of one search share.

Knows the contract between rules and the loop that runs them, and how a rule that walks the query
graph makes buckets of costs; refuses to know any cost.
"""
from __future__ import annotations

from typing import Callable, Hashable, Iterator, NamedTuple, Protocol, Sequence

from svcd.bitsets import from_docids
from svcd.engine.derivations import Terms
from svcd.engine.postings import Postings
from svcd.engine.querygraph import Graph, MatchingStrategy, Stop, from_paths
from svcd.engine.ranking.few import DocumentWords, Few, Met
from svcd.engine.ranking.graph import Condition, Path, PathSearch, Plan, Step, plan
from svcd.engine.ranking.scores import Detail, Ranked
from svcd.engine.reader import DocIds
from svcd.engine.terms import Subset


class Bucket(NamedTuple):
    """Documents that a rule holds equal, what it says of them, and the graph for the next rule."""

    docids: DocIds
    detail: Detail
    graph: Graph


class Rule(Protocol):
    """Splits candidates into buckets, best first; buckets are disjoint subsets of the candidates."""

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Lazily: a bucket is worked out when it is asked for. Empty buckets are left out."""


class Known:
    """A condition whose documents are known."""

    def __init__(self, docids: DocIds) -> None:
        self._docids = docids

    @classmethod
    def of(cls, docids: Sequence[int]) -> Known:
        """From a list of docids."""
        return cls(from_docids(docids))

    def docids(self, candidates: DocIds) -> DocIds:
        """All documents that fulfil it."""
        return self._docids


class Matching:
    """The condition to match a subset, anywhere."""

    def __init__(self, terms: Terms, subset: Subset) -> None:
        self._terms = terms
        self._subset = subset

    def docids(self, candidates: DocIds) -> DocIds:
        """All documents that fulfil it."""
        return self._terms.docids(self._subset)


class Shared:
    """What the rules of one search remember together: conditions, graphs by their paths, documents read."""

    def __init__(self, terms: Terms, strategy: MatchingStrategy) -> None:
        self.terms = terms
        self.postings: Postings = terms.postings
        self.strategy = strategy
        self.few = Few(terms.postings)
        self._graphs: dict[tuple[Path, ...], Graph] = {}
        self._conditions: dict[Hashable, Condition] = {}
        self._met: dict[tuple[Subset, int | None], Met] = {}

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

    def met(self, subset: Subset, place: int | None = None) -> Met:
        """The words by which a subset is met in documents that are read."""
        key = subset, place
        met = self._met.get(key)
        if met is None:
            met = self._met[key] = Met(self.terms, subset, place)
        return met

    def matching(self, subset: Subset) -> Condition:
        """The condition to match a subset, anywhere."""
        return self.condition(Matching, subset)


class GraphRule:
    """A rule whose buckets are the costs of paths through the query graph.

    Steps depend on the graph alone, unless the rule can make them from the words of a few documents:
    then each set of candidates has its own.
    """

    name: str

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.terms = shared.terms

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """One bucket for each cost that some document has."""
        made = self._plan(graph, candidates)
        most = 1 + made.highest + self.extra_rank(graph)
        search = PathSearch(made, candidates)
        for cost in made.ascending():
            if not search.left:
                return
            docids, paths = search.bucket(cost)
            if docids:
                yield Bucket(docids, Ranked(self.name, most - cost, most), self.shared.graph(paths))

    def _plan(self, graph: Graph, candidates: DocIds) -> Plan:
        few = self.few(candidates)
        if few is not None:
            into = {node: self.steps_of_few(stop, few) for node, stop in graph.nodes()}
            return plan(graph, lambda node, target: into[target])
        made = graph.plans.get(self.name)
        if made is None:
            made = graph.plans[self.name] = plan(graph, self.steps_between(graph))
        return made

    def steps_between(self, graph: Graph) -> Callable[[int, int], Sequence[Step]]:
        """(node, next node) -> the steps; by default they do not depend on where they come from."""
        into = {node: self.steps(stop) for node, stop in graph.nodes()}
        return lambda node, target: into[target]

    def steps(self, stop: Stop) -> list[Step]:
        """The steps into a node."""
        raise NotImplementedError

    def few(self, candidates: DocIds) -> list[DocumentWords] | None:
        """The candidates read whole, if they are few and the rule can do with that."""
        return None

    def steps_of_few(self, stop: Stop, documents: Sequence[DocumentWords]) -> list[Step]:
        """The steps into a node for these documents alone."""
        raise NotImplementedError

    def extra_rank(self, graph: Graph) -> int:
        """What the highest rank is above the number of costs."""
        return 0
