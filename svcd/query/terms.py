"""Terms: what the parts of a query stand for in one index, their derivations, and the documents of any subset of them.

A term is a word, a phrase or an n-gram of the query; its derivations are the words and phrases that it may match
(docs/ranking.md#terms-and-derivations). A subset selects some of them.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.query.parser import Phrase
from svcd.query.postings import Postings
from svcd.query.typos import Typos, typos
from svcd.schema.index_settings import TypoTolerance

LONGEST_WORD = 250  # bytes; longer ones are not indexed
PREFIX_WORDS = 1000
# A prefix of at least so many words and at most so many bytes is a cached prefix.
CACHED_PREFIX_WORDS = 100
CACHED_PREFIX_BYTES = 4
SYNONYM_PHRASES = 50
SYNONYM_WORDS = 100

# The zero-typo part of a subset: nothing, the exact word alone, everything.
NONE, EXACT, ALL = 0, 1, 2


class TermInterner:
    """Numbers words in the order in which a query first meets them: it decides between equal matches in highlighting."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def add(self, words: Sequence[str | None]) -> None:
        """Number the words that are new, in this order; None (a position gap) is skipped."""
        numbers = self._numbers
        for word in words:
            if word is not None and word not in numbers:
                numbers[word] = len(numbers)

    def ordered(self, words: Sequence[str]) -> list[str]:
        """Words that were added before, by their numbers, each once."""
        return sorted(dict.fromkeys(words), key=self._numbers.__getitem__)


