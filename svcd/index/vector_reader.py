"""Reads the vectors of documents: the encoding of rows, sets of documents by the origin of their vectors, and the nearest ones.

Sketches are read as bit planes, cached between searches and brought up to date row by row: a block has the sketches of up to
REGIONS rows of `vector_sketches`, and when few rows were written since, only their bits are replaced.
See docs/storage.md#vectors and docs/vectors.md#search.
"""
from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

from svcd.base.docids import EMPTY, DocIds, numbers_of
from svcd.index.bitmap_blocks import joined_blocks
from svcd.index.read_transaction import ReadTransaction, placeholders, statement_portions
from svcd.index.schema import DOCID_BITS
from svcd.vectors.nearest import Nearest, first_of_each, numpy
from svcd.vectors.sketches import REGION, REGIONS, Estimates, Region, SketchBlock, SketchForm, SketchQuery
from svcd.vectors.vector import DocumentVectors, from_bytes, quantized_bytes, quantized_size, to_bytes, unquantized

# Flags of the origin of a document's vectors: given by a user; regenerated when the document changes.
USER_PROVIDED, REGENERATED = 1, 2
# Above these bits: the length of the vectors if it differs from the current length of the embedder. Such vectors are outdated:
# shown and kept, but not searched.
LENGTH_SHIFT = 2
# Kinds of sets in vector_postings: documents with a vector; documents whose vectors, or lack of vectors, a user has set;
# documents whose vectors are not regenerated; documents with outdated vectors; from FIRST_FRAGMENT on, documents with a vector of
# the indexing fragment of this number.
EMBEDDED, GIVEN, FIXED, OUTDATED = range(4)
FIRST_FRAGMENT = 16

_DOCID_MASK = (1 << DOCID_BITS) - 1


def row_id(embedder: int, docid: int) -> int:
    """Return the id of a row of document_vectors or vector_sketches."""
    return embedder << DOCID_BITS | docid


def docid_of(row: int) -> int:
    """Return the docid in the id of a row."""
    return row & _DOCID_MASK


def id_range(embedder: int) -> tuple[int, int]:
    """Return the first and the last possible id of an embedder's rows."""
    return row_id(embedder, 0), row_id(embedder, _DOCID_MASK)


class EmbedderRow(NamedTuple):
    """An embedder of the settings. fragments: the number of each of its indexing fragments, below 256."""

    number: int
    name: str
    dimensions: int
    is_quantized: bool
    fragments: Mapping[str, int]


def embedder_rows(connection: sqlite3.Connection) -> list[EmbedderRow]:
    """Return the embedders of an index, by name."""
    return [EmbedderRow(number, name, dimensions, bool(is_quantized), json.loads(fragments))
            for number, name, dimensions, is_quantized, fragments in connection.execute(
                "SELECT number, name, dimensions, is_quantized, fragments FROM embedders ORDER BY name")]


def stored_bytes(vectors: Iterable[array[float]], is_quantized: bool) -> bytes:
    """Encode vectors for document_vectors."""
    return b"".join(map(quantized_bytes, vectors)) if is_quantized else to_bytes(vectors)


def stored_vectors(stored: bytes, origin: int, dimensions: int, is_quantized: bool) -> list[array[float]]:
    """Decode the vectors of a row of document_vectors; quantized ones have ones and zeros. dimensions: of the embedder."""
    dimensions = origin >> LENGTH_SHIFT or dimensions
    if not is_quantized:
        return from_bytes(stored, dimensions)
    size = quantized_size(dimensions)
    return [unquantized(stored[start:start + size], dimensions) for start in range(0, len(stored), size)]


def posting_docids(connection: sqlite3.Connection, embedder: int, kind: int) -> DocIds:
    """Return a set of vector_postings."""
    return joined_blocks(connection.execute("SELECT docids FROM vector_postings WHERE embedder = ? AND kind = ?",
                                            (embedder, kind)).fetchall())


def sketch_docids(stored: bytes) -> array[int]:
    """Return the documents of the sketches of a row of vector_sketches, ascending."""
    return numbers_of("I", stored)


# With more changed rows, building the block again is quicker.
_MOST_REPLACED = REGIONS // 4
# The share of the cache that planes may take. If they do not fit, they have fewer bits of each number; planes that still do not
# fit are built for each search.
_CACHE_SHARE = 0.85

_Rows = list[tuple[int, int]]  # id and generation of rows of vector_sketches


