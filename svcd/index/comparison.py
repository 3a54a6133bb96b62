"""Compares the rows of an index that follow from its documents with those of the same index, made afresh (svcd.tasks.rebuild).

Docids, field numbers and FTS columns are the same in both, so most tables have the same rows in the same order. Where rows also
depend on the history of the index (how points and sketches are divided, the spelling of values), their meaning is compared. For
`svcd verify --full`; see docs/storage.md#damage.
"""
from __future__ import annotations

import json
import sqlite3
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any

from svcd.base.docids import EMPTY, DocIds, from_bytes, to_bytes, union_of
from svcd.geo.sphere import direction
from svcd.index.geo_reader import BlockEntry, PointBlock, block_entry
from svcd.index.schema import DOCID_BITS
from svcd.index.vector_rows import docid_of, embedder_rows, sketch_docids
from svcd.vectors.sketches import SketchForm

Row = tuple[Any, ...]
Read = Callable[[sqlite3.Connection], Iterable[Row]]

_SHOWN = 60  # characters of a value


def faults(found: sqlite3.Connection, fresh: sqlite3.Connection) -> Iterator[str]:
    """How an index differs from one that was made afresh, the first difference of each table. Both connections may write."""
    for connection in (found, fresh):
        for table in ("terms", "term_positions"):
            connection.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{table}_occurrences "
                               f"USING fts5vocab(main, {table}, 'instance')")
    for table, read in _TABLES.items():
        yield from _difference(table, read(found), read(fresh))
    yield from _spelling_faults(found, fresh)
    yield from _block_faults(found)
    yield from _region_faults(found)


def _difference(table: str, found: Iterable[Row], fresh: Iterable[Row]) -> Iterator[str]:
    for row, expected in zip_longest(found, fresh):
        if row != expected:
            yield f"{table} has {_shown(row)}; made afresh from the documents it has {_shown(expected)}"
            return


def _shown(row: Row | None) -> str:
    if row is None:
        return "no further row"
    return f"the row ({', '.join(text if len(text := repr(value)) <= _SHOWN else f'{text[:_SHOWN]}...' for value in row)})"


def _all(columns: str, rest: str) -> Read:
    return lambda connection: connection.execute(f"SELECT {columns} FROM {rest}")


def _document_values(connection: sqlite3.Connection) -> Iterator[Row]:
    """The order of the fields in a row is that in which the document had them when it was written."""
    for docid, text in connection.execute("SELECT docid, field_values FROM document_values ORDER BY docid"):
        yield docid, sorted(json.loads(text).items())


def _word_counts(connection: sqlite3.Connection) -> Iterator[Row]:
    """A block may end with zeros of documents that are gone."""
    for column, block, counts in connection.execute("SELECT fts_column, block, counts FROM field_word_counts ORDER BY 1, 2"):
        if shown := counts.rstrip(b"\0"):
            yield column, block, shown


def _sketches(connection: sqlite3.Connection) -> Iterator[Row]:
    """(embedder, docid, sketch), however these are divided into rows; a row begins before its first document."""
    forms = {row.number: SketchForm.of(row.dimensions, row.is_quantized) for row in embedder_rows(connection)}
    before = -1
    for row, docids, sketches in connection.execute("SELECT id, docids, sketches FROM vector_sketches ORDER BY id"):
        embedder, numbers = row >> DOCID_BITS, sketch_docids(docids)
        size = forms[embedder].size
        if len(sketches) != size * len(numbers) or numbers and numbers[0] < docid_of(row) or row <= before:
            yield embedder, docid_of(row), "a row of another length, or in another place"
        for place, docid in enumerate(numbers):
            yield embedder, docid, sketches[place * size:(place + 1) * size]
        before = row | numbers[-1] if numbers else row


