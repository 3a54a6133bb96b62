"""Limits on the work of formatting the hits of one search (docs/search.md#time-limit).

Formatting counts towards the time limit of the search, so that a hit of 20 MB cannot occupy a place for a minute. A fixed
amount is always allowed, so that hits of usual size are formatted however long ranking took.
"""
from __future__ import annotations

from collections.abc import Callable

# Characters of text that are read whatever the time: the hits of most pages, in a tenth of a second, in half of one where
# words have to be found without spaces.
ASSURED = 65_536
# Matches of one hit that are told where its texts are long; each takes some 300 bytes of memory.
MOST_MATCHES = 100_000
# Characters that tags and markers may add to the answer: they come with the request, and may be long.
MOST_ADDED = 16_777_216


class FormattingBudget:
    """What is left for one search. expired: tells whether its time is over; None never asks."""

    def __init__(self, expired: Callable[[], bool] | None = None) -> None:
        self._expired = expired
        self._assured = ASSURED
        self._addable = MOST_ADDED
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """True once something was refused because of the time."""
        return self._is_over

    def allows(self, amount: int) -> bool:
        """May so many more characters be read, or as simple things be done? Counts them when it says yes."""
        if self._assured > 0:
            self._assured -= amount
            return True
        if not self._is_over and self._expired is not None:
            self._is_over = self._expired()
        return not self._is_over

    def adds(self, characters: int) -> bool:
        """May so many characters be added to the texts of hits? Counts them when it says yes."""
        if characters > self._addable:
            return False
        self._addable -= characters
        return True
