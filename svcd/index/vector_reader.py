"""Reads the vectors of documents: sets of documents by where their vectors are from, the vectors themselves, the nearest ones.

See docs/storage.md#vectors.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from svcd.base.docids import EMPTY, DocIds
from svcd.index.read_transaction import ReadTransaction, placeholders, statement_portions
from svcd.index.sketch_reader import SketchReader
from svcd.index.vector_rows import (
    EMBEDDED, FIRST_FRAGMENT, FIXED, GIVEN, REGENERATED, EmbedderRow, docid_of, embedder_rows, posting_docids, row_id,
    stored_vectors,
)
from svcd.vectors.estimates import Estimates, SketchQuery
from svcd.vectors.nearest import Nearest, first_of_each, numpy
from svcd.vectors.sketches import SketchForm
from svcd.vectors.vector import DocumentVectors

# Of up to so many candidates all are compared exactly: as quick as to find some of them by their sketches.
FEW, FEW_WITH_NUMPY = 600, 2000
# So many of those that are nearest by estimate are compared exactly at first. It is enough when the last of the nearest is in the
# first part of this order, one of FACTOR; else more follow, up to MOST_REFINED.
FIRST_COUNT, MOST_REFINED, FACTOR = 200, 3000, 4
# So many documents that are no candidates are quickly looked up in the sketches, one by one; else all candidates are.
MOST_EXCLUDED = 100
# The one in so many of the nearest that is farthest down in this order is disregarded.
DISREGARDED = 32

_PORTION = 2000  # documents compared together


class VectorReader:
    """The `svcd.query.reader.Vectors` of an index file."""

    def __init__(self, transaction: ReadTransaction) -> None:
        self._transaction = transaction

    def _embedders(self) -> Mapping[str, EmbedderRow]:
        return self._transaction.cached(("embedders",), lambda: {
            row.name: row for row in embedder_rows(self._transaction.connection)})

    def dimensions(self, embedder: str) -> int | None:
        """The length of the embedder's vectors, None while it is not known."""
        row = self._embedders().get(embedder)
        return row.dimensions if row else None

    def _docids(self, embedder: str, kind: int) -> DocIds:
        row = self._embedders().get(embedder)
        if row is None:
            return EMPTY
        return self._transaction.cached(("vector docids", embedder, kind), lambda: posting_docids(
            self._transaction.connection, row.number, kind))

    def embedded_docids(self, embedder: str) -> DocIds:
        """Documents that have a vector."""
        return self._docids(embedder, EMBEDDED)

    def user_provided_docids(self, embedder: str) -> DocIds:
        """Documents of which a user has given the vectors; perhaps none at all."""
        return self._docids(embedder, GIVEN)

    def fixed_docids(self, embedder: str) -> DocIds:
        """Documents whose vectors are not made again; perhaps none at all."""
        return self._docids(embedder, FIXED)

    def fragment_docids(self, embedder: str, fragment: str) -> DocIds:
        """Documents with a vector that was made of this indexing fragment."""
        row = self._embedders().get(embedder)
        number = row.fragments.get(fragment) if row else None
        return EMPTY if number is None else self._docids(embedder, FIRST_FRAGMENT + number)

    def document_vectors(self, docids: Sequence[int], embedder: str) -> Iterator[tuple[int, DocumentVectors]]:
        """(docid, vectors) of those of some documents that have an entry for the embedder, in no order; outdated ones too."""
        row = self._embedders().get(embedder)
        if row is not None:
            for docid, vectors, origin in self._rows(row, docids, "vectors, origin"):
                yield docid, DocumentVectors(
                    stored_vectors(vectors, origin, row.dimensions, row.is_quantized), bool(origin & REGENERATED))

    def nearest(self, embedder: str, vector: array[float], candidates: DocIds, limit: int) -> Sequence[tuple[float, int]]:
        """(distance, docid) of the `limit` nearest vectors of the candidates, nearest first, equally near ones by docid."""
        row = self._embedders().get(embedder)
        if row is None or limit <= 0:
            return []
        embedded = self.embedded_docids(embedder)
        docids = embedded & candidates
        found = Nearest(vector, row.is_quantized, limit)
        few = FEW if row.is_quantized or not numpy() else FEW_WITH_NUMPY
        if len(docids) <= few or not (row.is_quantized or SketchQuery.is_comparable(vector)):
            listed = docids.to_array()
            for start in range(0, len(listed), _PORTION):
                found.add(self._rows(row, listed[start:start + _PORTION]))
            return found.result()
        sketches = SketchReader(self._transaction, row.number, SketchForm.of(row.dimensions, row.is_quantized))
        query = SketchQuery(sketches.form, sketches.bits, vector)
        is_most = len(embedded) - len(docids) <= MOST_EXCLUDED
        estimates = Estimates(query, sketches.blocks(), *((None, embedded - docids) if is_most else (docids,)))
        if row.is_quantized:
            return first_of_each((query.distance(estimate), docid) for estimate, docid in estimates.best(limit))
        return self._refined(row, estimates, found, limit)

    def _refined(self, row: EmbedderRow, estimates: Estimates, found: Nearest, limit: int) -> Sequence[tuple[float, int]]:
        """The nearest vectors, of those that are so by estimate."""
        found.add(self._rows(row, estimates.special_docids))
        known: set[int] = set(estimates.special_docids)
        count = max(FIRST_COUNT, 2 * limit)
        most = max(MOST_REFINED, count)
        while True:
            best = estimates.best(count)
            order: dict[int, int] = {}
            for place, (_, docid) in enumerate(best):
                order.setdefault(docid, place)
            found.add(self._rows(row, [docid for docid in order if docid not in known]))
            known |= order.keys()
            # How far down in the order of estimates are the nearest? Of many a few may be anywhere.
            places = sorted([order.get(docid, 0) for docid in found.docids()])
            last = 1 + places[~(len(places) // DISREGARDED)]
            if len(best) < count or count >= min(FACTOR * last, most):
                return found.result()
            count = min(FACTOR * last, most)

    def _rows(self, row: EmbedderRow, docids: Sequence[int], columns: str = "vectors") -> Iterator[Any]:
        """(docid, its vectors as stored) of those of some documents that have a row; other columns where asked for."""
        for portion in statement_portions(docids):
            ids = [row_id(row.number, docid) for docid in portion]
            for key, *held in self._transaction.connection.execute(
                    f"SELECT id, {columns} FROM document_vectors WHERE id IN ({placeholders(ids)})", ids):
                yield docid_of(key), *held
