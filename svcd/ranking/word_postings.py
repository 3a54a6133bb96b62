"""Build the scorer of a query: the documents of its words with their frequencies, from stored counts or from documents.

An index whose settings ask for BM25 stores the frequencies of its words and the lengths of its documents (Reader.word_counts).
Without them, and for a search in some attributes, the search reads the words of up to MOST_READ documents from the forward index:
the documents with the rarest words of the query. Both ways count the same.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from svcd.base.docids import DocIds, union_of
from svcd.base.positions import FIELD_SHIFT
from svcd.query.counted_words import (
    PART_WEIGHT, PREFIX_WEIGHT, SPLIT_WEIGHT, SYNONYM_WEIGHT, TYPO_WEIGHT, CountedWord,
)
from svcd.query.reader import DocumentWords, Reader, WordCounts
from svcd.query.terms import Phrase, Postings
from svcd.ranking.bm25 import Postings as CountedPostings, ScoredWord, Scorer, impacts_of, rarity
from svcd.schema.word_weights import FREQUENCIES, LENGTHS, frequency_code, length_code

MOST_READ = 1000
# Documents whose lengths are averaged where the index does not store them.
_SAMPLE = 2000


class _Set(NamedTuple):
    """Documents in which something occurs that counts as a word; how often is not known, and counts as once."""

    docids: DocIds
    weight: float


class _Derivations(NamedTuple):
    """Everything that counts as a word. words: index word -> weight of an occurrence."""

    words: Mapping[str, float]
    sets: Sequence[_Set]


def scorer_of(reader: Reader, postings: Postings, words: Sequence[CountedWord], docids: DocIds, wanted: int) -> Scorer:
    """Return the scorer of the words of a query. docids: the documents of the filter; wanted: number of hits."""
    stored = reader.word_counts
    # Stored frequencies count all attributes, and typos in all of them.
    if stored is not None and not postings.is_restricted and postings.is_tolerant_throughout:
        return _scorer_of_stored(reader, stored, postings, words, wanted)
    return _ReadCounts(reader, postings, words).scorer(docids, wanted)


def _derivations(word: CountedWord, postings: Postings, lacks_word: bool) -> _Derivations:
    """Return the words that count as this word besides its own. lacks_word: whether the index has none of them."""
    words: dict[str, float] = {}
    sets: list[_Set] = []

    def add(phrases: Iterable[Phrase], weight: float) -> None:
        for phrase in phrases:
            if len(phrase) == 1 and phrase[0] is not None:
                words.setdefault(phrase[0], weight)
            else:
                sets.append(_Set(postings.phrase(phrase), weight))

    if lacks_word:
        corrections, split = word.corrections()
        words.update(dict.fromkeys(corrections, TYPO_WEIGHT))
        if split is not None and not corrections:
            add([split], SPLIT_WEIGHT)
    add(word.synonyms, SYNONYM_WEIGHT)
    for each in word.infix_words():
        words.setdefault(each, PART_WEIGHT)
    if word.prefix is not None:
        sets.append(_Set(postings.original_prefix(word.prefix), PREFIX_WEIGHT))
    return _Derivations(words, sets)


# Stored counts


def _scorer_of_stored(reader: Reader, stored: WordCounts, postings: Postings, words: Sequence[CountedWord],
                      wanted: int) -> Scorer:
    weights, fields = reader.settings.word_weights, reader.terms.indexed_fields()
    documents = len(reader.all_docids())
    scored, missing = [], 0.0
    for word in words:
        terms = [] if word.is_ngram else weights.terms(word.word, fields)
        own = [stored.docids(term) for term in terms]
        found = _derivations(word, postings, not any(own))
        derived = {term: weight for each, weight in found.words.items() for term in weights.terms(each, fields)
                   if term not in terms}
        counted = _joined_postings(
            [CountedPostings(docids, _reading(stored, term)) for term, docids in zip(terms, own)],
            [(CountedPostings(stored.docids(term), _reading(stored, term)), weight) for term, weight in derived.items()],
            found.sets)
        if counted.docids:
            scored.append(ScoredWord(word.word, word.repeats * rarity(documents, len(counted.docids)), counted))
        else:
            missing += word.repeats * rarity(documents, 0)
    impacts = impacts_of(reader.settings.bm25.k1, reader.settings.bm25.b, stored.average_length())
    return Scorer(scored, union_of(word.postings.docids for word in scored), stored.lengths(), impacts, wanted, missing)


def _reading(stored: WordCounts, term: str) -> Callable[[], bytes]:
    return lambda: stored.frequencies(term)


def _joined_postings(own: Sequence[CountedPostings], derived: Sequence[tuple[CountedPostings, float]],
                     sets: Sequence[_Set]) -> CountedPostings:
    """Join the postings of everything that counts as a word.

    A document with the word under several index terms (stems of several languages) has one of the frequencies, the highest;
    derived words add theirs.
    """
    own = [each for each in own if each.docids]
    if len(own) == 1 and not derived and not sets:
        return own[0]
    frequencies: dict[int, float] = {}
    for docids, codes in own:
        for docid, code in zip(docids, codes()):
            frequencies[docid] = max(frequencies.get(docid, 0.0), FREQUENCIES[code])
    added: defaultdict[int, float] = defaultdict(float)
    for (docids, codes), weight in derived:
        for docid, code in zip(docids, codes()):
            added[docid] += weight * FREQUENCIES[code]
    for docids, weight in sets:
        for docid in docids:
            added[docid] += weight
    for docid, frequency in added.items():
        frequencies[docid] = frequencies.get(docid, 0.0) + frequency
    return _postings_of(frequencies)


def _postings_of(frequencies: Mapping[int, float]) -> CountedPostings:
    codes = bytes(map(frequency_code, map(frequencies.__getitem__, sorted(frequencies))))
    return CountedPostings(DocIds(list(frequencies)), lambda: codes)


# Counts of documents that are read


class _ReadCounts:
    """Counts the words of documents from the forward index."""

    def __init__(self, reader: Reader, postings: Postings, words: Sequence[CountedWord]) -> None:
        self._reader = reader
        self._postings = postings
        self._words = words
        self._weights = reader.settings.word_weights

    def scorer(self, candidates: DocIds, wanted: int) -> Scorer:
        """Return the scorer for the best candidates; all others get the rank 0."""
        postings, documents = self._postings, len(self._reader.all_docids())
        found: list[tuple[CountedWord, _Derivations, DocIds, float]] = []
        missing = 0.0
        for word in self._words:
            own = word.same_words
            derivations = _derivations(word, postings, not own)
            docids = union_of([*map(postings.original, own), postings.any_tolerant(list(derivations.words)),
                               *(each.docids for each in derivations.sets)])
            weight = word.repeats * rarity(documents, len(docids))
            if docids:
                found.append((word, derivations, docids, weight))
            else:
                missing += weight
        # A search that wants no hits needs only the documents with any of the words.
        read = self._likely([(docids & candidates, weight) for _, _, docids, weight in found],
                            max(MOST_READ, wanted)) if wanted else []
        frequencies: list[dict[int, float]] = [{} for _ in found]
        lengths: dict[int, int] = {}
        for document in self._reader.terms.document_words(read):
            lengths[document.docid] = length_code(self._length(document))
            for counts, (word, derivations, docids, _) in zip(frequencies, found):
                if document.docid in docids:
                    counts[document.docid] = self._frequency(document, word, derivations)
        scored = [ScoredWord(word.word, weight, _postings_of(counts))
                  for counts, (word, _, _, weight) in zip(frequencies, found)]
        bm25 = self._reader.settings.bm25
        return Scorer(scored, union_of(docids for _, _, docids, _ in found), lengths,
                      impacts_of(bm25.k1, bm25.b, self._average_length()), wanted, missing)

    @staticmethod
    def _likely(sets: Sequence[tuple[DocIds, float]], most: int) -> list[int]:
        """Return the documents with the largest sums of weights, ascending. sets: (documents, weight)."""
        everything = union_of(docids for docids, _ in sets)
        if len(everything) <= most:
            return list(everything)
        sums: defaultdict[int, float] = defaultdict(float)
        for docids, weight in sets:
            for docid in docids:
                sums[docid] += weight
        return sorted(nlargest(most, sums, key=lambda docid: (sums[docid], -docid)))

    def _fields(self, document: DocumentWords) -> list[float]:
        """Return the weights of the fields of a document, 0 for fields that are not searched."""
        return [self._weights.field(name)[0] if self._postings.looks_into(name) else 0.0 for name in document.fields]

    def _length(self, document: DocumentWords) -> float:
        return sum(weight * document.length(number) for number, weight in enumerate(self._fields(document)) if weight)

    def _frequency(self, document: DocumentWords, word: CountedWord, derivations: _Derivations) -> float:
        weights = self._fields(document)

        def rounded(occurrences: Iterable[int]) -> float:
            return FREQUENCIES[frequency_code(sum(weights[each >> FIELD_SHIFT] for each in occurrences))]

        frequency = rounded(document.occurrences_of_any(word.same_words))
        for each, weight in derivations.words.items():
            frequency += weight * rounded(document.occurrences(each))
        return frequency + sum(weight for docids, weight in derivations.sets if document.docid in docids)

    def _average_length(self) -> float:
        reader = self._reader
        key = ("average length", self._weights.key, *(self._postings.fields or ()))

        def average() -> tuple[float]:
            docids = reader.all_docids()
            step = max(len(docids) // _SAMPLE, 1)
            lengths = (self._length(document) for document in reader.terms.document_words(list(docids)[::step]))
            used = [LENGTHS[length_code(length)] for length in lengths if length]
            return (sum(used) / len(used) if used else 1.0,)

        return reader.cached(key, average)[0]
