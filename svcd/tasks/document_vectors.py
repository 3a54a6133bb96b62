"""Decides which vectors the documents of a batch get: vectors given by users, and vectors made anew for changed inputs.

See docs/vectors.md#when-embedders-run.
"""
from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from svcd.base.errors import ApiError
from svcd.index.kept_embeddings import KeptEmbeddings
from svcd.index.vector_writer import StoredVectors
from svcd.index.writer import IndexWriter
from svcd.schema.document_vectors import MEMBER, GivenVectors
from svcd.schema.index_settings import IndexSettings
from svcd.tasks.embedding import CODE, Inputs, Report, Source
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
        self.embedder = embedder
        self.reason = reason
        self.is_missing = is_missing

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
        self._source = source
        self._kept = kept
        self._wanted: list[_Generation] = []

    def add(self, docid: int, document_id: str, inputs: Inputs, known: Inputs | None, stored: StoredVectors | None) -> None:
        """Request the vectors of a document, unless its present vectors are still right.

        known: the inputs of its present vectors; None when they differ in any case. stored: its present vectors.
        """
        held: dict[int | None, array[float]] = {}
        if stored is not None and known is not None and not stored.is_user_provided:
            numbers: Iterable[int | None] = [None] if stored.fragments is None else stored.fragments
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
        return {each.docid: self._entry(each.kept) for each in wanted}

    def _entry(self, vectors: Mapping[int | None, array[float]]) -> StoredVectors | None:
        if None in vectors:
            return StoredVectors([vectors[None]])
        numbers = sorted(number for number in vectors if number is not None)
        return StoredVectors([vectors[number] for number in numbers], fragments=bytes(numbers)) if numbers else None


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

    @property
    def has_embedders(self) -> bool:
        """Whether the index has embedders."""
        return bool(self._sources)

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
        generations.add(document.docid, document.document_id, inputs, known, held)
