"""Writes the sketches of vectors to an index file, in the transaction of the index writer.

`vector_sketches` has a row for each run of documents of an embedder, with up to REGION sketches by docid. id: the embedder and
the first docid that may be in the row; the first row of an embedder begins at 0, each row ends where the next begins.
generation: the one that wrote the row, so that readers can tell whether their cached block is current. See
docs/vectors.md#sketches.
"""
from __future__ import annotations

import sqlite3
from array import array
from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence

from svcd.base.docids import bytes_of
from svcd.index.vector_rows import docid_of, id_range, row_id, sketch_docids
from svcd.vectors.estimates import REGION
from svcd.vectors.sketches import SketchForm
from svcd.vectors.vector import quantized_bytes

# Documents whose sketches are gathered before they are written; 200 bytes each for vectors of 384 numbers.
_MOST_GATHERED = 16_384
# A row with fewer sketches is joined to the next one.
_LEAST = REGION // 4

_PUT = "INSERT OR REPLACE INTO vector_sketches(id, generation, docids, sketches) VALUES (?, ?, ?, ?)"

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
        if len(gathered) >= _MOST_GATHERED:
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
        parts = list(_parts(held, most)) if len(held) > REGION else [held]
        for number, part in enumerate(parts):
            first = part[0][0] if number else start
            if number:
                insort(self._starts_of(embedder), first)
            docids = bytes_of(array("I", [docid for docid, _ in part]))
            self._connection.execute(
                _PUT, (row_id(embedder, first), generation, docids, b"".join([sketch for _, sketch in part])))

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


def _parts(sketches: Sequence[Sketch], most: int) -> Iterator[Sequence[Sketch]]:
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
