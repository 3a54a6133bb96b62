"""Reads documents from a stream of CSV: the header names fields and their types, each record is a document.

Reading, counting and messages follow the csv crate of the reference implementation, since clients expect them: line ends
are `\\n`, `\\r` or `\\r\\n`; a quote counts at the start of a field only; an unclosed quote takes the rest. svcd also limits
a record in bytes and in fields.
"""
from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator

from svcd.api.bodies import debug_string
from svcd.base.json_text import dumps

_WINDOW_CHARACTERS = 1 << 17  # documents are yielded in portions of about this size
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = (  # White_Space of Unicode; str.strip() alone takes a few more
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003"
    "\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.ASCII | re.I)
_BOOLEANS = {"true": True, "false": False}
_I64 = range(-(2**63), 2**63)

# Without a limit, an unclosed quote would read the rest of the stream into memory.
_RECORD_BYTES = 1 << 23
csv.field_size_limit(_RECORD_BYTES)
# An index cannot store more field names.
_MAX_FIELDS = 65_535

# A line with all line ends after it, so that a stream of empty lines is a few lines.
_LINE = re.compile(rb"[^\r\n]*+[\r\n]++")


class CsvError(ValueError):
    """A malformed CSV text. Clients get the message."""


class _TooLarge(Exception):
    """A record exceeds the limit that the message names."""


class _Lines:
    """The lines of a stream, including their ends, with the place of the next record in the stream.

    Empty lines belong to the line before them; the csv module ignores them anyway.
    """

    def __init__(self, chunks: Iterator[bytes], delimiter: str) -> None:
        self._lines = _lines_of(chunks)
        self._delimiter = delimiter.encode()
        self._byte = 0
        self._line_ends = 0
        self.record_bytes = 0  # 0 when a record begins
        self.place = (1, 0)  # line and byte of the next record; the csv crate ends a record at the `\r`, before the `\n`
        self.is_broken = False  # the input contains bytes that are not UTF-8

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            text = line if self._byte else line.removeprefix(_BYTE_ORDER_MARK)
            is_first = not self.record_bytes
            self.record_bytes += len(text)
            # Both limits are checked before the csv module reads the record.
            if self.record_bytes > _RECORD_BYTES:
                raise _TooLarge(f"more than {_RECORD_BYTES} bytes; is a closing quote missing?")
            if text.count(self._delimiter) >= _MAX_FIELDS:  # perhaps in quotes
                after = b"[^%s]*+%s" % ((re.escape(self._delimiter),) * 2)
                many = re.compile(rb'(?:(?:"[^"]*+(?:""[^"]*+)*+"?+)?+' + after + rb"){%d}+" % _MAX_FIELDS)
                # Only inside quotes does a record continue in the next line.
                if many.match(text if is_first else b'"' + text):
                    raise _TooLarge(f"more than {_MAX_FIELDS} fields")
            content = len(line.rstrip(b"\r\n"))
            self.place = (self._line_ends + 1 + line.startswith(b"\n", content), self._byte + content + 1)
            self._byte += len(line)
            self._line_ends += line.count(b"\n", content)
            try:
                decoded = text.decode()
            except UnicodeDecodeError:
                self.is_broken = True
                decoded = text.decode("utf-8", "surrogateescape")
            yield decoded


def _lines_of(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Complete lines, for any division of the stream into chunks; line ends after a line may come as a separate line."""
    kept: list[bytes] = []  # the beginning of a line that is not complete
    size = 0
    for chunk in chunks:
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        lines = _LINE.findall(chunk, 0, end)
        if kept and lines:
            kept.append(lines[0])
            lines[0] = b"".join(kept)
            kept, size = [], 0
        yield from lines
        if end < len(chunk):
            kept.append(chunk[end:])
            size += len(chunk) - end
        if size > _RECORD_BYTES + len(_BYTE_ORDER_MARK):  # the record is too long already
            break
    if kept:
        yield b"".join(kept)


def csv_documents(chunks: Iterator[bytes], delimiter: str) -> Iterator[list[str]]:
    """The records of a stream as JSON objects, each on one line, some at a time. Raises CsvError."""
    records = _records(_Lines(chunks, delimiter), delimiter)
    names, readers = [], []
    for column in next(records, []):  # `name:number`, `name:boolean`, `name:string`; others are texts
        name, colon, kind = column.rpartition(":")
        is_typed = bool(colon) and kind in _TYPES
        names.append(name if is_typed else column)
        readers.append(_TYPES[kind] if is_typed else _string)
    lines: list[str] = []
    size = 0
    for number, record in enumerate(records, 1):
        values = [read(field, number) for read, field in zip(readers, record)]
        lines.append(dumps(dict(zip(names, values))))
        size += len(lines[-1])
        if size > _WINDOW_CHARACTERS:
            yield lines
            lines, size = [], 0
    yield lines


def _records(lines: _Lines, delimiter: str) -> Iterator[list[str]]:
    """All records, the header first; each must have as many fields as the header."""
    count = expected = 0
    start = lines.place
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        lines.record_bytes = 0
        try:
            record = next(reader, None)
        except _TooLarge as error:
            place = f"CSV error: record {count} (line: {start[0]}, byte: {start[1]})"
            raise CsvError(f"{place}: found record of {error}") from None
        if record is None:
            return
        if not record:  # an empty line; the next record is said to begin with it
            continue
        expected = expected or len(record)
        for number, field in enumerate(record if lines.is_broken else ()):
            try:
                field.encode()
            except UnicodeEncodeError as error:
                place = f"record {count} (line {start[0]}, field: {number}, byte: {start[1]})"
                near = len(field[:error.start].encode())
                raise CsvError(f"CSV parse error: {place}: invalid utf-8: invalid UTF-8 in field {number} near byte index {near}"
                               ) from None
        if len(record) != expected:
            lengths = f"found record with {len(record)} fields, but the previous record has {expected} fields"
            raise CsvError(f"CSV error: record {count} (line: {start[0]}, byte: {start[1]}): {lengths}")
        yield record
        count += 1
        start = lines.place


def _string(text: str, record: int) -> str | None:
    return text or None


def _number(text: str, record: int) -> int | float | None:
    trimmed = text.strip(_BLANKS)
    if not trimmed:
        return None
    if _INTEGER.fullmatch(trimmed) and len(trimmed) <= 20 and (integer := int(trimmed)) in _I64:
        return integer
    if not _FLOAT.fullmatch(trimmed):
        raise CsvError(f"Error parsing number {debug_string(text)} at line {record}: invalid float literal")
    number = float(trimmed)
    return number if math.isfinite(number) else None


def _boolean(text: str, record: int) -> bool | None:
    trimmed = text.strip(_BLANKS)
    if trimmed and trimmed not in _BOOLEANS:
        reason = "provided string was not `true` or `false`"
        raise CsvError(f"Error parsing boolean {debug_string(text)} at line {record}: {reason}")
    return _BOOLEANS.get(trimmed)


_TYPES = {"string": _string, "number": _number, "boolean": _boolean}
