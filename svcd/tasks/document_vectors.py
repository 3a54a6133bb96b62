"""Which vectors the documents of a batch get: those that users give, and those that embedders make of what has changed.

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
VectorChanges = dict[int, dict[str, "StoredVectors | None"]]  # docid -> embedder -> its vectors, None for no entry

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
    """A document that is written. before: None for one that is new. given: what it says about embedders, by name.

    has_entries: may the index hold vectors of it? False is quicker.
    """

    docid: int
    document_id: str
    before: Document | None
    after: Document
    given: Mapping[str, GivenVectors] = field(default_factory=dict)
    has_entries: bool = True


@dataclass
class _Generation:
    """Vectors of one document that an embedder has to make. kept: by fragment number, those that stay as they are."""

    docid: int
    document_id: str
    inputs: Inputs
    kept: dict[int | None, array[float]]


class EmbeddingFailure(Exception):
    """Vectors could not be made. embedder: its name; reason: as messages say it; is_missing: users should have given them."""

    def __init__(self, embedder: str, reason: str, is_missing: bool = False) -> None:
        super().__init__(reason)
        self.embedder = embedder
        self.reason = reason
        self.is_missing = is_missing

    def as_error(self, fields: Mapping[str, int], names: Mapping[str, int]) -> ApiError:
        """The error of the task.

        fields: top-level field -> how many documents have it; names: name in `_vectors` without embedder -> the same.
        """
        hints = [_FIELD_HINT.format(name=name, count=fields[name]) for name in _misspelled(MEMBER, fields)]
        hints += [_NAME_HINT.format(name=name, embedder=self.embedder, count=names[name])
                  for name in _misspelled(self.embedder, names)]
        if self.is_missing and not hints:
            hints = [_OPT_OUT_HINT.format(embedder=self.embedder)]
        return ApiError(CODE, _FAILED.format(embedder=self.embedder, reason=self.reason) + "".join(hints))


def _misspelled(name: str, found: Mapping[str, int]) -> list[str]:
    """The names that are perhaps meant to be this one."""
    near = [each for each in sorted(found) if found[each] and each != name and is_near(each, name)]
    return near[:_MOST_HINTS]


def is_lasting(source: Source, entry: StoredVectors) -> bool:
    """Do the vectors of a document stay when those of the embedder are made again?"""
    return not entry.regenerate or entry.is_user_provided and source.is_user_provided


class Generations:
    """Gathers what an embedder has to make for documents that are written together, then has it made."""

    def __init__(self, source: Source, kept: KeptEmbeddings) -> None:
        self._source = source
        self._kept = kept
        self._wanted: list[_Generation] = []

    def add(self, docid: int, document_id: str, inputs: Inputs, known: Inputs | None, stored: StoredVectors | None) -> None:
        """Ask for the vectors of a document, unless those that it has are the ones.

        known: the inputs that its vectors were made of, None when they were made of others. stored: its vectors now.
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
        """The vectors of the documents, by docid; None for one that has none. Raises EmbeddingFailure, ApiError."""
        wanted, self._wanted = sorted(self._wanted, key=attrgetter("docid")), []
        missing = [(each, number) for each in wanted for number in each.inputs if number not in each.kept]
        if missing and self._source.is_user_provided:
            raise self._not_given([each for each, _ in missing])
        vectors = self._embedded([each.inputs[number] for each, number in missing], report)
        for (each, number), vector in zip(missing, vectors):
            if vector is not None:
                each.kept[number] = vector
        return {each.docid: self._entry(each.kept) for each in wanted}

    def _entry(self, vectors: Mapping[int | None, array[float]]) -> StoredVectors | None:
        if None in vectors:
            return StoredVectors([vectors[None]])
        numbers = sorted(number for number in vectors if number is not None)
        return StoredVectors([vectors[number] for number in numbers], fragments=bytes(numbers)) if numbers else None

    def _embedded(self, inputs: Sequence[Any], report: Report) -> Sequence[array[float] | None]:
        if not inputs:
            return []
        from svcd.embedding import EmbeddingError

        try:
            return self._source.embed(inputs, self._kept, report)
        except EmbeddingError as error:
            raise EmbeddingFailure(self._source.name, str(error)) from None

    def _not_given(self, documents: Sequence[_Generation]) -> EmbeddingFailure:
        others = _OTHERS.format(count=len(documents) - 1) if len(documents) > 1 else ""
        return EmbeddingFailure(self._source.name, _NOT_GIVEN.format(
            first=documents[0].document_id, others=others, embedder=self._source.name), is_missing=True)


class DocumentVectors:
    """The vectors of the documents of one batch. names: name in `_vectors` without embedder -> documents of the batch with it."""

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
        """Has the index any?"""
        return bool(self._sources)

    def imported(self, name: str, given: GivenVectors) -> GivenVectors:
        """What a document of a dump says about an embedder: vectors that may be made again are taken as those that it made."""
        if not given.regenerate or given.vectors is None or self._is_user_provided[name]:
            return given
        # Those of another length could not be searched.
        return given._replace(is_made=True) if given.has_length(self.dimensions[name]) else GivenVectors(None, True)

    def changes(self, documents: Sequence[ChangedDocument], report: Report = lambda finished, total: None) -> VectorChanges:
        """What changes with documents that are written together. Raises EmbeddingFailure, and ApiError for their templates."""
        found: VectorChanges = {}
        for source in self._sources:
            for docid, entry in self._changes_of(source, documents, report).items():
                found.setdefault(docid, {})[source.name] = entry
        return found

    def _changes_of(self, source: Source, documents: Sequence[ChangedDocument], report: Report
                    ) -> dict[int, StoredVectors | None]:
        found: dict[int, StoredVectors | None] = {}
        generations = Generations(source, self._kept)
        # A document may have megabytes of vectors: not all of them are in memory together.
        left = {each.docid: each for each in documents}
        for stored in self._writer.vectors.stored_parts(source.name, [each.docid for each in documents if each.has_entries]):
            for docid, held in stored.items():
                self._change(source, generations, left.pop(docid), held, found)
        for document in left.values():
            self._change(source, generations, document, None, found)
        return found | generations.made(report)

    def _change(self, source: Source, generations: Generations, document: ChangedDocument, held: StoredVectors | None,
                found: dict[int, StoredVectors | None]) -> None:
        """Note in `found` what becomes of the vectors of one document, or have them made. held: those of the index."""
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
        """Have the vectors of a document made if they must be. is_asked: does the document say so?"""
        inputs = source.inputs(document.document_id, document.after)
        known = None
        if document.before is not None and (held is None or held.regenerate):
            known = source.known_inputs(document.document_id, document.before)
            # What a user gave stands until the text changes.
            if held is not None and held.is_user_provided and not is_asked and known == inputs:
                return
        generations.add(document.docid, document.document_id, inputs, known, held)
