"""The rule `proximity` (relevance.md 3.6).

Costs: 0, 1, 2 for words at distance 1, 2, 3, and 3 for anywhere; an n-gram its own gaps besides. Words
in the wrong order count as one further apart. Where the query itself has no neighbours (its start,
dropped words, hard separators) anywhere costs nothing.
"""
from __future__ import annotations

from typing import Callable, Iterator, Sequence

from svcd.base.bitmaps import DocIds
from svcd.query.graph import Graph, QueryNode
from svcd.query.parser import Phrase
from svcd.query.terms import Subset, Terms
from svcd.ranking.forward_index import FEW_FOR_PAIRS, NEAR, CandidateBatch, LocalBitset, smallest_distance
from svcd.ranking.path_search import Edge, EdgesBetween, WeightedEdge
from svcd.ranking.rule import Bucket, ForwardIndexRule, InvertedIndexRule, RankingContext
from svcd.ranking.scores import PROXIMITY


class Proximity(ForwardIndexRule):
    """Documents by how near the words stand to each other, neighbour by neighbour."""

    name = PROXIMITY
    FEW = FEW_FOR_PAIRS
    looks_ahead = False  # no condition takes longer to find; by attribute it shows which ones are asked for

    def __init__(self, shared: RankingContext) -> None:
        super().__init__(shared)
        # By attribute the order of the questions shows (3.6.3), restricted fields only in single words.
        self._reads_documents = not shared.postings.is_by_attribute and not shared.postings.is_restricted

    def group(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """The candidates read whole, if they are few and the documents tell how near words count."""
        if not self._reads_documents or not any(_are_neighbours(*pair) for pair in graph.pairs()):
            return None
        return super().group(graph, candidates)

    def buckets_of(self, group: CandidateBatch, graph: Graph, chosen: LocalBitset) -> Iterator[Bucket]:
        """The buckets of some documents of a group."""
        if self._reads_documents:
            return super().buckets_of(group, graph, chosen)
        return InvertedIndexRule.buckets_of(self, group, graph, chosen)

    def highest(self, left: QueryNode | None, right: QueryNode) -> int:
        """As far apart as can be."""
        return right.width - 1 + (NEAR if _are_neighbours(left, right) else 0)

    def ways_between(self, group: CandidateBatch, graph: Graph, chosen: LocalBitset) -> EdgesBetween:
        """The only ways that depend on where they come from."""
        return lambda node, target: self._ways(group, chosen, graph.stops[node], graph.stops[target])

    def _ways(self, group: CandidateBatch, chosen: LocalBitset, left: QueryNode | None,
              right: QueryNode | None) -> list[WeightedEdge]:
        assert right is not None
        own = right.width - 1
        anywhere = chosen & group.of(self.terms.docids(right.subset))
        if left is None or not _are_neighbours(left, right):
            return [WeightedEdge(own, anywhere, right)]
        met, behind = self.shared.met(left.subset, -1), self.shared.met(right.subset, 0)
        near = [0] * (NEAR + 1)
        for alone, document in group.each(chosen):
            near[smallest_distance(met, behind, document) or 0] |= alone
        return [*(WeightedEdge(own + distance - 1, near[distance], right) for distance in range(1, NEAR + 1)),
                WeightedEdge(own + NEAR, anywhere, right)]

    def steps_between(self, graph: Graph) -> Callable[[int, int], Sequence[Edge]]:
        """The only steps that depend on where they come from."""
        return lambda node, target: self._between(graph.stops[node], graph.stops[target])

    def _between(self, left: QueryNode | None, right: QueryNode | None) -> list[Edge]:
        assert right is not None
        own = right.width - 1
        anywhere = self.shared.matching(right.subset)
        if left is None or not _are_neighbours(left, right):
            return [Edge(own, anywhere, right)]
        pair = self.shared.condition(_Pair, left.subset, right.subset)
        assert isinstance(pair, _Pair)
        near = [
            Edge(own + distance - 1, self.shared.condition(_Near, pair, distance), right)
            for distance in range(1, NEAR + 1)
        ]
        return [*near, Edge(own + NEAR, anywhere, right)]


def _are_neighbours(left: QueryNode | None, right: QueryNode) -> bool:
    """Do they follow each other in the query, with nothing between?"""
    return left is not None and left.end + 1 == right.start


class _Near:
    """A word of one side and a word of the other at a distance, or at one less the other way round."""

    def __init__(self, terms: Terms, pair: _Pair, distance: int) -> None:
        self._pair = pair
        self._distance = distance

    def docids(self, candidates: DocIds) -> DocIds:
        return self._pair.near(self._distance, candidates)


class _Pair:
    """Two subsets that follow each other in the query; a condition by name only, to be shared."""

    def __init__(self, terms: Terms, left: Subset, right: Subset) -> None:
        self._terms = terms
        self._postings = terms.postings
        self._left = left
        self._right = right
        self._nearer = [0] * (NEAR + 1)  # by distance: documents that were found at less

    def docids(self, candidates: DocIds) -> DocIds:
        """The documents with any of the distances."""
        docids = 0
        for distance in range(1, NEAR + 1):
            docids |= self.near(distance, candidates)
        return docids

    def near(self, distance: int, candidates: DocIds) -> DocIds:
        """The candidates with this distance, but perhaps for those with a smaller one: no path takes them any more."""
        if not self._postings.is_by_attribute:
            candidates &= ~self._nearer[distance]
        docids = self._at(distance, candidates)
        for further in range(distance + 1, NEAR + 1):
            self._nearer[further] |= docids
        return docids

    def _at(self, distance: int, candidates: DocIds) -> DocIds:
        lefts = _ends(self._terms, self._left, -1)
        rights = _ends(self._terms, self._right, 0)
        docids = 0
        for word, phrase in lefts:
            docids |= self._near_prefix(distance, word, phrase, candidates)
        for word, phrase in lefts:
            if len(rights) > 1 and not candidates & self._of(word, phrase):
                continue
            docids |= self._near_words(distance, word, phrase is None, rights, self._within(word, phrase, candidates))
        return docids

    def _of(self, word: str, phrase: Phrase | None) -> DocIds:
        return self._postings.original(word) if phrase is None else self._postings.phrase(phrase)

    def _within(self, word: str, phrase: Phrase | None, candidates: DocIds) -> DocIds:
        """The candidates in which the pair can be. By attribute that must not depend on the word."""
        if phrase is not None:
            candidates &= self._postings.phrase(phrase)
        if not self._postings.is_by_attribute:
            candidates &= self._postings.reader.terms.word_docids(word)
        return candidates

    def _near_prefix(self, distance: int, word: str, phrase: Phrase | None, candidates: DocIds) -> DocIds:
        prefix = self._right.cached_prefix
        within = self._within(word, phrase, candidates) if prefix is not None else 0
        if prefix is None or not within:
            return 0
        docids = within & self._prefix_pair(distance, word, prefix, within)
        if phrase is None and distance > 1:
            docids |= within & self._postings.pair(distance - 1, prefix, word, within)
        return docids

    def _prefix_pair(self, distance: int, word: str, prefix: str, within: DocIds) -> DocIds:
        postings = self._postings
        if not postings.is_by_attribute:
            return postings.reader.terms.prefix_pair_docids(distance, word, prefix, within)
        docids = 0
        for continued in postings.reader.vocabulary.words_with_prefix(prefix):
            docids |= postings.pair(distance, word, continued, within)
        return docids

    def _near_words(
        self, distance: int, left: str, is_word: bool, rights: Sequence[tuple[str, Phrase | None]], candidates: DocIds
    ) -> DocIds:
        docids = 0
        for right, phrase in rights:
            within = self._within(right, phrase, candidates)
            if not within:
                continue
            docids |= within & self._postings.pair(distance, left, right, within)
            if is_word and phrase is None and distance > 1:
                docids |= within & self._postings.pair(distance - 1, right, left, within)
        return docids


def _ends(terms: Terms, subset: Subset, place: int) -> list[tuple[str, Phrase | None]]:
    """The words that can stand next to another term: single ones, and one end of each phrase."""
    ends: list[tuple[str, Phrase | None]] = [(word, None) for word in terms.words(subset)]
    for phrase in terms.phrases(subset):
        word = phrase[place]
        if word is not None:
            ends.append((word, phrase))
    return ends
