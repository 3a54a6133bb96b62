"""Uploads: turns a stream of JSON, NDJSON or CSV into a file with one JSON object per line.

The stream is never in memory as a whole. The file is synced to disk before its path is returned, and removed after an
error (docs/http.md#json-bodies).
"""
from __future__ import annotations

import codecs
import os
import re
import uuid
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple, NoReturn
from zlib import crc32

from svcd.base import json_text
from svcd.base.errors import ApiError
from svcd.base.json_text import JsonError
from svcd.http.message import media_type
from svcd.index.connections import sync_folder
from svcd.validation.messages import name_list

# JSON and NDJSON: cut the stream into documents and check each, holding only a window of it. The C scanner of Python steps
# from value to value. When it fails, or when a window contains a text that serde_json reads differently, the exact scanner of
# svcd.base.json_text decides: clients expect the errors of serde_json.

_BLANK = re.compile(r"[ \t\n\r]*")
# A line end in a valid document is between tokens: inside a string it would be an error.
_LINE_END = re.compile(r"[\r\n][ \t\r\n]*")
# Characters before the next document on the fast path.
_NEXT_OBJECT = re.compile(r"[ \t\n\r]*(?=\{)").match
_NEXT_ITEM = re.compile(r"[ \t\n\r]*,[ \t\n\r]*(?=\{)").match
_PIECE = 1 << 16  # characters
_LARGE = 1 << 20  # documents of more characters are scanned without building their values
_scan = json_text.quick.scan_once  # type: ignore[attr-defined]  # each decoder has it, but its stubs do not


class NotDocuments(ValueError):
    """The JSON is well-formed, but a value that should be a document is not an object."""


