"""May a text be a UUID, and why not?

Knows the ways to write one (plain, with hyphens, and that in braces or as a URN), and the words for each fault;
refuses to know what it names. Source: messages.json, shared.uuid_error; recordings auth/*_uid*.
"""
from __future__ import annotations

import re

_FAULTY = re.compile(r"[^0-9A-Fa-f-]")
_URN = "urn:uuid:"
_GROUPS = (8, 4, 4, 4, 12)
_DIGITS = 32
_LONGEST = len(_URN) + _DIGITS + len(_GROUPS) - 1


def parse_uuid(text: str) -> str:
    """The UUID in lower case with hyphens; raises ValueError(reason) otherwise."""
    prefix, inner = _taken_apart(text)
    fault = _fault(text, prefix, inner)
    if fault:
        raise ValueError(fault)
    digits = iter(inner.replace("-", "").lower())
    return "-".join("".join(next(digits) for _ in range(length)) for length in _GROUPS)


def _taken_apart(text: str) -> tuple[str, str]:
    """What stands before the digits, and the digits with their hyphens."""
    if text.startswith("{") and text.endswith("}") and len(text) > 1:
        return "{", text[1:-1]
    return (_URN, text.removeprefix(_URN)) if text.startswith(_URN) else ("", text)


def _fault(text: str, prefix: str, inner: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if not 0 < size <= _LONGEST:
        return f"invalid length: found {size}"
    faulty = _FAULTY.search(inner)
    if faulty:
        return f"invalid character: found `{faulty[0]}` at {len(prefix + inner[:faulty.start()])}"
    groups = inner.split("-")
    if len(groups) == 1 and not prefix:
        return "" if size == _DIGITS else f"invalid length: found {size}"
    if len(groups) != len(_GROUPS):
        return f"invalid group count: expected {len(_GROUPS)}, found {len(groups)}"
    return next((f"invalid group length in group {number}: expected {expected}, found {len(group)}"
                 for number, (group, expected) in enumerate(zip(groups, _GROUPS)) if len(group) != expected), "")
