"""Which texts of a long list begin almost like a word (relevance.md 2.5.3 for prefixes, 6.4).

Knows how the list is walked without looking at every text: a beginning that is near decides for all texts that
begin so, and so does a hopeless one. Refuses to know what the texts stand for. (svcd.engine.typos finds words, whole
ones too, and has its own means for that; the tests compare the two.)
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from svcd.engine.facets.sorted_texts import SortedTexts

_LOWEST, _HIGHEST = "\0", "\U0010ffff"

# What a beginning of a text says about the texts that begin so.
_ALL_NEAR, _NONE_NEAR, _THIS_NEAR, _THIS_NOT = range(4)


def near(texts: SortedTexts, term: str, most: int) -> Iterator[str]:
    """The texts that are at most so many typos away from beginning with the term, in order.

    The first letter is like any other. With `most` 0: those that begin with the term.
    """
    alignment = _Alignment(term, most)
    rank, text = texts.seek("")
    while text is not None:
        length, verdict = alignment.look(text)
        if verdict == _ALL_NEAR:
            beginning = text[:length]
            yield from takewhile(lambda found: found.startswith(beginning), texts.since(rank))  # noqa: B023 (read to its end)
        elif verdict == _THIS_NEAR:
            yield text
        behind = _behind(text[:length]) if verdict in (_ALL_NEAR, _NONE_NEAR) else text + _LOWEST
        if not behind:
            return
        rank, text = texts.seek(behind)


def _behind(beginning: str) -> str:
    """The smallest text behind all that begin so, "" when there can't be any."""
    trimmed = beginning.rstrip(_HIGHEST)
    return trimmed[:-1] + chr(ord(trimmed[-1]) + 1) if trimmed else ""


class _Alignment:
    """The distances from each beginning of the term to each beginning of the text looked at last.

    A column is for one beginning of the text, of i characters: its cell k is for the first i + k - most characters of
    the term, as all others are more than `most` away. So a long term costs no more than a short one.
    """

    def __init__(self, term: str, most: int) -> None:
        self._term = term
        self._most = most
        self._far = most + 1
        self._text = ""
        self._columns = [[row if 0 <= row <= len(term) else self._far for row in range(-most, most + 1)]]

    def look(self, text: str) -> tuple[int, int]:
        """(how many characters decide, what they say about the texts that begin so)."""
        self._go_back_to_common(text)
        while True:
            length = len(self._columns) - 1
            cells = self._columns[-1]
            nearest, whole = min(cells), self._to_whole_term(cells, length)
            if whole == nearest <= self._most:
                return length, _ALL_NEAR
            # A swap reaches back over two columns, at the cost of one.
            if length and nearest > self._most <= min(self._columns[-2]):
                return length, _NONE_NEAR
            if length == len(text):
                return length, _THIS_NEAR if whole <= self._most else _THIS_NOT
            self._columns.append(self._next(text, length))

    def _to_whole_term(self, cells: Sequence[int], length: int) -> int:
        """The distance from the whole term."""
        place = len(self._term) - length + self._most
        return cells[place] if 0 <= place < len(cells) else self._far

    def _next(self, text: str, length: int) -> list[int]:
        """The column behind the one of `length` characters: optimal string alignment."""
        term, far, last = self._term, self._far, self._columns[-1]
        cells: list[int] = []
        above = far
        for place, row in enumerate(range(length + 1 - self._most, length + 2 + self._most)):
            if row < 0 or row > len(term):
                above = far
            elif row and term[row - 1] == text[length]:
                above = last[place]
            else:
                ways = [above + 1, far if place + 1 == len(last) else last[place + 1] + 1]
                if row:
                    ways.append(last[place] + 1)
                if row > 1 and length and term[row - 2 : row] == text[length] + text[length - 1]:
                    ways.append(self._columns[-2][place] + 1)
                above = min(*ways, far)
            cells.append(above)
        return cells

    def _go_back_to_common(self, text: str) -> None:
        """Keep the columns of what the text and the one before it begin with alike."""
        common = 0
        known = min(len(text), len(self._columns) - 1)
        while common < known and text[common] == self._text[common]:
            common += 1
        del self._columns[common + 1 :]
        self._text = text
