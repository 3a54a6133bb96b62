"""The rules `attributeRank` and `wordPosition`: rank documents by the field and by the position of the query words.

Costs: docs/ranking.md#attribute-rank and docs/ranking.md#word-position.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.base.positions import FIELD_SHIFT, POSITION, bucketed_position
from svcd.query.graph import Graph, QueryNode
from svcd.query.terms import Postings, Subset, Terms, first_word
from svcd.ranking.rule import CandidateBatch, Edge, ForwardIndexRule, LocalBitset, RankingContext, WeightedEdge, edges_by_cost
from svcd.schema.attributes import Searchable
from svcd.schema.ranking_rules import ATTRIBUTE_RANK, WORD_POSITION

# Conditions look up each word of a list of up to _FEW_WORDS; of a longer list only the words that some candidate contains.
_FEW_WORDS = 3
# Number of positions whose cost is cached, for each start and width of a node; higher positions are rare.
_CACHED_POSITIONS = 4096
# The weight of a field that is not searched; higher than the weight of any searchable field.
_NO_WEIGHT = 1 << 32


class AttributeRank(ForwardIndexRule):
    """Rank documents by the best fields that contain the words: each word costs the weight of its field."""

    name = ATTRIBUTE_RANK
    READ_LIMIT = 16

    def __init__(self, context: RankingContext) -> None:
        super().__init__(context)
        self._searchable = context.postings.reader.settings.searchable
        # True when every field is searched at the same cost: each document that matches a subset then costs 0.
        self._is_even = self._searchable.is_everything and context.postings.is_unrestricted
        self._weights = _Weights(self._searchable, context.postings)

    def read_batch(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """Return the candidates with their words if they are few; None if all fields cost the same."""
        return None if self._is_even else super().read_batch(graph, candidates)

    def max_costs(self, graph: Graph) -> dict[tuple[int, int], int]:
        """Return the highest weight of the setting for each word, even if no field of the index has it."""
        heaviest = self._searchable.heaviest
        return {(number, successor): heaviest * right.width for number, successor, _, right in graph.steps}

    def edges(self, node: QueryNode) -> list[Edge]:
        """Return one edge for each weight."""
        subset, width = node.subset, node.width
        words, _, phrases = self.terms.derivations(subset)  # always derives the term: highlighting shows the derivations
        if self._is_even:
            return [Edge(0, self.context.matches(subset), node)]
        postings = self.context.postings
        fields: Iterable[str]
        if subset.whole_prefix is None and len(words) + len(phrases) <= _FEW_WORDS:
            # For few words only the fields that contain one of them are tried.
            representatives = [*words, *(word for word in map(first_word, phrases) if word is not None)]
            fields = dict.fromkeys(field for word in representatives for field in postings.fields_of(word))
        else:
            fields = filter(postings.looks_into, postings.reader.terms.indexed_fields())
        fields_by_weight: dict[int, list[str]] = {}
        for field in fields:
            weight = self._searchable.weight(field)
            if weight is not None:
                fields_by_weight.setdefault(weight, []).append(field)
        edges = [Edge(weight * width, self.context.condition(_in_fields, subset, tuple(weighted)), node)
                 for weight, weighted in fields_by_weight.items()]
        # The highest weight counts for the maximum cost even if no field has it, so an edge without documents carries it.
        return [*edges, Edge(self._searchable.heaviest * width, lambda _: EMPTY, node)]

    def batch_edges(self, batch: CandidateBatch, node: QueryNode, documents: LocalBitset) -> list[WeightedEdge]:
        """Return one edge for each weight that is the lowest of some document."""
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


class _Weights(dict[str, int]):
    """Map a field to its weight in this search; _NO_WEIGHT for a field that the search does not use."""

    def __init__(self, searchable: Searchable, postings: Postings) -> None:
        super().__init__()
        self._searchable = searchable
        self._postings = postings

    def __missing__(self, field: str) -> int:
        weight = self._searchable.weight(field) if self._postings.looks_into(field) else None
        self[field] = _NO_WEIGHT if weight is None else weight
        return self[field]


def _words_to_look_up(terms: Terms, subset: Subset, candidates: DocIds) -> Sequence[str]:
    """Return the words beside the prefix; a long list is reduced to the words that some candidate contains."""
    words = terms.words_beside_prefix(subset)
    if len(words) <= _FEW_WORDS:
        return words
    word_docids = terms.postings.reader.terms.word_docids
    return [word for word in words if word_docids(word).intersect(candidates)]


def _in_fields(terms: Terms, subset: Subset, fields: Sequence[str], candidates: DocIds) -> DocIds:
    """Condition: the document matches a subset in one of the fields."""
    postings, prefix = terms.postings, subset.whole_prefix
    words, phrases = _words_to_look_up(terms, subset, candidates), terms.derivations(subset).phrases
    found: list[DocIds] = []
    for field in fields:
        if prefix is not None:
            found.append(postings.prefix_in_field(prefix, field))
        found += [postings.in_field(word, field) for word in words]
        found += [postings.phrase_in_field(phrase, field) for phrase in phrases]
    return union_of(found)


def _at_positions(terms: Terms, subset: Subset, positions: Sequence[int], candidates: DocIds) -> DocIds:
    """Condition: the document matches a subset at one of the bucketed positions."""
    postings, by_position, prefix = terms.postings, terms.postings.reader.terms, subset.whole_prefix
    words, phrases = _words_to_look_up(terms, subset, candidates), terms.derivations(subset).phrases
    found: list[DocIds] = []
    for position in positions:
        if prefix is not None:
            found.append(by_position.prefix_position_docids(prefix, position))
        found += [by_position.word_position_docids(word, position) for word in words]
        for phrase in phrases:
            first = first_word(phrase)
            if first is not None and (with_phrase := postings.phrase(phrase)):
                found.append(with_phrase & by_position.word_position_docids(first, position))
    return union_of(found)


class WordPosition(ForwardIndexRule):
    """Rank documents by the distance between the position of each word in the query and in any field."""

    name = WORD_POSITION
    READ_LIMIT = 32
    # A distance up to REACHES[c] costs c; a longer one costs FARTHEST.
    REACHES = (0, 1, 4, 7, 11, 16, 24, 64, 256, 1024)
    FARTHEST = len(REACHES)
    # All bucketed positions.
    POSITIONS = (*range(16), 24, *(2**power for power in range(5, 16)), 2**16 - 1)

    def max_costs(self, graph: Graph) -> dict[tuple[int, int], int]:
        """Return the cost of the farthest position for each word."""
        return {(number, successor): self.FARTHEST * right.width for number, successor, _, right in graph.steps}

    def edges(self, node: QueryNode) -> list[Edge]:
        """Return one edge for each possible cost of a position. Trying an edge looks up whether the index has the positions."""
        self.terms.derivations(node.subset)  # always derives the term: highlighting shows the derivations
        condition = self.context.condition
        return [Edge(cost, condition(_at_positions, node.subset, positions), node)
                for cost, positions in _positions_by_cost(node.start, node.width)]

    def batch_edges(self, batch: CandidateBatch, node: QueryNode, documents: LocalBitset) -> list[WeightedEdge]:
        """Return one edge for each cost that is the lowest of some document."""
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
    """Return the cost of a position, summed over all words of a node."""
    distance = abs(position - start)
    return sum([bisect_left(WordPosition.REACHES, distance + offset) for offset in range(width)])


@lru_cache(maxsize=64)
def _positions_by_cost(start: int, width: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return (cost, bucketed positions with this cost) for a node at a position of the query, cheapest first."""
    found: dict[int, list[int]] = {WordPosition.FARTHEST * width: []}
    for position in WordPosition.POSITIONS:
        found.setdefault(_cost(position, start, width), []).append(position)
    return [(cost, tuple(found[cost])) for cost in sorted(found)]


class _Costs(dict[int, int]):
    """Map a position in a document to its cost for a node with this start and width."""

    def __init__(self, start: int, width: int) -> None:
        super().__init__()
        self._start = start
        self._width = width

    def __missing__(self, position: int) -> int:
        cost = _cost(bucketed_position(position), self._start, self._width)
        if len(self) < _CACHED_POSITIONS:
            self[position] = cost
        return cost


# Cached across searches, because costs depend only on the position of a node in the query.
_costs_of = lru_cache(maxsize=64)(_Costs)
