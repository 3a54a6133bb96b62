"""Positions of words in a field: the last one that is kept, and the coarse positions under which words are indexed.

Apart from text analysis, so that a process that only opens index files need not load that.
"""
from __future__ import annotations

LAST_POSITION = 65_535  # nothing is indexed after it


def bucketed_position(position: int) -> int:
    """The coarse position for a position: exact up to 15, then 24, then powers of two (docs/ranking.md#word-position)."""
    if position < 16:
        return position
    return 24 if position < 24 else min(1 << (position - 1).bit_length(), LAST_POSITION)
