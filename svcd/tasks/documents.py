"""Writes the documents of one batch: merges changes in the order of the tasks, assigns docids, writes in portions.

The newest state of each document is gathered until a portion is full, so that a document changed ten times in a batch is
analyzed once. Also reads payloads, and extracts locations from documents.
"""
from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

from svcd.base import json_text
from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.geo.geojson import read_geojson
from svcd.index.encoded_document import EncodedDocuments
from svcd.index.geo_writer import StoredShape
from svcd.index.vector_writer import StoredVectors
from svcd.index.writer import NO_LOCATION, DocumentChange, DocumentLocation, IndexWriter, StoredDocument
from svcd.schema.document_vectors import MEMBER as _VECTORS
from svcd.schema.document_vectors import GivenVectors, split_vectors
from svcd.schema.documents import attribute_names
from svcd.schema.field_values import FieldValues, validate_geo
from svcd.schema.index_settings import IndexSettings
from svcd.tasks.analysis import Analysis, AnalysisProcess, AnalysisProcessDied, DocumentText
from svcd.tasks.document_vectors import ChangedDocument, DocumentVectors, EmbeddingFailure, VectorChanges

Document = dict[str, Any]

MAX_FIELDS = 65_535
_PORTION = 500  # documents read together
_WRITTEN_AT_ONCE = 250  # documents whose terms and values are in memory together: these take many times the bytes of the text
# Bytes of text per portion that another process analyzes: while a portion is parsed, the process works at what was sent before.
_SENT_AT_ONCE = 256 << 10
_MOST_ORDERS = 1000
_MAX_LOCATIONS = 10_000  # written together: with so many, nearly every block of a million points is touched once, not repeatedly
_CONTAINERS = frozenset((dict, list))  # types of values that contain others


