"""The derivations of a query's terms in one index, and the documents of any selection of them.

Knows how the words of an index become derivations of a term (relevance.md 2.5 to 2.7) and how subsets
are resolved (2.8); refuses to know the order of the terms and how they are ranked.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from svcd.base.bitmaps import DocIds
from svcd.query.parser import Phrase
from svcd.query.postings import Postings
from svcd.query.typos import Typos, typos
from svcd.schema.index_settings import TypoTolerance

# What a part of the query can stand for: a term, and selections of its derivations (relevance.md 2.8).
#
# Knows the shape of a term and how many typos it may have; refuses to know how derivations are found.


# The zero-typo part of a subset: nothing, the exact term alone, everything.
NONE, EXACT, ALL = 0, 1, 2


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


LONGEST_WORD = 250  # bytes
PREFIX_WORDS = 1000
CACHED_PREFIX_WORDS = 100  # a beginning of at least so many words is cached
CACHED_PREFIX_BYTES = 4
SYNONYM_PHRASES = 50
SYNONYM_WORDS = 100


class Terms:
    """Makes the terms of one query and resolves their subsets, in one index.

    synonyms: from the words of a key to its phrases, both normalised (2.7).
    """

    def __init__(
        self,
        postings: Postings,
        typo_tolerance: TypoTolerance,
        synonyms: Mapping[tuple[str, ...], Sequence[Phrase]],
    ) -> None:
        self.postings = postings
        self.interned = TermInterner()
        self._typo_tolerance = typo_tolerance
        self._synonyms = synonyms
        self._docids: dict[Subset, DocIds] = {}
        self._words: dict[Subset, list[str]] = {}

    # making

    def phrase(self, phrase: Phrase) -> Term:
        """The term of a phrase: no typo, no prefix, no synonym, no split."""
        term = Term("", False, 0, phrase=phrase)
        term.is_derived = True
        return term

    def word(self, word: str, is_prefix: bool) -> Term:
        """The term of a single word."""
        return self._made(Term(word, is_prefix, self._typo_tolerance.budget(word)))

    def ngram(self, words: Sequence[str], is_prefix: bool) -> Term | None:
        """The term of words written as one; None when that is too long for a word."""
        joined = "".join(words)
        if len(joined.encode()) > LONGEST_WORD:
            return None
        budget = max(0, self._typo_tolerance.budget(joined) - (len(words) - 1))
        return self._made(Term(joined, is_prefix, budget, components=tuple(words)))

    def _made(self, term: Term) -> Term:
        if len(term.word.encode()) > LONGEST_WORD:
            term.is_derived = True
            return term
        self.interned.add([term.word])
        if self.postings.has_word(term.word):
            term.exact = term.word
        if term.is_prefix:
            self._find_prefix_words(term)
        term.synonyms = self._find_synonyms(term)
        return term

    def _find_prefix_words(self, term: Term) -> None:
        words_with_prefix = self.postings.reader.vocabulary.words_with_prefix
        words = words_with_prefix(term.word, CACHED_PREFIX_WORDS)
        if len(words) == CACHED_PREFIX_WORDS:
            if self._is_cached_prefix(term.word, words):
                term.cached_prefix = term.word
                return
            words = words_with_prefix(term.word, PREFIX_WORDS + 1)
        term.has_all_prefix_words = len(words) <= PREFIX_WORDS
        term.prefix_words = [word for word in words if word != term.word][:PREFIX_WORDS]
        self.interned.add(term.prefix_words)

    def _is_cached_prefix(self, prefix: str, words: Sequence[str]) -> bool:
        """Are there words enough? Only tolerant ones count. words: the first ones, just enough."""
        is_tolerant = self.postings.is_tolerant
        if len(prefix.encode()) > CACHED_PREFIX_BYTES:
            return False
        if all(map(is_tolerant, words)):
            return True
        every = self.postings.reader.vocabulary.words_with_prefix(prefix)
        return sum(map(is_tolerant, every)) >= CACHED_PREFIX_WORDS

    def _find_synonyms(self, term: Term) -> list[Phrase]:
        found: list[Phrase] = []
        word_count = 0
        for phrase in self._synonyms.get((term.word,), ())[:SYNONYM_PHRASES]:
            if word_count + len(phrase) <= SYNONYM_WORDS:
                found.append(phrase)
                word_count += len(phrase)
        if term.is_ngram:
            found.extend(self._synonyms.get(term.components, ()))
        return found

    # typos and split, at the first need

    def _derive(self, term: Term) -> None:
        term.is_derived = True
        term.typos, split = self._derived(term.word, term.budget, term.is_prefix)
        self.interned.add(sorted(term.typos.one + term.typos.two))
        if split != term.components:
            term.split = split

    def _derived(self, word: str, budget: int, is_prefix: bool) -> tuple[Typos, Phrase | None]:
        """The typo words and the split; remembered where they follow from the words of the index alone."""
        postings = self.postings

        def make() -> tuple[Typos, Phrase | None]:
            return typos(postings.reader.vocabulary, word, budget, is_prefix, postings.is_tolerant), self._best_split(word)

        if postings.is_by_attribute or not postings.is_tolerant_throughout:
            return make()
        return postings.remembered(("derived", word, budget, is_prefix), make)

    def _best_split(self, word: str) -> Phrase | None:
        """The cut whose halves stand next to each other in most documents, the leftmost of equals."""
        best, most = None, -1 if self.postings.is_by_attribute else 0
        for cut in range(1, len(word)):
            left, right = word[:cut], word[cut:]
            found = self._adjacent_count(left, right)
            if found > most:
                best, most = (left, right), found
        return best

    def _adjacent_count(self, left: str, right: str) -> int:
        # A pair is asked for only when it can exist: most halves of a word are no words.
        has_word = self.postings.has_word
        if not self.postings.is_by_attribute and not (has_word(left) and has_word(right)):
            return 0
        return self.postings.pair(1, left, right).bit_count()

    # what a subset selects

    def words(self, subset: Subset) -> list[str]:
        """The single words of a subset (2.8), without those of a cached prefix."""
        words = self._words.get(subset)
        if words is None:
            words = self._words[subset] = self._find_words(subset)
        return words

    def _find_words(self, subset: Subset) -> list[str]:
        term = self._ready(subset)
        words = [] if subset.zero == NONE or term.exact is None else [term.exact]
        if subset.zero == ALL:
            words.extend(term.prefix_words)
        if subset.one:
            words.extend(term.typos.one)
        if subset.two:
            words.extend(term.typos.two)
        return words

    def words_beside_prefix(self, subset: Subset) -> list[str]:
        """The single words of a subset but those that `subset.whole_prefix` stands for."""
        words = self.words(subset)
        if subset.whole_prefix is None:
            return words
        return words[(subset.term.exact is not None) + len(subset.term.prefix_words) :]

    def phrases(self, subset: Subset) -> list[Phrase]:
        """The phrases of a subset: its own and all synonyms whatever is selected (quirk), the split."""
        term = self._ready(subset)
        phrases = [] if term.phrase is None else [term.phrase]
        phrases.extend(term.synonyms)
        if subset.one and term.split is not None:
            phrases.append(term.split)
        return phrases

    def _ready(self, subset: Subset) -> Term:
        if (subset.one or subset.two) and not subset.term.is_derived:
            self._derive(subset.term)
        return subset.term

    def docids(self, subset: Subset) -> DocIds:
        """The documents of a subset."""
        docids = self._docids.get(subset)
        if docids is None:
            docids = self._docids[subset] = self._find_docids(subset)
        return docids

    def _find_docids(self, subset: Subset) -> DocIds:
        postings, prefix = self.postings, subset.whole_prefix
        is_derived = subset.term.is_ngram
        words = self.words_beside_prefix(subset)
        originals = 0 if is_derived or prefix is not None else self._zero_typo_words(subset)
        docids = postings.any_derived(words[originals:])
        for word in words[:originals]:
            docids |= postings.original(word)
        for phrase in self.phrases(subset):
            docids |= postings.phrase(phrase)
        if prefix is not None:
            docids |= postings.derived_prefix(prefix) if is_derived else postings.original_prefix(prefix)
        return docids

    def _zero_typo_words(self, subset: Subset) -> int:
        """How many of `words(subset)` are of its zero-typo part; they come first."""
        if subset.zero == NONE:
            return 0
        term = subset.term
        return (term.exact is not None) + (len(term.prefix_words) if subset.zero == ALL else 0)

    def exact_docids(self, subset: Subset) -> DocIds:
        """The documents of what stands for the term exactly."""
        phrase = subset.exact_phrase
        if phrase is None:
            return 0
        if subset.term.phrase is None and phrase[0] is not None:
            return self.postings.original(phrase[0])
        return self.postings.phrase(phrase)
