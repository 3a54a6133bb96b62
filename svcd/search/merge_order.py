"""Order hits of several lists: the values that order them, the comparison of hits, and merged lists (docs/search.md#merge-order).

The values of a hit are scores, sort values and distances, in the order of the ranking rules. Hits are compared entry by entry;
the kind of merge decides how entries of different kinds compare, and which distance is better. Merged lists are compatible, so
keys mostly have the same kinds of entries in the same places.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

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


# Merge keys and merged lists


class MergeKey(NamedTuple):
    """The values that order a hit among others: entries that are compared one by one, and its weighted score."""

    compared: tuple[Compared, ...]
    score: float


# A hit of one of the lists, with a `key` that orders it and the `number` of its query, which decides between equal keys.
H = TypeVar("H")


def merge_keys(weight: float) -> Callable[[tuple[Detail, ...]], MergeKey]:
    """Return a function from score details to merge keys, for the hits of one query; cached, since buckets share details."""
    known: dict[tuple[Detail, ...], MergeKey] = {}

    def key(details: tuple[Detail, ...]) -> MergeKey:
        found = known.get(details)
        if found is None:
            found = known[details] = MergeKey(compared_values(details, weight), scores.score(details) * weight)
        return found

    return key


def merged(lists: Iterable[Iterable[H]]) -> Iterator[H]:
    """Merge sorted lists lazily, best hits first.

    Equal hits of different lists come in the order of a binary heap of the lists, which clients see: the current list
    continues while it is as good as the others, and when it ends the last list takes its place.
    """
    heap = [_Head(hit, rest) for rest in map(iter, lists) for hit in _first(rest)]
    for place in reversed(range(len(heap) // 2)):
        _sift_down(heap, place)
    while len(heap) > 1:
        head = heap[0]
        yield head.hit
        following = _first(head.rest)
        if following:
            heap[0] = _Head(following[0], head.rest)
        else:
            heap[0] = heap[-1]
            heap.pop()
        _sift_down(heap, 0)
    for head in heap:  # the last list
        yield head.hit
        yield from head.rest


class _Head(NamedTuple):
    """The best hit of a list that is not taken yet, and the list after it."""

    hit: Any
    rest: Iterator[Any]


def _first(rest: Iterator[H]) -> list[H]:
    """Take the next hit of a list; return [] at its end."""
    for hit in rest:
        return [hit]
    return []


def _sift_down(heap: list[_Head], place: int) -> None:
    """Move the entry at a place down until no entry beneath it is better."""
    while (child := 2 * place + 1) < len(heap):
        if child + 1 < len(heap) and _is_better(heap[child + 1], heap[child]):
            child += 1
        if not _is_better(heap[child], heap[place]):
            return
        heap[place], heap[child] = heap[child], heap[place]
        place = child


def _is_better(left: _Head, right: _Head) -> bool:
    return (compare(left.hit.key, right.hit.key) or left.hit.number - right.hit.number) < 0


def compare(left: MergeKey, right: MergeKey) -> float:
    """Return a negative number if the left key is better, a positive one if the right key is, 0 if they are equal."""
    for mine, other in zip(left.compared, right.compared):
        is_comparable = type(mine) is type(other) and (
            isinstance(mine, float) or mine.ascending == other.ascending)  # type: ignore[union-attr]  # both are of one type
        if not is_comparable:  # entries of different kinds: the longer key is better, then the larger score
            return len(right.compared) - len(left.compared) or right.score - left.score
        order = _COMPARISONS[type(mine)](mine, other)
        if order:
            return order
    return len(right.compared) - len(left.compared)


def _by_distance(left: GeoSorted, right: GeoSorted) -> float:
    """The larger distance is better in both directions, a quirk of the reference engine; no distance is worst."""
    if left.metres is None or right.metres is None:
        return (left.metres is None) - (right.metres is None)
    return by_score(left.metres, right.metres)


_COMPARISONS: dict[type, Callable[[Any, Any], float]] = {float: by_score, Sorted: by_value, GeoSorted: _by_distance}
