"""What must hold of chunks of sets:

1. Any edits in their order give the set that they give one by one.
2. A chunk is a list or bits by its size alone, so equal sets have equal chunks.
3. Chunks of several blocks, and lists set one behind the other, are joined to the set of all their documents.
"""
from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from svcd.base.bitmaps import from_docids
from svcd.index import bitmap_blocks

PLACES = st.integers(0, 40) | st.integers(0, bitmap_blocks.BLOCK - 1)
EDITS = st.lists(st.tuples(PLACES, st.booleans()), min_size=1, max_size=30)


def edited(held: set[int], edits: list[tuple[int, bool]]) -> set[int]:
    for place, comes in edits:
        (held.add if comes else held.discard)(place)
    return held


def chunk_of(places: set[int]) -> bytes:
    return bitmap_blocks.edited_block(None, sorted(places)) if places else b""


@given(st.sets(PLACES), st.sampled_from([0, 4000, 4095, 4096, 5000]), EDITS)
def test_edits_give_the_set_they_give_one_by_one(held: set[int], more: int, edits: list[tuple[int, bool]]) -> None:
    held |= set(random.Random(more).sample(range(bitmap_blocks.BLOCK), more))
    chunk = bitmap_blocks.edited_block(chunk_of(held) or None, [place if comes else ~place for place, comes in edits])
    expected = edited(held, edits)
    assert chunk == chunk_of(expected)
    assert bitmap_blocks.block_count(chunk) == len(expected)
    assert bitmap_blocks.joined_blocks([(3, chunk)] if chunk else []) == from_docids(sorted(expected)) << 3 * bitmap_blocks.BLOCK


@given(st.lists(st.tuples(st.integers(0, 3), st.sets(PLACES, min_size=1), st.sampled_from([0, 4096]))))
def test_chunks_are_joined(several: list[tuple[int, set[int], int]]) -> None:
    rows, expected, lists = [], 0, {0: b"", 1: b"", 2: b"", 3: b""}
    for block, places, more in several:
        places = places | set(range(0, 2 * more, 2))
        chunk = chunk_of(places)
        expected |= from_docids(sorted(places)) << block * bitmap_blocks.BLOCK
        if more:
            rows.append((block, chunk))
        else:
            lists[block] += chunk
    assert bitmap_blocks.joined_blocks(rows, [(block, chunk) for block, chunk in lists.items() if chunk]) == expected
