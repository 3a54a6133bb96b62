"""Sets of documents as rows of a table: one per block of 65,536 docids, as a list or as bits, whichever is smaller.

Knows the two forms of a chunk and how they are joined; refuses to know what the sets are of.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from svcd.base.bitmaps import DocIds, from_docids, to_docids

BLOCK_BITS = 16
BLOCK = 1 << BLOCK_BITS
BLOCK_BYTES = BLOCK >> 3
# From so many on the bits are smaller than the list; so a chunk of BLOCK_BYTES is bits, a shorter one a list.
_MOST_LISTED = BLOCK_BYTES // 2 - 1


def edited_block(chunk: bytes | None, edits: Sequence[int]) -> bytes:
    """The chunk after some edits, b"" when nothing is left.

    edits, in their order: a place (docid within the block) comes in, ~place goes.
    """
    if chunk is not None and len(chunk) == BLOCK_BYTES:
        return _changed_bits(bytearray(chunk), edits)
    held = set(_listed(chunk or b""))
    if min(edits) >= 0:
        held.update(edits)
    else:
        for edit in edits:
            (held.add if edit >= 0 else held.discard)(max(edit, ~edit))
    if len(held) <= _MOST_LISTED:
        return array("H", sorted(held)).tobytes()
    return _changed_bits(bytearray(BLOCK_BYTES), list(held))


def _changed_bits(bits: bytearray, edits: Iterable[int]) -> bytes:
    for edit in edits:
        if edit >= 0:
            bits[edit >> 3] |= 1 << (edit & 7)
        else:
            bits[~edit >> 3] &= ~(1 << (~edit & 7))
    held = int.from_bytes(bits, "little").bit_count()
    return bytes(bits) if held > _MOST_LISTED else _places(bits)


def _places(bits: bytes | bytearray) -> bytes:
    return array("H", [at << 3 | bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1]).tobytes()


def _listed(chunk: bytes) -> array[int]:
    places = array("H")
    places.frombytes(chunk)
    return places


def block_count(chunk: bytes) -> int:
    """How many documents a chunk holds."""
    return len(chunk) >> 1 if len(chunk) < BLOCK_BYTES else int.from_bytes(chunk, "little").bit_count()


def block_docids(block: int, chunk: bytes) -> Sequence[int]:
    """The documents of a chunk, ascending."""
    start = block << BLOCK_BITS
    places = _places(chunk) if len(chunk) == BLOCK_BYTES else chunk
    return [start | place for place in _listed(places)]


class IntersectedBlocks:
    """A set of documents that many others are to be cut with, most of them small: as bytes, block by block."""

    def __init__(self, docids: DocIds) -> None:
        raw = docids.to_bytes((docids.bit_length() + 7) >> 3, "little")
        parts = {start // BLOCK_BYTES: raw[start:start + BLOCK_BYTES] for start in range(0, len(raw), BLOCK_BYTES)}
        self._blocks = {block: part.ljust(BLOCK_BYTES, b"\0") for block, part in parts.items() if any(part)}

    def cut(self, chunks: Iterable[tuple[int, bytes]]) -> DocIds:
        """Those of (block, chunk) that are in the set."""
        found: list[int] = []
        for block, chunk in chunks:
            held = self._blocks.get(block)
            if held is None:
                continue
            if len(chunk) == 2:  # nearly all of those that are many
                place = chunk[1] << 8 | chunk[0]
                if held[place >> 3] >> (place & 7) & 1:
                    found.append(block << BLOCK_BITS | place)
            else:
                found += [block << BLOCK_BITS | place for place in _common(held, chunk)]
        return from_docids(found)


def _common(bits: bytes, chunk: bytes) -> Iterable[int]:
    """The places that both have."""
    if len(chunk) < BLOCK_BYTES:
        return [place for place in _listed(chunk) if bits[place >> 3] >> (place & 7) & 1]
    return to_docids(int.from_bytes(bits, "little") & int.from_bytes(chunk, "little"))


def joined_blocks(chunks: Sequence[tuple[int, bytes]], lists: Sequence[tuple[int, bytes]] = ()) -> DocIds:
    """The set of (block, chunk) in any order; of one block there may be several.

    lists: further ones that are lists, however long: several set one behind the other.
    """
    if len(chunks) == 1 and not lists:
        ((block, chunk),) = chunks
        bits = int.from_bytes(chunk, "little") if len(chunk) == BLOCK_BYTES else from_docids(_listed(chunk))
        return bits << block * BLOCK
    whole = bytearray((max((block for block, _ in (*chunks, *lists)), default=-1) + 1) * BLOCK_BYTES)
    for block, chunk in chunks:
        if len(chunk) == BLOCK_BYTES:
            place = slice(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES)
            held = int.from_bytes(whole[place], "little") | int.from_bytes(chunk, "little")
            whole[place] = held.to_bytes(BLOCK_BYTES, "little")
        else:
            _set(whole, block, chunk)
    for block, chunk in lists:
        _set(whole, block, chunk)
    return int.from_bytes(whole, "little")


def _set(whole: bytearray, block: int, chunk: bytes) -> None:
    start = block * BLOCK_BYTES
    for place in _listed(chunk):
        whole[start + (place >> 3)] |= 1 << (place & 7)
