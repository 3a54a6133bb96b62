"""The words of a few documents, read from the forward index. Rules use them when few candidates are left.

Reading some dozens of documents is cheaper than looking up every position of every word in the inverted index;
docs/ranking.md#two-ways-to-evaluate-a-rule has the figures. For these documents both indexes give the same results; the
tests compare them.
"""
from __future__ import annotations

from typing import Sequence

from svcd.base.docids import DocIds
from svcd.query.postings import Postings, first_word
from svcd.query.reader import DocumentWords
from svcd.query.terms import Subset, Terms

# The largest number of documents to read for one rule; for more the inverted index is faster. Measured on 36,000 films of
# 90 words. In the inverted index, fields are the fastest to look up and positions the slowest.
READ_FOR_FIELDS = 16
READ_FOR_POSITIONS = 32
READ_FOR_PAIRS = 128
# The largest distance at which words are near.
NEAR = 3

# A set of documents of one batch; bit n is the n-th document.
LocalBitset = int

# Up to _FEW_PAIRS pairs of occurrences are compared one by one, which is faster than comparing sets.
_FEW_PAIRS = 8


class CandidateBatch:
    """Some documents with their words, ordered by docid. Sets of them are small integers, even for large docids."""

    __slots__ = ("documents", "all_documents", "_docids")

    def __init__(self, documents: Sequence[DocumentWords], docids: DocIds) -> None:
        self.documents = documents
        self.all_documents: LocalBitset = (1 << len(documents)) - 1
        self._docids = docids

    def local(self, docids: DocIds) -> LocalBitset:
        """Return the documents of the batch that are in a set of docids."""
        common = docids & self._docids
        if common == self._docids:
            return self.all_documents
        documents = 0
        if common:
            for number, document in enumerate(self.documents):
                if document.docid in common:
                    documents |= 1 << number
        return documents

    def docids(self, documents: LocalBitset) -> DocIds:
        """Return the set of docids of some documents of the batch."""
        return self._docids if documents == self.all_documents else DocIds(self.ordered_docids(documents))

    def ordered_docids(self, documents: LocalBitset) -> list[int]:
        """Return the docids of some documents of the batch, ascending."""
        return [document.docid for _, document in self.each(documents)]

    def each(self, documents: LocalBitset) -> list[tuple[LocalBitset, DocumentWords]]:
        """Return (the set that contains only this document, the document) for some documents, ordered by docid."""
        found: list[tuple[LocalBitset, DocumentWords]] = []
        while documents:
            alone = documents & -documents
            documents ^= alone
            found.append((alone, self.documents[alone.bit_length() - 1]))
        return found


class ForwardIndexLoader:
    """Read each document once for all rules of a search."""

    def __init__(self, postings: Postings) -> None:
        self._document_words = postings.reader.terms.document_words
        self._known: dict[int, DocumentWords] = {}

    def read(self, candidates: DocIds, limit: int) -> CandidateBatch | None:
        """Return the candidates with their words; None if this needs to read more than `limit` documents."""
        known = self._known
        if len(candidates) > limit + len(known):
            return None
        docids = list(candidates)
        missing = [docid for docid in docids if docid not in known]
        if len(missing) > limit:
            return None
        if missing:
            for document in self._document_words(missing):
                known[document.docid] = document
        return CandidateBatch([known[docid] for docid in docids], candidates)


class TermPositions(dict[DocumentWords, frozenset[int]]):
    """The occurrences of a subset in documents; each document is looked up once.

    They are the occurrences of its single words, of the words with its cached prefix, and of one word of each phrase.
    phrase_end: the index of this word in the phrase, 0 or -1; None for its first word. A phrase with a position gap at this
    index is skipped.
    """

    def __init__(self, terms: Terms, subset: Subset, phrase_end: int | None = None) -> None:
        super().__init__()
        self._words = frozenset(terms.words(subset))
        self._prefix = subset.cached_prefix
        self._phrases: list[tuple[str, DocIds]] = []  # the word that represents a phrase, the documents of the phrase
        for phrase in terms.phrases(subset):
            word = first_word(phrase) if phrase_end is None else phrase[phrase_end]
            docids = terms.postings.phrase(phrase)
            if docids and word is not None:
                self._phrases.append((word, docids))
        self._has_words_alone = not self._phrases and self._prefix is None
        self._word_occurrences: dict[DocumentWords, frozenset[int]] = {}

    def __missing__(self, document: DocumentWords) -> frozenset[int]:
        found = frozenset(document.occurrences_of_any(self._words))
        if not self._has_words_alone:
            self._word_occurrences[document] = found
            for word, docids in self._phrases:
                if document.docid in docids:
                    found = found.union(document.occurrences(word))
            if self._prefix is not None:
                found = found.union(document.occurrences_of_prefix(self._prefix))
        self[document] = found
        return found

    def word_occurrences(self, document: DocumentWords) -> frozenset[int]:
        """Return the occurrences of the single words, in a document that was looked up before."""
        return (self if self._has_words_alone else self._word_occurrences)[document]


def smallest_distance(left: TermPositions, right: TermPositions, document: DocumentWords) -> int | None:
    """Return the smallest distance (1, 2, 3) between a word of each side; None if no words are near.

    Words in the wrong order count as one further apart. left: with phrase_end -1; right: with phrase_end 0.
    """
    lefts, rights = left[document], right[document]
    if not lefts or not rights:
        return None
    # Phrases, and words of a cached prefix that are not single words as well, are never near in the wrong order.
    left_words, right_words = left.word_occurrences(document), right.word_occurrences(document)
    are_words = lefts is left_words and rights is right_words
    if are_words and len(lefts) * len(rights) <= _FEW_PAIRS:
        return _smallest_distance_of_few(lefts, rights)
    if _are_apart(lefts, rights, 1):
        return 1
    for distance in range(2, NEAR + 1):
        if _are_apart(lefts, rights, distance) or _are_apart(right_words, left_words, distance - 1):
            return distance
    return None


def _smallest_distance_of_few(lefts: frozenset[int], rights: frozenset[int]) -> int | None:
    """As smallest_distance(), for few occurrences of single words."""
    smallest = NEAR + 1
    for left in lefts:
        for right in rights:
            gap = right - left
            distance = gap if gap > 0 else 1 - gap
            if distance < smallest and gap:
                smallest = distance
    return smallest if smallest <= NEAR else None


def _are_apart(lefts: frozenset[int], rights: frozenset[int], distance: int) -> bool:
    """Return whether a right occurrence is exactly `distance` positions after a left one."""
    return not rights.isdisjoint([left + distance for left in lefts])
