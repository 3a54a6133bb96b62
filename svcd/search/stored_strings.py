"""Keeps long strings of documents out of the JSON texts of hits until the response is sent (docs/search.md#long-texts).

In the text of a hit a short placeholder stands for each string of LONG_BYTES or more. A placeholder is random (128 bits), so no
document contains it, and no client sees it. Hits are parsed, reduced, joined and merged with placeholders in them; while the
response is sent, the pieces of the long strings replace them.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from secrets import token_hex
from typing import NamedTuple, Protocol

from svcd.base.json_text import Literal, Unescaped, long_literals, unescaped

# A string of so many bytes or more is long; documents with fewer bytes are not searched for long strings.
LONG_BYTES = 1 << 18
# Bytes of a piece of a long string.
PIECE_BYTES = 1 << 15


class LongString(Protocol):
    """A string that is not held as one `str`: the text between its quotes in JSON."""

    @property
    def size(self) -> int:
        """Bytes of all pieces; an estimate where escapes are added."""

    def pieces(self) -> Iterator[bytes]:
        """The whole string, escaped as in JSON, in UTF-8."""


class StoredString(NamedTuple):
    """A long string as it is stored. source: the JSON text of its document; literal: where it is in the source."""

    source: bytes
    literal: Literal

    @property
    def size(self) -> int:
        return self.literal.end - self.literal.start

    def pieces(self) -> Iterator[bytes]:
        start, end = self.literal
        for place in range(start, end, PIECE_BYTES):
            yield self.source[place:min(place + PIECE_BYTES, end)]

    def unescaped(self) -> Unescaped:
        """Its value, which keeps a way back to the escaped form."""
        return unescaped(self.source, self.literal)


class LongStrings(dict[str, LongString]):
    """Placeholder -> the long string it stands for, in the hits of one search. clear() when these hits are no longer needed."""

    _count = 0  # of placeholders made so far: none is made twice, not even after clear()

    def extract(self, source: bytes) -> str:
        """The JSON text of a document with a placeholder for each of its long strings. source: the text in UTF-8."""
        parts, place = [], 0
        for literal in long_literals(source, LONG_BYTES):
            parts += [source[place:literal.start], self.add(StoredString(source, literal)).encode()]
            place = literal.end
        return b"".join([*parts, source[place:]]).decode()

    def add(self, value: LongString) -> str:
        """A new placeholder for a long string."""
        placeholder = f"{self._prefix}{self._count}"
        self._count += 1
        self[placeholder] = value
        return placeholder

    def stored(self, text: str) -> StoredString | None:
        """The long string of a document that a text stands for; None if the text is not a placeholder of one."""
        value = self.get(text)
        return value if isinstance(value, StoredString) else None

    def size(self, text: str) -> int:
        """An estimate of the bytes of a JSON text with its long strings."""
        return len(text) + (sum(self[placeholder].size for placeholder in self._pattern.findall(text)) if self else 0)

    def pieces(self, text: str) -> Iterator[bytes]:
        """A JSON text in UTF-8, with its long strings in place of their placeholders."""
        if not self:
            yield text.encode()
            return
        place = 0
        for placeholder in self._pattern.finditer(text):
            yield text[place:placeholder.start()].encode()
            yield from self[placeholder[0]].pieces()
            place = placeholder.end()
        yield text[place:].encode()

    def restored(self, text: str) -> str:
        """A JSON text with its long strings in place of their placeholders, as one `str`."""
        return b"".join(self.pieces(text)).decode()

    @cached_property
    def _prefix(self) -> str:
        return f"{token_hex(16)}:"

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"{self._prefix}[0-9]+")
