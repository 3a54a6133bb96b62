"""BM25 with field weights (BM25F): score documents by the words of a query (docs/ranking.md#bm25).

The score of a document is the sum over the words of `rarity x frequency / (frequency + k1 x (1 - b + b x length / mean length))`,
divided by the largest possible sum. Frequencies and lengths are the rounded ones of `svcd.schema.word_weights`.

The best documents are found without scoring all (maxscore): words are read rarest first, until the remaining words together
cannot lift a document without any earlier word onto the page. Then only the documents that may still reach it are completed.
"""
from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from itertools import compress, groupby
from math import log
from typing import NamedTuple

from svcd.base.docids import DocIds, membership_bytes
from svcd.schema.word_weights import FREQUENCIES, LENGTHS

# Scores are rounded to this many ranks: finer ones make no difference to relevance, and the product with the ranks of other
# rules must fit into 32 bits (docs/ranking.md#scores-and-score-details).
MOST_RANK = 10_000
# Up to this many candidates are scored one by one.
_FEW = 200
# The share of its largest possible contribution that a word is assumed to reach in a document. With 1 the ranking would be exact.
# Of 2,000 first places of questions to 36,273 films, 0.7 changed none, and 0.5 changed 1.3 %: a title alone is a short document.
_REACHED = 0.7


class Postings(NamedTuple):
    """The documents of a word. codes: returns the code of its frequency in each document, by ascending docid."""

    docids: DocIds
    codes: Callable[[], bytes]


class ScoredWord(NamedTuple):
    """A word of a query. weight: its rarity, times its repetitions."""

    word: str
    weight: float
    postings: Postings


def rarity(documents: int, frequency: int) -> float:
    """Return the inverse document frequency of a word in `frequency` of `documents` documents, above 0."""
    return log(1 + (documents - frequency + 0.5) / (frequency + 0.5))


class Impacts(dict[int, Sequence[float]]):
    """Code of a frequency -> by the code of the length of the document: the part of the weight that a word adds to its score."""

    def __init__(self, k1: float, b: float, average_length: float) -> None:
        super().__init__()
        self._norms = [k1 * (1 - b + b * length / (average_length or 1)) for length in LENGTHS]

    def __missing__(self, code: int) -> Sequence[float]:
        frequency = FREQUENCIES[code]
        found = self[code] = [frequency / (frequency + norm) for norm in self._norms]
        return found


# Tables for the indexes and generations in use.
impacts_of: Callable[[float, float, float], Impacts] = lru_cache(maxsize=32)(Impacts)