class Term:
    """A word, phrase or n-gram of the query with its derivations; equal only to itself.

    components: the words an n-gram was made of, () for a single word and a phrase. has_all_prefix_words: False when
    `prefix_words` are only the first ones. Typos and split are found when first asked for: `is_derived` says whether
    they were.
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

    zero: NONE, EXACT or ALL. is_mandatory: may not be dropped any more, since a document has it as typed.
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
        """The prefix whose postings are those of the exact word and all prefix words, if they are all selected."""
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
    """Makes the terms of one query in one index, and resolves their subsets.

    synonyms: the words of a key -> its phrases, both normalized (docs/ranking.md#synonyms).
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

    # Making terms

    def phrase(self, phrase: Phrase) -> Term:
        """The term of a phrase: no typo, no prefix, no synonym, no split."""
        term = Term("", False, 0, phrase=phrase)
        term.is_derived = True
        return term

    def word(self, word: str, is_prefix: bool) -> Term:
        """The term of a single word."""
        return self._with_derivations(Term(word, is_prefix, self._tolerance.budget(word)))

    def ngram(self, words: Sequence[str], is_prefix: bool) -> Term | None:
        """The term of words written as one; None when that is too long for a word."""
        joined = "".join(words)
        if len(joined.encode()) > LONGEST_WORD:
            return None
        # Each space left out is a typo of its own.
        budget = max(0, self._tolerance.budget(joined) - (len(words) - 1))
        return self._with_derivations(Term(joined, is_prefix, budget, components=tuple(words)))

    def _with_derivations(self, term: Term) -> Term:
        """The term with all derivations but typos and split, which take longer and may not be needed."""
        if len(term.word.encode()) > LONGEST_WORD:
            term.is_derived = True
            return term
        self.interner.add((term.word,))
        if self.postings.has_word(term.word):
            term.exact = term.word
        if term.is_prefix:
            self._find_prefix_words(term)
        if self._synonyms:
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
        self.interner.add(term.prefix_words)

    def _is_cached_prefix(self, prefix: str, words: Sequence[str]) -> bool:
        """Is the prefix short, and are CACHED_PREFIX_WORDS of its words tolerant? words: the first so many."""
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

    # Typos and split, when they are first needed

    def _derive(self, term: Term) -> None:
        term.is_derived = True
        term.typos, split = self._typos_and_split(term.word, term.budget, term.is_prefix)
        self.interner.add(sorted(term.typos.one + term.typos.two))
        if split != term.components:
            term.split = split

    def _typos_and_split(self, word: str, budget: int, is_prefix: bool) -> tuple[Typos, Phrase | None]:
        """The typo words and the split; kept for later searches where they depend on nothing but the words of the index."""
        postings = self.postings

        def find() -> tuple[Typos, Phrase | None]:
            vocabulary = postings.reader.vocabulary
            return typos(vocabulary, word, budget, is_prefix, postings.is_tolerant), self._best_split(word)

        if postings.is_by_attribute or not postings.is_tolerant_throughout:
            return find()
        return postings.reader.cached(("derived", word, budget, is_prefix), find)

    def _best_split(self, word: str) -> Phrase | None:
        """The cut whose parts are adjacent in most documents, the leftmost of equals."""
        # By attribute a cut without any document is a split too (quirk).
        is_by_attribute, has_word = self.postings.is_by_attribute, self.postings.has_word
        best, most = None, -1 if is_by_attribute else 0
        for cut in range(1, len(word)):
            left, right = word[:cut], word[cut:]
            # Most parts are no words, and asking for a word is much quicker than asking for a pair.
            if is_by_attribute or has_word(left) and has_word(right):
                found = len(self.postings.pair(1, left, right))
                if found > most:
                    best, most = (left, right), found
        return best

    # Subsets

    def words(self, subset: Subset) -> list[str]:
        """The single words of a subset, without those of a cached prefix; those of the zero-typo part first."""
        words = self._words.get(subset)
        if words is None:
            words = self._words[subset] = self._find_words(subset)
        return words

    def _find_words(self, subset: Subset) -> list[str]:
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
        return words

    def words_beside_prefix(self, subset: Subset) -> list[str]:
        """The single words of a subset but those that `subset.whole_prefix` stands for."""
        words = self.words(subset)
        return words if subset.whole_prefix is None else words[_original_words(subset) :]

    def phrases(self, subset: Subset) -> list[Phrase]:
        """The phrases of a subset: the term's own, all synonyms whatever is selected (quirk), and the split."""
        term = subset.term
        if (subset.one or subset.two) and not term.is_derived:
            self._derive(term)
        phrases = [*term.synonyms] if term.phrase is None else [term.phrase, *term.synonyms]
        if subset.one and term.split is not None:
            phrases.append(term.split)
        return phrases

    def docids(self, subset: Subset) -> DocIds:
        """The documents that match a subset."""
        docids = self._docids.get(subset)
        if docids is None:
            docids = self._docids[subset] = self._find_docids(subset)
        return docids

    def _find_docids(self, subset: Subset) -> DocIds:
        postings, prefix, term = self.postings, subset.whole_prefix, subset.term
        # Words of the zero-typo part are looked up in all occurrences, unless the prefix stands for them; words reached by
        # typos and all of an n-gram in tolerant ones.
        words, originals = self.words(subset), _original_words(subset)
        tolerant = words if term.is_ngram and prefix is None else words[originals:]
        found = [postings.any_tolerant(tolerant)] if tolerant else []
        if not term.is_ngram and prefix is None:
            found += map(postings.original, words[:originals])
        found += map(postings.phrase, self.phrases(subset))
        if prefix is not None:
            found.append(postings.tolerant_prefix(prefix) if term.is_ngram else postings.original_prefix(prefix))
        return union_of(found)

    def exact_docids(self, subset: Subset) -> DocIds:
        """The documents that have the term as typed."""
        phrase = subset.exact_phrase
        if phrase is None:
            return EMPTY
        if subset.term.phrase is None and phrase[0] is not None:
            return self.postings.original(phrase[0])
        return self.postings.phrase(phrase)


def _original_words(subset: Subset) -> int:
    """How many of `Terms.words(subset)`, from the first one on, belong to its zero-typo part."""
    if subset.zero == NONE:
        return 0
    term = subset.term
    return (term.exact is not None) + (len(term.prefix_words) if subset.zero == ALL else 0)
