"""A filter written out from its tree, in the one form that errors of searches refer to (relevance.md 5.3).

Knows quotes, parentheses and blanks of that form, and where in it the tokens of the tree come to stand; refuses to
know how the filter was written at first.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svcd.engine.filters.tree import (
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
from svcd.engine.filters.vector_names import FRAGMENTS
from svcd.jsontext import dumps


def written(condition: Condition) -> str:
    """The canonical text of a filter; read again it is the same tree."""
    return _Writing(condition).text


def rewritten(condition: Condition, token: Token) -> Token:
    """A token of a tree as it stands in the canonical text."""
    writing = _Writing(condition)
    start, end = writing.places[id(token)]
    return Token(token.text, writing.text, start, end)


class _Writing:
    """The canonical text, and the characters [start, end) of each token in it, by the token's identity."""

    def __init__(self, condition: Condition) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self.places: dict[int, tuple[int, int]] = {}
        self._condition(condition)
        self.text = "".join(self._pieces)

    def _put(self, *texts: str) -> None:
        self._pieces += texts
        self._length += sum(map(len, texts))

    def _token(self, token: Token, before: str = "", behind: str = "", text: str | None = None) -> None:
        text = dumps(token.text) if text is None else text
        self.places[id(token)] = (self._length + len(before), self._length + len(text) - len(behind))
        self._put(text)

    def _quoted(self, token: Token) -> None:
        self._token(token, '"', '"')

    def _plain(self, token: Token) -> None:
        self._token(token, text=token.text)

    def _condition(self, condition: Condition) -> None:
        _WRITERS[type(condition)](self, condition)

    def _in_parentheses(self, condition: Condition) -> None:
        self._put("(")
        self._condition(condition)
        self._put(")")

    def _listed(self, parts: Sequence[Any], write: Callable[[Any], None], between: str = ", ") -> None:
        for number, part in enumerate(parts):
            if number:
                self._put(between)
            write(part)

    def _and(self, condition: And) -> None:
        self._listed(condition.parts, self._in_parentheses, " AND ")

    def _or(self, condition: Or) -> None:
        self._listed(condition.parts, self._in_parentheses, " OR ")

    def _not(self, condition: Not) -> None:
        self._put("NOT ")
        self._in_parentheses(condition.part)

    def _comparison(self, condition: Comparison) -> None:
        values = list(map(dumps, condition.values))
        self._quoted(condition.field)
        if condition.operator == BETWEEN:
            self._put(f" {values[0]} {BETWEEN} {values[1]}")
            return
        self._put(" ")
        if condition.keyword is None:
            self._put(condition.operator)
        else:
            self._plain(condition.keyword)
        self._put(*(f" {value}" for value in values))

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
        self._token(condition.name, text=VECTORS)
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
