"""Analysis of documents: extracts the words and values that an index stores.

Analysis works in this process, AnalysisProcess in a separate process, which runs main(). Analysis takes about as long as writing,
so a large batch runs both in parallel. See docs/tasks-and-batches.md#analysis-process.

    -> settings as JSON, then portions: lists of documents as JSON texts
    <- for each portion: its EncodedDocuments

Each message is its length, then one `marshal` value. The process reports no errors: it ends, and the indexing process analyzes
the portion itself and raises the same error there.
"""
from __future__ import annotations

import fcntl
import gc
import json
import marshal
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from svcd.base import json_text
from svcd.base.machine import end_with_parent
from svcd.index.encoded_document import (
    AttributeValues, AttributeWords, EncodedDocuments, EncodedPortion, Values, attribute_values, attribute_words, encoded_values)
from svcd.schema.attributes import RESERVED
from svcd.schema.documents import searchable_values, terms_by_attribute, terms_of_values
from svcd.schema.field_values import FieldValues, field_values, kept_fields, values_of_member
from svcd.schema.index_settings import IndexSettings
from svcd.text.term_positions import TermPositionBuilder, term_position_builder

_MODULE = "svcd.tasks.analysis"
_LENGTH = struct.Struct("<Q")
_PIPE_BYTES = 1 << 20  # two answers, and the most that Linux allows any user

DocumentText = tuple[str, "int | None", bool]  # JSON, docid of a new document, whether its words differ from the stored words


