"""The rules that ask where a word stands: `attributeRank` and `wordPosition` (relevance.md 3.7, 3.8).

AttributeRank costs: the weight of the field, for each query word. By default all fields weigh nothing.
WordPosition costs: by how far the word stands from its place in the query, for each query word.
"""
from __future__ import annotations

from bisect import bisect_left
from typing import Mapping, Sequence

from svcd.engine.derivations import Terms
from svcd.engine.postings import first_word
from svcd.engine.querygraph import Stop
from svcd.engine.ranking import few
from svcd.engine.ranking.few import DocumentWords
from svcd.engine.ranking.graph import Step
from svcd.engine.ranking.rule import GraphRule, Known, Shared
from svcd.engine.ranking.scores import ATTRIBUTE_RANK, WORD_POSITION
from svcd.engine.reader import DocIds
from svcd.engine.searchable import Searchable
from svcd.engine.terms import Subset

# Up to so many words each is asked for in any case; of more only those that some candidate has.
_SOME_WORDS = 3


class AttributeRank(GraphRule):
    """Documents by the best fields that hold the words."""

    name = ATTRIBUTE_RANK

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._searchable = Searchable.of(shared.postings.reader.settings)
        # Then each document of a subset has it in some field, and all fields cost the same.
        self._is_even = self._searchable.is_everything and shared.postings.is_plain

    def few(self, candidates: DocIds) -> list[DocumentWords] | None:
        """Unless there is nothing to tell apart."""
        return None if self._is_even else self.shared.few.documents(candidates, few.FEW_FOR_FIELDS)

    def steps(self, stop: Stop) -> list[Step]:
        """One step for each weight."""
        words = self.terms.words(stop.subset)  # asked for in any case: it shows in highlighting (7.2)
        if self._is_even:
            return [Step(0, self.shared.matching(stop.subset), stop)]
        steps = [
            Step(weight * stop.width, self.shared.condition(_InFields, stop.subset, tuple(fields)), stop)
            for weight, fields in self._by_weight(self._fields(stop.subset, words)).items()
        ]
        return [*steps, self._scale(stop)]

    def steps_of_few(self, stop: Stop, documents: Sequence[DocumentWords]) -> list[Step]:
        found = few.by_field(self.shared.met(stop.subset), documents)
        fields = [field for field in found if self.shared.postings.looks_into(field)]
        steps = []
        for weight, same in self._by_weight(fields).items():
            docids = [docid for field in same for docid in found[field]]
            steps.append(Step(weight * stop.width, Known.of(docids), stop))
        return [*steps, self._scale(stop)]

    def _scale(self, stop: Stop) -> Step:
        """A step that nothing can take: the highest cost counts also where no field has it."""
        return Step(self._searchable.heaviest * stop.width, Known(0), stop)

    def _by_weight(self, fields: Sequence[str]) -> Mapping[int, list[str]]:
        weights: dict[int, list[str]] = {}
        for field in fields:
            weight = self._searchable.weight(field)
            if weight is not None:
                weights.setdefault(weight, []).append(field)
        return weights

    def _fields(self, subset: Subset, words: Sequence[str]) -> list[str]:
        """The fields looked into, but those that hold nothing of a subset of few words."""
        postings, prefix = self.shared.postings, subset.whole_prefix
        phrases = self.terms.phrases(subset)
        if prefix is None and len(words) + len(phrases) <= _SOME_WORDS:
            met = [*words, *(word for word in map(first_word, phrases) if word is not None)]
            return list(dict.fromkeys(field for word in met for field in postings.fields_of(word)))
        return [field for field in postings.reader.indexed_fields() if postings.looks_into(field)]


class _InFields:
    def __init__(self, terms: Terms, subset: Subset, fields: tuple[str, ...]) -> None:
        self._terms = terms
        self._subset = subset
        self._fields = fields

    def docids(self, candidates: DocIds) -> DocIds:
        docids = 0
        words = present(self._terms, self._subset, candidates)
        for field in self._fields:
            docids |= self._in_field(field, words)
        return docids

    def _in_field(self, field: str, words: Sequence[str]) -> DocIds:
        postings, prefix = self._terms.postings, self._subset.whole_prefix
        docids = 0 if prefix is None else postings.prefix_in_field(prefix, field)
        for word in words:
            docids |= postings.in_field(word, field)
        for phrase in self._terms.phrases(self._subset):
            docids |= postings.phrase_in_field(phrase, field)
        return docids


class WordPosition(GraphRule):
    """Documents by how near the words stand to their places in the query, in any field."""

    name = WORD_POSITION
    # A distance up to REACHES[c] costs c, any further one FARTHEST.
    REACHES = (0, 1, 4, 7, 11, 16, 24, 64, 256, 1024)
    FARTHEST = len(REACHES)
    # All that positions can be, bucketed.
    POSITIONS = (*range(16), 24, *(2**power for power in range(5, 16)), 2**16 - 1)

    def few(self, candidates: DocIds) -> list[DocumentWords] | None:
        return self.shared.few.documents(candidates, few.FEW_FOR_POSITIONS)

    def steps(self, stop: Stop) -> list[Step]:
        """One step for each cost a position can have; which of them there are is asked when it is tried."""
        self.terms.words(stop.subset)  # asked for in any case: it shows in highlighting (7.2)
        positions: dict[int, list[int]] = {self.FARTHEST * stop.width: []}
        for position in self.POSITIONS:
            positions.setdefault(self.cost(position, stop), []).append(position)
        return [
            Step(cost, self.shared.condition(_AtPositions, stop.subset, tuple(positions[cost])), stop)
            for cost in sorted(positions)
        ]

    def steps_of_few(self, stop: Stop, documents: Sequence[DocumentWords]) -> list[Step]:
        by_cost: dict[int, list[int]] = {self.FARTHEST * stop.width: []}
        for position, docids in few.by_position(self.shared.met(stop.subset), documents).items():
            by_cost.setdefault(self.cost(position, stop), []).extend(docids)
        return [Step(cost, Known.of(by_cost[cost]), stop) for cost in sorted(by_cost)]

    def cost(self, position: int, stop: Stop) -> int:
        """The cost of a position for all words of an n-gram together."""
        distance = abs(position - stop.start)
        return sum(bisect_left(self.REACHES, distance + step) for step in range(stop.width))


class _AtPositions:
    def __init__(self, terms: Terms, subset: Subset, positions: tuple[int, ...]) -> None:
        self._terms = terms
        self._subset = subset
        self._positions = positions

    def docids(self, candidates: DocIds) -> DocIds:
        docids = 0
        words = present(self._terms, self._subset, candidates)
        for position in self._positions:
            docids |= self._at(position, words)
        return docids

    def _at(self, position: int, words: Sequence[str]) -> DocIds:
        postings, prefix = self._terms.postings, self._subset.whole_prefix
        reader = postings.reader
        docids = 0 if prefix is None else reader.prefix_position_docids(prefix, position)
        for word in words:
            docids |= reader.word_position_docids(word, position)
        for phrase in self._terms.phrases(self._subset):
            word = first_word(phrase)
            if word is not None and postings.phrase(phrase):
                docids |= postings.phrase(phrase) & reader.word_position_docids(word, position)
        return docids


def present(terms: Terms, subset: Subset, candidates: DocIds) -> list[str]:
    """The single words beside the prefix, without those of long lists that no candidate has."""
    words = terms.words_beside_prefix(subset)
    if len(words) <= _SOME_WORDS:
        return words
    word_docids = terms.postings.reader.word_docids
    return [word for word in words if word_docids(word) & candidates]
