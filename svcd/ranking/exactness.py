"""The two rules of `exactness`: fields equal to the query, and words exactly as typed (docs/ranking.md#exactness)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from svcd.base.docids import EMPTY, DocIds
from svcd.base.positions import FIELD_SHIFT, POSITION, bucketed_position
from svcd.query.graph import Graph, QueryNode
from svcd.query.parser import Phrase
from svcd.query.reader import DocumentWords
from svcd.query.terms import EXACT, Subset, Terms
from svcd.ranking.forward_index import CandidateBatch, LocalBitset
from svcd.ranking.path_search import Edge
from svcd.ranking.rule import Bucket, Documents, GraphRule, InvertedIndexRule, RankingContext
from svcd.ranking.scores import EXACT_ATTRIBUTE, EXACT_MATCH, EXACT_WORDS, MATCHES_START, NO_EXACT_MATCH, Ranked

COUNTED_WORDS = 30  # the index does not count further; longer fields are never the query

# The words of the query as typed, each with its bucketed position.
_Placed = list[tuple[str, int]]


class ExactAttribute(InvertedIndexRule):
    """Documents with a field that is the query, or starts with it; keeps the graph as it is."""

    def __init__(self, context: RankingContext) -> None:
        self._postings = context.postings
        self._searchable = context.postings.reader.settings.searchable

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """At most three of them."""
        placed, length = _placed_words(graph)
        exact, starting = self._split(placed, length, candidates) if placed else (EMPTY, EMPTY)
        return _three_buckets(graph, (exact, starting - exact, candidates - exact - starting))

    def batch_buckets(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> Iterator[Bucket]:
        """The same, found in the words of the documents."""
        if self._postings.is_restricted:
            return super().batch_buckets(batch, graph, documents)
        placed, length = _placed_words(graph)
        exact = starting = 0
        for alone, document in batch.each(documents) if placed else ():
            lengths = self._lengths_of_matches(document, placed)
            if length in lengths and length <= COUNTED_WORDS:
                exact |= alone
            elif lengths:
                starting |= alone
        return _three_buckets(graph, (exact, starting, documents & ~exact & ~starting))

    def _lengths_of_matches(self, document: DocumentWords, placed: _Placed) -> set[int]:
        """How many words the fields have that hold all words, if each word is at its position of any field."""
        fields = set(range(len(document.fields)))
        for word, bucketed in placed:
            occurrences = document.occurrences(word)
            if not any(bucketed_position(occurrence & POSITION) == bucketed for occurrence in occurrences):
                return set()
            fields &= {occurrence >> FIELD_SHIFT for occurrence in occurrences}
        return {document.length(field) for field in fields if document.fields[field] in self._searchable}

    def _split(self, placed: _Placed, length: int, candidates: DocIds) -> tuple[DocIds, DocIds]:
        """The documents with a field that is the query, and those with one that starts with it."""
        for word, _ in placed:
            candidates &= self._postings.original(word)
        # Positions are asked for only where all words are, which may be nowhere.
        for word, bucketed in placed if candidates else ():
            candidates &= self._postings.reader.terms.word_position_docids(word, bucketed)
        return self._by_field([word for word, _ in placed], length, candidates) if candidates else (EMPTY, EMPTY)

    def _by_field(self, words: Sequence[str], length: int, candidates: DocIds) -> tuple[DocIds, DocIds]:
        terms = self._postings.reader.terms
        exact = starting = EMPTY
        for field in terms.indexed_fields():
            docids = candidates if field in self._searchable else EMPTY
            for word in words if docids else ():
                docids &= self._postings.in_field(word, field)
            if docids:
                of_length = terms.field_count_docids(field, length) if length <= COUNTED_WORDS else EMPTY
                exact |= docids & of_length
                starting |= docids - of_length
        return exact, starting


def _three_buckets(graph: Graph, parts: Sequence[Documents]) -> Iterator[Bucket]:
    """parts: the documents with an exact match, those with a match at the start, all others."""
    for rank, docids in zip((EXACT_MATCH, MATCHES_START, NO_EXACT_MATCH), parts):
        if docids:
            yield Bucket(docids, Ranked(EXACT_ATTRIBUTE, rank, EXACT_MATCH), lambda: graph)


def _placed_words(graph: Graph) -> tuple[_Placed, int]:
    """The words of the exact terms at their positions, none if a term is missing; and how many positions they take."""
    exact_nodes = _exact_nodes(graph)
    placed: _Placed = []
    length = 0
    for node, phrase in exact_nodes:
        length += node.end - node.start + 1
        for offset, word in enumerate(phrase):
            if word is not None:
                placed.append((word, bucketed_position(node.start + offset)))
    return placed, length


def _exact_nodes(graph: Graph) -> list[tuple[QueryNode, Phrase]]:
    """The nodes that have an exact term, one for each word of the query from the first one on; none if one is missing.

    That the last one is missing goes unnoticed (quirk).
    """
    found: dict[int, tuple[QueryNode, Phrase]] = {}
    for _, node in graph.term_nodes():
        phrase = node.subset.exact_phrase
        if phrase is not None:
            found.setdefault(node.first, (node, phrase))
    exact_nodes = [found[first] for first in sorted(found)]
    expected = 0
    for node, _ in exact_nodes:
        if node.first != expected:
            return []
        expected = node.last + 1
    return exact_nodes


class ExactWords(GraphRule):
    """Documents by how many words they have as typed; narrows these words to themselves.

    A word as typed costs 0, any other as many as the query words it covers.
    """

    name = EXACT_WORDS

    def edges(self, node: QueryNode) -> list[Edge]:
        """As typed, if the term has an exact form, and in any form."""
        any_form = Edge(node.width, self.context.matches(node.subset), node)
        if node.subset.exact_phrase is None:
            return [any_form]
        return [Edge(0, self.context.condition(_AsTyped, node.subset), _as_typed(node)), any_form]


def _as_typed(node: QueryNode) -> QueryNode:
    return node._replace(subset=Subset(node.subset.term, EXACT, False, False, True))


class _AsTyped:
    """The condition to have a term as typed."""

    def __init__(self, terms: Terms, subset: Subset) -> None:
        self._terms = terms
        self._subset = subset

    def docids(self, candidates: DocIds) -> DocIds:
        return self._terms.exact_docids(self._subset)
