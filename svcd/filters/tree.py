"""The condition tree of a filter: conditions on fields, combined by AND, OR and NOT.

Names and numbers are tokens, which remember their place in the text for error messages.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# The operators of Comparison; NOT IN, NOT EXISTS and the like become a Not around the condition.
EQUAL, NOT_EQUAL, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL = "=", "!=", "<", "<=", ">", ">="
BETWEEN, EXISTS, IS_NULL, IS_EMPTY = "TO", "EXISTS", "IS NULL", "IS EMPTY"
CONTAINS, STARTS_WITH = "CONTAINS", "STARTS WITH"

SHARD = "_shard"
VECTORS = "_vectors"


class Token(NamedTuple):
    """A part of a filter: its text without quotes and escapes, and its place, the characters [start, end) of source."""

    text: str
    source: str
    start: int
    end: int


class Condition:
    """Any node of the tree."""

    __slots__ = ()


@dataclass(slots=True)
class And(Condition):
    """Documents that meet all of two or more conditions."""

    parts: Sequence[Condition]


@dataclass(slots=True)
class Or(Condition):
    """Documents that meet any of two or more conditions."""

    parts: Sequence[Condition]


@dataclass(slots=True)
class Not(Condition):
    """All documents of the index that do not meet a condition."""

    part: Condition


@dataclass(slots=True)
class Comparison(Condition):
    """A field, an operator and its values: none (EXISTS, IS NULL, IS EMPTY), two (TO) or one.

    keyword: the token of CONTAINS, which an experimental feature must allow.
    """

    field: Token
    operator: str
    values: tuple[str, ...] = ()
    keyword: Token | None = None


@dataclass(slots=True)
class In(Condition):
    """Documents whose field has any of the values."""

    field: Token
    values: Sequence[str]


@dataclass(slots=True)
class Radius(Condition):
    """Points, and geometries, within a distance of a point (latitude, longitude). Numbers are not checked yet."""

    point: tuple[Token, Token]
    metres: Token
    resolution: Token | None = None


@dataclass(slots=True)
class BoundingBox(Condition):
    """Points, and geometries, in a rectangle of degrees."""

    top_right: tuple[Token, Token]
    bottom_left: tuple[Token, Token]


@dataclass(slots=True)
class Polygon(Condition):
    """Geometries that intersect a polygon of three points or more."""

    points: Sequence[tuple[Token, Token]]


Geo = Radius | BoundingBox | Polygon


@dataclass(slots=True)
class VectorExists(Condition):
    """Documents with vectors: of any embedder, of one, of one kind (`userProvided` ...) or of one fragment.

    name: the token of `_vectors`.
    """

    name: Token
    embedder: Token | None = None
    kind: str | None = None
    fragment: Token | None = None


@dataclass(slots=True)
class Foreign(Condition):
    """Documents whose field holds the identifier of a document of another index that meets a condition.

    start: index of `_foreign` in the source; errors inside show the filter from there on.
    """

    field: Token
    part: Condition
    start: int = 0


_NO_PARTS: tuple[Condition, ...] = ()


def parts_of(condition: Condition) -> Sequence[Condition]:
    """Return the direct parts of a condition."""
    if isinstance(condition, (And, Or)):
        return condition.parts
    return (condition.part,) if isinstance(condition, (Not, Foreign)) else _NO_PARTS


def in_order(condition: Condition) -> Iterator[Condition]:
    """Yield a condition and all its parts at any depth, from left to right."""
    pending = [condition]
    while pending:
        condition = pending.pop()
        yield condition
        pending += reversed(parts_of(condition))
