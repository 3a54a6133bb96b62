"""Long strings of documents, kept out of the JSON texts of the hits of one search.

In the text of a hit a short placeholder stands for each string of LONG_BYTES or more. A placeholder is random (128 bits), so no
document holds it, and no client sees it. Hits are parsed, reduced, joined and merged with placeholders in them; when the
response is sent, the pieces of the long strings take their places (docs/search.md#long-texts).
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from secrets import token_hex
from typing import NamedTuple, Protocol

from svcd.base.json_text import Literal, Unescaped, long_literals, unescaped

# Bytes: shorter documents are held as other texts, and so are shorter strings.
LONG_BYTES = 1 << 18
# Bytes that are given out together.
PIECE = 1 << 15


class LongValue(Protocol):
    """A string too long to be held as one: what stands between its quotes in a JSON text."""

    @property
    def size(self) -> int:
        """Bytes of all pieces, as far as can be known."""

    def pieces(self) -> Iterator[bytes]:
        """All of it, in UTF-8."""


class StoredText(NamedTuple):
    """A string of a document, as it is stored."""

    source: bytes
    literal: Literal

    @property
    def size(self) -> int:
        return self.literal.end - self.literal.start

    def pieces(self) -> Iterator[bytes]:
        start, end = self.literal
        for place in range(start, end, PIECE):
            yield self.source[place:min(place + PIECE, end)]

    def unescaped(self) -> Unescaped:
        """What it says."""
        return unescaped(self.source, self.literal)


class LongStrings(dict[str, LongValue]):
    """Placeholder -> the long string it stands for, in the hits of one search. clear() when these hits are no longer needed."""

    _given = 0  # placeholders so far: none is given twice, also after clear()

    def outline(self, source: bytes) -> str:
        """The JSON text of a document, given in UTF-8, without its long strings, which are kept here."""
        parts, place = [], 0
        for literal in long_literals(source, LONG_BYTES):
            parts += [source[place:literal.start], self.stand_in(StoredText(source, literal)).encode()]
            place = literal.end
        return b"".join([*parts, source[place:]]).decode()

    def stand_in(self, value: LongValue) -> str:
        """What is to be taken for a long string until the end."""
        text = f"{self._nonce}{self._given}"
        self._given += 1
        self[text] = value
        return text

    def stored(self, text: str) -> StoredText | None:
        """The string of a document for which a text stands in, if it is no other text."""
        value = self.get(text)
        return value if isinstance(value, StoredText) else None

    def size(self, text: str) -> int:
        """Bytes of all pieces of a JSON text, as far as can be known; few are forgotten."""
        return len(text) + sum(self[each].size for each in self._found(text))

    def pieces(self, text: str) -> Iterator[bytes]:
        """A JSON text in UTF-8, with the long strings in it."""
        if not self:
            yield text.encode()
            return
        place = 0
        for found in self._pattern.finditer(text):
            yield text[place:found.start()].encode()
            yield from self[found[0]].pieces()
            place = found.end()
        yield text[place:].encode()

    def whole(self, text: str) -> str:
        """A JSON text with the long strings in it, all of it: for those that are not in need of pieces."""
        return b"".join(self.pieces(text)).decode()

    def _found(self, text: str) -> list[str]:
        return self._pattern.findall(text) if self else []

    @cached_property
    def _nonce(self) -> str:
        return f"{token_hex(16)}:"

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"{self._nonce}[0-9]+")