class IndexingFailure(Exception):
    """An error of the indexing itself, not of one task's content: it fails the whole batch."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass
class _Pending:
    """The newest state of one document, None when deleted. before: the state that the index holds, and its names and values.

    given: what it says about the vectors of embedders, which is not a part of it. is_recreated: was it deleted meanwhile?
    """

    docid: int
    document: Document | None
    before: StoredDocument | None = None
    names_before: Sequence[str] = ()
    values_before: Mapping[str, FieldValues] = field(default_factory=dict)
    given: Mapping[str, GivenVectors] = field(default_factory=dict)
    is_recreated: bool = False

    def delete(self) -> None:
        """Delete the document; it may be added again."""
        self.document, self.given, self.is_recreated = None, {}, True


class _Part(NamedTuple):
    """Documents that are analyzed together."""

    changes: list[DocumentChange]
    texts: list[DocumentText]


class _DistinctDocuments:
    """Counts distinct documents with one bit per docid, which takes less memory than their identifiers."""

    def __init__(self) -> None:
        self.count = 0
        self._bits = bytearray()

    def add(self, docid: int) -> None:
        """Count a document unless it was counted before."""
        place, bit = docid >> 3, 1 << (docid & 7)
        if place >= len(self._bits):
            self._bits.extend(bytes(place + 1))  # doubles, so that adding docids in order takes linear time
        if not self._bits[place] & bit:
            self._bits[place] |= bit
            self.count += 1


class DocumentWriter:
    """Writes documents through an IndexWriter. limit: bytes of text gathered per portion.

    To be used inside a transaction of the writer; call finish() at the end. on_embedding: called while texts of documents
    are embedded, with how many are, of how many.
    """

    def __init__(self, writer: IndexWriter, limit: int, process: AnalysisProcess | None = None,
                 on_embedding: Callable[[int, int], None] = lambda finished, total: None) -> None:
        self._writer = writer
        self._process = process
        self._on_embedding = on_embedding
        # Parts of portions that the process analyzes: not in the index yet, and not pending any more.
        self._sent: deque[_Part] = deque()
        self._sent_ids: set[str] = set()
        self._limit = min(limit, _SENT_AT_ONCE) if process else limit
        self._pending: dict[str, _Pending] = {}
        self._pending_bytes = 0
        # A deleted document keeps its docid until the batch ends: a later task may add it again.
        self._tombstones: dict[str, int] = {}
        self._taken, self._assigned = writer.docids, 0
        self._free = _unused_docids(self._taken)
        settings = IndexSettings.of(writer.settings)
        self._analysis = Analysis(settings)
        self._geo = GeoExtraction.of(settings)
        self._vectors = DocumentVectors(writer, settings)
        self._distinct = _DistinctDocuments()
        self._orders: dict[tuple[str, ...], bool] = {}  # names of a document -> are they in the order of their field numbers?

    @property
    def named(self) -> int:
        """How many distinct documents the additions of the present task have named so far."""
        return self._distinct.count

    def values(self, document: Mapping[str, Any]) -> dict[str, FieldValues]:
        """The values of a document's attributes that the settings keep, for filters, facets and sorting."""
        return self._analysis.values(document)

    @contextmanager
    def task(self, *, is_large: bool) -> Iterator[None]:
        """The block is one task: an ApiError in it undoes the effect of the block alone, and is raised.

        A large task is undone by a savepoint of the index; a small one by restoring the gathered state, which is
        cheaper, but requires that the task fits into one portion.
        """
        self._distinct = _DistinctDocuments()
        if is_large or self._pending_bytes > self._limit // 2:
            self.flush()
        else:
            self._write_sent()  # an error in the block unregisters the fields that are registered in it
        tombstones, given = dict(self._tombstones), self._assigned
        try:
            with self._writer.savepoint() if is_large else self._remembered():
                yield
                if is_large:
                    self.flush()
        except ApiError:
            if is_large:  # what is not written yet belongs to this task alone
                self._pending, self._pending_bytes = {}, 0
                self._discard_sent()
            self._tombstones = tombstones
            self._orders.clear()  # the fields that it registered are gone
            self._assigned, self._free = given, islice(_unused_docids(self._taken), given, None)
            raise

    @contextmanager
    def _remembered(self) -> Iterator[None]:
        """Nothing is written during the block; an ApiError in it restores the gathered state."""
        pending = {document_id: replace(each) for document_id, each in self._pending.items()}
        key, names, size = self._writer.primary_key, len(self._writer.field_numbers), self._pending_bytes
        self._limit, limit = 1 << 62, self._limit
        try:
            yield
        except ApiError:
            self._pending, self._pending_bytes = pending, size
            self._writer.primary_key = key
            self._writer.unregister(names)
            raise
        finally:
            self._limit = limit

    def put(self, documents: Sequence[tuple[str, Document]], text_bytes: int, *, is_update: bool,
            may_create: bool, is_import: bool = False) -> None:
        """Add, replace or (is_update) merge documents by identifier; unknown ones are skipped unless may_create.

        text_bytes: total size of their JSON. is_import: are they of a dump, which says of vectors that embedders made that
        they may be made again? Raises max_fields_limit_exceeded.
        """
        self._fetch([document_id for document_id, _ in documents])
        self._pending_bytes += text_bytes
        for document_id, document in documents:
            if len(document) > MAX_FIELDS:
                raise _too_many_fields()
            self._register(document)  # field numbers follow the order of the payload, skipped documents included
            vectors = document.pop(_VECTORS, None)
            held = self._pending.get(document_id)
            if (held is None or held.document is None) and not may_create:
                self._distinct.count += 1
                continue
            if held is None:
                held = self._pending[document_id] = _Pending(self._new_docid(document_id), None)
            self._distinct.add(held.docid)
            is_merged = is_update and bool(held.document)
            if vectors is not None:
                document = self._with_vectors(document_id, held, document, vectors, is_merged, is_import)
            held.document = {**(held.document or {}), **document} if is_merged else document
        self._flush_if_full()

    def _with_vectors(self, document_id: str, held: _Pending, document: Document, vectors: Any, is_merged: bool,
                      is_import: bool = False) -> Document:
        """Note what a document says about embedders, and return it with what it says about names that are none."""
        try:
            given, others = split_vectors(document_id, vectors, self._vectors.dimensions, may_be_outdated=is_import)
        except ApiError as error:
            raise IndexingFailure(error) from None
        if is_import:
            given = {name: self._vectors.imported(name, each) for name, each in given.items()}
        self._vectors.names.update(others.keys())
        held.given = {**held.given, **{name: each.after(held.given.get(name)) for name, each in given.items()}}
        if is_merged and held.document:
            others = {**held.document.get(_VECTORS, {}), **others}
        return {**document, _VECTORS: others} if others else document

    def _new_docid(self, document_id: str) -> int:
        docid = self._tombstones.pop(document_id, None)
        if docid is not None:
            return docid
        self._assigned += 1
        return next(self._free)

    def delete(self, document_ids: Sequence[str]) -> int:
        """Delete documents by identifier; returns how many existed."""
        removed = 0
        for start in range(0, len(document_ids), 1000):
            part = document_ids[start:start + 1000]
            self._fetch(part)
            for document_id in part:
                held = self._pending.get(document_id)
                if held is not None and held.document is not None:
                    removed += 1
                    held.delete()
            self._flush_if_full()
        return removed

    def edit(self, stored: StoredDocument, before: Document, after: Document | None) -> None:
        """Replace a document that was just read; `after` None deletes it. Raises IndexingFailure."""
        if after is not None:
            if len(after) > MAX_FIELDS:
                raise IndexingFailure(_too_many_fields())
            self._register(after)
        held = self._pending[stored.document_id] = _Pending(stored.docid, after, stored, _counted(before), self.values(before))
        if after is not None and (vectors := after.pop(_VECTORS, None)) is not None:
            held.document = self._with_vectors(stored.document_id, held, after, vectors, False)
        self._pending_bytes += len(stored.json)
        self._flush_if_full()

    def restore(self, documents: Sequence[StoredDocument], vectors: Mapping[int, Mapping[str, StoredVectors]]) -> None:
        """Write documents of another file of the index as they are there, by ascending docid, into one that lacks them."""
        changes: list[DocumentChange] = []
        parsed: list[Document] = []
        for each in documents:
            document = json_text.loads(each.json)
            self._register(document)
            self._number_nested(document)
            changes.append(DocumentChange(each.docid, each.document_id, each.json, None, _counted(document), is_new=True,
                                          location=_location(self._geo, each.document_id, document),
                                          vectors=vectors.get(each.docid, {})))
            parsed.append(document)
        encoded = self._analysis.encoded((document, change.docid, True) for change, document in zip(changes, parsed))
        self._writer.write(changes, encoded)

    def _register(self, names: Mapping[str, Any]) -> None:
        """Give field numbers to names. They must not depend on what the analysis process has finished."""
        if not names.keys() <= self._writer.field_numbers.keys():
            self._write_sent()
            self._writer.register(names)

    def _fetch(self, document_ids: Sequence[str]) -> None:
        """Load the stored state of some documents into the portion."""
        unknown = [each for each in dict.fromkeys(document_ids) if each not in self._pending]
        if not self._sent_ids.isdisjoint(unknown):
            self._write_sent()
        for document_id, stored in self._writer.stored(unknown).items():
            document = json_text.loads(stored.json)
            self._pending[document_id] = _Pending(stored.docid, document, stored, _counted(document), self.values(document))
            self._pending_bytes += len(stored.json)

    def flush(self) -> None:
        """Write the portion, _WRITTEN_AT_ONCE documents at a time."""
        self._write_or_send()
        self._write_sent()

    def _flush_if_full(self) -> None:
        if self._pending_bytes > self._limit:
            self._write_or_send()

    def _write_or_send(self) -> None:
        """Write the portion, or have its last parts analyzed meanwhile."""
        pending, self._pending, self._pending_bytes = self._pending, {}, 0
        vectors = self._vector_changes(pending) if self._vectors.has_embedders else {}
        left = [(change, held.document) for document_id, held in pending.items()
                if (change := self._change(document_id, held, vectors.get(held.docid, {}))) is not None]
        left.sort(key=lambda each: -each[0].docid)
        del pending
        while left:  # popped, so that memory is freed as it goes
            part = [left.pop() for _ in range(min(_WRITTEN_AT_ONCE, len(left)))]
            if self._process:
                self._send(self._process, part)
            else:
                self._write_sent()  # what it had when it died comes first
                self._writer.parts += 1
                encoded = self._analysis.encoded((document or {}, _new_docid(change), change.has_other_words)
                                                 for change, document in part)
                self._writer.write([change for change, _ in part], encoded)

    def _vector_changes(self, pending: Mapping[str, _Pending]) -> VectorChanges:
        """What changes in the vectors of a portion. Raises IndexingFailure."""
        changed = [ChangedDocument(
            held.docid, document_id, json_text.loads(held.before.json) if held.before and not held.is_recreated else None,
            held.document, held.given, has_entries=held.before is not None)
            for document_id, held in pending.items() if held.document is not None]
        try:
            return self._vectors.changes(changed, self._on_embedding)
        except ApiError as error:
            raise IndexingFailure(error) from None
        except EmbeddingFailure as failure:
            fields = Counter(self._writer.field_distribution())
            for held in pending.values():
                fields.subtract(held.names_before)
                fields.update(_counted(held.document or {}))
            raise IndexingFailure(failure.as_error(fields, self._vectors.names)) from None

    def _send(self, process: AnalysisProcess, part: list[tuple[DocumentChange, Document | None]]) -> None:
        """Have documents analyzed, and write those that are analyzed by now."""
        sent = _Part([change for change, _ in part], [
            (self._text_as_read(*each), _new_docid(each[0]), each[0].has_other_words) for each in part])
        self._writer.parts += 1
        self._writer.blocked_parts += not process.send(sent.texts)
        self._sent.append(sent)
        self._sent_ids.update(change.document_id for change in sent.changes)
        if len(self._sent) > process.MOST_SENT:
            self._write_oldest()

    def _write_sent(self) -> None:
        """Write all that the process analyzes."""
        while self._sent:
            self._write_oldest()

    def _write_oldest(self) -> None:
        part = self._sent.popleft()
        self._sent_ids.difference_update([change.document_id for change in part.changes])
        self._writer.write(part.changes, self._received(part))

    def _received(self, part: _Part) -> EncodedDocuments:
        """The analysis of a part; made here when the process has died."""
        try:
            if self._process:
                return self._process.receive()
        except AnalysisProcessDied:
            self._process = None
        return self._analysis.encoded_texts(part.texts)

    def _discard_sent(self) -> None:
        while self._sent:
            self._received(self._sent.popleft())
        self._sent_ids.clear()

    def finish(self) -> None:
        """Write the last portion; docids of deleted documents are free afterwards."""
        self.flush()
        self._tombstones.clear()

    def _change(self, document_id: str, held: _Pending, vectors: Mapping[str, StoredVectors | None]) -> DocumentChange | None:
        """The change of one document, without its tokens and values; None when it does not change."""
        before = held.before
        bytes_before = len(before.json.encode()) if before else 0
        if held.document is None:
            self._tombstones[document_id] = held.docid
            gone = DocumentChange(held.docid, document_id, None, {}, (), held.names_before, bytes_before, {}, held.values_before)
            return gone if before else None
        text = self._text(held.document)
        if before and before.json == text and not vectors:
            return None
        location = _location(self._geo, document_id, held.document)
        self._number_nested(held.document)
        has_other_words = before is None or not self._analysis.has_same_words(json_text.loads(before.json), held.document)
        return DocumentChange(held.docid, document_id, text, None, _counted(held.document), held.names_before, bytes_before,
                              {}, held.values_before, location, is_new=before is None, has_other_words=has_other_words,
                              vectors=vectors)

    def _text(self, document: Document) -> str:
        """The stored JSON: members ordered by field number."""
        if not self._is_in_order(document):
            document = {name: document[name] for name in sorted(document, key=self._writer.field_numbers.__getitem__)}
        return json_text.dumps(document)

    def _is_in_order(self, document: Document) -> bool:
        names = tuple(document)
        is_in_order = self._orders.get(names)
        if is_in_order is None:
            order = list(map(self._writer.field_numbers.__getitem__, document))
            if len(self._orders) >= _MOST_ORDERS:
                self._orders.clear()
            is_in_order = self._orders[names] = order == sorted(order)
        return is_in_order

    def _text_as_read(self, change: DocumentChange, document: Document | None) -> str:
        """The JSON of a document with its members in the order of the payload, which that of the positions follows."""
        if document is None or change.json is None:
            return "{}"
        return change.json if self._is_in_order(document) else json_text.dumps(document)

    def _number_nested(self, document: Document) -> None:
        """Register nested field names after the top-level ones. Raises IndexingFailure beyond MAX_FIELDS."""
        if any(map(_has_nested_names, document.values())):
            self._register(dict.fromkeys(attribute_names(document)))
        if len(self._writer.field_numbers) > MAX_FIELDS:
            raise IndexingFailure(_too_many_fields())


