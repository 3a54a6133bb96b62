"""The source `staticFile`: the vector of a text is the mean of the vectors of its words, from one local file.

Weights in the file make rare words count more than frequent ones. A word missing in the file gets a vector derived from its
letters, which resembles no other word, so that names and numbers count too. Nothing is sent anywhere. Instead of a file there may
be a folder with a table of vectors of tokens (token_vectors.py).

A file is, without gaps: a line of JSON, `{"format": "svcd word vectors", "version": 1, "words": W, "dimensions": D,
"bytes": B}`, padded with spaces so that its length with the line end is a multiple of 8; W + 1 unsigned 32-bit numbers, the
start of each word in the section that follows; B bytes, the words in UTF-8, sorted, and zeros up to a multiple of 4; W
single-precision numbers, for each word its weight times the value of one step; W times D signed bytes, the steps. All numbers
are little-endian. See docs/embedders.md#format-of-a-file-of-word-vectors.
"""
from __future__ import annotations

import hashlib
import json
import mmap
import sys
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from operator import mul
from pathlib import Path
from typing import IO, Any, NamedTuple

from svcd.base.docids import bytes_of
from svcd.base.json_text import loads_wrapped
from svcd.embedding.embedder import (
    DEFAULT_SEARCH_DEADLINE_S, NO_MEDIA, RUNTIME, USER, EmbeddingError, Environment, RequestCounts,
)
from svcd.embedding.safetensors import BadModel
from svcd.text.analyzer import WORD, shared_analyzer

SUFFIX = ".vectors"
FORMAT, VERSION = "svcd word vectors", 1
MOST_DIMENSIONS = 4096
STEPS = 127
_LONGEST_HEADER = 4096
# An unknown word counts as much as a known word with a vector of this length; a rare word has length 1.
UNKNOWN_WEIGHT = 0.5
# Words cached between texts: the frequent words of a language, 5 MB with 100 numbers.
_MOST_KEPT = 5000
_ZERO = 128
# Factors become integers in this unit. A lane has 64 bits: 8 for a step, up to 27 for a weight, the rest for millions of words.
_WEIGHT_UNIT = 1 << 24
_MOST_WEIGHT = 8.0


class WordVector(NamedTuple):
    """The vector of a word: factor times steps. The factor includes the weight of the word."""

    factor: float
    steps: array[int]


class WordVectorFile:
    """An open file, mapped into memory: processes share its pages, and only the used pages are read. Threads may share it."""

    def __init__(self, path: Path) -> None:
        """Raises BadModel, OSError."""
        with path.open("rb") as file:
            line = file.readline(_LONGEST_HEADER)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if line else None
        try:
            header = loads_wrapped(line)
            if header["format"] != FORMAT:
                raise ValueError
            if header["version"] != VERSION:
                raise BadModel(f"it is of version {header['version']}, and this one reads version {VERSION}")
            numbers = header["words"], header["dimensions"], header["bytes"]
            if not all(isinstance(number, int) for number in numbers):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise BadModel("it is not a file of word vectors") from None
        words, self.dimensions, size = numbers
        if not (words >= 0 and 0 < self.dimensions <= MOST_DIMENSIONS and size >= 0 and size % 4 == 0 and len(line) % 8 == 0):
            raise BadModel("its first line is not right")
        assert self._map is not None
        sections = [4 * (words + 1), size, 4 * words, words * self.dimensions]
        if len(self._map) != len(line) + sum(sections):
            raise BadModel("it is cut, or longer than it says")
        if sys.byteorder != "little":
            raise BadModel("computers with other byte orders cannot read it")
        whole, starts = memoryview(self._map), [len(line)]
        for section in sections:
            starts.append(starts[-1] + section)
        offsets, self._words, factors, self._steps = (whole[start:end] for start, end in zip(starts, starts[1:]))
        self._starts, self._factors = offsets.cast("I"), factors.cast("f")
        self._analyzer = shared_analyzer()

    def __len__(self) -> int:
        return len(self._factors)

    def _word(self, index: int) -> bytes:
        return bytes(self._words[self._starts[index]:self._starts[index + 1]])

    def words(self, text: str) -> list[str]:
        """Return the words of a text in their normalized form."""
        return [token.lemma for token in self._analyzer.tokens(text) if token.kind is WORD and token.lemma]

    def get(self, word: str) -> WordVector | None:
        """Return the vector of a word in its normalized form; None for a word missing in the file."""
        encoded = word.encode("utf-8", "replace")
        index = bisect_left(range(len(self)), encoded, key=self._word)
        if index == len(self) or self._word(index) != encoded:
            return None
        start = index * self.dimensions
        return WordVector(self._factors[index], array("b", bytes(self._steps[start:start + self.dimensions])))


