"""A filter as it was understood: conditions on fields, joined by AND, OR and NOT.

Knows the kinds of conditions and where in the text their names stand; refuses to know how they are written,
checked and met.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# The operators of Comparison; NOT IN, NOT EXISTS and the like are a Not around what they negate.
EQUAL, NOT_EQUAL, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL = "=", "!=", "<", "<=", ">", ">="
BETWEEN, EXISTS, IS_NULL, IS_EMPTY = "TO", "EXISTS", "IS NULL", "IS EMPTY"
CONTAINS, STARTS_WITH = "CONTAINS", "STARTS WITH"

SHARD = "_shard"
VECTORS = "_vectors"


class Token(NamedTuple):
    """A piece of a filter: what it means, and the characters [start, end) of the source that say so.

    text: without quotes and escapes.
    """

    text: str
    source: str
    start: int
    end: int


class Condition:
    """Any node of the tree."""

    __slots__ = ()


@dataclass(slots=True)
class And(Condition):
    """All of two or more."""

    parts: Sequence[Condition]


@dataclass(slots=True)
class Or(Condition):
    """Any of two or more."""

    parts: Sequence[Condition]


@dataclass(slots=True)
class Not(Condition):
    """All documents but those."""

    part: Condition


@dataclass(slots=True)
class Comparison(Condition):
    """A field against no, one or (TO) two values. keyword: the word CONTAINS, which a feature must allow."""

    field: Token
    operator: str
    values: tuple[str, ...] = ()
    keyword: Token | None = None


@dataclass(slots=True)
class In(Condition):
    """A field that has any of the values."""

    field: Token
    values: Sequence[str]


@dataclass(slots=True)
class Radius(Condition):
    """Points, and shapes, within so many metres. The numbers are as they were written; point: latitude, longitude."""

    point: tuple[Token, Token]
    metres: Token
    resolution: Token | None = None


@dataclass(slots=True)
class BoundingBox(Condition):
    """Points, and shapes, in a rectangle of degrees."""

    top_right: tuple[Token, Token]
    bottom_left: tuple[Token, Token]


@dataclass(slots=True)
class Polygon(Condition):
    """Shapes that meet a polygon of three points or more."""

    points: Sequence[tuple[Token, Token]]


Geo = Radius | BoundingBox | Polygon


@dataclass(slots=True)
class VectorExists(Condition):
    """Documents with vectors: of any embedder, of one, of a kind (`userProvided` ...), of one fragment.

    name: `_vectors` as it was written.
    """

    name: Token
    embedder: Token | None = None
    kind: str | None = None
    fragment: Token | None = None


@dataclass(slots=True)
class Foreign(Condition):
    """Documents whose field names a document of another index that meets a condition.

    start: where it begins in the filter, from where on errors show it.
    """

    field: Token
    part: Condition
    start: int = 0


_ALONE: tuple[Condition, ...] = ()


def parts_of(condition: Condition) -> Sequence[Condition]:
    """The conditions right beneath one."""
    if isinstance(condition, (And, Or)):
        return condition.parts
    return (condition.part,) if isinstance(condition, (Not, Foreign)) else _ALONE


def in_order(condition: Condition) -> Iterator[Condition]:
    """A condition and all beneath it, as they were written from left to right."""
    waiting = [condition]
    while waiting:
        condition = waiting.pop()
        yield condition
        waiting += reversed(parts_of(condition))
