"""Which documents hold a word that begins with a letter, field by field.

FTS5 puts such a set together from the thousands of words that begin so, and whoever types asks for it with each new
word. Knows the rows of these sets, one per block of docids; refuses to know how the words of a document are found.
Characters of scripts without an alphabet begin few words each, and have no sets.
"""
from __future__ import annotations

import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from svcd.base.bitmaps import DocIds, from_docids, to_docids

BLOCK = 1 << 13
_BLOCK_BYTES = BLOCK >> 3
# Here the scripts of China, Japan and Korea begin.
_NO_LETTER = "\u2e80"
# Some 5 MB of them, those of about 5,000 documents.
_MOST_GATHERED = 150_000
# The first byte of a row: bits, or a list of two bytes a document where that is shorter.
_BITS, _LIST = b"b", b"l"

Letters = Mapping[int, set[str]]  # column -> the first characters of the words of a field
# column -> letter -> places in their order, ~place for a document that has it no more
_Columns = defaultdict[int, defaultdict[str, list[int]]]

_first = itemgetter(0)


def first_letters(positions: Iterable[str]) -> set[str]:
    """The first characters of the words of a field, "" being a hole."""
    return set(map(_first, filter(None, positions)))


def has_prefix_postings(prefix: str) -> bool:
    """Is there a set of the words that begin so?"""
    return len(prefix) == 1 and prefix < _NO_LETTER


class PrefixPostingWriter:
    """Keeps the table in step with documents, in the transaction of the index writer.

    What is gathered is written at the end of each savepoint and transaction, and forgotten when one is undone.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.forget()

    def forget(self) -> None:
        """What was gathered is not to be written."""
        self._edits: defaultdict[int, _Columns] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))  # by block
        self._gathered = 0

    def change(self, docid: int, before: Letters, after: Letters) -> None:
        """The words of a document's fields began with these letters, and begin with those."""
        block, place = divmod(docid, BLOCK)
        columns = self._edits[block]
        for column, found in after.items():
            for edits in map(columns[column].__getitem__, found):
                edits.append(place)
            self._gathered += len(found)
        for column, known in before.items():
            for letter in known - after.get(column, set()):
                columns[column][letter].append(~place)
            self._gathered += len(known)
        if self._gathered > _MOST_GATHERED:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        gathered = [(letter, column, block, edits) for block, columns in self._edits.items()
                    for column, by_letter in columns.items() for letter, edits in by_letter.items()
                    if has_prefix_postings(letter)]
        self.forget()
        for *key, edits in sorted(gathered):
            row = self._connection.execute("SELECT docids FROM prefix_postings WHERE letter = ? AND fts_column = ? AND block = ?",
                                           key).fetchone()
            bits = _changed(_bits(row[0]) if row else 0, edits)
            if bits:
                self._connection.execute("INSERT OR REPLACE INTO prefix_postings(letter, fts_column, block, docids) "
                                         "VALUES (?, ?, ?, ?)", (*key, _row(bits)))
            else:
                self._connection.execute("DELETE FROM prefix_postings WHERE letter = ? AND fts_column = ? AND block = ?", key)

    def clear(self) -> None:
        """No document has words any more."""
        self.forget()
        self._connection.execute("DELETE FROM prefix_postings")


def has_rows(connection: sqlite3.Connection, letter: str) -> bool:
    """Does any word begin with a letter for which is_kept()?"""
    return connection.execute("SELECT 1 FROM prefix_postings WHERE letter = ? LIMIT 1", (letter,)).fetchone() is not None


def read_prefix_postings(connection: sqlite3.Connection, letter: str, column: int | None) -> DocIds:
    """The documents with a word that begins with a letter for which is_kept(), in the field of a column or in any."""
    in_column, values = ("", (letter,)) if column is None else ("AND fts_column = ?", (letter, column))
    blocks: dict[int, DocIds] = {}
    for block, row in connection.execute(f"SELECT block, docids FROM prefix_postings WHERE letter = ? {in_column}", values):
        blocks[block] = blocks.get(block, 0) | _bits(row)
    whole = bytearray((max(blocks, default=-1) + 1) * _BLOCK_BYTES)
    for block, bits in blocks.items():
        whole[block * _BLOCK_BYTES:(block + 1) * _BLOCK_BYTES] = bits.to_bytes(_BLOCK_BYTES, "little")
    return int.from_bytes(whole, "little")


def _changed(bits: DocIds, edits: Sequence[int]) -> DocIds:
    if min(edits) >= 0:
        return bits | from_docids(edits)
    held = dict.fromkeys(to_docids(bits))
    for edit in edits:
        if edit >= 0:
            held[edit] = None
        else:
            held.pop(~edit, None)
    return from_docids(list(held))


def _row(bits: DocIds) -> bytes:
    size = (bits.bit_length() + 7) >> 3
    if size <= 2 * bits.bit_count():
        return _BITS + bits.to_bytes(size, "little")
    return _LIST + array("H", to_docids(bits)).tobytes()


def _bits(row: bytes) -> DocIds:
    if row[:1] == _BITS:
        return int.from_bytes(row[1:], "little")
    places = array("H")
    places.frombytes(row[1:])
    return from_docids(places)
