"""Bucketed positions (docs/ranking.md): exact up to 15, then 24, then powers of two, at most the last position."""
from __future__ import annotations

import pytest

from svcd.base.positions import LAST_POSITION, bucketed_position
from svcd.index.fts import BUCKETS


@pytest.mark.parametrize(
    ("position", "bucket"),
    [(0, 0), (15, 15), (16, 24), (23, 24), (24, 32), (32, 32), (33, 64), (40_000, 65_535), (65_535, 65_535)],
)
def test_positions_are_bucketed_more_coarsely_the_larger_they_are(position: int, bucket: int) -> None:
    assert bucketed_position(position) == bucket


def test_buckets_lists_every_bucketed_position() -> None:
    assert sorted({bucketed_position(position) for position in range(LAST_POSITION + 1)}) == list(BUCKETS)
