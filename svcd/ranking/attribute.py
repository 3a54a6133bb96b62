"""The rules that ask where a word stands: `attributeRank` and `wordPosition` (relevance.md 3.7, 3.8).

AttributeRank costs: the weight of the field, for each query word. By default all fields weigh nothing.
WordPosition costs: by how far the word stands from its place in the query, for each query word.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from functools import lru_cache
from typing import Generic, Mapping, Sequence, TypeVar

from svcd.base.bitmaps import DocIds
from svcd.query.graph import Graph, QueryNode
from svcd.query.postings import Postings, first_word
from svcd.query.terms import Subset, Terms
from svcd.ranking.forward_index import FEW_FOR_FIELDS, FEW_FOR_POSITIONS, CandidateBatch, LocalBitset
from svcd.ranking.path_search import Edge, WeightedEdge
from svcd.ranking.rule import ForwardIndexRule, KnownDocids, RankingContext, edges_by_cost
from svcd.ranking.scores import ATTRIBUTE_RANK, WORD_POSITION
from svcd.schema.attributes import Searchable
from svcd.schema.documents import bucketed_position

Place = TypeVar("Place", str, int)

# Up to so many words each is asked for in any case; of more only those that some candidate has.
_SOME_WORDS = 3
# Long documents are rare; their furthest positions are worked out each time.
_REMEMBERED_POSITIONS = 4096
# More than any list of fields has.
_NO_WEIGHT = 1 << 32


class AttributeRank(ForwardIndexRule):
    """Documents by the best fields that hold the words."""

    name = ATTRIBUTE_RANK
    FEW = FEW_FOR_FIELDS

    def __init__(self, shared: RankingContext) -> None:
        super().__init__(shared)
        self._searchable = shared.postings.reader.settings.searchable
        # Then each document of a subset has it in some field, and all fields cost the same.
        self._is_even = self._searchable.is_everything and shared.postings.is_plain
        self._weights = _Weights(self._searchable, shared.postings)

    def group(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """The candidates read whole, if they are few, unless there is nothing to tell apart."""
        return None if self._is_even else super().group(graph, candidates)

    def highest(self, left: QueryNode | None, right: QueryNode) -> int:
        """The highest weight counts also where no field has it."""
        return self._searchable.heaviest * right.width

    def steps(self, stop: QueryNode) -> list[Edge]:
        """One step for each weight."""
        words = self.terms.words(stop.subset)  # asked for in any case: it shows in highlighting (7.2)
        if self._is_even:
            return [Edge(0, self.shared.matching(stop.subset), stop)]
        steps = [
            Edge(weight * stop.width, self.shared.condition(_InFields, stop.subset, tuple(fields)), stop)
            for weight, fields in self._by_weight(self._fields(stop.subset, words)).items()
        ]
        return [*steps, self._scale(stop)]

    def ways(self, group: CandidateBatch, stop: QueryNode, chosen: LocalBitset) -> list[WeightedEdge]:
        """One way for each weight that is the lowest in some document."""
        if self._is_even:
            return [WeightedEdge(0, chosen & group.of(self.terms.docids(stop.subset)), stop)]
        places_in, weight_of = self.shared.met(stop.subset).places, self._weights.__getitem__
        costs: dict[int, LocalBitset] = {}
        for alone, document in group.each(chosen):
            places = places_in(document)
            weight = min(map(weight_of, document.fields_at(places))) if places else _NO_WEIGHT
            if weight < _NO_WEIGHT:
                costs[weight * stop.width] = costs.get(weight * stop.width, 0) | alone
        return edges_by_cost(costs, stop)

    def _scale(self, stop: QueryNode) -> Edge:
        """A step that nothing can take: the highest cost counts also where no field has it."""
        return Edge(self._searchable.heaviest * stop.width, KnownDocids(0), stop)

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
        return [field for field in postings.reader.terms.indexed_fields() if postings.looks_into(field)]


class _Weights(dict[str, int]):
    """Field -> its weight in this search, _NO_WEIGHT where it is not looked into."""

    def __init__(self, searchable: Searchable, postings: Postings) -> None:
        super().__init__()
        self._searchable = searchable
        self._postings = postings

    def __missing__(self, field: str) -> int:
        weight = self._searchable.weight(field) if self._postings.looks_into(field) else None
        self[field] = _NO_WEIGHT if weight is None else weight
        return self[field]


class _AtPlaces(ABC, Generic[Place]):
    """The documents that have a subset at one of some places of a kind."""

    def __init__(self, terms: Terms, subset: Subset, places: tuple[Place, ...]) -> None:
        self._terms = terms
        self._subset = subset
        self._places: tuple[Place, ...] = places

    def docids(self, candidates: DocIds) -> DocIds:
        docids = 0
        words = present(self._terms, self._subset, candidates)
        for place in self._places:
            docids |= self._at(place, words)
        return docids

    @abstractmethod
    def _at(self, place: Place, words: Sequence[str]) -> DocIds:
        """The documents with one of the words, the prefix or a phrase of the subset at a place."""


class _InFields(_AtPlaces[str]):
    def _at(self, field: str, words: Sequence[str]) -> DocIds:
        postings, prefix = self._terms.postings, self._subset.whole_prefix
        docids = 0 if prefix is None else postings.prefix_in_field(prefix, field)
        for word in words:
            docids |= postings.in_field(word, field)
        for phrase in self._terms.phrases(self._subset):
            docids |= postings.phrase_in_field(phrase, field)
        return docids


class WordPosition(ForwardIndexRule):
    """Documents by how near the words stand to their places in the query, in any field."""

    name = WORD_POSITION
    FEW = FEW_FOR_POSITIONS
    # A distance up to REACHES[c] costs c, any further one FARTHEST.
    REACHES = (0, 1, 4, 7, 11, 16, 24, 64, 256, 1024)
    FARTHEST = len(REACHES)
    # All that positions can be, bucketed.
    POSITIONS = (*range(16), 24, *(2**power for power in range(5, 16)), 2**16 - 1)

    def highest(self, left: QueryNode | None, right: QueryNode) -> int:
        """The cost of the furthest position."""
        return self.FARTHEST * right.width

    def steps(self, stop: QueryNode) -> list[Edge]:
        """One step for each cost a position can have; which of them there are is asked when it is tried."""
        self.terms.words(stop.subset)  # asked for in any case: it shows in highlighting (7.2)
        positions: dict[int, list[int]] = {self.FARTHEST * stop.width: []}
        for position in self.POSITIONS:
            positions.setdefault(_cost(position, stop.start, stop.width), []).append(position)
        return [
            Edge(cost, self.shared.condition(_AtPositions, stop.subset, tuple(positions[cost])), stop)
            for cost in sorted(positions)
        ]

    def ways(self, group: CandidateBatch, stop: QueryNode, chosen: LocalBitset) -> list[WeightedEdge]:
        """One way for each cost that is the lowest in some document."""
        places_in, cost_at = self.shared.met(stop.subset).places, _costs_of(stop.start, stop.width).__getitem__
        costs: dict[int, LocalBitset] = {}
        for alone, document in group.each(chosen):
            places = places_in(document)
            if places:
                cost = min(map(cost_at, document.positions(places)))
                costs[cost] = costs.get(cost, 0) | alone
        return edges_by_cost(costs, stop)


def _cost(position: int, start: int, width: int) -> int:
    """The cost of a position for all words of an n-gram together."""
    distance = abs(position - start)
    return sum(bisect_left(WordPosition.REACHES, distance + step) for step in range(width))


class _Costs(dict[int, int]):
    """Position, as it stands in a document -> its cost for a stop at a start, of a width."""

    def __init__(self, start: int, width: int) -> None:
        super().__init__()
        self._start = start
        self._width = width

    def __missing__(self, position: int) -> int:
        cost = _cost(bucketed_position(position), self._start, self._width)
        if len(self) < _REMEMBERED_POSITIONS:
            self[position] = cost
        return cost


@lru_cache(maxsize=64)
def _costs_of(start: int, width: int) -> _Costs:
    """What depends on nothing but the place of a stop in the query, kept for all searches."""
    return _Costs(start, width)


class _AtPositions(_AtPlaces[int]):
    def _at(self, position: int, words: Sequence[str]) -> DocIds:
        postings, prefix = self._terms.postings, self._subset.whole_prefix
        reader = postings.reader
        docids = 0 if prefix is None else reader.terms.prefix_position_docids(prefix, position)
        for word in words:
            docids |= reader.terms.word_position_docids(word, position)
        for phrase in self._terms.phrases(self._subset):
            first = first_word(phrase)
            if first is not None and (holding := postings.phrase(phrase)):
                docids |= holding & reader.terms.word_position_docids(first, position)
        return docids


def present(terms: Terms, subset: Subset, candidates: DocIds) -> list[str]:
    """The single words beside the prefix, without those of long lists that no candidate has."""
    words = terms.words_beside_prefix(subset)
    if len(words) <= _SOME_WORDS:
        return words
    word_docids = terms.postings.reader.terms.word_docids
    return [word for word in words if word_docids(word) & candidates]
