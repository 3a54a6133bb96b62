"""The rules `attributeRank` and `wordPosition`: in which field and at which position a document has the words.

Costs: docs/ranking.md#attribute-rank and docs/ranking.md#word-position.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from functools import lru_cache
from typing import Generic, Iterator, Mapping, Sequence, TypeVar

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.base.positions import FIELD_SHIFT, POSITION, bucketed_position
from svcd.query.graph import Graph, QueryNode
from svcd.query.parser import Phrase
from svcd.query.postings import Postings, first_word
from svcd.query.terms import Subset, Terms
from svcd.ranking.forward_index import READ_FOR_FIELDS, READ_FOR_POSITIONS, CandidateBatch, LocalBitset
from svcd.ranking.path_search import Edge, WeightedEdge
from svcd.ranking.rule import ForwardIndexRule, KnownDocids, RankingContext, edges_by_cost
from svcd.schema.attributes import Searchable
from svcd.schema.ranking_rules import ATTRIBUTE_RANK, WORD_POSITION

# A field or a bucketed position.
Place = TypeVar("Place", str, int)

# Up to so many words are looked up in any case; of more only those that some candidate has.
_FEW_WORDS = 3
# Positions whose cost is kept, for each start and width of a node; further ones are rare.
_CACHED_POSITIONS = 4096
# The weight of a field that is not searched: higher than any list of fields is long.
_NO_WEIGHT = 1 << 32


class AttributeRank(ForwardIndexRule):
    """Documents by the best fields that hold the words: a word costs the weight of the field."""

    name = ATTRIBUTE_RANK
    READ_LIMIT = READ_FOR_FIELDS

    def __init__(self, context: RankingContext) -> None:
        super().__init__(context)
        self._searchable = context.postings.reader.settings.searchable
        # Then each document of a subset has it in some field, and all fields cost the same.
        self._is_even = self._searchable.is_everything and context.postings.is_unrestricted
        self._weights = _Weights(self._searchable, context.postings)

    def read_batch(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """The candidates with their words, if they are few, unless all fields cost the same."""
        return None if self._is_even else super().read_batch(graph, candidates)

    def max_cost(self, left: QueryNode | None, right: QueryNode) -> int:
        """The highest weight of the setting, also where no field has it."""
        return self._searchable.heaviest * right.width

    def edges(self, node: QueryNode) -> list[Edge]:
        """One edge for each weight."""
        subset, width = node.subset, node.width
        words = self.terms.words(subset)  # derives the term in any case: highlighting shows it
        if self._is_even:
            return [Edge(0, self.context.matches(subset), node)]
        edges = [
            Edge(weight * width, self.context.condition(_InFields, subset, tuple(fields)), node)
            for weight, fields in self._by_weight(self._fields(subset, words)).items()
        ]
        # An edge that no document can take makes the highest weight count for the maximum where no field has it.
        return [*edges, Edge(self._searchable.heaviest * width, KnownDocids(EMPTY), node)]

    def batch_edges(self, batch: CandidateBatch, node: QueryNode, documents: LocalBitset) -> list[WeightedEdge]:
        """One edge for each weight that is the lowest in some document."""
        if self._is_even:
            return [WeightedEdge(0, documents & batch.local(self.terms.docids(node.subset)), node)]
        occurrences = self.context.term_positions(node.subset)
        weights, width = self._weights, node.width
        costs: dict[int, LocalBitset] = {}
        for alone, document in batch.each(documents):
            fields, weight = document.fields, _NO_WEIGHT
            for occurrence in occurrences[document]:
                if weights[fields[occurrence >> FIELD_SHIFT]] < weight:
                    weight = weights[fields[occurrence >> FIELD_SHIFT]]
            if weight < _NO_WEIGHT:
                costs[weight * width] = costs.get(weight * width, 0) | alone
        return edges_by_cost(costs, node)

    def _by_weight(self, fields: Sequence[str]) -> Mapping[int, list[str]]:
        weights: dict[int, list[str]] = {}
        for field in fields:
            weight = self._searchable.weight(field)
            if weight is not None:
                weights.setdefault(weight, []).append(field)
        return weights

    def _fields(self, subset: Subset, words: Sequence[str]) -> list[str]:
        """The fields looked into; for a subset of few words only those that hold one of them."""
        postings = self.context.postings
        phrases = self.terms.phrases(subset)
        if subset.whole_prefix is None and len(words) + len(phrases) <= _FEW_WORDS:
            standing = [*words, *(word for word in map(first_word, phrases) if word is not None)]
            return list(dict.fromkeys(field for word in standing for field in postings.fields_of(word)))
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
    """The condition to have a subset at one of some places: fields, or bucketed positions."""

    def __init__(self, terms: Terms, subset: Subset, places: tuple[Place, ...]) -> None:
        self._terms = terms
        self._subset = subset
        self._places: tuple[Place, ...] = places

    def docids(self, candidates: DocIds) -> DocIds:
        """The documents that meet it; right for the candidates."""
        terms, subset = self._terms, self._subset
        words, phrases = _words_of_candidates(terms, subset, candidates), terms.phrases(subset)
        found: list[DocIds] = []
        for place in self._places:
            found += self._at(place, words, subset.whole_prefix, phrases)
        return union_of(found)

    @abstractmethod
    def _at(self, place: Place, words: Sequence[str], prefix: str | None, phrases: Sequence[Phrase]) -> Iterator[DocIds]:
        """The documents with one of the words, the prefix or a phrase of the subset at a place; a set for each of them."""


class _InFields(_AtPlaces[str]):
    def _at(self, field: str, words: Sequence[str], prefix: str | None, phrases: Sequence[Phrase]) -> Iterator[DocIds]:
        postings = self._terms.postings
        if prefix is not None:
            yield postings.prefix_in_field(prefix, field)
        for word in words:
            yield postings.in_field(word, field)
        for phrase in phrases:
            yield postings.phrase_in_field(phrase, field)


class WordPosition(ForwardIndexRule):
    """Documents by how near the words stand to their places in the query, in any field."""

    name = WORD_POSITION
    READ_LIMIT = READ_FOR_POSITIONS
    # A distance up to REACHES[c] costs c, any further one FARTHEST.
    REACHES = (0, 1, 4, 7, 11, 16, 24, 64, 256, 1024)
    FARTHEST = len(REACHES)
    # All bucketed positions.
    POSITIONS = (*range(16), 24, *(2**power for power in range(5, 16)), 2**16 - 1)

    def max_cost(self, left: QueryNode | None, right: QueryNode) -> int:
        """The cost of the furthest position."""
        return self.FARTHEST * right.width

    def edges(self, node: QueryNode) -> list[Edge]:
        """One edge for each cost a position can have; which of them the index has is asked when an edge is tried."""
        self.terms.words(node.subset)  # derives the term in any case: highlighting shows it
        condition = self.context.condition
        return [Edge(cost, condition(_AtPositions, node.subset, positions), node)
                for cost, positions in _positions_by_cost(node.start, node.width)]

    def batch_edges(self, batch: CandidateBatch, node: QueryNode, documents: LocalBitset) -> list[WeightedEdge]:
        """One edge for each cost that is the lowest in some document."""
        occurrences = self.context.term_positions(node.subset)
        cost_at = _costs_of(node.start, node.width)
        costs: dict[int, LocalBitset] = {}
        for alone, document in batch.each(documents):
            lowest = -1
            for occurrence in occurrences[document]:
                cost = cost_at[occurrence & POSITION]
                if not 0 <= lowest <= cost:
                    lowest = cost
            if lowest >= 0:
                costs[lowest] = costs.get(lowest, 0) | alone
        return edges_by_cost(costs, node)


def _cost(position: int, start: int, width: int) -> int:
    """The cost of a position for all words of a node together."""
    distance = abs(position - start)
    return sum([bisect_left(WordPosition.REACHES, distance + offset) for offset in range(width)])


@lru_cache(maxsize=64)
def _positions_by_cost(start: int, width: int) -> list[tuple[int, tuple[int, ...]]]:
    """(cost, the bucketed positions that have it) for a node at a place of the query, cheapest first."""
    found: dict[int, list[int]] = {WordPosition.FARTHEST * width: []}
    for position in WordPosition.POSITIONS:
        found.setdefault(_cost(position, start, width), []).append(position)
    return [(cost, tuple(found[cost])) for cost in sorted(found)]


class _Costs(dict[int, int]):
    """Position in a document -> its cost for a node at a start, of a width."""

    def __init__(self, start: int, width: int) -> None:
        super().__init__()
        self._start = start
        self._width = width

    def __missing__(self, position: int) -> int:
        cost = _cost(bucketed_position(position), self._start, self._width)
        if len(self) < _CACHED_POSITIONS:
            self[position] = cost
        return cost


@lru_cache(maxsize=64)
def _costs_of(start: int, width: int) -> _Costs:
    """Depends on nothing but the place of a node in the query, so it is kept for all searches."""
    return _Costs(start, width)


class _AtPositions(_AtPlaces[int]):
    def _at(self, position: int, words: Sequence[str], prefix: str | None, phrases: Sequence[Phrase]) -> Iterator[DocIds]:
        postings = self._terms.postings
        terms = postings.reader.terms
        if prefix is not None:
            yield terms.prefix_position_docids(prefix, position)
        for word in words:
            yield terms.word_position_docids(word, position)
        for phrase in phrases:
            first = first_word(phrase)
            if first is not None and (with_phrase := postings.phrase(phrase)):
                yield with_phrase & terms.word_position_docids(first, position)


def _words_of_candidates(terms: Terms, subset: Subset, candidates: DocIds) -> list[str]:
    """The single words of a subset beside its prefix; of long lists only those that some candidate has."""
    words = terms.words_beside_prefix(subset)
    if len(words) <= _FEW_WORDS:
        return words
    word_docids = terms.postings.reader.terms.word_docids
    return [word for word in words if word_docids(word).intersect(candidates)]
