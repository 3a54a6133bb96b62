"""The rule `proximity`: how near the words of a document stand to each other.

Costs: docs/ranking.md#proximity. Neighbours in the query are compared pair by pair; words in the wrong order count as one
further apart.
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

# A word, and the phrase whose end it is, or None.
_End = tuple[str, Phrase | None]


class Proximity(ForwardIndexRule):
    """Documents by how near the words stand to each other, neighbour by neighbour."""

    name = PROXIMITY
    READ_LIMIT = READ_FOR_PAIRS
    looks_ahead = False  # these conditions take the longest; and by attribute it shows which ones were asked for

    def __init__(self, context: RankingContext) -> None:
        super().__init__(context)
        # By attribute the order of requests shows; restricted fields show in single words, but not in pairs.
        self._reads_documents = not context.postings.is_by_attribute and not context.postings.is_restricted

    def read_batch(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """The candidates with their words, if they are few and some words of the query are neighbours."""
        if not self._reads_documents or not _has_neighbours(graph):
            return None
        return super().read_batch(graph, candidates)

    def batch_buckets(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> Iterator[Bucket]:
        """The buckets of some documents of a batch."""
        if self._reads_documents:
            return super().batch_buckets(batch, graph, documents)
        return InvertedIndexRule.batch_buckets(self, batch, graph, documents)

    def max_cost(self, left: QueryNode | None, right: QueryNode) -> int:
        """As far apart as can be."""
        return right.width - 1 + (NEAR if _are_neighbours(left, right) else 0)

    def batch_edges_between(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> WeightedEdgesBetween:
        """The edges between two nodes that some of the documents can take."""
        nodes = graph.nodes

        def edges(number: int, successor: int) -> list[WeightedEdge]:
            left, right = nodes[number], nodes[successor]
            assert right is not None
            return self._batch_edges(batch, documents, left, right)

        return edges

    def _batch_edges(
        self, batch: CandidateBatch, documents: LocalBitset, left: QueryNode | None, right: QueryNode
    ) -> list[WeightedEdge]:
        # An n-gram has no gaps where the query has some.
        base = right.width - 1
        anywhere = documents & batch.local(self.terms.docids(right.subset))
        if left is None or not _are_neighbours(left, right):
            return [WeightedEdge(base, anywhere, right)]
        lefts, rights = self.context.term_positions(left.subset, -1), self.context.term_positions(right.subset, 0)
        near = [0] * (NEAR + 1)  # by distance; 0 for documents in which they are far apart
        for alone, document in batch.each(documents):
            near[smallest_distance(lefts, rights, document) or 0] |= alone
        return [*[WeightedEdge(base + distance - 1, near[distance], right) for distance in range(1, NEAR + 1) if near[distance]],
                WeightedEdge(base + NEAR, anywhere, right)]

    def edges_between(self, graph: Graph) -> EdgesBetween:
        """The edges between two nodes: one for each distance, and one for anywhere."""
        nodes = graph.nodes

        def edges(number: int, successor: int) -> list[Edge]:
            left, right = nodes[number], nodes[successor]
            assert right is not None
            return self._edges(left, right)

        return edges

    def _edges(self, left: QueryNode | None, right: QueryNode) -> list[Edge]:
        base = right.width - 1
        anywhere = self.context.matches(right.subset)
        if left is None or not _are_neighbours(left, right):
            return [Edge(base, anywhere, right)]
        pair = self.context.condition(_Pair, left.subset, right.subset)
        assert isinstance(pair, _Pair)
        near = [
            Edge(base + distance - 1, self.context.condition(_Near, pair, distance), right)
            for distance in range(1, NEAR + 1)
        ]
        return [*near, Edge(base + NEAR, anywhere, right)]


def _are_neighbours(left: QueryNode | None, right: QueryNode) -> bool:
    """Do they follow each other in the query, with nothing between?"""
    return left is not None and left.end + 1 == right.start


def _has_neighbours(graph: Graph) -> bool:
    """Are any two nodes with an edge between them neighbours?"""
    for number, node in graph.term_nodes():
        for successor in graph.successors[number]:
            right = graph.nodes[successor]
            if right is not None and node.end + 1 == right.start:
                return True
    return False


class _Near:
    """The condition to have a word of one side and a word of the other at a distance, or at one less in the wrong order."""

    def __init__(self, terms: Terms, pair: _Pair, distance: int) -> None:
        self._pair = pair
        self._distance = distance

    def docids(self, candidates: DocIds) -> DocIds:
        return self._pair.near(self._distance, candidates)


class _Pair:
    """Two subsets that follow each other in the query. A condition, so that RankingContext shares it between distances."""

    def __init__(self, terms: Terms, left: Subset, right: Subset) -> None:
        self._terms = terms
        self._postings = terms.postings
        self._left = left
        self._right = right
        self._nearer = [EMPTY] * (NEAR + 1)  # by distance: documents that were found at a smaller one
        # By attribute it shows which pairs were asked for; restricted fields show in single words, but not in pairs.
        self._asks_for_all_words = not self._postings.is_by_attribute and not self._postings.is_restricted

    def docids(self, candidates: DocIds) -> DocIds:
        """The documents with any of the distances."""
        return union_of(self.near(distance, candidates) for distance in range(1, NEAR + 1))

    def near(self, distance: int, candidates: DocIds) -> DocIds:
        """The candidates with this distance; those found at a smaller one may be missing, for no path needs them any more."""
        if not self._postings.is_by_attribute:
            candidates -= self._nearer[distance]
        docids = self._at(distance, candidates)
        for further in range(distance + 1, NEAR + 1):
            self._nearer[further] |= docids
        return docids

    def _at(self, distance: int, candidates: DocIds) -> DocIds:
        lefts = _ends(self._terms, self._left, -1)
        rights = _ends(self._terms, self._right, 0)
        if not self._asks_for_all_words:
            return union_of(self._near_ends(distance, lefts, rights, self._right.cached_prefix, candidates))
        # Of all single words at once, then of those with a phrase on one side.
        of_words = self._near_words(distance, candidates)
        left_words, right_words = self._terms.words(self._left), self._terms.words(self._right)
        left_phrases, right_phrases = lefts[len(left_words):], rights[len(right_words):]
        return union_of([
            of_words,
            *self._near_ends(distance, left_phrases, rights, self._right.cached_prefix, candidates),
            *self._near_ends(distance, lefts[:len(left_words)], right_phrases, None, candidates),
        ])

    def _near_words(self, distance: int, candidates: DocIds) -> DocIds:
        """The candidates with this distance, or perhaps a smaller one, between two single words."""
        terms = self._terms
        lefts, rights = terms.words(self._left), terms.words(self._right)
        candidates &= self._word_docids(self._left)
        candidates &= self._word_docids(self._right)
        return self._postings.reader.terms.near_docids(distance, lefts, rights, self._right.whole_prefix, candidates)

    def _word_docids(self, subset: Subset) -> DocIds:
        """At least the documents with any single word of a subset: all occurrences, as pairs take them."""
        if self._postings.is_unrestricted:
            return self._terms.docids(subset)
        terms, prefix = self._postings.reader.terms, subset.whole_prefix
        docids = terms.words_docids(self._terms.words_beside_prefix(subset))
        return docids if prefix is None else docids | terms.prefix_docids(prefix)

    def _near_ends(
        self, distance: int, lefts: Sequence[_End], rights: Sequence[_End], prefix: str | None, candidates: DocIds
    ) -> list[DocIds]:
        """The candidates with this distance, pair by pair. prefix: the cached prefix on the right, or None."""
        found: list[DocIds] = []
        if prefix is not None:
            for word, phrase in lefts:
                found += self._near_prefix(distance, word, phrase, prefix, candidates)
        for word, phrase in lefts:
            if len(rights) > 1 and not candidates.intersect(self._end_docids(word, phrase)):
                continue
            found += self._near_each(distance, word, phrase is None, rights, self._within(word, phrase, candidates))
        return found

    def _end_docids(self, word: str, phrase: Phrase | None) -> DocIds:
        return self._postings.original(word) if phrase is None else self._postings.phrase(phrase)

    def _within(self, word: str, phrase: Phrase | None, candidates: DocIds) -> DocIds:
        """The candidates that can hold a pair with this word. By attribute the answer must not depend on the word."""
        if phrase is not None:
            candidates &= self._postings.phrase(phrase)
        if not self._postings.is_by_attribute:
            candidates &= self._postings.reader.terms.word_docids(word)
        return candidates

    def _near_prefix(
        self, distance: int, word: str, phrase: Phrase | None, prefix: str, candidates: DocIds
    ) -> Iterator[DocIds]:
        within = self._within(word, phrase, candidates)
        if not within:
            return
        yield within & self._postings.prefix_pair(distance, word, prefix, within)
        if phrase is None and distance > 1:
            yield within & self._postings.pair(distance - 1, prefix, word, within)

    def _near_each(
        self, distance: int, left: str, is_word: bool, rights: Sequence[_End], candidates: DocIds
    ) -> Iterator[DocIds]:
        for right, phrase in rights:
            within = self._within(right, phrase, candidates)
            if not within:
                continue
            yield within & self._postings.pair(distance, left, right, within)
            if is_word and phrase is None and distance > 1:
                yield within & self._postings.pair(distance - 1, right, left, within)


def _ends(terms: Terms, subset: Subset, end: int) -> list[_End]:
    """What can stand next to another term: single words, and one end (0 or -1) of each phrase."""
    ends: list[_End] = [(word, None) for word in terms.words(subset)]
    for phrase in terms.phrases(subset):
        word = phrase[end]
        if word is not None:
            ends.append((word, phrase))
    return ends
