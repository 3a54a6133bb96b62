"""The way out: values printed as serde_json prints them, compact, in plain UTF-8.

Knows how serde_json writes floats (shortest digits, always told from integers); refuses NaN and infinity.
"""
from __future__ import annotations

import json
import re
from typing import Any

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
_encode = _encoder.encode
# Strings are matched whole, so that nothing inside them is taken for a number.
_STRING_OR_EXPONENT = re.compile(r'"(?:[^"\\]++|\\.)*+"|(-?)([0-9])(?:\.([0-9]+))?e([+-][0-9]+)')
_EXPONENT = re.compile(r"[0-9]e[+-][0-9]")


def dumps(value: Any) -> str:
    """The compact JSON text of a value."""
    return _printed(_encode(value))


def _printed(text: str) -> str:
    if ("e-" not in text and "e+" not in text) or not _EXPONENT.search(text):  # the former is a hundred times quicker
        return text
    return _STRING_OR_EXPONENT.sub(_number, text)


def dumps_begin(value: Any, size: int) -> str:
    """At least so many characters of the compact JSON text of a value, or all of it."""
    if isinstance(value, str):
        return dumps(value[:size])
    length, pieces = 0, []
    for piece in _encoder.iterencode(value):
        pieces.append(piece[:2 * size])
        length += len(pieces[-1])
        if length >= 2 * size:  # twice, for numbers become shorter
            return _printed("".join(pieces))
    return dumps(value)


def _number(match: re.Match[str]) -> str:
    """`1e+16` as `1e16`, `1e-07` as `1e-7`; `1e-05` is written out, as the last before exponents begin."""
    sign, digit, decimals, exponent = match.groups()
    if exponent is None:
        return match[0]
    if exponent == "-05":
        return f"{sign}0.0000{digit}{decimals or ''}"
    return f"{sign}{digit}{'.' if decimals else ''}{decimals or ''}e{int(exponent)}"
