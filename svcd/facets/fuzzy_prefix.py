"""Finds the texts of a sorted list that begin with a term, up to a number of typos.

The list is not compared text by text: a prefix within the distance decides for all texts that begin with it, and so
does a prefix that is too far away. (svcd.query finds words with typos by other means; tests compare the two.)
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from svcd.facets.values import SortedTexts

_LOWEST, _HIGHEST = "\0", "\U0010ffff"

# What a prefix of a text decides: about all texts with the prefix, or about this text alone.
_ALL_NEAR, _NONE_NEAR, _THIS_NEAR, _THIS_NOT = range(4)


def values_near_prefix(texts: SortedTexts, term: str, most: int) -> Iterator[str]:
    """The texts of which some prefix is within `most` typos of the term, in ascending order.

    A typo in the first letter counts like any other. With `most` 0: the texts that begin with the term.
    """
    alignment = _Alignment(term, most)
    ordinal, text = texts.seek("")
    while text is not None:
        length, verdict = alignment.look(text)
        if verdict == _ALL_NEAR:
            prefix = text[:length]
            yield from takewhile(lambda found: found.startswith(prefix), texts.from_ordinal(ordinal))  # noqa: B023 (consumed in this iteration)
        elif verdict == _THIS_NEAR:
            yield text
        following = _after_prefix(text[:length]) if verdict in (_ALL_NEAR, _NONE_NEAR) else text + _LOWEST
        if not following:
            return
        ordinal, text = texts.seek(following)


def _after_prefix(prefix: str) -> str:
    """The smallest text that is larger than all texts with a prefix, "" when there is none."""
    trimmed = prefix.rstrip(_HIGHEST)
    return trimmed[:-1] + chr(ord(trimmed[-1]) + 1) if trimmed else ""


class _Alignment:
    """The edit distances between prefixes of the term and prefixes of the text that was looked at last.

    A column belongs to one prefix of the text, of i characters: its cell k to the first i + k - most characters of the
    term, as all others are more than `most` away. So a long term costs no more than a short one. Columns of the prefix
    that a text shares with the one before it are kept.
    """

    def __init__(self, term: str, most: int) -> None:
        self._term = term
        self._most = most
        self._far = most + 1
        self._text = ""
        self._columns = [[row if 0 <= row <= len(term) else self._far for row in range(-most, most + 1)]]

    def look(self, text: str) -> tuple[int, int]:
        """The length of the prefix that decides, and what it decides."""
        self._keep_common_columns(text)
        while True:
            length = len(self._columns) - 1
            cells = self._columns[-1]
            nearest, whole = min(cells), self._to_whole_term(cells, length)
            if whole == nearest <= self._most:
                return length, _ALL_NEAR
            # A transposition reaches back two columns at the cost of one.
            if length and nearest > self._most <= min(self._columns[-2]):
                return length, _NONE_NEAR
            if length == len(text):
                return length, _THIS_NEAR if whole <= self._most else _THIS_NOT
            self._columns.append(self._next(text, length))

    def _to_whole_term(self, cells: Sequence[int], length: int) -> int:
        """The distance between the whole term and a prefix of the text."""
        place = len(self._term) - length + self._most
        return cells[place] if 0 <= place < len(cells) else self._far

    def _next(self, text: str, length: int) -> list[int]:
        """The column after that of `length` characters: optimal string alignment distance."""
        term, far, last = self._term, self._far, self._columns[-1]
        cells: list[int] = []
        above = far
        for place, row in enumerate(range(length + 1 - self._most, length + 2 + self._most)):
            if row < 0 or row > len(term):
                above = far
            elif row and term[row - 1] == text[length]:
                above = last[place]
            else:
                distances = [above + 1, far if place + 1 == len(last) else last[place + 1] + 1]
                if row:
                    distances.append(last[place] + 1)
                if row > 1 and length and term[row - 2 : row] == text[length] + text[length - 1]:
                    distances.append(self._columns[-2][place] + 1)
                above = min(*distances, far)
            cells.append(above)
        return cells

    def _keep_common_columns(self, text: str) -> None:
        """Drop the columns beyond the common prefix of this text and the one before it."""
        common = 0
        known = min(len(text), len(self._columns) - 1)
        while common < known and text[common] == self._text[common]:
            common += 1
        del self._columns[common + 1 :]
        self._text = text
