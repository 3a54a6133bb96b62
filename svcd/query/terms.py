"""What a part of the query can stand for: a term, and selections of its derivations (relevance.md 2.8).

Knows the shape of a term and how many typos it may have; refuses to know how derivations are found.
"""
from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence

from svcd.query.parser import Phrase
from svcd.query.typos import Typos

# The zero-typo part of a subset: nothing, the exact term alone, everything.
NONE, EXACT, ALL = 0, 1, 2


class TypoRules:
    """How many typos a query word may have (2.5.2)."""

    def __init__(self, typo_tolerance: Mapping[str, object], disabled_words: frozenset[str]) -> None:
        lengths = typo_tolerance.get("minWordSizeForTypos") or {}
        assert isinstance(lengths, Mapping)
        self._is_enabled = typo_tolerance.get("enabled", True)
        self._one = lengths.get("oneTypo", 5)
        self._two = lengths.get("twoTypos", 9)
        self._disabled_words = disabled_words

    def budget(self, word: str) -> int:
        """0, 1 or 2 typos."""
        return 0 if self.disables(word) else self.budget_of_length(len(word))

    def budget_of_length(self, length: int) -> int:
        """0, 1 or 2 typos, for what is no word to be disabled."""
        if not self._is_enabled or length < self._one:
            return 0
        return 1 if length < self._two else 2

    def disables(self, word: str) -> bool:
        """Is the word named as one that may have none?"""
        return word in self._disabled_words


class TermInterner:
    """The order in which words were first met by a query: what decides between equal matches (7.2)."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def add(self, words: Sequence[str | None]) -> None:
        """Words met now, in this order; those known keep their place."""
        for word in words:
            if word is not None:
                self._places.setdefault(word, len(self._places))

    def ordered(self, words: Sequence[str]) -> list[str]:
        """The words, each met before, first met first."""
        return sorted(dict.fromkeys(words), key=self._places.__getitem__)


class Term:
    """A word, phrase or n-gram of the query with all it may match; equal only to itself.

    components: the words an n-gram was made of, () for a single word and a phrase.
    The typo words and the split are found when first asked for: `is_derived` tells whether they were.
    """

    def __init__(
        self,
        word: str,
        is_prefix: bool,
        budget: int,
        *,
        components: tuple[str, ...] = (),
        phrase: Phrase | None = None,
    ) -> None:
        self.word = word
        self.is_prefix = is_prefix
        self.budget = budget
        self.components = components
        self.phrase = phrase
        self.exact: str | None = None
        self.prefix_words: Sequence[str] = ()
        self.has_all_prefix_words = False  # and not only the first ones
        self.cached_prefix: str | None = None
        self.synonyms: Sequence[Phrase] = ()
        self.typos = Typos([], [])
        self.split: Phrase | None = None
        self.is_derived = False

    @property
    def is_ngram(self) -> bool:
        """Was it made of several words of the query?"""
        return bool(self.components)


class Subset(NamedTuple):
    """A selection of the derivations of a term: its zero-, one- and two-typo parts.

    zero: NONE, EXACT or ALL. mandatory: may not be dropped any more (3.11).
    """

    term: Term
    zero: int = ALL
    one: bool = True
    two: bool = True
    is_mandatory: bool = False

    @property
    def cached_prefix(self) -> str | None:
        """The cached prefix, if it is selected."""
        return self.term.cached_prefix if self.zero == ALL else None

    @property
    def whole_prefix(self) -> str | None:
        """The beginning that stands for the exact word and all prefix words, if they are all selected."""
        term = self.term
        if self.zero != ALL or not term.is_prefix:
            return None
        return term.word if term.has_all_prefix_words and term.prefix_words else term.cached_prefix

    @property
    def exact_phrase(self) -> Phrase | None:
        """What stands for the term exactly, as a phrase of one or more words (3.10); None if nothing."""
        term = self.term
        if term.is_ngram or self.zero == NONE:
            return None
        if term.phrase is not None:
            return term.phrase
        return (term.exact,) if term.exact is not None else None
