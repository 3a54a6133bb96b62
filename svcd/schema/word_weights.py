"""How BM25 counts the words of a document (docs/ranking.md#bm25): index terms, weighted frequencies, and lengths.

A word of a document is counted under its stems, or under itself in a field without languages. Its frequency is the sum of the
weights of its occurrences; the length of a document is the sum over all of its words. Both are rounded to one of 256 levels, so
that the index has one byte for each: frequencies are exact up to 16 in steps of a quarter, lengths up to 64; larger ones have an
error of at most 4 %.
"""
from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from svcd.schema.attributes import is_beneath, locales_test
from svcd.text.stemming import Languages, stem_table, stems


def _levels(step: float, exact: int, growth: float) -> tuple[float, ...]:
    """Return 256 ascending levels: multiples of a step, then each larger than the one before by a factor."""
    levels = [step * number for number in range(exact + 1)]
    while len(levels) < 256:
        levels.append(levels[-1] * growth)
    return tuple(levels)


FREQUENCIES = _levels(0.25, 64, 1.04)
LENGTHS = _levels(1, 64, 1.04)


@lru_cache(maxsize=1024)  # a common word has a million, but few different ones
def frequency_code(frequency: float) -> int:
    """Return the number of the level of a weighted frequency, at least 1 for any occurrence."""
    return min(bisect_left(FREQUENCIES, frequency), 255)


def length_code(length: float) -> int:
    """Return the number of the level of a weighted length."""
    return min(bisect_left(LENGTHS, length), 255)


class _Codes(dict[float, int]):
    """Frequency -> its code; the usual ones are filled in."""

    def __missing__(self, frequency: float) -> int:
        return frequency_code(frequency)


_CODES = _Codes({float(count): frequency_code(count) for count in range(64)})


class Stemming:
    """The setting `stemming`: the languages whose stems the words of a field match. rules: as in `localizedAttributes`."""

    def __init__(self, rules: Sequence[Mapping[str, Any]]) -> None:
        self.rules = rules
        self._locales_of = locales_test(rules)

    def languages_of(self, field: str) -> Languages:
        """Return the languages of a field; () for a field whose words are not stemmed."""
        return tuple(self._locales_of(field) or ()) if self.rules else ()

    @cached_property
    def languages(self) -> Languages:
        """The languages of all rules, in their order."""
        return tuple(dict.fromkeys(language for rule in self.rules for language in rule["locales"]))


class CountedWords(NamedTuple):
    """The words of a document as BM25 counts them: index term -> code of its frequency, and the code of the length."""

    frequencies: Mapping[str, int]
    length: int


class WordWeights:
    """The weights of attributes and the stems of words, on which the stored frequencies and lengths of an index depend."""

    def __init__(self, weights: Mapping[str, float], stemming: Stemming) -> None:
        self._weights = weights
        self.stemming = stemming
        # Equal keys: equal frequencies and lengths.
        self.key = json.dumps({"weights": weights, "stemming": stemming.rules}, sort_keys=True, ensure_ascii=False)
        self.field: Callable[[str], tuple[float, Languages]] = lru_cache(1000)(self._field)

    def _field(self, name: str) -> tuple[float, Languages]:
        """Return the weight of a field, that of the longest attribute that covers it, and its languages."""
        covering = [attribute for attribute in self._weights if is_beneath(name, attribute)]
        weight = self._weights[max(covering, key=len)] if covering else 1.0
        return weight, self.stemming.languages_of(name)

    def count(self, fields: Iterable[tuple[str, Iterable[str]]]) -> CountedWords:
        """Count the words of a document. fields: (name, its words; "" is a position gap)."""
        alike: dict[tuple[float, Languages], Counter[str]] = {}  # the words of fields with the same weight and languages
        for name, words in fields:
            alike.setdefault(self.field(name), Counter()).update(words)
        frequencies: dict[str, float] = {}
        known, length = frequencies.get, 0.0
        for (weight, languages), counts in alike.items():
            if not weight:
                continue
            del counts[""]
            length += weight * counts.total()
            pairs: Iterable[tuple[str, int]] = counts.items()
            if len(languages) == 1:
                pairs = zip(map(stem_table(languages[0]).__getitem__, counts), counts.values())
            elif languages:
                pairs = ((term, count) for word, count in counts.items() for term in stems(word, languages))
            for term, count in pairs:
                frequencies[term] = known(term, 0.0) + weight * count
        return CountedWords({term: _CODES[frequency] for term, frequency in frequencies.items()}, length_code(length))

    def terms(self, word: str, fields: Iterable[str]) -> list[str]:
        """Return the index terms under which any of these fields counts a word."""
        languages = dict.fromkeys(self.field(name)[1] for name in fields)
        return list(dict.fromkeys(term for each in languages for term in stems(word, each)))
