"""The rule `proximity`: rank documents by the distance between query words.

Costs: docs/ranking.md#proximity. The rule compares each pair of neighbours in the query; words in the wrong order count as
one further apart.
"""
from __future__ import annotations

from typing import Iterator, Sequence

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.query.graph import Graph, QueryNode
from svcd.query.parser import Phrase
from svcd.query.terms import Subset, Terms
from svcd.ranking.forward_index import NEAR, READ_FOR_PAIRS, CandidateBatch, LocalBitset, smallest_distance
from svcd.ranking.path_search import Edge, EdgesBetween, WeightedEdge, WeightedEdgesBetween
from svcd.ranking.rule import Bucket, ForwardIndexRule, InvertedIndexRule, RankingContext
from svcd.schema.ranking_rules import PROXIMITY

# A word, and the phrase that starts or ends with it, or None.
_End = tuple[str, Phrase | None]


class Proximity(ForwardIndexRule):
    """Rank documents by the distance between neighbours of the query."""

    name = PROXIMITY
    READ_LIMIT = READ_FOR_PAIRS
    looks_ahead = False  # these conditions are the slowest; by attribute, results reveal which were looked up

    def __init__(self, context: RankingContext) -> None:
        super().__init__(context)
        # By attribute, results depend on the order of requests. Restricted fields affect single words, but not pairs.
        self._reads_documents = not context.postings.is_by_attribute and not context.postings.is_restricted

    def read_batch(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """Return the candidates with their words if they are few and some words of the query are neighbours."""
        if not self._reads_documents:
            return None
        for number, node in graph.term_nodes():
            for successor in graph.successors[number]:
                right = graph.nodes[successor]
                if right is not None and node.end + 1 == right.start:
                    return super().read_batch(graph, candidates)
        return None

    def batch_buckets(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> Iterator[Bucket]:
        """Return the buckets of some documents of a batch."""
        if self._reads_documents:
            return super().batch_buckets(batch, graph, documents)
        return InvertedIndexRule.batch_buckets(self, batch, graph, documents)

    def max_cost(self, left: QueryNode | None, right: QueryNode) -> int:
        """Return the cost of words that are far apart."""
        return right.width - 1 + (NEAR if _are_neighbours(left, right) else 0)

    def batch_edges_between(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> WeightedEdgesBetween:
        """Return the edges between two nodes that some of the documents can take."""
        nodes, context = graph.nodes, self.context

        def edges(number: int, successor: int) -> list[WeightedEdge]:
            left, right = nodes[number], nodes[successor]
            assert right is not None
            base = right.width - 1  # an n-gram lacks the gaps between its words
            anywhere = documents & batch.local(self.terms.docids(right.subset))
            if left is None or not _are_neighbours(left, right):
                return [WeightedEdge(base, anywhere, right)]
            lefts, rights = context.term_positions(left.subset, -1), context.term_positions(right.subset, 0)
            near = [0] * (NEAR + 1)  # by distance; 0 for documents with the words far apart
            for alone, document in batch.each(documents):
                near[smallest_distance(lefts, rights, document) or 0] |= alone
            close = [WeightedEdge(base + gap - 1, near[gap], right) for gap in range(1, NEAR + 1) if near[gap]]
            return [*close, WeightedEdge(base + NEAR, anywhere, right)]

        return edges

    def edges_between(self, graph: Graph) -> EdgesBetween:
        """Return the edges between two nodes: one for each distance, and one for any distance."""
        nodes, context = graph.nodes, self.context

        def edges(number: int, successor: int) -> list[Edge]:
            left, right = nodes[number], nodes[successor]
            assert right is not None
            base = right.width - 1
            anywhere = context.matches(right.subset)
            if left is None or not _are_neighbours(left, right):
                return [Edge(base, anywhere, right)]
            pair = context.condition(_Pair, left.subset, right.subset)
            assert isinstance(pair, _Pair)
            near = [Edge(base + distance - 1, context.condition(_Near, pair, distance), right) for distance in range(1, NEAR + 1)]
            return [*near, Edge(base + NEAR, anywhere, right)]

        return edges


def _are_neighbours(left: QueryNode | None, right: QueryNode) -> bool:
    """Return whether `right` directly follows `left` in the query."""
    return left is not None and left.end + 1 == right.start


class _Near:
    """Condition: a word of each side occur at a distance, or in the wrong order at a distance of one less."""

    def __init__(self, terms: Terms, pair: _Pair, distance: int) -> None:
        self._pair = pair
        self._distance = distance

    def docids(self, candidates: DocIds) -> DocIds:
        return self._pair.near(self._distance, candidates)


class _Pair:
    """Two subsets that are neighbours in the query. It is a condition, so that RankingContext shares it between distances."""

    def __init__(self, terms: Terms, left: Subset, right: Subset) -> None:
        self._terms = terms
        self._postings = terms.postings
        self._left = left
        self._right = right
        self._nearer = [EMPTY] * (NEAR + 1)  # by distance: documents that were found at a smaller distance
        # By attribute, results reveal which pairs were looked up. Restricted fields affect single words, but not pairs.
        self._asks_for_all_words = not self._postings.is_by_attribute and not self._postings.is_restricted

    def docids(self, candidates: DocIds) -> DocIds:
        """Return the documents with any of the distances."""
        return union_of(self.near(distance, candidates) for distance in range(1, NEAR + 1))

    def near(self, distance: int, candidates: DocIds) -> DocIds:
        """Return the candidates with this distance; may omit documents with a smaller one, which no path needs any more."""
        terms, left, right = self._terms, self._left, self._right
        if not self._postings.is_by_attribute:
            candidates -= self._nearer[distance]
        lefts, rights = _ends(terms, left, -1), _ends(terms, right, 0)
        if self._asks_for_all_words:
            # All pairs of single words at once, which may add documents with a smaller distance; then pairs with a phrase.
            left_words, right_words = terms.words(left), terms.words(right)
            within = candidates & self._word_docids(left) & self._word_docids(right)
            docids = union_of([
                self._postings.reader.terms.near_docids(distance, left_words, right_words, right.whole_prefix, within),
                *self._near_ends(distance, lefts[len(left_words):], rights, right.cached_prefix, candidates),
                *self._near_ends(distance, lefts[:len(left_words)], rights[len(right_words):], None, candidates),
            ])
        else:
            docids = union_of(self._near_ends(distance, lefts, rights, right.cached_prefix, candidates))
        for further in range(distance + 1, NEAR + 1):
            self._nearer[further] |= docids
        return docids

    def _word_docids(self, subset: Subset) -> DocIds:
        """Return a superset of the documents with any single word of a subset; pairs count all occurrences."""
        if self._postings.is_unrestricted:
            return self._terms.docids(subset)
        terms, prefix = self._postings.reader.terms, subset.whole_prefix
        docids = terms.words_docids(self._terms.words_beside_prefix(subset))
        return docids if prefix is None else docids | terms.prefix_docids(prefix)

    def _near_ends(
        self, distance: int, lefts: Sequence[_End], rights: Sequence[_End], prefix: str | None, candidates: DocIds
    ) -> list[DocIds]:
        """Return the candidates with this distance, one set for each pair. prefix: the cached prefix on the right, or None."""
        found: list[DocIds] = []
        postings = self._postings
        for word, phrase in lefts if prefix is not None else ():
            assert prefix is not None
            within = self._within(word, phrase, candidates)
            if within:
                found.append(within & postings.prefix_pair(distance, word, prefix, within))
                if phrase is None and distance > 1:
                    found.append(within & postings.pair(distance - 1, prefix, word, within))
        for word, phrase in lefts:
            if len(rights) > 1:
                end_docids = postings.original(word) if phrase is None else postings.phrase(phrase)
                if not candidates.intersect(end_docids):
                    continue
            with_left = self._within(word, phrase, candidates)
            for right, right_phrase in rights:
                within = self._within(right, right_phrase, with_left)
                if within:
                    found.append(within & postings.pair(distance, word, right, within))
                    if phrase is None and right_phrase is None and distance > 1:
                        found.append(within & postings.pair(distance - 1, right, word, within))
        return found

    def _within(self, word: str, phrase: Phrase | None, candidates: DocIds) -> DocIds:
        """Return the candidates that can contain a pair with this word. By attribute, the result must not depend on the word."""
        if phrase is not None:
            candidates &= self._postings.phrase(phrase)
        if not self._postings.is_by_attribute:
            candidates &= self._postings.reader.terms.word_docids(word)
        return candidates


def _ends(terms: Terms, subset: Subset, end: int) -> list[_End]:
    """Return the words of a subset that can be next to another term: single words, and one end (0 or -1) of each phrase."""
    ends: list[_End] = [(word, None) for word in terms.words(subset)]
    for phrase in terms.phrases(subset):
        word = phrase[end]
        if word is not None:
            ends.append((word, phrase))
    return ends
