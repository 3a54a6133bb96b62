"""Writes the vectors of documents and their sketches to an index file, in the transaction of the index writer.

`embedders` has the embedders of the settings, each with a number; `document_vectors` the vectors of each document, by embedder
and docid; `vector_postings` the sets of documents with vectors, by their origin, in bitmap blocks. `vector_sketches` has a row
for a run of documents of an embedder, with up to REGION sketches by docid. id: the embedder and the first docid that may be in
the row; the first row of an embedder begins at 0, each row ends where the next begins. generation: the one that wrote the row, so
that readers can tell whether their cached block is current.

Edits are gathered in memory and written at the end of each savepoint and transaction; the writer calls forget() on a rollback.
See docs/storage.md#vectors and docs/vectors.md#sketches.
"""
from __future__ import annotations

import json
import sqlite3
from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from svcd.base.docids import DocIds, bytes_of, from_bytes
from svcd.index.bitmap_blocks import BLOCK_BITS, edited_block, joined_blocks
from svcd.index.read_transaction import placeholders, statement_portions
from svcd.index.schema import row_checksum
from svcd.index.vector_reader import (
    EMBEDDED, FIRST_FRAGMENT, FIXED, GIVEN, LENGTH_SHIFT, OUTDATED, REGENERATED, USER_PROVIDED, EmbedderRow, docid_of,
    embedder_rows, id_range, posting_docids, row_id, sketch_docids, stored_bytes, stored_vectors,
)
from svcd.vectors.sketches import REGION, SketchForm
from svcd.vectors.vector import quantized_bytes, quantized_size

# Documents whose sketches are gathered before they are written; 200 bytes each for vectors of 384 numbers.
_MOST_SKETCHES = 16_384
# A row with fewer sketches is joined to the next one.
_LEAST = REGION // 4

_PUT_SKETCHES = "INSERT OR REPLACE INTO vector_sketches(id, generation, docids, sketches) VALUES (?, ?, ?, ?)"

Sketch = tuple[int, bytes]  # docid, sketch


