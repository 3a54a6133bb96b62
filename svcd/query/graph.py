"""All the ways to read a query from its first word to its last, as a graph of terms.

Knows nodes and edges, n-grams (relevance.md 2.6, 2.8), which words may be dropped first (2.9), and
how a smaller graph is made from the ways that led to documents (3.3); refuses to know costs.
Nodes are numbered; 0 is Start, 1 is End. A path is a sequence of `Stop`s.
"""
from __future__ import annotations

from enum import Enum
from typing import Any, Callable, Hashable, Iterable, Iterator, NamedTuple, Sequence

from svcd.base.bitmaps import DocIds
from svcd.query.parser import ParsedQuery, Part
from svcd.query.terms import Subset, Term, Terms

START, END = 0, 1
LONGEST_NGRAM = 3

# A word without documents is dropped last by the strategy `frequency`.
_NO_DOCUMENT = 1 << 62


class MatchingStrategy(Enum):
    """In which order words may be dropped from a query."""

    LAST = "last"
    ALL = "all"
    FREQUENCY = "frequency"


class QueryNode(NamedTuple):
    """A subset of a term at its place: positions in the query, and numbers of the terms it covers."""

    subset: Subset
    start: int
    end: int
    first: int
    last: int

    @property
    def width(self) -> int:
        """How many terms it covers: 1, or those of an n-gram."""
        return self.last - self.first + 1

    @property
    def ids(self) -> range:
        """The numbers of the terms it covers."""
        return range(self.first, self.last + 1)


class Graph:
    """Stops by node number, and for each node the numbers of those that may follow, ascending.

    Start and End have no stop (None).
    """

    def __init__(self, stops: Sequence[QueryNode | None], successors: Sequence[Sequence[int]]) -> None:
        self.stops = stops
        self.successors = successors
        self.plans: dict[Hashable, Any] = {}  # what rules worked out for this graph, by their names
        self._backwards: list[int] | None = None

    def nodes(self) -> list[tuple[int, QueryNode]]:
        """(number, stop) of all nodes but Start and End, ascending."""
        return [(number, stop) for number, stop in enumerate(self.stops) if stop is not None]

    def pairs(self) -> Iterator[tuple[QueryNode, QueryNode]]:
        """All stops with one that may follow."""
        for stop, following in zip(self.stops, self.successors):
            for behind in map(self.stops.__getitem__, following):
                if stop is not None and behind is not None:
                    yield stop, behind

    def backwards(self) -> list[int]:
        """All nodes but End, each behind those that it leads to; Start is the last one."""
        if self._backwards is None:
            self._backwards = []
            self._add_backwards(START, {END}, self._backwards)
        return self._backwards

    def _add_backwards(self, node: int, met: set[int], order: list[int]) -> None:
        for following in self.successors[node]:
            if following not in met:
                met.add(following)
                self._add_backwards(following, met, order)
        order.append(node)

    def highest(self, cost: Callable[[QueryNode | None, QueryNode], int]) -> int:
        """The cost of the dearest path. cost: of a stop, given also the one before it (None for Start)."""
        dearest = [0] * len(self.stops)
        for node in self.backwards():
            here, following = self.stops[node], self.successors[node]
            steps = ((dearest[number], self.stops[number]) for number in following)
            dearest[node] = max(rest + (0 if stop is None else cost(here, stop)) for rest, stop in steps)
        return dearest[START]


class BuiltQuery(NamedTuple):
    """A query in one index: its graph, and its terms with their places (n-grams behind the others)."""

    graph: Graph
    located: list[tuple[Term, int, int]]


# building


def build_graph(terms: Terms, parsed: ParsedQuery) -> BuiltQuery:
    """The graph of all parts of a query and their n-grams."""
    stops: list[QueryNode | None] = [None, None]
    made = [_term(terms, part) for part in parsed.parts]
    ngrams: list[tuple[Term, int, int]] = []
    for number, part in enumerate(parsed.parts):
        stops.append(QueryNode(Subset(made[number]), part.start, part.end, number, number))
        for ngram in _ngrams_ending(terms, parsed.parts, number):
            stops.append(ngram)
            ngrams.append((ngram.subset.term, ngram.start, ngram.end))
    located = [(term, part.start, part.end) for term, part in zip(made, parsed.parts)]
    return BuiltQuery(Graph(stops, _follow(stops)), located + ngrams)


def _term(terms: Terms, part: Part) -> Term:
    terms.interned.add(part.words)
    if part.is_phrase:
        return terms.phrase(part.words)
    return terms.word(_text(part), part.is_prefix)


