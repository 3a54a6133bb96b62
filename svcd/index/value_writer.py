"""Writes the values of documents to an index file.

Edits are gathered in memory, so that a row is written once for many documents. They are written at the end of each savepoint and
transaction; the writer calls forget() on a rollback. See docs/storage.md#writing.
"""
from __future__ import annotations

import json
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from svcd.index.bitmap_blocks import BLOCK_BITS, edited_block
from svcd.index.value_groups import Key, ValueGroupWriter
from svcd.schema.field_values import FieldValues, Value, stored_form

# The encoding of field values in the tables of an index file.
#
#     value_postings    (fid, kind, value, block) -> a bitmap block of the documents, and how they spell a text
#     document_values   docid -> its values by field, as JSON: {"<fid>": [value or text as spelled, ...]}
#     value_groups      joined documents of neighbouring values: see svcd.index.value_groups
#
# Kinds are ordered: flags of a field, then numbers, then texts in their normal form. See docs/storage.md#field-values.


Postings = Mapping[tuple[int, Key], "str | None"]  # (kind, key) -> spelling, None if it equals the value

FLAG, NUMBER, TEXT = 0, 1, 2
KINDS: Mapping[type[Value], int] = {float: NUMBER, str: TEXT}
PRESENT, IS_NULL, IS_EMPTY, HAS_NUMBER, HAS_TEXT = range(5)  # flags
HAS_KIND = {float: HAS_NUMBER, str: HAS_TEXT}

# The documents of a row spell the text in different ways, which are read from document_values. No value is spelled "".
MIXED = ""

_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_EXACT_INTEGERS = 1e15
_PRESENT, _HAS_NUMBER, _HAS_TEXT = ((FLAG, flag) for flag in (PRESENT, HAS_NUMBER, HAS_TEXT))
_quoted = json.encoder.encode_basestring


def value_key(value: Value) -> Key:
    """Return the key of a value in value_postings; keys of one kind are ordered like their values."""
    if isinstance(value, str):
        return value
    bits: int = struct.unpack(">Q", struct.pack(">d", value))[0]
    return (bits ^ (_ALL if bits & _SIGN else _SIGN)).to_bytes(8, "big")


def value_of(found: Key) -> Value:
    """Return the value of a key: the inverse of value_key()."""
    if isinstance(found, bytes):
        bits = int.from_bytes(found, "big")
        number: float = struct.unpack(">d", (bits ^ (_SIGN if bits & _SIGN else _ALL)).to_bytes(8, "big"))[0]
        return number
    assert isinstance(found, str)
    return found


def posting_entries(entry: FieldValues) -> Postings:
    """Return the postings of a document in a field."""
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
    """Return the row of document_values for a document; None without values. arrays: json_array() by field number."""
    return "{" + ",".join([f'"{fid}":{array}' for fid, array in arrays.items()]) + "}" if arrays else None


def json_array(entry: FieldValues) -> str:
    """Return the JSON array of a field; null and "" encode the flags, as neither is a value."""
    texts = ["null"] * entry.is_null + ['""'] * entry.is_empty
    texts += [_number(value) if spelling is None else _quoted(spelling) for value, spelling in entry.values.items()]
    if entry.has_both_zeros:
        texts += [_number(-value) for value in entry.values if value == 0.0]
    return f"[{','.join(texts)}]"


def _number(number: Value) -> str:
    is_short = isinstance(number, float) and number.is_integer() and abs(number) < _EXACT_INTEGERS and number != 0
    return str(int(number)) if is_short else json.dumps(number)


def stored_values(array: Iterable[float | int | str | None]) -> FieldValues:
    """Return the values of a document in a field, decoded from its row of document_values."""
    entry = FieldValues()
    for each in array:
        if isinstance(each, str) and each:
            entry.values[stored_form(each)] = each
        elif each is None:
            entry.is_null = True
        elif each == "":
            entry.is_empty = True
        else:
            number = float(each)
            entry.has_both_zeros |= number == 0 and number in entry.values
            entry.values[number] = None
    return entry


def rows_of(text: str) -> dict[int, FieldValues]:
    """Return field number -> values of the document, decoded from its row of document_values."""
    return {int(fid): stored_values(array) for fid, array in json.loads(text).items()}


# Edits gathered before they are written: some 10 MB; then few rows are written twice in a batch.
_MOST_GATHERED = 150_000
_ROWS_AT_ONCE = 500
_NOTHING_ADDED = "\0"  # only removed documents, so the spelling is open

_Row = tuple[int, int, Key, int]
# The edits of one field in one block, by (kind, key): a list of the spelling, then the docids in the order of edits, ~docid for a
# removed document.
RowEdits = dict[tuple[int, Key], list[Any]]


def _add_edits(edits: RowEdits, key: tuple[int, Key], edit: list[Any]) -> bool:
    """Return whether these are the first edits of the row."""
    held = edits.setdefault(key, edit)
    if held is edit:
        return True
    held += edit[1:]
    if held[0] != edit[0]:
        held[0] = _agreed(held[0], edit[0])
    return False


def _agreed(known: str | None, spelling: str | None) -> str | None:
    return known if spelling == _NOTHING_ADDED else spelling if known in (_NOTHING_ADDED, spelling) else MIXED


