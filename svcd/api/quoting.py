"""Texts in double quotes with escapes, as some messages of the reference show them.

Knows that form (the debug form of its language); refuses to know the messages.
"""
from __future__ import annotations

_ESCAPED = {"\t": "\\t", "\r": "\\r", "\n": "\\n", "\0": "\\0", '"': '\\"', "\\": "\\\\"}


def quoted(text: str) -> str:
    """The text in quotes; what can't be seen is escaped."""
    return '"' + "".join(map(_visible, text)) + '"'


def _visible(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"
