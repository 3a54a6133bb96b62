"""Writes the documents of one batch: merges changes in the order of the tasks, assigns docids, writes in portions.

The writer gathers the newest state of each document until a portion is full, so a document that a batch changes ten times is
analyzed once. docs/filters-and-facets.md says when an index keeps the locations of documents, `_geo` and `_geojson`.
"""
from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple

from svcd.base import json_text
from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.geo.geojson import read_geojson
from svcd.index.encoded_document import EncodedDocuments
from svcd.index.geo_writer import StoredShape
from svcd.index.vector_writer import StoredVectors
from svcd.index.writer import NO_LOCATION, DocumentChange, DocumentLocation, IndexWriter, StoredDocument
from svcd.schema.document_vectors import MEMBER as _VECTORS, GivenVectors, split_vectors
from svcd.schema.documents import attribute_names
from svcd.schema.field_values import FieldValues, validate_geo
from svcd.schema.index_settings import IndexSettings
from svcd.tasks.analysis import Analysis, AnalysisProcess, AnalysisProcessDied, DocumentText
from svcd.tasks.document_vectors import ChangedDocument, DocumentVectors, EmbeddingFailure, VectorChanges
from svcd.tasks.payloads import IndexingFailure

Document = dict[str, Any]

MAX_FIELDS = 65_535
_WRITTEN_AT_ONCE = 250  # documents whose terms and values are in memory together: these take many times the bytes of the text
# Bytes of text per portion for the analysis process, which analyzes one portion while this process parses the next.
SENT_AT_ONCE = 256 << 10
_MOST_ORDERS = 1000
_GEO, _GEOJSON = "_geo", "_geojson"
_PORTION = 500  # documents whose locations are read together
_MAX_LOCATIONS = 10_000  # locations written together: each block of a million points is then rewritten about once
_CONTAINERS = frozenset((dict, list))  # types of values that contain others


