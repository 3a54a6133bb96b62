"""Finds with one regular expression how much of a long filter is valid, so that the parser sees an error after it early.

A filter of a megabyte that ends in an error would cost its sender's neighbours half a second of parsing; the pattern
passes over valid conditions in their usual spelling ten times as fast. Whatever is spelled in another way ends the
match and is left to the parser. Figures: docs/filters-and-facets.md#long-filters.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from svcd.filters import lexer

# How deep in parentheses the pattern looks; its size grows with each level.
_NESTING = 3
_NOTS = 2  # how many NOT in a row it accepts
# The most levels of the grammar (see parser.MOST_DEPTH) that what is passed over can have.
DEPTH = (_NESTING + 1) * (4 + _NOTS)
# Characters. Shorter filters are parsed in some milliseconds anyway.
LEAST_LENGTH = 10_000

_ENDS = rf"(?![{lexer.WORD_SET}])"
_SPACE = r"[ \t\r\n]++"
_UNQUOTED = "|".join(sorted(lexer.UNQUOTED))
# Names with which conditions of another syntax begin, or may begin.
_SPECIAL_NAMES = r"_geoPolygon|_foreign|_vectors"
_WORD = rf"(?!(?:{_UNQUOTED}){_ENDS})[{lexer.WORD_SET}]++"
_ESCAPE = r"\\[bfnrt'\"\\/]"
_QUOTED = rf"""\"(?:[^"\\]++|{_ESCAPE})*+\"|'(?:[^'\\]++|{_ESCAPE})*+'"""
_VALUE = rf"(?:{_WORD}|{_QUOTED}){lexer.BLANKS}"
_FIELD = rf"(?![\"']?(?:{_SPECIAL_NAMES})){_VALUE}"
_COMMA = rf",{lexer.BLANKS}"
_LISTED = rf"(?:{lexer.BLANKS}{_VALUE}{_COMMA})*+"
_LIST = rf"\[{_LISTED}{lexer.BLANKS}(?:{_VALUE})?+\]{lexer.BLANKS}"
_AFTER_FIELD = "|".join((
    rf"(?:<=|>=|!=|<|>|=){lexer.BLANKS}{_VALUE}",
    rf"(?:NOT{_SPACE})?+IN{_ENDS}{lexer.BLANKS}{_LIST}",
    rf"IS{_SPACE}(?:NOT{_SPACE})?+(?:NULL|EMPTY)",
    rf"(?:NOT{_SPACE})?+(?:EXISTS|(?:CONTAINS|STARTS\ WITH){lexer.BLANKS}{_VALUE})",
    rf"{_VALUE}TO{_SPACE}{_VALUE}",
))
_NUMBER = rf"{lexer.BLANKS}[+-]?+[0-9]++(?:\.[0-9]*+)?+{lexer.BLANKS}"
_POINT = rf"{lexer.BLANKS}\[{_NUMBER},{_NUMBER}\]{lexer.BLANKS}"
_GEO = rf"_geoRadius\({_NUMBER},{_NUMBER},{_NUMBER}\)|_geoBoundingBox\({_POINT},{_POINT}\)"
_CONDITION = rf"(?:{_FIELD}(?:{_AFTER_FIELD})|{_GEO}){lexer.BLANKS}"
_CONNECTIVE = rf"(?:AND|OR){_ENDS}{lexer.BLANKS}"
_NEGATION = rf"(?:NOT{_ENDS}{lexer.BLANKS}){{0,{_NOTS}}}+"


@cache
def _conditions() -> re.Pattern[str]:
    """Any number of parts, each followed by AND or OR. Compiled when the first long filter comes."""
    part = _NEGATION + _CONDITION
    for _ in range(_NESTING):
        group = rf"\({lexer.BLANKS}(?:{part}(?:{_CONNECTIVE}(?!\))|(?=\))))++\){lexer.BLANKS}"
        part = rf"{_NEGATION}(?:{group}|{_CONDITION})"
    return re.compile(rf"(?:{lexer.BLANKS}{part}{_CONNECTIVE})*+")


@cache
def _list() -> re.Pattern[str]:
    return re.compile(_LISTED)


def end_of_valid_conditions(source: str, at: int) -> int | None:
    """The index after many valid conditions that are followed by AND or OR; None when they are short.

    A long part in parentheses is not scanned here: the parser calls this again for what is inside of them.
    """
    if source.startswith("(", at) and source.find(")", at, at + LEAST_LENGTH) < 0:
        return None
    return _end(_conditions, source, at)


def end_of_valid_values(source: str, at: int) -> int | None:
    """The index after many valid values of a list, each followed by a comma; None when they are short."""
    return _end(_list, source, at)


def _end(pattern: Callable[[], re.Pattern[str]], source: str, at: int) -> int | None:
    if len(source) - at < LEAST_LENGTH:
        return None
    end = pattern().match(source, at).end()  # type: ignore[union-attr]  # matches anywhere
    return end if end - at >= LEAST_LENGTH else None