def _unused_docids(taken: DocIds) -> Iterator[int]:
    """Unused docids, ascending. taken: the docids at the start of the batch, as deleted documents may come back."""
    end = taken.max() + 1 if taken else 0
    yield from DocIds(range(end)) - taken
    yield from count(end)


def _new_docid(change: DocumentChange) -> int | None:
    return change.docid if change.is_new else None


def _has_nested_names(value: Any) -> bool:
    """May the value contain nested names? False for scalars and arrays of scalars."""
    return isinstance(value, dict) or (isinstance(value, list) and not _CONTAINERS.isdisjoint(map(type, value)))


def _counted(document: Document) -> list[str]:
    """The top-level fields counted in the field distribution: all but `_vectors`."""
    return [name for name in document if name != _VECTORS]


def _too_many_fields() -> ApiError:
    return ApiError("max_fields_limit_exceeded", "A document cannot contain more than 65,535 fields.")


# Locations of documents: which of `_geo` and `_geojson` an index keeps, and their validation. See
# docs/filters-and-facets.md for when they are kept.

_GEO, _GEOJSON = "_geo", "_geojson"


@dataclass(frozen=True, slots=True)
class GeoExtraction:
    """Which locations an index keeps: points of `_geo`, shapes of `_geojson`."""

    has_points: bool
    has_shapes: bool

    @property
    def are_kept(self) -> bool:
        """Does the index keep any?"""
        return self.has_points or self.has_shapes

    @classmethod
    def of(cls, settings: IndexSettings) -> GeoExtraction:
        """From the settings of an index."""
        names = settings.filterable.names
        return cls(names(_GEO) or _GEO in settings.sortable_attributes, names(_GEOJSON))

    def location(self, document_id: str, document: Mapping[str, Any]) -> DocumentLocation:
        """The location of a document. Raises invalid_document_geo_field, invalid_document_geojson_field."""
        if not self.are_kept:
            return NO_LOCATION
        point = validate_geo(document_id, document) if self.has_points else None
        shape = read_geojson(document.get(_GEOJSON)) if self.has_shapes else None
        return DocumentLocation(point, None if shape is None else StoredShape(shape.bounds(), shape.packed()))


