"""Vectors as arrays of single-precision numbers, their distances, and the scores computed from distances.

Each step of a distance is rounded to single precision, as in engines that use single precision throughout. Only the sum of
products uses double precision, so that it does not depend on the order of summation. Equal distances therefore stay equal, and
printed scores agree with such engines except in the last digit. See docs/vectors.md#distance.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import sqrt
from operator import mul
from typing import NamedTuple

from svcd.base.docids import bytes_of, numbers_of


Vector = array  # array("f")

# If the product of two norms is at most this (2 to the power of -23), a vector counts as without direction.
EPSILON = 2.0 ** -23
LARGEST = (2 - 2.0 ** -23) * 2.0 ** 127  # the largest number of single precision
_INFINITES = [array("f", [number]).tobytes() for number in (float("inf"), -float("inf"))]
# Quantized vectors are padded with zeros to a multiple of this many bits.
QUANTIZED_PADDING = 64


class DocumentVectors(NamedTuple):
    """The stored vectors of a document for one embedder; vectors of a quantized embedder consist of ones and zeros.

    regenerate: whether a change of the document regenerates them; False for vectors that a user provided.
    """

    vectors: list[array[float]]
    regenerate: bool


def vector_of(numbers: Iterable[float]) -> array[float]:
    """Return numbers as a vector of single precision; clip numbers that are too large, because JSON lacks infinity."""
    vector = array("f", numbers)
    stored = vector.tobytes()
    if any(infinite in stored for infinite in _INFINITES):
        return array("f", [max(-LARGEST, min(LARGEST, number)) for number in vector])
    return vector


def to_bytes(vectors: Iterable[array[float]]) -> bytes:
    """Return joined vectors of equal length, with 4 bytes for each number, little-endian."""
    joined = array("f")
    for vector in vectors:
        joined.extend(vector)
    return bytes_of(joined)


def from_bytes(stored: bytes, dimensions: int) -> list[array[float]]:
    """Return the vectors that to_bytes() has joined."""
    joined = numbers_of("f", stored)
    return [joined[start:start + dimensions] for start in range(0, len(joined), dimensions)]


_BINARY = bytes.maketrans(b"\0\1", b"01")
_VALUES = bytes.maketrans(b"01", b"\0\1")
_is_above_zero = (0.0).__lt__


def quantized_bytes(vector: Sequence[float]) -> bytes:
    """Return one bit for each number, 1 above zero, padded to a multiple of 64 bits; the first number is the lowest bit."""
    bits = bytes(map(_is_above_zero, vector))[::-1].translate(_BINARY)
    return int(bits or b"0", 2).to_bytes(quantized_size(len(vector)), "little")


def quantized_size(dimensions: int) -> int:
    """Return the size of a quantized vector in bytes."""
    return padded(dimensions) // 8


def unquantized(stored: bytes, dimensions: int) -> array[float]:
    """Return the ones and zeros of quantized_bytes()."""
    bits = f"{int.from_bytes(stored, 'little'):0{len(stored) * 8}b}".encode()[::-1].translate(_VALUES)
    return array("f", list(bits[:dimensions]))


def single(number: float) -> float:
    """Return a number rounded to single precision."""
    return array("f", (number,))[0]


def norm(vector: Sequence[float]) -> float:
    """Return the length of a vector, in single precision."""
    return single(sqrt(single(sum(map(mul, vector, vector)))))


def cosine_distance(left: Sequence[float], right: Sequence[float]) -> float:
    """Return 0 for vectors with the same direction or a vector without direction, 1 for vectors with opposite directions."""
    return distance_of_product(sum(map(mul, left, right)), norm(left), norm(right))


def distance_of_product(product: float, left: float, right: float) -> float:
    """Return the cosine distance of two vectors from the sum of their products and their norms."""
    norms = single(left * right)
    if not norms > EPSILON:
        return 0.0
    cosine = single(single(product) / norms)
    # Infinite numbers result in NaN; such vectors have the maximum distance.
    return single(1.0 - max(-1.0, min(1.0, cosine))) / 2 if cosine == cosine else 1.0


def padded(dimensions: int) -> int:
    """Return the number of bits of a quantized vector."""
    return -(-dimensions // QUANTIZED_PADDING) * QUANTIZED_PADDING


def similarity(distance: float, shift: tuple[float, float] | None = None) -> float:
    """Return the score of a distance, from 0 to 1. shift: mean and sigma of a model's scores, to spread them around 0.5."""
    score = single(1.0 - distance)
    if shift is None:
        return score
    mean, sigma = map(single, shift)
    factor = single(single(0.4) / sigma)
    score = single(single(factor * score) + single(0.5 - single(factor * mean)))
    return EPSILON if score <= 0.0 else min(score, 1.0)
