"""The embedder of the source `staticFile`: the mean of the vectors of a text's words, from one local file.

Weights in the file make rare words count more than frequent ones. A word missing in the file gets a vector derived from its
letters, which resembles no other word, so that names and numbers count too. Nothing is sent anywhere.
"""
from __future__ import annotations

import hashlib
import sys
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from math import sqrt
from operator import mul
from typing import Any, NamedTuple

from svcd.embedding.embedder import DEFAULT_SEARCH_DEADLINE_S, MODELS_VARIABLE, Environment, RequestCounts
from svcd.embedding.errors import NO_MEDIA, RUNTIME, USER, EmbeddingError
from svcd.embedding.word_vectors import BadFile, WordVector, WordVectorFile
from svcd.text.analyzer import WORD, shared_analyzer

SUFFIX = ".vectors"
# An unknown word counts as much as a known word with a vector of this length; a rare word has length 1.
UNKNOWN_WEIGHT = 0.5
# Words cached between texts: the frequent words of a language, 5 MB with 100 numbers.
_MOST_KEPT = 5000
_ZERO = 128
# Factors become integers in this unit. A lane has 64 bits: 8 for a step, up to 27 for a weight, the rest for millions of words.
_WEIGHT_UNIT = 1 << 24
_MOST_WEIGHT = 8.0


def static_file_embedder(settings: Mapping[str, Any], environment: Environment, dimensions: int | None) -> StaticFileEmbedder:
    """Return the embedder of settings of this source. Raises EmbeddingError when the file is missing or invalid."""
    name = f"{settings['model']}{SUFFIX}"
    try:
        file = WordVectorFile(environment.models / name)
    except FileNotFoundError:
        raise EmbeddingError(USER, f"there is no file `{name}` in the folder of embedder files, which "
                                   f"`{MODELS_VARIABLE}` names") from None
    except OSError as failure:
        raise EmbeddingError(RUNTIME, f"could not read the word vectors `{name}`:\n  - {failure.strerror}") from None
    except BadFile as fault:
        raise EmbeddingError(USER, f"could not read the word vectors `{name}`:\n  - {fault}") from None
    return StaticFileEmbedder(file)


class StaticFileEmbedder:
    """See embedder.Embedder."""

    inputs_per_request = 10
    requests_at_once = 1

    def __init__(self, file: WordVectorFile) -> None:
        self._file = file
        self._analyzer = shared_analyzer()
        self._kept: dict[str, _Summand] = {}

    def dimensions(self) -> int:
        """As in Embedder."""
        return self._file.dimensions

    def embed(self, inputs: Sequence[Any], counts: RequestCounts | None = None) -> list[array[float]]:
        """As in Embedder."""
        return [self._vector(text) for text in inputs]

    def embed_query(self, q: str | None, media: Any = None, within_s: float = DEFAULT_SEARCH_DEADLINE_S) -> array[float]:
        """As in Embedder."""
        if media is not None or q is None:
            raise EmbeddingError(USER, NO_MEDIA)
        return self._vector(q)

    def abort(self) -> None:
        """Do nothing: no call takes long."""

    def _vector(self, text: str) -> array[float]:
        """Return a vector of length 1: the sum of the words, scaled."""
        lanes = weights = 0
        words = (token.lemma for token in self._analyzer.tokens(text) if token.kind is WORD and token.lemma)
        for word, times in Counter(words).items():
            kept = self._summand(word)
            weights += kept.weight * times
            lanes += kept.weight * times * kept.lanes
        shift = weights * _ZERO
        total = [number - shift for number in array("Q", lanes.to_bytes(8 * self._file.dimensions, sys.byteorder))]
        if not any(total):  # a text without words, or words that cancel out: a vector that resembles no other
            total = list(_unknown("", self._file.dimensions).steps)
        length = sqrt(sum(map(mul, total, total)))
        return array("f", [number / length for number in total])

    def _summand(self, word: str) -> _Summand:
        found = self._kept.get(word)
        if found is None:
            found = _summand(self._file.get(word) or _unknown(word, self._file.dimensions))
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[word] = found
        return found


# Adds vectors with all numbers at once: an integer has a lane of 64 bits for each number. Ten times as fast as a loop.


class _Summand(NamedTuple):
    """A word vector. lanes: its steps plus _ZERO, which makes them non-negative."""

    weight: int
    lanes: int


def _summand(vector: WordVector) -> _Summand:
    shifted = array("Q", (step + _ZERO for step in vector.steps))
    weight = round(min(max(vector.factor, 0.0), _MOST_WEIGHT) * _WEIGHT_UNIT)
    return _Summand(weight, int.from_bytes(shifted.tobytes(), sys.byteorder))


def _unknown(word: str, dimensions: int) -> WordVector:
    """Return a vector of steps 1 and -1 from the bits of a hash of the word; equal in every process."""
    bits = b""
    block = 0
    while len(bits) * 8 < dimensions:
        bits += hashlib.blake2b(word.encode("utf-8", "replace"), salt=block.to_bytes(8, "little")).digest()
        block += 1
    number = int.from_bytes(bits, "little")
    steps = array("b", (1 if number >> bit & 1 else -1 for bit in range(dimensions)))
    return WordVector(UNKNOWN_WEIGHT / sqrt(dimensions), steps)
