"""The values by which hits of several lists are compared: scores, sort values and distances, in the order of the ranking rules.

A list of hits compares with others entry by entry (docs/search.md#merge-order); how entries of different kinds compare, and
whose distance is better, depends on what is merged.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from svcd.query.reader import Value
from svcd.ranking import scores
from svcd.ranking.scores import Detail, GeoSorted, Sorted, VectorSorted

_EPSILON = 2.0 ** -52

# A weighted score, the value of a sort rule, or a distance.
Compared = float | Sorted | GeoSorted

_RANKS, _SIMILARITY, _SORT = range(3)


def compared_values(details: Sequence[Detail], weight: float) -> tuple[Compared, ...]:
    """Neighbouring ranks merged to one weighted score, weighted similarities, sort values and distances as they are."""
    compared: list[Compared] = []
    for kind, run in groupby(details, _kind_of):
        compared += run if kind == _SORT else [scores.score(run) * weight]  # type: ignore[arg-type]  # noqa: B031 (read once)
    return tuple(compared)


def _kind_of(detail: Detail) -> int:
    if isinstance(detail, VectorSorted):
        return _SIMILARITY
    return _SORT if isinstance(detail, (Sorted, GeoSorted)) else _RANKS


# Comparisons of entries of one kind: negative if the left one is better, 0 if they are equal


def by_score(left: float, right: float) -> float:
    """The larger score is better."""
    return 0 if abs(left - right) <= _EPSILON else right - left


def by_value(left: Sorted, right: Sorted) -> float:
    """Numbers come before strings and strings before no value, whatever the direction."""
    if left.value == right.value:
        return 0
    kinds = _kind_of_value(left.value) - _kind_of_value(right.value)
    if kinds:
        return kinds
    is_smaller = left.value < right.value  # type: ignore[operator]  # both are numbers or both strings
    return -1 if is_smaller == left.ascending else 1


def _kind_of_value(value: Value | None) -> int:
    return 2 if value is None else int(isinstance(value, str))
