"""Order merged hits: the key of each hit, the comparison of two keys, and lists merged by keys (docs/search.md#merge-order).

Merged lists are compatible, so keys mostly have the same kinds of entries in the same places.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from svcd.ranking import scores
from svcd.ranking.scores import Detail, GeoSorted, Sorted
from svcd.search.score_values import Compared, by_score, by_value, compared_values


class MergeKey(NamedTuple):
    """The values that order a hit among others: entries that are compared one by one, and its weighted score."""

    compared: tuple[Compared, ...]
    score: float


class Mergeable(Protocol):
    """A hit of one of the lists."""

    @property
    def key(self) -> MergeKey:
        """The key that orders it."""

    @property
    def number(self) -> int:
        """The number of its query; decides between hits with equal keys."""


H = TypeVar("H", bound=Mergeable)


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
