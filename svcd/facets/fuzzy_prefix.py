"""The forms of texts in which facet search compares them (relevance.md 6.4).

Knows how a text becomes its search form, and keeps the forms of a field's values; refuses to know how they are
searched and counted.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from svcd.facets.values import Packed, SortedTexts, pack
from svcd.query.reader import Reader
from svcd.schema.index_settings import IndexSettings
from svcd.text import scripts
from svcd.text.normalization import lemma_of
from svcd.text.scripts import script_of_whole
from svcd.validation.names import long_form


def search_form(text: str, locales: Sequence[str] | None) -> str:
    """The lemma of a text taken as one token. locales: the languages it may be in; None for a text without any."""
    if text.isascii() and text.isprintable():
        return text.lower()
    script = script_of_whole(text)
    return lemma_of(text, script, scripts.detect_language(text, script, locales) if locales else None)


def query_locales(settings: IndexSettings, field: str, asked: Sequence[str] | None) -> Sequence[str] | None:
    """The languages of a facet query: those of its field that were asked for; none where the field has none."""
    of_field = settings.locales_of(field)
    if of_field is None or asked is None:
        return of_field
    codes = set(map(long_form, asked))
    return [locale for locale in of_field if long_form(locale) in codes]


class NormalizedValues(NamedTuple):
    """forms: of all texts of a field, each once. others: form -> the values that have it, if it is not its only one."""

    forms: SortedTexts
    others: Mapping[str, Sequence[str]]

    def has(self, form: str) -> bool:
        """Does any value have this form?"""
        rank = self.forms.rank(form)
        return rank < len(self.forms) and self.forms[rank] == form

    def values(self, form: str) -> Sequence[str]:
        """The values of a form, in byte order."""
        return self.others.get(form) or (form,)


def normalized_values(reader: Reader, field: str) -> NormalizedValues:
    """The search forms of a field's texts."""
    locales = reader.settings.locales_of(field)
    packed, others = reader.cached(
        ("facet forms", field, *(locales or ())), lambda: _forms_of(_texts(reader, field), locales))
    return NormalizedValues(SortedTexts(packed), others)


def _texts(reader: Reader, field: str) -> Sequence[Any]:
    return reader.values.distinct_values(field, str)


def _forms_of(values: Sequence[str], locales: Sequence[str] | None) -> tuple[Packed, dict[str, list[str]]]:
    values_of: dict[str, list[str]] = {}
    for value in values:
        values_of.setdefault(search_form(value, locales), []).append(value)
    others = {form: values for form, values in values_of.items() if values != [form]}
    return pack(sorted(values_of)), others


# Which texts of a long list begin almost like a word (relevance.md 2.5.3 for prefixes, 6.4).
#
# Knows how the list is walked without looking at every text: a beginning that is near decides for all texts that
# begin so, and so does a hopeless one. Refuses to know what the texts stand for. (svcd.query.typos finds words, whole
# ones too, and has its own means for that; the tests compare the two.)


_LOWEST, _HIGHEST = "\0", "\U0010ffff"

# What a beginning of a text says about the texts that begin so.
_ALL_NEAR, _NONE_NEAR, _THIS_NEAR, _THIS_NOT = range(4)


def values_near_prefix(texts: SortedTexts, term: str, most: int) -> Iterator[str]:
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