def extract_all_locations(writer: IndexWriter) -> None:
    """Extract the locations of all stored documents again, as the settings of the index want. Raises IndexingFailure."""
    geo = GeoExtraction.of(IndexSettings.of(writer.settings))
    writer.clear_locations()
    locations: dict[int, DocumentLocation] = {}
    last = -1
    while geo.are_kept and (part := writer.all_stored(last, _PORTION)):
        locations.update((each.docid, _location(geo, each.document_id, json_text.loads(each.json))) for each in part)
        last = part[-1].docid
        if len(locations) > _MAX_LOCATIONS:
            writer.write_locations(locations)
            locations.clear()
    writer.write_locations(locations)


def _location(geo: GeoExtraction, document_id: str, document: Document) -> DocumentLocation:
    try:
        return geo.location(document_id, document)
    except ApiError as error:
        raise IndexingFailure(error) from error


# Payloads: NDJSON, one document per line, complete and synced when the task was acknowledged. A fault found now has
# happened on disk since; it fails that task alone (docs/tasks-and-batches.md#unreadable-payloads).


# Documents per look-up in the index and per progress report.
_CHUNK = 500
_READ_AT_ONCE = 1 << 19  # bytes


def read_payload(path: str | None, size: int, checksum: int | None = None,
                 ) -> Iterator[tuple[list[bytes], list[dict[str, Any]]]]:
    """Lines and the documents parsed from them, in portions; nothing without a path.

    size, checksum: bytes and CRC-32 when it was stored; None for one of an older svcd, or of a dump.

    Raises io_error when the file cannot be read, or differs from what was stored.
    """
    if path is None:
        return
    try:
        with open(path, "rb") as file:
            _check_size(file, size)
            read = found = 0
            while lines := file.readlines(_READ_AT_ONCE):
                if checksum is not None:
                    for line in lines:
                        found = crc32(line, found)
                for start in range(0, len(lines), _CHUNK):
                    part = lines[start:start + _CHUNK]
                    yield part, _parsed(part, read)
                    read += len(part)
            if checksum not in (None, found):
                raise _unreadable("their checksum is another one")
    except OSError as error:
        raise _unreadable(error.strerror or type(error).__name__) from error


def _check_size(file: BinaryIO, size: int) -> None:
    found = os.fstat(file.fileno()).st_size
    if found != size:
        raise _unreadable(f"{found} bytes of {size} are there" if found < size else f"{found} bytes are there, and {size} "
                          "were stored")


def _parsed(lines: list[bytes], before: int) -> list[dict[str, Any]]:
    try:
        if len(lines) > 1 and sum(map(len, lines)) <= 2 * _READ_AT_ONCE:  # there will be a second copy of them
            together = json_text.decoded_together(lines)
            if set(map(type, together)) == {dict}:
                return together
    except ValueError:
        pass
    return _parsed_alone(lines, before)


def _parsed_alone(lines: list[bytes], before: int) -> list[dict[str, Any]]:
    parsed = []
    for number, line in enumerate(lines, before + 1):
        try:
            document = json_text.loads(line)
        except ValueError as error:
            raise _unreadable(f"document {number} is damaged: {error}") from None
        if not isinstance(document, dict):
            raise _unreadable(f"document {number} is damaged: it is no object")
        parsed.append(document)
    return parsed


def _unreadable(reason: str) -> ApiError:
    return ApiError("io_error", f"The stored documents of the task cannot be read: {reason}. Send them again.")