class SketchWriter:
    """Updates the sketches of an index as vectors of documents change. The writer calls forget() on a rollback."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.forget()

    def forget(self) -> None:
        """Discard the gathered sketches, and the known starts of rows."""
        self._gathered: dict[tuple[int, SketchForm], dict[int, list[bytes]]] = {}
        self._starts: dict[int, list[int]] = {}

    def change(self, embedder: int, dimensions: int, is_quantized: bool, docid: int, vectors: Sequence[array[float]]) -> None:
        """Set the vectors of a document for an embedder; an empty list removes them."""
        form = SketchForm.of(dimensions, is_quantized)
        gathered = self._gathered.setdefault((embedder, form), {})
        gathered[docid] = list(map(quantized_bytes if is_quantized else form.sketch, vectors))
        if len(gathered) >= _MOST_SKETCHES:
            self.flush()

    def clear(self, embedder: int) -> None:
        """Delete the sketches of an embedder."""
        self._gathered = {key: docids for key, docids in self._gathered.items() if key[0] != embedder}
        self._starts.pop(embedder, None)
        self._connection.execute("DELETE FROM vector_sketches WHERE id BETWEEN ? AND ?", id_range(embedder))

    def flush(self) -> None:
        """Write the gathered sketches."""
        if not self._gathered:
            return
        (last,) = self._connection.execute("SELECT ifnull(max(value), 0) FROM meta WHERE key = 'generation'").fetchone()
        generation = int(last) + 1
        gathered, self._gathered = self._gathered, {}
        for (embedder, form), sketches in gathered.items():
            starts = self._starts_of(embedder)
            touched: dict[int, list[int]] = {}
            for docid in sorted(sketches):
                touched.setdefault(starts[bisect_right(starts, docid) - 1], []).append(docid)
            for start, docids in touched.items():
                held = [each for each in self._read(embedder, form, start) if each[0] not in sketches]
                is_end = not held or held[-1][0] < docids[0]
                held += [(docid, sketch) for docid in docids for sketch in sketches[docid]]
                if not is_end:
                    held.sort(key=_by_docid)
                # More documents usually follow at the end, so rows before the last one are filled.
                self._put(embedder, start, held, REGION if is_end else REGION * 3 // 4, generation)
            for start in touched:
                self._join(embedder, form, start, generation)

    def _put(self, embedder: int, start: int, held: Sequence[Sketch], most: int, generation: int) -> None:
        """Write the sketches of a row; as several rows of about `most` if they are too many for one."""
        parts = list(_sketch_parts(held, most)) if len(held) > REGION else [held]
        for number, part in enumerate(parts):
            first = part[0][0] if number else start
            if number:
                insort(self._starts_of(embedder), first)
            docids = bytes_of(array("I", [docid for docid, _ in part]))
            self._connection.execute(
                _PUT_SKETCHES, (row_id(embedder, first), generation, docids, b"".join([sketch for _, sketch in part])))

    def _join(self, embedder: int, form: SketchForm, start: int, generation: int) -> None:
        """Join a row that has few sketches to a neighbour that has room."""
        starts = self._starts_of(embedder)
        if start not in starts or len(starts) == 1:
            return
        held = self._read(embedder, form, start)
        if len(held) >= _LEAST:
            return
        index = starts.index(start)
        first, second = starts[index:index + 2] if index + 1 < len(starts) else starts[index - 1:]
        other = self._read(embedder, form, second if start == first else first)
        # The last row may be about to grow.
        if len(held) + len(other) > REGION // 2:
            return
        starts.remove(second)
        self._connection.execute("DELETE FROM vector_sketches WHERE id = ?", (row_id(embedder, second),))
        self._put(embedder, first, sorted([*held, *other], key=_by_docid), REGION, generation)

    def _starts_of(self, embedder: int) -> list[int]:
        """Return the first docids of the rows of an embedder."""
        starts = self._starts.get(embedder)
        if starts is None:
            starts = self._starts[embedder] = [docid_of(key) for (key,) in self._connection.execute(
                "SELECT id FROM vector_sketches WHERE id BETWEEN ? AND ? ORDER BY id", id_range(embedder))] or [0]
        return starts

    def _read(self, embedder: int, form: SketchForm, start: int) -> list[Sketch]:
        row = self._connection.execute("SELECT docids, sketches FROM vector_sketches WHERE id = ?",
                                       (row_id(embedder, start),)).fetchone()
        if row is None:
            return []
        docids, sketches = row
        return [(docid, sketches[index * form.size:(index + 1) * form.size]) for index, docid in enumerate(sketch_docids(docids))]


def _sketch_parts(sketches: Sequence[Sketch], most: int) -> Iterator[Sequence[Sketch]]:
    """Divide sketches into parts of about `most`, a document's sketches in one part; at most REGION: no document has more."""
    start = 0
    while start < len(sketches):
        end = min(start + most, len(sketches))
        while end < len(sketches) and sketches[end][0] == sketches[end - 1][0] and end > start:
            end -= 1
        if end == start:  # a document with more
            end = start + most
            while end < len(sketches) and sketches[end][0] == sketches[start][0]:
                end += 1
        yield sketches[start:end]
        start = end


def _by_docid(sketch: Sketch) -> int:
    return sketch[0]


# Bytes of vectors that are read together; one document may have some megabytes.
MOST_READ = 1 << 20
_PORTION = 500  # rows
_MOST_GATHERED = 200_000  # edits of sets

_SELECT = "SELECT id, origin, fragments, vectors FROM document_vectors WHERE id"
_PUT = "INSERT OR REPLACE INTO document_vectors(id, origin, fragments, vectors, checksum) VALUES (?, ?, ?, ?, ?)"
_PUT_EMBEDDER = (
    "INSERT INTO embedders(number, name, dimensions, is_quantized, fragments, checksum, vectors) VALUES (?, ?, ?, ?, ?, ?, 0) "
    "ON CONFLICT (number) DO UPDATE SET name = excluded.name, dimensions = excluded.dimensions, "
    "is_quantized = excluded.is_quantized, fragments = excluded.fragments, checksum = excluded.checksum")
_PUT_SET = "INSERT OR REPLACE INTO vector_postings(embedder, kind, block, docids) VALUES (?, ?, ?, ?)"
_OF_SET = "FROM vector_postings WHERE embedder = ? AND kind = ? AND block = ?"


