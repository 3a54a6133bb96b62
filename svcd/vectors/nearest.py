"""The nearest of given vectors: distances are first computed fast and nearly right, then exactly for those that may be nearest.

With numpy the first step multiplies matrices. The second step is the same with and without, so the results are.
"""
from __future__ import annotations

import importlib
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import repeat
from math import dist, hypot
from operator import itemgetter, mul
from typing import Any

from svcd.vectors.vector import EPSILON, distance_of_product, from_bytes, norm, quantized_bytes, single

# By how much a distance that is nearly right may differ from the exact one: single precision, and sums of thousands of products.
_MARGIN = 1e-5
_MOST_RATIO = 1e6
# Squares of shorter vectors are too small for single precision, those of vectors longer than one by this too large.
_LEAST_LENGTH = 1e-15

Stored = tuple[int, bytes]  # docid, its vectors one after the other


@cache
def numpy() -> Any:
    """The module numpy, or None if it is not installed, or not wanted: SVCD_PLAIN_VECTORS is set in the environment."""
    if os.environ.get("SVCD_PLAIN_VECTORS"):
        return None
    # Its threads would only compete with other searches. It reads this once, when it is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


class Nearest:
    """The `limit` vectors nearest to a query of all that were given."""

    def __init__(self, vector: array[float], is_quantized: bool, limit: int) -> None:
        self._vector = vector
        self._is_quantized = is_quantized
        self._limit = limit
        self._size = len(quantized_bytes(vector)) if is_quantized else 4 * len(vector)
        self._distances = _quantized_distances(vector) if is_quantized else _cosine_distances(vector)
        # Distance, docid and vector of those that may be among the nearest, the nearest first.
        self._found: list[tuple[float, int, bytes]] = []

    def add(self, rows: Iterable[Stored]) -> None:
        """Take the vectors of some documents into account."""
        docids: list[int] = []
        vectors: list[bytes] = []
        for docid, stored in rows:
            if len(stored) == self._size:
                docids.append(docid)
                vectors.append(stored)
            else:
                several = [stored[start:start + self._size] for start in range(0, len(stored), self._size)]
                docids += repeat(docid, len(several))
                vectors += several
        if not vectors:
            return
        self._found += zip(self._distances(vectors), docids, vectors)
        self._found.sort(key=_BY_DISTANCE)
        if len(self._found) > self._limit > 0:
            farthest = self._found[self._limit - 1][0] + (0 if self._is_quantized else _MARGIN)
            while self._found[-1][0] > farthest:
                self._found.pop()

    def docids(self) -> set[int]:
        """The documents of the vectors that seem nearest, as far as can be said now."""
        return {docid for _, docid, _ in self._found[:self._limit]}

    def result(self) -> list[tuple[float, int]]:
        """(distance, docid) of documents with the nearest vectors, nearest first, equal ones by docid, each once."""
        if self._is_quantized:
            exact = [(single(distance), docid) for distance, docid, _ in self._found]
        else:
            length = norm(self._vector)
            exact = []
            for _, docid, stored in self._found:
                (vector,) = from_bytes(stored, len(self._vector))
                exact.append((distance_of_product(sum(map(mul, self._vector, vector)), length, norm(vector)), docid))
        exact.sort()
        return first_of_each(exact[:self._limit])


def first_of_each(found: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """(distance, docid), nearest first, without those of a document after its first one."""
    nearest: dict[int, float] = {}
    for distance, docid in found:
        nearest.setdefault(docid, distance)
    return [(distance, docid) for docid, distance in nearest.items()]


_BY_DISTANCE = itemgetter(0, 1)


def _quantized_distances(vector: Sequence[float]) -> Callable[[list[bytes]], Iterator[float]]:
    stored = quantized_bytes(vector)
    query, bits = int.from_bytes(stored, "little"), 8 * len(stored)
    return lambda vectors: ((int.from_bytes(each, "little") ^ query).bit_count() / bits for each in vectors)


def _cosine_distances(vector: Sequence[float]) -> Callable[[list[bytes]], Iterable[float]]:
    plain = _plain_distance(vector)
    np = numpy()
    if np is None:
        return lambda vectors: map(plain, vectors)
    query, length, least = np.array(vector, dtype=np.float32), hypot(*vector), _LEAST_LENGTH * _LEAST_LENGTH
    if not _LEAST_LENGTH < length < 1 / _LEAST_LENGTH:
        return lambda vectors: map(plain, vectors)

    def distances(vectors: list[bytes]) -> Iterable[float]:
        matrix = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(-1, len(vector))
        with np.errstate(all="ignore"):
            products = (matrix @ query).astype(np.float64)
            squares = np.einsum("ij,ij->i", matrix, matrix).astype(np.float64)
            norms = np.sqrt(squares) * length
            found: list[float] = np.where(norms > EPSILON, (1 - products / norms) / 2, 0).tolist()
        for place in np.flatnonzero(~((squares > least) & (squares < 1 / least))).tolist():
            found[place] = plain(vectors[place])
        return found

    return distances


def _plain_distance(vector: Sequence[float]) -> Callable[[bytes], float]:
    """By the law of cosines: distances of points are what Python computes fastest."""
    length = hypot(*vector)
    unpack = struct.Struct(f"<{len(vector)}f").unpack
    query = tuple(vector)
    zero = (0.0,) * len(query)
    square = length * length
    own_norm = norm(vector)
    # Of lengths that differ by more, too little is left of the sum of squares; others are too long or too short for single
    # precision.
    shortest = max(length / _MOST_RATIO, _LEAST_LENGTH)
    longest = min(length * _MOST_RATIO, 1 / _LEAST_LENGTH)

    def distance(stored: bytes) -> float:
        numbers = unpack(stored)
        own = dist(numbers, zero)
        if not shortest < own < longest:
            return distance_of_product(sum(map(mul, query, numbers)), own_norm, norm(numbers))
        norms = own * length
        if not norms > EPSILON:
            return 0.0
        apart = dist(numbers, query)
        return (1.0 - (own * own + square - apart * apart) / (2 * norms)) / 2

    return distance
