"""JSON as the interface speaks it: read as strictly as serde_json reads, printed as serde_json prints.

Knows the text form alone; refuses to know what a value means, and which error code a fault becomes.
`reading` is the quick way in, `scanner` finds the exact words and place of a fault, `bounds` what is
too much before it is built, `writing` is the way out.
"""
from __future__ import annotations

from svcd.jsontext.bounds import has_at_most
from svcd.jsontext.reading import careful, decoded, has_lone_surrogate, has_odd_numbers, is_too_deep, loads, quick
from svcd.jsontext.scanner import (
    EOF_LIST,
    EOF_VALUE,
    LIST_COMMA,
    MAX_DEPTH,
    TRAILING_CHARACTERS,
    TRAILING_COMMA,
    JsonError,
    fault_in,
    value_end,
)
from svcd.jsontext.writing import dumps, dumps_begin

__all__ = [
    "EOF_LIST",
    "EOF_VALUE",
    "LIST_COMMA",
    "MAX_DEPTH",
    "TRAILING_CHARACTERS",
    "TRAILING_COMMA",
    "JsonError",
    "careful",
    "decoded",
    "dumps",
    "dumps_begin",
    "fault_in",
    "has_at_most",
    "has_lone_surrogate",
    "has_odd_numbers",
    "is_too_deep",
    "loads",
    "quick",
    "value_end",
]
