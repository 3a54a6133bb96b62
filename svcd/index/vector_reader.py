"""Reads the vectors of documents: sets of documents by where their vectors are from, the vectors themselves, the nearest ones.

See docs/storage.md#vectors.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

from svcd.base.docids import EMPTY, DocIds
from svcd.index.read_transaction import ReadTransaction, placeholders, statement_portions
from svcd.index.schema import DOCID_BITS
from svcd.index.vector_writer import (
    EMBEDDED,
    FIRST_FRAGMENT,
    FIXED,
    GIVEN,
    REGENERATED,
    EmbedderRow,
    embedder_rows,
    posting_docids,
    stored_vectors,
    vector_id,
)
from svcd.vectors.vector import DocumentVectors, cosine_distance, quantized_distance

_PORTION = 500  # documents read together


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
        """(docid, vectors) of those of some documents that have an entry for the embedder, in no order."""
        row = self._embedders().get(embedder)
        for portion in statement_portions(docids) if row else ():
            assert row
            ids = [vector_id(row.number, docid) for docid in portion]
            for key, origin, vectors in self._transaction.connection.execute(
                    f"SELECT id, origin, vectors FROM document_vectors WHERE id IN ({placeholders(ids)})", ids):
                yield key & (1 << DOCID_BITS) - 1, DocumentVectors(
                    stored_vectors(vectors, row.dimensions, row.is_quantized), bool(origin & REGENERATED))

    def nearest(self, embedder: str, vector: array[float], candidates: DocIds, limit: int) -> Sequence[tuple[float, int]]:
        """(distance, docid) of the `limit` nearest vectors of the candidates, nearest first, equally near ones by docid."""
        row = self._embedders().get(embedder)
        if row is None:
            return []
        distance = quantized_distance if row.is_quantized else cosine_distance
        docids = (self.embedded_docids(embedder) & candidates).to_array()
        found: list[tuple[float, int]] = []
        for start in range(0, len(docids), _PORTION):
            for docid, held in self.document_vectors(docids[start:start + _PORTION], embedder):
                found += [(distance(vector, each), docid) for each in held.vectors]
            found = sorted(found)[:limit]
        return [(least, docid) for docid, least in sorted(
            {docid: least for least, docid in reversed(found)}.items(), key=lambda each: (each[1], each[0]))]
