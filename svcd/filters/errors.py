"""What is wrong with a filter: the sentence, and the place in the text that it speaks of (relevance.md 5.2).

Knows how a place is shown; refuses to know the codes of routes and what the sentences say.
"""
from __future__ import annotations

import unicodedata
from typing import NoReturn

from svcd.filters.tree import Token

_SHORT = {"\0": "\\0", "\t": "\\t", "\n": "\\n", "\r": "\\r", "'": "\\'", '"': '\\"', "\\": "\\\\"}
# Grapheme_Extend beyond the categories Mn and Me.
_EXTENDERS = frozenset(
    "\u09be\u09d7\u0b3e\u0b57\u0bbe\u0bd7\u0cc2\u0cd5\u0cd6\u0d3e\u0d57\u0dcf\u0ddf\u1b35\u200c\u302e\u302f\uff9e\uff9f"
    "\U0001133e\U00011357\U000114b0\U000114bd\U000115af\U00011930\U0001d165"
) | frozenset(map(chr, (*range(0x1D16E, 0x1D173), *range(0xE0020, 0xE0080))))


class FilterError(Exception):
    """A filter that can't be read or met.

    place: the offending piece, None when the message shows none. since: as shown_place() takes it.
    """

    def __init__(self, sentence: str, place: Token | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.place = place
        self.since = 0

    @property
    def message(self) -> str:
        """The sentence and, on a line of its own, the place in the filter as it was written."""
        return self.sentence if self.place is None else f"{self.sentence}\n{shown_place(self.place, self.since)}"


class NoValue(FilterError):
    """There is no value here: final where one must stand, else another form may fit.

    is_keyword: does a keyword stand in its place?
    """

    def __init__(self, sentence: str, place: Token, is_keyword: bool = False) -> None:
        super().__init__(sentence, place)
        self.is_keyword = is_keyword


class Unclosed(FilterError):
    """A quote or parenthesis has no partner."""


def shown_place(place: Token, since: int = 0) -> str:
    """`START:END FILTER`: the columns, from 1 and counted from the start of the line, before the whole filter.

    since: from where on the filter is shown; inside `_foreign(..)` that is where it begins, and columns are those of
    the whole filter all the same (search_with_foreign_filter_on_author_profile).
    """
    column = place.start - place.source.rfind("\n", 0, place.start)
    return f"{column}:{column + place.end - place.start} {place.source[since:]}"


def quoted(text: str) -> str:
    """A piece of a filter as a sentence shows it: on one line, and only what can be seen.

    A combining mark is escaped where it has nothing to combine with, at the beginning.
    """
    first = text[:1]
    if first and (first in _EXTENDERS or unicodedata.category(first) in ("Mn", "Me")):
        return _code(first) + _quoted(text[1:])
    return _quoted(text)


def _quoted(text: str) -> str:
    escaped = {ord(character): _SHORT.get(character) or _code(character) for character in set(text)
               if character in _SHORT or not character.isprintable()}
    return text.translate(escaped) if escaped else text


def _code(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def rest(source: str, start: int) -> Token:
    """All from a place to the end."""
    return Token(source[start:], source, start, len(source))


def piece(source: str, start: int, end: int) -> Token:
    """The characters between two places, as they are."""
    return Token(source[start:end], source, start, end)


def unclosed(source: str, start: int, delimiter: str) -> Unclosed:
    """The error of a quote or parenthesis that begins at `start` and never ends."""
    sentence = f"Expression `{quoted(source[start:])}` is missing the following closing delimiter: `{delimiter}`."
    return Unclosed(sentence, rest(source, start))


def fail(sentence: str, place: Token) -> NoReturn:
    """Raise the final error of a filter."""
    raise FilterError(sentence, place)
