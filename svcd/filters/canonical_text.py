"""Write a condition tree as text in canonical form, to which the error messages of searches refer.

A token of the tree can be located in that text. Source: docs/filters-and-facets.md#error-messages.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svcd.base.json_text import dumps
from svcd.filters.tree import (BETWEEN, VECTORS, And, BoundingBox, Comparison, Condition, Foreign, In, Not, Or, Polygon, Radius,
                               Token, VectorExists)
from svcd.filters.vector_conditions import FRAGMENTS


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

    def _text(self, *texts: str) -> None:
        self.pieces += texts

    def _token(self, token: Token, text: str, quotes: int = 0) -> None:
        if token is self._wanted:
            self.token_index, self.quotes = len(self.pieces), quotes
        self.pieces.append(text)

    def _quoted(self, token: Token) -> None:
        self._token(token, dumps(token.text), quotes=1)

    def _plain(self, token: Token) -> None:
        self._token(token, token.text)

    def _condition(self, condition: Condition) -> None:
        _WRITERS[type(condition)](self, condition)

    def _separated(self, parts: Sequence[Any], write: Callable[[Any], None], separator: str = ", ") -> None:
        for number, part in enumerate(parts):
            if number:
                self._text(separator)
            write(part)

    def _operands(self, parts: Sequence[Condition], operator: str) -> None:
        self._text("(")
        self._separated(parts, self._condition, f") {operator} (")
        self._text(")")

    def _and(self, condition: And) -> None:
        self._operands(condition.parts, "AND")

    def _or(self, condition: Or) -> None:
        self._operands(condition.parts, "OR")

    def _not(self, condition: Not) -> None:
        self._text("NOT (")
        self._condition(condition.part)
        self._text(")")

    def _comparison(self, condition: Comparison) -> None:
        values = list(map(dumps, condition.values))
        self._quoted(condition.field)
        if condition.operator == BETWEEN:
            self._text(f" {values[0]} {BETWEEN} {values[1]}")
        elif condition.keyword is None:
            self._text(" ".join(["", condition.operator, *values]))
        else:
            self._text(" ")
            self._plain(condition.keyword)
            self._text(f" {values[0]}")

    def _in(self, condition: In) -> None:
        self._quoted(condition.field)
        self._text(" IN [", ", ".join(map(dumps, condition.values)), "]")

    def _radius(self, condition: Radius) -> None:
        numbers = [*condition.point, condition.metres, *([condition.resolution] if condition.resolution else [])]
        self._text("_geoRadius(")
        self._separated(numbers, self._plain)
        self._text(")")

    def _bounding_box(self, condition: BoundingBox) -> None:
        self._text("_geoBoundingBox(")
        self._separated([condition.top_right, condition.bottom_left], self._point)
        self._text(")")

    def _polygon(self, condition: Polygon) -> None:
        self._text("_geoPolygon(")
        self._separated(condition.points, self._point)
        self._text(")")

    def _point(self, point: tuple[Token, Token]) -> None:
        self._text("[")
        self._separated(point, self._plain)
        self._text("]")

    def _vectors(self, condition: VectorExists) -> None:
        self._token(condition.name, VECTORS)
        if condition.embedder is not None:
            self._text(".")
            self._quoted(condition.embedder)
        if condition.kind is not None:
            self._text(f".{condition.kind}")
        if condition.kind == FRAGMENTS and condition.fragment is not None:
            self._text(".")
            self._quoted(condition.fragment)
        self._text(" EXISTS")

    def _foreign(self, condition: Foreign) -> None:
        self._text("_foreign(")
        self._quoted(condition.field)
        self._text(", ")
        self._condition(condition.part)
        self._text(")")


_WRITERS: dict[type, Callable[[_Writer, Any], None]] = {
    And: _Writer._and, Or: _Writer._or, Not: _Writer._not, Comparison: _Writer._comparison, In: _Writer._in,
    Radius: _Writer._radius, BoundingBox: _Writer._bounding_box, Polygon: _Writer._polygon,
    VectorExists: _Writer._vectors, Foreign: _Writer._foreign,
}
