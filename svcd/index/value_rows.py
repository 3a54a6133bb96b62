"""How values of fields stand in the tables of an index file.

    facets       (fid, kind, value, block) -> the documents in a block that have it; and the text as they spell it
    document_values   docid -> its values by field, as JSON: {"<fid>": [value or text as spelled, ...]}

Knows the forms of keys and rows; refuses to know documents and SQL. The kinds stand in the order of values: flags
of a field, then numbers, then texts in their normal form.
"""
from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

Value = float | str  # a number, or a text in its normal form
Key = int | bytes | str  # of a flag, a number, a text

FLAG, NUMBER, TEXT = 0, 1, 2
KINDS: Mapping[type[Value], int] = {float: NUMBER, str: TEXT}
PRESENT, IS_NULL, IS_EMPTY, HAS_NUMBER, HAS_TEXT = range(5)  # flags
HAS_KIND = {float: HAS_NUMBER, str: HAS_TEXT}

# Documents of one value and block spell it differently: to be looked up in their rows. No text is spelled so.
MIXED = ""

_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_EXACT_INTEGERS = 1e15


class FieldEntry(Protocol):
    """What a document has under a field. values: each one with its spelling, None for a number.

    has_both_zeros: does the zero among them stand for 0.0 and for -0.0? each(): all values, these two apart.
    """

    values: dict[Value, str | None]
    is_null: bool
    is_empty: bool
    has_both_zeros: bool

    def each(self) -> Sequence[Value]: ...


def value_key(value: Value) -> Key:
    """Under which a value is found: keys of one kind ascend as the values do."""
    if isinstance(value, str):
        return value
    bits: int = struct.unpack(">Q", struct.pack(">d", value))[0]
    return (bits ^ (_ALL if bits & _SIGN else _SIGN)).to_bytes(8, "big")


def value_of(found: Key) -> Value:
    """The value of a key of a number or text."""
    if isinstance(found, bytes):
        bits = int.from_bytes(found, "big")
        number: float = struct.unpack(">d", (bits ^ (_SIGN if bits & _SIGN else _ALL)).to_bytes(8, "big"))[0]
        return number
    assert isinstance(found, str)
    return found


def posting_entries(fid: int, held: FieldEntry) -> list[tuple[tuple[int, int, Key], str | None]]:
    """((fid, kind, key), spelling or None if it is spelled like the value) of all that a document has under a field."""
    found: list[tuple[tuple[int, int, Key], str | None]] = [((fid, FLAG, PRESENT), None)]
    flags = set()
    for value in held.each():
        if isinstance(value, str):
            spelling = held.values[value]
            flags.add(HAS_TEXT)
            found.append(((fid, TEXT, value), None if spelling == value else spelling))
        else:
            flags.add(HAS_NUMBER)
            found.append(((fid, NUMBER, value_key(value)), None))
    if held.is_null:
        flags.add(IS_NULL)
    if held.is_empty:
        flags.add(IS_EMPTY)
    found += [((fid, FLAG, flag), None) for flag in flags]
    return found


def row_text(values: Mapping[int, FieldEntry]) -> str | None:
    """The row of a document, None when it has none of the fields."""
    if not values:
        return None
    return json.dumps({str(fid): _listed(held) for fid, held in values.items()}, ensure_ascii=False, separators=(",", ":"))


def _listed(held: FieldEntry) -> list[float | int | str | None]:
    """null and "" stand for the flags: neither is a value."""
    flags: list[float | int | str | None] = [*[None] * held.is_null, *[""] * held.is_empty]
    return flags + [_shortest(value) if held.values[value] is None else held.values[value] for value in held.each()]


def _shortest(number: Value) -> float | int | str:
    is_short = isinstance(number, float) and number.is_integer() and abs(number) < _EXACT_INTEGERS and number != 0
    return int(number) if is_short else number


class StoredFieldEntry:
    """What a document has under a field, read from its row."""

    def __init__(self, listed: Iterable[float | int | str | None], stored_form: Callable[[str], str]) -> None:
        self.values: dict[Value, str | None] = {}
        self.is_null = self.is_empty = self.has_both_zeros = False
        for each in listed:
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
    """fid -> what the document has under it, from the text of its row."""
    return {int(fid): StoredFieldEntry(listed, stored_form) for fid, listed in json.loads(text).items()}
