"""The rule `exactness`, in two parts (relevance.md 3.10, 3.11).

ExactAttribute makes three buckets: a field that is the query and nothing else, one that begins with
it, the rest. ExactWords costs: a word exactly as typed 0, any other way one for each query word.
"""
from __future__ import annotations

from typing import Iterator, Sequence

from svcd.base.bitmaps import DocIds

from svcd.query.graph import Graph, QueryNode
from svcd.query.parser import Phrase
from svcd.query.terms import EXACT, Subset, Terms
from svcd.ranking.forward_index import FEW_FOR_EXACT, CandidateBatch, DocumentWords, LocalBitset, are_at
from svcd.ranking.path_search import Edge, WeightedEdge
from svcd.ranking.rule import Bucket, ForwardIndexRule, InvertedIndexRule, RankingContext
from svcd.ranking.scores import EXACT_ATTRIBUTE, EXACT_MATCH, EXACT_WORDS, MATCHES_START, NO_EXACT_MATCH, Ranked
from svcd.schema.documents import bucketed_position

COUNTED_WORDS = 30  # longer fields are never the query

class ExactAttribute(InvertedIndexRule):
    """Documents with a field that is the query, or begins with it; keeps the graph as it is."""

    def __init__(self, shared: RankingContext) -> None:
        self._shared = shared
        self._postings = shared.postings
        self._searchable = shared.postings.reader.settings.searchable

    def group(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """The candidates read whole, if they are few."""
        return self._shared.few.group(candidates, FEW_FOR_EXACT)

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """At most three of them."""
        placed, length = _placed(graph)
        exact, starting = self._split(placed, length, candidates) if placed else (0, 0)
        return _three(graph, candidates, exact, starting)

    def buckets_of(self, group: CandidateBatch, graph: Graph, chosen: LocalBitset) -> Iterator[Bucket]:
        """At most three of them."""
        placed, length = _placed(graph)
        exact = starting = 0
        for alone, document in group.each(chosen) if placed else ():
            if are_at(placed, document):
                lengths = self._lengths([word for word, _ in placed], document)
                exact |= alone if any(found == length <= COUNTED_WORDS for found in lengths) else 0
                starting |= alone if lengths else 0
        return _three(graph, chosen, exact, starting)

    def _split(self, placed: Sequence[tuple[str, int]], length: int, candidates: DocIds) -> tuple[DocIds, DocIds]:
        """The documents with a field that is the query, and those with one that begins with it."""
        for word, _ in placed:
            candidates &= self._postings.original(word)
        # Words are looked for at their positions only where all of them are: that may be nowhere.
        for word, bucketed in placed if candidates else ():
            candidates &= self._postings.reader.terms.word_position_docids(word, bucketed)
        return self._by_field([word for word, _ in placed], length, candidates) if candidates else (0, 0)

    def _by_field(self, words: Sequence[str], length: int, candidates: DocIds) -> tuple[DocIds, DocIds]:
        terms = self._postings.reader.terms
        exact = starting = 0
        for field in terms.indexed_fields():
            docids = candidates if field in self._searchable else 0
            for word in words if docids else ():
                docids &= self._postings.in_field(word, field)
            if docids:
                counted = terms.field_count_docids(field, length) if length <= COUNTED_WORDS else 0
                exact |= docids & counted
                starting |= docids & ~counted
        return exact, starting

    def _lengths(self, words: Sequence[str], document: DocumentWords) -> list[int]:
        """How many words the fields have that hold all of these words."""
        fields = set.intersection(*(set(document.fields_at(document.places(word))) for word in words))
        return [
            document.length(field)
            for field in fields
            if field in self._searchable and self._postings.looks_into(field)
        ]

def _three(graph: Graph, candidates: DocIds, exact: DocIds, starting: DocIds) -> Iterator[Bucket]:
    by_rank = (
        (EXACT_MATCH, exact),
        (MATCHES_START, starting & ~exact),
        (NO_EXACT_MATCH, candidates & ~(exact | starting)),
    )
    for rank, docids in by_rank:
        if docids:
            yield Bucket(docids, Ranked(EXACT_ATTRIBUTE, rank, EXACT_MATCH), lambda: graph)

def _placed(graph: Graph) -> tuple[list[tuple[str, int]], int]:
    """The words of the exact terms with their bucketed positions, none after a gap; and how long they are together."""
    stops = _exact_stops(graph)
    placed = [
        (word, bucketed_position(stop.start + offset))
        for stop, phrase in stops
        for offset, word in enumerate(phrase)
        if word is not None
    ]
    return placed, sum(stop.end - stop.start + 1 for stop, _ in stops)

def _exact_stops(graph: Graph) -> list[tuple[QueryNode, Phrase]]:
    """The exact terms from the first one on, one for each place; none when one is missing between.

    That a last one is missing goes unnoticed (3.10: quirk).
    """
    found: dict[int, tuple[QueryNode, Phrase]] = {}
    for _, stop in graph.nodes():
        phrase = stop.subset.exact_phrase
        if phrase is not None:
            found.setdefault(stop.first, (stop, phrase))
    stops = [found[first] for first in sorted(found)]
    expected = 0
    for stop, _ in stops:
        if stop.first != expected:
            return []
        expected = stop.last + 1
    return stops

class ExactWords(ForwardIndexRule):
    """Documents by how many words they have as typed; narrows these words to themselves."""

    name = EXACT_WORDS

    def group(self, graph: Graph, candidates: DocIds) -> CandidateBatch | None:
        """None: to ask which documents have the words as typed is as quick."""
        return None

    def highest(self, left: QueryNode | None, right: QueryNode) -> int:
        """None of the words as typed."""
        return right.width

    def ways(self, group: CandidateBatch, stop: QueryNode, chosen: LocalBitset) -> list[WeightedEdge]:
        """As typed, if the word can be met so at all, and anyhow."""
        anyhow = WeightedEdge(stop.width, chosen & group.of(self.terms.docids(stop.subset)), stop)
        if stop.subset.exact_phrase is None:
            return [anyhow]
        return [WeightedEdge(0, chosen & group.of(self.terms.exact_docids(stop.subset)), _as_typed(stop)), anyhow]

    def steps(self, stop: QueryNode) -> list[Edge]:
        """As typed, if the word can be met so at all, and anyhow."""
        subset = stop.subset
        anyhow = Edge(stop.width, self.shared.matching(subset), stop)
        if subset.exact_phrase is None:
            return [anyhow]
        return [Edge(0, self.shared.condition(_AsTyped, subset), _as_typed(stop)), anyhow]

def _as_typed(stop: QueryNode) -> QueryNode:
    return stop._replace(subset=Subset(stop.subset.term, EXACT, False, False, True))

class _AsTyped:
    def __init__(self, terms: Terms, subset: Subset) -> None:
        self._terms = terms
        self._subset = subset

    def docids(self, candidates: DocIds) -> DocIds:
        return self._terms.exact_docids(self._subset)
