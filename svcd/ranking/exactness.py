"""The two rules of `exactness`: fields equal to the query, and words as typed (docs/ranking.md#exactness)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter

from svcd.base import positions
from svcd.base.docids import EMPTY, DocIds
from svcd.base.positions import FIELD_SHIFT, POSITION
from svcd.query.graph import Graph, QueryNode
from svcd.query.reader import DocumentWords
from svcd.query.terms import EXACT, Phrase, Subset, Terms
from svcd.ranking.rule import Bucket, CandidateBatch, Documents, Edge, GraphRule, LocalBitset, RankingContext, Rule
from svcd.ranking.scores import EXACT_ATTRIBUTE, EXACT_MATCH, EXACT_WORDS, MATCHES_START, NO_EXACT_MATCH, Ranked

COUNTED_WORDS = 30  # the highest word count in the index; a longer field never equals the query

# Cached: all queries and most matches are at the first positions.
bucketed_position = lru_cache(maxsize=256)(positions.bucketed_position)
# The words of the query as typed, with their bucketed positions.
_Placed = list[tuple[str, int]]


class ExactAttribute(Rule):
    """Rank documents by whether a field equals the query or starts with it. The graph stays unchanged."""

    def __init__(self, context: RankingContext) -> None:
        self._postings = context.postings
        self._searchable = context.postings.reader.settings.searchable

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Return up to three buckets."""
        placed, length = _placed_words(graph)
        postings, terms = self._postings, self._postings.reader.terms
        matches = candidates if placed else EMPTY
        for word, _ in placed:
            matches &= postings.original(word)
        # Look up positions only if some document contains all words.
        for word, bucketed in placed if matches else ():
            matches &= terms.word_position_docids(word, bucketed)
        exact = starting = EMPTY
        for field in terms.indexed_fields() if matches else ():
            docids = matches if field in self._searchable else EMPTY
            for word, _ in placed if docids else ():
                docids &= postings.in_field(word, field)
            if docids:
                of_length = terms.field_count_docids(field, length) if length <= COUNTED_WORDS else EMPTY
                exact |= docids & of_length
                starting |= docids - of_length
        return _three_buckets(graph, (exact, starting - exact, candidates - exact - starting))

    def batch_buckets(self, batch: CandidateBatch, graph: Graph, documents: LocalBitset) -> Iterator[Bucket]:
        """Return the same buckets, computed from the words of the documents."""
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
        """Return the lengths, in words, of the fields with all words; empty unless each word is at its position of some field."""
        fields = set(range(len(document.fields)))
        for word, bucketed in placed:
            with_word: set[int] = set()
            is_placed = False
            for occurrence in document.occurrences(word):
                with_word.add(occurrence >> FIELD_SHIFT)
                is_placed = is_placed or bucketed_position(occurrence & POSITION) == bucketed
            if not is_placed:
                return set()
            fields &= with_word
        return {document.length(field) for field in fields if document.fields[field] in self._searchable}


def _three_buckets(graph: Graph, parts: Sequence[Documents]) -> Iterator[Bucket]:
    """Yield the buckets that are not empty. parts: documents with an exact match, with a match at the start, all others."""
    for rank, docids in zip((EXACT_MATCH, MATCHES_START, NO_EXACT_MATCH), parts):
        if docids:
            yield Bucket(docids, Ranked(EXACT_ATTRIBUTE, rank, EXACT_MATCH), lambda: graph)


def _placed_words(graph: Graph) -> tuple[_Placed, int]:
    """Return the words of the exact terms with their positions, and the number of positions that they take.

    Empty if a query word lacks an exact term, unless only the last word lacks it (quirk).
    """
    exact_nodes: dict[int, tuple[QueryNode, Phrase]] = {}  # by the first query word
    for _, node in graph.term_nodes:
        exact_phrase = node.subset.exact_phrase
        if exact_phrase is not None:
            exact_nodes.setdefault(node.first, (node, exact_phrase))
    placed: _Placed = []
    length = expected = 0
    for first, (node, phrase) in sorted(exact_nodes.items(), key=itemgetter(0)):
        if first != expected:
            return [], 0
        expected = node.first + node.width
        length += node.end - node.start + 1
        for offset, word in enumerate(phrase):
            if word is not None:
                placed.append((word, bucketed_position(node.start + offset)))
    return placed, length


class ExactWords(GraphRule):
    """Rank documents by the number of words that they contain as typed; narrow the subsets of these words to the exact word.

    A word as typed costs 0; any other form costs the number of query words that it covers.
    """

    name = EXACT_WORDS

    def edges(self, node: QueryNode) -> list[Edge]:
        """Return an edge for any form of the term and, if the term has an exact form, an edge for it."""
        any_form = Edge(node.width, self.context.matches(node.subset), node)
        if node.subset.exact_phrase is None:
            return [any_form]
        narrowed = node._replace(subset=Subset(node.subset.term, EXACT, False, False, True))
        return [Edge(0, self.context.condition(_as_typed, node.subset), narrowed), any_form]


def _as_typed(terms: Terms, subset: Subset, candidates: DocIds) -> DocIds:
    """Condition: the document contains a term as typed."""
    if subset.term.phrase is not None:
        return terms.postings.phrase(subset.term.phrase)
    return terms.postings.original(subset.term.exact or "")
