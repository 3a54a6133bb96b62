"""What must hold of vectors and their distances:

1. Distances are those of the definition (docs/vectors.md#distance), rounded to single precision; vectors of one direction have
   distance 0, and vectors without direction too.
2. Scores are spread by the distribution as defined, and stay between 2^-23 and 1.
3. Stored vectors are read back.
"""
from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.vectors.vector import (
    EPSILON,
    cosine_distance,
    from_bytes,
    norm,
    quantized_bytes,
    similarity,
    single,
    to_bytes,
    unquantized,
    vector_of,
)
from tests.support.distances import quantized_distance

NUMBER = st.floats(-1e3, 1e3, width=32)


def vectors(count: int) -> st.SearchStrategy[list[list[float]]]:
    return st.integers(1, 70).flatmap(lambda size: st.lists(st.lists(NUMBER, min_size=size, max_size=size),
                                                           min_size=count, max_size=count))


@given(vectors(2))
def test_distances_are_those_of_the_definition(pair: list[list[float]]) -> None:
    left, right = pair
    norms = math.hypot(*left) * math.hypot(*right)
    found = cosine_distance(vector_of(left), vector_of(right))
    assert found == single(found) and 0 <= found <= 1
    if norms > 1.01 * EPSILON:
        assert found == pytest.approx((1 - math.fsum(a * b for a, b in zip(left, right)) / norms) / 2, abs=3e-7)
    elif norms < 0.99 * EPSILON:
        assert found == 0
    assert quantized_distance(left, right) == single(
        sum((a > 0) != (b > 0) for a, b in zip(left, right)) / (64 * -(-len(left) // 64)))


@pytest.mark.parametrize("left, right, distance", [
    ([1, 2, 3], [2, 4, 6], 0.0), ([1, 0], [0, 1], 0.5), ([1, 0], [-3, 0], 1.0), ([0, 0], [1, 1], 0.0), ([1, 1], [0, 0], 0.0),
    ([1e-20, 0], [0, 1e-20], 0.0), ([1e38, 1e38], [1e38, 1e38], 1.0), ([1, 2], [math.inf, 1], 1.0),
])
def test_some_distances(left: list[float], right: list[float], distance: float) -> None:
    assert cosine_distance(array("f", left), array("f", right)) == pytest.approx(distance, abs=1e-7)


def test_norms_are_of_single_precision() -> None:
    assert norm([1, 2, 3]) == array("f", [math.sqrt(14)])[0]


@pytest.mark.parametrize("distance, shift, score", [
    (0.25, None, 0.75), (0.0, None, 1.0), (0.5, (0.5, 0.4), 0.5), (0.25, (0.5, 0.4), 0.75), (1.0, (0.5, 0.1), EPSILON),
    (0.0, (0.5, 0.1), 1.0), (0.1, (0.9, 0.08), 0.5),
])
def test_scores(distance: float, shift: tuple[float, float] | None, score: float) -> None:
    assert similarity(distance, shift) == pytest.approx(score, abs=3e-7)


@given(vectors(3))
def test_stored_vectors_are_read_back(listed: list[list[float]]) -> None:
    given_vectors = list(map(vector_of, listed))
    assert from_bytes(to_bytes(given_vectors), len(listed[0])) == given_vectors
    for vector in given_vectors:
        assert list(unquantized(quantized_bytes(vector), len(vector))) == [float(number > 0) for number in vector]