class Scorer:
    """The scores of the documents that have any word of a query.

    docids: the documents with any of the words; those that `words` do not cover have the rank 0. lengths: docid -> code of the
    length. wanted: number of documents that the search needs. missing_weight: of the words that no document has.
    """

    def __init__(
        self, words: Sequence[ScoredWord], docids: DocIds, lengths: Mapping[int, int] | Sequence[int], impacts: Impacts,
        wanted: int, missing_weight: float
    ) -> None:
        self.docids = docids
        self._words = sorted(words, key=lambda word: -word.weight)
        self._lengths = lengths
        self._impacts = impacts
        self._wanted = wanted
        self._most = sum(word.weight for word in self._words) + missing_weight or 1.0
        # The postings as arrays, kept once they are used for several small sets of documents.
        self._listed: dict[str, tuple[array[int], bytes]] = {}
        self._buckets = 0

    def buckets(self, candidates: DocIds) -> Iterator[tuple[int, DocIds]]:
        """Yield (rank, documents) of the candidates, best first."""
        self._buckets += 1
        if len(candidates) <= _FEW:
            scores = self._scores_of(candidates)
        else:
            scores = self._best(candidates)
            yield from self._ranked(scores)
            candidates -= DocIds(list(scores))
            scores = self._all_scores(candidates) if candidates else {}
        yield from self._ranked(scores)
        candidates -= DocIds(list(scores))
        if candidates:
            yield 0, candidates

    def parts(self, docid: int) -> dict[str, float]:
        """Return the part of the score of a document that each word adds, words without a part included."""
        found: dict[str, float] = {}
        self._buckets += 1
        for word in self._words:
            part = self._contributions(word, [docid])
            found[word.word] = part[0][1] / self._most if part else 0.0
        return found

    def _ranked(self, scores: Mapping[int, float]) -> Iterator[tuple[int, DocIds]]:
        ranked = sorted((-max(round(score / self._most * MOST_RANK), 1), docid) for docid, score in scores.items())
        for rank, group in groupby(ranked, key=lambda entry: entry[0]):
            yield -rank, DocIds([docid for _, docid in group])

    def _contributions(self, word: ScoredWord, docids: Sequence[int]) -> list[tuple[int, float]]:
        """Return (docid, contribution to its score) for the documents that have the word. docids: ascending."""
        own = word.postings.docids
        found = list(own & DocIds(array("I", docids))) if len(docids) > 1 else [docids[0]] if docids[0] in own else []
        if not found:
            return []
        listed, codes = self._listed.get(word.word) or (own.to_array(), word.postings.codes())
        if self._buckets > 1:
            self._listed[word.word] = listed, codes
        impacts, lengths, weight, at = self._impacts, self._lengths, word.weight, 0
        contributions = []
        for docid in found:
            at = bisect_left(listed, docid, at)
            contributions.append((docid, weight * impacts[codes[at]][lengths[docid]]))
        return contributions

    def _scores_of(self, candidates: DocIds) -> dict[int, float]:
        docids, scores = list(candidates), dict[int, float]()
        for word in self._words:
            for docid, contribution in self._contributions(word, docids):
                scores[docid] = scores.get(docid, 0.0) + contribution
        return scores

    def _add(self, scores: dict[int, float], word: ScoredWord, mask: bytes | None) -> None:
        """Add the contributions of a word to all documents that have it. mask: by docid, 1 for the candidates; None for all."""
        pairs: Iterable[tuple[int, int]] = zip(listed := word.postings.docids.to_array(), word.postings.codes())
        if mask is not None:
            top = len(mask)
            pairs = compress(pairs, (docid < top and mask[docid] for docid in listed))
        impacts, lengths, weight, known = self._impacts, self._lengths, word.weight, scores.get
        for docid, code in pairs:
            scores[docid] = known(docid, 0.0) + weight * impacts[code][lengths[docid]]

    def _mask(self, candidates: DocIds) -> bytes | None:
        return None if self.docids.issubset(candidates) else membership_bytes(candidates)

    def _all_scores(self, candidates: DocIds) -> dict[int, float]:
        scores: dict[int, float] = {}
        mask = self._mask(candidates)
        for word in self._words:
            self._add(scores, word, mask)
        return scores

    def _best(self, candidates: DocIds) -> dict[int, float]:
        """Return the scores of at least the best `wanted` candidates, and of those with the same score as the last one."""
        mask, wanted = self._mask(candidates), max(self._wanted, 1)
        scores: dict[int, float] = {}
        reachable = sum(word.weight for word in self._words) * _REACHED
        threshold, number = 0.0, 0
        # Until no document without an earlier word can reach the page.
        while number < len(self._words) and reachable >= threshold:
            word = self._words[number]
            self._add(scores, word, mask)
            reachable -= word.weight * _REACHED
            number += 1
            if len(scores) >= wanted:
                threshold = nlargest(wanted, scores.values())[-1]
        for word in self._words[number:]:
            left = threshold - reachable
            scores = {docid: score for docid, score in scores.items() if score >= left}
            for docid, contribution in self._contributions(word, sorted(scores)):
                scores[docid] += contribution
            reachable -= word.weight * _REACHED
            threshold = nlargest(wanted, scores.values())[-1]
        if len(scores) < wanted:
            return scores
        least = nlargest(wanted, scores.values())[-1]
        # Ranks are rounded, and a bucket must be complete.
        least = (max(round(least / self._most * MOST_RANK), 1) - 0.5) / MOST_RANK * self._most
        return {docid: score for docid, score in scores.items() if score >= least}
