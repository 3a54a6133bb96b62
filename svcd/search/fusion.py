"""Fusion: one score for a document from its places in the list by words and in the list by vectors (docs/search.md#fusion).

    rrf     reciprocal rank fusion: (k + 1) x the weighted sum of 1 / (k + place in the list, from 1)
    score   the weighted sum of the scores, each divided by the best score of its list; the score of a vector is its cosine

A document that only one list has gets nothing from the other. For `score`, callers first add the documents of each list to the
other, where they have a score further down. Both scores are from 0 to 1.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit
from svcd.ranking.scores import Fused, VectorSorted

RRF, SCORE = "rrf", "score"
FUSIONS = (RRF, SCORE)
DEFAULT_K = 60
# Each list is ranked at least this far: a depth of 200 loses at most .002 of nDCG@10 on three judged sets.
DEPTH = 200

Parts = Mapping[int, float]  # docid -> its part of the fused score before weighting, from 0 to 1


def fused(kind: str, k: int, by_words: Sequence[Hit], by_vectors: Sequence[Hit], ratio: float, are_cosines: bool) -> list[Hit]:
    """Return the hits of both lists, each document once, by their fused score.

    ratio: the weight of vectors, from 0 to 1. are_cosines: whether similarities are halved cosines, because the embedder has no
    `distribution`. Equal documents keep the order of the list by words, then of the other list.
    """
    with_vectors = [hit for hit in by_vectors if _similarity(hit) is not None]
    if kind == RRF:
        words, vectors = _reciprocal_ranks(by_words, k), _reciprocal_ranks(with_vectors, k)
    else:
        words = _of_best({hit.docid: scores.score(hit.details) for hit in by_words})
        similarities = {hit.docid: _similarity(hit) or 0.0 for hit in with_vectors}
        vectors = _of_best({docid: max(2 * each - 1, 0.0) if are_cosines else each for docid, each in similarities.items()})
    hits = []
    for docid in dict.fromkeys([*words, *vectors]):
        of_words, of_vectors = (1 - ratio) * words.get(docid, 0.0), ratio * vectors.get(docid, 0.0)
        hits.append(Hit(docid, (Fused(kind, of_words, of_vectors, docid in vectors),)))
    return sorted(hits, key=lambda hit: -scores.score(hit.details))


def _similarity(hit: Hit) -> float | None:
    return next((detail.similarity for detail in hit.details if isinstance(detail, VectorSorted)), None)


def _reciprocal_ranks(hits: Sequence[Hit], k: int) -> Parts:
    return {hit.docid: (k + 1) / (k + place) for place, hit in enumerate(hits, 1)}


def _of_best(values: Parts) -> Parts:
    best = max(values.values(), default=0.0) or 1.0
    return {docid: value / best for docid, value in values.items()}
