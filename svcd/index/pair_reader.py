"""Finds which words are near which others: pairs of words, and all pairs of two sides of words.

FTS5 finds two adjacent words in all documents at once; a row of the forward index has all words and distances of one document.
Each set is read from the cheaper of the two and cached: docs/ranking.md#proximity.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, count, islice, pairwise
from typing import Any, NamedTuple

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.index import fts
from svcd.index.fts import SEPARATOR_MARK, fts_phrase, matching_docids
from svcd.index.read_transaction import FORWARD_TEXTS, Delta, rows_by_docid
from svcd.index.term_reader import TermReader

# Costs in microseconds, measured on 36,000 films of 90 words and on a million documents of 20. A row of the forward index gives
# all distances of a pair at once, and of all pairs of two sides.
_ROW_COST, _SCAN_COST = 4, 5
# Only whether two words are adjacent: reading a row, and searching it for a phrase.
_READ_COST, _FIND_COST = 2.5, 0.15
# FTS5 scans the rarer term and seeks in the more frequent one, or scans both: once for each distance. The first seek in a page
# of the index takes longer; a term has _PAGES_OF_DOCUMENT pages per document.
_QUERY_COST, _SEEK_COST, _STEP_COST, _PAGE_COST, _PAGES_OF_DOCUMENT = 35, 0.2, 0.045, 1.2, 0.0025
# FTS5 merges the postings of all terms of a prefix, each time.
_PREFIX_STEP_COST = 0.1
# Reading the documents of a word that are not cached.
_WORD_COST = 50
# Reading a materialized pair; it is looked up only if FTS5 would take longer than _WORTH_A_LOOK.
_STORED_COST, _WORTH_A_LOOK = 40, 200

# Among more documents than this, adjacent words are looked for before words farther apart.
_MANY = 50

# A prefix of at most _FEW_TERMS terms may be looked up term by term; reading their frequencies takes _FREQUENCIES_COST.
_FEW_TERMS, _FREQUENCIES_COST = 100, 1_000

# Left term, right term, whether the right one is a prefix
_Pair = tuple[str, str, bool]


class PairReader(TermReader):
    """The postings of an index in a read transaction, also of pairs of words; a `svcd.query.reader.Terms`."""

    def pair_docids(self, distance: int, left: str, right: str, candidates: DocIds | None = None) -> DocIds:
        """Documents in which `distance` (1 to 3) is the smallest from `left` to a following `right`.

        candidates: the documents for which the set must be right; documents outside may be missing.
        """
        pair = fts.term_of_word(left), fts.term_of_word(right), False
        lefts, rights = self.word_docids(left), self.word_docids(right)
        asked = lefts & rights if candidates is None else lefts & rights & candidates
        count = len(asked)
        if not count:
            return EMPTY
        if count * _ROW_COST <= self._query_cost(distance, pair, len(lefts), len(rights)):
            return self._forward_pair_docids(distance, *pair, asked)
        if distance == 1:
            return self._adjacent(*pair)
        asked = (asked & self._within(distance, *pair)) - self._adjacent(*pair)
        return self._forward_pair_docids(distance, *pair, asked)

    def prefix_pair_docids(self, distance: int, left: str, prefix: str, candidates: DocIds | None = None) -> DocIds:
        """The union of pair_docids(distance, left, word) over the words that start with the prefix."""
        rights = self.prefix_docids(prefix)
        asked = self.word_docids(left) & rights
        if candidates is not None:
            asked &= candidates
        count = len(asked)
        if not count:
            return EMPTY
        pair = fts.term_of_word(left), fts.term_of_word(prefix), True
        if count * _ROW_COST <= self._query_cost(distance, pair, len(self.word_docids(left)), len(rights)):
            return self._forward_pair_docids(distance, *pair, asked)
        if distance == 1:
            return self._adjacent(*pair)
        return self._forward_pair_docids(distance, *pair, asked & self._within(distance, *pair))

    def _adjacent(self, left: str, right: str, is_prefix: bool) -> DocIds:
        """Documents with `right` directly after `left`: the materialized set, or the result of FTS5."""
        def written_members(delta: Delta) -> DocIds:
            return delta.adjacent_docids(left, right, is_prefix)

        def load() -> DocIds:
            docids = self._materialized.adjacent_docids(left, right, is_prefix, written_members)
            phrase = fts_phrase(f"{left} {right}", is_prefix)
            return matching_docids(self._connection, "terms", phrase) if docids is None else docids

        return self._transaction.cached_set(_pair_key(1, (left, right, is_prefix)), load, written_members)

    def _within(self, distance: int, left: str, right: str, is_prefix: bool) -> DocIds:
        """Documents with both terms at most `distance` apart, in any order, found by FTS5; some may be farther apart."""
        query = f"NEAR({fts.fts_string(left)} {fts_phrase(right, is_prefix)}, {distance - 1})"
        return self._transaction.cached_set(
            _pair_key(distance, (left, right, is_prefix)), lambda: matching_docids(self._connection, "terms", query),
            lambda delta: delta.term_docids(left) & delta.term_docids(right, is_prefix))

    def _forward_pair_docids(self, distance: int, left: str, right: str, is_prefix: bool, asked: DocIds) -> DocIds:
        """Documents with a smallest distance, found by the forward index, in `asked` and in documents examined before.

        The cache has for each pair the examined documents, then the documents of distance 1, 2 and 3.
        """
        key = "distances", left, right, is_prefix
        seen, *found = self._transaction.cached(key, lambda: (EMPTY,) * (1 + NEAR), _without_written)
        if fresh := asked - seen:
            by_distance: list[list[int]] = [[] for _ in range(NEAR)]
            for docid, forward in rows_by_docid(self._connection, FORWARD_TEXTS, fresh.to_array()):
                for distance_in in set(fts.distances(forward, left, right, is_prefix)):
                    by_distance[distance_in - 1].append(docid)
            found = [docids | DocIds(more) if more else docids for docids, more in zip(found, by_distance)]
            # Replaced as a whole: two threads may examine documents at once, and the result of either is right.
            self._transaction.replace_cached(key, (seen | fresh, *found))
        return found[distance - 1]

    def near_docids(self, distance: int, lefts: Sequence[str], rights: Sequence[str], prefix: str | None,
                    candidates: DocIds) -> DocIds:
        """Candidates in which `distance` (1 to 3) is the smallest between the sides; some may be nearer.

        Words in the wrong order have a distance one larger. prefix: words that start with it are right words as well, but only
        in the right order.
        """
        if not candidates or not lefts or not (rights or prefix):
            return EMPTY
        sides = Sides.of(lefts, rights, prefix)
        if distance == 1 and len(candidates) > _MANY and sides.find_cost < _SCAN_COST:
            return self._adjacent_sides(sides, candidates)
        seen, *found, _ = self._examined("near", sides, NEAR)  # by distance
        by_fts, fresh = self._near_by_fts(distance, sides, candidates - seen, _SCAN_COST)
        if distance > 1:
            fresh |= by_fts
            by_fts = EMPTY
        if fresh:
            rows = rows_by_docid(self._connection, FORWARD_TEXTS, fresh.to_array())
            # Search for the side with fewer words, or for the rarer one of two words.
            lefts, rights = sides.left_terms, sides.right_terms
            are_rights_rarer = (len(self._docids_of(*rights)) < len(self._docids_of(*lefts))
                                if len(lefts) == len(rights) == 1 else len(rights) < len(lefts))
            more = nearest(rows, lefts, rights, sides.prefix_term, are_rights_rarer)
            found = [docids | DocIds(few) if few else docids for docids, few in zip(found, more)]
            self._transaction.replace_cached(("near", sides.words), (seen | fresh, *found, sides.words))
        near: DocIds = (found[distance - 1] | by_fts) & candidates
        return near

    def _adjacent_sides(self, sides: Sides, candidates: DocIds) -> DocIds:
        """Candidates in which a right word directly follows a left one.

        Mostly enough of many documents have adjacent words, and nobody asks for larger distances.
        """
        seen, found, _ = self._examined("beside", sides, 1)
        by_fts, fresh = self._near_by_fts(1, sides, candidates - seen, sides.find_cost)
        if fresh:
            rows = rows_by_docid(self._connection, FORWARD_TEXTS, fresh.to_array())
            phrases = sides.phrases()
            found |= DocIds([docid for docid, forward in rows if fts.has_any_phrase(forward, phrases)])
            self._transaction.replace_cached(("beside", sides.words), (seen | fresh, found, sides.words))
        adjacent: DocIds = (found | by_fts) & candidates
        return adjacent

    def _examined(self, kind: str, sides: Sides, sets: int) -> tuple[Any, ...]:
        """Return the documents examined for two sides of words, the sets found in them, and the words, whose memory counts."""
        return self._transaction.cached((kind, sides.words), lambda: (*(EMPTY,) * (1 + sets), sides.words),
                                        lambda known, delta: (*_without_written(known[:-1], delta), known[-1]))

    def _near_by_fts(self, distance: int, sides: Sides, candidates: DocIds, row_cost: float) -> tuple[DocIds, DocIds]:
        """Return the candidates in which FTS5 finds two words this near, and the candidates that are quicker to examine.

        At distance 1 the former are exact; else their words may be nearer, or in any order. row_cost: of each examined row.
        """
        terms = (*sides.left_terms, *sides.beside_prefix)
        query_cost = sum(map(self._term_cost, terms)) + min(sides.phrases_count, len(candidates)) * _QUERY_COST
        if len(candidates) * row_cost <= query_cost:
            return EMPTY, candidates
        found: list[DocIds] = []
        examined = EMPTY
        for pair, both, cost in self._pairs(distance, sides, candidates):
            both -= examined
            if len(both) * row_cost <= cost:
                examined |= both
            else:
                found.append(both & (self._adjacent(*pair) if distance == 1 else self._within(distance, *pair)))
        return union_of(found), examined

    def _pairs(self, distance: int, sides: Sides, candidates: DocIds) -> Iterator[tuple[_Pair, DocIds, float]]:
        """Yield (pair, candidates that hold both terms, cost of the query to FTS5) for the pairs that candidates have."""
        prefix = sides.prefix_term
        beside = [(spelled, self._docids_of(spelled)) for spelled in sides.beside_prefix]
        continued = None if prefix is None else self.prefix_docids(fts.word_of_term(prefix))
        for left in sides.left_terms:
            with_left = self._docids_of(left)
            within = candidates & with_left
            if not within:
                continue
            rights = beside
            if prefix is not None and continued is not None and (both := within & continued):
                cost = self._query_cost(distance, (left, prefix, True), len(with_left), len(continued))
                if self._are_words_cheaper(distance, left, prefix, len(with_left), cost):
                    rights = [*beside, *((spelled, self._docids_of(spelled)) for spelled in self._few_terms(prefix))]
                else:
                    yield (left, prefix, True), both, cost
            for right, with_right in rights:
                if both := within & with_right:
                    pair = left, right, False
                    yield pair, both, self._query_cost(distance, pair, len(with_left), len(with_right))

    def _are_words_cheaper(self, distance: int, left: str, prefix: str, count: int, cost: float) -> bool:
        """Return whether asking for each word of a prefix is quicker. cost: of the prefix. count: documents of the left term."""
        return cost > _FREQUENCIES_COST and bool(few := self._few_terms(prefix)) and cost > sum(
            self._query_cost(distance, (left, spelled, False), count, frequency) + self._term_cost(spelled)
            for spelled, frequency in few.items())

    def _few_terms(self, prefix: str) -> Mapping[str, int]:
        """Return the terms that start with a prefix, with their document frequencies; empty if there are too many."""
        def load() -> Mapping[str, int]:
            found = list(islice(self._vocabulary.terms(prefix), _FEW_TERMS))
            return {term: len(self._docids_of(term)) if frequency is None else frequency
                    for term, frequency in found} if len(found) < _FEW_TERMS else {}

        def updated(known: Mapping[str, int], delta: Delta) -> Mapping[str, int] | None:
            """Frequencies, and whether there are few terms, only decide which way is quicker."""
            words = fts.spelled_words(known)
            return known if delta.updated_words(words, fts.word_of_term(prefix)) is words or not known else None

        return self._transaction.cached(("few terms", prefix), load, updated)

    def _query_cost(self, distance: int, pair: _Pair, lefts: int, rights: int) -> float:
        """Microseconds that a pair takes, 0 if it is cached. lefts, rights: number of documents of each term."""
        if self._transaction.cached_value(_pair_key(distance, pair)) is not None:
            return 0
        rarer = min(lefts, rights)
        pages = min(rarer, max(lefts, rights) * _PAGES_OF_DOCUMENT)
        merging = rights * _PREFIX_STEP_COST if pair[2] else 0
        cost = _QUERY_COST + merging + pages * _PAGE_COST + min(rarer * _SEEK_COST, (lefts + rights) * _STEP_COST)
        is_stored = distance == 1 and cost > _WORTH_A_LOOK and self._materialized.has_adjacent(*pair)
        return _STORED_COST if is_stored else cost

    def _term_cost(self, spelled: str) -> float:
        """Microseconds that reading the documents of a term takes."""
        return _WORD_COST if self._transaction.cached_value(("word", spelled, False, None)) is None else 0

    def _docids_of(self, spelled: str) -> DocIds:
        return self.word_docids(fts.word_of_term(spelled))


class Sides(NamedTuple):
    """Two sides of words, as terms.

    beside_prefix: the right terms that do not start with the prefix. words: all of them as one text, which identifies the sides.
    """

    left_terms: tuple[str, ...]
    right_terms: tuple[str, ...]
    prefix_term: str | None
    beside_prefix: Sequence[str]
    words: str

    @classmethod
    def of(cls, lefts: Sequence[str], rights: Sequence[str], prefix: str | None) -> Sides:
        """The sides of `near_docids`."""
        left_terms = tuple(map(fts.term_of_word, lefts))
        right_terms = tuple(map(fts.term_of_word, rights))
        prefix_term = None if prefix is None else fts.term_of_word(prefix)
        beside_prefix = right_terms if prefix_term is None else [
            spelled for spelled in right_terms if not spelled.startswith(prefix_term)]
        return cls(left_terms, right_terms, prefix_term, beside_prefix,
                   "\n".join((" ".join(left_terms), " ".join(right_terms), prefix_term or "")))

    @property
    def phrases_count(self) -> int:
        """The number of phrases."""
        return len(self.left_terms) * (len(self.beside_prefix) + (self.prefix_term is not None))

    @property
    def find_cost(self) -> float:
        """Microseconds to read a row and search it for the phrases."""
        return _READ_COST + self.phrases_count * _FIND_COST

    def phrases(self) -> list[tuple[str, bool]]:
        """The phrases of a left and a right term, and whether the right one is the prefix."""
        rights = [(spelled, False) for spelled in self.beside_prefix]
        if self.prefix_term is not None:
            rights.append((self.prefix_term, True))
        return [(f"{left} {right}", is_prefix) for left in self.left_terms for right, is_prefix in rights]


def _pair_key(distance: int, pair: _Pair) -> tuple[object, ...]:
    """Return the cache key of the documents in which FTS5 found a pair at most `distance` apart."""
    return ("adjacent", *pair) if distance == 1 else ("within", distance, *pair)


def _without_written(known: tuple[DocIds, ...], delta: Delta) -> tuple[DocIds, ...]:
    """Return cached sets without the documents that were written since."""
    return tuple(docids - delta.written for docids in known)


# Terms farther apart than this are not near.
NEAR = 3
FAR = NEAR + 1
# Replaces seven gaps, and the end of a field: terms on both sides are far apart.
_APART = " " * FAR
# Up to this many terms are searched one by one; with more terms, one pass over the text is quicker.
_FEW = 4


def nearest(rows: Iterable[tuple[int, str]], lefts: Collection[str], rights: Collection[str], prefix: str | None = None,
            are_rights_sought: bool = False) -> tuple[list[int], ...]:
    """Return the documents in which a left and a right term are near, by their smallest distance (1 to 3) in one field.

    Terms in the wrong order have a distance one larger. rows: (docid, forward index row). prefix: terms that start with it are
    right terms as well, but only in the right order. are_rights_sought: search for right terms and examine the words beside
    them; it changes only the speed, and is ignored with a prefix.
    """
    distance_in = _side_by_side(frozenset(lefts), frozenset(rights), prefix, are_rights_sought and prefix is None)
    found: tuple[list[int], ...] = tuple([] for _ in range(FAR + 1))
    for docid, forward in rows:
        text = forward.replace(SEPARATOR_MARK, _APART).replace("\n", _APART).replace("\t", _APART)
        found[distance_in(text + _APART)].append(docid)
    return found[1:FAR]


def _side_by_side(lefts: frozenset[str], rights: frozenset[str], prefix: str | None,
                  are_rights_sought: bool) -> Callable[[str], int]:
    """Return a function that finds the smallest distance in a text of terms separated by spaces; FAR when none is near."""
    sought, others = (rights, lefts) if are_rights_sought else (lefts, rights)
    # The least distance to a following term, and to a preceding one.
    after_it, before_it = (2, 1) if are_rights_sought else (1, 2)

    def is_other(spelled: str) -> bool:
        return spelled in others or (prefix is not None and spelled.startswith(prefix))

    def among_all(text: str) -> int:
        terms = text.split(" ")
        least = FAR
        for index in compress(count(), map(sought.__contains__, terms)):
            for distance, spelled in enumerate(terms[index + 1:index + 1 + least - after_it], after_it):
                if is_other(spelled):
                    least = distance
                    break
            for distance in range(before_it, least):
                if terms[index - 1 - distance + before_it] in others:
                    least = distance
                    break
            if least == 1:
                break
        return least

    separators = [(f" {spelled} ", f"{spelled} ") for spelled in sought]
    most_after, most_before = FAR - after_it, FAR - before_it

    def one_by_one(text: str) -> int:
        least = FAR
        for separator, start in separators:
            for before, after in pairwise(text.split(separator)):
                if after.startswith(start):  # the term occurs twice in a row, so split() missed the second occurrence
                    return among_all(text)
                beside = after.split(" ", most_after)[:most_after]
                if prefix is not None or not others.isdisjoint(beside):
                    for distance, spelled in enumerate(beside, after_it):
                        if distance < least and (spelled in others or prefix is not None and spelled.startswith(prefix)):
                            least = distance
                            break
                beside = before.rsplit(" ", most_before)[-most_before:]
                if not others.isdisjoint(beside):
                    for distance, spelled in enumerate(reversed(beside), before_it):
                        if distance < least and spelled in others:
                            least = distance
                            break
                if least == 1:
                    return least
        return least

    # A term on both sides is near to itself, which splitting does not show.
    is_on_both = any(map(is_other, sought))
    return among_all if len(sought) > _FEW or is_on_both else one_by_one
