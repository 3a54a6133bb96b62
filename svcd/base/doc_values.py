"""Doc values: the values of one field by document, each as its ordinal among all values of the field.

A set per value tells which documents have the value. Doc values tell which values a document has: the values of a million
documents take some hundredths of a second, where a million sets or rows would take minutes. This module calls an ordinal a rank.
"""
from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress, islice, repeat
from math import copysign
from operator import sub
from typing import Any

from svcd.base.docids import DocIds, membership_bytes

Counts = Mapping[int, int] | Sequence[int]

# A set with more than 1 of _DENSE documents is read from end to end: 20 ns per docid, instead of 300 ns per member.
_DENSE = 16
# With more than _THIN values per document the counts are a dictionary: an array would be mostly zeros.
_THIN = 8


class DocValues:
    """The values of one kind (numbers, texts) of a field. Callers ask only for documents with at least one of them.

    size: the number of distinct values. samples: rank -> the smallest docid that has the value.
    """

    __slots__ = ("size", "samples", "_ranks", "_starts")

    def __init__(self, docids: Sequence[int], counts: Sequence[int]) -> None:
        """docids: the documents of the smallest value, ascending, then those with the next value, and so on. counts: the number
        of documents of each value."""
        self.size = len(counts)
        starts = accumulate(counts, initial=0)
        self.samples = array("I", (docids[start] for start, _ in zip(starts, counts)))
        documents = 1 + max(docids, default=-1)
        ranks = chain.from_iterable(map(repeat, range(self.size), counts))
        self._starts: array[int] | None = None
        has_value = bytearray(documents)
        for docid in docids:
            has_value[docid] = 1
        if has_value.count(1) == len(docids):
            self._ranks = _zeros(_typecode(self.size), documents)
            for docid, rank in zip(docids, ranks):
                self._ranks[docid] = rank
            return
        sizes = _zeros("I", documents)
        for docid in docids:
            sizes[docid] += 1
        self._starts = array("I", accumulate(sizes, initial=0))
        ends = self._starts[:-1]
        self._ranks = _zeros(_typecode(self.size), len(docids))
        for docid, rank in zip(docids, ranks):
            self._ranks[ends[docid]] = rank
            ends[docid] += 1

    def __sizeof__(self) -> int:
        """Return the size in bytes with all arrays, for caches."""
        arrays = (self.samples, self._ranks, self._starts or ())
        return super().__sizeof__() + sum(each.__sizeof__() for each in arrays)

    @property
    def is_single(self) -> bool:
        """Return whether no document has more than one value."""
        return self._starts is None

    def ranks_of(self, docid: int) -> Sequence[int]:
        """Return the ranks of the values of one document, ascending."""
        if self._starts is None:
            return self._ranks[docid:docid + 1]
        return self._ranks[self._starts[docid]:self._starts[docid + 1]]

    def value(self, rank: int, values_of: Callable[[int], Iterable[Any]]) -> Any:
        """Return the value of a rank. values_of: docid -> the values of this kind that the document has, in any order."""
        docid = self.samples[rank]
        return sorted(values_of(docid), key=value_order)[self.ranks_of(docid).index(rank)]

    def pairs(self, docids: DocIds) -> Iterator[tuple[int, int]]:
        """Yield (docid, rank) for each value of each document of a set, by docid, then by rank."""
        if self._starts is None:
            return zip(docids.to_array(), self._all_ranks(docids))
        return ((docid, rank) for docid in docids.to_array() for rank in self.ranks_of(docid))

    def _all_ranks(self, docids: DocIds) -> Iterator[int]:
        """Yield the ranks of all documents of a set, document by document."""
        starts = self._starts
        if not docids or len(docids) * _DENSE <= docids.max():
            listed = docids.to_array()
            return chain.from_iterable(map(self.ranks_of, listed)) if starts else map(self._ranks.__getitem__, listed)
        wanted: Iterable[int] = membership_bytes(docids)
        if starts:
            wanted = chain.from_iterable(map(repeat, wanted, map(sub, islice(starts, 1, None), starts)))
        return compress(self._ranks, wanted)

    def sharing(self, values: bytearray, docids: DocIds) -> DocIds:
        """Return the documents of a set that have at least one of some values. values: 1 at the rank of each of these values."""
        if self._starts is None:
            return DocIds(array("I", compress(docids.to_array(), map(values.__getitem__, self._all_ranks(docids)))))
        return DocIds(array("I", (docid for docid, rank in self.pairs(docids) if values[rank])))

    def first_of_each(self, docids: DocIds, values: bytearray) -> DocIds:
        """Return the first documents of a set, by docid, such that no two share a value.

        values: 1 at the rank of each value that no document of the result may have; the method adds the values of the result.
        """
        taken = array("I")
        if self._starts is None:
            for docid, rank in self.pairs(docids):
                if not values[rank]:
                    values[rank] = 1
                    taken.append(docid)
            return DocIds(taken)
        for docid in docids.to_array():
            ranks = self.ranks_of(docid)
            if not any(map(values.__getitem__, ranks)):
                taken.append(docid)
                for rank in ranks:
                    values[rank] = 1
        return DocIds(taken)

    def counts(self, docids: DocIds) -> Counts:
        """Count the documents of a set by the rank of their values; a mapping contains no zeros."""
        if len(docids) * _THIN < self.size:
            return Counter(self._all_ranks(docids))
        counts = _zeros("I", self.size)
        for rank in self._all_ranks(docids):
            counts[rank] += 1
        return counts


def value_order(value: Any) -> Any:
    """Return the sort key of a value; -0.0 and 0.0 are two values, in this order."""
    return value if isinstance(value, str) else (value, copysign(1, value))


def _typecode(size: int) -> str:
    return "B" if size <= 1 << 8 else "H" if size <= 1 << 16 else "I"


def _zeros(typecode: str, size: int) -> array[int]:
    return array(typecode, [0]) * size
