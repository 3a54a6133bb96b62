"""The documents of words, phrases and pairs of words, as one search may see them.

Adds to the reader's answers what a query says: typos forbidden for some occurrences, the restriction to some fields, and
the precision of proximity (docs/ranking.md#original-and-tolerant-occurrences). Made for each search; keeps the answers.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.query.parser import Phrase
from svcd.query.reader import Reader
from svcd.schema.attributes import is_beneath
from svcd.text.analyzer import is_numeric

# A phrase is checked through a window of so many of its words, sliding over it (docs/ranking.md#phrases).
_WINDOW = 3


class Postings:
    """The postings of one index for one search.

    fields: the only fields to look into, None for all. They restrict single words, not pairs (`byWord`) nor positions.
    """

    def __init__(self, reader: Reader, fields: Iterable[str] | None = None) -> None:
        settings = reader.settings
        self.reader = reader
        self._fields = None if fields is None else list(dict.fromkeys(fields))
        self._exact_attributes = settings.typo_tolerance.exact_attributes
        self._has_exact_numbers = settings.typo_tolerance.has_exact_numbers
        self.is_by_attribute = settings.is_proximity_by_attribute
        # Are only some fields looked into?
        self.is_restricted = fields is not None
        # Are all occurrences tolerant?
        self.is_tolerant_throughout = not self._exact_attributes and not self._has_exact_numbers
        # Do the documents of a word follow from the index alone, without a look at fields?
        self.is_unrestricted = not self.is_restricted and self.is_tolerant_throughout
        self._words: dict[str, bool] = {}
        self._tolerant: dict[str, DocIds] = {}
        self._original: dict[str, DocIds] = {}
        self._phrases: dict[Phrase, DocIds] = {}
        self._by_attribute: dict[tuple[str, str], DocIds] = {}

    def looks_into(self, field: str) -> bool:
        """Is the field one of those looked into?"""
        return self._fields is None or field in self._fields

    # Words

    def has_word(self, word: str) -> bool:
        """Does any document hold the word, in any field? Kept, for the parts of splits are asked for again and again."""
        known = self._words.get(word)
        if known is None:
            known = self._words[word] = self.reader.vocabulary.has_word(word)
        return known

    def original(self, word: str) -> DocIds:
        """Documents of a word as typed: all occurrences."""
        docids = self._original.get(word)
        if docids is None:
            docids = self._original[word] = self._find_original(word)
        return docids

    def tolerant(self, word: str) -> DocIds:
        """Documents of a word reached by a typo or an n-gram: tolerant occurrences alone."""
        docids = self._tolerant.get(word)
        if docids is None:
            docids = self._tolerant[word] = self._find_tolerant(word)
        return docids

    def any_tolerant(self, words: Sequence[str]) -> DocIds:
        """The union of `tolerant` over many words."""
        if self.is_unrestricted and len(words) > 1:
            return self.reader.terms.words_docids(words)
        return union_of(map(self.tolerant, words))

    def is_tolerant(self, word: str) -> bool:
        """Has the word a tolerant occurrence in any field of the index?"""
        if self._has_exact_numbers and is_numeric(word):
            return False
        if not self._exact_attributes:
            return True
        return any(not self._is_exact_field(field) for field in self.reader.terms.word_fields(word))

    def in_field(self, word: str, field: str) -> DocIds:
        """Documents with the word in a field: all occurrences."""
        if not self.looks_into(field):
            return EMPTY
        return self.reader.terms.word_field_docids(word, field)

    def fields_of(self, word: str) -> list[str]:
        """The fields, among those looked into, that hold the word."""
        return self._looked_into(self.reader.terms.word_fields(word))

    # Cached prefixes (docs/ranking.md#prefixes), and those of which all words are known

    def original_prefix(self, prefix: str) -> DocIds:
        """Documents with any word that starts with the prefix."""
        if self._fields is None:
            return self.reader.terms.prefix_docids(prefix)
        return self._in_fields(prefix, self._fields)

    def tolerant_prefix(self, prefix: str) -> DocIds:
        """Documents with a tolerant occurrence of any word that starts with the prefix."""
        if self._fields is not None:
            return self._in_fields(prefix, self._tolerant_fields(self._fields))
        if self._has_exact_numbers and is_numeric(prefix):
            return self.any_tolerant(self.reader.vocabulary.words_with_prefix(prefix))
        if self._exact_attributes:
            fields = self.reader.terms.prefix_fields(prefix)
            return self._in_fields(prefix, [field for field in fields if not self._is_exact_field(field)])
        return self.reader.terms.prefix_docids(prefix)

    def prefix_in_field(self, prefix: str, field: str) -> DocIds:
        """Documents with any word in this field that starts with the prefix."""
        if not self.looks_into(field):
            return EMPTY
        return self.reader.terms.prefix_field_docids(prefix, field)

    # Pairs and phrases

    def pair(self, distance: int, left: str, right: str, candidates: DocIds | None = None) -> DocIds:
        """Documents with the two words at this smallest distance, in this order.

        candidates: the answer need only be right for these. By attribute: the documents with both in one field, whatever
        the distance; and the first answer for a pair, within the candidates of that call, is given to all later calls
        (quirk, docs/ranking.md#proximity).
        """
        if not self.is_by_attribute:
            return self.reader.terms.pair_docids(distance, left, right, candidates)
        found = self._by_attribute.get((left, right))
        if found is None:
            found = self._in_one_field(left, right)
            if candidates is not None:
                found &= candidates
            self._by_attribute[left, right] = found
        return found

    def phrase(self, phrase: Phrase) -> DocIds:
        """Documents of a phrase: all its words, and neighbours near each other (docs/ranking.md#phrases)."""
        docids = self._phrases.get(phrase)
        if docids is None:
            docids = self._phrases[phrase] = self._find_phrase(phrase)
        return docids

    def phrase_in_field(self, phrase: Phrase, field: str) -> DocIds:
        """Documents of a phrase whose first word stands in this field."""
        word = first_word(phrase)
        return self.phrase(phrase) & self.in_field(word, field) if word is not None else EMPTY

    # How they are found

    def _find_original(self, word: str) -> DocIds:
        if self._fields is None:
            return self.reader.terms.word_docids(word)
        return self._word_in_fields(word, self._fields)

    def _find_tolerant(self, word: str) -> DocIds:
        if self._fields is None:
            return self._tolerant_anywhere(word)
        return self._word_in_fields(word, self._tolerant_fields(self._fields))

    def _tolerant_anywhere(self, word: str) -> DocIds:
        if self._has_exact_numbers and is_numeric(word):
            return EMPTY
        if not self._exact_attributes:
            return self.reader.terms.word_docids(word)
        fields = self.reader.terms.word_fields(word)
        return self._word_in_fields(word, [field for field in fields if not self._is_exact_field(field)])

    def _tolerant_fields(self, fields: Iterable[str]) -> list[str]:
        """The fields whose occurrences are tolerant under `attributesToSearchOn`: there only literal names of
        `disableOnAttributes` count, and `disableOnNumbers` does not (quirk)."""
        return [field for field in fields if field not in self._exact_attributes]

    def _is_exact_field(self, field: str) -> bool:
        return any(is_beneath(field, attribute) for attribute in self._exact_attributes)

    def _looked_into(self, fields: Iterable[str]) -> list[str]:
        return [field for field in fields if self.looks_into(field)]

    def _word_in_fields(self, word: str, fields: Iterable[str]) -> DocIds:
        return union_of(self.reader.terms.word_field_docids(word, field) for field in fields)

    def _in_fields(self, prefix: str, fields: Iterable[str]) -> DocIds:
        return union_of(self.reader.terms.prefix_field_docids(prefix, field) for field in fields)

    def _in_one_field(self, left: str, right: str) -> DocIds:
        return union_of(self.in_field(left, field) & self.in_field(right, field) for field in self.fields_of(left))

    def _find_phrase(self, phrase: Phrase) -> DocIds:
        words = [self.original(word) for word in phrase if word is not None]
        docids = reduce(and_, words) if words else EMPTY
        for left, right, is_next in _neighbours(phrase):
            # By attribute each pair must be asked for in any case, as the first answer counts for later calls.
            if docids or self.is_by_attribute:
                docids &= self._near(left, right, is_next, docids)
        return docids

    def _near(self, left: str, right: str, is_next: bool, candidates: DocIds) -> DocIds:
        # By attribute this answer is kept for later calls, so it must be right for the whole index.
        within = None if self.is_by_attribute else candidates
        near = self.pair(1, left, right, within)
        return near if is_next else near | self.pair(2, left, right, within)


def first_word(phrase: Phrase) -> str | None:
    """The first word of a phrase, position gaps left out; None if it has none."""
    return next((word for word in phrase if word is not None), None)


def _neighbours(phrase: Phrase) -> Iterable[tuple[str, str, bool]]:
    """(left, right, adjacent) for every two words of a phrase in one window; each once."""
    width = min(_WINDOW, len(phrase))
    places = [(place, word) for place, word in enumerate(phrase) if word is not None]
    wanted = [
        (left, right, second - first == 1)
        for first, left in places
        for second, right in places
        if 0 < second - first < width
    ]
    return dict.fromkeys(wanted)
