"""The encoding of rows of vectors, for the readers and writers of an index file: `embedders`, `document_vectors`,
`vector_postings` and `vector_sketches`. See docs/storage.md#vectors.
"""
from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from svcd.base.docids import DocIds, numbers_of
from svcd.index.bitmap_blocks import joined_blocks
from svcd.index.schema import DOCID_BITS
from svcd.vectors.vector import from_bytes, quantized_bytes, quantized_size, to_bytes, unquantized

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


# Ids of the rows of document_vectors and vector_sketches: the number of an embedder and a docid


def row_id(embedder: int, docid: int) -> int:
    """Return the id of a row of an embedder."""
    return embedder << DOCID_BITS | docid


def docid_of(row: int) -> int:
    """Return the docid in the id of a row."""
    return row & _DOCID_MASK


def id_range(embedder: int) -> tuple[int, int]:
    """Return the first and the last possible id of an embedder's rows."""
    return row_id(embedder, 0), row_id(embedder, _DOCID_MASK)


# Embedders


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


# Vectors, sets and sketches


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
