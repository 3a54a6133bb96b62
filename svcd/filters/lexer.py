"""The lexical rules of filters: white space, words, keywords, and values with their quotes and escapes.

Source: docs/filters-and-facets.md#grammar.
"""
from __future__ import annotations

import re
import unicodedata
from typing import NoReturn

from svcd.filters.tree import Token
from svcd.schema.field_values import WHITE_SPACE
from svcd.text.scripts import alphabetic_marks

# Errors of filters: a sentence, and its place in the text of the filter.
#
# Source: docs/filters-and-facets.md#error-messages.

_SHORT = {"\0": "\\0", "\t": "\\t", "\n": "\\n", "\r": "\\r", "'": "\\'", '"': '\\"', "\\": "\\\\"}
# Characters with the Unicode property Grapheme_Extend that are not in the categories Mn and Me.
_EXTENDERS = frozenset(
    "\u09be\u09d7\u0b3e\u0b57\u0bbe\u0bd7\u0cc2\u0cd5\u0cd6\u0d3e\u0d57\u0dcf\u0ddf\u1b35\u200c\u302e\u302f\uff9e\uff9f"
    "\U0001133e\U00011357\U000114b0\U000114bd\U000115af\U00011930\U0001d165"
) | frozenset(map(chr, (*range(0x1D16E, 0x1D173), *range(0xE0020, 0xE0080))))


