"""The query graph: all ways to read a query, from its first word to its last (docs/ranking.md#query-graph).

A node is a subset of the derivations of a term; its edges lead to all nodes that start with the next word. Nodes are
numbered: 0 is Start and 1 is End, both without a term (None). A path is a sequence of nodes without Start and End.
"""
from __future__ import annotations

from enum import Enum
from typing import Any, Callable, Hashable, Iterable, NamedTuple, Sequence

from svcd.base.docids import EMPTY, DocIds
from svcd.query.parser import ParsedQuery, Part
from svcd.query.terms import Subset, Term, Terms

START, END = 0, 1
LONGEST_NGRAM = 3

# Replaces the document count of a word without documents in the strategy `frequency`; higher than any real count.
_NO_DOCUMENT = 1 << 62


class MatchingStrategy(Enum):
    """The order in which a search may drop words from a query."""

    LAST = "last"
    ALL = "all"
    FREQUENCY = "frequency"


class QueryNode(NamedTuple):
    """A subset of a term at its position in the query.

    start, end: first and last position. first, last: numbers of the first and last word or phrase that it covers.
    """

    subset: Subset
    start: int
    end: int
    first: int
    last: int

    @property
    def width(self) -> int:
        """The number of query words that the node covers; more than 1 for an n-gram."""
        return self.last - self.first + 1


class Graph:
    """Nodes by number, and the numbers of the successors of each node, ascending.

    plans: results that ranking rules cache for this graph, under their own keys.
    """

    def __init__(self, nodes: Sequence[QueryNode | None], successors: Sequence[Sequence[int]]) -> None:
        self.nodes = nodes
        self.successors = successors
        self.plans: dict[Hashable, Any] = {}
        self._term_nodes: list[tuple[int, QueryNode]] | None = None
        self._successors_first: list[int] | None = None

    def term_nodes(self) -> list[tuple[int, QueryNode]]:
        """Return (number, node) of all nodes except Start and End, ascending."""
        if self._term_nodes is None:
            self._term_nodes = [(number, node) for number, node in enumerate(self.nodes) if node is not None]
        return self._term_nodes

    def successors_first(self) -> list[int]:
        """Return the numbers of all nodes except End, each after its successors; Start is the last."""
        if self._successors_first is None:
            self._successors_first = []
            self._add_successors_first(START, {END}, self._successors_first)
        return self._successors_first

    def _add_successors_first(self, number: int, seen: set[int], order: list[int]) -> None:
        for successor in self.successors[number]:
            if successor not in seen:
                seen.add(successor)
                self._add_successors_first(successor, seen, order)
        order.append(number)

    def max_cost(self, cost: Callable[[QueryNode | None, QueryNode], int]) -> int:
        """Return the cost of the most expensive path. cost(left, entered): cost of an edge; left is None for Start."""
        costs = [0] * len(self.nodes)
        for number in self.successors_first():
            node, highest = self.nodes[number], 0
            for successor in self.successors[number]:
                entered = self.nodes[successor]
                total = costs[successor] + (0 if entered is None else cost(node, entered))
                highest = max(highest, total)
            costs[number] = highest
        return costs[START]


class BuiltQuery(NamedTuple):
    """A query in one index: its graph, and its terms with their first and last positions; n-grams last."""

    graph: Graph
    located: list[tuple[Term, int, int]]


# Building


def build_graph(terms: Terms, parsed: ParsedQuery) -> BuiltQuery:
    """Return the graph of all parts of a query and their n-grams."""
    # All single terms are created before the first n-gram: highlighting depends on the order of creation.
    located: list[tuple[Term, int, int]] = []
    for part in parsed.parts:
        terms.interner.add(part.words)
        term = terms.phrase(part.words) if part.is_phrase else terms.word(part.words[0] or "", part.is_prefix)
        located.append((term, part.start, part.end))
    nodes: list[QueryNode | None] = [None, None]
    ngrams: list[tuple[Term, int, int]] = []
    for number, (term, start, end) in enumerate(located):
        nodes.append(QueryNode(Subset(term), start, end, number, number))
        for ngram in _ngrams_ending_with(terms, parsed.parts, number):
            nodes.append(ngram)
            ngrams.append((ngram.subset.term, ngram.start, ngram.end))
    starting_with: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        if node is not None:
            starting_with.setdefault(node.first, []).append(number)
    # Each node leads to all nodes that start with the next word, or to End.
    successors = [[] if number == END else starting_with.get(0 if node is None else node.last + 1, [END])
                  for number, node in enumerate(nodes)]
    return BuiltQuery(Graph(nodes, successors), located + ngrams)


