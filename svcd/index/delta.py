"""The documents written between two generations of an index: cached sets are brought up to date without reading them again.

A cached set stays right for every document that was not written since. For written documents, a delta decides from their
current words and values whether they belong to the set: docs/storage.md#delta-and-cache.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

from svcd.base.docids import DocIds
from svcd.index import fts_encoding
from svcd.text.term_positions import bucketed_position

Rows = Mapping[int, Mapping[int, Sequence[str]]]  # docid -> FTS column -> terms by position, "" for a position gap
Occurrence = tuple[int, int, int]  # docid, column, position

_NO_DISTANCE = 9
# Bytes of memory of a word (in its row and among the occurrences), of a document or one of its fields, of a character of values.
_WORD_BYTES, _ROW_BYTES, _CHARACTER_BYTES = 200, 600, 4


class Delta:
    """Written documents and their current content.

    written: their docids, including deleted documents. rows: the words of the existing ones. removed_terms: terms that no
    document held any more after one of the writes; None when unknown. value_texts: docid -> its row of document_values.
    """

    def __init__(self, written: DocIds, rows: Rows, removed_terms: frozenset[str] | None, value_texts: Mapping[int, str]) -> None:
        self.written = written
        self._rows = rows
        self.removed_terms = removed_terms
        self.value_texts = value_texts
        self.values: dict[int, Any] = {}  # by field number: the values that ValueReader has decoded from value_texts

    def __sizeof__(self) -> int:
        """Estimate the memory of the delta once everything in it is decoded; the cache is limited by it."""
        texts = self.value_texts.values()
        words_held = sum(len(row) for rows in self._rows.values() for row in rows.values())
        fields = sum(text.count(":[") for text in texts)
        return (super().__sizeof__() + _WORD_BYTES * words_held + _ROW_BYTES * (len(self._rows) + fields)
                + _CHARACTER_BYTES * sum(map(len, texts)))

    def updated(self, known: DocIds, fresh: DocIds) -> DocIds:
        """Bring a set of an older generation up to date. fresh: the written documents that now belong to it."""
        return (known - self.written) | fresh

    @cached_property
    def _occurrences(self) -> dict[str, list[Occurrence]]:
        found: dict[str, list[Occurrence]] = {}
        for docid, rows in self._rows.items():
            for column, row in rows.items():
                for position, spelled in enumerate(row):
                    if spelled:
                        found.setdefault(spelled, []).append((docid, column, position))
        return found

    @cached_property
    def terms(self) -> list[str]:
        """The terms of the written documents, in byte order."""
        return sorted(self._occurrences, key=str.encode)

    def _terms_matching(self, term: str, is_prefix: bool) -> Iterable[str]:
        if not is_prefix:
            return (term,) if term in self._occurrences else ()
        start = bisect_left(self.terms, term.encode(), key=str.encode)
        return takewhile(lambda each: each.startswith(term), self.terms[start:])

    def _occurrences_of(self, term: str, is_prefix: bool) -> Iterator[Occurrence]:
        for each in self._terms_matching(term, is_prefix):
            yield from self._occurrences[each]

    def term_docids(self, term: str, is_prefix: bool = False, column: int | None = None) -> DocIds:
        """Documents with the term (or any term that starts with it), in any field or in one FTS column."""
        return DocIds([docid for docid, found, _ in self._occurrences_of(term, is_prefix) if column in (None, found)])

    def any_term_docids(self, terms: Iterable[str]) -> DocIds:
        """Documents with any of several terms."""
        return DocIds([docid for term in terms for docid, _, _ in self._occurrences.get(term, ())])

    def position_docids(self, term: str, is_prefix: bool, bucket: int) -> DocIds:
        """Documents with the term (or any term that starts with it) at a bucketed position of any field."""
        return DocIds([docid for docid, _, position in self._occurrences_of(term, is_prefix)
                       if bucketed_position(position) == bucket])

    def both_docids(self, left: str, right: str, is_prefix: bool) -> DocIds:
        """Documents with both terms, however far apart."""
        return self.term_docids(left) & self.term_docids(right, is_prefix)

    def pair_docids(self, distance: int, left: str, right: str, is_prefix: bool) -> DocIds:
        """Documents in which `distance` is the smallest from `left` to a following `right` (or a term that starts with it)."""
        positions: dict[tuple[int, int], list[int]] = {}
        for docid, column, position in self._occurrences.get(left, ()):
            positions.setdefault((docid, column), []).append(position)
        found: list[int] = []
        for term in self._terms_matching(right, is_prefix):
            nearest: dict[int, int] = {}
            for docid, column, position in self._occurrences[term]:
                for before in positions.get((docid, column), ()):
                    if 0 < position - before < nearest.get(docid, _NO_DISTANCE):
                        nearest[docid] = position - before
            found += [docid for docid, least in nearest.items() if least == distance]
        return DocIds(found)

    def count_docids(self, column: int, count: int) -> DocIds:
        """Documents whose field holds exactly `count` words."""
        return DocIds([docid for docid, rows in self._rows.items()
                       if column in rows and len(rows[column]) - list(rows[column]).count("") == count])

    def updated_words(self, known: Sequence[str], prefix: str) -> Sequence[str] | None:
        """Bring the list of all words with a prefix up to date; None when it is unknown which terms were removed."""
        if self.removed_terms is None:
            return None
        words = set(known)
        # A later write may have brought back a term that an earlier one removed.
        removed = words.intersection(
            fts_encoding.word_of_term(term) for term in self.removed_terms if term not in self._occurrences)
        fresh = {fts_encoding.word_of_term(term) for term in self._terms_matching(
            fts_encoding.term_of_word(prefix), True)} - words
        return sorted((words - removed) | fresh, key=str.encode) if removed or fresh else known
