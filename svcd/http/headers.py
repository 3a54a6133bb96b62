"""Takes the values of received headers apart.

Values are Latin-1 text, one character per byte, and only space and tab are blank (RFC 9110 5.6.3). Python's own strip()
and split() also take U+0085 and U+00A0: svcd would then see another request than a proxy in front of it, which is how
request smuggling works.
"""
from __future__ import annotations

_BLANKS = " \t"


def trimmed(text: str) -> str:
    """A value, an element or a parameter without the spaces and tabs around it."""
    return text.strip(_BLANKS)


def elements(value: str) -> list[str]:
    """The elements of a comma list whose names have no case, such as Connection: in lower case, in their order."""
    return [trimmed(element) for element in value.lower().split(",")]


def media_type(value: str) -> str:
    """The `type/subtype` of a Content-Type in lower case, without its parameters (RFC 9110 8.3.1)."""
    return trimmed(value.partition(";")[0]).lower()
