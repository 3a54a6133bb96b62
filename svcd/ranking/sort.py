"""Sorting: sort expressions and the rules that order documents without words (docs/ranking.md#sort).

An expression has a field or a point, and a direction: `year:asc`, `_geoPoint(48.8, 2.3):desc`.
"""
from __future__ import annotations

import math
import re
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import floor
from typing import NamedTuple

from svcd.base.docids import DocIds
from svcd.base.json_text import dumps, loads
from svcd.base.quantities import shown_number
from svcd.geo.sphere import Point, antipode, distance
from svcd.query.graph import Graph
from svcd.query.reader import Reader
from svcd.ranking.rule import Bucket, Rule, RankingContext
from svcd.ranking.scores import GeoSorted, Sorted, VectorSorted
from svcd.schema.attributes import attribute_list, is_beneath
from svcd.schema.field_values import degrees
from svcd.validation.bounds import SORT
from svcd.vectors.vector import similarity

# Expressions

# The pattern accepts infinity and NaN, so that the parser reports them as out of range.
_FLOAT = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf(?:inity)?|nan))", re.ASCII)
_POINT_NAME = "_geoPoint"
_POINT = re.compile(r"_geoPoint\((.*)\)", re.S)
_GEO_FILTERS = ("_geoRadius", "_geoBoundingBox")
# Reserved names, alone or followed by parentheses, cannot be sort fields.
_RESERVED = ("_geo", "_geoDistance", *_GEO_FILTERS)
_RESERVED_REASON = "is a reserved keyword and thus can't be used as a sort expression."
_USE_POINT = "Use the _geoPoint(latitude, longitude) built-in rule to sort on _geo field coordinates."
_GEO_FIELD = "_geo"
_NONE_SORTABLE = "This index does not have configured sortable attributes."


class SortError(ValueError):
    """An invalid sort expression; str() is the reason."""


class SortRule(NamedTuple):
    """One sort expression. point: latitude and longitude to sort by distance; the field is then `_geo`."""

    field: str
    is_ascending: bool
    point: tuple[float, float] | None = None


def split_rules(text: str) -> list[str]:
    """Split a query string at commas outside of points: `a:asc,_geoPoint(1,2):desc` has two expressions.

    Raises SortError for more than bounds.SORT expressions.
    """
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
    if len(rules) > SORT.most:
        raise SortError(SORT.refusal(len(rules)))
    return rules


def parse_rule(text: str) -> SortRule:
    """Parse `field:asc`, `field:desc` or `_geoPoint(1.5, 2):asc`. Raises SortError."""
    member, _, direction = text.rpartition(":")
    if direction not in ("asc", "desc"):
        expected = "expected expression ending by `:asc` or `:desc`"
        raise SortError(f"Invalid syntax for the sort parameter: {expected}, found `{text}`.")
    is_ascending = direction == "asc"
    point = _POINT.fullmatch(member)
    if point:
        return SortRule(_GEO_FIELD, is_ascending, _point(member, point[1]))
    if member == _POINT_NAME:
        raise _bad_point(member)
    name = next((name for name in _RESERVED if member == name or member.startswith(f"{name}(")), None)
    if name in _GEO_FILTERS or member == _GEO_FIELD:
        raise SortError(f"`{name}` {_RESERVED_REASON} {_USE_POINT}")
    if name is not None:
        raise SortError(f"`{member}` {_RESERVED_REASON}")
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


def check_sortable(rules: Iterable[SortRule], sortable: Sequence[str], displayed: Sequence[str] | None = None) -> None:
    """Raise SortError for the first rule whose field no sortable attribute covers. displayed: attributes that it may name."""
    for rule in rules:
        if not any(is_beneath(rule.field, attribute) for attribute in sortable):
            known = f"Available sortable attributes are: `{attribute_list(sortable, displayed)}`." if sortable else _NONE_SORTABLE
            raise SortError(f"Attribute `{rule.field}` is not sortable. {known}")


# Rules


class Sort(Rule):
    """Buckets of equal values. The graph stays unchanged."""

    def __init__(self, context: RankingContext, field: str, ascending: bool) -> None:
        self._reader = context.postings.reader
        self._field = field
        self._ascending = ascending

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Yield one bucket for each value, best first, then the documents without a value."""
        for value, docids in self._reader.values.sort_buckets(self._field, self._ascending, candidates):
            if docids:
                yield Bucket(docids, Sorted(self._field, self._ascending, value), lambda: graph)


class GeoSort(Rule):
    """Buckets of equal distance from a point. The graph stays unchanged."""

    def __init__(self, context: RankingContext, point: Point, ascending: bool) -> None:
        self._reader = context.postings.reader
        self._point = point
        self._ascending = ascending

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Yield buckets of about equal distance, in order of distance, then the documents without a point."""
        for docids, place, metres in geo_buckets(self._reader, self._point, self._ascending, candidates):
            yield Bucket(docids, GeoSorted(self._point, self._ascending, place, metres), lambda: graph)