def stepped(numbers: Sequence[float], weight: float = 1.0) -> WordVector:
    """Return the vector of a word, times a weight."""
    largest = max(map(abs, numbers), default=0.0) or 1.0
    return WordVector(weight * largest / STEPS, array("b", (round(number / largest * STEPS) for number in numbers)))


def write(file: IO[bytes], dimensions: int, words: Iterable[tuple[str, WordVector]]) -> None:
    """Write a file. words: in any order, each word once."""
    ordered = sorted((word.encode(), vector) for word, vector in words)
    starts, position = array("I", [0]), 0
    for word, _ in ordered:
        position += len(word)
        starts.append(position)
    padding = -position % 4
    header = json.dumps({"format": FORMAT, "version": VERSION, "words": len(ordered), "dimensions": dimensions,
                         "bytes": position + padding}).encode()
    file.write(header + b" " * (-(len(header) + 1) % 8) + b"\n")
    file.write(bytes_of(starts))
    file.write(b"".join(word for word, _ in ordered) + b"\0" * padding)
    file.write(bytes_of(array("f", (vector.factor for _, vector in ordered))))
    for _, vector in ordered:
        file.write(vector.steps.tobytes())


class _Summand(NamedTuple):
    """A word vector, to add all its numbers at once: an integer has a lane of 64 bits for each. Ten times as fast as a loop.

    lanes: its steps plus _ZERO, which makes them non-negative.
    """

    weight: int
    lanes: int


class StaticFileEmbedder:
    """See embedder.Embedder."""

    inputs_per_request = 10
    requests_at_once = 1

    def __init__(self, settings: Mapping[str, Any], environment: Environment, _dimensions: int | None = None) -> None:
        """Raises EmbeddingError when the file is missing or invalid."""
        name, models = settings["model"], environment.models
        is_table = (models / name).is_dir() and not (models / f"{name}{SUFFIX}").exists()
        name += "" if is_table else SUFFIX
        try:
            self._table: Any = _token_vectors(models / name) if is_table else WordVectorFile(models / name)
        except FileNotFoundError as missing:
            folder, file = Path(missing.filename).parent, Path(missing.filename).name
            raise EmbeddingError(USER, f"there is no file `{file}` in the folder `{folder}`; `--models-dir` names the folder of "
                                       "models") from None
        except OSError as failure:
            raise EmbeddingError(RUNTIME, f"could not read the word vectors `{name}`:\n  - {failure.strerror}") from None
        except BadModel as fault:
            raise EmbeddingError(USER, f"could not read the word vectors `{name}`:\n  - {fault}") from None
        self._kept: dict[Any, _Summand] = {}  # by word, or token

    def dimensions(self) -> int:
        """As in Embedder."""
        return int(self._table.dimensions)

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
        dimensions = self._table.dimensions
        for word, times in Counter(self._table.words(text)).items():
            kept = self._kept.get(word)
            if kept is None:
                found = self._table.get(word)
                vector = found if isinstance(found, WordVector) else stepped(found) if found else _unknown(word, dimensions)
                shifted = array("Q", (step + _ZERO for step in vector.steps))
                kept = _Summand(round(min(max(vector.factor, 0.0), _MOST_WEIGHT) * _WEIGHT_UNIT),
                                int.from_bytes(shifted.tobytes(), sys.byteorder))
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[word] = kept
            weights += kept.weight * times
            lanes += kept.weight * times * kept.lanes
        shift = weights * _ZERO
        total = [number - shift for number in array("Q", lanes.to_bytes(8 * dimensions, sys.byteorder))]
        if not any(total):  # a text without words, or words that cancel out: a vector that resembles no other
            total = list(_unknown("", dimensions).steps)
        length = sqrt(sum(map(mul, total, total)))
        return array("f", [number / length for number in total])


def _token_vectors(folder: Path) -> Any:
    from svcd.embedding.token_vectors import TokenVectors  # with its tokenizer, which files of words do without

    return TokenVectors(folder)


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
