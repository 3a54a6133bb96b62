"""Writes the values of documents to an index file, gathered so that a row is written once for many documents.

Edits are gathered in memory and written at the end of each savepoint and transaction; the writer calls forget() on a
rollback. See docs/storage.md#writing.
"""
from __future__ import annotations

import json
import sqlite3
import struct
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from svcd.index.bitmap_blocks import BLOCK_BITS, edited_block

# The encoding of field values in the tables of an index file.
#
#     value_postings    (fid, kind, value, block) -> a bitmap block of the documents, and how they spell a text
#     document_values   docid -> its values by field, as JSON: {"<fid>": [value or text as spelled, ...]}
#
# Kinds are ordered: flags of a field, then numbers, then texts in their normal form. See docs/storage.md#field-values.


Value = float | str  # a number, or a text in its normal form
Key = int | bytes | str  # of a flag, a number, a text
Postings = Mapping[tuple[int, Key], "str | None"]  # (kind, key) -> spelling, None if it equals the value

FLAG, NUMBER, TEXT = 0, 1, 2
KINDS: Mapping[type[Value], int] = {float: NUMBER, str: TEXT}
PRESENT, IS_NULL, IS_EMPTY, HAS_NUMBER, HAS_TEXT = range(5)  # flags
HAS_KIND = {float: HAS_NUMBER, str: HAS_TEXT}

# The documents of a row spell the text in different ways, which are looked up in document_values. No value is spelled "".
MIXED = ""

_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_EXACT_INTEGERS = 1e15
_PRESENT, _HAS_NUMBER, _HAS_TEXT = ((FLAG, flag) for flag in (PRESENT, HAS_NUMBER, HAS_TEXT))
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


class FieldEntry(Protocol):
    """What a document has in a field.

    values: each value with its spelling, None for a number. has_both_zeros: does the zero among them, which is one key of
    the dictionary, stand for 0.0 and -0.0? each(): all values, both zeros included.
    """

    values: dict[Value, str | None]
    is_null: bool
    is_empty: bool
    has_both_zeros: bool

    def each(self) -> Sequence[Value]: ...


def value_key(value: Value) -> Key:
    """The key of a value in value_postings; keys of one kind are ordered as their values."""
    if isinstance(value, str):
        return value
    bits: int = struct.unpack(">Q", struct.pack(">d", value))[0]
    return (bits ^ (_ALL if bits & _SIGN else _SIGN)).to_bytes(8, "big")


def value_of(found: Key) -> Value:
    """The value of a key: the inverse of value_key()."""
    if isinstance(found, bytes):
        bits = int.from_bytes(found, "big")
        number: float = struct.unpack(">d", (bits ^ (_SIGN if bits & _SIGN else _ALL)).to_bytes(8, "big"))[0]
        return number
    assert isinstance(found, str)
    return found


def posting_entries(entry: FieldEntry) -> Postings:
    """Everything that a document has in a field."""
    found: dict[tuple[int, Key], str | None] = {_PRESENT: None}
    for value in entry.each() if entry.has_both_zeros else entry.values:
        if isinstance(value, str):
            spelling = entry.values[value]
            found[TEXT, value] = None if spelling == value else spelling
            found[_HAS_TEXT] = None
        else:
            found[NUMBER, value_key(value)] = None
            found[_HAS_NUMBER] = None
    if entry.is_null:
        found[FLAG, IS_NULL] = None
    if entry.is_empty:
        found[FLAG, IS_EMPTY] = None
    return found


def row_text(arrays: Mapping[int, str]) -> str | None:
    """The row of a document in document_values. arrays: json_array() by field number; None when there are none."""
    return "{" + ",".join([f'"{fid}":{array}' for fid, array in arrays.items()]) + "}" if arrays else None


def json_array(entry: FieldEntry) -> str:
    """The JSON array of a field; null and "" stand for the flags, as neither is a value."""
    flags: list[float | int | str | None] = [*[None] * entry.is_null, *[""] * entry.is_empty]
    return _encode(flags + [_shortest(value) if entry.values[value] is None else entry.values[value] for value in entry.each()])


def _shortest(number: Value) -> float | int | str:
    is_short = isinstance(number, float) and number.is_integer() and abs(number) < _EXACT_INTEGERS and number != 0
    return int(number) if is_short else number


class StoredFieldEntry:
    """What a document has in a field, decoded from its row of document_values."""

    def __init__(self, array: Iterable[float | int | str | None], stored_form: Callable[[str], str]) -> None:
        self.values: dict[Value, str | None] = {}
        self.is_null = self.is_empty = self.has_both_zeros = False
        for each in array:
            if isinstance(each, str) and each:
                self.values[stored_form(each)] = each
            elif each is None:
                self.is_null = True
            elif each == "":
                self.is_empty = True
            else:
                number = float(each)
                self.has_both_zeros |= number == 0 and number in self.values
                self.values[number] = None

    def each(self) -> Sequence[Value]:
        """All values."""
        if not self.has_both_zeros:
            return list(self.values)
        return [*self.values, *(-value for value in self.values if value == 0.0)]


def rows_of(text: str, stored_form: Callable[[str], str]) -> dict[int, StoredFieldEntry]:
    """fid -> what the document has in it, from its row of document_values."""
    return {int(fid): StoredFieldEntry(array, stored_form) for fid, array in json.loads(text).items()}


