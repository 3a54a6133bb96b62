"""Hybrid search: a list ranked by words and one ranked by vectors, merged into one (docs/search.md#hybrid-search)."""
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

# Hits by words of which all have this weighted score or more are good enough.
_GOOD_SCORE = 0.45


def hybrid_search(
    reader: Reader, query: SearchQuery, query_target: QueryTarget, limits: RankingLimits, expired: Callable[[], bool]
) -> Found:
    """Rank the documents of one index by words and by vectors.

    The query is embedded only if the hits by words are not good enough; if that fails, they must do. Raises as scope_of()
    does.
    """
    scope = scope_of(reader, query)
    tracing.begin("tokenize query")
    parsed = scope.parse()
    pins = scope.pins(parsed)
    by_words = rank_by_words(scope, parsed, limits, expired, pins)._replace(is_semantic=True)
    of_vectors = single(query_target.ratio)
    of_words = single(1.0 - of_vectors)
    if _are_good(by_words.ranking.hits, of_words, limits.hits):
        return by_words
    try:
        target = query_target.get(is_needed=False)
    except ApiError:
        return by_words
    # Here the excluded words count for the vectors too, unlike in a search by vectors alone.
    by_vectors = rank_by_vectors(scope, scope.docids - scope.excluded(parsed), target, limits, expired, pins)
    if pins:
        ranking = _merged_among_pins(by_vectors.ranking, of_vectors, by_words.ranking, of_words, limits, scope.distinct)
    else:
        hits = _merged(_weighted(by_vectors.ranking.hits, of_vectors), _weighted(by_words.ranking.hits, of_words))
        ranking = _first(hits, by_vectors.ranking.counted | by_words.ranking.counted, limits.hits, scope.distinct)
    return by_words._replace(ranking=ranking, vector=target.vector)


def _merged_among_pins(by_vectors: Ranking, of_vectors: float, by_words: Ranking, of_words: float, limits: RankingLimits,
                       distinct: Distinct | None) -> Ranking:
    """The first hits of both lists, merged without their pins; the pins of both are united, and placed by position."""
    from svcd.search.pins import by_position, split, with_pins  # imported late, as in svcd.search.keyword

    vector_hits, vector_pins = split(by_vectors.hits)
    word_hits, word_pins = split(by_words.hits)
    ranking = _first(_merged(_weighted(vector_hits, of_vectors), _weighted(word_hits, of_words)),
                     by_vectors.counted | by_words.counted, limits.hits, distinct)
    return with_pins(ranking, by_position(dict.fromkeys([*word_pins, *vector_pins])), limits.hits)


def _are_good(hits: Sequence[Hit], weight: float, wanted: int) -> bool:
    """Are there as many hits as are wanted, and all of a good score? Rules that sort may put a better one behind."""
    return len(hits) >= wanted and all(scores.score(hit.details) * weight >= _GOOD_SCORE for hit in hits)


class _Weighted(NamedTuple):
    hit: Hit
    values: Sequence[Compared]


def _weighted(hits: Iterable[Hit], weight: float) -> Iterable[_Weighted]:
    return (_Weighted(hit, compared_values(hit.details, weight)) for hit in hits)


def _merged(by_vectors: Iterable[_Weighted], by_words: Iterable[_Weighted]) -> Iterable[Hit]:
    """All hits of both lists; of equal ones that by vectors comes first."""
    merged = heapq.merge(by_vectors, by_words, key=cmp_to_key(_compare))  # type: ignore[arg-type]  # only the sign is used
    return (each.hit for each in merged)


def _compare(left: _Weighted, right: _Weighted) -> float:
    """Negative if the left hit is better."""
    for mine, other in zip(left.values, right.values):
        order = _compare_values(mine, other)
        if order:
            return order
    return len(right.values) - len(left.values)


def _compare_values(left: Compared, right: Compared) -> float:
    if isinstance(left, float):
        if isinstance(right, float):
            return by_score(left, right)
        return -1 if left else 1  # any score but 0 is better than a value by which the other list is sorted
    if isinstance(right, float):
        return 1 if right else -1
    if isinstance(left, Sorted) and isinstance(right, Sorted):
        return by_value(left, right)
    if isinstance(left, GeoSorted) and isinstance(right, GeoSorted):
        return by_distance(left, right)
    return 0


def _first(hits: Iterable[Hit], counted: DocIds, wanted: int, distinct: Distinct | None) -> Ranking:
    """The first hits, each document once; with `distinct`, no two of them share a value."""
    kept: list[Hit] = []
    seen: set[int] = set()
    excluded = EMPTY  # documents that share a value with a hit, these among them
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
