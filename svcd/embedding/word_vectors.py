"""Files of word vectors: a byte per number, words in byte order, read from the file on demand.

A file is, without gaps: a line of JSON, `{"format": "svcd word vectors", "version": 1, "words": W, "dimensions": D,
"bytes": B}`, padded with spaces so that its length with the line end is a multiple of 8; W + 1 unsigned 32-bit numbers, the
start of each word in the section that follows; B bytes, the words in UTF-8, sorted, and zeros up to a multiple of 4; W
single-precision numbers, for each word its weight times the value of one step; W times D signed bytes, the steps. All numbers
are little-endian. See docs/embedders.md#files-of-word-vectors.
"""
from __future__ import annotations

import json
import mmap
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from svcd.base.docids import bytes_of
from svcd.base.json_text import loads_wrapped

FORMAT, VERSION = "svcd word vectors", 1
MOST_DIMENSIONS = 4096
_LONGEST_HEADER = 4096


class BadFile(Exception):
    """The file is not a valid file of word vectors. str(): why, without its path."""


class WordVector(NamedTuple):
    """The vector of a word: factor times steps. The factor includes the weight of the word."""

    factor: float
    steps: array[int]


class _Words(Sequence[bytes]):
    """The sorted words of a file."""

    def __init__(self, starts: memoryview, words: memoryview) -> None:
        self._starts = starts
        self._words = words

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> bytes:  # type: ignore[override]  # slices are not needed
        return bytes(self._words[self._starts[index]:self._starts[index + 1]])


class WordVectorFile:
    """An open file, mapped into memory: processes share its pages, and only the used pages are read. Threads may share it."""

    def __init__(self, path: Path) -> None:
        """Raises BadFile, OSError."""
        with path.open("rb") as file:
            header = file.readline(_LONGEST_HEADER)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if header else None
        words, self.dimensions, size = _read_header(header)
        assert self._map is not None
        sections = [4 * (words + 1), size, 4 * words, words * self.dimensions]
        if len(self._map) != len(header) + sum(sections):
            raise BadFile("it is cut, or longer than it says")
        if sys.byteorder != "little":
            raise BadFile("computers with other byte orders cannot read it")
        whole, starts = memoryview(self._map), [len(header)]
        for section in sections:
            starts.append(starts[-1] + section)
        offsets, texts, factors, self._steps = (whole[start:end] for start, end in zip(starts, starts[1:]))
        self._words = _Words(offsets.cast("I"), texts)
        self._factors = factors.cast("f")

    def __len__(self) -> int:
        return len(self._words)

    def get(self, word: str) -> WordVector | None:
        """Return the vector of a word in its normalized form; None for a word missing in the file."""
        encoded = word.encode("utf-8", "replace")
        index = bisect_left(self._words, encoded)
        if index == len(self._words) or self._words[index] != encoded:
            return None
        start = index * self.dimensions
        return WordVector(self._factors[index], array("b", bytes(self._steps[start:start + self.dimensions])))


def _read_header(line: bytes) -> tuple[int, int, int]:
    """Return (words, dimensions, bytes of the words)."""
    try:
        header = loads_wrapped(line)
        if header["format"] != FORMAT:
            raise ValueError
        if header["version"] != VERSION:
            raise BadFile(f"it is of version {header['version']}, and this one reads version {VERSION}")
        numbers = header["words"], header["dimensions"], header["bytes"]
        if not all(isinstance(number, int) for number in numbers):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise BadFile("it is no file of word vectors") from None
    words, dimensions, size = numbers
    if not (words >= 0 and 0 < dimensions <= MOST_DIMENSIONS and size >= 0 and size % 4 == 0 and len(line) % 8 == 0):
        raise BadFile("its first line is not right")
    return words, dimensions, size


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
