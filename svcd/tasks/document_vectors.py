"""Decides which vectors documents get: vectors given by users, and vectors made anew for changed inputs or changed settings.

A change of settings adds and removes embedders, and makes only the vectors again that it affects, never vectors given by users.
See docs/vectors.md#when-embedders-run and #changes-of-settings.
"""
from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from svcd.base import json_text, logs
from svcd.base.errors import ApiError
from svcd.index.kept_embeddings import KeptEmbeddings
from svcd.index.vector_writer import StoredVectors
from svcd.index.writer import IndexWriter, StoredDocument
from svcd.schema.document_vectors import MEMBER, GivenVectors, checked_vectors, shown_entry
from svcd.schema.embedder_settings import indexing_fragments, indexing_part
from svcd.schema.index_settings import IndexSettings
from svcd.tasks.embedding import CODE, EMBEDDING, IDENTITY, USER_PROVIDED, Inputs, Report, Source
from svcd.validation.messages import is_near

Document = Mapping[str, Any]
VectorChanges = dict[int, dict[str, "StoredVectors | None"]]  # docid -> embedder -> its vectors; None removes the entry

_FAILED = "While embedding documents for embedder `{embedder}`: {reason}"
_NOT_GIVEN = ("no vectors provided for document `{first}`{others}\n- Note: `{embedder}` has `source: userProvided`, so documents "
              "must provide embeddings as an array in `_vectors.{embedder}`.")
_OTHERS = " and at least {count} other document(s)"
_FIELD_HINT = "\n- Hint: try replacing `{name}` by `_vectors` in {count} document(s)."
_NAME_HINT = "\n- Hint: try replacing `_vectors.{name}` by `_vectors.{embedder}` in {count} document(s)."
_OPT_OUT_HINT = "\n- Hint: opt-out for a document with `_vectors.{embedder}: null`"
_MOST_HINTS = 2
_PORTION = 500  # documents read together
# A change of one of these members of an embedder makes all its vectors stale.
_FULL = tuple(member for member in IDENTITY if member not in ("url", "dimensions"))


@dataclass
class ChangedDocument:
    """A document that is written. before: None for a new document. given: the entries of its `_vectors`, by embedder.

    has_entries: whether the index may hold vectors of the document; False saves a look-up.
    """

    docid: int
    document_id: str
    before: Document | None
    after: Document
    given: Mapping[str, GivenVectors] = field(default_factory=dict)
    has_entries: bool = True


@dataclass
class _Generation:
    """Vectors of one document that an embedder must make. kept: vectors that stay unchanged, by fragment number."""

    docid: int
    document_id: str
    inputs: Inputs
    kept: dict[int | None, array[float]]


class EmbeddingFailure(Exception):
    """Vectors could not be made. embedder: its name; reason: for messages; is_missing: users should have given the vectors."""

    def __init__(self, embedder: str, reason: str, is_missing: bool = False) -> None:
        super().__init__(reason)
        self.embedder, self.reason, self.is_missing = embedder, reason, is_missing

    def as_error(self, fields: Mapping[str, int], names: Mapping[str, int]) -> ApiError:
        """Return the error of the task.

        fields: top-level field -> number of documents with it; names: name in `_vectors` without embedder -> number of documents.
        """
        hints = [_FIELD_HINT.format(name=name, count=fields[name]) for name in _misspelled(MEMBER, fields)]
        hints += [_NAME_HINT.format(name=name, embedder=self.embedder, count=names[name])
                  for name in _misspelled(self.embedder, names)]
        if self.is_missing and not hints:
            hints = [_OPT_OUT_HINT.format(embedder=self.embedder)]
        return ApiError(CODE, _FAILED.format(embedder=self.embedder, reason=self.reason) + "".join(hints))


def _misspelled(name: str, found: Mapping[str, int]) -> list[str]:
    """Return the names that may be misspellings of `name`."""
    near = [each for each in sorted(found) if found[each] and each != name and is_near(each, name)]
    return near[:_MOST_HINTS]


def is_lasting(source: Source, entry: StoredVectors) -> bool:
    """Return whether a document keeps these vectors when the embedder makes its vectors again."""
    return not entry.regenerate or entry.is_user_provided and source.is_user_provided


