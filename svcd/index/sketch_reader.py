"""The sketches of an embedder as bit planes, cached between searches and brought up to date row by row.

Each block has the sketches of up to REGIONS rows of `vector_sketches`. When few rows have been written since, only their bits
are replaced. See docs/vectors.md#search.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

from svcd.index.read_transaction import ReadTransaction, placeholders
from svcd.index.vector_rows import id_range, sketch_docids
from svcd.vectors.estimates import REGION, REGIONS, Region, SketchBlock
from svcd.vectors.sketches import SketchForm

# With more changed rows than this, making a block again is quicker.
_MOST_REPLACED = REGIONS // 4
# Of the memory for cached values, how much planes may take: they have fewer bits of each number rather than more, and those that
# are too many even so are made for each search.
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
        # Planes have a bit for each sketch, in integers that use 30 of 32 bits.
        row_size = REGION * form.part_size * 32 // 30
        room = int(transaction.cache.limit * _CACHE_SHARE) // row_size
        self.bits = max(1, min(form.bits, room // max(len(self._rows), 1)))
        self._cached_rows = room // self.bits

    def blocks(self) -> Iterator[SketchBlock]:
        """The sketches in blocks, by docid; each is made when its turn comes, if it is not cached."""
        for start in range(0, len(self._rows), REGIONS):
            yield self._block(start // REGIONS, self._rows[start:start + REGIONS])

    def _block(self, place: int, rows: _Rows) -> SketchBlock:
        transaction = self._transaction
        key = (transaction.uuid, "sketches", self._embedder, self.form, self.bits, place)
        cached: tuple[_Rows, SketchBlock] | None = transaction.cache.peek(key)
        if cached and cached[0] == rows:
            return cached[1]
        block = self._updated(*cached, rows) if cached else None
        if block is None:
            block = SketchBlock.of(self.form, self.bits, list(self._regions([row for row, _ in rows])))
        # A transaction that began earlier must not replace what a later one has cached.
        is_newer = cached is None or _newest(cached[0]) <= _newest(rows)
        if is_newer and place * REGIONS + len(rows) <= self._cached_rows:
            transaction.cache.put(key, (rows, block))
        return block

    def _updated(self, known: _Rows, block: SketchBlock, rows: _Rows) -> SketchBlock | None:
        """A block brought up to date; None if too much of it has changed."""
        if [row for row, _ in rows[:len(known)]] != [row for row, _ in known]:
            return None
        is_changed = [place >= len(known) or known[place] != row for place, row in enumerate(rows)]
        if sum(is_changed) > _MOST_REPLACED:
            return None
        places = list(compress(range(len(rows)), is_changed))
        return block.replaced(self.form, dict(zip(places, self._regions([rows[place][0] for place in places]))))

    def _regions(self, rows: Sequence[int]) -> Iterator[Region]:
        """The sketches of some rows, in their order, of as many as a block has at most."""
        return (Region(sketch_docids(docids), sketches) for docids, sketches in self._transaction.connection.execute(
            f"SELECT docids, sketches FROM vector_sketches WHERE id IN ({placeholders(rows)}) ORDER BY id", rows))


def _newest(rows: _Rows) -> int:
    return max(generation for _, generation in rows)
