"""Hits of long pages and long documents, rendered while the client reads the response (docs/search.md#long-pages).

A LongPage renders its hits in portions. In the text of a hit, a short placeholder represents each string of LONG_BYTES or more
(docs/search.md#long-texts). A placeholder is random (128 bits), so no document contains it, and no client sees it. Hits are
parsed, reduced, joined and merged with placeholders in them; while the response is sent, the pieces of the long strings replace
them.
"""
from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Generic, Protocol, TypeVar, overload

from svcd.base.json_text import Literal, Unescaped, long_literals, unescaped

T = TypeVar("T")

# The size of a portion of a long page, in bytes of documents.
PORTION_BYTES = 1 << 15
_MAX_PORTION_HITS = 256
# A string of at least LONG_BYTES is long; smaller documents are not searched for long strings.
LONG_BYTES = 1 << 18
# Bytes of a piece of a long string.
PIECE_BYTES = 1 << 15


class LongString(Protocol):
    """A string that is not held as one `str`: the text between its quotes in JSON."""

    @property
    def size(self) -> int:
        """Bytes of all pieces; an estimate if escapes are added."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole string, escaped as in JSON, in UTF-8."""


class StoredString(NamedTuple):
    """A long string in its stored document. source: the JSON text of the document; literal: its place in the source."""

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
        """Return its value, which can be converted back to the escaped form."""
        return unescaped(self.source, self.literal)


class LongStrings(dict[str, LongString]):
    """Placeholder -> its long string, in the hits of one search. Call clear() when these hits are no longer needed."""

    _count = 0  # placeholders made so far; no placeholder is reused, not even after clear()

    def extract(self, source: bytes) -> str:
        """Return the JSON text of a document with a placeholder for each long string. source: the text in UTF-8."""
        parts, place = [], 0
        for literal in long_literals(source, LONG_BYTES):
            parts += [source[place:literal.start], self.add(StoredString(source, literal)).encode()]
            place = literal.end
        return b"".join([*parts, source[place:]]).decode()

    def add(self, value: LongString) -> str:
        """Return a new placeholder for a long string."""
        placeholder = f"{self._prefix}{self._count}"
        self._count += 1
        self[placeholder] = value
        return placeholder

    def stored(self, text: str) -> StoredString | None:
        """Return the long string of a document behind a placeholder; None if the text is not such a placeholder."""
        value = self.get(text)
        return value if isinstance(value, StoredString) else None

    def size(self, text: str) -> int:
        """Estimate the bytes of a JSON text with its long strings."""
        return len(text) + (sum(self[placeholder].size for placeholder in self._pattern.findall(text)) if self else 0)

    def pieces(self, text: str) -> Iterator[bytes]:
        """Yield a JSON text in UTF-8, with its long strings in place of their placeholders."""
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
        """Return a JSON text with its long strings in place of their placeholders, as one `str`."""
        return b"".join(self.pieces(text)).decode()

    @cached_property
    def _prefix(self) -> str:
        return f"{os.urandom(16).hex()}:"

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"{self._prefix}[0-9]+")


class LongPage(Sequence[str]):
    """The JSON texts of hits, best first, rendered on access and not kept. Iterate over it once, in order.

    expected_bytes: an estimate of their total size. long_strings: the strings behind the placeholders in the portions.
    """

    def __init__(self, count: int, size: int, render: Callable[[int, int], Sequence[str]], long_strings: LongStrings) -> None:
        """size: average bytes of a document. render: (first, end) -> the JSON texts of these hits; it may drop the long
        strings of the previous portion."""
        self._count = count
        self._render = render
        self.long_strings = long_strings
        self._portion_hits = max(1, min(PORTION_BYTES // size, _MAX_PORTION_HITS))
        self.expected_bytes = count * size

    def portions(self) -> Iterator[Sequence[str]]:
        """Yield all texts, in portions of about PORTION_BYTES; their placeholders are valid until the next portion is taken."""
        for first in range(0, self._count, self._portion_hits):
            yield self._render(first, min(first + self._portion_hits, self._count))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for portion in self.portions():
            yield from map(self.long_strings.restored, portion)

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[str]: ...

    def __getitem__(self, position: int | slice) -> str | Sequence[str]:
        positions = range(self._count)[position]
        if isinstance(positions, int):
            return self.long_strings.restored(self._render(positions, positions + 1)[0])
        return [self[each] for each in positions]


def page_of_texts(texts: Sequence[str], long_strings: LongStrings) -> Sequence[str]:
    """Return a page of rendered texts, as a LongPage if they contain placeholders for long strings."""
    if not long_strings:
        return texts
    size = sum(map(long_strings.size, texts)) // len(texts)
    return LongPage(len(texts), size, lambda first, end: texts[first:end], long_strings)


class RepeatedValues(Generic[T]):
    """A compact list for few distinct values that repeat often: 4 bytes per element."""

    def __init__(self, values: Sequence[T]) -> None:
        numbers: dict[T, int] = {}
        self._numbers = array("I", (numbers.setdefault(value, len(numbers)) for value in values))
        self._values = list(numbers)

    def __getitem__(self, position: int) -> T:
        return self._values[self._numbers[position]]
