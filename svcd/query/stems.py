"""Find the words of an index that share a stem with a query word (docs/ranking.md#stems).

Words with one stem begin alike: a stemmer removes an ending, and may replace the last letter of the rest (`happy`, `happiness`:
`happi`). So the search computes the stems of the words with a common beginning. A few irregular words are not found (`lying` for
`lie`).
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from svcd.query.reader import Vocabulary
from svcd.text.stemming import stems

# The last letter of a longer stem may stand for another one in its words (`capabl`: `capability`), that of a shorter
# stem if it is one of these: `hope` is the stem of `hoping`, `sky` of `skies`.
_LONG, _REPLACED = 5, "eiy"
# Shorter stems keep their last letter: nearly all words with one letter in common would be read to find none.
_LEAST = 3


def stem_and_start(word: str, language: str) -> tuple[str, str]:
    """Return the stem of a word, and the letters with which other words of that stem begin; "" where nearly all words would."""
    (stem,) = stems(word, (language,))
    start = "".join(takewhile(bool, map(lambda own, other: own if own == other else "", word, stem)))
    if len(start) >= _LEAST and len(start) == len(stem) and (len(stem) >= _LONG or stem[-1] in _REPLACED):
        start = start[:-1]
    return stem, start if len(start) > 1 else ""


def words_with_stem(vocabulary: Vocabulary, word: str, languages: Sequence[str]) -> list[str]:
    """Return the words with the stem of a word in any of some languages, in byte order, except the word itself."""
    found: set[str] = set()
    for language in languages:
        stem, start = stem_and_start(word, language)
        if start:
            found.update(each for each in vocabulary.words_with_prefix(start) if stems(each, (language,)) == (stem,))
    return sorted(found - {word}, key=str.encode)
