"""Search by vectors: semantic search and hybrid search (docs/search.md#semantic-search).

Semantic search ranks documents by the distance of their vectors to the vector of a query. Hybrid search merges a list ranked by
words with a list ranked by vectors (docs/search.md#hybrid-search).
"""
from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any, NamedTuple

from svcd.base import tracing
from svcd.base.docids import EMPTY, DocIds
from svcd.base.errors import ApiError
from svcd.query.graph import ParsedQuery
from svcd.query.reader import Reader
from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit, Ranking, RankingLimits, chain, rank
from svcd.ranking.distinct import Distinct
from svcd.ranking.scores import GeoSorted, Sorted
from svcd.ranking.sort import Target, VectorSort
from svcd.schema.embedder_settings import distribution_of
from svcd.search.fusion import DEPTH, SCORE, fused
from svcd.search.keyword import (Found, Scope, by_position, empty_graph, rank_by_words, scope_of, split_pins, with_pins,
                                 without_pins)
from svcd.search.merge_order import Compared, by_distance, by_score, by_value, compared_values
from svcd.search.request import Embed, Hybrid, QueryInput, SearchQuery
from svcd.vectors.vector import single, vector_of


class QueryTarget:
    """The vector that one query compares documents with; made when it is needed."""

    def __init__(self, reader: Reader, query: SearchQuery, hybrid: Hybrid, embed: Embed) -> None:
        """Raises invalid_search_embedder, and invalid_vector_dimensions for a given vector."""
        self.ratio = hybrid.ratio
        self.fusion, self.k = hybrid.fusion, hybrid.k
        self._name = hybrid.embedder
        self._settings = embedder_settings(reader, hybrid.embedder, "invalid_search_embedder")
        self._query = query
        self._embed = embed
        self._dimensions = reader.vectors.dimensions(hybrid.embedder)
        if query.vector is not None:
            self._check(query.vector)

    def _check(self, vector: Any) -> None:
        if self._dimensions is not None and len(vector) != self._dimensions:
            raise ApiError("invalid_vector_dimensions",
                           f"Invalid vector dimensions: expected: `{self._dimensions}`, found: `{len(vector)}`.")

    def get(self, is_needed: bool) -> Target:
        """Return the target. is_needed: False if words alone will do. Raises the errors of `embed`."""
        query = self._query
        if query.vector is not None:
            vector = vector_of(query.vector)
        else:
            tracing.begin("embed query")
            try:
                vector = self._embed(
                    QueryInput(self._name, self._settings, self._dimensions, query.q, query.media, is_needed))
            finally:
                tracing.end()
            self._check(vector)
        return Target(self._name, vector, distribution_of(self._settings))


def embedder_settings(reader: Reader, name: str, code: str) -> Mapping[str, Any]:
    """Return the settings of an embedder. Raises `code` if none has this name."""
    settings: Mapping[str, Any] | None = reader.settings.embedders.get(name)
    if settings is None:
        raise ApiError(code, f"Cannot find embedder with name `{name}`.")
    return settings


def semantic_search(reader: Reader, query: SearchQuery, target: Target, limits: RankingLimits,
                    expired: Callable[[], bool]) -> Found:
    """Rank the documents of one index by their vectors, not by the words of the query. Raises as scope_of() does."""
    scope = scope_of(reader, query)
    pins = () if query.rules is None else scope.pins(scope.parse())  # the words of the query decide which rules apply
    return rank_by_vectors(scope, scope.docids, target, limits, expired, pins)


def rank_by_vectors(scope: Scope, docids: DocIds, target: Target, limits: RankingLimits, expired: Callable[[], bool],
                    pins: Sequence[tuple[int, Hit]] = ()) -> Found:
    """Rank documents by their vectors and the rules that sort; documents without vectors come last. pins: see rank_by_words()."""
    vector_sort = VectorSort(scope.reader, target, limits.hits)
    ranking_rules, sort = scope.reader.settings.ranking_rules, scope.query.sort or ()
    rules = chain(scope.context, ranking_rules, sort, has_terms=False, vector_sort=vector_sort)
    tracing.begin("semantic ranking")
    ranking = rank(rules, empty_graph(), without_pins(docids, pins) if pins else docids, limits, expired, scope.distinct)
    tracing.end()
    return Found(with_pins(ranking, pins, limits.hits) if pins else ranking, scope.context.terms, [], is_semantic=True,
                 vector=target.vector)


# Hybrid search

# Hits by words are good enough if all of them have at least this weighted score.
_GOOD_SCORE = 0.45


