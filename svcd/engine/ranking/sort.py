"""Orders that need no words: the values of a field, the distance from a point.

Knows how they become rules; refuses to know how values compare (relevance.md 3.13: the reader does) and what counts
as equally far (engine.geo.order).
"""
from __future__ import annotations

from typing import Iterator

from svcd.engine.geo.order import geo_buckets
from svcd.engine.querygraph import Graph
from svcd.engine.ranking.rule import Bucket, Shared, WholeIndex
from svcd.engine.ranking.scores import GeoSorted, Sorted
from svcd.engine.reader import DocIds
from svcd.sphere import Point


class Sort(WholeIndex):
    """Buckets of equal values; keeps the graph as it is."""

    def __init__(self, shared: Shared, field: str, ascending: bool) -> None:
        self._reader = shared.postings.reader
        self._field = field
        self._ascending = ascending

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """One bucket for each value, best first, then the documents without any."""
        for value, docids in self._reader.sort_buckets(self._field, self._ascending, candidates):
            if docids:
                yield Bucket(docids, Sorted(self._field, self._ascending, value), lambda: graph)


class GeoSort(WholeIndex):
    """Buckets of equal distance from a point; keeps the graph as it is."""

    def __init__(self, shared: Shared, point: Point, ascending: bool) -> None:
        self._reader = shared.postings.reader
        self._point = point
        self._ascending = ascending

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """One bucket for the documents of about one distance, then those without a point."""
        for docids, place, metres in geo_buckets(self._reader, self._point, self._ascending, candidates):
            yield Bucket(docids, GeoSorted(self._point, self._ascending, place, metres), lambda: graph)
