"""The words of one document, looked up in the text of its forward index row.

A search asks for some words of some dozens of documents. Finding a few words in a text takes half the time of splitting the text
into all its words (8 and 16 us a document of 90 words, for three words), so the text is split only when necessary.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from svcd.index import fts_encoding
from svcd.text.term_positions import FIELD_SHIFT

# Up to this many words are looked up one by one, which is quicker than checking all words of a document.
_FEW_WORDS = 4


class StoredWords:
    """A `svcd.query.reader.DocumentWords`.

    forward: the forward index row of the document; names: FTS column (as text in that row) -> field.
    """

    __slots__ = ("docid", "_forward", "_names", "_text", "_fields", "_rows", "_occurrences")

    def __init__(self, docid: int, forward: str, names: Mapping[str, str]) -> None:
        self.docid = docid
        self._forward = forward
        self._names = names
        # Lines "column, terms by position" with a space after each term, so that every term has a space on both sides.
        self._text = fts_encoding.spaced_lines(forward)
        self._fields: Sequence[str] | None = None
        self._rows: Sequence[Sequence[str]] | None = None
        self._occurrences: dict[str, list[int]] = {}

    @property
    def fields(self) -> Sequence[str]:
        """The fields that hold words."""
        if self._fields is None:
            self._fields = [self._names[column] for column in fts_encoding.columns_of(self._forward)]
        return self._fields

    def occurrences(self, word: str) -> list[int]:
        """Return the occurrences of a word, ascending; cached, as several rules ask for the same words."""
        occurrences = self._occurrences.get(word)
        if occurrences is None:
            occurrences = self._occurrences[word] = self._starting_with(f" {fts_encoding.term_of_word(word)} ")
        return occurrences

    def occurrences_of_any(self, words: Collection[str]) -> list[int]:
        """Return the occurrences of any of these words, in any order."""
        if len(words) <= _FEW_WORDS:
            found: list[int] = []
            for word in words:
                found += self.occurrences(word)
            return found
        return [(number << FIELD_SHIFT) + position
                for number, in_field in enumerate(self._words_by_position())
                for position, word in enumerate(in_field)
                if word in words]

    def occurrences_of_prefix(self, prefix: str) -> list[int]:
        """Return the occurrences of all words that start with a prefix."""
        return self._starting_with(f" {fts_encoding.term_of_word(prefix)}")

    def length(self, field: int) -> int:
        """Return the number of words of the field with this number."""
        words = self._words_by_position()[field]
        return len(words) - words.count("")

    def _starting_with(self, pattern: str) -> list[int]:
        """Return the occurrences at which the text continues with `pattern`, which starts with a space."""
        text = self._text
        at = text.find(pattern)
        found: list[int] = []
        while at >= 0:
            line = text.rfind("\n", 0, at) + 1
            number = text.count("\n", 0, line) if line else 0
            found.append((number << FIELD_SHIFT) + text.count(" ", line, at))
            at = text.find(pattern, at + 1)
        return found

    def _words_by_position(self) -> Sequence[Sequence[str]]:
        if self._rows is None:
            self._rows = list(fts_encoding.words_by_column(self._forward).values())
        return self._rows


def stored_words(forward_texts: Mapping[int, str], docids: Sequence[int], names: Mapping[str, str]) -> Iterator[StoredWords]:
    """Return the words of documents, in the order of docids. forward_texts: docid -> forward index row, if it has words."""
    return (StoredWords(docid, forward_texts.get(docid, ""), names) for docid in docids)
