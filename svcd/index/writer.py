"""The writing connection of an index file: changes documents and keeps postings, values and locations in step with them.

One transaction a batch. Documents come as JSON texts with the words of their fields by position; the caller tokenizes them. After
a rollback to a savepoint the writer reads its state (field numbers, the set of docids) again. See docs/storage.md#writing.
"""
from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from svcd.base.docids import EMPTY, DocIds, from_bytes, to_bytes
from svcd.geo.sphere import Point
from svcd.index import fts, materialized, prefix_postings, schema, word_counts
from svcd.index.batch_outcomes import BatchOutcomes, outcome_record
from svcd.index.change_log import ChangeLog
from svcd.index.connections import BUSY_MS, keep_log, meta, open_writer, set_meta, table_sizes
from svcd.index.disk_space import lacks_room
from svcd.index.encoded_document import (
    AddedLetters, EncodedDocuments, Positions, Values as EncodedValues, Words, encoded_documents, encoded_values,
)
from svcd.index.geo_writer import GeoWriter, StoredShape
from svcd.index.prefix_postings import PrefixPostingWriter
from svcd.index.read_transaction import FORWARD_TEXTS, Cache, placeholders, rows_by_docid, statement_portions
from svcd.index.reader import IndexReader
from svcd.index.schema import checksum_filler, row_checksum
from svcd.index.value_writer import Postings, ValueWriter
from svcd.index.vector_reader import EmbedderRow
from svcd.index.vector_writer import StoredVectors, VectorWriter
from svcd.index.word_counts import WordCountWriter
from svcd.schema.field_values import FieldValues
from svcd.schema.index_settings import IndexSettings
from svcd.schema.word_weights import WordWeights

# Limits of the table `changes`: docids of one generation (more than a delta needs, to refresh the materialized postings),
# replaced terms that are looked up, and generations, for readers that cached older values.
MOST_LOGGED = 20_000
MOST_LOOKED_UP = 2000
GENERATIONS = 100
# FTS5 keeps the terms of a replaced document in a segment until it merges that segment, and it merges the largest ones last:
# 10,000 documents, replaced five times, took three times the pages, and searches a quarter more time. So all segments are merged
# when 1 / REPLACED_SHARE of the documents, and at least LEAST_REPLACED, were replaced.
REPLACED_SHARE, LEAST_REPLACED = 4, 1000
_READER_BYTES = 8 << 20
# Overlapping searches can keep the log from ever being truncated. Above LONG_LOG bytes a checkpoint waits for them, at most for
# LONG_LOG_PATIENCE_MS.
LONG_LOG, LONG_LOG_PATIENCE_MS = 32 << 20, 500

Values = Mapping[str, FieldValues]  # attribute -> values of a document
_Name = TypeVar("_Name", str, int)


@dataclass(frozen=True)
class StoredDocument:
    """A document as the index holds it."""

    docid: int
    document_id: str
    json: str


class DocumentLocation(NamedTuple):
    """The location of a document: a point in degrees, and a geometry with the box around it; each may be None."""

    point: Point | None = None
    shape: StoredShape | None = None


NO_LOCATION = DocumentLocation()


@dataclass
class DocumentChange:
    """The new state of one document. json: None deletes it. positions: None keeps its words.

    names, names_before: its top-level fields after and before, for the field distribution. bytes_before: the size of its old
    JSON text. values, values_before: of the fields whose values the index keeps. is_new: the index has nothing of this docid.
    has_other_words: whether its words differ from the stored ones, as far as its attributes tell. vectors: by embedder whose
    vectors change, None to delete the entry; deleting the document deletes all.
    """

    docid: int
    document_id: str
    json: str | None
    positions: Positions | None
    names: Sequence[str] = ()
    names_before: Sequence[str] = ()
    bytes_before: int = 0
    values: Values = field(default_factory=dict)
    values_before: Values = field(default_factory=dict)
    location: DocumentLocation = field(default_factory=lambda: NO_LOCATION)
    is_new: bool = False
    has_other_words: bool = True
    vectors: Mapping[str, StoredVectors | None] = field(default_factory=dict)


