"""Query terms, their derivations in one index, and the documents of subsets of derivations.

A term is a word, a phrase or an n-gram of the query. Its derivations are the words and phrases that it may match
(docs/ranking.md#terms-and-derivations). A subset selects some derivations.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.query.parser import Phrase
from svcd.query.postings import Postings
from svcd.query.typos import Typos, typos
from svcd.schema.index_settings import TypoTolerance

LONGEST_WORD = 250  # bytes; longer words are not indexed
PREFIX_WORDS = 1000
# A cached prefix has at least this number of words, and at most this number of bytes.
CACHED_PREFIX_WORDS = 100
CACHED_PREFIX_BYTES = 4
SYNONYM_PHRASES = 50
SYNONYM_WORDS = 100

# The zero-typo part of a subset: nothing, only the exact word, everything.
NONE, EXACT, ALL = 0, 1, 2


class TermInterner:
    """Number words in the order of their first use in a query; highlighting uses it to choose between equal matches."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def add(self, words: Sequence[str | None]) -> None:
        """Number the new words, in this order; skip None (a position gap)."""
        numbers = self._numbers
        for word in words:
            if word is not None and word not in numbers:
                numbers[word] = len(numbers)

    def ordered(self, words: Sequence[str]) -> list[str]:
        """Return the words, which add() has numbered, ordered by number, each once."""
        return sorted(dict.fromkeys(words), key=self._numbers.__getitem__)