# Edits gathered before they are written: some 10 MB; few rows are then written twice in a batch.
_MOST_GATHERED = 150_000
_ROWS_AT_ONCE = 2000
_NOTHING_ADDED = "\0"  # no document was added whose spelling counts

_Row = tuple[int, int, Key, int]


@dataclass(slots=True)
class _Edits:
    """The edits of one row. docids: in the order of edits, ~docid for a document that is removed."""

    docids: array[int] = field(default_factory=lambda: array("i"))
    spelling: str | None = _NOTHING_ADDED

    def add(self, docid: int, spelling: str | None) -> None:
        self.docids.append(docid)
        if self.spelling != spelling:
            self.spelling = _agreed(self.spelling, spelling)


    def extend(self, docids: Sequence[int], spelling: str | None) -> None:
        self.docids.extend(docids)
        if self.spelling != spelling:
            self.spelling = _agreed(self.spelling, spelling)


def _agreed(known: str | None, spelling: str | None) -> str | None:
    return known if spelling == _NOTHING_ADDED else spelling if known in (_NOTHING_ADDED, spelling) else MIXED


class ValueWriter:
    """Writes through a connection that is inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._edits: defaultdict[_Row, _Edits] = defaultdict(_Edits)
        self._gathered = 0

    def forget(self) -> None:
        """Discard the gathered edits."""
        self._edits, self._gathered = defaultdict(_Edits), 0

    def change(self, docid: int, before: Mapping[int, Postings], after: Mapping[int, Postings]) -> None:
        """Note a document whose values of some fields change. before, after: its postings, by field number."""
        block = docid >> BLOCK_BITS
        old = {(fid, *key): spelling for fid, held in before.items() for key, spelling in held.items()}
        new = [((fid, *key), spelling) for fid, held in after.items() for key, spelling in held.items()]
        for key in old.keys() - {key for key, _ in new} if old else ():
            self._edits[*key, block].docids.append(~docid)
        for key, spelling in new:
            if key not in old or old[key] != spelling:
                self._edits[*key, block].add(docid, spelling)
        self._gathered += len(old) + len(new)
        if self._gathered > _MOST_GATHERED:
            self.flush()

    def add(self, docids: Sequence[int], added: Mapping[int, Mapping[tuple[int, Key], Sequence[Any]]]) -> None:
        """Note the values of new documents. added: by field number and (kind, key) the spelling, then places in `docids`."""
        blocks = [docid >> BLOCK_BITS for docid in docids]
        first, is_one_block = blocks[0], len(set(blocks)) == 1
        for fid, postings in added.items():
            for key, (spelling, *places) in postings.items():
                self._gathered += len(places)
                if is_one_block:
                    self._edits[fid, *key, first].extend([docids[place] for place in places], spelling)
                    continue
                for place in places:
                    self._edits[fid, *key, blocks[place]].add(docids[place], spelling)
        if self._gathered > _MOST_GATHERED:
            self.flush()

    def write_rows(self, rows: Iterable[tuple[int, Mapping[int, str]]]) -> None:
        """Write document_values. rows: (docid, json_array() of all its fields); {} for a document without any."""
        texts = [(docid, row_text(arrays)) for docid, arrays in rows]
        self._connection.executemany("DELETE FROM document_values WHERE docid = ?",
                                     [(docid,) for docid, text in texts if text is None])
        self._connection.executemany("INSERT OR REPLACE INTO document_values(docid, field_values) VALUES (?, ?)",
                                     [row for row in texts if row[1] is not None])

    def flush(self) -> None:
        """Write the gathered edits in the order of rows, a portion at a time; each is dropped as it is written."""
        gathered = self._edits
        self.forget()
        rows = sorted(gathered)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            self._write([(row, gathered.pop(row)) for row in rows[start:start + _ROWS_AT_ONCE]])

    def _write(self, edits: Iterable[tuple[_Row, _Edits]]) -> None:
        emptied: list[_Row] = []
        written: list[tuple[int, int, Key, int, bytes, str | None]] = []
        for row, edit in edits:
            known, spelling = self._connection.execute(
                "SELECT docids, spelling FROM value_postings WHERE fid = ? AND kind = ? AND value = ? AND block = ?", row,
            ).fetchone() or (None, _NOTHING_ADDED)
            block = edited_block(known, edit.docids)
            if block:
                written.append((*row, block, _agreed(spelling, edit.spelling)))
            else:
                emptied.append(row)
        self._connection.executemany("DELETE FROM value_postings WHERE fid = ? AND kind = ? AND value = ? AND block = ?", emptied)
        self._connection.executemany("INSERT OR REPLACE INTO value_postings(fid, kind, value, block, docids, spelling) "
                                     "VALUES (?, ?, ?, ?, ?, ?)", written)

    def clear(self) -> None:
        """Delete all values of all documents."""
        self.forget()
        self._connection.execute("DELETE FROM value_postings")
        self._connection.execute("DELETE FROM document_values")

    def drop_fields(self, fids: Iterable[int]) -> None:
        """Delete the postings of some fields; document_values is left as it is."""
        self._connection.executemany("DELETE FROM value_postings WHERE fid = ?", [(fid,) for fid in fids])
