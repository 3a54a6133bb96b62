"""Errors of filters: a sentence, and the place in the text of the filter that it is about.

Source: docs/filters-and-facets.md#error-messages.
"""
from __future__ import annotations

import unicodedata
from typing import NoReturn

from svcd.filters.tree import Token

_SHORT = {"\0": "\\0", "\t": "\\t", "\n": "\\n", "\r": "\\r", "'": "\\'", '"': '\\"', "\\": "\\\\"}
# Characters with the Unicode property Grapheme_Extend that are not in the categories Mn and Me.
_EXTENDERS = frozenset(
    "\u09be\u09d7\u0b3e\u0b57\u0bbe\u0bd7\u0cc2\u0cd5\u0cd6\u0d3e\u0d57\u0dcf\u0ddf\u1b35\u200c\u302e\u302f\uff9e\uff9f"
    "\U0001133e\U00011357\U000114b0\U000114bd\U000115af\U00011930\U0001d165"
) | frozenset(map(chr, (*range(0x1D16E, 0x1D173), *range(0xE0020, 0xE0080))))


class FilterError(Exception):
    """A filter that cannot be parsed, or not be evaluated on an index.

    place: the part of the filter that is wrong, None for messages without a place. shown_from: the index in the source
    from which the message shows the filter.
    """

    def __init__(self, sentence: str, place: Token | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.place = place
        self.shown_from = 0

    @property
    def message(self) -> str:
        """The sentence and, on a line of its own, the place in the filter as it was written."""
        return self.sentence if self.place is None else f"{self.sentence}\n{shown_place(self.place, self.shown_from)}"


class NoValue(FilterError):
    """There is no value at this place: an error where one is required, else another syntax may fit.

    is_keyword: is there a keyword instead?
    """

    def __init__(self, sentence: str, place: Token, is_keyword: bool = False) -> None:
        super().__init__(sentence, place)
        self.is_keyword = is_keyword


class Unclosed(FilterError):
    """A quote or parenthesis is not closed."""


def shown_place(place: Token, shown_from: int = 0) -> str:
    """`START:END FILTER`: the columns of the place, from 1 and counted from the start of its line, then the filter.

    shown_from: the filter is shown from this index on. For a place inside of `_foreign(..)` that is the index of
    `_foreign`, while the columns are still those of the whole filter.
    """
    column = place.start - place.source.rfind("\n", 0, place.start)
    return f"{column}:{column + place.end - place.start} {place.source[shown_from:]}"


def quoted(text: str) -> str:
    """A part of a filter as a sentence shows it: quotes, control and other invisible characters escaped.

    A combining mark at the beginning is escaped too, as it would combine with the text before it.
    """
    first = text[:1]
    if first and (first in _EXTENDERS or unicodedata.category(first) in ("Mn", "Me")):
        return _escaped(first) + _quoted(text[1:])
    return _quoted(text)


def _quoted(text: str) -> str:
    escaped = {ord(character): _SHORT.get(character) or _escaped(character) for character in set(text)
               if character in _SHORT or not character.isprintable()}
    return text.translate(escaped) if escaped else text


def _escaped(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def rest(source: str, start: int) -> Token:
    """The source from an index to its end."""
    return Token(source[start:], source, start, len(source))


def piece(source: str, start: int, end: int) -> Token:
    """The source between two indexes."""
    return Token(source[start:end], source, start, end)


def unclosed(source: str, start: int, delimiter: str) -> Unclosed:
    """The error of a quote or parenthesis at `start` that is not closed."""
    sentence = f"Expression `{quoted(source[start:])}` is missing the following closing delimiter: `{delimiter}`."
    return Unclosed(sentence, rest(source, start))


def fail(sentence: str, place: Token) -> NoReturn:
    """Raise a FilterError."""
    raise FilterError(sentence, place)