class Term:
    """A word, phrase or n-gram of the query with its derivations; equal only to itself.

    components: the words of an n-gram; () for a word or phrase. has_all_prefix_words: False if `prefix_words` contains only
    the first words with the prefix. The first use finds typos and split, and then sets `is_derived`.
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
        self.is_ngram = bool(components)
        self.phrase = phrase
        self.exact: str | None = None
        self.prefix_words: Sequence[str] = ()
        self.has_all_prefix_words = False
        self.cached_prefix: str | None = None
        self.synonyms: Sequence[Phrase] = ()
        self.typos = Typos([], [])
        self.split: Phrase | None = None
        self.is_derived = False


class Subset(NamedTuple):
    """A selection of the derivations of a term: its zero-, one- and two-typo parts.

    zero: NONE, EXACT or ALL. is_mandatory: whether the term can no longer be dropped, because a document has it as typed.
    """

    term: Term
    zero: int = ALL
    one: bool = True
    two: bool = True
    is_mandatory: bool = False

    @property
    def cached_prefix(self) -> str | None:
        """The cached prefix, if the subset selects it."""
        return self.term.cached_prefix if self.zero == ALL else None

    @property
    def whole_prefix(self) -> str | None:
        """The prefix whose postings cover the exact word and all prefix words, if the subset selects them all."""
        term = self.term
        if self.zero != ALL or not term.is_prefix:
            return None
        return term.word if term.has_all_prefix_words and term.prefix_words else term.cached_prefix

    @property
    def exact_phrase(self) -> Phrase | None:
        """The term as typed, as a phrase of one or more words (docs/ranking.md#exactness); None if it has no such form."""
        term = self.term
        if term.is_ngram or self.zero == NONE:
            return None
        if term.phrase is not None:
            return term.phrase
        return (term.exact,) if term.exact is not None else None


class Terms:
    """Create the terms of one query in one index, and resolve their subsets.

    synonyms: words of a key -> its phrases, both normalized (docs/ranking.md#synonyms).
    """

    def __init__(
        self,
        postings: Postings,
        tolerance: TypoTolerance,
        synonyms: Mapping[tuple[str, ...], Sequence[Phrase]],
    ) -> None:
        self.postings = postings
        self.interner = TermInterner()
        self._tolerance = tolerance
        self._synonyms = synonyms
        self._docids: dict[Subset, DocIds] = {}
        self._words: dict[Subset, list[str]] = {}

    # Creating terms

    def phrase(self, phrase: Phrase) -> Term:
        """Return the term of a phrase, which has neither typos, prefix, synonyms nor split."""
        term = Term("", False, 0, phrase=phrase)
        term.is_derived = True
        return term

    def word(self, word: str, is_prefix: bool) -> Term:
        """Return the term of a single word."""
        return self._with_derivations(Term(word, is_prefix, self._tolerance.budget(word)))

    def ngram(self, words: Sequence[str], is_prefix: bool) -> Term | None:
        """Return the term of words written as one word; None if it is too long."""
        joined = "".join(words)
        if len(joined.encode()) > LONGEST_WORD:
            return None
        # Each omitted space counts as a typo.
        budget = max(0, self._tolerance.budget(joined) - (len(words) - 1))
        return self._with_derivations(Term(joined, is_prefix, budget, components=tuple(words)))

    def _with_derivations(self, term: Term) -> Term:
        """Return the term with all derivations except typos and split, which are slower and may not be needed."""
        if len(term.word.encode()) > LONGEST_WORD:
            term.is_derived = True
            return term
        self.interner.add((term.word,))
        if self.postings.has_word(term.word):
            term.exact = term.word
        if term.is_prefix:
            self._find_prefix_words(term)
        if self._synonyms:
            found: list[Phrase] = []
            word_count = 0
            for phrase in self._synonyms.get((term.word,), ())[:SYNONYM_PHRASES]:
                if word_count + len(phrase) <= SYNONYM_WORDS:
                    found.append(phrase)
                    word_count += len(phrase)
            if term.is_ngram:
                found.extend(self._synonyms.get(term.components, ()))
            term.synonyms = found
        return term

    def _find_prefix_words(self, term: Term) -> None:
        words_with_prefix = self.postings.reader.vocabulary.words_with_prefix
        words = words_with_prefix(term.word, CACHED_PREFIX_WORDS)
        if len(words) == CACHED_PREFIX_WORDS:
            is_tolerant = self.postings.is_tolerant
            # Usually the first words are all tolerant, so that the others need not be read.
            if len(term.word.encode()) <= CACHED_PREFIX_BYTES and (
                    all(map(is_tolerant, words))
                    or sum(map(is_tolerant, words_with_prefix(term.word))) >= CACHED_PREFIX_WORDS):
                term.cached_prefix = term.word
                return
            words = words_with_prefix(term.word, PREFIX_WORDS + 1)
        term.has_all_prefix_words = len(words) <= PREFIX_WORDS
        term.prefix_words = [word for word in words if word != term.word][:PREFIX_WORDS]
        self.interner.add(term.prefix_words)

    # Typos and split

    def _derive(self, term: Term) -> None:
        """Find the typo words and the split. They are cached across searches if they depend only on the words of the index."""
        postings, word, budget, is_prefix = self.postings, term.word, term.budget, term.is_prefix

        def find() -> tuple[Typos, Phrase | None]:
            vocabulary = postings.reader.vocabulary
            return typos(vocabulary, word, budget, is_prefix, postings.is_tolerant), self._best_split(word)

        term.is_derived = True
        if postings.is_by_attribute or not postings.is_tolerant_throughout:
            term.typos, split = find()
        else:
            term.typos, split = postings.reader.cached(("derived", word, budget, is_prefix), find)
        self.interner.add(sorted(term.typos.one + term.typos.two))
        if split != term.components:
            term.split = split

    def _best_split(self, word: str) -> Phrase | None:
        """Return the cut whose parts are adjacent in most documents; the leftmost of equal cuts."""
        # By attribute, a cut without documents is a split too (quirk).
        is_by_attribute, has_word = self.postings.is_by_attribute, self.postings.has_word
        best, most = None, -1 if is_by_attribute else 0
        for cut in range(1, len(word)):
            left, right = word[:cut], word[cut:]
            # Most parts are not words, and looking up a word is much faster than looking up a pair.
            if is_by_attribute or has_word(left) and has_word(right):
                found = len(self.postings.pair(1, left, right))
                if found > most:
                    best, most = (left, right), found
        return best

    # Subsets

    def words(self, subset: Subset) -> list[str]:
        """Return the single words of a subset, without the words of a cached prefix; words of the zero-typo part first."""
        known = self._words.get(subset)
        if known is not None:
            return known
        term = subset.term
        if (subset.one or subset.two) and not term.is_derived:
            self._derive(term)
        words = [] if subset.zero == NONE or term.exact is None else [term.exact]
        if subset.zero == ALL:
            words.extend(term.prefix_words)
        if subset.one:
            words.extend(term.typos.one)
        if subset.two:
            words.extend(term.typos.two)
        self._words[subset] = words
        return words

    def words_beside_prefix(self, subset: Subset) -> list[str]:
        """Return the single words of a subset, without the words that `subset.whole_prefix` covers."""
        words = self.words(subset)
        return words if subset.whole_prefix is None else words[_original_words(subset) :]

    def phrases(self, subset: Subset) -> list[Phrase]:
        """Return the phrases of a subset: the phrase of the term, all synonyms (for any selection: quirk), and the split."""
        term = subset.term
        if (subset.one or subset.two) and not term.is_derived:
            self._derive(term)
        phrases = [*term.synonyms] if term.phrase is None else [term.phrase, *term.synonyms]
        if subset.one and term.split is not None:
            phrases.append(term.split)
        return phrases

    def docids(self, subset: Subset) -> DocIds:
        """Return the documents that match a subset."""
        docids = self._docids.get(subset)
        if docids is not None:
            return docids
        postings, prefix, term = self.postings, subset.whole_prefix, subset.term
        # For words of the zero-typo part all occurrences count, unless the prefix covers them. For words reached by typos, and
        # for all words of an n-gram, only tolerant occurrences count.
        words, originals = self.words(subset), _original_words(subset)
        tolerant = words if term.is_ngram and prefix is None else words[originals:]
        found = [postings.any_tolerant(tolerant)] if tolerant else []
        if not term.is_ngram and prefix is None:
            found += map(postings.original, words[:originals])
        found += map(postings.phrase, self.phrases(subset))
        if prefix is not None:
            found.append(postings.tolerant_prefix(prefix) if term.is_ngram else postings.original_prefix(prefix))
        docids = self._docids[subset] = union_of(found)
        return docids

    def exact_docids(self, subset: Subset) -> DocIds:
        """Return the documents with the term as typed."""
        phrase = subset.exact_phrase
        if phrase is None:
            return EMPTY
        if subset.term.phrase is None and phrase[0] is not None:
            return self.postings.original(phrase[0])
        return self.postings.phrase(phrase)


def _original_words(subset: Subset) -> int:
    """Return the number of words at the start of `Terms.words(subset)` that belong to its zero-typo part."""
    if subset.zero == NONE:
        return 0
    term = subset.term
    return (term.exact is not None) + (len(term.prefix_words) if subset.zero == ALL else 0)
