"""What a header that svcd sends may be made of.

Knows the characters of names and values; refuses to know which headers there are. Source: RFC 9110 5.1 and 5.5,
without the bytes beyond ASCII that it calls obsolete; messages.json, invalid_webhook_headers.
"""
from __future__ import annotations

import re

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e]*", re.ASCII)


def is_header_name(text: str) -> bool:
    """True when a header can have this name."""
    return _NAME.fullmatch(text) is not None


def is_header_value(text: str) -> bool:
    """True when a header can have this value."""
    return _VALUE.fullmatch(text) is not None