class _Window:
    """The part of the stream that is in memory, and its place in the stream.

    Bytes that are not UTF-8 are kept as surrogates, so that they can be found and restored.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.text = ""
        self.at = 0
        self._chunks: Iterator[bytes | None] = chain(chunks, (None,))
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        self._is_read = False
        self._ahead, self._ahead_at = "", 0  # text after the window that was read already
        self._lines = 0  # line ends before the text
        self._columns = 0  # bytes between the last of them and the text
        self._is_shallow = False  # found for this text

    @property
    def is_last(self) -> bool:
        """Whether the stream ends with the window."""
        return self._is_read and not self._ahead

    def more(self) -> bool:
        """Drop the text before `at` and read at least as much as is kept; False at the end of the stream."""
        self._lines, self._columns = self._place(self.at)
        kept = len(self.text) - self.at
        pieces, received = [self.text[self.at:]], 0
        while not self.is_last and received <= kept:
            pieces.append(self._next_piece(max(kept, _PIECE)))
            received += len(pieces[-1])
        self.text, self.at, self._is_shallow = "".join(pieces), 0, False
        return received > 0

    def _next_piece(self, size: int) -> str:
        if not self._ahead:
            chunk = next(self._chunks)
            self._is_read = chunk is None
            return self._decode(chunk or b"", self._is_read)
        piece = self._ahead[self._ahead_at:self._ahead_at + size]
        self._ahead_at += size
        if self._ahead_at >= len(self._ahead):
            self._ahead, self._ahead_at = "", 0
        return piece

    def narrow(self) -> None:
        """Drop the text before `at`, and put back text far after it: a window that grew for one long document is too wide for
        the next documents."""
        self._lines, self._columns = self._place(self.at)
        end = self.at + _PIECE
        if len(self.text) > end:
            self._ahead, self._ahead_at = self.text[end:] + self._ahead[self._ahead_at:], 0
        self.text, self.at, self._is_shallow = self.text[self.at:end], 0, False

    def next_token(self) -> str:
        """Skip blanks. Return the next character, or "" at the end of the window."""
        self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]  # matches anywhere
        return self.text[self.at:self.at + 1]

    def encoded(self, start: int, end: int | None = None) -> bytes:
        """The bytes of a part of the text."""
        return self.text[start:end].encode("utf-8", "surrogateescape")

    def is_shallow(self) -> bool:
        """Return whether the text from `at` on is not nested too deeply for the C scanner; True holds for all later places."""
        self._is_shallow = self._is_shallow or not json_text.is_too_deep(self.encoded(self.at))
        return self._is_shallow

    def _place(self, at: int) -> tuple[int, int]:
        """(number of line ends before a place of the text, bytes since the last line end)."""
        count = self.text.count("\n", 0, at)
        if not count:
            return self._lines, self._columns + len(self.encoded(0, at))
        return self._lines + count, len(self.encoded(self.text.rfind("\n", 0, at) + 1, at))

    def shifted(self, error: JsonError, start: int) -> JsonError:
        """An error in the text from `start` on, with its place in the stream."""
        return error.shifted(*self._place(start))

    def fail(self, message: str) -> NoReturn:
        """Raise a JsonError at the character at `at`, which serde_json has read, or at the end."""
        lines, columns = self._place(self.at)
        raise JsonError(message, lines + 1, columns + (self.at < len(self.text)))


class _Reader:
    """Takes values from a window; finished documents leave it as lines, window by window."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.window = _Window(chunks)
        self._spans: list[tuple[int, int]] = []

    def token(self) -> Iterator[list[str]]:
        """Step to the next token of the stream; yields the documents that had to leave the window."""
        while not self.window.next_token():
            yield self.lines()
            if not self.window.more():
                return

    def take(self, next_one: Callable[[str, int], re.Match[str] | None]) -> None:
        """Take documents with the C scanner, as long as it reads them without an error. Uploads spend most of their time here."""
        text, at = self.window.text, self.window.at
        if len(text) - at > _LARGE:
            return
        if not self.window.is_shallow():  # this text has an error: read a part before the place where it becomes too deep
            end = len(text)
            while json_text.is_too_deep(self.window.encoded(at, end)):
                end = (at + end) // 2
            text = text[:end]
        try:
            while match := next_one(text, at):
                start = match.end()
                _, at = _scan(text, start)
                self._spans.append((start, at))
        except (ValueError, StopIteration):
            pass  # document() finds the error, with its position
        self.window.at = at

    def document(self, *, skim: bool) -> Iterator[list[str]]:
        """Take the document that begins here; yields like `token`."""
        while (end := self._end(skim)) is None:
            yield self.lines()
            # Read more of the value; of an object at least up to a closing brace, since scanning it again is expensive.
            window = self.window
            is_object = window.text.startswith("{", window.at)
            while True:
                seen = len(window.text) - window.at
                if not window.more() or not is_object or window.text.find("}", seen) >= 0:
                    break
        if not self.window.text.startswith("{", self.window.at):
            raise NotDocuments
        self._spans.append((self.window.at, end))
        self.window.at = end
        if end > _LARGE:
            lines = self.lines()
            self.window.narrow()
            yield lines

    def _end(self, skim: bool) -> int | None:
        """The end of the value at the place of the window; None if the window ends inside the value.

        Raises the same errors as the exact scanner.
        """
        window = self.window
        # The decoded value of a large document would take many times its size.
        if len(window.text) - window.at <= _LARGE and window.is_shallow():
            try:
                end: int = _scan(window.text, window.at)[1]
                return end
            except (ValueError, StopIteration):
                pass
        rest = window.encoded(window.at)
        try:
            size = json_text.value_end(rest, skim=skim)
        except JsonError as error:
            if error.index >= len(rest) and not window.is_last:  # the window only ended too early
                return None
            raise window.shifted(error, window.at) from None
        return window.at + (size if window.text.isascii() else len(rest[:size].decode("utf-8", "surrogateescape")))

    def lines(self) -> list[str]:
        """The documents taken since the last call, each on one line."""
        spans, self._spans = self._spans, []
        text = self.window.text
        if spans and self._is_suspicious(text[spans[0][0]:spans[-1][1]]):
            for start, end in spans:
                try:
                    json_text.value_end(self.window.encoded(start, end), skim=True)
                except JsonError as error:
                    raise self.window.shifted(error, start) from None
        documents = [text[start:end] for start, end in spans]
        return [_LINE_END.sub("", text) if "\n" in text or "\r" in text else text for text in documents]

    @staticmethod
    def _is_suspicious(text: str) -> bool:
        """True if the C scanner may have accepted something that serde_json rejects."""
        try:
            return json_text.has_odd_numbers(text.encode()) or json_text.has_lone_surrogate(text)
        except UnicodeEncodeError:
            return True


def ndjson_documents(chunks: Iterator[bytes]) -> Iterator[list[str]]:
    """Documents of a stream of objects separated by blanks, some at a time.

    Raises JsonError with the place in the stream, NotDocuments for a value that is not an object.
    """
    reader = _Reader(chunks)
    while True:
        reader.take(_NEXT_OBJECT)
        yield from reader.token()
        if not reader.window.next_token():
            return
        yield from reader.document(skim=True)


def json_documents(chunks: Iterator[bytes]) -> Iterator[list[str]]:
    """Documents of one JSON text, an object or a list of objects; otherwise like `ndjson_documents`."""
    reader = _Reader(chunks)
    yield from reader.token()
    window = reader.window
    first = window.next_token()
    if first == "[":
        yield from _list_items(reader)
    else:
        yield from reader.document(skim=False)
    yield from reader.token()
    if window.next_token():
        window.fail(json_text.TRAILING_CHARACTERS)
    yield reader.lines()


