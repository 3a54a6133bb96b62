"""The words of a few documents, read whole: what rules ask when hardly any candidates are left.

Knows in which fields, at which positions and how near each other the words of subsets stand in a
document, and how sets of a few documents are kept small; refuses to know costs. To read some dozens
of documents is cheaper than to ask an index for every position of every word in all documents. Within
these documents the answers equal those of the index; the tests compare them.
"""
from __future__ import annotations

from typing import Collection, Iterable, Iterator, Mapping, Sequence

from svcd.base.bitmaps import DocIds, from_docids, to_docids
from svcd.query.parser import Phrase
from svcd.query.postings import Postings, first_word
from svcd.query.terms import Subset, Terms
from svcd.schema.documents import bucketed_position

# Up to so many documents are read to answer one question; with more it is quicker to ask the index.
# Measured on 36,000 films of 90 words; fields are the quickest to ask for, positions the slowest. Whether a
# field is the query is asked of one position for each word, whose answer is kept for the next search.
FEW_FOR_EXACT = 8
FEW_FOR_FIELDS = 16
FEW_FOR_POSITIONS = 32
FEW_FOR_PAIRS = 128
# Words further apart than this are not near.
NEAR = 3

# A set of the documents of one group: bit n stands for the n-th of them.
LocalBitset = int

# So many words are quicker looked for one by one than by a look at all words of a document.
_SOME_WORDS = 4
# So many pairs of places are quicker compared one by one than as sets.
_SOME_PLACES = 8

# A place is a number: that of the field in the document, and the position in the field. A position has
# 16 bits; one more keeps the last word of a field far from the first one of the next.
_FIELD_SHIFT = 17
_POSITION = (1 << _FIELD_SHIFT) - 1


class DocumentWords:
    """The words of a document with their places."""

    __slots__ = ("docid", "fields", "_rows", "_places")

    def __init__(self, docid: int, rows: Mapping[str, Sequence[str]]) -> None:
        self.docid = docid
        self.fields = list(rows)
        self._rows = list(rows.values())
        self._places: dict[str, list[int]] = {}

    def places(self, word: str) -> list[int]:
        """The places of a word, ascending; looked for once, as few words of a document are asked for."""
        places = self._places.get(word)
        if places is None:
            places = self._places[word] = []
            for number, words in enumerate(self._rows):
                position = -1
                for _ in range(words.count(word)):
                    position = words.index(word, position + 1)
                    places.append((number << _FIELD_SHIFT) + position)
        return places

    def places_of_any(self, words: Collection[str]) -> list[int]:
        """The places of any of these words, in any order."""
        if len(words) <= _SOME_WORDS:
            return [place for word in words for place in self.places(word)]
        return [
            (number << _FIELD_SHIFT) + position
            for number, row in enumerate(self._rows)
            for position, word in enumerate(row)
            if word in words
        ]

    def places_of_prefix(self, prefix: str) -> list[int]:
        """The places of all words that begin so."""
        return [
            (number << _FIELD_SHIFT) + position
            for number, words in enumerate(self._rows)
            for position, word in enumerate(words)
            if word.startswith(prefix)
        ]

    def positions(self, places: Iterable[int]) -> list[int]:
        """The positions of these places, in their fields."""
        return [place & _POSITION for place in places]

    def fields_at(self, places: Iterable[int]) -> list[str]:
        """The fields of these places."""
        fields = self.fields
        return [fields[place >> _FIELD_SHIFT] for place in places]

    def length(self, field: str) -> int:
        """How many words a field has."""
        words = self._rows[self.fields.index(field)]
        return len(words) - words.count("")


class CandidateBatch:
    """Some documents read whole, in a row: sets of them are small integers, whatever their docids are."""

    __slots__ = ("documents", "everything", "_docids")

    def __init__(self, documents: Sequence[DocumentWords], docids: DocIds) -> None:
        self.documents = documents
        self.everything: LocalBitset = (1 << len(documents)) - 1
        self._docids = docids

    def of(self, docids: DocIds) -> LocalBitset:
        """Those of the group that are in a set of docids."""
        together = docids & self._docids
        if together == self._docids:
            return self.everything
        chosen = 0
        if together:
            for number, document in enumerate(self.documents):
                chosen |= (together >> document.docid & 1) << number
        return chosen

    def docids(self, chosen: LocalBitset) -> DocIds:
        """The set of docids of some of the group."""
        return self._docids if chosen == self.everything else from_docids(self.listed(chosen))

    def listed(self, chosen: LocalBitset) -> list[int]:
        """The docids of some of the group, ascending."""
        return [document.docid for _, document in self.each(chosen)]

    def each(self, chosen: LocalBitset) -> Iterator[tuple[LocalBitset, DocumentWords]]:
        """(the set of it alone, the document) of some of the group, by docid."""
        while chosen:
            alone = chosen & -chosen
            chosen ^= alone
            yield alone, self.documents[alone.bit_length() - 1]


