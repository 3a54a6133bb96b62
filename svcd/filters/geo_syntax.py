"""How `_geoRadius`, `_geoBoundingBox` and `_geoPolygon` are written (relevance.md 5.2).

Knows brackets, commas and how many numbers there must be; refuses to know which numbers make sense on the globe.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from svcd.filters import lexer
from svcd.filters.errors import FilterError, fail, piece, rest
from svcd.filters.tree import BoundingBox, Condition, Polygon, Radius, Token

_RADIUS = ("The `_geoRadius` filter must be in the form: "
           "`_geoRadius(latitude, longitude, radius, optionalResolution)`.")
_BOUNDING_BOX = ("The `_geoBoundingBox` filter expects two pairs of arguments: "
                 "`_geoBoundingBox([latitude, longitude], [latitude, longitude])`.")
_POLYGON = ("The `_geoPolygon` filter doesn't match the expected format: "
            "`_geoPolygon([latitude, longitude], [latitude, longitude])`.")
_COUNT = "Was expecting 3 or 4 arguments for `_geoRadius`, but instead found {count}."
_NOT_A_PAIR = "Was expecting 2 coordinates but instead found {count}."
_FEW_POINTS = "The `_geoPolygon` filter expects at least 3 points but only {count} were specified"

_NAMES = re.compile(rf"{lexer.BLANKS}(_geoRadius|_geoBoundingBox|_geoPolygon)(?![{lexer.WORD_SET}])").match
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?(?P<exponent>[0-9]*))?").match
_SIGN = re.compile(r"[+-]?\.?").match

T = TypeVar("T")
# Reads one element of a list; the element and the place behind it and the blanks that follow.
_Element = Callable[[str, int], tuple[T, int]]


class _Stopped(Exception):
    """Nothing fits at a place. is_final: nor would the text do without what begins there."""

    def __init__(self, at: int, is_final: bool = False) -> None:
        self.at = at
        self.is_final = is_final


def geo_form(source: str, at: int) -> tuple[Condition, int] | None:
    """The geo condition that begins here and the place behind it; None when none does. Raises FilterError."""
    found = _NAMES(source, at)
    if found is None:
        return None
    sentence, read = _FORMS[found[1]]
    try:
        return read(source, found.end())
    except _Stopped as stopped:
        raise FilterError(sentence, rest(source, stopped.at)) from None


def _radius(source: str, at: int) -> tuple[Condition, int]:
    numbers, at = _listed(source, at, "()", _number)
    if len(numbers) not in (3, 4):
        fail(_COUNT.format(count=len(numbers)), rest(source, at))
    latitude, longitude, metres, *resolution = numbers
    return Radius((latitude, longitude), metres, *resolution), at


def _bounding_box(source: str, at: int) -> tuple[Condition, int]:
    points, at = _listed(source, at, "()", _point)
    if len(points) != 2:
        fail(_BOUNDING_BOX, rest(source, at))
    return BoundingBox(*_pairs(points)), at


def _polygon(source: str, at: int) -> tuple[Condition, int]:
    points, at = _listed(source, at, "()", _point, may_end_with_comma=True)
    if len(points) < 3:
        fail(_FEW_POINTS.format(count=len(points)), points[-1][-1])
    return Polygon(_pairs(points)), at


def _pairs(points: Sequence[Sequence[Token]]) -> list[tuple[Token, Token]]:
    pairs = []
    for numbers in points:
        if len(numbers) != 2:
            fail(_NOT_A_PAIR.format(count=len(numbers)), numbers[0])
        pairs.append((numbers[0], numbers[1]))
    return pairs


def _point(source: str, at: int) -> tuple[list[Token], int]:
    numbers, at = _listed(source, _skipped(source, at), "[]", _number)
    return numbers, _skipped(source, at)


def _listed(source: str, at: int, brackets: str, element: _Element[T],
            may_end_with_comma: bool = False) -> tuple[list[T], int]:
    """One or more elements between brackets, commas between them, and the place behind the closing one."""
    at = _expected(source, at, brackets[0])
    read, at = element(source, at)
    elements = [read]
    while source.startswith(",", at):
        try:
            read, at = element(source, at + 1)
        except _Stopped as stopped:
            if stopped.is_final:
                raise
            break  # at the comma, which is too much then
        elements.append(read)
    if may_end_with_comma and source.startswith(",", at):
        at = _skipped(source, at + 1)
    return elements, _expected(source, at, brackets[1])


def _expected(source: str, at: int, character: str) -> int:
    if not source.startswith(character, at):
        raise _Stopped(at)
    return at + 1


def _number(source: str, at: int) -> tuple[Token, int]:
    start = _skipped(source, at)
    found = _NUMBER(source, start)
    if found is None:
        raise _Stopped(_SIGN(source, start).end())  # type: ignore[union-attr]  # matches anywhere
    if found["exponent"] == "":
        raise _Stopped(found.end(), is_final=True)
    return piece(source, start, found.end()), _skipped(source, found.end())


def _skipped(source: str, at: int) -> int:
    return lexer.blanks(source, at).end()  # type: ignore[union-attr]  # matches anywhere


_FORMS: dict[str, tuple[str, Callable[[str, int], tuple[Condition, int]]]] = {
    "_geoRadius": (_RADIUS, _radius),
    "_geoBoundingBox": (_BOUNDING_BOX, _bounding_box),
    "_geoPolygon": (_POLYGON, _polygon),
}
