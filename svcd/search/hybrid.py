"""Hybrid search: merge a list ranked by words with a list ranked by vectors (docs/search.md#hybrid-search)."""
from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from typing import NamedTuple

from svcd.base import tracing
from svcd.base.docids import EMPTY, DocIds
from svcd.base.errors import ApiError
from svcd.query.reader import Reader
from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit, Ranking, RankingLimits
from svcd.ranking.distinct import Distinct
from svcd.ranking.scores import GeoSorted, Sorted
from svcd.search.keyword import Found, rank_by_words, scope_of
from svcd.search.request import SearchQuery
from svcd.search.score_values import Compared, by_distance, by_score, by_value, compared_values
from svcd.search.semantic import QueryTarget, rank_by_vectors
from svcd.vectors.vector import single

# Hits by words are good enough if all of them have at least this weighted score.
_GOOD_SCORE = 0.45


def hybrid_search(
    reader: Reader, query: SearchQuery, query_target: QueryTarget, limits: RankingLimits, expired: Callable[[], bool]
) -> Found:
    """Rank the documents of one index by words and by vectors.

    The query is embedded only if the hits by words are not good enough; if embedding fails, they are the result. Raises as
    scope_of() does.
    """
    scope = scope_of(reader, query)
    tracing.begin("tokenize query")
    parsed = scope.parse()
    pins = () if query.rules is None else scope.pins(parsed)
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
        from svcd.search.pins import by_position, split, with_pins  # imported late, as in svcd.search.keyword

        vector_hits, vector_pins = split(vector_hits)
        word_hits, word_pins = split(word_hits)
    merged = heapq.merge(  # of equal hits, the one by vectors comes first
        (_Weighted(hit, compared_values(hit.details, of_vectors)) for hit in vector_hits),
        (_Weighted(hit, compared_values(hit.details, of_words)) for hit in word_hits),
        key=cmp_to_key(_compare))  # type: ignore[arg-type]  # only the sign is used
    ranking = _first((each.hit for each in merged), by_vectors.ranking.counted | by_words.ranking.counted, limits.hits,
                     scope.distinct)
    if pins:  # the pins of both lists are united, and placed by position
        ranking = with_pins(ranking, by_position(dict.fromkeys([*word_pins, *vector_pins])), limits.hits)
    return by_words._replace(ranking=ranking, vector=target.vector)



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
