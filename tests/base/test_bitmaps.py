"""What must hold of bitmaps:

1. The docids that go in come out, ascending and once each.
2. Packed or not, a set stays the same.
"""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from svcd.base import bitmaps

# Thin sets, and sets in which most docids are.
DOCIDS = st.lists(st.integers(0, 300_000), max_size=60) | st.lists(st.integers(0, 90), max_size=60)


@given(DOCIDS)
def test_docids_come_out_once_and_ascending(docids: list[int]) -> None:
    assert bitmaps.to_docids(bitmaps.from_docids(docids)) == sorted(set(docids))


@given(DOCIDS, st.integers(0, 70))
def test_a_limit_gives_the_smallest(docids: list[int], limit: int) -> None:
    assert bitmaps.to_docids(bitmaps.from_docids(docids), limit) == sorted(set(docids))[:limit]


@given(DOCIDS)
def test_a_list_in_words_is_the_same_set(docids: list[int]) -> None:
    listed = bitmaps.parse_packed(",".join(map(str, docids)) or None)
    assert bitmaps.unpacked(listed) == sum(1 << docid for docid in set(docids))


@given(DOCIDS)
def test_packing_loses_nothing(docids: list[int]) -> None:
    bits = bitmaps.from_docids(docids)
    assert bitmaps.unpacked(bitmaps.packed(bits)) == bits


def test_a_large_thin_set_is_kept_small() -> None:
    kept = bitmaps.packed(1 << 1_000_000 | 1)
    assert not isinstance(kept, int) and len(kept) == 2


@given(st.binary(max_size=200), st.integers(0, 255))
def test_places_of_a_byte(values: bytes, value: int) -> None:
    found = bitmaps.to_docids(bitmaps.from_bytes_equal(values, value))
    assert found == [place for place, each in enumerate(values) if each == value]
