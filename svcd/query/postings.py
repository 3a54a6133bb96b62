"""The documents of words, phrases and pairs of words for one search.

The results of the reader are adapted to the search: some occurrences allow no typos, the search may be restricted to some
fields, and proximity has two precisions (docs/ranking.md#original-and-tolerant-occurrences). Each search has its own object,
which caches results.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.query.parser import Phrase
from svcd.query.reader import Reader
from svcd.schema.attributes import is_beneath
from svcd.text.analyzer import is_numeric

# Number of words in the sliding window that checks a phrase (docs/ranking.md#phrases).
_WINDOW = 3


class _PrefixAnswer(NamedTuple):
    """The first result for a word and all words with a prefix. candidates: argument of the call."""

    candidates: DocIds
    docids: DocIds


class Postings:
    """The postings of one index for one search.

    fields: the fields to search, None for all. They restrict single words, but neither pairs (`byWord`) nor positions.
    """

    def __init__(self, reader: Reader, fields: Iterable[str] | None = None) -> None:
        settings = reader.settings
        self.reader = reader
        self._fields = None if fields is None else list(dict.fromkeys(fields))
        self._exact_attributes = settings.typo_tolerance.exact_attributes
        self._has_exact_numbers = settings.typo_tolerance.has_exact_numbers
        self.is_by_attribute = settings.is_proximity_by_attribute
        # Whether the search uses only some fields.
        self.is_restricted = fields is not None
        # Whether all occurrences are tolerant.
        self.is_tolerant_throughout = not self._exact_attributes and not self._has_exact_numbers
        # Whether the documents of a word do not depend on fields.
        self.is_unrestricted = not self.is_restricted and self.is_tolerant_throughout
        self._words: dict[str, bool] = {}
        self._tolerant: dict[str, DocIds] = {}
        self._original: dict[str, DocIds] = {}
        self._phrases: dict[Phrase, DocIds] = {}
        # By attribute, by left word: the first result for each right word, and for all words with a prefix.
        self._first_answers: defaultdict[str, dict[str, DocIds]] = defaultdict(dict)
        self._first_prefix_answers: defaultdict[str, dict[str, _PrefixAnswer]] = defaultdict(dict)

    def looks_into(self, field: str) -> bool:
        """Return whether the search uses the field."""
        return self._fields is None or field in self._fields

    # Words

    def has_word(self, word: str) -> bool:
        """Return whether any field of any document contains the word. Cached, because splits look up the same parts often."""
        known = self._words.get(word)
        if known is None:
            known = self._words[word] = self.reader.vocabulary.has_word(word)
        return known

    def original(self, word: str) -> DocIds:
        """Return the documents of a word as typed: all occurrences count."""
        docids = self._original.get(word)
        if docids is None:
            fields = self._fields
            docids = self.reader.terms.word_docids(word) if fields is None else self._word_in_fields(word, fields)
            self._original[word] = docids
        return docids

    def tolerant(self, word: str) -> DocIds:
        """Return the documents of a word reached by a typo or an n-gram: only tolerant occurrences count."""
        docids = self._tolerant.get(word)
        if docids is not None:
            return docids
        terms = self.reader.terms
        if self._fields is not None:
            docids = self._word_in_fields(word, self._tolerant_fields(self._fields))
        elif self._has_exact_numbers and is_numeric(word):
            docids = EMPTY
        elif not self._exact_attributes:
            docids = terms.word_docids(word)
        else:
            docids = self._word_in_fields(word, [field for field in terms.word_fields(word) if not self._is_exact_field(field)])
        self._tolerant[word] = docids
        return docids

    def any_tolerant(self, words: Sequence[str]) -> DocIds:
        """Return the union of `tolerant` over many words."""
        if self.is_unrestricted and len(words) > 1:
            return self.reader.terms.words_docids(words)
        return union_of(map(self.tolerant, words))

    def is_tolerant(self, word: str) -> bool:
        """Return whether the word has a tolerant occurrence in any field of the index."""
        if self._has_exact_numbers and is_numeric(word):
            return False
        if not self._exact_attributes:
            return True
        return any(not self._is_exact_field(field) for field in self.reader.terms.word_fields(word))

    def in_field(self, word: str, field: str) -> DocIds:
        """Return the documents with the word in a field; all occurrences count."""
        if not self.looks_into(field):
            return EMPTY
        return self.reader.terms.word_field_docids(word, field)

    def fields_of(self, word: str) -> list[str]:
        """Return the fields of the search that contain the word."""
        return [field for field in self.reader.terms.word_fields(word) if self.looks_into(field)]

    # Prefixes: cached prefixes (docs/ranking.md#prefixes), and prefixes with a complete list of words

    def original_prefix(self, prefix: str) -> DocIds:
        """Return the documents with any word that starts with the prefix."""
        if self._fields is None:
            return self.reader.terms.prefix_docids(prefix)
        return self._in_fields(prefix, self._fields)

    def tolerant_prefix(self, prefix: str) -> DocIds:
        """Return the documents with a tolerant occurrence of any word that starts with the prefix."""
        if self._fields is not None:
            return self._in_fields(prefix, self._tolerant_fields(self._fields))
        if self._has_exact_numbers and is_numeric(prefix):
            return self.any_tolerant(self.reader.vocabulary.words_with_prefix(prefix))
        if self._exact_attributes:
            fields = self.reader.terms.prefix_fields(prefix)
            return self._in_fields(prefix, [field for field in fields if not self._is_exact_field(field)])
        return self.reader.terms.prefix_docids(prefix)

    def prefix_in_field(self, prefix: str, field: str) -> DocIds:
        """Return the documents with any word in this field that starts with the prefix."""
        if not self.looks_into(field):
            return EMPTY
        return self.reader.terms.prefix_field_docids(prefix, field)

    # Pairs and phrases

    def pair(self, distance: int, left: str, right: str, candidates: DocIds | None = None) -> DocIds:
        """Return the documents with the two words at this smallest distance, in this order.

        candidates: the result only has to be exact for them. By attribute, any distance in one field counts, and the result
        of the first call for a pair, within its candidates, is the result of all later calls (quirk,
        docs/ranking.md#proximity).
        """
        if not self.is_by_attribute:
            return self.reader.terms.pair_docids(distance, left, right, candidates)
        found = self._first_answers[left].get(right)
        if found is None:
            found = self._in_one_field(left, right)
            # An earlier call for a prefix of the right word was the first call for this pair.
            of_prefix = self._first_prefix_answers[left].items()
            first_candidates = next((answer.candidates for prefix, answer in of_prefix if right.startswith(prefix)), candidates)
            if first_candidates is not None:
                found &= first_candidates
            self._first_answers[left][right] = found
        return found

    def prefix_pair(self, distance: int, left: str, prefix: str, candidates: DocIds) -> DocIds:
        """Return the union of pair(distance, left, word, candidates) over the words that start with the prefix."""
        if not self.is_by_attribute:
            return self.reader.terms.prefix_pair_docids(distance, left, prefix, candidates)
        prefixes = self._first_prefix_answers[left]
        known = prefixes.get(prefix)
        if known is None:
            # First results for words of the prefix that had a call of their own. They can be reused unless one of them lacks a
            # candidate, or there was a call for a longer or shorter prefix.
            earlier = {right: docids for right, docids in self._first_answers[left].items() if right.startswith(prefix)}
            if (any(other.startswith(prefix) or prefix.startswith(other) for other in prefixes)
                    or any(not (candidates & self._in_one_field(left, right)).issubset(earlier[right]) for right in earlier)):
                return union_of(self.pair(distance, left, word, candidates)
                                for word in self.reader.vocabulary.words_with_prefix(prefix))
            fresh = candidates & union_of(self.in_field(left, field) & self.prefix_in_field(prefix, field)
                                          for field in self.fields_of(left))
            known = prefixes[prefix] = _PrefixAnswer(candidates, union_of([fresh, *earlier.values()]))
        return known.docids

    def phrase(self, phrase: Phrase) -> DocIds:
        """Return the documents of a phrase: with all words, and with neighbours near each other (docs/ranking.md#phrases)."""
        docids = self._phrases.get(phrase)
        if docids is not None:
            return docids
        words = [(place, word) for place, word in enumerate(phrase) if word is not None]
        docids = reduce(and_, [self.original(word) for _, word in words]) if words else EMPTY
        width = min(_WINDOW, len(phrase))
        # Every two words of one window, once: (left, right, whether they are adjacent).
        neighbours = dict.fromkeys((left, right, second - first == 1) for first, left in words for second, right in words
                                   if 0 < second - first < width)
        for left, right, is_next in neighbours:
            # By attribute, pair() must be called for each pair and for the whole index, as its first result is used later.
            if docids or self.is_by_attribute:
                within = None if self.is_by_attribute else docids
                near = self.pair(1, left, right, within)
                docids &= near if is_next else near | self.pair(2, left, right, within)
        self._phrases[phrase] = docids
        return docids

    def phrase_in_field(self, phrase: Phrase, field: str) -> DocIds:
        """Return the documents of a phrase whose first word is in this field."""
        word = first_word(phrase)
        return self.phrase(phrase) & self.in_field(word, field) if word is not None else EMPTY

    # Fields

    def _tolerant_fields(self, fields: Iterable[str]) -> list[str]:
        """Return the fields with tolerant occurrences under `attributesToSearchOn`.

        Quirk: there only literal names of `disableOnAttributes` count, and `disableOnNumbers` is ignored.
        """
        return [field for field in fields if field not in self._exact_attributes]

    def _is_exact_field(self, field: str) -> bool:
        return any(is_beneath(field, attribute) for attribute in self._exact_attributes)

    def _word_in_fields(self, word: str, fields: Iterable[str]) -> DocIds:
        return union_of(self.reader.terms.word_field_docids(word, field) for field in fields)

    def _in_fields(self, prefix: str, fields: Iterable[str]) -> DocIds:
        return union_of(self.reader.terms.prefix_field_docids(prefix, field) for field in fields)

    def _in_one_field(self, left: str, right: str) -> DocIds:
        return union_of(self.in_field(left, field) & self.in_field(right, field) for field in self.fields_of(left))



def first_word(phrase: Phrase) -> str | None:
    """Return the first word of a phrase, skipping position gaps; None for a phrase without words."""
    return next((word for word in phrase if word is not None), None)