class SketchReader:
    """The sketches of one embedder in a read transaction. embedder: its number."""

    def __init__(self, transaction: ReadTransaction, embedder: int, form: SketchForm) -> None:
        self._transaction = transaction
        self._embedder = embedder
        self.form = form
        self._rows: _Rows = transaction.cached(("sketch rows", embedder), lambda: transaction.connection.execute(
            "SELECT id, generation FROM vector_sketches WHERE id BETWEEN ? AND ? ORDER BY id",
            id_range(embedder)).fetchall())
        # A plane has a bit for each sketch, in integers that use 30 of 32 bits.
        row_size = REGION * form.part_size * 32 // 30
        room = int(transaction.cache.limit * _CACHE_SHARE) // row_size
        self.bits = max(1, min(form.bits, room // max(len(self._rows), 1)))
        self._cached_rows = room // self.bits

    def blocks(self) -> Iterator[SketchBlock]:
        """Yield the sketches in blocks, by docid; each block is built on demand unless it is cached."""
        transaction = self._transaction
        for start in range(0, len(self._rows), REGIONS):
            rows = self._rows[start:start + REGIONS]
            key = (transaction.uuid, "sketches", self._embedder, self.form, self.bits, start // REGIONS)
            cached: tuple[_Rows, SketchBlock] | None = transaction.cache.peek(key)
            if cached and cached[0] == rows:
                yield cached[1]
                continue
            block = self._updated(*cached, rows) if cached else None
            if block is None:
                block = SketchBlock.of(self.form, self.bits, list(self._regions([row for row, _ in rows])))
            # A transaction that began earlier must not replace a block that a later one cached.
            is_newer = cached is None or _newest(cached[0]) <= _newest(rows)
            if is_newer and start + len(rows) <= self._cached_rows:
                transaction.cache.put(key, (rows, block))
            yield block

    def _updated(self, known: _Rows, block: SketchBlock, rows: _Rows) -> SketchBlock | None:
        """Bring a block up to date; None if too much of it has changed."""
        if [row for row, _ in rows[:len(known)]] != [row for row, _ in known]:
            return None
        is_changed = [index >= len(known) or known[index] != row for index, row in enumerate(rows)]
        if sum(is_changed) > _MOST_REPLACED:
            return None
        changed = list(compress(range(len(rows)), is_changed))
        return block.replaced(self.form, dict(zip(changed, self._regions([rows[index][0] for index in changed]))))

    def _regions(self, rows: Sequence[int]) -> Iterator[Region]:
        """Yield the sketches of some rows, in their order, of at most REGIONS rows."""
        return (Region(sketch_docids(docids), sketches) for docids, sketches in self._transaction.connection.execute(
            f"SELECT docids, sketches FROM vector_sketches WHERE id IN ({placeholders(rows)}) ORDER BY id", rows))


def _newest(rows: _Rows) -> int:
    return max(generation for _, generation in rows)


# Up to this many candidates are all compared exactly, which is as quick as selecting some of them by their sketches.
FEW, FEW_WITH_NUMPY = 600, 2000
# The FIRST_COUNT documents that are nearest by estimate are compared exactly. That is enough if the last of the nearest is in the
# first 1 / FACTOR of this order; otherwise more documents follow, up to MOST_REFINED.
FIRST_COUNT, MOST_REFINED, FACTOR = 200, 3000, 4
# Up to this many excluded documents are looked up in the sketches one by one; if more are excluded, the candidates are.
MOST_EXCLUDED = 100
# One in DISREGARDED of the nearest, those farthest down in this order, is disregarded.
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
        """Return the length of the embedder's vectors, None while it is unknown."""
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
        """Documents with vectors given by a user, even if the user gave an empty list."""
        return self._docids(embedder, GIVEN)

    def fixed_docids(self, embedder: str) -> DocIds:
        """Documents whose vectors, if any, are not regenerated."""
        return self._docids(embedder, FIXED)

    def fragment_docids(self, embedder: str, fragment: str) -> DocIds:
        """Documents with a vector of this indexing fragment."""
        row = self._embedders().get(embedder)
        number = row.fragments.get(fragment) if row else None
        return EMPTY if number is None else self._docids(embedder, FIRST_FRAGMENT + number)

    def document_vectors(self, docids: Sequence[int], embedder: str) -> Iterator[tuple[int, DocumentVectors]]:
        """Yield (docid, vectors) for the documents with an entry for the embedder, in no order; outdated vectors included."""
        row = self._embedders().get(embedder)
        if row is not None:
            for docid, vectors, origin in self._rows(row, docids, "vectors, origin"):
                yield docid, DocumentVectors(
                    stored_vectors(vectors, origin, row.dimensions, row.is_quantized), bool(origin & REGENERATED))

    def nearest(self, embedder: str, vector: array[float], candidates: DocIds, limit: int) -> Sequence[tuple[float, int]]:
        """Return (distance, docid) of the `limit` nearest vectors of the candidates, nearest first, equal distances by docid."""
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
        """Return the nearest vectors, among the documents that are nearest by estimate."""
        found.add(self._rows(row, estimates.special_docids))
        known: set[int] = set(estimates.special_docids)
        count = max(FIRST_COUNT, 2 * limit)
        most = max(MOST_REFINED, count)
        while True:
            best = estimates.best(count)
            order: dict[int, int] = {}
            for position, (_, docid) in enumerate(best):
                order.setdefault(docid, position)
            found.add(self._rows(row, [docid for docid in order if docid not in known]))
            known |= order.keys()
            # Where in the order of estimates are the nearest? A few of many may be anywhere.
            positions = sorted([order.get(docid, 0) for docid in found.docids()])
            last = 1 + positions[~(len(positions) // DISREGARDED)]
            if len(best) < count or count >= min(FACTOR * last, most):
                return found.result()
            count = min(FACTOR * last, most)

    def _rows(self, row: EmbedderRow, docids: Sequence[int], columns: str = "vectors") -> Iterator[Any]:
        """Yield (docid, *columns) for the documents that have a row, by default with the stored vectors."""
        for portion in statement_portions(docids):
            ids = [row_id(row.number, docid) for docid in portion]
            for key, *held in self._transaction.connection.execute(
                    f"SELECT id, {columns} FROM document_vectors WHERE id IN ({placeholders(ids)})", ids):
                yield docid_of(key), *held
