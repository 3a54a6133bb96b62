"""The rule `proximity` (relevance.md 3.6).

Costs: 0, 1, 2 for words at distance 1, 2, 3, and 3 for anywhere; an n-gram its own gaps besides. Words
in the wrong order count as one further apart. Where the query itself has no neighbours (its start,
dropped words, hard separators) anywhere costs nothing.
"""
from __future__ import annotations

from typing import Callable, Sequence

from svcd.engine.derivations import Terms
from svcd.engine.query import Phrase
from svcd.engine.querygraph import Graph, Stop
from svcd.engine.ranking.few import FEW_FOR_PAIRS, NEAR, nearness
from svcd.engine.ranking.graph import Step
from svcd.engine.ranking.rule import GraphRule, Shared
from svcd.engine.ranking.scores import PROXIMITY
from svcd.engine.reader import DocIds
from svcd.engine.terms import Subset


class Proximity(GraphRule):
    """Documents by how near the words stand to each other, neighbour by neighbour."""

    name = PROXIMITY

    def steps_between(self, graph: Graph) -> Callable[[int, int], Sequence[Step]]:
        """The only steps that depend on where they come from."""
        return lambda node, target: self._between(graph.stops[node], graph.stops[target])

    def _between(self, left: Stop | None, right: Stop | None) -> list[Step]:
        assert right is not None
        own = right.width - 1
        anywhere = self.shared.matching(right.subset)
        if left is None or left.end + 1 != right.start:
            return [Step(own, anywhere, right)]
        pair = self.shared.condition(_Pair, left.subset, right.subset, self.shared)
        assert isinstance(pair, _Pair)
        near = [
            Step(own + distance - 1, self.shared.condition(_Near, pair, distance), right)
            for distance in range(1, NEAR + 1)
        ]
        return [*near, Step(own + NEAR, anywhere, right)]


class _Near:
    """A word of one side and a word of the other at a distance, or at one less the other way round."""

    def __init__(self, terms: Terms, pair: _Pair, distance: int) -> None:
        self._pair = pair
        self._distance = distance

    def docids(self, candidates: DocIds) -> DocIds:
        return self._pair.near(self._distance, candidates)


class _Pair:
    """Two subsets that follow each other in the query; a condition by name only, to be shared."""

    def __init__(self, terms: Terms, left: Subset, right: Subset, shared: Shared) -> None:
        self._terms = terms
        self._postings = terms.postings
        self._left = left
        self._right = right
        self._shared = shared
        self._read: tuple[DocIds, dict[int, DocIds]] = 0, {}

    def docids(self, candidates: DocIds) -> DocIds:
        """The documents with any of the distances."""
        docids = 0
        for distance in range(1, NEAR + 1):
            docids |= self.near(distance, candidates)
        return docids

    def near(self, distance: int, candidates: DocIds) -> DocIds:
        """The candidates with this distance."""
        # By attribute the order of the questions shows (3.6.3), restricted fields only in single words.
        if not self._postings.is_by_attribute and not self._postings.is_restricted:
            found = self._near_in_few(candidates)
            if found is not None:
                return found[distance]
        return self._near_in_index(distance, candidates)

    def _near_in_few(self, candidates: DocIds) -> dict[int, DocIds] | None:
        known, found = self._read
        if found and not candidates & ~known:
            return found
        documents = self._shared.few.documents(candidates, FEW_FOR_PAIRS)
        if documents is None:
            return None
        left, right = self._shared.met(self._left, -1), self._shared.met(self._right, 0)
        self._read = candidates, nearness(left, right, documents)
        return self._read[1]

    def _near_in_index(self, distance: int, candidates: DocIds) -> DocIds:
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
            candidates &= self._postings.reader.word_docids(word)
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
            return postings.reader.prefix_pair_docids(distance, word, prefix, within)
        docids = 0
        for continued in postings.reader.words_with_prefix(prefix):
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
