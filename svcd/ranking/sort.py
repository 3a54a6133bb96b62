"""Orders that need no words: the values of a field, the distance from a point.

Knows how they become rules; refuses to know how values compare (relevance.md 3.13: the reader does) and what counts
as equally far (engine.geo.order).
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from math import floor
from typing import NamedTuple

from svcd.base.bitmaps import DocIds, from_docids, to_docids
from svcd.base.json_text import dumps, loads
from svcd.geo.sphere import Point, antipode, distance
from svcd.query.graph import Graph
from svcd.query.reader import Reader
from svcd.ranking.rule import Bucket, InvertedIndexRule, RankingContext
from svcd.ranking.scores import GeoSorted, Sorted
from svcd.schema.field_values import degrees


class Sort(InvertedIndexRule):
    """Buckets of equal values; keeps the graph as it is."""

    def __init__(self, shared: RankingContext, field: str, ascending: bool) -> None:
        self._reader = shared.postings.reader
        self._field = field
        self._ascending = ascending

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """One bucket for each value, best first, then the documents without any."""
        for value, docids in self._reader.values.sort_buckets(self._field, self._ascending, candidates):
            if docids:
                yield Bucket(docids, Sorted(self._field, self._ascending, value), lambda: graph)


class GeoSort(InvertedIndexRule):
    """Buckets of equal distance from a point; keeps the graph as it is."""

    def __init__(self, shared: RankingContext, point: Point, ascending: bool) -> None:
        self._reader = shared.postings.reader
        self._point = point
        self._ascending = ascending

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """One bucket for the documents of about one distance, then those without a point."""
        for docids, place, metres in geo_buckets(self._reader, self._point, self._ascending, candidates):
            yield Bucket(docids, GeoSorted(self._point, self._ascending, place, metres), lambda: graph)


# Documents by their distance from a point (relevance.md 8.3), and the distance that hits show (8.4).
#
# Knows when documents count as equally far, and the point of a sort expression in a hit; refuses to know how near
# documents are found (the reader does) and what rules follow.


# Fewer documents than this are sorted by whole metres, so many others are read nearest first at a time; and no
# bucket is larger.
_CHUNK = 1000
_EQUAL_M = 1.0

_POINT = re.compile(r"_geoPoint\(\s*([0-9.\-]+)\s*,\s*([0-9.\-]+)\s*\)", re.ASCII)


class GeoBucket(NamedTuple):
    """Documents that count as equally far. point, metres: of the first of them; None for those without a point."""

    docids: DocIds
    point: Point | None = None
    metres: float | None = None


def geo_buckets(reader: Reader, origin: Point, is_ascending: bool, candidates: DocIds) -> Iterator[GeoBucket]:
    """The candidates by distance, nearest first or farthest first; those without a point last."""
    located = candidates & reader.geo.located_docids()
    docids: list[int] = []
    first: tuple[Point, float] | None = None
    for docid, point in _in_order(reader, origin, is_ascending, located):
        metres = distance(origin, point)
        if first and (abs(first[1] - metres) > _EQUAL_M or len(docids) == _CHUNK):
            yield GeoBucket(from_docids(docids), *first)
            docids, first = [], None
        first = first or (point, metres)
        docids.append(docid)
    if first:
        yield GeoBucket(from_docids(docids), *first)
    if candidates != located:
        yield GeoBucket(candidates & ~located)


def _in_order(reader: Reader, origin: Point, is_ascending: bool, left: DocIds) -> Iterator[tuple[int, Point]]:
    """(docid, point) of documents that all have one."""
    start = origin if is_ascending else antipode(origin)
    while left.bit_count() >= _CHUNK:
        taken = []
        for docid, point in islice(reader.geo.nearest(start, left), _CHUNK):
            taken.append(docid)
            yield docid, point
        left &= ~from_docids(taken)
    few = sorted(reader.geo.points(to_docids(left)))
    few.sort(key=lambda place: int(distance(origin, place[1])))
    yield from few if is_ascending else reversed(few)


def sorted_from(sort: Sequence[str] | None) -> Point | None:
    """The point of the first expression that sorts by distance: hits show how far they are from it."""
    for expression in sort or ():
        found = _POINT.search(expression)
        if found:
            latitude, longitude = map(degrees, found.groups())
            return None if latitude is None or longitude is None else (latitude, longitude)
    return None


def with_distance(shown: str, origin: Point) -> str:
    """A document as a hit shows it, as text, with `_geoDistance` in whole metres behind when it shows where it is."""
    if '"_geo"' not in shown:
        return shown
    document = loads(shown)
    geo = document.get("_geo")
    latitude, longitude = (degrees(geo.get(name)) for name in ("lat", "lng")) if isinstance(geo, dict) else (None, None)
    if latitude is None or longitude is None:
        return shown
    document["_geoDistance"] = floor(distance(origin, (latitude, longitude)) + 0.5)
    return dumps(document)
