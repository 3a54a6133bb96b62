"""What a change of settings does to the vectors of an index: embedders come and go, and documents are embedded again.

Only what the change affects is made again, and vectors that users gave never are. See docs/vectors.md#changes-of-settings.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from svcd.base import json_text, logs
from svcd.index.kept_embeddings import KeptEmbeddings
from svcd.index.vector_writer import StoredVectors
from svcd.index.writer import IndexWriter, StoredDocument
from svcd.schema.document_vectors import MEMBER, checked_vectors, shown_entry
from svcd.schema.embedder_settings import indexing_fragments, indexing_part
from svcd.schema.index_settings import IndexSettings
from svcd.tasks.document_vectors import EmbeddingFailure, Generations, is_lasting
from svcd.tasks.embedding import EMBEDDING, IDENTITY, USER_PROVIDED, Source

Settings = Mapping[str, Any]
Progress = Callable[[str, int, int], None]

_PORTION = 500  # documents read together
# Changes of these members of an embedder make all vectors stale.
_FULL = tuple(member for member in IDENTITY if member not in ("url", "dimensions"))


@dataclass
class _Change:
    """A new or changed embedder. before: None for a new one, and when all vectors are stale."""

    source: Source
    before: Source | None
    is_new: bool


class EmbedderChanges:
    """Brings the vectors of an index in line with its new settings."""

    def __init__(self, writer: IndexWriter, index_uid: str, before: Settings, after: Settings) -> None:
        """before, after: stored settings; the writer has the second already."""
        self._writer = writer
        self._index_uid = index_uid
        self._kept = KeptEmbeddings(writer.path)
        self._before, self._after = IndexSettings.of(before), IndexSettings.of(after)
        self._finished = 0

    def apply(self, progress: Progress) -> None:
        """Do it. Raises ApiError."""
        self._remove_embedders()
        changes = list(self._changes())
        if changes:
            self._embed(changes, progress)
        vectors = self._writer.vectors
        for name, settings in self._after.embedders.items():
            if settings.get("binaryQuantized") and not vectors.embedders[name].is_quantized:
                vectors.quantize(name)
        vectors.flush()
        for name, documents in vectors.outdated().items():
            logs.warn("given vectors have another length than the embedder, and are not searched", index=self._index_uid,
                      embedder=name, dimensions=vectors.embedders[name].dimensions, documents=documents)

    # Embedders that go

    def _remove_embedders(self) -> None:
        for name in list(self._writer.vectors.embedders):
            if name not in self._after.embedders:
                self._return_to_documents(name)
                self._writer.vectors.remove_embedder(name)

    def _return_to_documents(self, name: str) -> None:
        """Put the vectors that users gave for an embedder back into the documents."""
        for part in self._writer.vectors.portions(name):
            given = {docid: stored for docid, stored in part if stored.is_user_provided}
            if given:
                self._writer.register([MEMBER])
            self._write_texts([(stored, {**document, MEMBER: {
                **document.get(MEMBER, {}), name: shown_entry(given[stored.docid].vectors, given[stored.docid].regenerate)}})
                for stored, document in self._documents(list(given))])

    def _documents(self, docids: Sequence[int]) -> Iterator[tuple[StoredDocument, dict[str, Any]]]:
        for stored in self._writer.stored(self._writer.document_ids(docids)).values():
            yield stored, json_text.loads(stored.json)

    def _write_texts(self, documents: Sequence[tuple[StoredDocument, Mapping[str, Any]]]) -> None:
        numbers = self._writer.field_numbers
        self._writer.write_texts([
            (stored, json_text.dumps({name: document[name] for name in sorted(document, key=numbers.__getitem__)}))
            for stored, document in documents])

    # Embedders that come or change

    def _changes(self) -> Iterator[_Change]:
        vectors = self._writer.vectors
        for name, settings in self._after.embedders.items():
            fragments = sorted(indexing_fragments(settings))
            known = vectors.embedders.get(name)
            old = self._before.embedders.get(name)
            if known is None or old is None:
                dimensions = Source(name, settings, self._after).dimensions(self._kept)
                vectors.add_embedder(name, dimensions, bool(settings.get("binaryQuantized")), fragments)
                yield _Change(self._source(name), None, True)
                continue
            before = Source(name, old, self._before, known)
            is_full = _is_stale(old, settings)
            dimensions = known.dimensions
            # The parts of a composite embedder are compared when their length is asked for.
            if is_full or indexing_part(old).get("dimensions") != indexing_part(settings).get("dimensions") or (
                    settings["source"] == "composite" and old != settings):
                dimensions = Source(name, settings, self._after).dimensions(self._kept)
            if dimensions != known.dimensions:
                is_full = True
                vectors.resize(name, dimensions, partial(is_lasting, self._source(name)))
            vectors.change_fragments(name, fragments)
            if is_full or self._has_other_inputs(old, settings):
                yield _Change(self._source(name), None if is_full else before, False)

    def _source(self, name: str) -> Source:
        return Source(name, self._after.embedders[name], self._after, self._writer.vectors.embedders[name])

    def _has_other_inputs(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """May the inputs of some document differ?"""
        if new["source"] == USER_PROVIDED:
            return False
        if indexing_fragments(new):
            return indexing_fragments(old) != indexing_fragments(new)
        return (indexing_part(old).get("documentTemplate") != indexing_part(new).get("documentTemplate")
                or self._before.resolved["searchableAttributes"] != self._after.resolved["searchableAttributes"])

    # Documents

    def _embed(self, changes: Sequence[_Change], progress: Progress) -> None:
        """Embed all documents as the changes need it. Raises ApiError."""
        total, last = self._writer.number_of_documents, -1
        progress(EMBEDDING, 0, total)
        while part := self._writer.all_stored(last, _PORTION):
            documents = [(stored, json_text.loads(stored.json)) for stored in part]
            entries: dict[int, dict[str, StoredVectors | None]] = {}
            moved: dict[int, dict[str, Any]] = {}
            for change in changes:
                for docid, entry in self._entries(change, documents, moved).items():
                    entries.setdefault(docid, {})[change.source.name] = entry
            self._writer.write_vectors(entries)
            self._write_texts([(stored, moved[stored.docid]) for stored, _ in documents if stored.docid in moved])
            last, self._finished = part[-1].docid, self._finished + len(part)
            progress(EMBEDDING, self._finished, total)

    def _entries(self, change: _Change, documents: Sequence[tuple[StoredDocument, dict[str, Any]]],
                 moved: dict[int, dict[str, Any]]) -> dict[int, StoredVectors | None]:
        """What changes in the vectors of an embedder, by docid. moved: documents from which vectors are taken."""
        source, entries = change.source, dict[int, "StoredVectors | None"]()
        generations = Generations(source, self._kept)
        left = {each.docid: (each, document) for each, document in documents}
        for stored in self._writer.vectors.stored_parts(source.name, list(left)):
            for docid, held in stored.items():
                each, document = left.pop(docid)
                if not is_lasting(source, held):
                    self._generate(change, generations, each, document, held)
        for each, document in left.values():
            others = document.get(MEMBER, {}) if change.is_new else {}
            if source.name in others:
                moved[each.docid] = document = _without_entry(moved.get(each.docid, document), source.name)
                dimensions = self._writer.vectors.embedders[source.name].dimensions
                given = checked_vectors(each.document_id, source.name, others[source.name], dimensions, may_be_outdated=True)
                entry = StoredVectors(given.vectors or (), given.vectors is not None, given.regenerate)
                if is_lasting(source, entry) or entry.is_user_provided and not entry.is_outdated(dimensions):
                    entries[each.docid] = entry
                    continue
            self._generate(change, generations, each, document, None)
        try:
            return entries | generations.made()
        except EmbeddingFailure as failure:
            raise failure.as_error(self._writer.field_distribution(), {}) from None

    def _generate(self, change: _Change, generations: Generations, stored: StoredDocument, document: Mapping[str, Any],
                  held: StoredVectors | None) -> None:
        known = change.before.known_inputs(stored.document_id, document) if change.before else None
        generations.add(stored.docid, stored.document_id, change.source.inputs(stored.document_id, document), known, held)


def _without_entry(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    others = {other: entry for other, entry in document[MEMBER].items() if other != name}
    return {field: others if field == MEMBER else value for field, value in document.items() if field != MEMBER or others}


def _is_stale(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Are all vectors stale that the embedder has made?"""
    before, after = indexing_part(old), indexing_part(new)
    if any(before.get(member) != after.get(member) for member in _FULL):
        return True
    if after["source"] not in ("openAi", USER_PROVIDED) and before.get("url") != after.get("url"):
        return True
    return bool(indexing_fragments(old)) != bool(indexing_fragments(new))

