"""The words of a query as BM25 counts them: each with its repetitions and with everything that counts as the word.

docs/ranking.md#bm25 explains which derivations a word has, and what they weigh.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from svcd.query.graph import LONGEST_NGRAM, ParsedQuery, Part
from svcd.query.terms import LONGEST_WORD, Phrase, Subset, Term, Terms

# The weight of an occurrence of a derivation; an occurrence of the word, or of one with its stem, weighs 1. All are multiples of
# the step of stored frequencies.
TYPO_WEIGHT, SYNONYM_WEIGHT, SPLIT_WEIGHT, PREFIX_WEIGHT, PART_WEIGHT = 0.75, 0.75, 0.75, 0.25, 0.25
# In longer queries the last word is not a prefix: that costs relevance (docs/guide/relevance.md).
PREFIX_PARTS = 2
MOST_PARTS = 512


class CountedWord:
    """A word of the query, or a run of words with synonyms. repeats: how often the query has it. terms: of the whole query."""

    def __init__(self, term: Term, terms: Terms) -> None:
        self.term = term
        self.word = " ".join(term.components) or term.word
        self.is_ngram = term.is_ngram  # only its synonyms count
        self.repeats = 1
        self.prefix = term.word if term.is_prefix else None
        self._terms = terms

    @cached_property
    def same_words(self) -> list[str]:
        """The words of the index that count fully: the word itself and the words with its stem."""
        exact = [] if self.term.exact is None else [self.term.exact]
        return [] if self.is_ngram else [*exact, *self._terms.stem_words(self.word)]

    @property
    def synonyms(self) -> Sequence[Phrase]:
        """The synonyms, each a phrase of one or more words."""
        return self.term.synonyms

    def infix_words(self) -> Sequence[str]:
        """Return the words with this word inside, of the attributes whose words are found so."""
        return () if self.is_ngram else self._terms.infix_words(self.word)

    def corrections(self) -> tuple[Sequence[str], Phrase | None]:
        """Return (the words at one typo, or else at two; the best split): for a word that the index lacks."""
        if self.is_ngram or len(self.word.encode()) > LONGEST_WORD:
            return [], None
        self._terms.derivations(Subset(self.term))  # derives
        return self.term.typos.one or self.term.typos.two, self.term.split


def counted_words(terms: Terms, parsed: ParsedQuery, stop_words: Collection[str]) -> list[CountedWord]:
    """Return the distinct words of a query in their order, without stop words while other words remain."""
    last = parsed.parts[-1]
    words = [(word, last.is_prefix and part is last and len(parsed.parts) <= PREFIX_PARTS)
             for part in parsed.parts for word in part.words if word is not None]
    words = [entry for entry in words if entry[0] not in stop_words] or words
    found: dict[str, CountedWord] = {}
    for word, is_prefix in words:
        repeats = found[word].repeats + 1 if word in found else 1
        if word not in found or is_prefix:
            found[word] = CountedWord(terms.word(word, is_prefix), terms)
        found[word].repeats = repeats
    return [*found.values(), *_joined_synonyms(terms, parsed.parts)]


def located_parts(terms: Terms, parsed: ParsedQuery, words: Iterable[CountedWord]) -> list[tuple[Term, int, int]]:
    """Return the term of each part with its first and last position, for highlighting."""
    known = {word.word: word.term for word in words}

    def term(part: Part) -> Term:
        word = part.words[0] or ""
        return terms.phrase(part.words) if part.is_phrase else known.get(word) or terms.word(word, False)

    return [(term(part), part.start, part.end) for part in parsed.parts]


def _joined_synonyms(terms: Terms, parts: Sequence[Part]) -> Iterable[CountedWord]:
    """Yield the runs of two or three words that together have synonyms."""
    if not terms.has_synonyms:
        return
    for width in range(2, LONGEST_NGRAM + 1):
        for start in range(len(parts) - width + 1):
            run = parts[start:start + width]
            if not any(part.is_phrase for part in run) and run[-1].end - run[0].start == width - 1:
                term = terms.ngram([part.words[0] or "" for part in run], False)
                if term is not None and term.synonyms:
                    yield CountedWord(term, terms)
