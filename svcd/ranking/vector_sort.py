"""Vector sort: order documents by the distance of their vectors from the query vector (docs/ranking.md#vector-sort)."""
from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from svcd.base.docids import DocIds
from svcd.query.graph import Graph
from svcd.query.reader import Reader
from svcd.ranking.rule import Bucket, InvertedIndexRule
from svcd.ranking.scores import VectorSorted
from svcd.vectors.vector import similarity


class Target(NamedTuple):
    """The query vector of one embedder. shift: see svcd.vectors.vector.similarity."""

    embedder: str
    vector: array[float]
    shift: tuple[float, float] | None = None


class VectorSort(InvertedIndexRule):
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