def hybrid_search(reader: Reader, query: SearchQuery, query_target: QueryTarget, limits: RankingLimits,
                  expired: Callable[[], bool]) -> Found:
    """Rank the documents of one index by words and by vectors.

    The query is embedded only if the hits by words are not good enough; if embedding fails, they are the result. Raises as
    scope_of() does.
    """
    scope = scope_of(reader, query)
    tracing.begin("tokenize query")
    parsed = scope.parse()
    pins = () if query.rules is None else scope.pins(parsed)
    if query_target.fusion is not None:
        return _fused_search(scope, parsed, query_target, query_target.fusion, limits, expired, pins)
    by_words = rank_by_words(scope, parsed, limits, expired, pins)._replace(is_semantic=True)
    of_vectors = single(query_target.ratio)
    of_words = single(1.0 - of_vectors)
    # All hits are checked: rules that sort may put a better one after a worse one.
    hits = by_words.ranking.hits
    if len(hits) >= limits.hits and all(scores.score(hit.details) * of_words >= _GOOD_SCORE for hit in hits):
        return by_words
    try:
        target = query_target.get(is_needed=False)
    except ApiError:
        return by_words
    # Excluded words also exclude documents from the hits by vectors, unlike in a search by vectors alone.
    by_vectors = rank_by_vectors(scope, scope.docids - scope.excluded(parsed), target, limits, expired, pins)
    vector_hits: Sequence[Hit] = by_vectors.ranking.hits
    word_hits: Sequence[Hit] = hits
    if pins:
        vector_hits, vector_pins = split_pins(vector_hits)
        word_hits, word_pins = split_pins(word_hits)
    merged = heapq.merge(  # of equal hits, the one by vectors comes first
        (_Weighted(hit, compared_values(hit.details, of_vectors)) for hit in vector_hits),
        (_Weighted(hit, compared_values(hit.details, of_words)) for hit in word_hits),
        key=cmp_to_key(_compare))  # type: ignore[arg-type]  # only the sign is used
    ranking = _first((each.hit for each in merged), by_vectors.ranking.counted | by_words.ranking.counted, limits.hits,
                     scope.distinct)
    if pins:  # the pins of both lists are united, and placed by position
        ranking = with_pins(ranking, by_position(dict.fromkeys([*word_pins, *vector_pins])), limits.hits)
    return by_words._replace(ranking=ranking, vector=target.vector)


def _fused_search(
    scope: Scope, parsed: ParsedQuery, query_target: QueryTarget, kind: str, limits: RankingLimits, expired: Callable[[], bool],
    pins: Sequence[tuple[int, Hit]]
) -> Found:
    """Rank documents by the fusion of both lists; if embedding fails, the list by words is the result."""
    try:
        target = query_target.get(is_needed=False)
    except ApiError:
        return rank_by_words(scope, parsed, limits, expired, pins)._replace(is_semantic=True)
    # The threshold is one for fused scores.
    deep = limits._replace(hits=max(limits.hits, DEPTH), threshold=None, to_the_end=False)
    pinned = {hit.docid for _, hit in pins}
    by_words = rank_by_words(scope, parsed, deep, expired)
    by_vectors = rank_by_vectors(scope, scope.docids - scope.excluded(parsed), target, deep, expired)
    word_hits, vector_hits = ([hit for hit in each.ranking.hits if hit.docid not in pinned] for each in (by_words, by_vectors))
    if kind == SCORE:  # the score of a document in the other list counts, too, if it is too far down there
        in_words, in_vectors = (DocIds([hit.docid for hit in each]) for each in (word_hits, vector_hits))
        if missing := in_vectors - in_words:
            word_hits += rank_by_words(scope._replace(docids=missing), parsed, deep, expired).ranking.hits
        if missing := in_words - in_vectors:
            vector_hits += rank_by_vectors(scope, missing, target, deep, expired).ranking.hits
    hits = fused(kind, query_target.k, word_hits, vector_hits, query_target.ratio, target.shift is None)
    counted = by_words.ranking.counted | by_vectors.ranking.counted
    if limits.threshold is not None:
        hits = [hit for hit in hits if scores.score(hit.details) >= (limits.threshold or 0.0)]
        counted = DocIds([hit.docid for hit in hits])
    ranking = _first(hits, counted - DocIds(list(pinned)), limits.hits, scope.distinct)
    return by_words._replace(ranking=with_pins(ranking, pins, limits.hits) if pins else ranking, is_semantic=True,
                             vector=target.vector)


class _Weighted(NamedTuple):
    hit: Hit
    values: Sequence[Compared]


def _compare(left: _Weighted, right: _Weighted) -> float:
    """Return a negative number if the left hit is better, 0 if they are equal."""
    for mine, other in zip(left.values, right.values):
        order = _compare_values(mine, other)
        if order:
            return order
    return len(right.values) - len(left.values)

def _compare_values(left: Compared, right: Compared) -> float:
    if isinstance(left, float):
        if isinstance(right, float):
            return by_score(left, right)
        return -1 if left else 1  # any score except 0 is better than a value by which the other list is sorted
    if isinstance(right, float):
        return 1 if right else -1
    if isinstance(left, Sorted) and isinstance(right, Sorted):
        return by_value(left, right)
    if isinstance(left, GeoSorted) and isinstance(right, GeoSorted):
        return by_distance(left, right)
    return 0


def _first(hits: Iterable[Hit], counted: DocIds, wanted: int, distinct: Distinct | None) -> Ranking:
    """Return the first hits, each document once; with `distinct`, no two of them share a value."""
    kept: list[Hit] = []
    seen: set[int] = set()
    excluded = EMPTY  # documents that share a value with a hit, including the hits
    for hit in hits:
        if len(kept) == wanted:
            break
        if hit.docid in seen or hit.docid in excluded:
            continue
        seen.add(hit.docid)
        kept.append(hit)
        if distinct is not None:
            excluded |= distinct.having(value for _, values in distinct.values_of([hit.docid]) for value in values)
    return Ranking((counted - excluded) | DocIds(list(seen)), kept)
