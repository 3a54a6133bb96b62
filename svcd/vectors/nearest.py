"""Find the nearest of given vectors: compute approximate distances fast, then exact distances of the nearest candidates.

With numpy, the first step multiplies matrices. The second step does not use numpy, so results do not depend on numpy.
"""
from __future__ import annotations

import importlib
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from math import dist, hypot
from operator import itemgetter, mul
from typing import Any

from svcd.vectors.vector import EPSILON, distance_of_product, from_bytes, norm, quantized_bytes, single

# Maximum error of an approximate distance: from single precision, and sums of thousands of products.
_MARGIN = 1e-5
_MOST_RATIO = 1e6
# Squares of vectors shorter than this are too small for single precision; squares of vectors longer than 1 / this are too large.
_LEAST_LENGTH = 1e-15

Stored = tuple[int, bytes]  # docid, its vectors one after the other


@cache
def numpy() -> Any:
    """Return the module numpy; None if it is not installed or if the environment sets SVCD_PLAIN_VECTORS."""
    if os.environ.get("SVCD_PLAIN_VECTORS"):
        return None
    # Threads of OpenBLAS would only compete with other searches. OpenBLAS reads this variable when it is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


class Nearest:
    """The `limit` vectors nearest to a query, among all vectors passed to add()."""

    def __init__(self, vector: array[float], is_quantized: bool, limit: int) -> None:
        self._vector = vector
        self._is_quantized = is_quantized
        self._limit = limit
        self._size = len(quantized_bytes(vector)) if is_quantized else 4 * len(vector)
        self._distances: Callable[[list[bytes]], Iterable[float]]
        if is_quantized:
            query, bits = int.from_bytes(quantized_bytes(vector), "little"), 8 * self._size
            self._distances = lambda rows: ((int.from_bytes(row, "little") ^ query).bit_count() / bits for row in rows)
        else:
            self._distances = _cosine_distances(vector)
        # Distance, docid and vector of each candidate, nearest first.
        self._found: list[tuple[float, int, bytes]] = []

    def add(self, rows: Iterable[Stored]) -> None:
        """Add the vectors of some documents."""
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
        """Return the documents of the vectors that are nearest by approximate distance so far."""
        return {docid for _, docid, _ in self._found[:self._limit]}

    def result(self) -> list[tuple[float, int]]:
        """Return (distance, docid) of the documents with the nearest vectors, nearest first, then by docid, each once."""
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
    """Return the first (distance, docid) of each document. found: nearest first."""
    nearest: dict[int, float] = {}
    for distance, docid in found:
        nearest.setdefault(docid, distance)
    return [(distance, docid) for docid, distance in nearest.items()]


_BY_DISTANCE = itemgetter(0, 1)


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
    """Return a function that computes distances by the law of cosines, since math.dist() is Python's fastest operation."""
    length = hypot(*vector)
    unpack = struct.Struct(f"<{len(vector)}f").unpack
    query = tuple(vector)
    zero = (0.0,) * len(query)
    square = length * length
    own_norm = norm(vector)
    # If lengths differ more, the sum of squares loses the shorter vector; outside of _LEAST_LENGTH, single precision fails.
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
