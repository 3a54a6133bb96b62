"""The words of one index as a list: which there are, which begin so, which first characters they have.

Knows the vocabulary of FTS5, and what is held of it; refuses to know which documents hold a word. Lists are in
byte order.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from svcd.index import fts_encoding as words
from svcd.index import prefix_postings
from svcd.index.cached_reader import CachedReader

# What the engine asks of the words with a beginning, to see whether they are many.
_FIRST_WORDS = 100
# Words of so many documents are read one by one, for other searches too.
COMMON = 512
_MOST_COMMON = 4
# With so many words a first character has a list of its own.
_MANY_WORDS = 50
_MOST_RARE = 20_000
_AFTER_ANY_WORD = "\U0010ffff"
# These begin many words in most languages, and what lies before, between and behind them hardly any.
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_BESIDE_LETTERS = (("", "0"), ("9" + _AFTER_ANY_WORD, "a"), ("z" + _AFTER_ANY_WORD, _AFTER_ANY_WORD))


class _Begun(NamedTuple):
    """The first words with a beginning; few: all their terms with the number of documents, if hardly one is common."""

    few: Mapping[str, int] | None
    words: Sequence[str]

    @classmethod
    def of(cls, terms: Mapping[str, int]) -> _Begun:
        """terms: up to _FIRST_WORDS of them."""
        common = sum(documents >= COMMON for documents in terms.values())
        are_few = len(terms) < _FIRST_WORDS and common <= _MOST_COMMON
        return cls(terms if are_few else None, words.spelled_words(terms))


class VocabularyReader(CachedReader):
    """The vocabulary in a read transaction."""

    def term_counts(self) -> Iterator[tuple[str, int]]:
        """(term, documents that hold it) of the whole vocabulary."""
        return self._connection.execute("SELECT term, doc FROM vocabulary WHERE term <> ?", (words.POSITION_GAP,))

    def words_with_prefix(self, prefix: str, limit: int | None = None) -> Sequence[str]:
        """The first `limit` words that start with the prefix, itself included, in byte order; "" gives all."""
        if limit is None:
            several = self._listed(prefix) if len(prefix) > 1 else None
            if several is not None:
                return several[bisect_left(several, prefix):bisect_left(several, prefix + _AFTER_ANY_WORD)]
            return self._kept(("words", prefix), lambda: words.spelled_words(self._read_terms(prefix, -1)),
                              lambda known, delta: delta.carried_words(known, prefix))
        if limit <= _FIRST_WORDS:
            return self._kept(("begun", prefix), lambda: _Begun.of(self._read_terms(prefix, _FIRST_WORDS))).words[:limit]
        return self._kept(("words", prefix, limit), lambda: words.spelled_words(self._read_terms(prefix, limit)))

    def _read_terms(self, prefix: str, limit: int) -> dict[str, int]:
        """The first terms that start so, each with the number of its documents."""
        start = words.term_of_word(prefix)
        return dict(self._connection.execute(
            "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? AND term <> ? LIMIT ?",
            (start, start + _AFTER_ANY_WORD, words.POSITION_GAP, limit)))

    def first_characters(self) -> Sequence[str]:
        """The distinct first characters of all words."""
        common, rare = self._kept(("first characters",), self._read_first_characters)
        return sorted(common.union(spelled[0] for spelled in rare))

    def _read_first_characters(self) -> tuple[frozenset[str], list[str]]:
        """The first characters of many words, and the words with any other, in byte order."""
        common = {letter for letter in _LETTERS if prefix_postings.has_rows(self._connection, letter)}
        rare: list[str] = []
        for after, before in _BESIDE_LETTERS:
            self._add_characters(after, before, common, rare)
        return frozenset(common), sorted(word for word in rare if word[0] not in common)

    def _add_characters(self, after: str, before: str, common: set[str], rare: list[str]) -> None:
        while terms := self._connection.execute("SELECT term FROM vocabulary WHERE term > ? AND term < ? LIMIT ?",
                                                (after, before, _MANY_WORDS)).fetchall():
            found = [words.word_of_term(term) for (term,) in terms if term != words.POSITION_GAP]
            after = terms[-1][0]
            are_many = len(found) == _MANY_WORDS and found[0][0] == found[-1][0]
            if are_many or len(rare) > _MOST_RARE:  # jump over all others of the last one
                common.update(word[0] for word in found)
                after = words.term_of_word(found[-1][0]) + _AFTER_ANY_WORD if found else after
            else:
                rare += found

    def _listed(self, start: str) -> Sequence[str] | None:
        """All words with the same first character, and perhaps others, in byte order; None where they are not held.

        Words are asked for by the hundred to find splits and other first letters, most of which do not exist.
        """
        characters: tuple[frozenset[str], list[str]] | None = self._held(("first characters",))
        if characters and start[:1] not in characters[0]:
            return characters[1]
        several: Sequence[str] | None = self._held(("words", start[:1]))
        return several

    def joined_words(self, character: str) -> str:
        """All words that start with a character, a NUL (which no word has) around each; "" when there is none."""
        return self._kept(("joined", character), lambda: _joined(self.words_with_prefix(character)))

    def _few_terms(self, spelled: str) -> Mapping[str, int] | None:
        """The terms that start so with the number of their documents; None if they are many, or were not asked for."""
        held: _Begun | None = self._held(("begun", words.word_of_term(spelled)))
        return held and held.few


def _joined(several: Sequence[str]) -> str:
    return "\0".join(("", *several, "")) if several else ""
