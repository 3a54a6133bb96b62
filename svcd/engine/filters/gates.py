"""Which parts of a filter need a feature, and where they stand (relevance.md 5.3).

Knows the words of the refusals; refuses to know which features are on.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from svcd.engine.filters.errors import shown_place
from svcd.engine.filters.tree import SHARD, Comparison, Condition, Foreign, In, Token, VectorExists, parts_of


class Gate(NamedTuple):
    """flag: of the feature. action: the words that open the refusal without it. shown_place: of what needs it."""

    flag: str
    action: str
    shown_place: str


def _contains(condition: Comparison) -> Token | None:
    return condition.keyword


def _shard(condition: Comparison | In) -> Token | None:
    return condition.field if condition.field.text == SHARD else None


_ACTIONS = {  # by flag, in the order in which they are checked
    "containsFilter": "Using `CONTAINS` in a filter",
    "foreignKeys": "using a foreign filter",
    "network": "using a shard filter",
    "multimodal": "using a vector filter",
}
_NEEDS: dict[type[Condition], Sequence[tuple[str, Callable[[Any], Token | None]]]] = {
    Comparison: (("containsFilter", _contains), ("network", _shard)),
    In: (("network", _shard),),
    Foreign: (("foreignKeys", lambda condition: condition.field),),
    VectorExists: (("multimodal", lambda condition: condition.name),),
}


def gates(condition: Condition) -> Iterator[Gate]:
    """The features that a filter needs, each once, with the first place that needs it."""
    found: dict[str, str] = {}
    waiting = [(condition, 0)]
    while waiting:
        condition, since = waiting.pop()
        since = condition.start if isinstance(condition, Foreign) else since
        for flag, place_in in _NEEDS.get(type(condition), ()):
            place = place_in(condition)
            if place is not None and flag not in found:
                found[flag] = shown_place(place, since)
        if below := parts_of(condition):
            waiting += [(part, since) for part in reversed(below)]
    yield from (Gate(flag, action, found[flag]) for flag, action in _ACTIONS.items() if flag in found)
