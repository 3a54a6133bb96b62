"""The lexical rules of filters: white space, words, keywords, and values with their quotes and escapes.

Source: docs/filters-and-facets.md#grammar.
"""
from __future__ import annotations

import re

from svcd.filters.errors import FilterError, NoValue, fail, piece, quoted, rest, unclosed
from svcd.filters.tree import Token
from svcd.schema.field_values import WHITE_SPACE
from svcd.text.character_tables import alphabetic_marks

KEYWORDS = frozenset("AND OR IN NOT TO EXISTS IS NULL EMPTY CONTAINS STARTS WITH _geoRadius _geoBoundingBox".split())
# Words that are neither names nor values.
RESERVED_GEO = ("_geo", "_geoPoint", "_geoDistance")
MISUSED_GEO = ("_geoRadius", "_geoBoundingBox")
UNQUOTED = KEYWORDS.union(RESERVED_GEO)

# For the inside of `[...]` in patterns: alphanumeric in the sense of Unicode, and three signs.
WORD_SET = rf"0-9A-Za-z_.\-\w{alphabetic_marks()}"
BLANKS = r"[ \t\r\n]*+"
# A value without escapes; it may still be a keyword.
PLAIN_VALUE = rf"""(?:[{WORD_SET}]++|"[^"\\]*"|'[^'\\]*')"""

word = re.compile(f"[{WORD_SET}]+").match
blanks = re.compile(BLANKS).match
white_space = re.compile(f"[{re.escape(WHITE_SPACE)}]*").match
# What error messages show where no value can be read.
unreadable = re.compile(f"[^{re.escape(WHITE_SPACE)}()=<>!]*").match


def keyword(name: str) -> re.Pattern[str]:
    """The pattern of a keyword as a whole word, with the blanks around it."""
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

_quoted = {quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+", re.DOTALL).match for quote in QUOTES}


def value(source: str, at: int) -> tuple[Token, int]:
    """The value at an index, after any white space, and the index after it and the blanks that follow.

    Raises NoValue where there is none, FilterError where one begins that is malformed.
    """
    start = white_space(source, at).end()  # type: ignore[union-attr]  # matches anywhere
    if source[start:start + 1] in QUOTES and start < len(source):
        token, end = quoted_value(source, start)
    else:
        token, end = _word(source, start)
    return token, blanks(source, end).end()  # type: ignore[union-attr]  # matches anywhere


def _word(source: str, start: int) -> tuple[Token, int]:
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
    return Token(text, source, start, found.end()), found.end()


def _no_value(source: str, start: int, is_keyword: bool = False) -> NoValue:
    place = piece(source, start, unreadable(source, start).end())  # type: ignore[union-attr]  # matches anywhere
    sentence = _KEYWORD if is_keyword else _OTHER if place.text else _NOTHING
    return NoValue(sentence.format(text=quoted(place.text)), place, is_keyword)


def quoted_value(source: str, start: int) -> tuple[Token, int]:
    """The value in quotes at an index, and the index after the closing quote.

    Raises Unclosed, FilterError for an escape that is cut short, NoValue for a bad one.
    """
    quote = source[start]
    end = _quoted[quote](source, start + 1).end()  # type: ignore[union-attr]  # matches anywhere
    if source[end:end + 1] == "\\":  # at the end of the filter it escapes nothing
        inside = rest(source, start + 1)
        fail(_MALFORMED.format(text=quoted(inside.text)), inside)
    if end == len(source):
        raise unclosed(source, start, quote)
    raw = piece(source, start + 1, end)
    if "\\" not in raw.text:
        return raw, end + 1
    return raw._replace(text=_unescaped(raw, raw.text.replace(f"\\{quote}", quote))), end + 1


# Escapes

_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\", "/": "/"}
_ESCAPE = re.compile(r"""\\(?:(?P<simple>[bfnrt'"\\/])|u\{(?P<braces>[^}]*)\}|u(?!\{)(?P<four>.{4})|x(?P<two>.{2})"""
                     r"""|(?P<octal>[0-3][0-7]{0,2}|[4-7][0-7]?)"""
                     r"""|(?P<cut>u\{[^}]*\Z|u(?!\{).{0,3}\Z|x.{0,1}\Z|\Z)|)""", re.DOTALL)
_HEX_NUMBER = re.compile(r"\+?[0-9A-Fa-f]+\Z")


def _unescaped(raw: Token, text: str) -> str:
    """The text of a quoted value. text: without the escapes of its own quotes."""
    return _ESCAPE.sub(lambda match: _character(raw, match), text)


def _character(raw: Token, match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind == "simple":
        return _SIMPLE[match["simple"]]
    if kind == "cut":
        raise FilterError(_INCOMPLETE, rest(raw.source, 0))
    if kind is None:
        raise NoValue(_MALFORMED.format(text=quoted(raw.text)), raw)
    if kind == "octal":
        return chr(int(match[kind], 8))
    return _character_of_code(raw, match[kind], 0xFF if kind == "two" else 0xFFFFFFFF)


def _character_of_code(raw: Token, digits: str, most: int) -> str:
    if not _HEX_NUMBER.match(digits) or int(digits, 16) > most:
        raise NoValue(_BAD_NUMBER.format(text=quoted(raw.text)), raw)
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise NoValue(_MALFORMED.format(text=quoted(raw.text)), raw)
    return chr(code)
