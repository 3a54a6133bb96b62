"""Prefix postings: the documents that hold a word with a given first letter, by field.

Without them FTS5 would merge the postings of thousands of words, and search as you type asks for such a letter with each new
word. The table has one row per letter, FTS column and bitmap block: docs/storage.md#postings.
"""
from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter

from svcd.base.docids import DocIds
from svcd.index.bitmap_blocks import BLOCK_BITS, edited_block, joined_blocks

# From here on come the scripts of China, Japan and Korea, in which few words share a first character.
_NO_LETTER = "\u2e80"
# Edits gathered before they are written: some 5 MB, from about 5,000 documents.
_MOST_GATHERED = 150_000

Letters = Mapping[int, Collection[str]]  # column -> the first characters of the words of a field, each once
# FTS column -> letter -> docids in the order of edits, ~docid for a document that is removed
_Columns = defaultdict[int, defaultdict[str, list[int]]]

_first = itemgetter(0)


def first_letters(positions: Iterable[str]) -> set[str]:
    """Return the first characters of the words of a field by position, "" for a position gap."""
    return set(map(_first, filter(None, positions)))


def has_prefix_postings(prefix: str) -> bool:
    """Return whether the table has the words with this prefix."""
    return len(prefix) == 1 and prefix < _NO_LETTER


class PrefixPostingWriter:
    """Updates the table as documents change, in the transaction of the index writer.

    Edits are gathered and written at the end of each savepoint and transaction. The writer calls forget() on a rollback.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.changed_rows = 0  # by documents that change
        self.forget()

    def forget(self) -> None:
        """Discard the gathered edits."""
        self._edits: defaultdict[int, _Columns] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))  # by block
        self._gathered = 0

    def change(self, docid: int, before: Letters, after: Letters) -> None:
        """Note a changed document. before, after: the first letters of its words, by FTS column."""
        columns = self._edits[docid >> BLOCK_BITS]
        for column, found in after.items():
            for edits in map(columns[column].__getitem__, found):
                self.changed_rows += not edits
                edits.append(docid)
            self._gathered += len(found)
        for column, known in before.items():
            for letter in set(known).difference(after.get(column, ())):
                edits = columns[column][letter]
                self.changed_rows += not edits
                edits.append(~docid)
            self._gathered += len(known)
        if self._gathered > _MOST_GATHERED:
            self.flush()

    def add(self, added: Mapping[int, Mapping[int, Mapping[str, Sequence[int]]]]) -> None:
        """Note new documents, by block, FTS column and first letter of their words."""
        for block, columns in added.items():
            for column, docids_by_letter in columns.items():
                edits = self._edits[block][column]
                for letter, docids in docids_by_letter.items():
                    edits[letter] += docids
                    self._gathered += len(docids)
        if self._gathered > _MOST_GATHERED:
            self.flush()

    def flush(self) -> None:
        """Write the gathered edits."""
        gathered = [(letter, column, block, edits) for block, columns in self._edits.items()
                    for column, by_letter in columns.items() for letter, edits in by_letter.items()
                    if has_prefix_postings(letter)]
        self.forget()
        for *key, edits in sorted(gathered):
            row = self._connection.execute("SELECT docids FROM prefix_postings WHERE letter = ? AND fts_column = ? AND block = ?",
                                           key).fetchone()
            block = edited_block(row and row[0], edits)
            if block:
                self._connection.execute("INSERT OR REPLACE INTO prefix_postings(letter, fts_column, block, docids) "
                                         "VALUES (?, ?, ?, ?)", (*key, block))
            else:
                self._connection.execute("DELETE FROM prefix_postings WHERE letter = ? AND fts_column = ? AND block = ?", key)

    def clear(self) -> None:
        """Delete all rows."""
        self.forget()
        self._connection.execute("DELETE FROM prefix_postings")


def read_prefix_postings(connection: sqlite3.Connection, letter: str, column: int | None) -> DocIds:
    """Documents with a word that starts with a letter that has prefix postings, in one FTS column or in any field."""
    in_column, values = ("", (letter,)) if column is None else ("AND fts_column = ?", (letter, column))
    return joined_blocks(connection.execute(
        f"SELECT docids FROM prefix_postings WHERE letter = ? {in_column}", values).fetchall())
