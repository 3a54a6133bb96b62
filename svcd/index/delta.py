"""What some newly written documents say of a relation of words: so that sets known before a write need no new reading.

A cached set stays right for every document that was not written since; for those that were, their rows as
they are now are asked. Equal to reading the index again, at the cost of the written documents alone.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from svcd.base.bitmaps import DocIds, from_docids
from svcd.index import fts_encoding

Rows = Mapping[int, Mapping[int, Sequence[str]]]  # docid -> column -> terms by position, "" for a hole
Occurrence = tuple[int, int, int]  # docid, column, position

_NO_DISTANCE = 9
# Of a word in its row and among occurrences, of a document and of each of its fields, of a character of their values.
_WORD_BYTES, _ROW_BYTES, _CHARACTER_BYTES = 200, 600, 4


class Delta:
    """The documents written between two generations of an index.

    written: their docids, those of deleted ones included; rows: the words of those that are there.
    removed_terms: terms that no document holds any more; None when that is not known.
    value_texts: docid -> the text of its values.
    """

    def __init__(self, written: DocIds, rows: Rows, removed_terms: frozenset[str] | None, value_texts: Mapping[int, str]) -> None:
        self.written = written
        self._rows = rows
        self.removed_terms = removed_terms
        self.value_texts = value_texts
        self.values: dict[int, Any] = {}  # what a reader of values made of value_texts, by field

    def __sizeof__(self) -> int:
        """About what it holds once all of it was asked for: caches are limited by it."""
        texts = self.value_texts.values()
        words_held = sum(len(row) for rows in self._rows.values() for row in rows.values())
        fields = sum(text.count(":[") for text in texts)
        return (super().__sizeof__() + _WORD_BYTES * words_held + _ROW_BYTES * (len(self._rows) + fields)
                + _CHARACTER_BYTES * sum(map(len, texts)))

    def updated(self, known: DocIds, fresh: DocIds) -> DocIds:
        """A set known before, with the written documents as they are now."""
        return known & ~self.written | fresh

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

    def _spelled(self, spelled: str, is_prefix: bool) -> Iterable[str]:
        if not is_prefix:
            return (spelled,) if spelled in self._occurrences else ()
        start = bisect_left(self.terms, spelled.encode(), key=str.encode)
        return self._while_prefix(start, spelled)

    def _while_prefix(self, start: int, prefix: str) -> Iterator[str]:
        for term in self.terms[start:]:
            if not term.startswith(prefix):
                return
            yield term

    def _all(self, spelled: str, is_prefix: bool) -> Iterator[Occurrence]:
        for term in self._spelled(spelled, is_prefix):
            yield from self._occurrences[term]

    def term_docids(self, spelled: str, is_prefix: bool = False, column: int | None = None) -> DocIds:
        """Documents with the term (or one that starts so), in one field when a column is given."""
        return from_docids([docid for docid, found, _ in self._all(spelled, is_prefix) if column in (None, found)])

    def any_term_docids(self, several: Iterable[str]) -> DocIds:
        """Documents with one of several terms."""
        return from_docids([docid for spelled in several for docid, _, _ in self._occurrences.get(spelled, ())])

    def position_docids(self, spelled: str, is_prefix: bool, bucket: int) -> DocIds:
        """Documents with the term (or one that starts so) at a bucketed position of any field."""
        return from_docids([docid for docid, _, position in self._all(spelled, is_prefix)
                            if fts_encoding.bucketed_position(position) == bucket])

    def both_docids(self, left: str, right: str, is_prefix: bool) -> DocIds:
        """Documents with both terms, however far apart."""
        return self.term_docids(left) & self.term_docids(right, is_prefix)

    def pair_docids(self, distance: int, left: str, right: str, is_prefix: bool) -> DocIds:
        """Documents in which `distance` is the smallest one from `left` to `right` (or to one term that starts so)."""
        found: DocIds = 0
        for term in self._spelled(right, is_prefix):
            nearest = self._nearest(left, term)
            found |= from_docids([docid for docid, least in nearest.items() if least == distance])
        return found

    def _nearest(self, left: str, right: str) -> dict[int, int]:
        places: dict[tuple[int, int], list[int]] = {}
        for docid, column, position in self._occurrences.get(left, ()):
            places.setdefault((docid, column), []).append(position)
        nearest: dict[int, int] = {}
        for docid, column, position in self._occurrences[right]:
            for before in places.get((docid, column), ()):
                if 0 < position - before < nearest.get(docid, _NO_DISTANCE):
                    nearest[docid] = position - before
        return nearest

    def count_docids(self, column: int, count: int) -> DocIds:
        """Documents whose field holds exactly so many words."""
        return from_docids([docid for docid, rows in self._rows.items()
                            if column in rows and len(rows[column]) - list(rows[column]).count("") == count])

    def updated_words(self, known: Sequence[str], prefix: str) -> Sequence[str] | None:
        """A list of all words with a prefix, known before, as it is now; None when that can't be told."""
        if self.removed_terms is None:
            return None
        held = set(known)
        # What went with one write may have come back with a later one.
        gone = held.intersection(fts_encoding.word_of_term(term) for term in self.removed_terms if term not in self._occurrences)
        fresh = {fts_encoding.word_of_term(term) for term in self._spelled(fts_encoding.term_of_word(prefix), True)} - held
        return sorted((held - gone) | fresh, key=str.encode) if gone or fresh else known
