"""Positions of words in a field: the last one that is kept, the coarse positions under which words are indexed, occurrences.

Apart from text analysis, so that a process that only opens index files need not load that.
"""
from __future__ import annotations

LAST_POSITION = 65_535  # nothing is indexed after it
# An occurrence is a number: that of the field in the document, shifted, plus the position in the field. A position has 16 bits;
# one more keeps the last word of a field far from the first one of the next.
FIELD_SHIFT = 17
POSITION = (1 << FIELD_SHIFT) - 1


def bucketed_position(position: int) -> int:
    """The coarse position for a position: exact up to 15, then 24, then powers of two (docs/ranking.md#word-position)."""
    if position < 16:
        return position
    return 24 if position < 24 else min(1 << (position - 1).bit_length(), LAST_POSITION)
