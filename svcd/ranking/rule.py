"""Ranking rules: their protocol, their base classes, and the cheapest paths from which graph rules compute buckets.

`svcd.ranking.bucket_sort` runs the rules. A graph rule (docs/ranking.md#graph-rules) puts one or more edges, each with a cost,
between two nodes of the query graph:

    Start --- star [0 typos, cost 0] ---+--- wars [0 typos, cost 0] --- End
          \\-- star [1 typo,  cost 1] --/ \\-- wars [1 typo,  cost 1] --/

The bucket of cost 1 contains the documents of all paths whose edges add up to 1. The paths that found documents form the
graph of the next rule. Two evaluators return the same buckets and paths: PathSearch looks up the documents of a condition in
the inverted index; CheapestPaths gets, for each edge, the set of documents that can take it.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.query.graph import END, START, Graph, MatchingStrategy, QueryNode, from_paths
from svcd.query.reader import DocumentWords
from svcd.query.terms import Postings, Subset, Terms, first_word
from svcd.ranking.bm25 import Scorer
from svcd.ranking.scores import Detail, Ranked

# A set of documents of one batch; bit n is the n-th document.
LocalBitset = int
# DocIds, or a LocalBitset of a batch.
Documents = Any


class Bucket(NamedTuple):
    """Documents that a rule considers equal, their score detail, and the graph for the next rule.

    docids: for a candidate batch, a LocalBitset. graph: builds the graph when called; nobody calls it after the last rule.
    """

    docids: Documents
    detail: Detail
    graph: Callable[[], Graph]


class Rule:
    """A rule splits candidates into buckets, best first; buckets are disjoint subsets of the candidates, and never empty.

    Rules are lazy: they compute a bucket when the caller asks for it. is_ready: whether the next bucket is already known;
    bucket sort then takes it even after the cutoff.
    """

    is_ready = False

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Return the buckets of any set of documents, from the inverted index."""
        raise NotImplementedError

    def read_batch(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """Return the candidates with their words if they are few enough for reading them to be faster; by default never."""
        return None

    def batch_buckets(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> Iterator[Bucket]:
        """Return the buckets of some documents of a batch; by default from the inverted index."""
        for bucket in self.buckets(graph, batch.docids(documents)):
            yield Bucket(batch.local(bucket.docids), bucket.detail, bucket.graph)


# Edges

Path = tuple[QueryNode, ...]
# Candidates -> the documents that may take an edge; the result only has to be exact for the candidates.
Condition = Callable[[DocIds], DocIds]


class Edge(NamedTuple):
    """An edge into a node, or past it.

    condition: None to skip the node, which every document may do. node: the node in the graph of the next rule, None to omit
    it. dropped: the nodes, as bits, that a path must not enter after it skipped this node.
    """

    cost: int
    condition: Condition | None
    node: QueryNode | None
    dropped: int = 0


class WeightedEdge(NamedTuple):
    """An edge into a node: its cost, the documents that can take it, and the node in the graph of the next rule."""

    cost: int
    documents: LocalBitset
    node: QueryNode


# (number of a node, number of a successor other than End) -> the edges between them, in the order to try them.
EdgesBetween = Mapping[tuple[int, int], Sequence[Edge]]
WeightedEdgesBetween = Mapping[tuple[int, int], Sequence[WeightedEdge]]


class RankingContext:
    """State that the rules of one search share: conditions, graphs by their paths, documents that were read."""

    def __init__(self, terms: Terms, strategy: MatchingStrategy) -> None:
        self.terms = terms
        self.postings: Postings = terms.postings
        self.strategy = strategy
        self.forward_index = ForwardIndexLoader(terms.postings)
        self.scorer: Scorer | None = None  # of BM25, if the search uses it
        self._graphs: dict[tuple[Path, ...], Graph] = {}
        self._conditions: dict[Hashable, Condition] = {}
        self._term_positions: dict[tuple[Subset, int | None], TermPositions] = {}

    def graph(self, paths: Sequence[Path]) -> Graph:
        """Return the graph of these paths; the same object for the same paths."""
        key = tuple(paths)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = from_paths(key)
        return graph

    def condition(self, docids: Callable[..., DocIds], *parts: Hashable) -> Condition:
        """Return the condition docids(terms, *parts, candidates); the same object for the same arguments, so that its
        documents are looked up once."""
        key = (docids, *parts)
        condition = self._conditions.get(key)
        if condition is None:
            condition = self._conditions[key] = partial(docids, self.terms, *parts)
        return condition

    def matches(self, subset: Subset) -> Condition:
        """Return the condition that a document matches a subset, anywhere."""
        condition = self._conditions.get(subset)
        if condition is None:
            terms = self.terms
            condition = self._conditions[subset] = lambda _: terms.docids(subset)
        return condition

    def term_positions(self, subset: Subset, phrase_end: int | None = None) -> TermPositions:
        """Return the positions of a subset in documents of a batch. phrase_end: see TermPositions."""
        found = self._term_positions.get((subset, phrase_end))
        if found is None:
            # Without phrases `phrase_end` makes no difference, and the positions are shared.
            if phrase_end is None or any(map(self.postings.phrase, self.terms.derivations(subset).phrases)):
                found = TermPositions(self.terms, subset, phrase_end)
            else:
                found = self.term_positions(subset)
            self._term_positions[subset, phrase_end] = found
        return found


class GraphRule(Rule):
    """A rule with one bucket for each cost of paths through the query graph."""

    name: str
    # Whether highlighting shows which conditions were looked up. Mostly it does not: all terms of the graph are derived before
    # the rule runs.
    is_revealing = False
    # Whether to look up conditions that no path reaches.
    looks_ahead = True
    # Whether a condition is computed only for the documents that reached it, if they are much fewer than all that are left.
    narrows = False

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
        search = PathSearch(plan, candidates, self.looks_ahead, self.narrows, self.is_revealing)
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
        for number, node in graph.term_nodes:
            edges = known.get(node)
            if edges is None:
                edges = known[node] = self.edges(node)
            entering[number] = edges
        return {(number, successor): entering[successor] for number, successor, _, _ in graph.steps}

    def edges(self, node: QueryNode) -> list[Edge]:
        """Return the edges into a node."""
        raise NotImplementedError

    def extra_rank(self, graph: Graph) -> int:
        """Return the difference between the highest rank and the number of costs."""
        return 0


class ForwardIndexRule(GraphRule):
    """A graph rule that can compute costs from the words of a few documents (docs/ranking.md#two-ways-to-evaluate-a-rule)."""

    # The largest number of documents to read for this rule; for more the inverted index is faster. Measured on 36,000 films of 90
    # words. In the inverted index, fields are the fastest to look up and positions the slowest.
    READ_LIMIT = 0

    def read_batch(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """Return the candidates with their words if they are few."""
        return self.context.forward_index.read(candidates, self.READ_LIMIT)

    def batch_buckets(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> Iterator[Bucket]:
        """Yield one bucket for each cost that some of the documents have."""
        key = self.name, "max rank"
        max_rank = graph.plans.get(key)
        if max_rank is None:
            step_costs, costs = self.max_costs(graph), [0] * len(graph.nodes)
            for number in graph.successors_first:
                for successor in graph.successors[number]:
                    costs[number] = max(costs[number], costs[successor] + step_costs.get((number, successor), 0))
            max_rank = graph.plans[key] = 1 + costs[START]
        paths = CheapestPaths(graph, self.batch_edges_between(batch, graph, documents), documents)
        for cost, found, found_paths in paths.buckets():
            yield Bucket(found, Ranked(self.name, max_rank - cost, max_rank), partial(self.context.graph, found_paths))

    def max_costs(self, graph: Graph) -> Mapping[tuple[int, int], int]:
        """Return (number of a node, number of a successor other than End) -> the highest cost of an edge between them."""
        raise NotImplementedError

    def batch_edges_between(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> WeightedEdgesBetween:
        """Return the edges between two nodes that some of the documents can take; by default the edges into the second node."""
        entering = {}
        for number, node in graph.term_nodes:
            entering[number] = self.batch_edges(batch, node, documents)
        return {(number, successor): entering[successor] for number, successor, _, _ in graph.steps}

    def batch_edges(self, batch: CandidateBatch, node: QueryNode, documents: LocalBitset) -> list[WeightedEdge]:
        """Return the edges into a node that some of the documents can take."""
        raise NotImplementedError


def edges_by_cost(costs: Mapping[int, LocalBitset], node: QueryNode) -> list[WeightedEdge]:
    """Return one edge into a node for each cost, cheapest first."""
    return [WeightedEdge(cost, costs[cost], node) for cost in sorted(costs)]


# Paths

_TO_END = (Edge(0, None, None),)
_ONE_NODE = 3  # with Start and End
# A condition is computed for all documents that are left, unless they are this many more than the documents that reached it.
WORTH_NARROWING = 1000


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
                for edge in _TO_END if successor == END else edges_between[number, successor]:
                    leaving.append((successor, edge))
                    self.can_skip |= edge.condition is None and successor != END
            self.edges.append(leaving)
        self.costs = [0] * len(self.edges)
        self.costs[END] = 1
        for number in graph.successors_first:
            for successor, edge in self.edges[number]:
                self.costs[number] |= self.costs[successor] << edge.cost
        possible = self.costs[START]
        self.max_cost = max(possible.bit_length() - 1, 0)
        self.path_costs: list[int] = []
        for cost in range(self.max_cost + 1):
            if possible >> cost & 1:
                self.path_costs.append(cost)


class PathSearch:
    """Move documents out of `left`, cost by cost, by looking up the documents of conditions.

    The search walks paths depth first. Each edge narrows the documents, so most paths end after an edge or two. Five words
    of ten costs each have thousands of paths of one cost. With looks_ahead the search follows an edge only with documents
    that can reach End from it. This looks up conditions that a plain walk does not reach, so only rules use it whose results
    do not reveal the conditions that were looked up. It does not work for graphs whose nodes can be skipped.

    is_revealing: look up the conditions of all edges out of a node, also after all documents that reached it were found (quirk).
    """

    def __init__(self, plan: Plan, candidates: DocIds, looks_ahead: bool = False, narrows: bool = False,
                 is_revealing: bool = False) -> None:
        self.left = candidates
        self._plan = plan
        self._docids: dict[Condition, DocIds] = {}
        self._narrows = narrows
        self._is_revealing = is_revealing
        # Conditions computed for some documents: these documents, and the ones among them that meet the condition.
        self._partly: dict[Condition, tuple[DocIds, DocIds]] = {}
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

    def _docids_ahead(self, number: int, remaining: int) -> DocIds:
        """Return the documents of `left` that can reach End from a node at exactly this cost."""
        found: list[DocIds] = []
        known, costs = self._docids, self._plan.costs
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
                meeting = known.get(edge.condition)
                if meeting is None:
                    meeting = known[edge.condition] = edge.condition(self.left)
                found.append(ahead & meeting)
        docids = self._ahead[number, remaining] = union_of(found)
        return docids

    def _walk_ahead(self, number: int, remaining: int, docids: DocIds) -> None:
        """As `_walk`, but all documents can continue from here to End, and their conditions are known."""
        for successor, (cost, condition, node, _) in self._plan.edges[number]:
            if successor == END and not remaining:
                self.left -= docids
                self._found_paths.append(tuple(self._path))
                return
            ahead = self._ahead.get((successor, remaining - cost))
            if not ahead or condition is None or node is None:
                continue
            reached = docids & ahead & self._docids[condition]
            if reached:
                self._path.append(node)
                self._walk_ahead(successor, remaining - cost, reached)
                self._path.pop()
                docids &= self.left
                if not docids:
                    return

    def _walk(self, number: int, remaining: int, docids: DocIds, dropped: int) -> None:
        """Follow all edges out of a node. docids: the documents that reached the node; no path has found them yet."""
        known, plan = self._docids, self._plan
        for successor, (cost, condition, node, drops) in plan.edges[number]:
            rest = remaining - cost
            if rest < 0 or not plan.costs[successor] >> rest & 1:
                continue
            if successor == END:
                if docids:
                    self.left -= docids
                    self._found_paths.append(tuple(self._path))
                return
            if condition is None or node is None:
                self._walk(successor, rest, docids, dropped | drops)
            elif dropped >> successor & 1:
                continue
            else:
                meeting = known.get(condition)
                if meeting is None:
                    if self._narrows and len(self.left) - len(docids) > WORTH_NARROWING:
                        meeting = self._among(condition, docids)
                    else:
                        meeting = known[condition] = condition(self.left)
                reached = docids & meeting
                if not reached:
                    continue
                self._path.append(node)
                self._walk(successor, rest, reached, dropped)
                self._path.pop()
            docids &= self.left
            if not docids and not (self._is_revealing and self.left):
                return

    def _among(self, condition: Condition, docids: DocIds) -> DocIds:
        """Return the documents that meet a condition, at least those of `docids`."""
        asked, meeting = self._partly.get(condition, (EMPTY, EMPTY))
        fresh = docids - asked
        if fresh:
            meeting |= condition(fresh)
            self._partly[condition] = asked | fresh, meeting
        return meeting


class CheapestPaths:
    """The lowest costs of a few documents through a graph.

    Returns the same results as PathSearch for the same edges if no edge skips a node, but never tries a path without
    documents: it computes the lowest cost of each document from End to Start.
    """

    def __init__(self, graph: Graph, edges_between: WeightedEdgesBetween, documents: LocalBitset) -> None:
        # By node: lowest cost to End -> its documents. Each document is in at most one of the sets.
        self._costs: dict[int, dict[int, LocalBitset]] = {END: {0: documents}}
        self._edges: dict[int, list[tuple[int, WeightedEdge]]] = {}
        self._found_paths: list[Path] = []
        self._left: LocalBitset = 0
        for number in graph.successors_first:
            successors = graph.successors[number]
            if END in successors:  # End is tried first and takes all documents, even if the node has other successors
                self._costs[number] = self._costs[END]
                continue
            leaving: list[tuple[int, WeightedEdge]] = []
            self._edges[number] = leaving
            for successor in successors:
                for edge in edges_between[number, successor]:
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
        leaving = self._edges.get(number)
        if leaving is None:  # only End is ahead
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


# The words of a few documents, read from the forward index. Reading some dozens of documents is cheaper than looking up every
# position of every word in the inverted index; docs/ranking.md#two-ways-to-evaluate-a-rule has the figures. For these documents
# both indexes give the same results; the tests compare them.


class CandidateBatch:
    """Some documents with their words, ordered by docid. Sets of them are small integers, even for large docids."""

    __slots__ = ("documents", "all_documents", "_docids", "_alone")

    def __init__(self, documents: Sequence[DocumentWords], docids: DocIds) -> None:
        self.documents = documents
        self.all_documents: LocalBitset = (1 << len(documents)) - 1
        self._docids = docids
        self._alone: dict[int, LocalBitset] = {}  # docid -> the set that contains only this document

    def local(self, docids: DocIds) -> LocalBitset:
        """Return the documents of the batch that are in a set of docids."""
        common = docids & self._docids
        if common == self._docids:
            return self.all_documents
        if not self._alone:
            self._alone = {document.docid: 1 << number for number, document in enumerate(self.documents)}
        return sum(map(self._alone.__getitem__, common))

    def docids(self, documents: LocalBitset) -> DocIds:
        """Return the set of docids of some documents of the batch."""
        return self._docids if documents == self.all_documents else DocIds(self.ordered_docids(documents))

    def ordered_docids(self, documents: LocalBitset) -> list[int]:
        """Return the docids of some documents of the batch, ascending."""
        found: list[int] = []
        while documents:
            alone = documents & -documents
            documents ^= alone
            found.append(self.documents[alone.bit_length() - 1].docid)
        return found

    def each(self, documents: LocalBitset) -> list[tuple[LocalBitset, DocumentWords]]:
        """Return (the set that contains only this document, the document) for some documents, ordered by docid."""
        found: list[tuple[LocalBitset, DocumentWords]] = []
        while documents:
            alone = documents & -documents
            documents ^= alone
            found.append((alone, self.documents[alone.bit_length() - 1]))
        return found


class ForwardIndexLoader:
    """Read each document once for all rules of a search."""

    def __init__(self, postings: Postings) -> None:
        self._document_words = postings.reader.terms.document_words
        self._known: dict[int, DocumentWords] = {}

    def read(self, candidates: DocIds, limit: int) -> CandidateBatch | None:
        """Return the candidates with their words; None if this needs to read more than `limit` documents."""
        known = self._known
        if len(candidates) > limit + len(known):
            return None
        docids = list(candidates)
        missing = [docid for docid in docids if docid not in known]
        if len(missing) > limit:
            return None
        if missing:
            for document in self._document_words(missing):
                known[document.docid] = document
        return CandidateBatch([known[docid] for docid in docids], candidates)


class TermPositions(dict[DocumentWords, frozenset[int]]):
    """The occurrences of a subset in documents; each document is looked up once.

    They are the occurrences of its single words, of the words with its cached prefix, and of one word of each phrase.
    phrase_end: the index of this word in the phrase, 0 or -1; None for its first word. A phrase with a position gap at this
    index is skipped.
    """

    def __init__(self, terms: Terms, subset: Subset, phrase_end: int | None = None) -> None:
        super().__init__()
        words, _, phrases = terms.derivations(subset)
        self._words = frozenset(words)
        self._prefix = subset.cached_prefix
        self._phrases: list[tuple[str, DocIds]] = []  # the word that represents a phrase, the documents of the phrase
        for phrase in phrases:
            word = first_word(phrase) if phrase_end is None else phrase[phrase_end]
            docids = terms.postings.phrase(phrase)
            if docids and word is not None:
                self._phrases.append((word, docids))
        self.has_words_alone = not self._phrases and self._prefix is None
        self._word_occurrences: dict[DocumentWords, frozenset[int]] = {}

    def __missing__(self, document: DocumentWords) -> frozenset[int]:
        found = frozenset(document.occurrences_of_any(self._words))
        if not self.has_words_alone:
            self._word_occurrences[document] = found
            for word, docids in self._phrases:
                if document.docid in docids:
                    found = found.union(document.occurrences(word))
            if self._prefix is not None:
                found = found.union(document.occurrences_of_prefix(self._prefix))
        self[document] = found
        return found

    def word_occurrences(self, document: DocumentWords) -> frozenset[int]:
        """Return the occurrences of the single words, in a document that was looked up before."""
        return (self if self.has_words_alone else self._word_occurrences)[document]