class ForwardIndexLoader:
    """Reads each document once for all rules of a search."""

    def __init__(self, postings: Postings) -> None:
        self._words_by_position = postings.reader.terms.words_by_position
        self._known: dict[int, DocumentWords] = {}

    def group(self, candidates: DocIds, limit: int) -> CandidateBatch | None:
        """The candidates, read whole; None when more than `limit` of them had to be read for that."""
        if candidates.bit_count() > limit + len(self._known):
            return None
        docids = to_docids(candidates)
        missing = [docid for docid in docids if docid not in self._known]
        if len(missing) > limit:
            return None
        for docid, rows in self._words_by_position(missing) if missing else ():
            self._known[docid] = DocumentWords(docid, rows)
        return CandidateBatch([self._known[docid] for docid in docids], candidates)


class TermPositions:
    """The words by which a subset is met in documents; looked for once in each.

    place: the element of a phrase that stands for it, 0 or -1; None for its first real word. Where
    that element is a hole the phrase is not met.
    """

    def __init__(self, terms: Terms, subset: Subset, place: int | None = None) -> None:
        self._singles = frozenset(terms.words(subset))
        self._prefix = subset.cached_prefix
        phrases = ((_standing(phrase, place), terms.postings.phrase(phrase)) for phrase in terms.phrases(subset))
        self._phrases = [(word, docids) for word, docids in phrases if docids and word is not None]
        self._single_places: dict[int, frozenset[int]] = {}
        is_single = not self._phrases and self._prefix is None
        self._places: dict[int, frozenset[int]] = self._single_places if is_single else {}

    def places(self, document: DocumentWords) -> frozenset[int]:
        """Where the single words stand, and those that stand for a phrase or for the prefix."""
        places = self._places.get(document.docid)
        if places is None:
            places = self._places[document.docid] = self._find_places(document)
        return places

    def single_places(self, document: DocumentWords) -> frozenset[int]:
        """Where the single words of the subset stand."""
        places = self._single_places.get(document.docid)
        if places is None:
            places = self._single_places[document.docid] = frozenset(document.places_of_any(self._singles))
        return places

    def _find_places(self, document: DocumentWords) -> frozenset[int]:
        standing = [word for word, docids in self._phrases if docids >> document.docid & 1]
        if not standing and self._prefix is None:
            return self.single_places(document)
        begun = () if self._prefix is None else document.places_of_prefix(self._prefix)
        return self.single_places(document).union(document.places_of_any(standing), begun)


def _standing(phrase: Phrase, place: int | None) -> str | None:
    return first_word(phrase) if place is None else phrase[place]


def smallest_distance(left: TermPositions, right: TermPositions, document: DocumentWords) -> int | None:
    """The smallest distance (1, 2, 3) of a word of each side; wrong order is one further. None when they are far.

    left, right: met by the last and by the first word of their phrases.
    """
    lefts, rights = left.places(document), right.places(document)
    if not lefts or not rights:
        return None
    # A phrase, and a word that is only begun, is never near in the wrong order.
    single_lefts, single_rights = left.single_places(document), right.single_places(document)
    are_single = lefts is single_lefts and rights is single_rights
    if are_single and len(lefts) * len(rights) <= _SOME_PLACES:
        return _nearest(lefts, rights)
    if _is_behind(lefts, rights, 1):
        return 1
    for distance in range(2, NEAR + 1):
        if _is_behind(lefts, rights, distance) or _is_behind(single_rights, single_lefts, distance - 1):
            return distance
    return None


def _nearest(lefts: frozenset[int], rights: frozenset[int]) -> int | None:
    """The same for single words of few places."""
    nearest = NEAR + 1
    for left in lefts:
        for right in rights:
            gap = right - left
            distance = gap if gap > 0 else 1 - gap
            if distance < nearest and gap:
                nearest = distance
    return nearest if nearest <= NEAR else None


def _is_behind(before: frozenset[int], after: frozenset[int], distance: int) -> bool:
    """Does one of the places lie so far behind one of the others?"""
    return not after.isdisjoint([place + distance for place in before])


def are_at(wanted: Sequence[tuple[str, int]], document: DocumentWords) -> bool:
    """Does each of the words stand at its bucketed position, in any field?"""
    return all(_is_at(document, word, bucketed) for word, bucketed in wanted)


def _is_at(document: DocumentWords, word: str, bucketed: int) -> bool:
    return any(bucketed_position(position) == bucketed for position in document.positions(document.places(word)))
