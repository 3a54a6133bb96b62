"""A filter written out from its tree, in the one form that errors of searches refer to (relevance.md 5.3).

Knows quotes, parentheses and blanks of that form, and where in it the tokens of the tree come to stand; refuses to
know how the filter was written at first.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svcd.base.json_text import dumps
from svcd.filters.tree import (
    BETWEEN,
    VECTORS,
    And,
    BoundingBox,
    Comparison,
    Condition,
    Foreign,
    In,
    Not,
    Or,
    Polygon,
    Radius,
    Token,
    VectorExists,
)
from svcd.filters.vector_conditions import FRAGMENTS


def canonical_text(condition: Condition) -> str:
    """The canonical text of a filter; read again it is the same tree."""
    return "".join(_Writing(condition).pieces)


def canonical_condition(condition: Condition, token: Token) -> Token:
    """A token of a tree as it stands in the canonical text."""
    writing = _Writing(condition, token)
    start = sum(map(len, writing.pieces[:writing.before])) + writing.inside
    length = len(writing.pieces[writing.before]) - 2 * writing.inside
    return Token(token.text, "".join(writing.pieces), start, start + length)


class _Writing:
    """The canonical text in pieces, and where the sought token is.

    before: how many pieces stand before that of the token. inside: how many of its characters, at either end, are
    not the token itself.
    """

    def __init__(self, condition: Condition, sought: Token | None = None) -> None:
        self.pieces: list[str] = []
        self.before = self.inside = 0
        self._sought = sought
        self._condition(condition)

    def _put(self, *texts: str) -> None:
        self.pieces += texts

    def _token(self, token: Token, text: str, inside: int = 0) -> None:
        if token is self._sought:
            self.before, self.inside = len(self.pieces), inside
        self.pieces.append(text)

    def _quoted(self, token: Token) -> None:
        self._token(token, dumps(token.text), inside=1)

    def _plain(self, token: Token) -> None:
        self._token(token, token.text)

    def _condition(self, condition: Condition) -> None:
        _WRITERS[type(condition)](self, condition)

    def _listed(self, parts: Sequence[Any], write: Callable[[Any], None], between: str = ", ") -> None:
        for number, part in enumerate(parts):
            if number:
                self._put(between)
            write(part)

    def _joined(self, parts: Sequence[Condition], joint: str) -> None:
        self._put("(")
        self._listed(parts, self._condition, f") {joint} (")
        self._put(")")

    def _and(self, condition: And) -> None:
        self._joined(condition.parts, "AND")

    def _or(self, condition: Or) -> None:
        self._joined(condition.parts, "OR")

    def _not(self, condition: Not) -> None:
        self._put("NOT (")
        self._condition(condition.part)
        self._put(")")

    def _comparison(self, condition: Comparison) -> None:
        values = list(map(dumps, condition.values))
        self._quoted(condition.field)
        if condition.operator == BETWEEN:
            self._put(f" {values[0]} {BETWEEN} {values[1]}")
        elif condition.keyword is None:
            self._put(" ".join(["", condition.operator, *values]))
        else:
            self._put(" ")
            self._plain(condition.keyword)
            self._put(f" {values[0]}")

    def _in(self, condition: In) -> None:
        self._quoted(condition.field)
        self._put(" IN [", ", ".join(map(dumps, condition.values)), "]")

    def _radius(self, condition: Radius) -> None:
        numbers = [*condition.point, condition.metres, *([condition.resolution] if condition.resolution else [])]
        self._put("_geoRadius(")
        self._listed(numbers, self._plain)
        self._put(")")

    def _bounding_box(self, condition: BoundingBox) -> None:
        self._put("_geoBoundingBox(")
        self._listed([condition.top_right, condition.bottom_left], self._point)
        self._put(")")

    def _polygon(self, condition: Polygon) -> None:
        self._put("_geoPolygon(")
        self._listed(condition.points, self._point)
        self._put(")")

    def _point(self, point: tuple[Token, Token]) -> None:
        self._put("[")
        self._listed(point, self._plain)
        self._put("]")

    def _vectors(self, condition: VectorExists) -> None:
        self._token(condition.name, VECTORS)
        if condition.embedder is not None:
            self._put(".")
            self._quoted(condition.embedder)
        if condition.kind is not None:
            self._put(f".{condition.kind}")
        if condition.kind == FRAGMENTS and condition.fragment is not None:
            self._put(".")
            self._quoted(condition.fragment)
        self._put(" EXISTS")

    def _foreign(self, condition: Foreign) -> None:
        self._put("_foreign(")
        self._quoted(condition.field)
        self._put(", ")
        self._condition(condition.part)
        self._put(")")


_WRITERS: dict[type, Callable[[_Writing, Any], None]] = {
    And: _Writing._and, Or: _Writing._or, Not: _Writing._not, Comparison: _Writing._comparison, In: _Writing._in,
    Radius: _Writing._radius, BoundingBox: _Writing._bounding_box, Polygon: _Writing._polygon,
    VectorExists: _Writing._vectors, Foreign: _Writing._foreign,
}
