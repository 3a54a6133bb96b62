"""The condition tree of a filter: conditions on fields, combined by AND, OR and NOT; and its canonical text.

Names and numbers are tokens, which remember their place in the text for error messages. The messages of searches refer to the
canonical text instead (docs/filters-and-facets.md#error-messages).
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from svcd.base.json_text import dumps

# The operators of Comparison; NOT IN, NOT EXISTS and the like become a Not around the condition.
EQUAL, NOT_EQUAL, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL = "=", "!=", "<", "<=", ">", ">="
BETWEEN, EXISTS, IS_NULL, IS_EMPTY = "TO", "EXISTS", "IS NULL", "IS EMPTY"
CONTAINS, STARTS_WITH = "CONTAINS", "STARTS WITH"

SHARD = "_shard"
VECTORS = "_vectors"
# The kinds of vectors that a condition may name.
KINDS = FRAGMENTS, USER_PROVIDED, DOCUMENT_TEMPLATE, REGENERATE = ("fragments", "userProvided", "documentTemplate", "regenerate")


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


# Canonical text

def canonical_text(condition: Condition) -> str:
    """Return the canonical text of a condition; parsing it gives an equal tree."""
    return "".join(_Writer(condition).pieces)


def canonical_token(condition: Condition, token: Token) -> Token:
    """Return a token of a tree with its columns in the canonical text."""
    writer = _Writer(condition, token)
    start = sum(map(len, writer.pieces[:writer.token_index])) + writer.quotes
    length = len(writer.pieces[writer.token_index]) - 2 * writer.quotes
    return Token(token.text, "".join(writer.pieces), start, start + length)


class _Writer:
    """The canonical text in pieces, and the piece of one token.

    token_index: of the piece in `pieces`. quotes: the number of characters at each end of the piece that do not belong to the
    token (0 or 1).
    """

    def __init__(self, condition: Condition, wanted: Token | None = None) -> None:
        self.pieces: list[str] = []
        self.token_index = self.quotes = 0
        self._wanted = wanted
        self._condition(condition)

    def _token(self, token: Token, text: str, quotes: int = 0) -> None:
        if token is self._wanted:
            self.token_index, self.quotes = len(self.pieces), quotes
        self.pieces.append(text)

    def _quoted(self, token: Token) -> None:
        self._token(token, dumps(token.text), quotes=1)

    def _condition(self, condition: Condition) -> None:
        _WRITERS[type(condition)](self, condition)

    def _list(self, parts: Sequence[Any], write: Callable[[Any], None], opening: str, separator: str, closing: str) -> None:
        self.pieces.append(opening)
        for number, part in enumerate(parts):
            if number:
                self.pieces.append(separator)
            write(part)
        self.pieces.append(closing)

    def _numbers(self, numbers: Sequence[Token], opening: str, closing: str) -> None:
        self._list(numbers, lambda number: self._token(number, number.text), opening, ", ", closing)

    def _comparison(self, condition: Comparison) -> None:
        values = list(map(dumps, condition.values))
        self._quoted(condition.field)
        if condition.operator == BETWEEN:
            self.pieces.append(f" {values[0]} {BETWEEN} {values[1]}")
        elif condition.keyword is None:
            self.pieces.append(" ".join(["", condition.operator, *values]))
        else:
            self.pieces.append(" ")
            self._token(condition.keyword, condition.keyword.text)
            self.pieces.append(f" {values[0]}")

    def _in(self, condition: In) -> None:
        self._quoted(condition.field)
        self.pieces += " IN [", ", ".join(map(dumps, condition.values)), "]"

    def _radius(self, condition: Radius) -> None:
        resolution = [condition.resolution] if condition.resolution else []
        self._numbers([*condition.point, condition.metres, *resolution], "_geoRadius(", ")")

    def _points(self, points: Sequence[tuple[Token, Token]], opening: str) -> None:
        self._list(points, lambda point: self._numbers(point, "[", "]"), opening, ", ", ")")

    def _vectors(self, condition: VectorExists) -> None:
        self._token(condition.name, VECTORS)
        if condition.embedder is not None:
            self.pieces.append(".")
            self._quoted(condition.embedder)
        if condition.kind is not None:
            self.pieces.append(f".{condition.kind}")
        if condition.kind == FRAGMENTS and condition.fragment is not None:
            self.pieces.append(".")
            self._quoted(condition.fragment)
        self.pieces.append(" EXISTS")

    def _foreign(self, condition: Foreign) -> None:
        self.pieces.append("_foreign(")
        self._quoted(condition.field)
        self.pieces.append(", ")
        self._condition(condition.part)
        self.pieces.append(")")


_WRITERS: dict[type, Callable[[_Writer, Any], None]] = {
    And: lambda writer, condition: writer._list(condition.parts, writer._condition, "(", ") AND (", ")"),
    Or: lambda writer, condition: writer._list(condition.parts, writer._condition, "(", ") OR (", ")"),
    Not: lambda writer, condition: writer._list([condition.part], writer._condition, "NOT (", "", ")"),
    Comparison: _Writer._comparison, In: _Writer._in, Radius: _Writer._radius,
    BoundingBox: lambda writer, box: writer._points([box.top_right, box.bottom_left], "_geoBoundingBox("),
    Polygon: lambda writer, polygon: writer._points(polygon.points, "_geoPolygon("),
    VectorExists: _Writer._vectors, Foreign: _Writer._foreign,
}