class Generations:
    """Gathers the inputs of an embedder for documents that are written together, then embeds them."""

    def __init__(self, source: Source, kept: KeptEmbeddings) -> None:
        self._source, self._kept = source, kept
        self._wanted: list[_Generation] = []

    def add(self, docid: int, document_id: str, inputs: Inputs, known: Inputs | None, stored: StoredVectors | None) -> None:
        """Request the vectors of a document, unless its present vectors are still right.

        known: the inputs of its present vectors; None when they differ in any case. stored: its present vectors.
        """
        held: dict[int | None, array[float]] = {}
        if stored is not None and known is not None and not stored.is_user_provided:
            numbers: Iterable[int | None] = known if stored.fragments is None else stored.fragments
            held = dict(zip(numbers, stored.vectors))
        kept = {number: vector for number, vector in held.items()
                if known and number in inputs and number in known and inputs[number] == known[number]}
        if stored is None and not inputs:
            return
        if (stored is not None and not stored.is_user_provided and stored.regenerate
                and len(kept) == len(inputs) == len(stored.vectors)):
            return
        self._wanted.append(_Generation(docid, document_id, inputs, kept))

    def made(self, report: Report = lambda finished, total: None) -> dict[int, StoredVectors | None]:
        """Return the vectors of the documents by docid; None for a document without. Raises EmbeddingFailure, ApiError."""
        wanted, self._wanted = sorted(self._wanted, key=attrgetter("docid")), []
        missing = [(each, number) for each in wanted for number in each.inputs if number not in each.kept]
        if missing and self._source.is_user_provided:
            others = _OTHERS.format(count=len(missing) - 1) if len(missing) > 1 else ""
            raise EmbeddingFailure(self._source.name, _NOT_GIVEN.format(
                first=missing[0][0].document_id, others=others, embedder=self._source.name), is_missing=True)
        vectors: Sequence[array[float] | None] = []
        if missing:
            from svcd.embedding import EmbeddingError

            try:
                vectors = self._source.embed([each.inputs[number] for each, number in missing], self._kept, report)
            except EmbeddingError as error:
                raise EmbeddingFailure(self._source.name, str(error)) from None
        for (each, number), vector in zip(missing, vectors):
            if vector is not None:
                each.kept[number] = vector
        entries: dict[int, StoredVectors | None] = {}
        for each in wanted:
            numbers = sorted(number for number in each.kept if number is not None)
            if None in each.kept:
                entries[each.docid] = StoredVectors([each.kept[None]])
            elif self._source.has_fragments:
                of_fragments = StoredVectors([each.kept[number] for number in numbers], fragments=bytes(numbers))
                entries[each.docid] = of_fragments if numbers else None
            else:  # of passages; a document has the vectors of all, or none if a failure is ignored
                is_whole = numbers and len(numbers) == len(each.inputs)
                entries[each.docid] = StoredVectors([each.kept[number] for number in numbers]) if is_whole else None
        return entries


class DocumentVectors:
    """The vectors of the documents of one batch. names: name in `_vectors` without embedder -> number of documents with it."""

    def __init__(self, writer: IndexWriter, settings: IndexSettings) -> None:
        self._writer = writer
        self.dimensions = {name: row.dimensions for name, row in writer.vectors.embedders.items()}
        self._sources = [Source(name, settings.embedders[name], settings, row)
                         for name, row in sorted(writer.vectors.embedders.items())]
        self._is_user_provided = {source.name: source.is_user_provided for source in self._sources}
        self._kept = KeptEmbeddings(writer.path)
        self.names: Counter[str] = Counter()

    def imported(self, name: str, given: GivenVectors) -> GivenVectors:
        """Return an entry of `_vectors` from a dump as it is stored: vectors with `regenerate` count as made by the embedder."""
        if not given.regenerate or given.vectors is None or self._is_user_provided[name]:
            return given
        # Vectors of another length could not be searched.
        return given._replace(is_made=True) if given.has_length(self.dimensions[name]) else GivenVectors(None, True)

    def changes(self, documents: Sequence[ChangedDocument], report: Report = lambda finished, total: None) -> VectorChanges:
        """Return the changes of documents that are written together. Raises EmbeddingFailure; ApiError for their templates."""
        changes: VectorChanges = {}
        for source in self._sources:
            found: dict[int, StoredVectors | None] = {}
            generations = Generations(source, self._kept)
            # A document may have megabytes of vectors: they are read in parts, not all together.
            left = {each.docid: each for each in documents}
            for stored in self._writer.vectors.stored_parts(source.name, [each.docid for each in documents if each.has_entries]):
                for docid, held in stored.items():
                    self._change(source, generations, left.pop(docid), held, found)
            for document in left.values():
                self._change(source, generations, document, None, found)
            for docid, entry in (found | generations.made(report)).items():
                changes.setdefault(docid, {})[source.name] = entry
        return changes

    def _change(self, source: Source, generations: Generations, document: ChangedDocument, held: StoredVectors | None,
                found: dict[int, StoredVectors | None]) -> None:
        """Note the new vectors of one document in `found`, or have them made. held: its vectors in the index."""
        entry = document.given.get(source.name)
        if entry is None:
            if document.before is None or held is None or held.regenerate:
                self._generate(source, generations, document, held, is_asked=False)
        elif entry.vectors is not None:
            given = StoredVectors(entry.vectors, not entry.is_made, entry.regenerate)
            if held is None or given != held:
                found[document.docid] = given
        elif entry.regenerate:
            self._generate(source, generations, document, held, is_asked=True)
        else:
            held = held if document.before is not None else None
            found[document.docid] = (held or StoredVectors(()))._replace(regenerate=False)

    def _generate(self, source: Source, generations: Generations, document: ChangedDocument, held: StoredVectors | None,
                  is_asked: bool) -> None:
        """Request new vectors of a document if its inputs changed. is_asked: whether the document asks for new vectors."""
        inputs = source.inputs(document.document_id, document.after)
        known = None
        if document.before is not None and (held is None or held.regenerate):
            known = source.known_inputs(document.document_id, document.before)
            # Vectors from a user stay valid until the text changes.
            if held is not None and held.is_user_provided and not is_asked and known == inputs:
                return
        self._writer.work["rendered"] += 1 if known is None else 2
        generations.add(document.docid, document.document_id, inputs, known, held)


