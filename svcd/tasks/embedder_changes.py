"""Applies a change of settings to the vectors of an index: adds and removes embedders, and embeds documents again.

Only vectors that the change affects are made again, and never vectors given by users. See docs/vectors.md#changes-of-settings.
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
# A change of one of these members of an embedder makes all its vectors stale.
_FULL = tuple(member for member in IDENTITY if member not in ("url", "dimensions"))


@dataclass
class _Change:
    """A new or changed embedder. before: None for a new embedder, and when all its vectors are stale."""

    source: Source
    before: Source | None
    is_new: bool


class EmbedderChanges:
    """Updates the vectors of an index to its new settings."""

    def __init__(self, writer: IndexWriter, index_uid: str, before: Settings, after: Settings) -> None:
        """before, after: stored settings; the writer already has the new ones."""
        self._writer = writer
        self._index_uid = index_uid
        self._kept = KeptEmbeddings(writer.path)
        self._before, self._after = IndexSettings.of(before), IndexSettings.of(after)
        self._finished = 0

    def apply(self, progress: Progress) -> None:
        """Update the vectors. Raises ApiError."""
        for name in list(self._writer.vectors.embedders):
            if name not in self._after.embedders:
                self._return_to_documents(name)
                self._writer.vectors.remove_embedder(name)
        changes = list(self._changes())
        if changes:
            self._embed(changes, progress)
        vectors = self._writer.vectors
        for name, settings in self._after.embedders.items():
            if settings.get("binaryQuantized") and not vectors.embedders[name].is_quantized:
                vectors.quantize(name)
        vectors.flush()
        for name, documents in vectors.outdated().items():
            logs.warn("given vectors do not match the dimensions of the embedder and are not searched", index=self._index_uid,
                      embedder=name, dimensions=vectors.embedders[name].dimensions, documents=documents)

    # Removed embedders

    def _return_to_documents(self, name: str) -> None:
        """Put the vectors that users gave for an embedder back into `_vectors` of the documents."""
        for part in self._writer.vectors.portions(name):
            given = {docid: stored for docid, stored in part if stored.is_user_provided}
            if given:
                self._writer.register([MEMBER])
            documents = []
            for stored in self._writer.stored(self._writer.document_ids(list(given))).values():
                document, entry = json_text.loads(stored.json), given[stored.docid]
                others = document.get(MEMBER, {})
                documents.append((stored, {**document, MEMBER: {**others, name: shown_entry(entry.vectors, entry.regenerate)}}))
            self._write_texts(documents)

    def _write_texts(self, documents: Sequence[tuple[StoredDocument, Mapping[str, Any]]]) -> None:
        numbers = self._writer.field_numbers
        self._writer.write_texts([
            (stored, json_text.dumps({name: document[name] for name in sorted(document, key=numbers.__getitem__)}))
            for stored, document in documents])

    # New and changed embedders

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
            # dimensions() also checks that the parts of a composite embedder agree.
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
        """Return whether the inputs of some document may differ."""
        if new["source"] == USER_PROVIDED:
            return False
        if indexing_fragments(new):
            return indexing_fragments(old) != indexing_fragments(new)
        return (indexing_part(old).get("documentTemplate") != indexing_part(new).get("documentTemplate")
                or self._before.resolved["searchableAttributes"] != self._after.resolved["searchableAttributes"])

    # Documents

    def _embed(self, changes: Sequence[_Change], progress: Progress) -> None:
        """Embed all documents for the changed embedders. Raises ApiError."""
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
        """Return the changes of the vectors of an embedder, by docid. moved: filled with documents that lose their `_vectors`."""
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
                document = moved.get(each.docid, document)
                rest = {name: entry for name, entry in document[MEMBER].items() if name != source.name}
                document = {name: rest if name == MEMBER else value for name, value in document.items() if name != MEMBER or rest}
                moved[each.docid] = document
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


def _is_stale(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether a change of its settings makes all vectors of an embedder stale."""
    before, after = indexing_part(old), indexing_part(new)
    if any(before.get(member) != after.get(member) for member in _FULL):
        return True
    if after["source"] not in ("openAi", USER_PROVIDED) and before.get("url") != after.get("url"):
        return True
    return bool(indexing_fragments(old)) != bool(indexing_fragments(new))

