"""The values that order hits of several lists: scores, sort values and distances, in the order of the ranking rules.

Hits of merged lists are compared entry by entry (docs/search.md#merge-order). The kind of merge decides how entries of different
kinds compare, and which distance is better.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from svcd.query.reader import Value
from svcd.ranking import scores
from svcd.ranking.scores import Detail, GeoSorted, Sorted, VectorSorted

_EPSILON = 2.0 ** -52

# A weighted score, the value of a sort rule, or a distance.
Compared = float | Sorted | GeoSorted

_RANKS, _SIMILARITY, _SORT = range(3)
_NOWHERE = (0.0, 0.0)  # remotes send the distance of a hit, not its origin


def compared_values(details: Sequence[Detail], weight: float) -> tuple[Compared, ...]:
    """Return the values of a hit: neighbouring ranks as one weighted score, weighted similarities, sort values, distances."""
    return tuple(value for _, value in _of_kinds(details, weight))


def shown_values(details: Sequence[Detail], weight: float) -> list[dict[str, Any]]:
    """Return the same values as another instance reads them (docs/network.md#members-for-the-caller)."""
    shown: list[dict[str, Any]] = []
    for kind, value in _of_kinds(details, weight):
        if isinstance(value, Sorted):
            shown.append({"sort": {"asc": value.ascending, "value": value.value}})
        elif isinstance(value, GeoSorted):
            shown.append({"geoSort": {"asc": value.ascending, "distance": value.metres}})
        else:
            shown.append({"vectorSort" if kind == _SIMILARITY else "weightedScore": value})
    return shown


def _of_kinds(details: Sequence[Detail], weight: float) -> Iterator[tuple[int, Compared]]:
    for kind, run in groupby(details, _kind_of):
        if kind != _SORT:
            yield kind, scores.score(run) * weight
            continue
        for detail in run:
            yield kind, detail  # type: ignore[misc]  # this kind contains only Sorted and GeoSorted


def read_values(shown: Any) -> tuple[tuple[Compared, ...], bool]:
    """Read the result of shown_values() of another instance. Returns (the values, whether any is a similarity).

    Raises ValueError.
    """
    if not isinstance(shown, list):
        raise ValueError("score values must be a list")
    return tuple(map(_read, shown)), any("vectorSort" in value for value in shown)


def _read(shown: Any) -> Compared:
    match shown:
        case {"weightedScore": score} | {"vectorSort": score} if _is_number(score):
            return float(score)
        case {"sort": {"asc": bool(ascending), "value": value}} if value is None or isinstance(value, str) or _is_number(value):
            return Sorted("", ascending, value)
        case {"geoSort": {"asc": bool(ascending), "distance": metres}} if metres is None or _is_number(metres):
            return GeoSorted(_NOWHERE, ascending, None, metres)
    raise ValueError("not a valid score value")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _kind_of(detail: Detail) -> int:
    if isinstance(detail, VectorSorted):
        return _SIMILARITY
    return _SORT if isinstance(detail, (Sorted, GeoSorted)) else _RANKS


# Comparisons of entries of one kind: negative if the left entry is better, 0 if they are equal


def by_score(left: float, right: float) -> float:
    """Compare scores: the larger one is better."""
    return 0 if abs(left - right) <= _EPSILON else right - left


def by_distance(left: GeoSorted, right: GeoSorted) -> float:
    """Compare distances in the direction of their sort; hits without a distance come last."""
    if left.metres is None or right.metres is None:
        return (left.metres is None) - (right.metres is None)
    return left.metres - right.metres if left.ascending else right.metres - left.metres


def by_value(left: Sorted, right: Sorted) -> float:
    """Compare sort values: numbers come before strings and strings before missing values, in both directions."""
    if left.value == right.value:
        return 0
    kinds = _kind_of_value(left.value) - _kind_of_value(right.value)
    if kinds:
        return kinds
    is_smaller = left.value < right.value  # type: ignore[operator]  # both are numbers or both strings
    return -1 if is_smaller == left.ascending else 1


def _kind_of_value(value: Value | None) -> int:
    return 2 if value is None else int(isinstance(value, str))