@dataclass
class _EmbedderChange:
    """A new or changed embedder. before: None for a new embedder, and when all its vectors are stale."""

    source: Source
    before: Source | None
    is_new: bool


class EmbedderChanges:
    """Updates the vectors of an index to its new settings."""

    def __init__(self, writer: IndexWriter, index_uid: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """before, after: stored settings; the writer already has the new ones."""
        self._writer, self._index_uid = writer, index_uid
        self._kept = KeptEmbeddings(writer.path)
        self._before, self._after = IndexSettings.of(before), IndexSettings.of(after)
        self._finished = 0

    def apply(self, progress: Callable[[str, int, int], None]) -> None:
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
            self._writer.work["removed"] += len(part)
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

    def _changes(self) -> Iterator[_EmbedderChange]:
        vectors = self._writer.vectors
        for name, settings in self._after.embedders.items():
            fragments = sorted(indexing_fragments(settings))
            known = vectors.embedders.get(name)
            old = self._before.embedders.get(name)
            if known is None or old is None:
                dimensions = Source(name, settings, self._after).dimensions(self._kept)
                vectors.add_embedder(name, dimensions, bool(settings.get("binaryQuantized")), fragments)
                yield _EmbedderChange(self._source(name), None, True)
                continue
            before = Source(name, old, self._before, known)
            old_part, part = indexing_part(old), indexing_part(settings)
            is_full = (any(old_part.get(member) != part.get(member) for member in _FULL)
                       or part["source"] not in ("openAi", USER_PROVIDED) and old_part.get("url") != part.get("url")
                       or bool(indexing_fragments(old)) != bool(indexing_fragments(settings)))
            dimensions = known.dimensions
            # dimensions() also checks that the parts of a composite embedder agree.
            if is_full or old_part.get("dimensions") != part.get("dimensions") or (
                    settings["source"] == "composite" and old != settings):
                dimensions = Source(name, settings, self._after).dimensions(self._kept)
            if dimensions != known.dimensions:
                is_full = True
                vectors.resize(name, dimensions, partial(is_lasting, self._source(name)))
            vectors.change_fragments(name, fragments)
            if is_full or self._has_other_inputs(old, settings):
                yield _EmbedderChange(self._source(name), None if is_full else before, False)

    def _source(self, name: str) -> Source:
        return Source(name, self._after.embedders[name], self._after, self._writer.vectors.embedders[name])

    def _has_other_inputs(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Return whether the inputs of some document may differ."""
        if new["source"] == USER_PROVIDED:
            return False
        if indexing_fragments(new):
            return indexing_fragments(old) != indexing_fragments(new)
        return (any(indexing_part(old).get(member) != indexing_part(new).get(member) for member in ("documentTemplate", "chunk"))
                or self._before.resolved["searchableAttributes"] != self._after.resolved["searchableAttributes"])

    # Documents

    def _embed(self, changes: Sequence[_EmbedderChange], progress: Callable[[str, int, int], None]) -> None:
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

    def _entries(self, change: _EmbedderChange, documents: Sequence[tuple[StoredDocument, dict[str, Any]]],
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

    def _generate(self, change: _EmbedderChange, generations: Generations, stored: StoredDocument, document: Mapping[str, Any],
                  held: StoredVectors | None) -> None:
        self._writer.work["rendered"] += 2 if change.before else 1
        known = change.before.known_inputs(stored.document_id, document) if change.before else None
        generations.add(stored.docid, stored.document_id, change.source.inputs(stored.document_id, document), known, held)
