"""The analysis of documents: from a document to the words and values of it that an index stores.

Analysis does it in this process. AnalysisProcess has another process do it (svcd.tasks.analysis_process), which takes
about as long as writing: for a large batch both run side by side. See docs/tasks-and-batches.md#analysis-process.

    -> settings as JSON, then portions: lists of documents as JSON texts
    <- for each portion: its EncodedDocuments

Each message is one value in the form of `marshal`, after its length. The process has nothing to say about errors: it ends, and
the portion is analyzed here, where the same error has its place.
"""
from __future__ import annotations

import json
import marshal
import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from svcd.index.encoded_document import EncodedDocuments, encoded_documents
from svcd.schema.documents import terms_by_attribute
from svcd.schema.field_values import FieldValues, field_values, kept_fields
from svcd.schema.index_settings import IndexSettings

_MODULE = "svcd.tasks.analysis_process"
_LENGTH = struct.Struct("<Q")

DocumentText = tuple[str, "int | None"]  # JSON, docid if it is new


class Analysis:
    """Analyzes documents for an index with these settings."""

    def __init__(self, settings: IndexSettings) -> None:
        self._analyzer = settings.analyzer
        self._is_searchable = settings.searchable.__contains__
        self._locales_of = settings.locales_of
        self._is_kept = kept_fields(settings)

    def positions(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The tokens of a document's searchable attributes, by position."""
        return terms_by_attribute(document, self._analyzer, self._is_searchable, self._locales_of)

    def values(self, document: Mapping[str, Any]) -> dict[str, FieldValues]:
        """The values of a document's attributes that the settings keep, for filters, facets and sorting."""
        return field_values(document, self._is_kept)

    def encoded(self, documents: Iterable[tuple[Mapping[str, Any], int | None]]) -> EncodedDocuments:
        """Both, encoded. documents: (document, docid if it is new); {} for one that is deleted."""
        return encoded_documents((self.positions(document), self.values(document), docid) for document, docid in documents)

    def encoded_texts(self, texts: Sequence[DocumentText]) -> EncodedDocuments:
        """The same of documents that are given as JSON texts."""
        return self.encoded((json.loads(text), docid) for text, docid in texts)


class AnalysisProcessDied(RuntimeError):
    """The process ended before it had answered."""


class AnalysisProcess:
    """A process that analyzes portions of documents in the order in which they are sent.

    At most MOST_SENT portions may be on their way: those wait in the memory of the process. It ends with this process.
    """

    MOST_SENT = 3

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send(json.dumps(settings))

    def send(self, texts: Sequence[DocumentText]) -> None:
        """Send a portion of documents."""
        self._send(list(texts))

    def _send(self, message: Any) -> None:
        assert self._process.stdin
        try:
            write_message(self._process.stdin, message)
        except BrokenPipeError:  # known when the answer is read
            pass

    def receive(self) -> EncodedDocuments:
        """The oldest portion sent that has not been received yet. Raises AnalysisProcessDied."""
        assert self._process.stdout
        try:
            answer: EncodedDocuments = read_message(self._process.stdout)
        except EOFError:
            raise AnalysisProcessDied from None
        return answer

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self._process.wait()


def write_message(pipe: IO[bytes], message: Any) -> None:
    """Write a value of the basic types. Raises BrokenPipeError."""
    content = marshal.dumps(message)
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> Any:
    """The next value. Raises EOFError when there is none, or not all of it."""
    length = pipe.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(length)
    content = pipe.read(size)
    if len(content) < size:
        raise EOFError
    return marshal.loads(content)
