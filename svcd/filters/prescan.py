"""How far a long filter is sound, found out without reading it: one match of one pattern (grammar: relevance.md 5.2).

Knows the plain spellings of every condition, so that a mistake behind 100,000 of them is met in a few milliseconds;
refuses to know what they mean. What is spelled in an odd way ends the match: it is for the parser to judge.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from svcd.filters import lexer

# Parentheses within parentheses that the pattern looks into; it grows with each.
_NESTING = 3
_NOTS = 2  # in a row
# As many levels as what is passed over can have at most: or, and, not and what stands alone count one each.
DEPTH = (_NESTING + 1) * (4 + _NOTS)
# Shorter pieces are read as fast as they are skimmed.
_LONG = 10_000

_ENDS = rf"(?![{lexer.WORD_SET}])"
_SPACE = r"[ \t\r\n]++"
_UNQUOTED = "|".join(sorted(lexer.UNQUOTED))
# Names that begin a form of their own, or may.
_FORMS = r"_geoPolygon|_foreign|_vectors"
_WORD = rf"(?!(?:{_UNQUOTED}){_ENDS})[{lexer.WORD_SET}]++"
_ESCAPE = r"\\[bfnrt'\"\\/]"
_QUOTED = rf"""\"(?:[^"\\]++|{_ESCAPE})*+\"|'(?:[^'\\]++|{_ESCAPE})*+'"""
_VALUE = rf"(?:{_WORD}|{_QUOTED}){lexer.BLANKS}"
_FIELD = rf"(?![\"']?(?:{_FORMS})){_VALUE}"
_COMMA = rf",{lexer.BLANKS}"
_LISTED = rf"(?:{lexer.BLANKS}{_VALUE}{_COMMA})*+"
_LIST = rf"\[{_LISTED}{lexer.BLANKS}(?:{_VALUE})?+\]{lexer.BLANKS}"
_BEHIND_FIELD = "|".join((
    rf"(?:<=|>=|!=|<|>|=){lexer.BLANKS}{_VALUE}",
    rf"(?:NOT{_SPACE})?+IN{_ENDS}{lexer.BLANKS}{_LIST}",
    rf"IS{_SPACE}(?:NOT{_SPACE})?+(?:NULL|EMPTY)",
    rf"(?:NOT{_SPACE})?+(?:EXISTS|(?:CONTAINS|STARTS\ WITH){lexer.BLANKS}{_VALUE})",
    rf"{_VALUE}TO{_SPACE}{_VALUE}",
))
_NUMBER = rf"{lexer.BLANKS}[+-]?+[0-9]++(?:\.[0-9]*+)?+{lexer.BLANKS}"
_POINT = rf"{lexer.BLANKS}\[{_NUMBER},{_NUMBER}\]{lexer.BLANKS}"
_GEO = rf"_geoRadius\({_NUMBER},{_NUMBER},{_NUMBER}\)|_geoBoundingBox\({_POINT},{_POINT}\)"
_CONDITION = rf"(?:{_FIELD}(?:{_BEHIND_FIELD})|{_GEO}){lexer.BLANKS}"
_JOINT = rf"(?:AND|OR){_ENDS}{lexer.BLANKS}"
_NEGATION = rf"(?:NOT{_ENDS}{lexer.BLANKS}){{0,{_NOTS}}}+"


@cache
def _conditions() -> re.Pattern[str]:
    """Any number of parts, each with the AND or OR behind it. Made when the first long filter comes."""
    part = _NEGATION + _CONDITION
    for _ in range(_NESTING):
        group = rf"\({lexer.BLANKS}(?:{part}(?:{_JOINT}(?!\))|(?=\))))++\){lexer.BLANKS}"
        part = rf"{_NEGATION}(?:{group}|{_CONDITION})"
    return re.compile(rf"(?:{lexer.BLANKS}{part}{_JOINT})*+")


@cache
def _list() -> re.Pattern[str]:
    return re.compile(_LISTED)


def end_of_valid_conditions(source: str, at: int) -> int | None:
    """Where another part must begin, behind many that are sound and joined by AND and OR; None when there are few.

    One that is long itself, in parentheses, is not looked into: what is inside them can be skimmed when it is read.
    """
    if source.startswith("(", at) and source.find(")", at, at + _LONG) < 0:
        return None
    return _behind(_conditions, source, at)


def end_of_valid_values(source: str, at: int) -> int | None:
    """Where another value of a list, or its end, must stand, behind many that are sound; None when there are few."""
    return _behind(_list, source, at)


def _behind(pattern: Callable[[], re.Pattern[str]], source: str, at: int) -> int | None:
    if len(source) - at < _LONG:
        return None
    end = pattern().match(source, at).end()  # type: ignore[union-attr]  # matches anywhere
    return end if end - at >= _LONG else None
