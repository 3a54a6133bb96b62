"""Sort expressions: what they name, and what may be wrong with them.

Knows the forms of relevance.md 3.13 and 8.3 and the words for wrong ones; refuses to know documents, values and
which attributes an index allows, but for the sentence about it.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from svcd.base.numbers import shown_number
from svcd.schema.attributes import is_beneath, listed

# What is not finite is a number too, and then out of its range.
_FLOAT = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf(?:inity)?|nan))", re.ASCII)
_POINT_NAME = "_geoPoint"
_POINT = re.compile(r"_geoPoint\((.*)\)", re.S)
_GEO_FILTERS = ("_geoRadius", "_geoBoundingBox")
# Alone, and but for the point with anything in parentheses behind it.
_RESERVED = ("_geo", "_geoDistance", *_GEO_FILTERS)
_RESERVED_REASON = "is a reserved keyword and thus can't be used as a sort expression."
_USE_POINT = "Use the _geoPoint(latitude, longitude) built-in rule to sort on _geo field coordinates."
_GEO_FIELD = "_geo"
_NONE_SORTABLE = "This index does not have configured sortable attributes."


class SortError(ValueError):
    """A sort expression that can't be used; str() says why."""


@dataclass(frozen=True, slots=True)
class SortRule:
    """One sort expression. point: latitude and longitude when it sorts by distance; the field is `_geo` then."""

    field: str
    is_ascending: bool
    point: tuple[float, float] | None = None


def split_rules(text: str) -> list[str]:
    """The expressions of a query string: `a:asc,_geoPoint(1,2):desc` are two, the commas of a point aside."""
    rules: list[str] = []
    is_point_open = False
    for piece in (piece.strip() for piece in text.strip('"').split(",")):
        is_point = piece.startswith("_geoPoint(")
        if is_point_open and not is_point:
            rules[-1] += f",{piece}"
            is_point_open = not piece.endswith(("):asc", "):desc"))
        else:
            rules.append(piece)
            is_point_open = is_point
    return rules


def parse_rule(text: str) -> SortRule:
    """`field:asc`, `field:desc`, `_geoPoint(1.5, 2):asc`. Raises SortError."""
    member, _, direction = text.rpartition(":")
    if direction not in ("asc", "desc"):
        expected = "expected expression ending by `:asc` or `:desc`"
        raise SortError(f"Invalid syntax for the sort parameter: {expected}, found `{text}`.")
    is_ascending = direction == "asc"
    point = _POINT.fullmatch(member)
    if point:
        return SortRule(_GEO_FIELD, is_ascending, _point(member, point[1]))
    _check_name(member)
    return SortRule(member, is_ascending)


def _point(member: str, coordinates: str) -> tuple[float, float]:
    texts = [text.strip() for text in coordinates.split(",", 1)]
    if len(texts) != 2 or not all(_FLOAT.fullmatch(text) for text in texts):
        raise _bad_point(member)
    latitude, longitude = (float(text) for text in texts)
    if not -90 <= latitude <= 90:
        raise SortError(f"Bad latitude `{_shown(latitude)}`. Latitude must be contained between -90 and 90 degrees.")
    if not -180 <= longitude <= 180:
        normal = _shown((longitude + 180) % 360 - 180)
        raise SortError(f"Bad longitude `{_shown(longitude)}`. Longitude must be contained between -180 and 180 "
                        f"degrees. Hint: try using `{normal}` instead.")
    return latitude, longitude


def _shown(number: float) -> str:
    return shown_number(number) if math.isfinite(number) else "NaN" if math.isnan(number) else repr(number)


def _bad_point(member: str) -> SortError:
    expected = "expected expression formated like `_geoPoint(latitude, longitude)` and ending by `:asc` or `:desc`"
    return SortError(f"Invalid syntax for the geo parameter: {expected}, found `{member}`.")


def _check_name(member: str) -> None:
    if member == _POINT_NAME:
        raise _bad_point(member)
    name = next((name for name in _RESERVED if member == name or member.startswith(f"{name}(")), None)
    if name in _GEO_FILTERS or member == _GEO_FIELD:
        raise SortError(f"`{name}` {_RESERVED_REASON} {_USE_POINT}")
    if name is not None:
        raise SortError(f"`{member}` {_RESERVED_REASON}")


def check_sortable(rules: Iterable[SortRule], sortable: Sequence[str], displayed: Sequence[str] | None = None) -> None:
    """Raise SortError for the first rule whose field no sortable attribute covers. displayed: those it may name."""
    for rule in rules:
        if not any(is_beneath(rule.field, attribute) for attribute in sortable):
            known = f"Available sortable attributes are: `{listed(sortable, displayed)}`." if sortable else _NONE_SORTABLE
            raise SortError(f"Attribute `{rule.field}` is not sortable. {known}")
