"""Place pinned hits among the hits that ranking found (docs/search-rules.md#positions). Pure functions, for hits of any kind.

A pin is (the position that its rule asks for, hit). The hits of one query are placed in the order of its rules. When the hits of
all queries are merged, the pins are placed again, by position.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from svcd.base.docids import DocIds
from svcd.ranking.bucket_sort import Hit, Ranking
from svcd.ranking.scores import Pinned

T = TypeVar("T")
Pin = tuple[int, T]


def by_position(pins: Iterable[Pin[T]]) -> list[Pin[T]]:
    """Return the pins sorted by position; pins with the same position keep their order."""
    return sorted(pins, key=lambda pin: pin[0])


def placed(organic: Sequence[T], pins: Sequence[Pin[T]], end: int) -> list[T]:
    """Return the first `end` hits: at each place the next pin if its position is reached, else the next organic hit.

    When the organic hits run out, the remaining pins follow in their order. A pin that waits for its position delays the pins
    after it.
    """
    found: list[T] = []
    hits, waiting = iter(organic), list(reversed(pins))
    while len(found) < end:
        if waiting and waiting[-1][0] <= len(found):
            found.append(waiting.pop()[1])
            continue
        try:
            found.append(next(hits))
        except StopIteration:
            found += [hit for _, hit in reversed(waiting)][:end - len(found)]
            break
    return found


# Hits of one index, whose score details say which are pinned


def pinned_hit(docid: int, position: int) -> Hit:
    """Return the hit of a document that a rule pins."""
    return Hit(docid, (Pinned(position),))


def pinned_position(hit: Hit) -> int | None:
    """Return the position that a rule asks for, None for an organic hit."""
    first = hit.details[0] if hit.details else None
    return first.position if isinstance(first, Pinned) else None


def split(hits: Iterable[Hit]) -> tuple[list[Hit], list[Pin[Hit]]]:
    """Return (the organic hits, the pins), each in their order."""
    organic: list[Hit] = []
    pins: list[Pin[Hit]] = []
    for hit in hits:
        position = pinned_position(hit)
        if position is None:
            organic.append(hit)
        else:
            pins.append((position, hit))
    return organic, pins


def with_pins(ranking: Ranking, pins: Sequence[Pin[Hit]], most: int) -> Ranking:
    """Put the pins in their places in a ranking of the other documents, `most` hits in all; pinned documents are counted."""
    counted = ranking.counted | DocIds([hit.docid for _, hit in pins])
    return Ranking(counted, placed(ranking.hits, pins, most))
