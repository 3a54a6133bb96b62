"""Which parts of a filter need a feature, and where they stand (relevance.md 5.3).

Knows the words of the refusals; refuses to know which features are on.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from svcd.engine.filters.errors import shown_place
from svcd.engine.filters.tree import SHARD, Comparison, Condition, Foreign, In, Token, VectorExists, parts_of


class Gate(NamedTuple):
    """flag: of the feature. action: the words that open the refusal without it. shown_place: of what needs it."""

    flag: str
    action: str
    shown_place: str


def _contains(condition: Any) -> Token | None:
    return condition.keyword if isinstance(condition, Comparison) else None


def _foreign(condition: Any) -> Token | None:
    return condition.field if isinstance(condition, Foreign) else None


def _shard(condition: Any) -> Token | None:
    is_one = isinstance(condition, (Comparison, In)) and condition.field.text == SHARD
    return condition.field if is_one else None


def _vectors(condition: Any) -> Token | None:
    return condition.name if isinstance(condition, VectorExists) else None


_GATES: tuple[tuple[str, str, Callable[[Any], Token | None]], ...] = (  # in the order in which they are checked
    ("containsFilter", "Using `CONTAINS` in a filter", _contains),
    ("foreignKeys", "using a foreign filter", _foreign),
    ("network", "using a shard filter", _shard),
    ("multimodal", "using a vector filter", _vectors),
)


def gates(condition: Condition) -> Iterator[Gate]:
    """The features that a filter needs, each once, with the first place that needs it."""
    found: dict[str, str] = {}
    waiting = [(condition, 0)]
    while waiting:
        condition, since = waiting.pop()
        since = condition.start if isinstance(condition, Foreign) else since
        for flag, _, place_in in _GATES:
            place = place_in(condition)
            if place is not None and flag not in found:
                found[flag] = shown_place(place, since)
        waiting += [(part, since) for part in reversed(parts_of(condition))]
    yield from (Gate(flag, action, found[flag]) for flag, action, _ in _GATES if flag in found)
