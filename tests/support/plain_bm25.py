"""BM25 in its plainest form: every document is scored by every word, straight from the words of its fields.

An oracle for random tests (docs/ranking.md#bm25). It knows words, repetitions, stems, stop words, typos, prefixes, phrases, excluded
words and weights of attributes. Frequencies and lengths are rounded as the engine rounds them, but nothing else is shared.
"""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from svcd.schema.word_weights import FREQUENCIES, LENGTHS, frequency_code, length_code
from svcd.text.stemming import stems
from svcd.text.stop_words import stop_words

Words = Mapping[str, Sequence[str]]  # field -> its words
RANKS = 10_000


def ranking(documents: Mapping[int, Words], query: str, settings: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return (docid, rank) of the documents that a query finds, best first."""
    languages = settings.get("stemming", [])
    bm25 = {"weights": {}, "k1": 1.6, "b": 0.75, **(settings.get("bm25") or {})}

    def stem(word: str) -> str:
        return stems(word, languages)[0] if languages else word

    phrases = [(sign, text.split()) for sign, text in re.findall(r'(-?)"([^"]*)"', query)]
    rest = re.sub(r'-?"[^"]*"', " ", query).split()
    excluded = [word[1:] for word in rest if word.startswith("-")]
    single = [word for word in rest if not word.startswith("-")]
    wanted = [word for _, words in [p for p in phrases if not p[0]] for word in words]
    parts = len(single) + sum(not sign for sign, _ in phrases)
    prefix = single[-1] if single and parts <= 2 and not query.endswith(('"', " ")) else None
    words = [word for word in single + wanted if word not in stop_words(languages)] or single + wanted
    weights = [bm25["weights"].get(field, 1) for field in ("title", "text")]

    def texts(docid: int) -> list[Sequence[str]]:
        return [documents[docid].get(field, ()) for field in ("title", "text")]

    def count(docid: int, matches: Any) -> float:
        return sum(weight * sum(map(matches, text)) for weight, text in zip(weights, texts(docid)))

    def has_phrase(docid: int, phrase: Sequence[str]) -> bool:
        return any(list(text[at:at + len(phrase)]) == list(phrase) for text in texts(docid) for at in range(len(text)))

    vocabulary = {word for docid in documents for text in texts(docid) for word in text}
    rounded = {docid: LENGTHS[length_code(count(docid, bool))] for docid in documents}
    lengths = [length for length in rounded.values() if length]
    mean = sum(lengths) / len(lengths) if lengths else 1
    scores = dict.fromkeys(documents, 0.0)
    found: set[int] = set()
    most = 0.0
    for word in dict.fromkeys(words):
        frequencies = {}
        lacks = not any(stem(word) == stem(other) for other in vocabulary)
        near = {other for other in vocabulary if lacks and _typos(word, other) == _fewest(word, vocabulary)}
        near_stems = {stem(other) for other in near}
        for docid in documents:
            frequency = FREQUENCIES[frequency_code(exact)] if (exact := count(docid, lambda own: stem(own) == stem(word))) else 0
            for each in near_stems:
                own = count(docid, lambda own: stem(own) == each)
                frequency += 0.75 * FREQUENCIES[frequency_code(own)] if own else 0
            if word == prefix and any(own.startswith(word) for text in texts(docid) for own in text):
                frequency += 0.25
            if frequency:
                frequencies[docid] = FREQUENCIES[frequency_code(frequency)]
        rarity = log(1 + (len(documents) - len(frequencies) + 0.5) / (len(frequencies) + 0.5)) * words.count(word)
        most += rarity
        found |= frequencies.keys()
        for docid, frequency in frequencies.items():
            norm = bm25["k1"] * (1 - bm25["b"] + bm25["b"] * rounded[docid] / mean)
            scores[docid] += rarity * frequency / (frequency + norm)
    for sign, phrase in phrases:
        found = {docid for docid in found if has_phrase(docid, phrase) != bool(sign)}
    found = {docid for docid in found if not count(docid, lambda own: own in excluded)}
    ranks = {docid: max(round(scores[docid] / most * RANKS), 1) for docid in found}
    return sorted(ranks.items(), key=lambda entry: (-entry[1], entry[0]))


def _budget(word: str) -> int:
    return 0 if len(word) < 5 else 1 if len(word) < 9 else 2


def _typos(word: str, other: str) -> int:
    """Return the typos that make one word of another; 0 if they are equal or too far apart."""
    typos = _distance(word, other) + (word[:1] != other[:1])
    return typos if 0 < typos <= _budget(word) else 0


def _fewest(word: str, vocabulary: set[str]) -> int:
    return min((typos for other in vocabulary if (typos := _typos(word, other))), default=-1)


def _distance(left: str, right: str) -> int:
    """Return the optimal string alignment distance."""
    rows = [[i + j if not i * j else 0 for j in range(len(right) + 1)] for i in range(len(left) + 1)]
    for i in range(1, len(left) + 1):
        for j in range(1, len(right) + 1):
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (left[i - 1] != right[j - 1]))
            if i > 1 and j > 1 and left[i - 1] == right[j - 2] and left[i - 2] == right[j - 1]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]
