"""What a part of the query stands for in one index: its derivations (relevance.md 2.5 to 2.7).

Knows the word itself, the words it is a beginning of, its typo words, its split, its synonyms, and
subsets of these; refuses to know the order of the parts and how they are ranked.
"""
from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence

from svcd.engine.postings import Postings
from svcd.engine.query import Phrase
from svcd.engine.reader import DocIds
from svcd.engine.typos import Typos, typos

LONGEST_WORD = 250  # bytes
PREFIX_WORDS = 1000
CACHED_PREFIX_WORDS = 100  # a beginning of at least so many words is cached
CACHED_PREFIX_BYTES = 4
SYNONYM_PHRASES = 50
SYNONYM_WORDS = 100

# The zero-typo part of a subset: nothing, the exact term alone, everything. Ordered, so that the
# smaller one is the intersection.
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
        if not self._is_enabled or len(word) < self._one or word in self._disabled_words:
            return 0
        return 1 if len(word) < self._two else 2


class Interned:
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

    def intersection(self, other: Subset) -> Subset:
        """What both subsets of the same term select."""
        return Subset(
            self.term,
            min(self.zero, other.zero),
            self.one and other.one,
            self.two and other.two,
            self.is_mandatory or other.is_mandatory,
        )

    @property
    def cached_prefix(self) -> str | None:
        """The cached prefix, if it is selected."""
        return self.term.cached_prefix if self.zero == ALL else None

    @property
    def exact_phrase(self) -> Phrase | None:
        """What stands for the term exactly, as a phrase of one or more words (3.10); None if nothing."""
        term = self.term
        if term.is_ngram or self.zero == NONE:
            return None
        if term.phrase is not None:
            return term.phrase
        return (term.exact,) if term.exact is not None else None


class Terms:
    """Makes the terms of one query and resolves their subsets, in one index.

    synonyms: from the words of a key to its phrases, both normalised (2.7).
    """

    def __init__(
        self,
        postings: Postings,
        rules: TypoRules,
        synonyms: Mapping[tuple[str, ...], Sequence[Phrase]],
    ) -> None:
        self.postings = postings
        self.interned = Interned()
        self._rules = rules
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
        return self._made(Term(word, is_prefix, self._rules.budget(word)))

    def ngram(self, words: Sequence[str], is_prefix: bool) -> Term | None:
        """The term of words written as one; None when that is too long for a word."""
        joined = "".join(words)
        if len(joined.encode()) > LONGEST_WORD:
            return None
        budget = max(0, self._rules.budget(joined) - (len(words) - 1))
        return self._made(Term(joined, is_prefix, budget, components=tuple(words)))

    def _made(self, term: Term) -> Term:
        if len(term.word.encode()) > LONGEST_WORD:
            term.is_derived = True
            return term
        self.interned.add([term.word])
        if self.postings.reader.has_word(term.word):
            term.exact = term.word
        if term.is_prefix:
            self._find_prefix_words(term)
        term.synonyms = self._find_synonyms(term)
        return term

    def _find_prefix_words(self, term: Term) -> None:
        reader = self.postings.reader
        if self._is_cached_prefix(term.word):
            term.cached_prefix = term.word
            return
        words = [word for word in reader.words_with_prefix(term.word, PREFIX_WORDS + 1) if word != term.word]
        term.prefix_words = words[:PREFIX_WORDS]
        self.interned.add(term.prefix_words)

    def _is_cached_prefix(self, prefix: str) -> bool:
        if len(prefix.encode()) > CACHED_PREFIX_BYTES:
            return False
        reader, is_tolerant = self.postings.reader, self.postings.is_tolerant
        words = reader.words_with_prefix(prefix, CACHED_PREFIX_WORDS)
        if len(words) < CACHED_PREFIX_WORDS:
            return False
        if all(map(is_tolerant, words)):
            return True
        return sum(map(is_tolerant, reader.words_with_prefix(prefix))) >= CACHED_PREFIX_WORDS

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
        postings = self.postings
        term.typos = typos(postings.reader, term.word, term.budget, term.is_prefix, postings.is_tolerant)
        self.interned.add(sorted(term.typos.one + term.typos.two))
        split = self._best_split(term.word)
        if split != term.components:
            term.split = split

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
        has_word = self.postings.reader.has_word
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
        postings = self.postings
        originals, is_ngram = self._original_words(subset), subset.term.is_ngram
        docids = 0
        for number, word in enumerate(self.words(subset)):
            docids |= postings.original(word) if number < originals else postings.derived(word)
        for phrase in self.phrases(subset):
            docids |= postings.phrase(phrase)
        prefix = subset.cached_prefix
        if prefix is not None:
            docids |= postings.derived_prefix(prefix) if is_ngram else postings.original_prefix(prefix)
        return docids

    def _original_words(self, subset: Subset) -> int:
        """How many of `words(subset)`, which come first, count as asked for literally."""
        term = subset.term
        if term.is_ngram or subset.zero == NONE:
            return 0
        return (term.exact is not None) + (len(term.prefix_words) if subset.zero == ALL else 0)

    def exact_docids(self, subset: Subset) -> DocIds:
        """The documents of what stands for the term exactly."""
        phrase = subset.exact_phrase
        if phrase is None:
            return 0
        if subset.term.phrase is None and phrase[0] is not None:
            return self.postings.original(phrase[0])
        return self.postings.phrase(phrase)