class IndexWriter:
    """Opens an index file for writing, and creates it if absent. All writes happen inside transaction()."""

    is_dry = False  # whether it only counts (svcd.index.dry_writer)

    def __init__(self, path: Path, *, cache_kib: int = 8192, hash_bytes: int = 4 << 20,
                 connection: sqlite3.Connection | None = None) -> None:
        """connection: to a file that is prepared; None to open the file."""
        self._connection = connection or open_writer(path, cache_kib=cache_kib)
        self.path = path
        self.work: Counter[str] = Counter()  # counts of written data, in the units of svcd.instance.rates
        # Parts of documents handed over for writing, and parts for which the pipe to the other process had no room.
        self.parts, self.blocked_parts = 0, 0
        self._hash_bytes = hash_bytes
        self._log: ChangeLog | None = None
        self._values = ValueWriter(self._connection)
        self._prefix_postings = PrefixPostingWriter(self._connection)
        self._word_counts = WordCountWriter(self._connection)
        self._locations = GeoWriter(self._connection)
        self.vectors = VectorWriter(self._connection)
        try:
            if connection is None:
                schema.prepare(self._connection, schema.INDEX)
            self._load()
        except BaseException:  # a damaged file: checks of the file must not find it open
            self.close()
            raise

    def close(self) -> None:
        """Close the file; uncommitted changes are lost."""
        self._connection.close()
        keep_log(self.path)

    def _load(self) -> None:
        rows = self._connection.execute("SELECT name, fid, fts_column FROM fields ORDER BY fid").fetchall()
        self.field_numbers: dict[str, int] = {name: fid for name, fid, _ in rows}
        self._columns: dict[str, int] = {name: column for name, _, column in rows if column is not None}
        stored = self.meta("docids")
        self.docids = EMPTY if stored is None else from_bytes(stored)
        self._document_bytes = int(self.meta("document_bytes") or 0)
        self._replaced = int(self.meta("replaced") or 0)  # documents whose old terms may still be in segments of FTS5
        self._distribution: Counter[str] = Counter()
        self._values.forget()
        self._prefix_postings.forget()
        self._word_counts.forget()
        is_counted = self.meta(word_counts.META_KEY) is not None
        self._word_counts.weights = IndexSettings.of(self.settings).word_weights if is_counted else None
        self._locations.forget()
        self.vectors.forget()

    def log_changes(self, moment: int, keep: int) -> None:
        """Log the changes of documents from now on; arguments as for ChangeLog."""
        self._log = ChangeLog(self._connection, moment, keep)

    # Transactions

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the writes of the block as a new generation; roll all of them back on an exception."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._written: set[int] | None = set()  # docids; None when there are too many to record
        self._replaced_terms: set[str] = set()  # terms that a document lost, and others may still hold
        try:
            # FTS5 gathers this many bytes of postings before it writes a segment; it stores the number in the file.
            for table in fts.TABLES:
                size = self._connection.execute(f"SELECT v FROM {table}_config WHERE k = 'hashsize'").fetchone()
                if size is None or size[0] != self._hash_bytes:
                    self._connection.execute(f"INSERT INTO {table}({table}, rank) VALUES ('hashsize', ?)", (self._hash_bytes,))
            if self._log is not None:
                self._log.begin()
            yield
            if self._replaced > max(LEAST_REPLACED, self.number_of_documents // REPLACED_SHARE):
                for table in fts.TABLES:
                    fts.begin_merge(self._connection, table)  # FTS5 continues with each write, by as many pages
                self._replaced = 0
            self._save()
            generation = int(self.meta("generation") or 0) + 1
            self._set_meta("generation", generation)
            docids = None if self._written is None else to_bytes(DocIds(list(self._written)))
            removed = None
            if self._written is not None and len(self._replaced_terms) <= MOST_LOOKED_UP:
                removed = json.dumps([term for term in self._replaced_terms if not self._connection.execute(
                    "SELECT 1 FROM terms WHERE terms MATCH ? LIMIT 1", (fts.fts_string(term),)).fetchone()])
            row = (generation, docids, removed)
            self._connection.execute("INSERT INTO changes(generation, docids, removed_terms, checksum) VALUES (?, ?, ?, ?)",
                                     (*row, row_checksum(*row)))
            self._connection.execute("DELETE FROM changes WHERE generation <= ?", (generation - GENERATIONS,))
            if self._log is not None:
                self._log.end(generation)
        except BaseException:
            self._roll_back("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the writes of the block on an exception, which is raised again; the transaction continues."""
        self._save()
        self._connection.execute("SAVEPOINT part")
        try:
            yield
            self._save()
        except BaseException:
            self._roll_back("ROLLBACK TO part")
            self._connection.execute("RELEASE part")
            raise
        self._connection.execute("RELEASE part")

    def _roll_back(self, statement: str) -> None:
        if self._connection.in_transaction:
            self._connection.execute(statement)
        self._load()

    def _save(self) -> None:
        self._values.save()
        self._prefix_postings.flush()
        self._word_counts.flush()
        self.vectors.flush()
        self._set_meta("docids", to_bytes(self.docids))
        self._set_meta("document_bytes", self._document_bytes)
        self._set_meta("replaced", self._replaced)
        self._connection.executemany("UPDATE fields SET documents = documents + ? WHERE name = ?",
                                     [(count, name) for name, count in self._distribution.items() if count])
        self._distribution.clear()

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file and truncate it, as far as readers allow.

        It does not wait for readers, since continuous searches must not delay a batch, unless the log is long: then it waits for
        the readers that have begun. Later readers use the file without the log.
        """
        patience_ms = LONG_LOG_PATIENCE_MS if self.log_bytes() > LONG_LOG else 0
        self._connection.execute(f"PRAGMA busy_timeout = {patience_ms}")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def table_sizes(self, most_bytes: int) -> dict[str, int]:
        """Return table or index -> bytes of its pages; empty for a file above `most_bytes`, since all of it would be read."""
        (page_size,), (pages,) = (self._connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_size", "page_count"))
        return table_sizes(self._connection) if page_size * pages <= most_bytes else {}

    def truncate_wal(self) -> None:
        """Run checkpoint(), unless the disk is too full for the file to grow; then a later call does it."""
        try:
            self.checkpoint()
        except sqlite3.OperationalError as error:
            if not lacks_room(error):
                raise

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log in bytes; 0 without a log, as when the disk failed before its first write."""
        try:
            return self.path.with_name(f"{self.path.name}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def needs_materialized_postings(self) -> bool:
        """Return whether the materialized postings are missing, or too old to be brought up to date."""
        return materialized.is_stale(self._connection, self.number_of_documents)

    def materialize_postings(self, should_stop: Callable[[], bool]) -> bool:
        """Build or refresh the materialized postings, until should_stop(); outside a transaction. True when all are done."""
        is_done = materialized.materialize(self._connection, self.docids, should_stop)
        self.checkpoint()
        return is_done

    def compact(self) -> None:
        """Merge the postings into one segment, release free pages and add checksums to old rows; outside a transaction."""
        for table in ("documents", "document_vectors"):
            self._connection.execute(checksum_filler(table))
        for table in ("terms", "term_positions"):
            self._connection.execute(f"INSERT INTO {table}({table}) VALUES ('optimize')")
        self._connection.execute("VACUUM")
        self.checkpoint()

    # Values of the index

    def meta(self, key: str) -> Any:
        """Return a value of the table meta, or None."""
        return meta(self._connection, key)

    def _set_meta(self, key: str, value: object) -> None:
        set_meta(self._connection, key, value)

    @property
    def primary_key(self) -> str | None:
        """The field that identifies a document."""
        name: str | None = self.meta("primary_key")
        return name

    @primary_key.setter
    def primary_key(self, name: str | None) -> None:
        self._set_meta("primary_key", name)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that were set, without defaults."""
        stored: dict[str, Any] = json.loads(self.meta("settings") or "{}")
        return stored

    @settings.setter
    def settings(self, stored: Mapping[str, Any]) -> None:
        self._set_meta("settings", json.dumps(stored, ensure_ascii=False))

    @property
    def applied(self) -> BatchOutcomes | None:
        """The outcomes of the newest batch, stored by remember()."""
        return BatchOutcomes.parse(self.meta("batch_outcomes"))

    def remember(self, outcomes: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Store how the tasks of the batch ended, in its transaction. outcomes: (when it was enqueued, outcome) of each task."""
        self._set_meta("batch_outcomes", json.dumps(outcome_record(outcomes)))

    @property
    def number_of_documents(self) -> int:
        """The number of documents in the index, including the changes of this transaction."""
        return len(self.docids)

    def field_distribution(self) -> dict[str, int]:
        """Return top-level field -> number of documents that have it, including the changes of this transaction."""
        counts = dict(self._connection.execute("SELECT name, documents FROM fields"))
        for name, count in self._distribution.items():
            counts[name] = counts.get(name, 0) + count
        return counts

    def stats(self) -> dict[str, Any]:
        """Return the statistics that `indexes` stores; call it after a commit.

        Number of documents, bytes of their texts, field distribution, number of vectors, of documents with vectors, and of
        documents with outdated vectors by embedder.
        """
        counts = self._connection.execute("SELECT name, documents FROM fields WHERE documents > 0 ORDER BY name")
        vectors, embedded = self.vectors.counts()
        return {"documents": self.number_of_documents, "bytes": self._document_bytes, "fields": dict(counts),
                "embeddings": vectors, "embeddedDocuments": embedded, "outdatedEmbeddings": self.vectors.outdated()}

    def take_over(self, values: Mapping[str, Any], fields: Sequence[tuple[int, str, int | None]],
                  embedders: Iterable[EmbedderRow]) -> None:
        """Fill a new file from another file. values: of the table meta; fields: number, name, FTS column of each."""
        for key, value in values.items():
            self._set_meta(key, value)
        self._connection.executemany("INSERT INTO fields(fid, name, fts_column) VALUES (?, ?, ?)", fields)
        for embedder in embedders:
            self.vectors.put_embedder(embedder)
        self._load()
        self.match_word_counts()

    def register(self, names: Iterable[str]) -> None:
        """Give the next field numbers to the names without one, in order."""
        fresh = [name for name in dict.fromkeys(names) if name not in self.field_numbers]
        if not fresh:
            return
        first = len(self.field_numbers)
        rows = [(first + n, name) for n, name in enumerate(fresh)]
        self._connection.executemany("INSERT INTO fields(fid, name) VALUES (?, ?)", rows)
        self.field_numbers.update((name, fid) for fid, name in rows)

    def unregister(self, count: int) -> None:
        """Remove all field numbers except the first `count`. Nothing may have been written yet for the removed ones."""
        self._connection.execute("DELETE FROM fields WHERE fid >= ?", (count,))
        self.field_numbers = dict(islice(self.field_numbers.items(), count))

    def _column(self, name: str) -> int:
        column = self._columns.get(name)
        if column is None:
            self.register([name])
            column = self._columns[name] = len(self._columns)
            self._connection.execute("UPDATE fields SET fts_column = ? WHERE name = ?", (column, name))
        return column

    # Documents

    def stored(self, document_ids: Sequence[str]) -> dict[str, StoredDocument]:
        """Return the existing documents among `document_ids`, by identifier."""
        found: dict[str, StoredDocument] = {}
        for part in statement_portions(document_ids):
            rows = self._connection.execute(
                f"SELECT docid, document_id, json FROM documents WHERE document_id IN ({placeholders(part)})", part)
            found.update((row[1], StoredDocument(*row)) for row in rows)
        return found

    def document_ids(self, docids: Sequence[int]) -> list[str]:
        """Return the identifiers of a few documents, in no order."""
        return [row[0] for row in self._connection.execute(
            f"SELECT document_id FROM documents WHERE docid IN ({','.join('?' * len(docids))})", docids)]

    def reader(self) -> IndexReader:
        """Return a reader that sees the uncommitted changes of this transaction; valid until the next write."""
        self._save()
        # It reads uncommitted state, so it must not share the cache of other readers.
        return IndexReader(self._connection, "", Cache(_READER_BYTES))

    def all_stored(self, after: int, limit: int) -> list[StoredDocument]:
        """Return up to `limit` documents with a docid above `after`, ascending."""
        return [StoredDocument(*row) for row in self._connection.execute(
            "SELECT docid, document_id, json FROM documents WHERE docid > ? ORDER BY docid LIMIT ?", (after, limit))]

    def all_documents(self, portion: int) -> Iterator[list[StoredDocument]]:
        """Yield all documents by docid, in portions."""
        last = -1
        while part := self.all_stored(last, portion):
            yield part
            last = part[-1].docid

    def _count(self, changes: Sequence[DocumentChange]) -> None:
        """Count changes of documents: in `work`, in the field distribution, and in the set of docids."""
        kept = [change for change in changes if change.json is not None]
        added = sum(change.is_new for change in kept)
        texts = [_bytes_of(change.json or "") for change in changes]
        self.work.update(added=added, replaced=len(kept) - added, deleted=len(changes) - len(kept), text=sum(texts),
                         words=sum(change.has_other_words for change in kept))
        self.docids |= DocIds([change.docid for change in kept])
        self.docids -= DocIds([change.docid for change in changes if change.json is None])
        self._distribution.update(chain.from_iterable(change.names for change in changes))
        self._distribution.subtract(chain.from_iterable(change.names_before for change in changes))
        self._document_bytes += sum(texts) - sum(change.bytes_before for change in changes)

    def write(self, changes: Iterable[DocumentChange],
              encoded: EncodedDocuments | Callable[[], EncodedDocuments] | None = None) -> None:
        """Apply changes, one per document, by ascending docid: FTS5 gathers ascending rows best.

        encoded: the changes in encoded form, in this order, or a function that encodes them; positions and values are then
        ignored.
        """
        ordered = sorted(changes, key=lambda change: change.docid)
        documents, postings, letters = (encoded() if callable(encoded) else encoded) or encoded_documents(
            (change.positions, change.values, change.docid if change.is_new else None) for change in ordered)
        removed = [(change.docid,) for change in ordered if change.json is None]
        kept = [change for change in ordered if change.json is not None]
        indexed = [(change, words) for change, (words, _) in zip(ordered, documents) if words is not None]
        for is_new, run in groupby(indexed, lambda each: each[0].is_new):
            if is_new:
                self.work["characters"] += self._add_words([(change.docid, words) for change, words in run])
            else:
                self._replace_words(list(run))
        self._write_values([(change, values) for change, (_, values) in zip(ordered, documents)])
        self.work["postings"] = self._values.changed_rows + self._prefix_postings.changed_rows
        self._add_letters(letters)
        self._values.add({block: {self.field_numbers[name]: found for name, found in fields.items()}
                          for block, fields in postings.items()})
        self.write_locations({change.docid: change.location for change in ordered
                              if not change.is_new or change.location is not NO_LOCATION})
        self._connection.executemany("DELETE FROM documents WHERE docid = ?", removed)
        self._connection.executemany(_PUT_DOCUMENT, [
            (row := (change.docid, change.document_id, change.json)) + (row_checksum(*row),) for change in kept])
        if self._log is not None:
            self._log.add((change.docid, change.document_id, change.json is None) for change in ordered)
        self.write_vectors({change.docid: change.vectors for change in kept if change.vectors})
        self.vectors.remove(docid for (docid,) in removed)
        self._count(ordered)

    def write_texts(self, documents: Sequence[tuple[StoredDocument, str]]) -> None:
        """Replace the JSON texts of documents whose words, values and locations do not change: (stored, new text)."""
        self._connection.executemany("UPDATE documents SET json = ?, checksum = ? WHERE docid = ?", [
            (text, row_checksum(stored.docid, stored.document_id, text), stored.docid) for stored, text in documents])
        self._document_bytes += sum(_bytes_of(text) - _bytes_of(stored.json) for stored, text in documents)
        self.work["rewritten"] += len(documents)

    def clear(self) -> None:
        """Delete every document; fields keep their numbers."""
        self._written = None
        if self._log is not None:
            self._log.clear()
        self._values.clear()
        self._prefix_postings.clear()
        self._word_counts.clear()
        self.clear_locations()
        self.vectors.clear()
        for statement in (*_CLEAR_WORDS, "DELETE FROM documents", "DELETE FROM materialized_postings",
                          "DROP TABLE IF EXISTS materialized_leaves", "UPDATE fields SET documents = 0"):
            self._connection.execute(statement)
        self._distribution.clear()
        self._count_cleared()

    def _count_cleared(self) -> None:
        self.work["cleared"] += self.number_of_documents
        self.docids, self._document_bytes = EMPTY, 0

    def _write_values(self, changes: Iterable[tuple[DocumentChange, EncodedValues]]) -> None:
        rows: list[tuple[int, Mapping[int, str]]] = []
        for change, values in changes:
            before = encoded_values(change.values_before) if change.values_before else {}
            if bool(values) if change.is_new else _postings_of(before) != _postings_of(values):
                if not change.is_new:
                    self._values.change(change.docid, *map(_postings_of, map(self._by_field_number, (before, values))))
                rows.append((change.docid, _arrays_of(self._by_field_number(values))))
        self._record_written(docid for docid, _ in rows)
        self._values.write_rows(rows)

    def _by_field_number(self, values: EncodedValues) -> dict[int, tuple[str, Postings]]:
        if not values.keys() <= self.field_numbers.keys():
            self.register(values)
        return {self.field_numbers[name]: held for name, held in values.items()}

    def drop_values(self, names: Iterable[str]) -> None:
        """Delete the values of some fields; write_values() must then rewrite the rows of all documents."""
        self._written = None
        self._values.drop_fields(self.field_numbers[name] for name in names)

    def write_values(self, documents: Iterable[tuple[int, Values, Values]]) -> None:
        """Write values of existing documents: (docid, values of fields that had none stored, values of all fields)."""
        numbered = [(docid, self._by_field_number(encoded_values(fresh)), self._by_field_number(encoded_values(values)))
                    for docid, fresh, values in documents]
        for docid, fresh, _ in numbered:
            self._values.change(docid, {}, _postings_of(fresh))
        self.work["values"] += len(numbered)
        self.work["parsed"] = self._document_bytes  # of all documents: settings change all or none
        self._values.write_rows([(docid, _arrays_of(values)) for docid, _, values in numbered])

    def write_locations(self, locations: Mapping[int, DocumentLocation]) -> None:
        """Store the locations of documents, by docid."""
        points = {docid: location.point for docid, location in locations.items()}
        self._locations.change_points(points, int(self.meta("generation") or 0) + 1)
        self._locations.change_geometries({docid: location.shape for docid, location in locations.items()})

    def clear_locations(self) -> None:
        """Delete the locations of all documents."""
        self._locations.clear()

    def write_vectors(self, vectors: Mapping[int, Mapping[str, StoredVectors | None]]) -> None:
        """Set vectors of documents, by docid and embedder; None deletes the entry of a document."""
        self.work["embedded"] += len(vectors)
        self._record_written(vectors)
        entries: dict[str, dict[int, StoredVectors | None]] = {}
        for docid, changed in vectors.items():
            for name, entry in changed.items():
                entries.setdefault(name, {})[docid] = entry
        for name in sorted(entries):
            self.vectors.write(name, entries[name])

    # Words

    def clear_words(self) -> None:
        """Delete all words and the FTS columns of fields. The documents stay, and write_words() must index them again."""
        self._written = None
        self._prefix_postings.clear()
        self._word_counts.clear()
        for statement in (*_CLEAR_WORDS, "UPDATE fields SET fts_column = NULL"):
            self._connection.execute(statement)
        self._columns.clear()

    def match_word_counts(self) -> None:
        """Count the words of all documents, or delete their counts, if the settings ask for other counts than there are."""
        settings = IndexSettings.of(self.settings)
        wanted = settings.word_weights.key if settings.stores_word_weights else None
        if wanted == self.meta(word_counts.META_KEY):
            return
        self._set_meta(word_counts.META_KEY, wanted)
        self.work["wordCounts"] += 0 if wanted is None else self.number_of_documents
        self._count_all_words(None if wanted is None else settings.word_weights)

    def _count_all_words(self, weights: WordWeights | None) -> None:
        self._word_counts.weights = weights
        if weights is None:
            self._word_counts.clear()
        else:
            self._word_counts.count_all(self._names())

    def _names(self) -> dict[int, str]:
        """FTS column -> field."""
        return {column: name for name, column in self._columns.items()}

    def write_words(self, positions: Iterable[tuple[int, Positions]]) -> None:
        """Index documents without words: (docid, words by field and position), by ascending docid."""
        given = list(positions)
        documents, _, letters = encoded_documents((found, {}, docid) for docid, found in given)
        self.work.update(words=len(given), reanalyzed=len(given))
        self.work["reindexed"] += self._add_words(
            [(docid, words) for (docid, _), (words, _) in zip(given, documents) if words is not None])
        self._add_letters(letters)

    def _add_letters(self, added: AddedLetters) -> None:
        self._prefix_postings.add({block: {self._column(name): found for name, found in fields.items()}
                                   for block, fields in added.items()})

    def _add_words(self, added: Sequence[tuple[int, Words]]) -> int:
        """Index documents without words, except their first letters. Return the characters of their words."""
        texts: list[tuple[int, Iterable[tuple[int, str]]]] = []
        position_terms: list[tuple[int, str]] = []
        forward: list[tuple[int, str]] = []
        counted: list[tuple[int, dict[int, int]]] = []
        for docid, (fields, text) in added:
            if fields:
                columns = [self._column(name) for name in fields]
                rows, for_fts, counts, _ = zip(*fields.values())
                texts.append((docid, zip(columns, for_fts)))
                position_terms.append((docid, text))
                forward.append((docid, fts.forward_text(dict(zip(columns, rows)))))
                counted.append((docid, dict(zip(columns, counts))))
        self._record_written(docid for docid, _ in forward)
        used = min(len(self._columns), schema.COLUMNS)
        self._connection.executemany(_insert(used), [(docid, *_column_values(found, used)) for docid, found in texts])
        self._connection.executemany(_INSERT_POSITIONS, position_terms)
        self._connection.executemany(_PUT_FORWARD, forward)
        self._count_words(counted)
        if self._word_counts.weights is not None:
            names = self._names()
            for docid, row in forward:
                self._word_counts.change(docid, "", row, names)
        return sum(len(row) for _, row in forward)

    def _replace_words(self, changes: Sequence[tuple[DocumentChange, Words]]) -> None:
        """Replace the words of existing documents. FTS5 does not store texts, and needs the old ones to remove their terms."""
        before = dict(rows_by_docid(self._connection, FORWARD_TEXTS, [change.docid for change, _ in changes]))
        emptied: list[tuple[int]] = []
        written: list[tuple[int, str]] = []
        counted: list[tuple[int, Mapping[int, int]]] = []
        for change, (fields, position_terms) in changes:
            docid, old = change.docid, before.get(change.docid, "")
            words = {self._column(name): found for name, found in fields.items()}
            forward = fts.forward_text({column: row for column, (row, _, _, _) in words.items()})
            if old == forward:
                continue
            self.work["exchanged"] += len(old) + len(forward)
            self._record_change(docid, old, forward)
            rows = fts.forward_rows(old)
            if old:
                texts = [(column, fts.column_text(row)) for column, row in rows.items()]
                terms = [row.split(" ") for row in rows.values()]
                self._replaced += 1
                self._connection.execute(_DELETE, ("delete", docid, *_column_values(texts)))
                self._connection.execute(_DELETE_POSITIONS, ("delete", docid, " ".join(map(fts.position_terms_of, terms))))
            letters = {column: first_letters for column, (_, _, _, first_letters) in words.items()}
            if old or any(letters.values()):
                known = {column: prefix_postings.first_letters(fts.positions(row)) for column, row in rows.items()}
                self._prefix_postings.change(docid, known, letters)
            if words:
                texts = [(column, text) for column, (_, text, _, _) in words.items()]
                self._connection.execute(_insert(schema.COLUMNS), (docid, *_column_values(texts)))
                self._connection.execute(_INSERT_POSITIONS, (docid, position_terms))
                written.append((docid, forward))
            elif docid in before:
                emptied.append((docid,))
            if self._word_counts.weights is not None:
                self._word_counts.change(docid, old, forward, self._names())
            counted.append((docid, {**dict.fromkeys(rows, 0), **{column: count for column, (_, _, count, _) in words.items()}}))
        self._connection.executemany("DELETE FROM forward_index WHERE docid = ?", emptied)
        self._connection.executemany(_PUT_FORWARD, written)
        self._count_words(counted)

    def _record_change(self, docid: int, old: str, new: str) -> None:
        """Record a written document for `changes`. old, new: its row of the forward index before and after."""
        if self._written is None or (docid not in self._written and len(self._written) >= MOST_LOGGED):
            self._written = None
            return
        self._written.add(docid)
        if len(self._replaced_terms) > MOST_LOOKED_UP:
            return
        # Looking up a term takes some 40 us, and an edited document keeps most of its terms.
        self._replaced_terms |= _terms(old) - _terms(new) - {""}

    def _record_written(self, docids: Iterable[int]) -> None:
        """Record written documents that lost no terms."""
        if self._written is not None:
            self._written.update(docids)
            if len(self._written) > MOST_LOGGED:
                self._written = None

    def _count_words(self, counted: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        """Write into the blobs of field_word_counts. counted: (docid, FTS column -> number of words)."""
        blocks: dict[tuple[int, int], dict[int, int]] = {}
        for docid, counts in counted:
            block, offset = divmod(docid, schema.COUNT_BLOCK)
            for column, count in counts.items():
                blocks.setdefault((column, block), {})[offset] = count
        for key, by_offset in blocks.items():
            row = self._connection.execute("SELECT counts FROM field_word_counts WHERE fts_column = ? AND block = ?",
                                           key).fetchone()
            blob = bytearray(row[0] if row else b"")
            blob.extend(bytes(max(0, max(by_offset) + 1 - len(blob))))
            for offset, count in by_offset.items():
                blob[offset] = count
            self._connection.execute("INSERT OR REPLACE INTO field_word_counts(fts_column, block, counts) VALUES (?, ?, ?)",
                                     (*key, bytes(blob)))


# Not INSERT OR REPLACE: it may be undone half-way, so SQLite makes FTS5 write its gathered postings first.
_PUT_DOCUMENT = ("INSERT INTO documents(docid, document_id, json, checksum) VALUES (?, ?, ?, ?) ON CONFLICT (docid) "
                 "DO UPDATE SET document_id = excluded.document_id, json = excluded.json, checksum = excluded.checksum")
_PUT_FORWARD = "INSERT OR REPLACE INTO forward_index(docid, words) VALUES (?, ?)"
_COLUMNS = ", ".join(f"c{n}" for n in range(schema.COLUMNS))
_VALUES = ", ".join("?" * schema.COLUMNS)
_DELETE = f"INSERT INTO terms(terms, rowid, {_COLUMNS}) VALUES (?, ?, {_VALUES})"
_INSERT_POSITIONS = "INSERT INTO term_positions(rowid, c0) VALUES (?, ?)"
_DELETE_POSITIONS = "INSERT INTO term_positions(term_positions, rowid, c0) VALUES (?, ?, ?)"
_CLEAR_WORDS = ("INSERT INTO terms(terms) VALUES ('delete-all')",
                "INSERT INTO term_positions(term_positions) VALUES ('delete-all')",
                "DELETE FROM forward_index", "DELETE FROM field_word_counts")
# Gaps between the fields of the shared column, so that no phrase or NEAR query extends from one into the next.
_BETWEEN_SHARED = f" {' '.join([fts.POSITION_GAP] * 7)} "


def _terms(forward: str) -> set[str]:
    """Return the terms in a row of the forward index, and "" if it has gaps."""
    return set(chain.from_iterable(row.split(" ") for row in fts.forward_rows(forward).values()))


@cache
def _insert(columns: int) -> str:
    """Return the statement that inserts the docid and the first FTS columns of a document; the others are empty."""
    return f"INSERT INTO terms(rowid{''.join(f', c{n}' for n in range(columns))}) VALUES (?{', ?' * columns})"


def _column_values(texts: Iterable[tuple[int, str]], used: int = schema.COLUMNS) -> list[str | None]:
    """Return the values of the first `used` FTS columns. texts: (FTS column, text); shared columns are joined."""
    values: list[str | None] = [None] * used
    shared = {}
    for column, text in texts:
        if column < schema.SHARED_COLUMN:
            values[column] = text
        else:
            shared[column] = text
    if shared:
        values[schema.SHARED_COLUMN] = _BETWEEN_SHARED.join([shared[column] for column in sorted(shared)])
    return values


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _postings_of(values: Mapping[_Name, tuple[str, Postings]]) -> dict[_Name, Postings]:
    return {name: postings for name, (_, postings) in values.items()}


def _arrays_of(values: Mapping[int, tuple[str, Postings]]) -> dict[int, str]:
    return {fid: array for fid, (array, _) in values.items()}
