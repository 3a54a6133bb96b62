"""Orders that need no words: the values of a field.

Knows how a field becomes a rule; refuses to know how values compare (relevance.md 3.13: the reader does).
"""
from __future__ import annotations

from typing import Iterator

from svcd.engine.querygraph import Graph
from svcd.engine.ranking.rule import Bucket, Shared, WholeIndex
from svcd.engine.ranking.scores import Sorted
from svcd.engine.reader import DocIds


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