class ValueWriter:
    """Writes through a connection that is inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._groups = ValueGroupWriter(connection, self._keys_of)
        self.changed_rows = 0  # of value_postings, by documents that change
        self.forget()

    def _keys_of(self, docid: int, fid: int, kind: int) -> list[Key]:
        """Return the keys of the values of a kind that a document has in a field, from its row of document_values."""
        for (text,) in self._connection.execute("SELECT field_values FROM document_values WHERE docid = ?", (docid,)):
            entry = stored_values(json.loads(text).get(str(fid), ()))
            return [value_key(value) for value in entry.each() if KINDS[type(value)] == kind]
        return []

    def forget(self) -> None:
        """Discard the gathered edits."""
        self._groups.forget()
        self._forget_edits()

    def _forget_edits(self) -> None:
        self._edits: defaultdict[tuple[int, int], RowEdits] = defaultdict(dict)  # by field number and block
        self._gathered = 0

    def change(self, docid: int, before: Mapping[int, Postings], after: Mapping[int, Postings]) -> None:
        """Note a document whose values of some fields change. before, after: its postings, by field number."""
        for fid in before.keys() | after.keys():
            edits = self._edits[fid, docid >> BLOCK_BITS]
            old, new = before.get(fid, {}), after.get(fid, {})
            for key in old.keys() - new.keys():
                self.changed_rows += _add_edits(edits, key, [_NOTHING_ADDED, ~docid])
            for key, spelling in new.items():
                if key not in old or old[key] != spelling:
                    self.changed_rows += _add_edits(edits, key, [spelling, docid])
            self._gathered += len(old) + len(new)
        if self._gathered > _MOST_GATHERED:
            self._flush()

    def add(self, added: Mapping[int, Mapping[int, RowEdits]]) -> None:
        """Note the values of new documents, by block and field number. Keeps the lists."""
        for block, fields in added.items():
            for fid, rows in fields.items():
                edits = self._edits[fid, block]
                for key, edit in rows.items():
                    _add_edits(edits, key, edit)
                    self._gathered += len(edit) - 1
        if self._gathered > _MOST_GATHERED:
            self._flush()

    def write_rows(self, rows: Iterable[tuple[int, Mapping[int, str]]]) -> None:
        """Write document_values. rows: (docid, json_array() of all its fields), {} for a document without values."""
        texts = [(docid, row_text(arrays)) for docid, arrays in rows]
        self._connection.executemany("DELETE FROM document_values WHERE docid = ?",
                                     [(docid,) for docid, text in texts if text is None])
        self._connection.executemany("INSERT OR REPLACE INTO document_values(docid, field_values) VALUES (?, ?)",
                                     [row for row in texts if row[1] is not None])

    def save(self) -> None:
        """Write the gathered edits, and the groups of all values written since the last call."""
        self._flush()
        self._groups.write()

    def _flush(self) -> None:
        """Write the gathered edits in the order of rows, in portions; each edit is dropped once it is written."""
        gathered = self._edits
        self._forget_edits()
        for fid, block in sorted(gathered):
            edits = gathered.pop((fid, block))
            for kind, rows in groupby(sorted(edits), itemgetter(0)):
                while portion := list(islice(rows, _ROWS_AT_ONCE)):
                    of_values = {row[1]: edits.pop(row) for row in portion}
                    self._write(fid, kind, block, of_values)
                    if kind != FLAG:
                        self._groups.note(fid, kind, {key: docids for key, (_, *docids) in of_values.items()})

    def _write(self, fid: int, kind: int, block: int, edits: Mapping[Key, list[Any]]) -> None:
        emptied: list[_Row] = []
        written: list[tuple[int, int, Key, int, bytes, str | None]] = []
        # One statement takes a quarter of the time of one statement per row.
        stored = {value: (docids, spelling) for value, docids, spelling in self._connection.execute(
            "SELECT value, docids, spelling FROM value_postings WHERE fid = ? AND kind = ? AND value IN "
            f"({','.join('?' * len(edits))}) AND block = ?", (fid, kind, *edits, block))}
        for value, (added, *docids) in edits.items():
            known, spelling = stored.get(value, (None, _NOTHING_ADDED))
            row = (fid, kind, value, block)
            if edited := edited_block(known, docids):
                written.append((*row, edited, _agreed(spelling, added)))
            else:
                emptied.append(row)
        self._connection.executemany("DELETE FROM value_postings WHERE fid = ? AND kind = ? AND value = ? AND block = ?", emptied)
        self._connection.executemany("INSERT OR REPLACE INTO value_postings(fid, kind, value, block, docids, spelling) "
                                     "VALUES (?, ?, ?, ?, ?, ?)", written)

    def clear(self) -> None:
        """Delete all values of all documents."""
        self.forget()
        self._groups.clear()
        self._connection.execute("DELETE FROM value_postings")
        self._connection.execute("DELETE FROM document_values")

    def drop_fields(self, fids: Iterable[int]) -> None:
        """Delete the postings of some fields; document_values is not changed."""
        dropped = list(fids)
        self._groups.drop_fields(dropped)
        self._connection.executemany("DELETE FROM value_postings WHERE fid = ?", [(fid,) for fid in dropped])
