"""Positions of words in a field: the last indexed position, occurrences, the coarse positions of the index.

Separate from text analysis, so that a process that only opens index files need not load it.
"""
from __future__ import annotations

LAST_POSITION = 65_535  # nothing is indexed after it
# An occurrence is the number of the field in the document, shifted, plus the position in the field. A position has 16 bits; a
# 17th bit keeps the last word of a field far from the first word of the next field.
FIELD_SHIFT = 17
POSITION = (1 << FIELD_SHIFT) - 1


def bucketed_position(position: int) -> int:
    """Return the coarse position of a position: exact up to 15, then 24, then powers of two (docs/ranking.md#word-position)."""
    if position < 16:
        return position
    return 24 if position < 24 else min(1 << (position - 1).bit_length(), LAST_POSITION)