@dataclass
class _Pending:
    """The newest state of one document.

    document: None when deleted. before: the state in the index. given: vectors from its `_vectors`, by embedder. is_recreated:
    whether the batch deleted the document before it wrote this state.
    """

    docid: int
    document: Document | None
    before: StoredDocument | None = None
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
    """Counts distinct documents, with one bit per docid: less memory than a set of identifiers."""

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

    Use it inside a transaction of the writer, and call finish() at the end. on_embedding: called while the embedder works, with
    the number of embedded texts and their total.
    """

    def __init__(self, writer: IndexWriter, limit: int, process: AnalysisProcess | None = None,
                 on_embedding: Callable[[int, int], None] = lambda finished, total: None) -> None:
        self._writer, self._process, self._on_embedding = writer, process, on_embedding
        # Parts of portions in the analysis process: no longer pending, and not in the index yet.
        self._sent: deque[_Part] = deque()
        self._sent_ids: set[str] = set()
        self._limit = limit
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
        self._orders: dict[tuple[str, ...], bool] = {}  # names of a document -> whether they are in the order of field numbers

    @property
    def named(self) -> int:
        """Number of distinct documents that the additions of the present task have named so far."""
        return self._distinct.count

    @contextmanager
    def task(self, *, is_large: bool) -> Iterator[None]:
        """Run the block as one task: an ApiError undoes the effect of the block alone, and is raised.

        A savepoint of the index undoes a large task. For a small one, which must fit into one portion, it is cheaper to restore
        the gathered state.
        """
        self._distinct = _DistinctDocuments()
        if is_large or self._pending_bytes > self._limit // 2:
            self.flush()
        else:
            self._write_sent()  # an error in the block unregisters the fields that the block has registered
        tombstones, given = dict(self._tombstones), self._assigned
        try:
            with self._writer.savepoint() if is_large else self._remembered():
                yield
                if is_large:
                    self.flush()
        except ApiError:
            if is_large:  # all pending documents belong to this task
                self._pending, self._pending_bytes = {}, 0
                while self._sent:
                    self._received(self._sent.popleft())
                self._sent_ids.clear()
            self._tombstones = tombstones
            self._orders.clear()  # the fields that it registered are gone
            self._assigned, self._free = given, islice(_unused_docids(self._taken), given, None)
            raise

    @contextmanager
    def _remembered(self) -> Iterator[None]:
        """Write nothing during the block, and restore the gathered state after an ApiError."""
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
        """Add, replace or (is_update) merge documents by identifier. Without may_create, unknown documents are skipped.

        text_bytes: total size of their JSON. is_import: the documents come from a dump, where `regenerate` also marks vectors
        made by an embedder. Raises max_fields_limit_exceeded.
        """
        self._fetch([document_id for document_id, _ in documents], is_merged=is_update)
        self._writer.work["read"] += len(documents)
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
                docid = self._tombstones.pop(document_id, None)
                if docid is None:
                    docid = next(self._free)
                    self._assigned += 1
                held = self._pending[document_id] = _Pending(docid, None)
            self._distinct.add(held.docid)
            is_merged = is_update and bool(held.document)
            if vectors is not None:
                document = self._with_vectors(document_id, held, document, vectors, is_merged, is_import)
            held.document = {**(held.document or {}), **document} if is_merged else document
        self._flush_if_full()

    def _with_vectors(self, document_id: str, held: _Pending, document: Document, vectors: Any, is_merged: bool,
                      is_import: bool = False) -> Document:
        """Note the vectors that a document gives for embedders. Return the document, with other members of `_vectors` kept."""
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

    def delete(self, document_ids: Sequence[str]) -> int:
        """Delete documents by identifier; return how many existed."""
        removed = 0
        for start in range(0, len(document_ids), 1000):
            part = document_ids[start:start + 1000]
            self._fetch(part, is_merged=False)
            for document_id in part:
                held = self._pending.get(document_id)
                if held is not None and held.document is not None:
                    removed += 1
                    held.delete()
            self._flush_if_full()
        return removed

    def edit(self, stored: StoredDocument, after: Document | None) -> None:
        """Replace a document that was just read, or delete it (`after` None). Raises IndexingFailure."""
        if after is not None:
            if len(after) > MAX_FIELDS:
                raise IndexingFailure(_too_many_fields())
            self._register(after)
        held = self._pending[stored.document_id] = _Pending(stored.docid, after, stored)
        if after is not None and (vectors := after.pop(_VECTORS, None)) is not None:
            held.document = self._with_vectors(stored.document_id, held, after, vectors, False)
        self._pending_bytes += len(stored.json)
        self._flush_if_full()

    def restore(self, documents: Sequence[StoredDocument], vectors: Mapping[int, Mapping[str, StoredVectors]]) -> None:
        """Write documents of another index file unchanged, by ascending docid, into a file that does not have them."""
        changes: list[DocumentChange] = []
        parsed: list[Document] = []
        for each in documents:
            document = json_text.loads(each.json)
            self._register(document)
            self._number_nested(document)
            changes.append(DocumentChange(each.docid, each.document_id, each.json, None, _counted(document), is_new=True,
                                          location=self._geo.location(each.document_id, document),
                                          vectors=vectors.get(each.docid, {})))
            parsed.append(document)
        encoded = self._analysis.encoded((document, change.docid, True) for change, document in zip(changes, parsed))
        self._writer.write(changes, encoded)

    def _register(self, names: Mapping[str, Any]) -> None:
        """Give field numbers to names. Write the sent parts first: numbers must not depend on the speed of the analysis."""
        if not names.keys() <= self._writer.field_numbers.keys():
            self._write_sent()
            self._writer.register(names)

    def _fetch(self, document_ids: Sequence[str], is_merged: bool) -> None:
        """Load the stored state of documents into the portion. is_merged: parse them; else all are replaced or deleted."""
        unknown = [each for each in dict.fromkeys(document_ids) if each not in self._pending]
        if not self._sent_ids.isdisjoint(unknown):
            self._write_sent()
        found = self._writer.stored(unknown)
        self._writer.work["compared"] += len(found)
        for document_id, stored in found.items():
            self._pending[document_id] = _Pending(stored.docid, json_text.loads(stored.json) if is_merged else {}, stored)
            self._pending_bytes += len(stored.json)

    def flush(self) -> None:
        """Write the portion, _WRITTEN_AT_ONCE documents at a time."""
        self._write_or_send()
        self._write_sent()

    def _flush_if_full(self) -> None:
        if self._pending_bytes > self._limit:
            self._write_or_send()

    def _write_or_send(self) -> None:
        """Write the portion; with an analysis process, its last parts are only sent."""
        pending, self._pending, self._pending_bytes = self._pending, {}, 0
        vectors = self._vector_changes(pending) if self._vectors.dimensions else {}
        left = [(change, held.document) for document_id, held in pending.items()
                if (change := self._change(document_id, held, vectors.get(held.docid, {}))) is not None]
        left.sort(key=lambda each: -each[0].docid)
        del pending
        while left:  # popped, so that memory is freed part by part
            part = [left.pop() for _ in range(min(_WRITTEN_AT_ONCE, len(left)))]
            if self._process:
                self._send(self._process, part)
            else:
                self._write_sent()  # first the parts that a dead analysis process had
                self._writer.parts += 1
                self._writer.write([change for change, _ in part], partial(self._analysis.encoded, [
                    (document or {}, _new_docid(change), change.has_other_words) for change, document in part]))

    def _vector_changes(self, pending: Mapping[str, _Pending]) -> VectorChanges:
        """Return the changes of vectors of a portion, by docid and embedder. Raises IndexingFailure."""
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
                fields.subtract(_counted(json_text.loads(held.before.json)) if held.before else ())
                fields.update(_counted(held.document or {}))
            raise IndexingFailure(failure.as_error(fields, self._vectors.names)) from None

    def _send(self, process: AnalysisProcess, part: list[tuple[DocumentChange, Document | None]]) -> None:
        """Send documents to the analysis process; beyond MOST_SENT parts, write the oldest."""
        texts = []
        for change, document in part:  # the order of members in the payload is the order of positions
            text = ("{}" if document is None or change.json is None else
                    change.json if self._is_in_order(document) else json_text.dumps(document))
            texts.append((text, _new_docid(change), change.has_other_words))
        sent = _Part([change for change, _ in part], texts)
        self._writer.parts += 1
        self._writer.blocked_parts += not process.send(sent.texts)
        self._sent.append(sent)
        self._sent_ids.update(change.document_id for change in sent.changes)
        if len(self._sent) > process.MOST_SENT:
            self._write_oldest()

    def _write_sent(self) -> None:
        """Write all parts that were sent to the analysis process."""
        while self._sent:
            self._write_oldest()

    def _write_oldest(self) -> None:
        part = self._sent.popleft()
        self._sent_ids.difference_update([change.document_id for change in part.changes])
        self._writer.write(part.changes, self._received(part))

    def _received(self, part: _Part) -> EncodedDocuments:
        """Return the analysis of a part; analyze it here if the process has died."""
        try:
            if self._process:
                return self._process.receive()
        except AnalysisProcessDied:
            self._process = None
        return self._analysis.encoded_texts(part.texts)

    def finish(self) -> None:
        """Write the last portion; afterwards the docids of deleted documents may be reused."""
        self.flush()
        self._tombstones.clear()

    def _change(self, document_id: str, held: _Pending, vectors: Mapping[str, StoredVectors | None]) -> DocumentChange | None:
        """Return the change of one document, without its tokens and values; None when it does not change."""
        before = held.before
        bytes_before = len(before.json.encode()) if before else 0
        if held.document is None:
            self._tombstones[document_id] = held.docid
            if before is None:
                return None
            stored = json_text.loads(before.json)
            return DocumentChange(held.docid, document_id, None, {}, (), _counted(stored), bytes_before, {},
                                  self._values_before(stored))
        document = held.document
        if not self._is_in_order(document):  # the stored JSON has its members in the order of field numbers
            document = {name: document[name] for name in sorted(document, key=self._writer.field_numbers.__getitem__)}
        text = json_text.dumps(document)
        if before and before.json == text and not vectors:
            return None
        location = self._geo.location(document_id, held.document)
        self._number_nested(held.document)
        stored = json_text.loads(before.json) if before else {}
        return DocumentChange(
            held.docid, document_id, text, None, _counted(held.document), _counted(stored), bytes_before, {},
            self._values_before(stored) if before else {}, location, is_new=before is None,
            has_other_words=before is None or not self._analysis.has_same_words(stored, held.document), vectors=vectors)

    def _values_before(self, stored: Document) -> Mapping[str, FieldValues]:
        # A dry run counts documents, and reads the values of a sample.
        return {} if self._writer.is_dry else self._analysis.values(stored)

    def _is_in_order(self, document: Document) -> bool:
        names = tuple(document)
        is_in_order = self._orders.get(names)
        if is_in_order is None:
            order = list(map(self._writer.field_numbers.__getitem__, document))
            if len(self._orders) >= _MOST_ORDERS:
                self._orders.clear()
            is_in_order = self._orders[names] = order == sorted(order)
        return is_in_order

    def _number_nested(self, document: Document) -> None:
        """Register nested field names after the top-level ones. Raises IndexingFailure beyond MAX_FIELDS."""
        for value in document.values():  # scalars and arrays of scalars have no nested names
            if isinstance(value, dict) or isinstance(value, list) and not _CONTAINERS.isdisjoint(map(type, value)):
                self._register(dict.fromkeys(attribute_names(document)))
                break
        if len(self._writer.field_numbers) > MAX_FIELDS:
            raise IndexingFailure(_too_many_fields())


def _unused_docids(taken: DocIds) -> Iterator[int]:
    """Yield unused docids, ascending. taken: the docids at the start of the batch, because deleted documents may come back."""
    end = taken.max() + 1 if taken else 0
    yield from DocIds(range(end)) - taken
    yield from count(end)


def _new_docid(change: DocumentChange) -> int | None:
    return change.docid if change.is_new else None


def _counted(document: Document) -> list[str]:
    """Return the top-level fields counted in the field distribution: all except `_vectors`."""
    return [name for name in document if name != _VECTORS]


def _too_many_fields() -> ApiError:
    return ApiError("max_fields_limit_exceeded", "A document cannot contain more than 65,535 fields.")


@dataclass(frozen=True, slots=True)
class GeoExtraction:
    """Which locations an index keeps: points of `_geo`, shapes of `_geojson`."""

    has_points: bool
    has_shapes: bool

    @classmethod
    def of(cls, settings: IndexSettings) -> GeoExtraction:
        """Derive it from the settings of an index."""
        names = settings.filterable.names
        return cls(names(_GEO) or _GEO in settings.sortable_attributes, names(_GEOJSON))

    def location(self, document_id: str, document: Mapping[str, Any]) -> DocumentLocation:
        """Return the location of a document. Raises IndexingFailure: invalid_document_geo_field or _geojson_field."""
        if not (self.has_points or self.has_shapes):
            return NO_LOCATION
        try:
            point = validate_geo(document_id, document) if self.has_points else None
            shape = read_geojson(document.get(_GEOJSON)) if self.has_shapes else None
        except ApiError as error:
            raise IndexingFailure(error) from error
        return DocumentLocation(point, None if shape is None else StoredShape(shape.bounds(), shape.packed()))


def extract_all_locations(writer: IndexWriter) -> None:
    """Store the locations of all documents again, according to the settings of the index. Raises IndexingFailure."""
    geo = GeoExtraction.of(IndexSettings.of(writer.settings))
    writer.clear_locations()
    locations: dict[int, DocumentLocation] = {}
    last = -1
    while (geo.has_points or geo.has_shapes) and (part := writer.all_stored(last, _PORTION)):
        locations.update((each.docid, geo.location(each.document_id, json_text.loads(each.json))) for each in part)
        writer.work["located"] += len(part)
        last = part[-1].docid
        if len(locations) > _MAX_LOCATIONS:
            writer.write_locations(locations)
            locations.clear()
    writer.write_locations(locations)
