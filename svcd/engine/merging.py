"""Hits of several lists in one order: how two of them compare, and lists that are merged by that.

Knows relevance.md 10.4; refuses to know where lists come from. Two lists that are merged are compatible
(`compatibility`), so that their hits mostly have values of the same kinds in the same places.
"""
from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cmp_to_key
from itertools import groupby
from typing import Any, NamedTuple

from svcd.engine.ranking import scores
from svcd.engine.ranking.buckets import Hit
from svcd.engine.ranking.scores import Detail, GeoSorted, Sorted
from svcd.engine.reader import Value

_EPSILON = 2.0 ** -52

# A weighted score, the value of a field or a distance.
Compared = float | Sorted | GeoSorted


class Standing(NamedTuple):
    """Where a hit stands: what is compared, place by place, and the weighted score of all of it."""

    compared: tuple[Compared, ...]
    score: float


class MergedHit(NamedTuple):
    """A hit of one of the queries.

    number: of the query; decides between equal hits. within: the query's own results, for those who show the hit.
    """

    hit: Hit
    standing: Standing
    number: int
    within: Any


def standings(weight: float) -> Callable[[tuple[Detail, ...]], Standing]:
    """details -> standing, for the hits of one query; hits of one bucket share it."""
    known: dict[tuple[Detail, ...], Standing] = {}

    def standing(details: tuple[Detail, ...]) -> Standing:
        found = known.get(details)
        if found is None:
            found = known[details] = Standing(_compared(details, weight), scores.score(details) * weight)
        return found

    return standing


def _compared(details: Sequence[Detail], weight: float) -> tuple[Compared, ...]:
    """Neighbouring ranks come to one score; values of fields and distances stand as they are."""
    compared: list[Compared] = []
    for is_sorted, run in groupby(details, lambda detail: isinstance(detail, (Sorted, GeoSorted))):
        compared += run if is_sorted else [scores.score(run) * weight]  # type: ignore[arg-type]  # noqa: B031 (read once)
    return tuple(compared)


def merged(lists: Iterable[Iterable[MergedHit]]) -> Iterator[MergedHit]:
    """The hits of all lists, best first, as they are asked for. Each list is in order."""
    return heapq.merge(*lists, key=cmp_to_key(_order))  # type: ignore[arg-type]  # only its sign is looked at


def _order(left: MergedHit, right: MergedHit) -> float:
    """Below 0 when the left one is better."""
    return compare(left.standing, right.standing) or left.number - right.number


def compare(left: Standing, right: Standing) -> float:
    """Below 0 when the left one is better, above when the right one is, 0 when they stand equal."""
    for mine, other in zip(left.compared, right.compared):
        if not _is_comparable(mine, other):
            # Which has more left to be compared ranks higher, as far as can be known.
            return len(right.compared) - len(left.compared) or right.score - left.score
        order = _SCALES[type(mine)](mine, other)
        if order:
            return order
    return len(right.compared) - len(left.compared)


def _is_comparable(left: Compared, right: Compared) -> bool:
    if type(left) is not type(right):
        return False
    return isinstance(left, float) or left.ascending == right.ascending  # type: ignore[union-attr]  # both are of one type


def _by_score(left: float, right: float) -> float:
    return 0 if abs(left - right) <= _EPSILON else right - left


def _by_value(left: Sorted, right: Sorted) -> float:
    """Numbers, then texts, then what has no value, whatever the direction (3.13)."""
    if left.value == right.value:
        return 0
    kinds = _kind(left.value) - _kind(right.value)
    if kinds:
        return kinds
    is_smaller = left.value < right.value  # type: ignore[operator]  # both are of one kind, and there
    return -1 if is_smaller == left.ascending else 1


def _by_distance(left: GeoSorted, right: GeoSorted) -> float:
    """The larger distance is better whatever the direction: so does the reference engine; none is worst."""
    if left.metres is None or right.metres is None:
        return (left.metres is None) - (right.metres is None)
    return _by_score(left.metres, right.metres)


def _kind(value: Value | None) -> int:
    return 2 if value is None else int(isinstance(value, str))


_SCALES: dict[type, Callable[[Any, Any], float]] = {float: _by_score, Sorted: _by_value, GeoSorted: _by_distance}
