"""A writer that changes nothing, for dry runs: batches run on it, and it counts what they would write to an index file.

The connection cannot write to the file. Temporary tables hide the small tables that batches read back while they write them, so
that the code of batches runs unchanged. All documents are made again only for a sample, from which sizes are estimated; counts of
documents are exact. See docs/tasks-and-batches.md#dry-runs.
"""
from __future__ import annotations

import math
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from svcd.base import json_text
from svcd.index import fts, schema
from svcd.index.bitmap_blocks import BLOCK_BITS
from svcd.index.connections import BUSY_MS, MAP_BYTES
from svcd.index.encoded_document import EncodedDocuments, Positions, encoded_documents, encoded_values
from svcd.index.prefix_postings import first_letters
from svcd.index.read_transaction import FORWARD_TEXTS, VALUE_TEXTS, placeholders, rows_by_docid, statement_portions
from svcd.index.value_writer import posting_entries, rows_of
from svcd.index.vector_reader import EmbedderRow
from svcd.index.vector_writer import StoredVectors, VectorWriter
from svcd.index.writer import DocumentChange, DocumentLocation, IndexWriter, StoredDocument, Values
from svcd.schema.field_values import field_values, kept_fields
from svcd.schema.index_settings import IndexSettings
from svcd.schema.word_weights import WordWeights

_HIDDEN = ("meta", "fields", "embedders")
_SAMPLE = 200  # documents
_MOST_SAMPLED = 1000  # changed documents whose rows of postings are counted
_SPREAD = 40503  # multiplied by a docid, it spreads docids over 16 bits (the golden ratio)
_ANALYZED = 40  # one part of documents in 40 is analyzed
_NOWHERE = 256  # no embedder has this number, so no vectors are stored under it
# Bytes of the tables for each character of a document's words, with and without BM25; for each value beside its text; for each
# number of a vector, with its sketch. Measured on films.
_WORD_BYTES, _COUNT_BYTES, _POSTING_BYTES, _NUMBER_BYTES = 2.4, 0.5, 12, 4.6


