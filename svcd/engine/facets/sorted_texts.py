"""Many texts in order, kept small: found by rank and by text.

Knows how a million texts are held without a million strings; refuses to know what they stand for.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

# Texts of one block. A string of its own takes some 60 bytes beside its characters; a block is cut open to read one
# of them, which takes about a microsecond.
BLOCK = 32
_GAP = "\0"

Block = str | list[str]  # joined, or as it is when a text of it has the gap inside
Packed = tuple[list[str], list[Block], int]  # the first text of each block, the blocks, how many texts


def pack(texts: Sequence[str]) -> Packed:
    """Ascending texts, made small for being kept."""
    blocks = [_block(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK)]
    return [texts[start] for start in range(0, len(texts), BLOCK)], blocks, len(texts)


def _block(texts: Sequence[str]) -> Block:
    joined = _GAP.join(texts)
    return joined if joined.count(_GAP) == len(texts) - 1 else list(texts)


def _opened(block: Block) -> list[str]:
    return block.split(_GAP) if isinstance(block, str) else block


class SortedTexts(Sequence[str]):
    """What `pack` made, as the list of texts that it was."""

    def __init__(self, packed: Packed) -> None:
        self._firsts, self._blocks, self._size = packed

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, rank: int) -> str:  # type: ignore[override]  # nobody asks for slices
        return _opened(self._blocks[rank // BLOCK])[rank % BLOCK]

    def rank(self, text: str) -> int:
        """How many texts stand before this one, which need not be among them."""
        return self.seek(text)[0]

    def seek(self, text: str) -> tuple[int, str | None]:
        """Rank and text of this one, or of the first behind it; no text when there is none."""
        number = max(bisect_right(self._firsts, text) - 1, 0)
        block = _opened(self._blocks[number]) if self._size else []
        place = bisect_left(block, text)
        if place < len(block):
            return number * BLOCK + place, block[place]
        rank = number * BLOCK + len(block)
        return rank, self._firsts[number + 1] if rank < self._size else None

    def since(self, rank: int) -> Iterator[str]:
        """The texts from a rank on."""
        for number in range(rank // BLOCK, len(self._blocks)):
            yield from islice(_opened(self._blocks[number]), rank % BLOCK if number == rank // BLOCK else 0, None)
