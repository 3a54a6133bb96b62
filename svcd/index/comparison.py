"""Compares the derived rows of an index with the rows of the same index rebuilt from its documents (svcd.tasks.rebuild).

Docids, field numbers and FTS columns are the same in both, so most tables have equal rows in the same order. Some rows also
depend on the history of the index (the division of points and sketches into rows, the spelling of values); there the meaning is
compared. Used by `svcd verify --full`; see docs/storage.md#damage.
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
from svcd.index.vector_reader import docid_of, embedder_rows, sketch_docids
from svcd.vectors.sketches import SketchForm

Row = tuple[Any, ...]
Read = Callable[[sqlite3.Connection], Iterable[Row]]

_SHOWN = 60  # characters shown of a value


def faults(found: sqlite3.Connection, fresh: sqlite3.Connection) -> Iterator[str]:
    """Yield how an index differs from a rebuilt one: the first difference of each table. Both connections must be writable."""
    for connection in (found, fresh):
        for table in ("terms", "term_positions"):
            connection.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{table}_occurrences "
                               f"USING fts5vocab(main, {table}, 'instance')")
    for table, read in _TABLES.items():
        for row, expected in zip_longest(read(found), read(fresh)):
            if row != expected:
                yield f"{table} has {_shown(row)}; rebuilt from the documents it has {_shown(expected)}"
                break
    # A row without a spelling makes readers look into the documents, so it is right whatever these say.
    select = "SELECT fid, kind, value, block, spelling FROM value_postings ORDER BY 1, 2, 3, 4"
    for row, expected in zip(found.execute(select), fresh.execute(select)):
        if row != expected and row[4] not in ("", b""):
            yield f"value_postings has the spelling {_shown(row)}; the documents have {_shown(expected)}"
            break
    yield from _block_faults(found)
    yield from _region_faults(found)


def _shown(row: Row | None) -> str:
    if row is None:
        return "no further row"
    return f"the row ({', '.join(text if len(text := repr(value)) <= _SHOWN else f'{text[:_SHOWN]}...' for value in row)})"


def _all(columns: str, rest: str) -> Read:
    return lambda connection: connection.execute(f"SELECT {columns} FROM {rest}")


def _document_values(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yield rows with sorted fields: a row keeps the order of the fields at the time it was written."""
    for docid, text in connection.execute("SELECT docid, field_values FROM document_values ORDER BY docid"):
        yield docid, sorted(json.loads(text).items())


def _word_counts(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yield blocks without trailing zeros, which deleted documents may leave."""
    for column, block, counts in connection.execute("SELECT fts_column, block, counts FROM field_word_counts ORDER BY 1, 2"):
        if shown := counts.rstrip(b"\0"):
            yield column, block, shown


def _sketches(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yield (embedder, docid, sketch), independent of the division into rows; a row starts at or before its first document."""
    forms = {row.number: SketchForm.of(row.dimensions, row.is_quantized) for row in embedder_rows(connection)}
    before = -1
    for row, docids, sketches in connection.execute("SELECT id, docids, sketches FROM vector_sketches ORDER BY id"):
        embedder, numbers = row >> DOCID_BITS, sketch_docids(docids)
        size = forms[embedder].size
        if len(sketches) != size * len(numbers) or numbers and numbers[0] < docid_of(row) or row <= before:
            yield embedder, docid_of(row), "a row of another length, or out of order"
        for index, docid in enumerate(numbers):
            yield embedder, docid, sketches[index * size:(index + 1) * size]
        before = row | numbers[-1] if numbers else row


# Tables of values, words, locations and vectors; the most expensive ones come last.
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
    "word_frequencies": _all("term, block, docids, codes", "word_frequencies ORDER BY 1, 2"),
    "document_lengths": _all("block, codes", "document_lengths ORDER BY 1"),
    "forward_index": _all("docid, words", "forward_index ORDER BY docid"),
    "term_positions": _all("term, doc", "temp.term_positions_occurrences"),
    "terms": _all("term, doc, col, offset", "temp.terms_occurrences"),
}


# The division of points into rows depends on their history, but each block and region follows from the points in it.


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
            yield f"point_blocks has the block {start} with {row[2]} points; it should have {fresh[2]}, or other ones"
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
            yield f"point_regions has the region {start} with {points} points; it should have {len(expected)}, or other ones"
            return
        covered |= expected
    if covered != DocIds([docid for (docid,) in connection.execute("SELECT docid FROM points")]):
        yield "point_regions lacks points"
