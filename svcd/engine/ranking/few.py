"""The words of a few documents, read whole: what rules ask when hardly any candidates are left.

Knows in which fields, at which positions and how near each other the words of subsets stand in a
document; refuses to know costs. To read some dozens of documents is cheaper than to ask an index for
every position of every word in all documents. Within these documents the answers equal those of the
index; the tests compare them.
"""
from __future__ import annotations

from typing import Iterable, Iterator, Mapping, Sequence

from svcd.bitsets import from_docids, to_docids
from svcd.engine.derivations import Terms
from svcd.engine.documents import bucketed_position
from svcd.engine.postings import Postings, first_word
from svcd.engine.query import Phrase
from svcd.engine.reader import DocIds
from svcd.engine.terms import Subset

# Up to so many documents are read to answer one question; with more it is quicker to ask the index.
# Measured on 36,000 films of 90 words; fields are the quickest to ask for, positions the slowest.
FEW_FOR_FIELDS = 16
FEW_FOR_POSITIONS = 64
FEW_FOR_PAIRS = 128
# Words further apart than this are not near.
NEAR = 3

# A place is a number: that of the field in the document, and the position in the field. A position has
# 16 bits; one more keeps the last word of a field far from the first one of the next.
_FIELD_SHIFT = 17
_POSITION = (1 << _FIELD_SHIFT) - 1


class DocumentWords:
    """The words of a document with their places."""

    __slots__ = ("docid", "fields", "distinct", "_rows", "_places")

    def __init__(self, docid: int, rows: Mapping[str, Sequence[str]]) -> None:
        self.docid = docid
        self.fields = list(rows)
        self.distinct = frozenset().union(*rows.values())
        self._rows = list(rows.values())
        self._places: dict[str, list[int]] = {}

    def places(self, word: str) -> list[int]:
        """The places of a word, ascending; looked for once, as few words of a document are asked for."""
        places = self._places.get(word)
        if places is None:
            places = self._places[word] = list(self._find(word))
        return places

    def _find(self, word: str) -> Iterator[int]:
        for number, words in enumerate(self._rows):
            position = -1
            for _ in range(words.count(word)):
                position = words.index(word, position + 1)
                yield (number << _FIELD_SHIFT) + position

    def positions(self, word: str) -> Iterator[int]:
        """The positions of a word of the document, in any field."""
        return (place & _POSITION for place in self.places(word))

    def fields_of(self, words: Iterable[str]) -> set[str]:
        """The fields that hold any of these words of the document."""
        return {self.fields[place >> _FIELD_SHIFT] for word in words for place in self.places(word)}

    def length(self, field: str) -> int:
        """How many words a field has."""
        words = self._rows[self.fields.index(field)]
        return len(words) - words.count("")


class Few:
    """Reads each document once for all rules of a search."""

    def __init__(self, postings: Postings) -> None:
        self._rows = getattr(postings.reader, "rows", None)
        self._known: dict[int, DocumentWords] = {}

    def documents(self, candidates: DocIds, limit: int) -> list[DocumentWords] | None:
        """The candidates, read whole; None when more than `limit` of them had to be read for that."""
        if self._rows is None or candidates.bit_count() > limit + len(self._known):
            return None
        docids = to_docids(candidates)
        missing = [docid for docid in docids if docid not in self._known]
        if len(missing) > limit:
            return None
        for docid, rows in self._rows(missing) if missing else ():
            self._known[docid] = DocumentWords(docid, rows)
        return [self._known[docid] for docid in docids]


class Met:
    """The words by which a subset is met in documents.

    place: the element of a phrase that stands for it, 0 or -1; None for its first real word. Where
    that element is a hole the phrase is not met.
    """

    def __init__(self, terms: Terms, subset: Subset, place: int | None = None) -> None:
        self._singles = frozenset(terms.words(subset))
        self._prefix = subset.cached_prefix
        self._phrases = [(_standing(phrase, place), terms.postings.phrase(phrase)) for phrase in terms.phrases(subset)]

    def singles(self, document: DocumentWords) -> frozenset[str]:
        """The single words of the subset that stand in the document."""
        return self._singles & document.distinct

    def words(self, document: DocumentWords) -> set[str]:
        """These, and the words that stand for a phrase or for the prefix."""
        found = set(self.singles(document))
        for word, docids in self._phrases:
            if word is not None and docids >> document.docid & 1:
                found.add(word)
        if self._prefix is not None:
            found.update(word for word in document.distinct if word.startswith(self._prefix))
        return found


def _standing(phrase: Phrase, place: int | None) -> str | None:
    return first_word(phrase) if place is None else phrase[place]


def by_field(met: Met, documents: Iterable[DocumentWords]) -> dict[str, list[int]]:
    """field -> docids of the documents in which a word is met there, ascending."""
    found: dict[str, list[int]] = {}
    for document in documents:
        for field in document.fields_of(met.words(document)):
            found.setdefault(field, []).append(document.docid)
    return found


def by_position(met: Met, documents: Iterable[DocumentWords]) -> dict[int, list[int]]:
    """bucketed position -> docids of the documents in which a word is met there, ascending."""
    found: dict[int, list[int]] = {}
    for document in documents:
        positions = {position for word in met.words(document) for position in document.positions(word)}
        for bucketed in set(map(bucketed_position, positions)):
            found.setdefault(bucketed, []).append(document.docid)
    return found


def at_positions(wanted: Sequence[tuple[str, int]], documents: Iterable[DocumentWords]) -> list[DocumentWords]:
    """The documents in which each of the words stands at its bucketed position, in any field."""
    words = frozenset(word for word, _ in wanted)
    having = (document for document in documents if words <= document.distinct)
    return [document for document in having if all(_is_at(document, *each) for each in wanted)]


def _is_at(document: DocumentWords, word: str, bucketed: int) -> bool:
    return any(bucketed_position(position) == bucketed for position in document.positions(word))


def nearness(left: Met, right: Met, documents: Iterable[DocumentWords]) -> dict[int, DocIds]:
    """Distance (1, 2, 3) -> documents with a word of each side so far apart; wrong order is one further.

    left, right: met by the last and by the first word of their phrases.
    """
    found: dict[int, list[int]] = {distance: [] for distance in range(1, NEAR + 1)}
    for document in documents:
        for distance in _distances(left, right, document):
            found[distance].append(document.docid)
    return {distance: from_docids(docids) for distance, docids in found.items()}


def _distances(left: Met, right: Met, document: DocumentWords) -> set[int]:
    distances = _nearest(left.words(document), right.words(document), document)
    # A phrase, and a word that is only begun, is never near in the wrong order.
    backward = _nearest(right.singles(document), left.singles(document), document)
    return distances | {distance + 1 for distance in backward if distance < NEAR}


def _nearest(lefts: Iterable[str], rights: Iterable[str], document: DocumentWords) -> set[int]:
    """The smallest distance of each left word from each right word behind it, where they are near."""
    distances = set()
    for left in lefts:
        for right in rights:
            gaps = [after - before for before in document.places(left) for after in document.places(right)]
            near = [gap for gap in gaps if 0 < gap <= NEAR]
            if near:
                distances.add(min(near))
    return distances
