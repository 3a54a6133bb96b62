"""How many values a JSON text holds, told before any of them is built.

Knows that a value takes many times the room of its text, so that a limit in bytes is none in memory; refuses
to know which number is too many for whom.
"""
from __future__ import annotations

import re
from functools import cache

from svcd.jsontext.scanner import fault_in

_OPENERS = (b",", b"[", b"{")  # but for the first, a value begins behind each; names in objects are not counted
_NO_OPENER = rb'[^",\[{]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^",\[{]*+)*+'


def has_at_most(encoded: bytes, most: int) -> bool:
    """Whether not more than so many values are in a text, its commas and opening brackets being counted.

    Raises JsonError when the text is wrong before there are too many.
    """
    if sum(encoded.count(opener) for opener in _OPENERS) <= most:
        return True
    found = _beyond(most).match(encoded)
    if found is None:  # the rest of them are in strings
        return True
    fault = fault_in(encoded[:found.end()])
    if fault is None or fault.is_eof:
        return False
    try:
        raise fault
    finally:
        del fault  # its traceback holds this frame: the ring would keep the text until the next collection


@cache
def _beyond(most: int) -> re.Pattern[bytes]:
    """Matches a text up to where one value too many begins."""
    return re.compile(rb"(?:%s[,\[{]){%d}+" % (_NO_OPENER, most + 1), re.DOTALL)
