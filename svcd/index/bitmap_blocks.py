"""Sets of documents as rows of a table: one block per 65,536 docids, as a list or a bitmap, whichever is smaller.

A block of exactly BLOCK_BYTES is a bitmap, a shorter one a list of ascending 16-bit offsets: docs/storage.md#field-values.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from svcd.base.bitmaps import DocIds, from_docids, to_docids

BLOCK_BITS = 16
BLOCK = 1 << BLOCK_BITS
BLOCK_BYTES = BLOCK >> 3
# With more documents the bitmap is the smaller form.
_MOST_LISTED = BLOCK_BYTES // 2 - 1


def edited_block(data: bytes | None, edits: Sequence[int]) -> bytes:
    """The block after some edits, b"" when it is empty; data: the block before, None when there was none.

    edits, in their order: an offset (docid within the block) is added, ~offset is removed.
    """
    if data is not None and len(data) == BLOCK_BYTES:
        return _changed_bits(bytearray(data), edits)
    offsets = set(_listed(data or b""))
    if min(edits) >= 0:
        offsets.update(edits)
    else:
        for edit in edits:
            (offsets.add if edit >= 0 else offsets.discard)(max(edit, ~edit))
    if len(offsets) <= _MOST_LISTED:
        return array("H", sorted(offsets)).tobytes()
    return _changed_bits(bytearray(BLOCK_BYTES), list(offsets))


def _changed_bits(bits: bytearray, edits: Iterable[int]) -> bytes:
    for edit in edits:
        if edit >= 0:
            bits[edit >> 3] |= 1 << (edit & 7)
        else:
            bits[~edit >> 3] &= ~(1 << (~edit & 7))
    count = int.from_bytes(bits, "little").bit_count()
    return bytes(bits) if count > _MOST_LISTED else _offsets(bits)


def _offsets(bits: bytes | bytearray) -> bytes:
    return array("H", [at << 3 | bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1]).tobytes()


def _listed(data: bytes) -> array[int]:
    offsets = array("H")
    offsets.frombytes(data)
    return offsets


def block_count(data: bytes) -> int:
    """How many documents a block holds."""
    return len(data) >> 1 if len(data) < BLOCK_BYTES else int.from_bytes(data, "little").bit_count()


def block_docids(block: int, data: bytes) -> Sequence[int]:
    """The documents of a block, ascending."""
    start = block << BLOCK_BITS
    offsets = _offsets(data) if len(data) == BLOCK_BYTES else data
    return [start | offset for offset in _listed(offsets)]


class IntersectedBlocks:
    """A set of documents, as bytes by block, that is intersected with many others, most of them small."""

    def __init__(self, docids: DocIds) -> None:
        raw = docids.to_bytes((docids.bit_length() + 7) >> 3, "little")
        parts = {start // BLOCK_BYTES: raw[start:start + BLOCK_BYTES] for start in range(0, len(raw), BLOCK_BYTES)}
        self._blocks = {block: part.ljust(BLOCK_BYTES, b"\0") for block, part in parts.items() if any(part)}

    def intersection(self, blocks: Iterable[tuple[int, bytes]]) -> DocIds:
        """The documents of (block number, block) that are in the set."""
        found: list[int] = []
        for block, data in blocks:
            own = self._blocks.get(block)
            if own is None:
                continue
            if len(data) == 2:  # a single document: by far the commonest block where there are many
                offset = data[1] << 8 | data[0]
                if own[offset >> 3] >> (offset & 7) & 1:
                    found.append(block << BLOCK_BITS | offset)
            else:
                found += [block << BLOCK_BITS | offset for offset in _common_offsets(own, data)]
        return from_docids(found)


def _common_offsets(bits: bytes, data: bytes) -> Iterable[int]:
    """The offsets that both have."""
    if len(data) < BLOCK_BYTES:
        return [offset for offset in _listed(data) if bits[offset >> 3] >> (offset & 7) & 1]
    return to_docids(int.from_bytes(bits, "little") & int.from_bytes(data, "little"))


def joined_blocks(blocks: Sequence[tuple[int, bytes]], lists: Sequence[tuple[int, bytes]] = ()) -> DocIds:
    """The union of (block number, block) in any order; a block number may occur several times.

    lists: further blocks in list form of any length: several lists may be joined, one after the other.
    """
    if len(blocks) == 1 and not lists:
        ((block, data),) = blocks
        bits = int.from_bytes(data, "little") if len(data) == BLOCK_BYTES else from_docids(_listed(data))
        return bits << block * BLOCK
    whole = bytearray((max((block for block, _ in (*blocks, *lists)), default=-1) + 1) * BLOCK_BYTES)
    for block, data in blocks:
        if len(data) == BLOCK_BYTES:
            part = slice(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES)
            union = int.from_bytes(whole[part], "little") | int.from_bytes(data, "little")
            whole[part] = union.to_bytes(BLOCK_BYTES, "little")
        else:
            _set(whole, block, data)
    for block, data in lists:
        _set(whole, block, data)
    return int.from_bytes(whole, "little")


def _set(whole: bytearray, block: int, data: bytes) -> None:
    start = block * BLOCK_BYTES
    for offset in _listed(data):
        whole[start + (offset >> 3)] |= 1 << (offset & 7)
