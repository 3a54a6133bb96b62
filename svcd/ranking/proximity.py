"""The rule `proximity`: rank documents by the distance between query words.

Costs: docs/ranking.md#proximity. The rule compares each pair of neighbours in the query; words in the wrong order count as
one further apart.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.query.graph import Graph
from svcd.query.reader import DocumentWords
from svcd.query.terms import Phrase, Subset, Terms
from svcd.ranking.rule import (Bucket, CandidateBatch, Condition, Edge, EdgesBetween, ForwardIndexRule, LocalBitset,
                               RankingContext, Rule, TermPositions, WeightedEdge, WeightedEdgesBetween)
from svcd.schema.ranking_rules import PROXIMITY

# The largest distance at which words are near.
NEAR = 3
# Up to _FEW_PAIRS pairs of occurrences are compared one by one, which is faster than comparing sets.
_FEW_PAIRS = 8

# A word, and the phrase that starts or ends with it, or None.
_End = tuple[str, Phrase | None]


class Proximity(ForwardIndexRule):
    """Rank documents by the distance between neighbours of the query."""

    name = PROXIMITY
    READ_LIMIT = 128
    looks_ahead = False  # these conditions are the slowest; by attribute, results reveal which were looked up

    def __init__(self, context: RankingContext) -> None:
        super().__init__(context)
        # By attribute, results depend on the order of requests. Restricted fields affect single words, but not pairs.
        self._reads_documents = self.narrows = not context.postings.is_by_attribute and not context.postings.is_restricted
        # For two neighbours: the conditions that they are near, by distance from 1 on.
        self._near: dict[tuple[Subset, Subset], list[Condition]] = {}

    def read_batch(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """Return the candidates with their words if they are few and some words of the query are neighbours."""
        return super().read_batch(graph, candidates) if self._reads_documents and self.has_neighbours(graph) else None

    @staticmethod
    def has_neighbours(graph: Graph) -> bool:
        """Return whether some words of the query are neighbours; else all documents are equal."""
        for _, _, left, right in graph.steps:
            if left is not None and left.end + 1 == right.start:
                return True
        return False

    def batch_buckets(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> Iterator[Bucket]:
        """Return the buckets of some documents of a batch."""
        if self._reads_documents:
            return super().batch_buckets(batch, graph, documents)
        return Rule.batch_buckets(self, batch, graph, documents)

    def max_costs(self, graph: Graph) -> dict[tuple[int, int], int]:
        """Return the cost of words that are far apart, for neighbours in the query."""
        return {(number, successor): right.width - 1 + (NEAR if left is not None and left.end + 1 == right.start else 0)
                for number, successor, left, right in graph.steps}

    def batch_edges_between(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> WeightedEdgesBetween:
        """Return the edges between two nodes that some of the documents can take."""
        context, terms, between = self.context, self.terms, {}
        for number, successor, left, right in graph.steps:
            base = right.width - 1  # an n-gram lacks the gaps between its words
            anywhere = documents & batch.local(terms.docids(right.subset))
            if left is None or left.end + 1 != right.start:
                between[number, successor] = [WeightedEdge(base, anywhere, right)]
                continue
            lefts, rights = context.term_positions(left.subset, -1), context.term_positions(right.subset, 0)
            near = [0] * (NEAR + 1)  # by distance; 0 for documents with the words far apart
            for alone, document in batch.each(documents):
                near[smallest_distance(lefts, rights, document) or 0] |= alone
            edges = [WeightedEdge(base + gap - 1, near[gap], right) for gap in range(1, NEAR + 1) if near[gap]]
            edges.append(WeightedEdge(base + NEAR, anywhere, right))
            between[number, successor] = edges
        return between

    def edges_between(self, graph: Graph) -> EdgesBetween:
        """Return the edges between two nodes: one for each distance, and one for any distance."""
        between = {}
        for number, successor, left, right in graph.steps:
            base, anywhere = right.width - 1, self.context.matches(right.subset)
            if left is None or left.end + 1 != right.start:
                between[number, successor] = [Edge(base, anywhere, right)]
                continue
            near = self._near.get((left.subset, right.subset))
            if near is None:
                pair = _Pair(self.terms, left.subset, right.subset)
                near = self._near[left.subset, right.subset] = [partial(pair.near, gap) for gap in range(1, NEAR + 1)]
            edges = [Edge(base + gap, condition, right) for gap, condition in enumerate(near)]
            edges.append(Edge(base + NEAR, anywhere, right))
            between[number, successor] = edges
        return between


class _Pair:
    """Two subsets that are neighbours in the query."""

    def __init__(self, terms: Terms, left: Subset, right: Subset) -> None:
        self._terms = terms
        self._postings = terms.postings
        self._left = left
        self._right = right
        self._nearer = [EMPTY] * (NEAR + 1)  # by distance: documents that were found at a smaller distance
        # By attribute, results reveal which pairs were looked up. Restricted fields affect single words, but not pairs.
        self._asks_for_all_words = not self._postings.is_by_attribute and not self._postings.is_restricted

    def near(self, distance: int, candidates: DocIds) -> DocIds:
        """Return the candidates with this distance; may omit documents with a smaller one, which no path needs any more."""
        terms, left, right = self._terms, self._left, self._right
        if not self._postings.is_by_attribute:
            candidates -= self._nearer[distance]
        lefts, rights = _ends(terms, left, -1), _ends(terms, right, 0)
        if self._asks_for_all_words:
            # All pairs of single words at once, which may add documents with a smaller distance; then pairs with a phrase.
            left_words, right_words = terms.derivations(left).words, terms.derivations(right).words
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

    def _near_ends(self, distance: int, lefts: Sequence[_End], rights: Sequence[_End], prefix: str | None,
                   candidates: DocIds) -> list[DocIds]:
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
    words, _, phrases = terms.derivations(subset)
    ends: list[_End] = [(word, None) for word in words]
    for phrase in phrases:
        word = phrase[end]
        if word is not None:
            ends.append((word, phrase))
    return ends


def smallest_distance(left: TermPositions, right: TermPositions, document: DocumentWords) -> int | None:
    """Return the smallest distance (1, 2, 3) between a word of each side; None if no words are near.

    Words in the wrong order count as one further apart. left: with phrase_end -1; right: with phrase_end 0.
    """
    lefts, rights = left[document], right[document]
    if not lefts or not rights:
        return None
    if left.has_words_alone and right.has_words_alone and len(lefts) * len(rights) <= _FEW_PAIRS:
        smallest = NEAR + 1
        for place in lefts:
            for other in rights:
                gap = other - place if other > place else 1 + place - other
                if gap < smallest and other != place:
                    smallest = gap
        return smallest if smallest <= NEAR else None
    if _are_apart(lefts, rights, 1):
        return 1
    # Phrases, and words of a cached prefix that are not single words as well, are never near in the wrong order.
    left_words, right_words = left.word_occurrences(document), right.word_occurrences(document)
    for distance in range(2, NEAR + 1):
        if _are_apart(lefts, rights, distance) or _are_apart(right_words, left_words, distance - 1):
            return distance
    return None


def _are_apart(lefts: frozenset[int], rights: frozenset[int], distance: int) -> bool:
    """Return whether a right occurrence is exactly `distance` positions after a left one."""
    return not rights.isdisjoint([left + distance for left in lefts])
