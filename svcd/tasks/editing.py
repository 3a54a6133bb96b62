"""Edits documents by a function (svcd.rhai). When the function fails, the task changes no document.

Documents are read, edited and written in portions, inside the transaction of the batch.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from svcd.base import json_text
from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.index.writer import IndexWriter, StoredDocument
from svcd.rhai import FunctionError, NotAnObject, Program, is_same
from svcd.schema.documents import document_identifier
from svcd.tasks.documents import DocumentWriter
from svcd.tasks.payloads import IndexingFailure

# Documents read together, and per progress report.
_PORTION = 200

_FILTER_CODE = "invalid_document_filter"
_CODE = "edit_documents_by_function_error"
_COMPILING = "Document edition runtime error encountered while compiling the function: {error}"
_RUNNING = "Document edition runtime error encountered while running the function: {error}"
_KEPT_KEY = "Document editions cannot modify a document's primary key"
_KEPT_OBJECT = "Document editions must keep documents as objects"


class DocumentEdit:
    """The edits of one task. deleted, edited: number of documents deleted and changed so far."""

    def __init__(self, content: Mapping[str, Any], primary_key: str) -> None:
        """Compile the function in the content of a task. Raises IndexingFailure when it does not compile."""
        try:
            self._program = Program(content["function"])
        except FunctionError as error:
            raise _failure(_COMPILING.format(error=error)) from None
        self._context = content.get("context")
        self._primary_key = primary_key
        self.deleted = self.edited = 0

    def apply(self, stored: StoredDocument, documents: DocumentWriter) -> None:
        """Edit one document, and write it if it changed. Raises IndexingFailure."""
        before = json_text.loads(stored.json)
        try:
            after = self._program.edited(json_text.loads(stored.json), self._context)
        except FunctionError as error:
            raise _failure(_RUNNING.format(error=error)) from None
        except NotAnObject:
            raise _failure(_KEPT_OBJECT) from None
        if after is None:
            self.deleted += 1
        elif is_same(before, after):
            return
        else:
            try:
                document_id = document_identifier(after, self._primary_key)
            except ApiError as error:
                raise IndexingFailure(error) from None
            if document_id != stored.document_id:
                raise _failure(_KEPT_KEY)
            self.edited += 1
        documents.edit(stored, after)


def edit(writer: IndexWriter, limit: int, content: Mapping[str, Any], progress: Any) -> dict[str, Any]:
    """Run one task; return its counters. limit: bytes of text gathered per portion. Raises IndexingFailure."""
    progress("retrieving config", 0, 1)
    docids = writer.docids
    if (wanted := content.get("filter")) is not None:
        from svcd.filters.evaluation import filter_docids, read_filter  # imported late, as in svcd.tasks.indexing

        try:
            docids = filter_docids(writer.reader(), read_filter(wanted, _FILTER_CODE), _FILTER_CODE)
        except ApiError as error:
            raise IndexingFailure(error) from None
    total = len(docids)
    if not total or writer.primary_key is None:
        return {"deletedDocuments": 0, "editedDocuments": 0}
    progress("computing document changes", 0, total)
    edition, documents = DocumentEdit(content, writer.primary_key), DocumentWriter(writer, limit)
    finished = 0
    for part in _portions(writer, docids):
        writer.work["edited"] += len(part)
        for stored in part:
            edition.apply(stored, documents)
        finished += len(part)
        progress("computing document changes", finished, total)
    progress("indexing", 0, 1)
    documents.finish()
    return {"deletedDocuments": edition.deleted, "editedDocuments": edition.edited}


def _portions(writer: IndexWriter, docids: DocIds) -> Iterator[list[StoredDocument]]:
    """Yield the documents of a set in portions by ascending docid; each portion is read when the caller asks for it."""
    if docids == writer.docids:
        last = -1
        while part := writer.all_stored(last, _PORTION):
            yield part
            last = part[-1].docid
        return
    chosen = docids.to_array()
    for start in range(0, len(chosen), _PORTION):
        yield list(writer.stored(writer.document_ids(chosen[start:start + _PORTION])).values())


def _failure(message: str) -> IndexingFailure:
    return IndexingFailure(ApiError(_CODE, message))
