"""What must hold of blocks of sets:

1. Any edits in their order give the set that they give one by one.
2. Equal sets have equal blocks.
3. Blocks of several ranges of docids, few documents or many in each, are joined to the set of all their documents.
"""
from __future__ import annotations

import random
import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from svcd.base.docids import DocIds
from svcd.index import bitmap_blocks

BLOCK = 1 << bitmap_blocks.BLOCK_BITS
PLACES = st.integers(0, 40) | st.integers(0, BLOCK - 1)
EDITS = st.lists(st.tuples(PLACES, st.booleans()), min_size=1, max_size=30)


def edited(held: set[int], edits: list[tuple[int, bool]]) -> set[int]:
    for docid, comes in edits:
        (held.add if comes else held.discard)(docid)
    return held


def block_of(docids: set[int]) -> bytes:
    return bitmap_blocks.edited_block(None, sorted(docids)) if docids else b""


@given(st.sets(PLACES), st.sampled_from([0, 8, 4000, 4095, 4096, 5000]), EDITS)
def test_edits_give_the_set_they_give_one_by_one(held: set[int], more: int, edits: list[tuple[int, bool]]) -> None:
    held |= set(random.Random(more).sample(range(BLOCK), more))
    block = bitmap_blocks.edited_block(block_of(held) or None, [docid if comes else ~docid for docid, comes in edits])
    expected = edited(held, edits)
    assert block == block_of(expected)
    assert bitmap_blocks.block_count(block) == len(expected)
    assert list(bitmap_blocks.block_docids(block)) == sorted(expected)


@given(st.lists(st.tuples(st.integers(0, 3), st.sets(PLACES, min_size=1), st.sampled_from([0, 4096]))), st.sets(PLACES))
def test_blocks_are_joined(several: list[tuple[int, set[int], int]], others: set[int]) -> None:
    rows, expected = [], set()
    for number, places, more in several:
        docids = {number * BLOCK + place for place in places | set(range(0, 2 * more, 2))}
        rows.append((block_of(docids),))
        expected |= docids
    assert list(bitmap_blocks.joined_blocks(rows)) == sorted(expected)
    if rows:
        assert list(bitmap_blocks.joined_within(rows, DocIds(list(others)))) == sorted(expected & others)


@given(st.lists(st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 10**8 - 1), st.integers(0, 300)), max_size=60))
def test_a_list_of_docids_by_sqlite_is_their_set(docids: list[int]) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE docids(rowid INTEGER PRIMARY KEY)")
    connection.executemany("INSERT OR IGNORE INTO docids VALUES (?)", [(docid,) for docid in docids])
    (listed,) = connection.execute(f"SELECT {bitmap_blocks.LISTED} FROM docids").fetchone()
    connection.close()
    assert list(bitmap_blocks.listed_docids(listed)) == sorted(set(docids))


def test_a_long_list_of_docids_is_their_set() -> None:
    docids = range(5, 9_000_000, 997)
    assert list(bitmap_blocks.listed_docids("".join(str(docid + 10**9) for docid in docids))) == list(docids)
