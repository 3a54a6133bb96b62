"""Stems of words: Snowball stemmers for the languages of the setting `stemming` (docs/text-analysis.md#stems).

The package snowballstemmer is loaded with the first stem; it takes the compiled stemmers of PyStemmer where they are installed,
which return the same stems. Stems are computed from lemmas, so accents and capitals make no difference.
"""
from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

# Language -> the name of its Snowball algorithm.
ALGORITHMS: Mapping[str, str] = {
    "ara": "arabic", "cat": "catalan", "ces": "czech", "dan": "danish", "deu": "german", "ell": "greek", "eng": "english",
    "epo": "esperanto", "est": "estonian", "eus": "basque", "fin": "finnish", "fra": "french", "gle": "irish", "hin": "hindi",
    "hun": "hungarian", "hye": "armenian", "ind": "indonesian", "ita": "italian", "lit": "lithuanian", "nep": "nepali",
    "nld": "dutch", "nno": "norwegian", "nob": "norwegian", "nor": "norwegian", "pes": "persian", "pol": "polish",
    "por": "portuguese", "ron": "romanian", "rus": "russian", "spa": "spanish", "srp": "serbian", "swe": "swedish",
    "tam": "tamil", "tur": "turkish", "yid": "yiddish",
}
Languages = tuple[str, ...]

# Words whose stems are cached, for each language: a full table makes way for a new one, which takes over the words used again.
_MOST_CACHED = 30_000
# A stemmer keeps the word that it works on.
_LOCK = threading.Lock()


class Stemmer(Protocol):
    """The interface of snowballstemmer and PyStemmer."""

    def stemWord(self, word: str) -> str: ...


@cache
def _stemmer(algorithm: str) -> Stemmer:
    import snowballstemmer  # imported late: 3 MB, for indexes with stems

    found: Stemmer = snowballstemmer.stemmer(algorithm)
    return found


class StemTable(dict[str, str]):
    """Word -> its stem in one language; filled on demand."""

    def __init__(self, algorithm: str) -> None:
        super().__init__()
        self._algorithm = algorithm
        self._older: dict[str, str] = {}

    def __missing__(self, word: str) -> str:
        with _LOCK:
            # A stem may be empty, as for "s" in some languages.
            found = self._older.get(word) or _stemmer(self._algorithm).stemWord(word) or word
            if len(self) >= _MOST_CACHED:
                self._older = dict(self)
                self.clear()
            self[word] = found
        return found


@cache
def stem_table(language: str) -> StemTable:
    """Return the stems of a language; threads share it."""
    return StemTable(ALGORITHMS[language])


def stems(word: str, languages: Sequence[str]) -> Sequence[str]:
    """Return the stems of a lemma in some languages, each once; the word itself without languages."""
    if len(languages) == 1:
        return (stem_table(languages[0])[word],)
    return tuple(dict.fromkeys(stem_table(language)[word] for language in languages)) or (word,)