# Up to _CHUNK documents are sorted by whole metres; more are read in chunks of this size, nearest first. It is also the
# maximum size of a bucket.
_CHUNK = 1000
_EQUAL_M = 1.0

_SHOWN_POINT = re.compile(r"_geoPoint\(\s*([0-9.\-]+)\s*,\s*([0-9.\-]+)\s*\)", re.ASCII)


class GeoBucket(NamedTuple):
    """Documents at about the same distance. point, metres: of the first document; None for documents without a point."""

    docids: DocIds
    point: Point | None = None
    metres: float | None = None


def geo_buckets(reader: Reader, origin: Point, is_ascending: bool, candidates: DocIds) -> Iterator[GeoBucket]:
    """Yield the candidates by distance, nearest or farthest first; documents without a point last."""
    located = candidates & reader.geo.located_docids()
    docids: list[int] = []
    first: tuple[Point, float] | None = None
    for docid, point in _in_order(reader, origin, is_ascending, located):
        metres = distance(origin, point)
        if first and (abs(first[1] - metres) > _EQUAL_M or len(docids) == _CHUNK):
            yield GeoBucket(DocIds(docids), *first)
            docids, first = [], None
        first = first or (point, metres)
        docids.append(docid)
    if first:
        yield GeoBucket(DocIds(docids), *first)
    if candidates != located:
        yield GeoBucket(candidates - located)


def _in_order(reader: Reader, origin: Point, is_ascending: bool, left: DocIds) -> Iterator[tuple[int, Point]]:
    """Yield (docid, point) in order of distance. left: documents with a point."""
    start = origin if is_ascending else antipode(origin)
    while len(left) >= _CHUNK:
        taken = []
        for docid, point in islice(reader.geo.nearest(start, left), _CHUNK):
            taken.append(docid)
            yield docid, point
        left -= DocIds(taken)
    few = sorted(reader.geo.points(left.to_array()))
    few.sort(key=lambda place: int(distance(origin, place[1])))
    yield from few if is_ascending else reversed(few)


def sorted_from(sort: Sequence[str] | None) -> Point | None:
    """Return the point of the first expression that sorts by distance, for `_geoDistance`; None if no expression does."""
    for expression in sort or ():
        found = _SHOWN_POINT.search(expression)
        if found:
            latitude, longitude = map(degrees, found.groups())
            return None if latitude is None or longitude is None else (latitude, longitude)
    return None


def with_distance(shown: str, origin: Point) -> str:
    """Return the JSON text of a hit; if it has a point in `_geo`, add `_geoDistance` in whole metres as the last member."""
    if '"_geo"' not in shown:
        return shown
    document = loads(shown)
    geo = document.get("_geo")
    latitude, longitude = (degrees(geo.get(name)) for name in ("lat", "lng")) if isinstance(geo, dict) else (None, None)
    if latitude is None or longitude is None:
        return shown
    document["_geoDistance"] = floor(distance(origin, (latitude, longitude)) + 0.5)
    return dumps(document)


# Order by vectors (docs/ranking.md#vector-sort)


class Target(NamedTuple):
    """The query vector of one embedder. shift: see svcd.vectors.vector.similarity."""

    embedder: str
    vector: array[float]
    shift: tuple[float, float] | None = None


class VectorSort(Rule):
    """Buckets of equal distance, nearest first, then the documents without vectors. The graph stays unchanged.

    The rule looks up the nearest documents in portions: first `hits` documents, then twice as many each time.
    """

    def __init__(self, reader: Reader, target: Target, hits: int) -> None:
        """hits: maximum number of hits of the search."""
        self._reader = reader
        self._target = target
        self._hits = max(hits, 1)
        self._found: deque[tuple[float, int]] = deque()  # (distance, docid) of the next documents

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Return one bucket for each distance, nearest first, then one without vectors. Looks up the first portion at once."""
        embedded = candidates & self._reader.vectors.embedded_docids(self._target.embedder)
        self._find(embedded, self._hits)
        return self._buckets(graph, candidates, embedded)

    def _buckets(self, graph: Graph, candidates: DocIds, embedded: DocIds) -> Iterator[Bucket]:
        taken: list[int] = []
        portion = self._hits
        while self._found:
            distance = self._found[0][0]
            equal = []
            while self._found and self._found[0][0] == distance:
                equal.append(self._found.popleft()[1])
            taken += equal
            self.is_ready = bool(self._found)
            yield Bucket(DocIds(equal), VectorSorted(similarity(distance, self._target.shift)), lambda: graph)
            if not self._found:
                portion *= 2
                self._find(embedded - DocIds(taken), portion)
        others = candidates - DocIds(taken)
        if others:
            yield Bucket(others, VectorSorted(None), lambda: graph)

    def _find(self, candidates: DocIds, count: int) -> None:
        target = self._target
        self._found = deque(self._reader.vectors.nearest(target.embedder, target.vector, candidates, count) if candidates else ())
        self.is_ready = bool(self._found)
