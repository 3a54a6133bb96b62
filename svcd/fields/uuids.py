"""UUIDs as clients write them.

Knows their four forms and the words for what is wrong; refuses to know what they name.
Source: messages.json, shared.uuid_error; recordings auth/*bad_uid*, auth/*parameters_uid*.
"""
from __future__ import annotations

import re

from svcd.fields.checks import parsed, string

_PREFIX = "urn:uuid:"
_GROUPS = (8, 4, 4, 4, 12)
_FOREIGN = re.compile(r"[^0-9a-fA-F-]")
_DIGITS = 32
_MOST_BYTES = len(_PREFIX) + _DIGITS + len(_GROUPS) - 1


def parse_uuid(text: str) -> str:
    """The UUID in lower case with its hyphens; raises ValueError(reason) when the text is none.

    Takes `8-4-4-4-12` digits, 32 digits, and both in braces or after `urn:uuid:`.
    """
    body, begin = _body(text)
    groups = body.split("-")
    if len(groups) == 1 and len(body) == _DIGITS and not _FOREIGN.search(body):
        ends = [sum(_GROUPS[:count]) for count in range(len(_GROUPS) + 1)]
        groups = [body[start:end] for start, end in zip(ends, ends[1:])]
    if reason := _fault(text, body, begin, groups):
        raise ValueError(reason)
    return "-".join(groups).lower()


def _body(text: str) -> tuple[str, int]:
    """What is left without braces or prefix, and where it begins."""
    if text.startswith("{") and text.endswith("}"):
        return text[1:-1], 1
    if text.startswith(_PREFIX):
        return text[len(_PREFIX):], len(_PREFIX)
    return text, 0


def _fault(text: str, body: str, begin: int, groups: list[str]) -> str:
    """What is wrong, "" for nothing."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > _MOST_BYTES:  # nobody looks at what it is made of
        return f"invalid length: found {size}"
    if foreign := _FOREIGN.search(body):
        place = begin + len(body[:foreign.start()].encode("utf-8", "surrogatepass"))
        return f"invalid character: found `{foreign[0]}` at {place}"
    if len(groups) == 1:
        return f"invalid length: found {size}"
    if len(groups) != len(_GROUPS):
        return f"invalid group count: expected {len(_GROUPS)}, found {len(groups)}"
    for place, (group, length) in enumerate(zip(groups, _GROUPS)):
        if len(group) != length:
            return f"invalid group length in group {place}: expected {length}, found {len(group)}"
    return ""


uuid = parsed(string, parse_uuid)