def _text(part: Part) -> str:
    return part.words[0] or ""


def _ngrams_ending(terms: Terms, parts: Sequence[Part], number: int) -> Iterable[QueryNode]:
    for length in range(2, min(LONGEST_NGRAM, number + 1) + 1):
        joined = parts[number - length + 1 : number + 1]
        if not _are_contiguous(joined):
            return
        term = terms.ngram([_text(part) for part in joined], joined[-1].is_prefix)
        if term is not None:
            yield QueryNode(Subset(term), joined[0].start, joined[-1].end, number - length + 1, number)


def _are_contiguous(parts: Sequence[Part]) -> bool:
    if any(part.is_phrase for part in parts):
        return False
    return all(left.end + 1 == right.start for left, right in zip(parts, parts[1:]))


def _follow(stops: Sequence[QueryNode | None]) -> list[list[int]]:
    """Each node leads to all nodes that begin with the next term, or to End."""
    beginning: dict[int, list[int]] = {}
    for number, stop in enumerate(stops):
        if stop is not None:
            beginning.setdefault(stop.first, []).append(number)
    successors: list[list[int]] = []
    for number, stop in enumerate(stops):
        following = 0 if stop is None else stop.last + 1
        successors.append([] if number == END else beginning.get(following, [END]))
    return successors


def from_paths(paths: Iterable[Sequence[QueryNode]]) -> Graph:
    """The graph of these paths alone: paths that end alike share the nodes of their ends.

    Nodes are numbered as they are first met along the paths.
    """
    stops: list[QueryNode | None] = [None, None]
    successors: list[list[int]] = [[], []]
    shared: dict[tuple[QueryNode, int], int] = {}  # by stop and the node behind it, which stands for the rest
    for path in paths:
        joint, new = END, len(path)
        while new and (path[new - 1], joint) in shared:
            new -= 1
            joint = shared[path[new], joint]
        base = len(stops)
        chain = [*range(base, base + new), joint]
        for place in range(new):
            shared[path[place], chain[place + 1]] = chain[place]
        stops.extend(path[:new])
        successors.extend([following] for following in chain[1:])
        if chain[0] not in successors[START]:
            successors[START].append(chain[0])
    successors[START].sort()
    return Graph(stops, successors)


# dropping words


def removal_groups(graph: Graph, terms: Terms, strategy: MatchingStrategy) -> list[list[int]]:
    """Groups of nodes that may be dropped, in the order in which they are (2.9)."""
    nodes = graph.nodes()
    ids = sorted({number for _, stop in nodes for number in stop.ids})
    if len(ids) < 2 or strategy is MatchingStrategy.ALL:
        return []
    if strategy is MatchingStrategy.LAST:
        costs = {number: 1 + ids[-1] - number for number in ids}
    else:
        costs = _costs_by_frequency(nodes, terms, ids)
    groups: dict[int, list[int]] = {}
    has_undroppable = False
    for node, stop in nodes:
        if stop.subset.term.phrase is not None or stop.subset.is_mandatory:
            has_undroppable = True
        else:
            groups.setdefault(max(costs[number] for number in stop.ids), []).append(node)
    ordered = [groups[cost] for cost in sorted(groups)]
    return ordered if has_undroppable else ordered[:-1]


def _costs_by_frequency(
    nodes: Sequence[tuple[int, QueryNode]], terms: Terms, ids: Sequence[int]
) -> dict[int, int]:
    """The term of most documents costs 1, the next 2; as many documents, the same cost."""
    docids = dict.fromkeys(ids, 0)
    for _, stop in nodes:
        for number in stop.ids:
            docids[number] |= terms.docids(stop.subset)
    counts = {number: found.bit_count() or _NO_DOCUMENT for number, found in docids.items()}
    ranks = {count: rank for rank, count in enumerate(sorted(set(counts.values()), reverse=True), 1)}
    return {number: ranks[count] for number, count in counts.items()}


def universe(graph: Graph, terms: Terms, strategy: MatchingStrategy, candidates: DocIds) -> DocIds:
    """The candidates that match the query without any of the words that may be dropped."""
    droppable = {node for group in removal_groups(graph, terms, strategy) for node in group}
    reached = [0] * len(graph.stops)
    reached[START] = candidates
    # The numbers of `build` ascend along every path.
    for node, successors in enumerate(graph.successors):
        stop = graph.stops[node]
        if stop is not None and node not in droppable:
            reached[node] &= terms.docids(stop.subset)
        for following in successors:
            reached[following] |= reached[node]
    return reached[END]
