"""Sets of documents as rows of a table: one block per 65,536 docids, so that a small write rewrites little.

A block is a set in the encoding of `svcd.base.docids`. Docids are absolute: a set is the union of its blocks. Most values of a
field have few documents; their blocks are lists of docids, four bytes each, and many such blocks are joined as one list. See
docs/storage.md#field-values.
"""
from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from svcd.base.docids import EMPTY, FEW, DocIds, few_with, from_bytes, numbers_of, to_bytes, union_of

BLOCK_BITS = 16  # a container of a roaring bitmap
# A stored set that lists its docids is recognized by its length, a multiple of this.
DOCID_BYTES = 4

# A set whose key is not divided further has one row, with this block number, up to MOST_IN_WHOLE documents. A larger set has one
# row for each bitmap block.
WHOLE = -1
MOST_IN_WHOLE = 2_048

Row = tuple[bytes]  # a block


def edited_block(block: bytes | None, edits: Sequence[int]) -> bytes:
    """Apply edits to a block; b"" when the result is empty. block: the block before, or None for a new one.

    edits, in their order: docid adds a document, ~docid removes it.
    """
    if block is None and len(edits) == 1 and edits[0] >= 0:  # most values; takes a tenth of the time of the general way
        return edits[0].to_bytes(DOCID_BYTES, "little")
    if len(edits) <= FEW and min(edits) >= 0 and (few := few_with(block or b"", edits)) is not None:
        return few
    docids = EMPTY if block is None else from_bytes(block)
    if min(edits) >= 0:
        return to_bytes(docids | DocIds(array("I", edits)))
    is_added = {max(edit, ~edit): edit >= 0 for edit in edits}  # the last edit of each docid counts
    return to_bytes((docids - DocIds(list(is_added))) | DocIds([docid for docid, added in is_added.items() if added]))


def block_docids(block: bytes) -> array[int]:
    """Return the documents of a block, ascending."""
    return numbers_of("I", block) if len(block) % DOCID_BYTES == 0 else from_bytes(block).to_array()


def block_count(block: bytes) -> int:
    """Return the number of documents in a block."""
    count, others = divmod(len(block), DOCID_BYTES)
    return len(from_bytes(block)) if others else count


def joined_blocks(rows: Sequence[Row]) -> DocIds:
    """Return the union of blocks, which may overlap and come in any order."""
    if len(rows) == 1:
        return from_bytes(rows[0][0])
    few = b"".join([block for (block,) in rows if len(block) % DOCID_BYTES == 0])
    others = [from_bytes(block) for (block,) in rows if len(block) % DOCID_BYTES]
    return union_of([DocIds(numbers_of("I", few)), *others] if few else others)


def joined_within(rows: Sequence[Row], docids: DocIds) -> DocIds:
    """Return the documents of a set that are in the union of blocks."""
    block = rows[0][0]
    # Where there are many blocks, most hold a single document.
    if len(rows) == 1 and len(block) == DOCID_BYTES and int.from_bytes(block, "little") not in docids:
        return EMPTY
    return joined_blocks(rows) & docids


def set_rows(docids: DocIds) -> Iterator[tuple[int, DocIds]]:
    """Yield the rows (block, documents) of a set that may be WHOLE; no rows for an empty set."""
    return blocks_of(docids) if len(docids) > MOST_IN_WHOLE else iter([(WHOLE, docids)] if docids else [])


def blocks_of(docids: DocIds) -> Iterator[tuple[int, DocIds]]:
    """Yield (block, documents) for each block in which a set has documents."""
    for block in range(docids.min() >> BLOCK_BITS, (docids.max() >> BLOCK_BITS) + 1) if docids else ():
        part = docids & _docids_of(block << BLOCK_BITS, (block + 1) << BLOCK_BITS)
        if part:
            yield block, part


@lru_cache(maxsize=64)
def _docids_of(start: int, end: int) -> DocIds:
    return DocIds(range(start, end))


def edited_set_rows(stored: Mapping[int, bytes], added: DocIds, removed: DocIds) -> dict[int, bytes]:
    """Return the rows that set_rows() would give for a set after an edit: block -> encoded documents.

    stored: all rows before the edit, by block. Rows without edits are returned unchanged.
    """
    if WHOLE in stored or not stored:
        docids = (union_of(map(from_bytes, stored.values())) | added) - removed
        return {block: to_bytes(part) for block, part in set_rows(docids)}
    edited = dict(stored)
    new, gone = dict(blocks_of(added)), dict(blocks_of(removed))
    for block in new.keys() | gone.keys():
        edited[block] = to_bytes((from_bytes(edited.get(block, b"")) | new.get(block, EMPTY)) - gone.get(block, EMPTY))
    left = {block: docids for block, docids in edited.items() if docids}
    # A list of MOST_IN_WHOLE docids takes no more bytes than this, so most sets need not be counted.
    may_be_whole = removed and sum(map(len, left.values())) <= (MOST_IN_WHOLE + 8 * len(left)) * DOCID_BYTES
    if may_be_whole and sum(map(block_count, left.values())) <= MOST_IN_WHOLE:
        return edited_set_rows({WHOLE: b""}, union_of(map(from_bytes, left.values())), EMPTY)
    return left


# A list of docids as one text for all rows, which SQLite makes in half the time of one row per docid. Each docid has ten digits,
# a billion more than its value. So two digits are a byte, and one operation on a large integer computes with all of them: 268,000
# docids take 30 ms from FTS5 to the set; as JSON they took 38 ms, and 10 MB of numbers meanwhile.
LISTED = "group_concat(rowid + 1000000000, '')"
_DIGITS, _MORE = 10, 1_000_000_000
_AT_ONCE = 4096
_VALUES = bytes(pair // 16 * 10 + pair % 16 if pair < 0xa0 else 0 for pair in range(256))  # of two digits in a byte
_BYTES = int.from_bytes(b"\0\xff\0\xff" * _AT_ONCE, "big")  # the lower byte of each two
_HALVES = int.from_bytes(b"\0\0\xff\xff" * _AT_ONCE, "big")  # the lower two bytes of each four


def listed_docids(digits: str | None) -> DocIds:
    """Return the set of the docids that LISTED lists; None if there was no row."""
    if not digits:
        return EMPTY
    docids = array("I")
    for start in range(0, len(digits), _DIGITS * _AT_ONCE):
        docids += _read_digits(digits[start:start + _DIGITS * _AT_ONCE])
    return DocIds(docids)


def _read_digits(digits: str) -> array[int]:
    pairs = bytearray.fromhex(digits)
    if pairs[::_DIGITS // 2].strip(b"\x10"):  # a docid has more than eight digits
        return array("I", [int(digits[at:at + _DIGITS]) - _MORE for at in range(0, len(digits), _DIGITS)])
    del pairs[::_DIGITS // 2]
    values = int.from_bytes(pairs.translate(_VALUES), "big")
    values = (values >> 8 & _BYTES) * 100 + (values & _BYTES)
    values = (values >> 16 & _HALVES) * 10_000 + (values & _HALVES)
    docids = array("I", values.to_bytes(len(pairs), "big"))
    if sys.byteorder == "little":
        docids.byteswap()
    return docids