# Those with a table of values, of words, of places, of vectors; the dearest come last.
_TABLES: dict[str, Read] = {
    "fields": _all("fid, name, fts_column, documents", "fields ORDER BY fid"),
    "document_values": _document_values,
    "value_postings": _all("fid, kind, value, block, docids", "value_postings ORDER BY 1, 2, 3, 4"),
    "value_groups": _all("fid, kind, level, first, block, docids", "value_groups ORDER BY 1, 2, 3, 4, 5"),
    "points": _all("docid, latitude, longitude", "points ORDER BY docid"),
    "geometries": _all("docid, size, south, west, north, east, geometry", "geometries ORDER BY docid"),
    "embedders": _all("number, vectors", "embedders ORDER BY number"),
    "document_vectors": _all("id, origin, length(vectors)", "document_vectors ORDER BY id"),
    "vector_postings": _all("embedder, kind, block, docids", "vector_postings ORDER BY 1, 2, 3"),
    "vector_sketches": _sketches,
    "field_word_counts": _word_counts,
    "prefix_postings": _all("letter, fts_column, block, docids", "prefix_postings ORDER BY 1, 2, 3"),
    "forward_index": _all("docid, words", "forward_index ORDER BY docid"),
    "term_positions": _all("term, doc", "temp.term_positions_occurrences"),
    "terms": _all("term, doc, col, offset", "temp.terms_occurrences"),
}


def _spelling_faults(found: sqlite3.Connection, fresh: sqlite3.Connection) -> Iterator[str]:
    """A row without a spelling of its own makes readers look at the documents, so it is right whatever these say."""
    select = "SELECT fid, kind, value, block, spelling FROM value_postings ORDER BY 1, 2, 3, 4"
    for row, expected in zip(found.execute(select), fresh.execute(select)):
        if row != expected and row[4] not in ("", b""):
            yield f"value_postings has the spelling {_shown(row)}; the documents have {_shown(expected)}"
            return


# Points: how they are divided depends on their history, but each block and region follows from the points in it.


def _block_faults(connection: sqlite3.Connection) -> Iterator[str]:
    entries: list[BlockEntry] = sorted(block_entry(docid, direction((latitude, longitude))) for docid, latitude, longitude
                                       in connection.execute("SELECT docid, latitude, longitude FROM points"))
    keys = array("Q", [entry.key for entry in entries])
    covered = 0
    for row in connection.execute("SELECT start, size, points, x0, y0, z0, x1, y1, z1, docids, directions FROM point_blocks "
                                  "ORDER BY start"):
        start, size = row[:2]
        inside = entries[bisect_left(keys, start):bisect_right(keys, start + (1 << size) - 1)]
        columns = zip(*inside) if inside else ((), (), (), (), ())
        _, docids, xs, ys, zs = columns
        fresh = PointBlock(start, size, array("I", docids), array("d", xs), array("d", ys), array("d", zs)).row()
        covered += len(inside)
        if row != fresh:
            yield f"point_blocks has the block {start} with {row[2]} points; {fresh[2]} are there, or others"
            return
    if covered != len(entries):
        yield f"point_blocks has {covered} of {len(entries)} points"


def _region_faults(connection: sqlite3.Connection) -> Iterator[str]:
    covered = EMPTY
    for start, size, points, *box, docids in connection.execute(
            "SELECT start, size, points, x0, y0, z0, x1, y1, z1, docids FROM point_regions ORDER BY start"):
        within = (start, start + (1 << size) - 1)
        expected = union_of(from_bytes(part) for (part,) in connection.execute(
            "SELECT docids FROM point_blocks WHERE start BETWEEN ? AND ?", within))
        around = connection.execute("SELECT min(x0), min(y0), min(z0), max(x1), max(y1), max(z1) FROM point_blocks "
                                    "WHERE start BETWEEN ? AND ? AND points > 0", within).fetchone()
        if docids != to_bytes(expected) or points != len(expected) or box != [0.0 if each is None else each for each in around]:
            yield f"point_regions has the region {start} with {points} points; {len(expected)} are there, or others"
            return
        covered |= expected
    if covered != DocIds([docid for (docid,) in connection.execute("SELECT docid FROM points")]):
        yield "point_regions lacks points"