class FilterError(Exception):
    """A filter that cannot be parsed, or cannot be evaluated on an index.

    place: the faulty part of the filter, None for messages without a place. shown_from: the message shows the filter from
    this index of the source on.
    """

    def __init__(self, sentence: str, place: Token | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.place = place
        self.shown_from = 0

    @property
    def message(self) -> str:
        """The sentence and, on a separate line, the place in the filter as the client wrote it."""
        return self.sentence if self.place is None else f"{self.sentence}\n{shown_place(self.place, self.shown_from)}"


class NoValue(FilterError):
    """No value begins at this place: an error where a value is required, otherwise another syntax may fit.

    is_keyword: a keyword is at this place.
    """

    def __init__(self, sentence: str, place: Token, is_keyword: bool = False) -> None:
        super().__init__(sentence, place)
        self.is_keyword = is_keyword


class Unclosed(FilterError):
    """A quote or parenthesis is not closed."""


def shown_place(place: Token, shown_from: int = 0) -> str:
    """Return `START:END FILTER`: the columns of the place, from 1 and counted from the start of its line, then the filter.

    shown_from: the filter is shown from this index on. For a place inside `_foreign(..)` it is the index of `_foreign`,
    while the columns still refer to the whole filter.
    """
    column = place.start - place.source.rfind("\n", 0, place.start)
    return f"{column}:{column + place.end - place.start} {place.source[shown_from:]}"


def quoted(text: str) -> str:
    """Return a part of a filter as a sentence shows it: quotes, control and other invisible characters escaped.

    A combining mark at the beginning is escaped too, as it would combine with the text before it.
    """
    first, shown = text[:1], ""
    if first and (first in _EXTENDERS or unicodedata.category(first) in ("Mn", "Me")):
        shown, text = f"\\u{{{ord(first):x}}}", text[1:]
    escaped = {ord(character): _SHORT.get(character) or f"\\u{{{ord(character):x}}}" for character in set(text)
               if character in _SHORT or not character.isprintable()}
    return shown + (text.translate(escaped) if escaped else text)


def rest(source: str, start: int) -> Token:
    """Return the source from an index to its end."""
    return Token(source[start:], source, start, len(source))


def piece(source: str, start: int, end: int) -> Token:
    """Return the source between two indexes."""
    return Token(source[start:end], source, start, end)


def unclosed(source: str, start: int, delimiter: str) -> Unclosed:
    """Return the error for a quote or parenthesis at `start` that is not closed."""
    sentence = f"Expression `{quoted(source[start:])}` is missing the following closing delimiter: `{delimiter}`."
    return Unclosed(sentence, rest(source, start))


def fail(sentence: str, place: Token) -> NoReturn:
    """Raise a FilterError."""
    raise FilterError(sentence, place)


KEYWORDS = frozenset("AND OR IN NOT TO EXISTS IS NULL EMPTY CONTAINS STARTS WITH _geoRadius _geoBoundingBox".split())
# Words that are neither names nor values.
RESERVED_GEO = ("_geo", "_geoPoint", "_geoDistance")
MISUSED_GEO = ("_geoRadius", "_geoBoundingBox")
UNQUOTED = KEYWORDS.union(RESERVED_GEO)

# For the inside of `[...]` in patterns: alphanumeric characters of Unicode, and three signs.
WORD_SET = rf"0-9A-Za-z_.\-\w{alphabetic_marks()}"
BLANKS = r"[ \t\r\n]*+"
# A value without escapes; it may still be a keyword.
PLAIN_VALUE = rf"""(?:[{WORD_SET}]++|"[^"\\]*"|'[^'\\]*')"""

word = re.compile(f"[{WORD_SET}]+").match
blanks = re.compile(BLANKS).match
white_space = re.compile(f"[{re.escape(WHITE_SPACE)}]*").match
# The text that error messages show where no value can be read.
unreadable = re.compile(f"[^{re.escape(WHITE_SPACE)}()=<>!]*").match


def keyword(name: str) -> re.Pattern[str]:
    """Return the pattern of a keyword as a whole word, with the blanks around it."""
    return re.compile(rf"{BLANKS}{name}(?![{WORD_SET}]){BLANKS}")


# Values

QUOTES = "\"'"

_NOTHING = "Was expecting a value but instead got nothing."
_OTHER = "Was expecting a value but instead got `{text}`."
_KEYWORD = ("Was expecting a value but instead got `{text}`, which is a reserved keyword. "
            "To use `{text}` as a field name or a value, surround it by quotes.")
_RESERVED = ("`{name}` is a reserved keyword and thus can't be used as a filter expression. "
             "Use the `_geoRadius(latitude, longitude, distance)` or "
             "`_geoBoundingBox([latitude, longitude], [latitude, longitude])` "
             "built-in rules to filter on `_geo` coordinates.")
_MISUSED = "The `{name}` filter is an operation and can't be used as a value."
_MALFORMED = "Malformed value: `{text}`."
_BAD_NUMBER = "Found an invalid escaped sequence number: `{text}`."
_INCOMPLETE = "The filter is incomplete and requires Unknown additional bytes to be parsed."

_quoted_lexer = {quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+", re.DOTALL).match for quote in QUOTES}


def value(source: str, at: int) -> tuple[Token, int]:
    """Read the value at an index, after any white space; return it and the index after it and the following blanks.

    Raises NoValue if no value begins there, FilterError for a malformed value.
    """
    start = white_space(source, at).end()  # type: ignore[union-attr]  # matches anywhere
    if source[start:start + 1] in QUOTES and start < len(source):
        token, end = quoted_value(source, start)
        return token, blanks(source, end).end()  # type: ignore[union-attr]  # matches anywhere
    found = word(source, start)
    if found is None:
        raise _no_value(source, start)
    text = found[0]
    if text in MISUSED_GEO:
        fail(_MISUSED.format(name=text), rest(source, start))
    if text in RESERVED_GEO:
        fail(_RESERVED.format(name=text), rest(source, start))
    if text in KEYWORDS:
        raise _no_value(source, start, is_keyword=True)
    after = blanks(source, found.end()).end()  # type: ignore[union-attr]  # matches anywhere
    return Token(text, source, start, found.end()), after


def _no_value(source: str, start: int, is_keyword: bool = False) -> NoValue:
    place = piece(source, start, unreadable(source, start).end())  # type: ignore[union-attr]  # matches anywhere
    sentence = _KEYWORD if is_keyword else _OTHER if place.text else _NOTHING
    return NoValue(sentence.format(text=quoted(place.text)), place, is_keyword)


def quoted_value(source: str, start: int) -> tuple[Token, int]:
    """Return the value in quotes at an index, and the index after the closing quote.

    Raises Unclosed, FilterError for an escape that is cut short, NoValue for an invalid escape.
    """
    quote = source[start]
    end = _quoted_lexer[quote](source, start + 1).end()  # type: ignore[union-attr]  # matches anywhere
    if source[end:end + 1] == "\\":  # at the end of the filter, without a character to escape
        inside = rest(source, start + 1)
        fail(_MALFORMED.format(text=quoted(inside.text)), inside)
    if end == len(source):
        raise unclosed(source, start, quote)
    raw = piece(source, start + 1, end)
    if "\\" not in raw.text:
        return raw, end + 1
    text = raw.text.replace(f"\\{quote}", quote)
    return raw._replace(text=_ESCAPE.sub(lambda match: _character(raw, match), text)), end + 1


# Escapes

_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\", "/": "/"}
_ESCAPE = re.compile(r"""\\(?:(?P<simple>[bfnrt'"\\/])|u\{(?P<braces>[^}]*)\}|u(?!\{)(?P<four>.{4})|x(?P<two>.{2})"""
                     r"""|(?P<octal>[0-3][0-7]{0,2}|[4-7][0-7]?)"""
                     r"""|(?P<cut>u\{[^}]*\Z|u(?!\{).{0,3}\Z|x.{0,1}\Z|\Z)|)""", re.DOTALL)
_HEX_NUMBER = re.compile(r"\+?[0-9A-Fa-f]+\Z")


def _character(raw: Token, match: re.Match[str]) -> str:
    """Return the character of an escape in a quoted value."""
    kind = match.lastgroup
    if kind == "simple":
        return _SIMPLE[match["simple"]]
    if kind == "cut":
        raise FilterError(_INCOMPLETE, rest(raw.source, 0))
    if kind is None:
        raise NoValue(_MALFORMED.format(text=quoted(raw.text)), raw)
    if kind == "octal":
        return chr(int(match[kind], 8))
    digits = match[kind]
    if not _HEX_NUMBER.match(digits) or int(digits, 16) > (0xFF if kind == "two" else 0xFFFFFFFF):
        raise NoValue(_BAD_NUMBER.format(text=quoted(raw.text)), raw)
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise NoValue(_MALFORMED.format(text=quoted(raw.text)), raw)
    return chr(code)