def _list_items(reader: _Reader) -> Iterator[list[str]]:
    """The documents of a list whose opening bracket comes next; checks are in the order of serde_json."""
    window = reader.window
    window.at += 1
    yield from reader.token()
    token = window.next_token() or window.fail(json_text.EOF_LIST)
    while token != "]":
        yield from reader.document(skim=True)
        reader.take(_NEXT_ITEM)
        yield from reader.token()
        token = window.next_token() or window.fail(json_text.EOF_LIST)
        if token == ",":
            window.at += 1
            yield from reader.token()
            token = window.next_token()
            if not token:
                window.fail(json_text.EOF_VALUE)
            if token == "]":
                window.fail(json_text.TRAILING_COMMA)
        elif token != "]":
            window.fail(json_text.LIST_COMMA)
    window.at += 1


JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"
CONTENT_TYPES = (JSON, NDJSON, CSV)
_NAMES = {JSON: "json", NDJSON: "ndjson", CSV: "csv"}
_ACCEPTED = f"Accepted values for the Content-Type header are: {name_list(CONTENT_TYPES)}"

Documents = Iterator[list[str]]


class Payload(NamedTuple):
    """A received upload. path: one JSON object a line; bytes, checksum: size and CRC-32 of that file."""

    path: Path
    documents: int
    bytes: int
    checksum: int


def payload_format(content_type: str | None, csv_delimiter: str | None) -> str:
    """The content type of an upload without its parameters.

    Raises missing_content_type, invalid_content_type.
    """
    if content_type is None:
        raise ApiError("missing_content_type", f"A Content-Type header is missing. {_ACCEPTED}")
    essence = media_type(content_type)
    if essence not in CONTENT_TYPES:
        named = essence if "/" in essence else content_type
        raise ApiError("invalid_content_type", f"The Content-Type `{named}` is invalid. {_ACCEPTED}")
    if csv_delimiter is not None and essence != CSV:
        only = "The csv delimiter can only be used with the Content-Type `text/csv`."
        message = f"The Content-Type `{essence}` does not support the use of a csv delimiter. {only}"
        raise ApiError("invalid_content_type", message)
    return essence


def receive(chunks: Iterator[bytes], content_type: str, folder: Path, *, csv_delimiter: str | None = None) -> Payload:
    """Write the documents of an upload to a fresh file in the folder, durably.

    content_type: one of CONTENT_TYPES. Raises missing_payload, malformed_payload, and the errors of reading the chunks.
    """
    documents = documents_in(_not_empty(chunks, content_type), content_type, csv_delimiter)
    path = folder / str(uuid.uuid4())
    checksum = 0

    def write(part: bytes) -> None:
        nonlocal checksum
        checksum = crc32(part, checksum)
        file.write(part)

    try:
        with path.open("wb") as file:
            count = _write(documents, write, content_type)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        sync_folder(folder)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Payload(path, count, size, checksum)


def _not_empty(chunks: Iterator[bytes], content_type: str) -> Iterator[bytes]:
    is_empty = True
    for chunk in chunks:
        is_empty = is_empty and not chunk
        yield chunk
    if is_empty:
        raise ApiError("missing_payload", f"A {_NAMES[content_type]} payload is missing.")


def documents_in(chunks: Iterator[bytes], content_type: str, csv_delimiter: str | None = None) -> Documents:
    """The documents of a body, some at a time as JSON texts. Raises JsonError, NotDocuments, CsvError: all ValueError."""
    if content_type == CSV:
        from svcd.api.csv_reader import csv_documents  # csv is a heavy import that few daemons need

        return csv_documents(chunks, csv_delimiter or ",")
    read: Callable[[Iterator[bytes]], Documents] = json_documents if content_type == JSON else ndjson_documents
    return read(chunks)


def _write(documents: Documents, write: Callable[[bytes], None], content_type: str) -> int:
    """Write lines. Return their number."""
    count = 0
    try:
        for lines in documents:
            count += len(lines)
            if lines:  # join() does not copy a single line, which may be very long
                write("\n".join(lines).encode())
                write(b"\n")
        return count
    except (JsonError, NotDocuments) as error:
        cause = str(error) if isinstance(error, JsonError) else "data are neither an object nor a list of objects"
        reason = f"Couldn't serialize document value: {cause}"
    except ValueError as error:  # CsvError; its module is not loaded for JSON
        if content_type != CSV:
            raise
        raise ApiError("malformed_payload", f"The `csv` payload provided is malformed: `{error}`.") from None
    raise ApiError("malformed_payload", f"The `{_NAMES[content_type]}` payload provided is malformed. `{reason}`.")
