"""Reads the sketches of an embedder as bit planes, cached between searches and brought up to date row by row.

Each block has the sketches of up to REGIONS rows of `vector_sketches`. When few rows were written since, only their bits are
replaced. See docs/vectors.md#search.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

from svcd.index.read_transaction import ReadTransaction, placeholders
from svcd.index.vector_rows import id_range, sketch_docids
from svcd.vectors.estimates import REGION, REGIONS, Region, SketchBlock
from svcd.vectors.sketches import SketchForm

# With more changed rows, building the block again is quicker.
_MOST_REPLACED = REGIONS // 4
# The share of the cache that planes may take. If they do not fit, they have fewer bits of each number; planes that still do not
# fit are built for each search.
_CACHE_SHARE = 0.85

_Rows = list[tuple[int, int]]  # id and generation of rows of vector_sketches


class SketchReader:
    """The sketches of one embedder in a read transaction. embedder: its number."""

    def __init__(self, transaction: ReadTransaction, embedder: int, form: SketchForm) -> None:
        self._transaction = transaction
        self._embedder = embedder
        self.form = form
        self._rows: _Rows = transaction.cached(("sketch rows", embedder), lambda: transaction.connection.execute(
            "SELECT id, generation FROM vector_sketches WHERE id BETWEEN ? AND ? ORDER BY id",
            id_range(embedder)).fetchall())
        # A plane has a bit for each sketch, in integers that use 30 of 32 bits.
        row_size = REGION * form.part_size * 32 // 30
        room = int(transaction.cache.limit * _CACHE_SHARE) // row_size
        self.bits = max(1, min(form.bits, room // max(len(self._rows), 1)))
        self._cached_rows = room // self.bits

    def blocks(self) -> Iterator[SketchBlock]:
        """Yield the sketches in blocks, by docid; each block is built on demand unless it is cached."""
        for start in range(0, len(self._rows), REGIONS):
            yield self._block(start // REGIONS, self._rows[start:start + REGIONS])

    def _block(self, number: int, rows: _Rows) -> SketchBlock:
        transaction = self._transaction
        key = (transaction.uuid, "sketches", self._embedder, self.form, self.bits, number)
        cached: tuple[_Rows, SketchBlock] | None = transaction.cache.peek(key)
        if cached and cached[0] == rows:
            return cached[1]
        block = self._updated(*cached, rows) if cached else None
        if block is None:
            block = SketchBlock.of(self.form, self.bits, list(self._regions([row for row, _ in rows])))
        # A transaction that began earlier must not replace a block that a later one cached.
        is_newer = cached is None or _newest(cached[0]) <= _newest(rows)
        if is_newer and number * REGIONS + len(rows) <= self._cached_rows:
            transaction.cache.put(key, (rows, block))
        return block

    def _updated(self, known: _Rows, block: SketchBlock, rows: _Rows) -> SketchBlock | None:
        """Bring a block up to date; None if too much of it has changed."""
        if [row for row, _ in rows[:len(known)]] != [row for row, _ in known]:
            return None
        is_changed = [index >= len(known) or known[index] != row for index, row in enumerate(rows)]
        if sum(is_changed) > _MOST_REPLACED:
            return None
        changed = list(compress(range(len(rows)), is_changed))
        return block.replaced(self.form, dict(zip(changed, self._regions([rows[index][0] for index in changed]))))

    def _regions(self, rows: Sequence[int]) -> Iterator[Region]:
        """Yield the sketches of some rows, in their order, of at most REGIONS rows."""
        return (Region(sketch_docids(docids), sketches) for docids, sketches in self._transaction.connection.execute(
            f"SELECT docids, sketches FROM vector_sketches WHERE id IN ({placeholders(rows)}) ORDER BY id", rows))


def _newest(rows: _Rows) -> int:
    return max(generation for _, generation in rows)
