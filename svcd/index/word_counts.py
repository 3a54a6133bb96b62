"""Word counts for BM25: the frequency of each index term in each document, and the length of each document.

The tables have rows only while a setting asks for BM25 (docs/storage.md#word-counts). Index terms, and the codes of frequencies
and lengths, are those of `svcd.schema.word_weights`; `meta` has the key of the weights under which the rows were written.
"""
from __future__ import annotations

import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from svcd.base.docids import EMPTY, DocIds, to_bytes
from svcd.index import fts
from svcd.index.bitmap_blocks import BLOCK_BITS, DOCID_BYTES, block_docids, joined_blocks
from svcd.index.read_transaction import Delta, ReadTransaction
from svcd.index.schema import COUNT_BLOCK
from svcd.schema.word_weights import LENGTHS, CountedWords, WordWeights

META_KEY = "word_weights"
# Postings gathered before they are written: some 12 MB with their terms, from about 3,000 documents.
_MOST_GATHERED = 250_000
_CODE_BITS = 8
_CODE = (1 << _CODE_BITS) - 1
_NOTHING = CountedWords({}, 0)


class WordCountWriter:
    """Updates the tables as documents change, in the transaction of the index writer.

    Edits are gathered and written at the end of each savepoint and transaction. The writer calls forget() on a rollback.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.weights: WordWeights | None = None  # None: nothing is counted
        self.forget()

    def forget(self) -> None:
        """Discard the gathered edits."""
        # By block and index term: the docid, and the new code in the lowest bits; 0 removes the document.
        self._edits: defaultdict[int, defaultdict[str, array[int]]] = defaultdict(lambda: defaultdict(lambda: array("Q")))
        self._lengths: dict[int, int] = {}
        self._gathered = 0
        self._last, self._are_new = -1, True  # whether all edits are of new documents with ascending docids

    def change(self, docid: int, before: str, after: str, names: Mapping[int, str]) -> None:
        """Note a changed document. before, after: its rows of the forward index; names: FTS column -> field."""
        self._are_new = self._are_new and not before and docid > self._last
        self._last = docid
        known, found = self._counted(before, names), self._counted(after, names)
        terms, shifted = self._edits[docid >> BLOCK_BITS], docid << _CODE_BITS
        for term, code in found.frequencies.items():
            if known.frequencies.get(term) != code:
                terms[term].append(shifted | code)
        for term in known.frequencies.keys() - found.frequencies.keys():
            terms[term].append(shifted)
        if found.length != known.length:
            self._lengths[docid] = found.length
        self._gathered += len(found.frequencies) + len(known.frequencies)
        if self._gathered > _MOST_GATHERED:
            self.flush()

    def _counted(self, forward: str, names: Mapping[int, str]) -> CountedWords:
        if self.weights is None or not forward:
            return _NOTHING
        return self.weights.count((names[column], fts.positions(row)) for column, row in fts.forward_rows(forward).items())

    def flush(self) -> None:
        """Write the gathered edits."""
        edits, lengths, are_new = self._edits, self._lengths, self._are_new
        self.forget()
        self._are_new = are_new
        for block, terms in edits.items():
            emptied: list[tuple[str, int]] = []
            self._connection.executemany(
                "INSERT OR REPLACE INTO word_frequencies(term, block, docids, codes) VALUES (?, ?, ?, ?)",
                self._edited(block, terms, emptied))
            self._connection.executemany("DELETE FROM word_frequencies WHERE term = ? AND block = ?", emptied)
        self._write_lengths(lengths)
        self._are_new = True

    def _edited(self, block: int, terms: Mapping[str, array[int]], emptied: list[tuple[str, int]]
                ) -> Iterator[tuple[str, int, bytes, bytes]]:
        """Yield the new rows of a block; put the keys of rows without documents into `emptied`."""
        for term in sorted(terms):
            added = terms[term]
            row = self._connection.execute("SELECT docids, codes FROM word_frequencies WHERE term = ? AND block = ?",
                                           (term, block)).fetchone()
            if row is None and len(added) == 1 and added[0] & _CODE:  # most terms
                yield term, block, (added[0] >> _CODE_BITS).to_bytes(DOCID_BYTES, "little"), bytes((added[0] & _CODE,))
                continue
            known, codes = (block_docids(row[0]), row[1]) if row else (array("I"), b"")
            docids = array("I", [edit >> _CODE_BITS for edit in added])
            if self._are_new and (not known or known[-1] < docids[0]):  # an import
                yield term, block, to_bytes(DocIds(known + docids)), codes + bytes([edit & _CODE for edit in added])
                continue
            counts = dict(zip(known, codes))
            counts.update((edit >> _CODE_BITS, edit & _CODE) for edit in added)
            left = sorted(docid for docid, code in counts.items() if code)
            if left:
                yield term, block, to_bytes(DocIds(left)), bytes([counts[docid] for docid in left])
            else:
                emptied.append((term, block))

    def _write_lengths(self, lengths: Mapping[int, int]) -> None:
        blocks: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for docid, code in lengths.items():
            block, offset = divmod(docid, COUNT_BLOCK)
            blocks[block][offset] = code
        for block, by_offset in blocks.items():
            row = self._connection.execute("SELECT codes FROM document_lengths WHERE block = ?", (block,)).fetchone()
            codes = bytearray(row[0] if row else b"")
            codes.extend(bytes(max(0, max(by_offset) + 1 - len(codes))))
            for offset, code in by_offset.items():
                codes[offset] = code
            self._connection.execute("INSERT OR REPLACE INTO document_lengths(block, codes) VALUES (?, ?)",
                                     (block, bytes(codes.rstrip(b"\0"))))
            self._connection.execute("DELETE FROM document_lengths WHERE block = ? AND codes = x''", (block,))

    def clear(self) -> None:
        """Delete all rows."""
        self.forget()
        self._connection.execute("DELETE FROM word_frequencies")
        self._connection.execute("DELETE FROM document_lengths")

    def count_all(self, names: Mapping[int, str]) -> None:
        """Count the words of all documents again."""
        self.clear()
        last = -1
        while rows := self._connection.execute("SELECT docid, words FROM forward_index WHERE docid > ? ORDER BY docid LIMIT 500",
                                               (last,)).fetchall():
            for docid, words in rows:
                self.change(docid, "", words, names)
            last = rows[-1][0]
        self.flush()


class WordCountReader:
    """The word counts of an index in a read transaction; a `svcd.query.reader.WordCounts`."""

    def __init__(self, transaction: ReadTransaction) -> None:
        self._transaction = transaction
        self._connection = transaction.connection

    def docids(self, term: str) -> DocIds:
        """Return the documents with an index term."""
        rows = self._connection.execute("SELECT docids FROM word_frequencies WHERE term = ?", (term,)).fetchall()
        return joined_blocks(rows) if rows else EMPTY

    def frequencies(self, term: str) -> bytes:
        """Return the code of the frequency of an index term in each of its documents, by ascending docid."""
        return b"".join(codes for (codes,) in self._connection.execute(
            "SELECT codes FROM word_frequencies WHERE term = ? ORDER BY block", (term,)))

    def lengths(self) -> bytes:
        """Return the code of the length by docid."""
        return self._lengths().codes

    def average_length(self) -> float:
        """Return the mean of the lengths of the documents with words."""
        return self._lengths().average

    def _lengths(self) -> _Lengths:
        return self._transaction.cached(("lengths",), self._loaded_lengths, self._updated_lengths)

    def _loaded_lengths(self) -> _Lengths:
        codes = bytearray()
        for block, of_block in self._connection.execute("SELECT block, codes FROM document_lengths ORDER BY block"):
            codes.extend(bytes(block * COUNT_BLOCK - len(codes)))
            codes += of_block
        return _lengths_of(codes, _counts(codes))

    def _updated_lengths(self, known: _Lengths, delta: Delta) -> _Lengths:
        """Read and count the blocks of written documents alone: to count a million lengths takes 100 ms."""
        codes, counts = bytearray(known.codes), known.counts
        for block in {docid // COUNT_BLOCK for docid in delta.written}:
            start, end = block * COUNT_BLOCK, (block + 1) * COUNT_BLOCK
            codes.extend(bytes(max(0, start - len(codes))))
            row = self._connection.execute("SELECT codes FROM document_lengths WHERE block = ?", (block,)).fetchone()
            before, after = codes[start:end], (row[0] if row else b"").ljust(COUNT_BLOCK, b"\0")
            counts = [count - less + more for count, less, more in zip(counts, _counts(before), _counts(after))]
            codes[start:end] = after
        return _lengths_of(codes, counts)


class _Lengths(NamedTuple):
    """codes: of the lengths, by docid. counts: number of documents by code; of code 0, those without words, any number."""

    codes: bytes
    counts: Sequence[int]
    average: float


def _counts(codes: bytes | bytearray) -> Sequence[int]:
    return [codes.count(code) for code in range(len(LENGTHS))]


def _lengths_of(codes: bytearray, counts: Sequence[int]) -> _Lengths:
    documents = sum(counts[1:])
    total = sum(length * count for length, count in zip(LENGTHS, counts))
    return _Lengths(bytes(codes), tuple(counts), total / documents if documents else 1.0)
