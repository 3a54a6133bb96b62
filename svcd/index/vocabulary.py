"""The words of one index: does a word exist, which ones start with a prefix, which first characters are there.

Words are read from the vocabulary table of FTS5; lists are in byte order and cached. docs/storage.md#vocabulary
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from svcd.index import fts_encoding, prefix_postings
from svcd.index.read_transaction import ReadTransaction

# The ranking asks for so many words of a prefix to see whether there are more than its limit.
_FIRST_WORDS = 100
# The set of a term with at least so many documents is read, and cached, by itself: other searches ask for it too.
COMMON = 512
_MOST_COMMON = 4
# A first character with at least so many words has a cached list of its own; the words of all others share one list.
_MANY_WORDS = 50
_MOST_RARE = 20_000
_AFTER_ANY_WORD = "\U0010ffff"
# Most languages have many words under each of these characters, and hardly any before, between or after them.
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_BESIDE_LETTERS = (("", "0"), ("9" + _AFTER_ANY_WORD, "a"), ("z" + _AFTER_ANY_WORD, _AFTER_ANY_WORD))


class _PrefixWords(NamedTuple):
    """The first words with a prefix.

    terms: all terms with the prefix and their document frequencies; None when there are more, or many common ones.
    """

    terms: Mapping[str, int] | None
    words: Sequence[str]

    @classmethod
    def of(cls, terms: Mapping[str, int]) -> _PrefixWords:
        """terms: the first _FIRST_WORDS of them."""
        common = sum(frequency >= COMMON for frequency in terms.values())
        are_few = len(terms) < _FIRST_WORDS and common <= _MOST_COMMON
        return cls(terms if are_few else None, fts_encoding.spelled_words(terms))


class VocabularyReader:
    """The vocabulary of an index in a read transaction; a `svcd.query.reader.Vocabulary`."""

    def __init__(self, transaction: ReadTransaction) -> None:
        self._transaction = transaction
        self._connection = transaction.connection

    def has_word(self, word: str) -> bool:
        """Does any document hold the word?"""
        words = self._cached_list(word)
        if words is None:
            row = self._connection.execute("SELECT 1 FROM terms WHERE terms MATCH ? LIMIT 1", (
                fts_encoding.fts_string(fts_encoding.term_of_word(word)),)).fetchone()
            return row is not None
        at = bisect_left(words, word)
        return words[at:at + 1] == [word]

    def words_with_prefix(self, prefix: str, limit: int | None = None) -> Sequence[str]:
        """The first `limit` words that start with the prefix, itself included, in byte order; "" gives all."""
        if limit is None:
            words = self._cached_list(prefix) if len(prefix) > 1 else None
            if words is not None:
                return words[bisect_left(words, prefix):bisect_left(words, prefix + _AFTER_ANY_WORD)]
            return self._transaction.cached(
                ("words", prefix), lambda: fts_encoding.spelled_words(self._load_terms(prefix, -1)),
                lambda known, delta: delta.updated_words(known, prefix))
        if limit <= _FIRST_WORDS:
            return self._transaction.cached(("prefix words", prefix), lambda: _PrefixWords.of(
                self._load_terms(prefix, _FIRST_WORDS))).words[:limit]
        return self._transaction.cached(("words", prefix, limit), lambda: fts_encoding.spelled_words(
            self._load_terms(prefix, limit)))

    def _load_terms(self, prefix: str, limit: int) -> dict[str, int]:
        """The first terms with a prefix, each with its document frequency."""
        start = fts_encoding.term_of_word(prefix)
        return dict(self._connection.execute(
            "SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? AND term <> ? LIMIT ?",
            (start, start + _AFTER_ANY_WORD, fts_encoding.POSITION_GAP, limit)))

    def first_characters(self) -> Sequence[str]:
        """The distinct first characters of all words."""
        common, rare = self._transaction.cached(("first characters",), self._load_first_characters)
        return sorted(common.union(word[0] for word in rare))

    def _load_first_characters(self) -> tuple[frozenset[str], list[str]]:
        """The first characters of many words, and the words with any other first character, in byte order."""
        common = {letter for letter in _LETTERS if prefix_postings.has_rows(self._connection, letter)}
        rare: list[str] = []
        for after, before in _BESIDE_LETTERS:
            self._add_characters(after, before, common, rare)
        return frozenset(common), sorted(word for word in rare if word[0] not in common)

    def _add_characters(self, after: str, before: str, common: set[str], rare: list[str]) -> None:
        while terms := self._connection.execute("SELECT term FROM vocabulary WHERE term > ? AND term < ? LIMIT ?",
                                                (after, before, _MANY_WORDS)).fetchall():
            found = [fts_encoding.word_of_term(term) for (term,) in terms if term != fts_encoding.POSITION_GAP]
            after = terms[-1][0]
            are_many = len(found) == _MANY_WORDS and found[0][0] == found[-1][0]
            if are_many or len(rare) > _MOST_RARE:  # skip the remaining words of the last first character
                common.update(word[0] for word in found)
                after = fts_encoding.term_of_word(found[-1][0]) + _AFTER_ANY_WORD if found else after
            else:
                rare += found

    def _cached_list(self, start: str) -> Sequence[str] | None:
        """A cached list of all words with the same first character, perhaps with others; None when none is cached.

        Splits and typos at the first letter ask for hundreds of words, most of which do not exist.
        """
        characters: tuple[frozenset[str], list[str]] | None = self._transaction.cached_value(("first characters",))
        if characters and start[:1] not in characters[0]:
            return characters[1]
        words: Sequence[str] | None = self._transaction.cached_value(("words", start[:1]))
        return words

    def joined_words(self, character: str) -> str:
        """All words that start with a character, a NUL (which no word has) around each; "" when there is none."""
        return self._transaction.cached(("joined", character), lambda: _joined_words(self.words_with_prefix(character)))

    # Document frequencies

    def document_frequencies(self) -> Iterator[tuple[str, int]]:
        """(term, number of documents that hold it) of the whole vocabulary."""
        return self._connection.execute("SELECT term, doc FROM vocabulary WHERE term <> ?", (fts_encoding.POSITION_GAP,))

    def few_terms(self, start: str) -> Mapping[str, int] | None:
        """All terms that start with a term, with their document frequencies; None if many, or if nobody asked for them."""
        known: _PrefixWords | None = self._transaction.cached_value(("prefix words", fts_encoding.word_of_term(start)))
        return known and known.terms


def _joined_words(words: Sequence[str]) -> str:
    return "\0".join(("", *words, "")) if words else ""
