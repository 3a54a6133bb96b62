"""Which two words of one index stand near each other, and where.

Knows what FTS5 tells of two words, what only the rows of documents tell, and which of both is the quicker one;
refuses to know why it is asked.
"""
from __future__ import annotations

from svcd.bitsets import Packed, from_docids, packed, to_docids, unpacked
from svcd.store import words
from svcd.store.delta import Delta
from svcd.store.keeping import DocIds
from svcd.store.relations import Relations, phrase

# Microseconds. To look at the row of a document tells of all distances, but it is mostly looked at for the first time.
_ROW = 4
# FTS5 goes through the rarer word and seeks in the other one, or through both; once for each distance and order.
_SEEK, _STEP = 0.4, 0.035
# A beginning is put together from all its words each time.
_PREFIX_STEP = 0.25

_NEAR = 3


class Pairs(Relations):
    """Pairs of words in the read transaction of the connection."""

    def pair_docids(self, distance: int, left: str, right: str, candidates: DocIds | None = None) -> DocIds:
        """Documents in which `distance` (1 to 3) is the smallest one from `left` to `right` behind it.

        candidates: the documents for which the answer must be right; others may be missing.
        """
        pair = words.term(left), words.term(right), False
        if candidates is None and distance == 1:
            return self._adjacent(*pair)
        lefts, rights = self.word_docids(left), self.word_docids(right)
        asked = lefts & rights if candidates is None else lefts & rights & candidates
        count = asked.bit_count()
        if not count:
            return 0
        if count * _ROW <= _microseconds(lefts.bit_count(), rights.bit_count()):
            return self._read(distance, *pair, asked)
        if distance == 1:
            return self._adjacent(*pair)
        asked &= self._within(distance, *pair) & ~self._adjacent(*pair)
        return self._read(distance, *pair, asked)

    def prefix_pair_docids(self, distance: int, left: str, prefix: str, candidates: DocIds | None = None) -> DocIds:
        """The union of pair_docids(distance, left, word) over the words that start with the prefix."""
        rights = self.prefix_docids(prefix)
        asked = self.word_docids(left) & rights
        if candidates is not None:
            asked &= candidates
        count = asked.bit_count()
        if not count:
            return 0
        pair = words.term(left), words.term(prefix), True
        if count * _ROW <= rights.bit_count() * _PREFIX_STEP:
            return self._read(distance, *pair, asked)
        if distance == 1:
            return self._adjacent(*pair)
        return self._read(distance, *pair, asked & self._within(distance, *pair))

    # By FTS5, for all documents

    def _adjacent(self, left: str, right: str, is_prefix: bool) -> DocIds:
        return self._set(("adjacent", left, right, is_prefix),
                         lambda: self._matching("terms", phrase(f"{left} {right}", is_prefix)),
                         lambda delta: delta.pair(1, left, right, is_prefix))

    def _within(self, distance: int, left: str, right: str, is_prefix: bool) -> DocIds:
        """Documents with both at most so far apart, in any order."""
        query = f"NEAR({words.quoted(left)} {phrase(right, is_prefix)}, {distance - 1})"
        return self._set(("near", distance, left, right, is_prefix), lambda: self._matching("terms", query),
                         lambda delta: delta.both(left, right, is_prefix))

    # By rows, for the documents asked

    def _read(self, distance: int, left: str, right: str, is_prefix: bool, asked: DocIds) -> DocIds:
        """The documents of a distance among those asked, and among those that were asked before."""
        key = "apart", left, right, is_prefix
        held: tuple[Packed, ...] = self._kept(key, lambda: (0,) * (1 + _NEAR), _carried)
        seen, *found = map(unpacked, held)
        if fresh := asked & ~seen:
            apart: list[list[int]] = [[] for _ in range(_NEAR)]
            for docid, forward in self.forward_rows(to_docids(fresh)):
                for nearest in set(words.distances(forward, left, right, is_prefix)):
                    apart[nearest - 1].append(docid)
            found = [known | from_docids(docids) for known, docids in zip(found, apart)]
            # Put as a whole: two threads may look at once, and what each of both puts is true.
            self._keep(key, tuple(map(packed, (seen | fresh, *found))))
        return found[distance - 1]


def _microseconds(left: int, right: int) -> float:
    """What FTS5 takes to tell where two words of so many documents are together."""
    return min(min(left, right) * _SEEK, (left + right) * _STEP)


def _carried(known: tuple[Packed, ...], delta: Delta) -> tuple[Packed, ...]:
    """What was found in documents that were not written since."""
    return tuple(packed(unpacked(docids) & ~delta.changed) for docids in known)
