"""What may name an index, and what may stand for many.

Knows the letters and the length of an index uid, and the star at the end of a pattern; refuses to know which
indexes exist.
"""
from __future__ import annotations

import re

from svcd.errors import ApiError
from svcd.fields.checks import parsed, string

# Messages speak of 512 bytes, but 400 is what fits: the recordings keep the old number in the text.
_LONGEST_UID = 400
_UID = re.compile(rf"[A-Za-z0-9_-]{{1,{_LONGEST_UID}}}", re.ASCII)


def parse_index_uid(text: str) -> str:
    """The text itself when it may name an index; raises ValueError(reason) otherwise."""
    if _UID.fullmatch(text):
        return text
    raise ValueError(
        f"`{text}` is not a valid index uid. Index uid can be an integer or a string containing only "
        "alphanumeric characters, hyphens (-) and underscores (_), and can not be more than 512 bytes."
    )


def parse_index_uid_pattern(text: str) -> str:
    """The text itself when it is an index uid, the beginning of some followed by `*`, or `*`.

    Raises ValueError(reason) otherwise.
    """
    beginning = text.removesuffix("*")
    if text == "*" or _UID.fullmatch(beginning):
        return text
    raise ValueError(
        f"`{text}` is not a valid index uid pattern. Index uid patterns can be an integer or a string containing only "
        "alphanumeric characters, hyphens (-), underscores (_), and optionally end with a star (*)."
    )


def checked_index_uid(text: str) -> str:
    """The index uid of a path. Raises ApiError invalid_index_uid."""
    try:
        return parse_index_uid(text)
    except ValueError as error:
        raise ApiError("invalid_index_uid", str(error)) from None


index_uid = parsed(string, parse_index_uid)
index_uid_pattern = parsed(string, parse_index_uid_pattern)