class DryVectorWriter(VectorWriter):
    """Reads the stored vectors, and changes only the hidden table of embedders. removed: embedder -> vectors that would go."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.removed: Counter[str] = Counter()
        self._rows = dict(self.embedders)
        self._changed: dict[tuple[str, int], StoredVectors | None] = {}
        self._zeros: dict[int, array[float]] = {}

    def note(self, changes: Iterable[DocumentChange]) -> None:
        """Remember which entries documents would have, but not their vectors: a later part of the batch may read them."""
        for change in changes:
            for name, entry in change.vectors.items():
                if entry is not None and entry.vectors:
                    length = len(entry.vectors[0])
                    zero = self._zeros.setdefault(length, array("f", bytes(4 * length)))
                    entry = entry._replace(vectors=[zero] * len(entry.vectors))
                self._changed[name, change.docid] = entry

    def stored_parts(self, name: str, docids: Sequence[int]) -> Iterator[dict[int, StoredVectors]]:
        """Yield the entries of the file and of note()."""
        left = [docid for docid in docids if (name, docid) not in self._changed] if self._changed else docids
        if len(left) < len(docids):
            noted = {docid: self._changed.get((name, docid)) for docid in docids}
            yield {docid: entry for docid, entry in noted.items() if entry is not None}
        yield from super().stored_parts(name, left)

    def _stored_row(self, name: str) -> EmbedderRow:
        return self._rows.get(name) or self.embedders[name]._replace(number=_NOWHERE)

    def resize(self, name: str, dimensions: int, stays: Callable[[StoredVectors], bool]) -> None:
        """Set the length; entries that do not stay are made again, whether they exist or not."""
        self.put_embedder(self.embedders[name]._replace(dimensions=dimensions))

    def clear_embedder(self, name: str) -> None:
        """Count the vectors of an embedder as removed."""
        (count,) = self._connection.execute("SELECT vectors FROM embedders WHERE name = ?", (name,)).fetchone()
        self.removed[name] += count

    def quantize(self, name: str) -> None:
        """Mark the embedder."""
        self.put_embedder(self.embedders[name]._replace(is_quantized=True))

    def write(self, name: str, entries: Mapping[int, StoredVectors | None]) -> None:
        """Write nothing."""

    def flush(self) -> None:
        """Write nothing."""

    def clear(self) -> None:
        """Delete nothing."""

    def outdated(self) -> dict[str, int]:
        """Return nothing: the log warns of a batch that runs."""
        return {}


class PostingSample:
    """Estimates how many rows of postings the changed documents touch, from some of them, spread over all docids.

    Documents share rows, so their number grows as a power of the number of documents (Heaps' law); the sample and a half of it
    tell the exponent.
    """

    def __init__(self) -> None:
        self._rows: dict[int, Set[Any]] = {}
        self._part = 1

    def takes(self, docid: int) -> bool:
        """Return whether a document is in the sample."""
        return (docid * _SPREAD & 0xFFFF) * self._part < 1 << 16

    def add(self, docid: int, rows: Set[Any]) -> None:
        """Add a document with its rows, if the sample still takes it; halve the sample when it becomes too large."""
        if not self.takes(docid):
            return
        self._rows[docid] = rows
        if len(self._rows) > _MOST_SAMPLED:
            self._part *= 2
            self._rows = {docid: rows for docid, rows in self._rows.items() if self.takes(docid)}

    def total(self, documents: int) -> float:
        """Return the number of rows of all changed documents, given their number."""
        if not self._rows:
            return 0.0
        sampled = list(self._rows.values())
        whole, half = (len(set().union(*rows)) for rows in (sampled, sampled[::2]))
        exponent: float = math.log(whole / half, len(sampled) / len(sampled[::2])) if half and len(sampled) > 1 else 1.0
        return float(whole * (documents / len(sampled)) ** min(exponent, 1.0))


def _opened(path: Path) -> sqlite3.Connection:
    """Open a read transaction of a file, or of an empty index in memory if it is absent."""
    if path.exists():
        address = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_MS / 1000)
    else:
        connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        if not path.exists():
            schema.prepare(connection, schema.INDEX)
        connection.execute(f"PRAGMA mmap_size = {MAP_BYTES}")
        connection.execute("BEGIN")
        for table in _HIDDEN:
            (sql,) = connection.execute("SELECT sql FROM main.sqlite_master WHERE name = ?", (table,)).fetchone()
            connection.execute(sql.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
            connection.execute(f"INSERT INTO temp.{table} SELECT * FROM main.{table}")
            if table in schema.INDEX_CHECKSUMS and "checksum" not in sql:  # a file of format 1
                connection.execute(f"ALTER TABLE temp.{table} ADD COLUMN checksum INTEGER")
        connection.execute("CREATE TEMP TABLE written (document_id TEXT PRIMARY KEY, docid INTEGER, json TEXT)")
    except BaseException:
        connection.close()
        raise
    return connection


class DryIndexWriter(IndexWriter):
    """Counts in `work`. path: of a file that may be absent."""

    is_dry = True
    vectors: DryVectorWriter

    def __init__(self, path: Path) -> None:
        connection = _opened(path)
        try:
            super().__init__(path, connection=connection)
            self.vectors = DryVectorWriter(connection)
        except BaseException:
            connection.close()
            raise
        # Documents that were analyzed, characters of their words, bytes of their values; documents whose values were made again,
        # bytes of all their values and of the new ones.
        self._sample: Counter[str] = Counter()
        self._postings = PostingSample()
        self._is_reindexed = False
        self._before, self._bytes_before = self.number_of_documents, self._document_bytes
        docids = self.docids.to_array()
        self._chosen = list(docids[::max(1, len(docids) // _SAMPLE)])[:_SAMPLE]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in the read transaction that lasts until close()."""
        self._written, self._replaced_terms = None, set()
        yield

    def _save(self) -> None:
        """Save nothing."""

    # Documents

    def stored(self, document_ids: Sequence[str]) -> dict[str, StoredDocument]:
        """Return documents of the file and of earlier parts of the batch."""
        found = super().stored(document_ids)
        if self.work["added"] + self.work["replaced"] + self.work["deleted"]:
            for part in statement_portions(document_ids):
                for docid, document_id, text in self._connection.execute(
                        f"SELECT docid, document_id, json FROM written WHERE document_id IN ({placeholders(part)})", part):
                    found.pop(document_id, None)
                    if text is not None:
                        found[document_id] = StoredDocument(docid, document_id, text)
        return found

    def write(self, changes: Iterable[DocumentChange],
              encoded: EncodedDocuments | Callable[[], EncodedDocuments] | None = None) -> None:
        """Count changes; analyze some of them."""
        given = list(changes)
        self._count(given)
        self.work["replacedWords"] += sum(change.has_other_words and not change.is_new and change.json is not None
                                          for change in given)
        self._note_postings([change for change in given if not change.is_new and self._postings.takes(change.docid)])
        self.vectors.note(given)
        self.write_vectors({change.docid: change.vectors for change in given if change.json is not None and change.vectors})
        self._connection.executemany("INSERT OR REPLACE INTO written(document_id, docid, json) VALUES (?, ?, ?)",
                                     [(change.document_id, change.docid, change.json) for change in given])
        if callable(encoded) and self.parts % _ANALYZED == 1:  # the first part, too
            self._note_sample(encoded())

    def _note_postings(self, changes: Sequence[DocumentChange]) -> None:
        is_kept, docids = kept_fields(IndexSettings.of(self.settings)), [change.docid for change in changes]
        values, words = (dict(rows_by_docid(self._connection, statement, docids)) for statement in (VALUE_TEXTS, FORWARD_TEXTS))
        for change in changes:
            block = change.docid >> BLOCK_BITS
            after = {self.field_numbers.get(name, name): held
                     for name, held in field_values(json_text.loads(change.json or "{}"), is_kept).items()}
            old, new = ({(fid, key): spelling for fid, held in fields.items() for key, spelling in posting_entries(held).items()}
                        for fields in (rows_of(values.get(change.docid, "{}")), after))
            rows: set[Any] = {(block, row) for row, _ in old.items() ^ new.items()}
            if change.has_other_words:
                rows |= {(block, column, letter) for column, row in fts.forward_rows(words.get(change.docid, "")).items()
                         for letter in first_letters(fts.positions(row))}
            self._postings.add(change.docid, rows)

    def _note_sample(self, encoded: EncodedDocuments) -> None:
        for words, values in encoded[0]:
            if words is not None:
                forward = fts.forward_text({number: row for number, (row, *_) in enumerate(words[0].values())})
                self._sample.update(documents=1, characters=len(forward), values=sum(len(text) for text, _ in values.values()))

    def all_documents(self, portion: int) -> Iterator[list[StoredDocument]]:
        """Yield some of the documents, from all parts of the index."""
        if self._chosen:
            yield [StoredDocument(*row) for row in self._connection.execute(
                f"SELECT docid, document_id, json FROM documents WHERE docid IN ({placeholders(self._chosen)})", self._chosen)]

    def clear(self) -> None:
        """Count all documents as deleted."""
        self._count_cleared()

    # Parts that settings make again for all documents

    def write_words(self, positions: Iterable[tuple[int, Positions]]) -> None:
        """Count all documents; measure these."""
        self._is_reindexed = True
        self.work["words"] = self.work["reanalyzed"] = self.number_of_documents
        self._note_sample(encoded_documents((found, {}, docid) for docid, found in positions))

    def write_values(self, documents: Iterable[tuple[int, Values, Values]]) -> None:
        """Count all documents; measure these."""
        self.work["values"], self.work["parsed"] = self.number_of_documents, self._document_bytes
        for _, fresh, values in documents:
            self._sample.update(valued=1, rows=sum(len(text) for text, _ in encoded_values(values).values()),
                                fresh=sum(len(text) + _POSTING_BYTES * len(postings)
                                          for text, postings in encoded_values(fresh).values()))

    def _count_all_words(self, weights: WordWeights | None) -> None:
        """Count nothing: the caller has counted the documents."""

    def clear_words(self) -> None:
        """Delete nothing."""

    def drop_values(self, names: Iterable[str]) -> None:
        """Delete nothing."""
        list(names)

    def clear_locations(self) -> None:
        """Delete nothing."""

    def write_locations(self, locations: Mapping[int, DocumentLocation]) -> None:
        """Write nothing."""

    def write_vectors(self, vectors: Mapping[int, Mapping[str, StoredVectors | None]]) -> None:
        """Count documents: the embedding has counted their vectors."""
        self.work["embedded"] += len(vectors)

    def write_texts(self, documents: Sequence[tuple[StoredDocument, str]]) -> None:
        """Count texts."""
        self.work.update(rewritten=len(documents), text=sum(len(text) for _, text in documents))

    # Results

    def document_counts(self) -> dict[str, int]:
        """Return how many documents are added, replaced, rewritten and deleted; one that comes twice counts once."""
        added, replaced, deleted = self._connection.execute(
            "SELECT total(w.json IS NOT NULL AND d.docid IS NULL), total(w.json IS NOT NULL AND d.docid IS NOT NULL), "
            "total(w.json IS NULL AND d.docid IS NOT NULL) "
            "FROM written w LEFT JOIN main.documents d USING (document_id)").fetchone()
        return {"added": int(added), "replaced": int(replaced), "rewritten": self.work["rewritten"],
                "deleted": int(deleted) + self.work["cleared"]}

    def estimate(self, made: Mapping[str, int]) -> dict[str, Any]:
        """Return {"work", "bytesWritten", "bytesOnDisk"}: `work` with the characters of words, estimated from samples.

        made: embedder -> vectors to make. bytesOnDisk: the change of the used bytes; negative when pages become free in the file,
        which deleted documents alone do not free.
        """
        work = Counter(self.work)
        work["postings"] = round(self._postings.total(work["replaced"] + work["deleted"]))
        (held,) = self._connection.execute(
            f"SELECT total(length(words)) / max(1, {len(self._chosen)}) FROM forward_index "
            f"WHERE docid IN ({placeholders(self._chosen)})", self._chosen).fetchone()
        mean = self._mean("characters", "documents")
        words, removed = mean * work["words"], held * (self._before if self._is_reindexed else work["cleared"])
        if self._is_reindexed:
            work["reindexed"] = round(words)
        else:
            work["characters"] = round(mean * (work["words"] - work["replacedWords"]))
            work["exchanged"] = round(mean * work["replacedWords"] + held * (work["replacedWords"] + work["deleted"]))
        counted = work["wordCounts"] * (mean if self._is_reindexed else held) * _COUNT_BYTES
        values = self._mean("values", "documents") * (work["added"] + work["replaced"])
        share = work["added"] / max(1, work["added"] + work["replaced"])
        rows, fresh = (self._mean(name, "valued") * work["values"] for name in ("rows", "fresh"))
        vectors = grown = 0.0
        for name, count in made.items():
            (present,) = self._connection.execute("SELECT vectors FROM embedders WHERE name = ?", (name,)).fetchone()
            size = self.vectors.embedders[name].dimensions * _NUMBER_BYTES
            vectors += count * size
            grown += size * (count * share if work["read"] or work["edited"] else max(0, count - present))
        texts = self._document_bytes - self._bytes_before
        grown += texts if work["cleared"] else max(0, texts)
        grown += (words - removed) * _WORD_BYTES + values * share + fresh + counted
        written = work["text"] + words * _WORD_BYTES + values + rows + fresh + counted + vectors
        return {"work": dict(work), "bytesWritten": round(written), "bytesOnDisk": round(grown)}

    def _mean(self, of: str, per: str) -> float:
        return self._sample[of] / max(self._sample[per], 1)