class Analysis:
    """Analyzes documents for an index with these settings."""

    def __init__(self, settings: IndexSettings) -> None:
        self._analyzer = settings.analyzer
        self._is_searchable = settings.searchable.__contains__
        self._locales_of = settings.locales_of
        self._is_kept = kept_fields(settings)
        self._members: dict[str, _Member] = {}

    def positions(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The tokens of a document's searchable attributes, by position."""
        return terms_by_attribute(document, self._analyzer, self._is_searchable, self._locales_of)

    def values(self, document: Mapping[str, Any]) -> dict[str, FieldValues]:
        """The values of a document's attributes that the settings keep, for filters, facets and sorting."""
        return field_values(document, self._is_kept)

    def has_same_words(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Return whether the searchable attributes of two documents have equal values, so that the stored words stay valid."""
        values = [searchable_values(document, self._is_searchable) for document in (before, after)]
        return values[0] == values[1] and json_text.dumps(values[0]) == json_text.dumps(values[1])  # 1 == True

    def encoded(self, documents: Iterable[tuple[Mapping[str, Any], int | None, bool]]) -> EncodedDocuments:
        """Encode the words and values of documents.

        documents: (document, docid of a new one, whether its words differ from the stored words); {} for a deleted document.
        """
        portion = EncodedPortion()
        for document, docid, has_other_words in documents:
            if has_other_words:
                encoded = self._flat(document)
                if encoded is None:
                    words = {name: attribute_words(terms) for name, terms in self.positions(document).items()}
                    encoded = words, encoded_values(self.values(document))
                portion.add(*encoded, docid)
            else:
                portion.add(None, encoded_values(self.values(document)), docid)
        return portion.documents

    def _flat(self, document: Mapping[str, Any]) -> tuple[dict[str, AttributeWords], Values] | None:
        """Encode a document whose members are all scalars or arrays of scalars; None for any other document."""
        words: dict[str, AttributeWords] = {}
        values: Values = {}
        for name, value in document.items():
            member = self._members.get(name)
            if member is None:
                if len(self._members) >= _MOST_MEMBERS:
                    self._members.clear()
                builder = term_position_builder(self._analyzer) if self._is_searchable(name) else None
                member = self._members[name] = _Member(name, builder, self._locales_of(name), self._is_kept(name))
            encoded = member.encoded(value)
            if encoded is None:
                return None
            if encoded.words:
                words[name] = encoded.words
            if encoded.values:
                values[name] = encoded.values
        return words, values

    def encoded_texts(self, texts: Sequence[DocumentText]) -> EncodedDocuments:
        """Encode documents given as JSON texts."""
        return self.encoded((json.loads(text), docid, has_other_words) for text, docid, has_other_words in texts)


class _EncodedMember(NamedTuple):
    """Encoded words and values of one member of a document; None where the settings keep none, or the member has none."""

    words: AttributeWords | None
    values: AttributeValues | None


_SCALARS = frozenset((str, int, float, bool, type(None)))
_TEXTS = frozenset((str,))
# Limits of the cache: number of member names, and of values per name. Many documents share a category, a year or an author.
# Longer values (in characters, or elements) are not cached.
_MOST_MEMBERS, _MOST_VALUES = 1000, 500
_LONGEST_TEXT, _LONGEST_LIST = 60, 16


class _Member:
    """Encodes the values of one member name, and caches short values. builder: None unless the member is searchable."""

    def __init__(self, name: str, builder: TermPositionBuilder | None, locales: Sequence[str] | None, is_kept: bool) -> None:
        self._builder, self._locales, self._is_kept = builder, locales, is_kept
        self._is_reserved = name in RESERVED
        self._known: dict[Any, _EncodedMember] = {}

    def encoded(self, value: Any) -> _EncodedMember | None:
        """Encode one value; None for a value with nested attributes, and for a reserved member."""
        kind, key = type(value), value
        if kind is str:
            is_remembered = len(value) <= _LONGEST_TEXT
        elif kind is list:
            kinds = set(map(type, value))
            if not kinds <= _SCALARS:
                return None
            is_remembered = len(value) <= _LONGEST_LIST and kinds <= _TEXTS
            key = tuple(value) if is_remembered else None
        elif kind in _SCALARS:
            is_remembered = kind is int  # 1.0 and true are equal to 1
        else:
            return None
        if self._is_reserved:
            return None
        if not is_remembered:
            return self._encoded(value)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_VALUES:
                self._known.clear()
            known = self._known[key] = self._encoded(value)
        return known

    def _encoded(self, value: Any) -> _EncodedMember:
        words = values = None
        if self._builder:
            several = value if isinstance(value, list) and value else (value,)
            terms = terms_of_values(several, self._builder, self._locales)
            words = attribute_words(terms) if terms else None
        if self._is_kept:
            values = attribute_values(values_of_member(value))
        return _EncodedMember(words, values)


class AnalysisProcessDied(RuntimeError):
    """The analysis process ended before it answered."""


class AnalysisProcess:
    """A process that analyzes portions of documents, in the order in which they are sent.

    At most MOST_SENT portions may be in transit; most of them wait in the pipes. The process ends with its parent.
    """

    MOST_SENT = 4

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._process.stdin and self._process.stdout
        self._requests, self._answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        for pipe in (self._requests, self._answers):  # wide pipes: each process can continue while the other is busy
            try:
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            except (AttributeError, OSError):  # not Linux, or too many pipes: slower
                pass
        os.set_blocking(self._requests, False)  # else both processes could block in a write, and neither would read
        self._unsent = bytearray()
        self._send(json.dumps(settings))

    def send(self, texts: Sequence[DocumentText]) -> bool:
        """Send a portion of documents. Return False when the pipe is full; receive() then sends the rest."""
        self._send(list(texts))
        return not self._unsent

    def _send(self, message: Any) -> None:
        self._unsent += _packed(message)
        self._send_what_fits()

    def _send_what_fits(self) -> None:
        try:
            while self._unsent:
                del self._unsent[:os.write(self._requests, self._unsent)]
        except BlockingIOError:  # receive() sends the rest
            pass
        except BrokenPipeError:  # known when the answer is read
            self._unsent.clear()

    def receive(self) -> EncodedDocuments:
        """Return the analysis of the oldest portion that was sent and not received yet. Raises AnalysisProcessDied."""
        try:
            answer: EncodedDocuments = _unpacked(self._read)
        except EOFError:
            raise AnalysisProcessDied from None
        return answer

    def _read(self, size: int) -> bytes:
        while self._unsent:
            readable, _, _ = select.select([self._answers], [self._requests], [])
            if readable:
                break
            self._send_what_fits()
        return os.read(self._answers, size)

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()
        self._process.wait()


def _packed(message: Any) -> bytes:
    """Return the message that carries a value of the basic types."""
    content = marshal.dumps(message)
    return _LENGTH.pack(len(content)) + content


def _unpacked(read: Callable[[int], bytes]) -> Any:
    """Read the next value. read: as os.read() without the descriptor. Raises EOFError when the input ends within a value."""
    (size,) = _LENGTH.unpack(_exactly(read, _LENGTH.size))
    return marshal.loads(_exactly(read, size))


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    content = read(size)
    while len(content) < size:
        if not (more := read(size - len(content))):
            raise EOFError
        content += more
    return content


def main(parent: int) -> None:
    """Serve until the input ends. parent: pid of the indexing process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
    gc.disable()  # parsed documents hold no reference cycles
    read = partial(os.read, sys.stdin.fileno())
    try:
        analysis = Analysis(IndexSettings.of(json.loads(_unpacked(read))))
        while True:
            sys.stdout.buffer.write(_packed(analysis.encoded_texts(_unpacked(read))))
            sys.stdout.buffer.flush()
    except EOFError:
        pass


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except BrokenPipeError:  # the indexing process no longer reads the answers
        os._exit(0)