class StoredVectors(NamedTuple):
    """The vectors of a document for an embedder.

    is_user_provided: whether a user gave them. regenerate: whether they are regenerated when the document changes. fragments: the
    number of the indexing fragment of each vector, ascending; None for an embedder without fragments.
    """

    vectors: Sequence[array[float]]
    is_user_provided: bool = False
    regenerate: bool = True
    fragments: bytes | None = None

    def is_outdated(self, dimensions: int) -> bool:
        """Return whether the length of the vectors differs from the length of their embedder."""
        return bool(self.vectors) and len(self.vectors[0]) != dimensions

    def origin(self, dimensions: int) -> int:
        """Return the stored form of the origin. dimensions: of the embedder."""
        length = len(self.vectors[0]) if self.is_outdated(dimensions) else 0
        return USER_PROVIDED * self.is_user_provided + REGENERATED * self.regenerate + (length << LENGTH_SHIFT)


class VectorWriter:
    """Writes through a connection that is inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sketches = SketchWriter(connection)
        self.forget()

    def forget(self) -> None:
        """Discard the gathered edits, and read the embedders again."""
        self._embedders: dict[str, EmbedderRow] | None = None
        self._edits: dict[tuple[int, int, int], list[int]] = {}  # by embedder, kind and block, as edited_block() takes them
        self._gathered = 0
        self._added: dict[int, int] = {}  # by embedder: the change of its number of vectors
        self._sketches.forget()

    @property
    def embedders(self) -> Mapping[str, EmbedderRow]:
        """The embedders of the settings, by name."""
        if self._embedders is None:
            self._embedders = {row.name: row for row in embedder_rows(self._connection)}
        return self._embedders

    def add_embedder(self, name: str, dimensions: int, is_quantized: bool, fragments: Iterable[str]) -> None:
        """Add an embedder, with the smallest unused number."""
        number = _unused({row.number for row in self.embedders.values()})
        self.put_embedder(EmbedderRow(number, name, dimensions, is_quantized, {name: n for n, name in enumerate(fragments)}))

    def put_embedder(self, row: EmbedderRow) -> None:
        """Write the row of an embedder; its number of vectors does not change."""
        values = (row.number, row.name, row.dimensions, int(row.is_quantized), json.dumps(row.fragments))
        self._connection.execute(_PUT_EMBEDDER, (*values, row_checksum(*values)))
        self._embedders = None

    def change_fragments(self, name: str, fragments: Iterable[str]) -> None:
        """Set the fragments of an embedder. Vectors of removed fragments must be deleted before.

        A fragment that stays keeps its number, a new one gets the smallest unused number.
        """
        row, names = self.embedders[name], list(fragments)
        numbers = {fragment: number for fragment, number in row.fragments.items() if fragment in names}
        for fragment in names:
            if fragment not in numbers:
                numbers[fragment] = _unused(set(numbers.values()))
        self.put_embedder(row._replace(fragments=numbers))

    def resize(self, name: str, dimensions: int, stays: Callable[[StoredVectors], bool]) -> None:
        """Set the length of the vectors of an embedder. Entries for which stays() is true are kept, the others deleted.

        Kept vectors of another length become outdated; outdated ones of the new length can be searched again.
        """
        self.flush()
        before = self.embedders[name]
        number, row = before.number, before._replace(dimensions=dimensions)
        self._connection.execute("DELETE FROM vector_postings WHERE embedder = ?", (number,))
        self._sketches.clear(number)
        self._connection.execute("UPDATE embedders SET vectors = 0 WHERE number = ?", (number,))
        self.put_embedder(row)
        for part in self._portions(before):
            kept = [(docid, entry) for docid, entry in part if stays(entry)]
            for docid, entry in kept:
                self._place(row, docid, _NO_KINDS, 0, entry)
            self._put_entries(row, kept)
            self._connection.executemany("DELETE FROM document_vectors WHERE id = ?", [
                (row_id(number, docid),) for docid, entry in part if not stays(entry)])
            if self._gathered > _MOST_GATHERED:
                self.flush()

    def _put_entries(self, row: EmbedderRow, entries: Iterable[tuple[int, StoredVectors]]) -> None:
        """Write rows of document_vectors with their checksums, but not their sets and sketches."""
        written = [(row_id(row.number, docid), entry.origin(row.dimensions), entry.fragments,
                    stored_bytes(entry.vectors, row.is_quantized)) for docid, entry in entries]
        self._connection.executemany(_PUT, [(*each, row_checksum(*each)) for each in written])

    def remove_embedder(self, name: str) -> None:
        """Delete an embedder with all its vectors."""
        self.clear_embedder(name)
        self._connection.execute("DELETE FROM embedders WHERE number = ?", (self.embedders[name].number,))
        self._embedders = None

    def clear_embedder(self, name: str) -> None:
        """Delete the vectors of an embedder."""
        self.flush()
        number = self.embedders[name].number
        self._connection.execute("DELETE FROM document_vectors WHERE id BETWEEN ? AND ?", id_range(number))
        self._connection.execute("DELETE FROM vector_postings WHERE embedder = ?", (number,))
        self._sketches.clear(number)
        self._connection.execute("UPDATE embedders SET vectors = 0 WHERE number = ?", (number,))

    def clear(self) -> None:
        """Delete the vectors of all documents; the embedders stay."""
        self.forget()
        for statement in ("DELETE FROM document_vectors", "DELETE FROM vector_postings", "DELETE FROM vector_sketches",
                          "UPDATE embedders SET vectors = 0"):
            self._connection.execute(statement)

    def quantize(self, name: str) -> None:
        """Reduce the vectors of an embedder to one bit per number."""
        row = self.embedders[name]
        self._sketches.clear(row.number)
        for part in self.portions(name):
            for docid, stored in part:
                if not stored.is_outdated(row.dimensions):
                    self._sketches.change(row.number, row.dimensions, True, docid, stored.vectors)
            self._put_entries(row._replace(is_quantized=True), part)
        self.put_embedder(row._replace(is_quantized=True))

    def stored(self, name: str, docids: Sequence[int]) -> dict[int, StoredVectors]:
        """Return docid -> its vectors, for the documents that have an entry for an embedder."""
        return {docid: stored for part in self.stored_parts(name, docids) for docid, stored in part.items()}

    def stored_parts(self, name: str, docids: Sequence[int]) -> Iterator[dict[int, StoredVectors]]:
        """Yield stored() in parts of about MOST_READ bytes, each read on demand."""
        row = self._stored_row(name)
        for part in _parts((key, size) for key, _, _, size in self._states(row.number, docids)):
            for ids in statement_portions(part):
                yield dict(_read_row(row, each) for each in self._connection.execute(f"{_SELECT} IN ({placeholders(ids)})", ids))

    def portions(self, name: str) -> Iterator[list[tuple[int, StoredVectors]]]:
        """Yield all (docid, vectors) of an embedder by docid, in portions of about MOST_READ bytes, each read on demand."""
        return self._portions(self._stored_row(name))

    def _stored_row(self, name: str) -> EmbedderRow:
        """Return the row of an embedder as its vectors are stored."""
        return self.embedders[name]

    def _portions(self, row: EmbedderRow) -> Iterator[list[tuple[int, StoredVectors]]]:
        first, last = id_range(row.number)
        while sizes := self._connection.execute("SELECT id, length(vectors) FROM document_vectors WHERE id BETWEEN ? AND ? "
                                                "ORDER BY id LIMIT ?", (first, last, _PORTION)).fetchall():
            part = next(_parts(sizes))
            yield [_read_row(row, each) for each in self._connection.execute(
                f"{_SELECT} BETWEEN ? AND ? ORDER BY id", (part[0], part[-1]))]
            first = part[-1] + 1

    def _states(self, number: int, docids: Sequence[int]) -> Iterator[tuple[int, int, bytes | None, int]]:
        """Yield (id, origin, fragments, bytes of the vectors) for some documents, without reading the vectors."""
        for ids in statement_portions([row_id(number, docid) for docid in docids]):
            yield from self._connection.execute("SELECT id, origin, fragments, length(vectors) FROM document_vectors WHERE id IN "
                                                f"({placeholders(ids)})", ids)

    def write(self, name: str, entries: Mapping[int, StoredVectors | None]) -> None:
        """Set the vectors of documents for an embedder, by docid; None deletes the entry of a document."""
        row = self.embedders[name]
        size = quantized_size(row.dimensions) if row.is_quantized else 4 * row.dimensions
        docids = sorted(entries)
        before = {key: (_kinds(origin, length, fragments), 0 if origin >> LENGTH_SHIFT else length // size)
                  for key, origin, fragments, length in self._states(row.number, docids)}
        removed: list[tuple[int]] = []
        written: list[tuple[int, StoredVectors]] = []
        for docid in docids:
            entry, key = entries[docid], row_id(row.number, docid)
            kinds, count = before.get(key, (_NO_KINDS, 0))
            if entry is not None:
                written.append((docid, entry))
            elif key in before:
                removed.append((key,))
            self._place(row, docid, kinds, count, entry)
        self._connection.executemany("DELETE FROM document_vectors WHERE id = ?", removed)
        self._put_entries(row, written)
        if self._gathered > _MOST_GATHERED:
            self.flush()

    def remove(self, docids: Iterable[int]) -> None:
        """Delete the vectors of documents for all embedders."""
        gone = dict.fromkeys(docids)
        for name in self.embedders if gone else ():
            self.write(name, gone)

    def _place(self, row: EmbedderRow, docid: int, kinds: frozenset[int], count: int, entry: StoredVectors | None) -> None:
        """Note the entry of a document in sets, sketches and counts. kinds, count: its sets and number of vectors before."""
        vectors = entry.vectors if entry and not entry.is_outdated(row.dimensions) else ()
        if vectors or count:
            self._sketches.change(row.number, row.dimensions, row.is_quantized, docid, vectors)
        after = _kinds(entry.origin(row.dimensions), len(entry.vectors), entry.fragments) if entry else _NO_KINDS
        for kind in kinds ^ after:
            self._edits.setdefault((row.number, kind, docid >> BLOCK_BITS), []).append(docid if kind in after else ~docid)
            self._gathered += 1
        self._added[row.number] = self._added.get(row.number, 0) + len(vectors) - count

    def flush(self) -> None:
        """Write the gathered edits."""
        self._sketches.flush()
        edits, self._edits, self._gathered = self._edits, {}, 0
        for key, docids in sorted(edits.items()):
            row = self._connection.execute(f"SELECT docids {_OF_SET}", key).fetchone()
            if edited := edited_block(row[0] if row else None, docids):
                self._connection.execute(_PUT_SET, (*key, edited))
            else:
                self._connection.execute(f"DELETE {_OF_SET}", key)
        self._connection.executemany("UPDATE embedders SET vectors = vectors + ? WHERE number = ?",
                                     [(count, number) for number, count in self._added.items() if count])
        self._added.clear()

    def docids(self, name: str, kind: int) -> DocIds:
        """Return a set of documents of an embedder, by kind."""
        return posting_docids(self._connection, self.embedders[name].number, kind)

    def counts(self) -> tuple[int, int]:
        """Return the number of vectors, and the number of documents that have one."""
        (vectors,) = self._connection.execute("SELECT ifnull(sum(vectors), 0) FROM embedders").fetchone()
        return vectors, len(joined_blocks(self._connection.execute(
            "SELECT docids FROM vector_postings WHERE kind = ?", (EMBEDDED,)).fetchall()))

    def outdated(self) -> dict[str, int]:
        """Return the number of documents with outdated vectors, by the name of the embedder; without zeros."""
        names = {row.number: name for name, row in self.embedders.items()}
        counts: dict[str, int] = {}
        for embedder, docids in self._connection.execute(
                "SELECT embedder, docids FROM vector_postings WHERE kind = ?", (OUTDATED,)):
            counts[names[embedder]] = counts.get(names[embedder], 0) + len(from_bytes(docids))
        return dict(sorted(counts.items()))


_NO_KINDS: frozenset[int] = frozenset()


def _kinds(origin: int, length: int, fragments: bytes | None) -> frozenset[int]:
    """Return the sets that a document belongs to. length: above 0 if it has a vector."""
    is_outdated = bool(origin >> LENGTH_SHIFT)
    kinds = set() if is_outdated else {FIRST_FRAGMENT + number for number in fragments or b""}
    if length:
        kinds.add(OUTDATED if is_outdated else EMBEDDED)
    if origin & USER_PROVIDED:
        kinds.add(GIVEN)
    if not origin & REGENERATED:
        kinds.add(FIXED)
    return frozenset(kinds)


def _read_row(row: EmbedderRow, stored: tuple[int, int, bytes | None, bytes]) -> tuple[int, StoredVectors]:
    key, origin, fragments, vectors = stored
    return docid_of(key), StoredVectors(stored_vectors(vectors, origin, row.dimensions, row.is_quantized),
                                            bool(origin & USER_PROVIDED), bool(origin & REGENERATED), fragments)


def _parts(sizes: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """Divide ids into parts of about MOST_READ bytes. sizes: (id, bytes)."""
    part: list[int] = []
    read = 0
    for key, size in sizes:
        if part and read + size > MOST_READ:
            yield part
            part, read = [], 0
        part.append(key)
        read += size
    if part:
        yield part


def _unused(numbers: set[int]) -> int:
    return next(number for number in range(len(numbers) + 1) if number not in numbers)
