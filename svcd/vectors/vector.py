"""Vectors as arrays of single-precision numbers, their distances, and the scores that follow from these.

All steps of a distance round to single precision, as engines do that compute in it throughout; only the sum of products
is kept in double precision until its end, so that it does not depend on the order of summation. Equal distances therefore
stay equal, and printed scores agree with those of such engines in all but the last digit. See docs/vectors.md#distance.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import sqrt
from operator import mul
from typing import NamedTuple

from svcd.base.little_endian import bytes_of, numbers_of

Vector = array  # array("f")

# Norms of which the product is not above this are those of vectors without direction: 2 to the power of -23.
EPSILON = 2.0 ** -23
LARGEST = (2 - 2.0 ** -23) * 2.0 ** 127  # of single precision
_INFINITES = [array("f", [number]).tobytes() for number in (float("inf"), -float("inf"))]
# Quantized vectors are padded with zeros to a multiple of this many bits.
QUANTIZED_PADDING = 64


class DocumentVectors(NamedTuple):
    """The vectors of a document for one embedder; as stored, so that those of a quantized embedder are of ones and zeros.

    regenerate: are they made again when the document changes? False for vectors that a user gave.
    """

    vectors: list[array[float]]
    regenerate: bool


# Values


def vector_of(numbers: Iterable[float]) -> array[float]:
    """Numbers as a vector of single precision; too large ones become the largest, because JSON has none that is infinite."""
    vector = array("f", numbers)
    stored = vector.tobytes()
    if any(infinite in stored for infinite in _INFINITES):
        return array("f", [max(-LARGEST, min(LARGEST, number)) for number in vector])
    return vector


def to_bytes(vectors: Iterable[array[float]]) -> bytes:
    """Vectors of equal length, joined: each number in 4 bytes, little-endian."""
    joined = array("f")
    for vector in vectors:
        joined.extend(vector)
    return bytes_of(joined)


def from_bytes(stored: bytes, dimensions: int) -> list[array[float]]:
    """The vectors that to_bytes() has joined."""
    joined = numbers_of("f", stored)
    return [joined[start:start + dimensions] for start in range(0, len(joined), dimensions)]


# Quantized vectors

_BINARY = bytes.maketrans(b"\0\1", b"01")
_VALUES = bytes.maketrans(b"01", b"\0\1")
_is_above_zero = (0.0).__lt__


def quantized_bytes(vector: Sequence[float]) -> bytes:
    """A bit for each number, 1 above zero, padded to a multiple of 64; the first number is the lowest bit of the first byte."""
    bits = bytes(map(_is_above_zero, vector))[::-1].translate(_BINARY)
    return int(bits or b"0", 2).to_bytes(quantized_size(len(vector)), "little")


def quantized_size(dimensions: int) -> int:
    """The bytes of a quantized vector."""
    return padded(dimensions) // 8


def unquantized(stored: bytes, dimensions: int) -> array[float]:
    """The ones and zeros of quantized_bytes()."""
    bits = f"{int.from_bytes(stored, 'little'):0{len(stored) * 8}b}".encode()[::-1].translate(_VALUES)
    return array("f", list(bits[:dimensions]))


# Distances


def single(number: float) -> float:
    """A number rounded to single precision."""
    return array("f", (number,))[0]


def norm(vector: Sequence[float]) -> float:
    """The length of a vector, in single precision."""
    return single(sqrt(single(sum(map(mul, vector, vector)))))


def cosine_distance(left: Sequence[float], right: Sequence[float]) -> float:
    """0 for vectors of one direction, 1 for opposite ones; 0 as well when one of them has no direction."""
    return distance_of_product(sum(map(mul, left, right)), norm(left), norm(right))


def distance_of_product(product: float, left: float, right: float) -> float:
    """The cosine distance of two vectors, given the sum of their products and their norms."""
    norms = single(left * right)
    if not norms > EPSILON:
        return 0.0
    cosine = single(single(product) / norms)
    # Infinite numbers make one that is not a number; such a vector is as far away as one can be.
    return single(1.0 - max(-1.0, min(1.0, cosine))) / 2 if cosine == cosine else 1.0


def quantized_distance(left: Sequence[float], right: Sequence[float]) -> float:
    """The share of the numbers, after padding, of which one is above zero and the other is not."""
    differing = sum((a > 0) != (b > 0) for a, b in zip(left, right))
    return single(differing / padded(len(left)))


def padded(dimensions: int) -> int:
    """The number of bits of a quantized vector."""
    return -(-dimensions // QUANTIZED_PADDING) * QUANTIZED_PADDING


# Scores


def similarity(distance: float, shift: tuple[float, float] | None = None) -> float:
    """The score of a distance, from 0 to 1.

    shift: mean and sigma of the scores that a model gives to texts that have to do with each other; they are spread around 0.5.
    """
    score = single(1.0 - distance)
    if shift is None:
        return score
    mean, sigma = map(single, shift)
    factor = single(single(0.4) / sigma)
    score = single(single(factor * score) + single(0.5 - single(factor * mean)))
    return EPSILON if score <= 0.0 else min(score, 1.0)
