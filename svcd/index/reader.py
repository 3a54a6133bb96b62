"""One index in one read transaction: settings, documents and fields, and the readers of terms, values and locations.

`IndexReader` is the `svcd.query.reader.Reader` of an index file. Its parts share one `ReadTransaction`, so that all results
belong to one generation (snapshot isolation).
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from svcd.base.docids import EMPTY, DocIds, from_bytes
from svcd.index import word_counts
from svcd.index.connections import table_sizes
from svcd.index.pair_reader import PairReader
from svcd.index.read_transaction import Cache, Key, ReadTransaction, placeholders, rows_by_docid, statement_portions
from svcd.index.schema import LEAST_DOCUMENTS
from svcd.index.term_reader import VocabularyReader
from svcd.index.value_reader import ValueReader
from svcd.index.word_counts import WordCountReader
from svcd.schema.index_settings import IndexSettings

if TYPE_CHECKING:
    from svcd.index.geo_reader import GeoReader
    from svcd.index.vector_reader import VectorReader

T = TypeVar("T")

# A long list of documents is read in portions of READ_BYTES, and of _PORTION_DOCUMENTS at most.
READ_BYTES = 32768
_PORTION_DOCUMENTS = 500
# SQLite asks whether the time is over after this many of its instructions, some 0.1 ms.
_INSTRUCTIONS = 2000


class IndexReader:
    """The committed state of one index when the transaction of `connection` began.

    generation: the number of batches that have written the index. state: equal for readers of the same state of the same index.
    """

    def __init__(self, connection: sqlite3.Connection, uuid: str, cache: Cache) -> None:
        # Only the needed keys: the outcomes of the newest batch may be long.
        self._meta: dict[str, Any] = dict(connection.execute(
            "SELECT key, value FROM meta WHERE key IN ('generation', 'docids', 'settings', 'primary_key', 'document_bytes', "
            "'materialized_postings', 'materialized_build', 'word_weights')"))
        self._connection = connection
        self.generation: int = self._meta.get("generation", 0)
        self.state = uuid, self.generation
        self.transaction = ReadTransaction(connection, uuid, self.generation, cache)
        self.vocabulary = VocabularyReader(self.transaction)
        self.terms = PairReader(self.transaction, self.vocabulary, self._meta.get("materialized_postings"))
        self._all = from_bytes(self._meta["docids"]) if "docids" in self._meta else EMPTY
        self.number_of_documents = len(self._all)
        # The same object until the settings change, whatever else is written: it caches values that take time to build.
        self.settings: IndexSettings = cache.get(
            ("settings", self._meta.get("settings")), lambda: IndexSettings.of(self.stored_settings))
        self.primary_key: str | None = self._meta.get("primary_key")

    @property
    def lacks_precomputed_postings(self) -> bool:
        """Whether the index is large enough for precomputed postings, and some of them are not built yet."""
        return self.number_of_documents >= LEAST_DOCUMENTS and '"done"' not in self._meta.get("materialized_build", "")

    @property
    def stored_settings(self) -> dict[str, Any]:
        """The settings that were set, without defaults."""
        stored: dict[str, Any] = json.loads(self._meta.get("settings") or "{}")
        return stored

    @cached_property
    def word_counts(self) -> WordCountReader | None:
        """The stored counts of words; None if the index stores none."""
        return None if self._meta.get(word_counts.META_KEY) is None else WordCountReader(self.transaction)

    @cached_property
    def values(self) -> ValueReader:
        """The values of fields."""
        return ValueReader(self.transaction)

    @cached_property
    def geo(self) -> GeoReader:
        """The points and geometries of documents."""
        from svcd.index.geo_reader import GeoReader  # not loaded for a first search (svcd.cli.serving)

        return GeoReader(self.transaction)

    @cached_property
    def vectors(self) -> VectorReader:
        """The vectors of documents."""
        from svcd.index.vector_reader import VectorReader  # loaded late: most indexes do not use it

        return VectorReader(self.transaction)

    @contextmanager
    def limited(self, expired: Callable[[], bool]) -> Iterator[None]:
        """Raise TimeoutError from the block if it reads after expired() is true; nothing is cached that was not read whole."""
        self._connection.set_progress_handler(expired, _INSTRUCTIONS)
        try:
            yield
        except sqlite3.OperationalError as failure:
            if failure.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            raise TimeoutError from None
        finally:
            self._connection.set_progress_handler(None, 0)

    def cached(self, key: Key, make: Callable[[], T]) -> T:
        """Return make(), cached until the index is written to. It must depend only on this state of the index and not be None."""
        return self.transaction.cached(("made", *key), make)

    # Documents

    def all_docids(self) -> DocIds:
        """Return the set of all documents."""
        return self._all

    def internal_database_sizes(self) -> dict[str, int]:
        """Return table or index -> bytes of its pages; empty if SQLite was built without `dbstat`."""
        return table_sizes(self._connection)

    def document(self, docid: int) -> str:
        """Return the JSON text of a document. Raises KeyError if it does not exist."""
        row = self._connection.execute("SELECT json FROM documents WHERE docid = ?", (docid,)).fetchone()
        if row is None:
            raise KeyError(docid)
        text: str = row[0]
        return text

    def documents(self, docids: Sequence[int]) -> list[str]:
        """Return the JSON texts of documents, in the order of docids."""
        found = dict(rows_by_docid(self._connection, "SELECT docid, json FROM documents", docids))
        return [found[docid] for docid in docids]

    def documents_utf8(self, docids: Sequence[int]) -> list[bytes]:
        """Return the JSON texts of documents in UTF-8, in the order of docids."""
        found = dict(rows_by_docid(self._connection, "SELECT docid, CAST(json AS BLOB) FROM documents", docids))
        return [found[docid] for docid in docids]

    def each_document(self, docids: Iterable[int]) -> Iterator[str]:
        """Yield the JSON texts of documents in the order of docids, read in portions of about READ_BYTES."""
        wanted, count = iter(docids), READ_BYTES // self.average_document_size()
        # Powers of two, since the connection caches one statement for each number of parameters.
        while part := list(islice(wanted, 1 << min(count, _PORTION_DOCUMENTS).bit_length() >> 1 or 1)):
            texts = self.documents(part)
            # These documents may be much larger or smaller than the average of all.
            count = len(texts) * READ_BYTES // sum(map(len, texts))
            yield from texts

    def close(self) -> None:
        """Close the connection before the transaction ends, so that the pool does not keep it.

        For callers that read much, and nothing twice: no other caller needs the pages that their connection caches (270 kB).
        """
        self._connection.close()

    def average_document_size(self) -> int:
        """Return the average bytes of a stored document's text, at least 1."""
        return max(int(self._meta.get("document_bytes", 0)) // max(self.number_of_documents, 1), 1)

    def texts(self) -> Iterator[str]:
        """Yield the JSON texts of all documents by docid, read lazily."""
        return (text for (text,) in self._connection.execute("SELECT json FROM documents ORDER BY docid"))

    def bytes_of_lines(self) -> int:
        """Return the size of all texts() in UTF-8, with a newline after each."""
        (size,) = self._connection.execute("SELECT total(length(CAST(json AS BLOB)) + 1) FROM documents").fetchone()
        return int(size)

    def docid_of(self, document_id: str) -> int | None:
        """Return the docid of a document's identifier, or None."""
        row = self._connection.execute("SELECT docid FROM documents WHERE document_id = ?", (document_id,)).fetchone()
        return row[0] if row else None

    def identified_docids(self, document_ids: Sequence[str]) -> dict[str, int]:
        """Return identifier -> docid, for the identifiers that exist."""
        return self._identified("docid", document_ids)

    def identified_documents(self, document_ids: Sequence[str]) -> dict[str, str]:
        """Return identifier -> JSON text of the document, for the identifiers that exist."""
        return self._identified("json", document_ids)

    def _identified(self, column: str, document_ids: Sequence[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part in statement_portions(document_ids):
            found.update(self._connection.execute(
                f"SELECT document_id, {column} FROM documents WHERE document_id IN ({placeholders(part)})", part))
        return found

    def docids_page(self, offset: int, limit: int) -> Iterator[int]:
        """Yield a page of docids, ascending, read in portions."""
        left, where, skipped = min(limit, self.number_of_documents - offset), -1, offset
        while left > 0:
            page = self._connection.execute("SELECT docid FROM documents WHERE docid > ? ORDER BY docid LIMIT ? OFFSET ?",
                                            (where, min(left, _PORTION_DOCUMENTS), skipped)).fetchall()
            yield from (docid for (docid,) in page)
            left, where, skipped = left - len(page), page[-1][0], 0

    def _fields(self) -> list[tuple[str, int]]:
        return self.transaction.cached(("fields",), lambda: self._connection.execute(
            "SELECT name, documents FROM fields ORDER BY fid").fetchall())

    def fields(self) -> list[str]:
        """Return the names of all known fields, by field number."""
        return [name for name, _ in self._fields()]

    def field_distribution(self) -> dict[str, int]:
        """Return top-level field -> number of documents that have it, by name."""
        return {name: count for name, count in sorted(self._fields()) if count}
