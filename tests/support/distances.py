"""Distances by their definition, to compare with the faster ways of svcd."""
from __future__ import annotations

from collections.abc import Sequence

from svcd.vectors.vector import padded, single


def quantized_distance(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the proportion of the numbers, after padding, that are above zero in exactly one of two vectors."""
    differing = sum((a > 0) != (b > 0) for a, b in zip(left, right))
    return single(differing / padded(len(left)))