def _ngrams_ending_with(terms: Terms, parts: Sequence[Part], number: int) -> list[QueryNode]:
    """Return the 2-gram and the 3-gram that end with a part, if it can be joined with the parts before it."""
    ngrams: list[QueryNode] = []
    last = first = parts[number]
    words = [first.words[0] or ""]
    for start in range(number - 1, max(number - LONGEST_NGRAM, -1), -1):
        before = parts[start]
        if first.is_phrase or before.is_phrase or before.end + 1 != first.start:
            break
        words.insert(0, before.words[0] or "")
        term = terms.ngram(words, last.is_prefix)
        if term is not None:
            ngrams.append(QueryNode(Subset(term), before.start, last.end, start, number))
        first = before
    return ngrams


def from_paths(paths: Iterable[Sequence[QueryNode]]) -> Graph:
    """Return the graph of exactly these paths; paths with the same last nodes share these nodes.

    Nodes are numbered in order of first appearance along the paths.
    """
    nodes: list[QueryNode | None] = [None, None]
    successors: list[list[int]] = [[], []]
    known: dict[tuple[QueryNode, int], int] = {}  # by node and number of its successor, which identifies the rest of the path
    for path in paths:
        joint, new = END, len(path)
        while new and (path[new - 1], joint) in known:
            new -= 1
            joint = known[path[new], joint]
        base = len(nodes)
        chain = [*range(base, base + new), joint]
        for place in range(new):
            known[path[place], chain[place + 1]] = chain[place]
            successors.append([chain[place + 1]])
        nodes.extend(path[:new])
        if chain[0] not in successors[START]:
            successors[START].append(chain[0])
    successors[START].sort()
    return Graph(nodes, successors)


# Dropping words


def removal_groups(graph: Graph, terms: Terms, strategy: MatchingStrategy) -> list[list[int]]:
    """Return the groups of nodes (by number) that may be dropped, in the order of dropping.

    See docs/ranking.md#universe-and-dropped-words.
    """
    known: list[list[int]] | None = graph.plans.get(strategy)
    if known is not None:
        return known
    nodes = graph.term_nodes()
    covered: set[int] = set()
    for _, node in nodes:
        covered.update(range(node.first, node.last + 1))
    if len(covered) < 2 or strategy is MatchingStrategy.ALL:
        graph.plans[strategy] = []
        return []
    if strategy is MatchingStrategy.LAST:
        last = max(covered)
        costs = {number: 1 + last - number for number in covered}
    else:
        costs = _costs_by_frequency(nodes, terms, sorted(covered))
    groups: dict[int, list[int]] = {}
    has_undroppable = False
    for number, node in nodes:
        if node.subset.term.phrase is not None or node.subset.is_mandatory:
            has_undroppable = True
        else:
            cost = max(map(costs.__getitem__, range(node.first, node.last + 1)))
            groups.setdefault(cost, []).append(number)
    ordered = [groups[cost] for cost in sorted(groups)]
    # Some node must remain: if all nodes may be dropped, the group with the highest cost stays.
    known = graph.plans[strategy] = ordered if has_undroppable else ordered[:-1]
    return known


def _costs_by_frequency(
    nodes: Sequence[tuple[int, QueryNode]], terms: Terms, covered: Sequence[int]
) -> dict[int, int]:
    """Return costs by word: 1 for the word with most documents, then 2 and so on; equal counts cost the same."""
    docids = dict.fromkeys(covered, EMPTY)
    for _, node in nodes:
        for number in range(node.first, node.last + 1):
            docids[number] |= terms.docids(node.subset)
    counts = {number: len(found) or _NO_DOCUMENT for number, found in docids.items()}
    costs = {count: cost for cost, count in enumerate(sorted(set(counts.values()), reverse=True), 1)}
    return {number: costs[count] for number, count in counts.items()}


def universe(graph: Graph, terms: Terms, strategy: MatchingStrategy, candidates: DocIds) -> DocIds:
    """Return the candidates that match the query after all droppable words are dropped."""
    droppable: set[int] = set()
    droppable.update(*removal_groups(graph, terms, strategy))
    reached = [EMPTY] * len(graph.nodes)
    reached[START] = candidates
    # build_graph() numbers nodes so that they ascend along every path.
    for number, successors in enumerate(graph.successors):
        node = graph.nodes[number]
        if node is not None and number not in droppable:
            reached[number] &= terms.docids(node.subset)
        for successor in successors:
            reached[successor] |= reached[number]
    return reached[END]
