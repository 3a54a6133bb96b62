"""The characters of filters: white space, words, keywords, the patterns that read them (relevance.md 5.2).

Knows where a word ends; refuses to know what stands where in a filter.
"""
from __future__ import annotations

import re

from svcd.engine.field_values import WHITE_SPACE
from svcd.engine.tables import alphabetic_marks

KEYWORDS = frozenset("AND OR IN NOT TO EXISTS IS NULL EMPTY CONTAINS STARTS WITH _geoRadius _geoBoundingBox".split())
# Words that are neither names nor values.
RESERVED_GEO = ("_geo", "_geoPoint", "_geoDistance")
MISUSED_GEO = ("_geoRadius", "_geoBoundingBox")
UNQUOTED = KEYWORDS.union(RESERVED_GEO)

# The inside of a set of characters: alphanumeric as Unicode has it, and three signs.
WORD_SET = rf"0-9A-Za-z_.\-\w{alphabetic_marks()}"
BLANKS = r"[ \t\r\n]*+"
# A value that needs no second look, if it is no keyword.
PLAIN_VALUE = rf"""(?:[{WORD_SET}]++|"[^"\\]*"|'[^'\\]*')"""

word = re.compile(f"[{WORD_SET}]+").match
blanks = re.compile(BLANKS).match
white_space = re.compile(f"[{re.escape(WHITE_SPACE)}]*").match
# Where no value can be read, this much is shown of what stands there.
unreadable = re.compile(f"[^{re.escape(WHITE_SPACE)}()=<>!]*").match


def keyword(name: str) -> re.Pattern[str]:
    """A keyword as a whole word, with the blanks around it."""
    return re.compile(rf"{BLANKS}{name}(?![{WORD_SET}]){BLANKS}")
