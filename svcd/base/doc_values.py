"""The values of one field, document by document: each value as its rank among all of them.

A set per value answers who has it. What the documents of a large set have is quicker read here: a million of them
in some hundredths of a second, where a million sets, or a million rows, would take minutes. Knows ranks and docids;
refuses to know where values are kept.
"""
from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress, islice, repeat
from math import copysign
from operator import sub
from typing import Any

from svcd.base.bitmaps import DocIds, from_docids, membership_bytes, to_docids

Counts = Mapping[int, int] | Sequence[int]

# Sets with more than one document in so many are read from end to end: 20 ns a docid, beside 300 ns for each one found.
_DENSE = 16
# Counts of so few values, among all of them, stand in a dictionary: an array would be mostly zeros.
_THIN = 8


class DocValues:
    """Of one kind of values. Documents asked about have at least one of them; ranks of one document ascend.

    size: how many values there are. samples: rank -> the smallest docid that has the value.
    """

    __slots__ = ("size", "samples", "_ranks", "_starts")

    def __init__(self, docids: Sequence[int], counts: Sequence[int]) -> None:
        """docids: those of the smallest value ascending, then those of the next. counts: how many each value has."""
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
        else:
            self._fill_several(docids, ranks, documents)

    def _fill_several(self, docids: Sequence[int], ranks: Iterable[int], documents: int) -> None:
        sizes = _zeros("I", documents)
        for docid in docids:
            sizes[docid] += 1
        self._starts = array("I", accumulate(sizes, initial=0))
        ends = self._starts[:-1]
        held = self._ranks = _zeros(_typecode(self.size), len(docids))
        for docid, rank in zip(docids, ranks):
            held[ends[docid]] = rank
            ends[docid] += 1

    def __sizeof__(self) -> int:
        """With all it holds: caches are limited by it."""
        arrays = (self.samples, self._ranks, self._starts or ())
        return super().__sizeof__() + sum(each.__sizeof__() for each in arrays)

    @property
    def is_single(self) -> bool:
        """Has no document several values?"""
        return self._starts is None

    def ranks_of(self, docid: int) -> Sequence[int]:
        """The ranks of one document."""
        if self._starts is None:
            return self._ranks[docid:docid + 1]
        return self._ranks[self._starts[docid]:self._starts[docid + 1]]

    def value(self, rank: int, values_of: Callable[[int], Iterable[Any]]) -> Any:
        """The value of a rank. values_of: docid -> the values of this kind that the document has, in any order."""
        docid = self.samples[rank]
        return sorted(values_of(docid), key=value_order)[self.ranks_of(docid).index(rank)]

    def pairs(self, docids: DocIds) -> Iterator[tuple[int, int]]:
        """(docid, rank) of each value of each document of a set, by docid; ranks of one ascend."""
        if self._starts is None:
            return zip(_listed(docids), self._all_ranks(docids))
        return ((docid, rank) for docid in to_docids(docids) for rank in self.ranks_of(docid))

    def _all_ranks(self, docids: DocIds) -> Iterator[int]:
        """The ranks of all documents of a set, one document behind the other."""
        starts = self._starts
        if not _is_dense(docids):
            listed = to_docids(docids)
            return chain.from_iterable(map(self.ranks_of, listed)) if starts else map(self._ranks.__getitem__, listed)
        wanted: Iterable[int] = membership_bytes(docids)
        if starts:
            wanted = chain.from_iterable(map(repeat, wanted, map(sub, islice(starts, 1, None), starts)))
        return compress(self._ranks, wanted)

    def sharing(self, values: bytearray, docids: DocIds) -> DocIds:
        """Those of a set of documents that have one of some values. values: rank -> 1 for each of them."""
        if self._starts is None:
            return from_docids(array("I", compress(_listed(docids), map(values.__getitem__, self._all_ranks(docids)))))
        return from_docids(array("I", (docid for docid, rank in self.pairs(docids) if values[rank])))

    def first_of_each(self, docids: DocIds, values: bytearray) -> DocIds:
        """Walk documents by docid, and take each that shares no value with one taken before.

        values: rank -> 1 for each value that is taken already; the others are added.
        """
        taken = array("I")
        if self._starts is None:
            for docid, rank in self.pairs(docids):
                if not values[rank]:
                    values[rank] = 1
                    taken.append(docid)
            return from_docids(taken)
        for docid in to_docids(docids):
            ranks = self.ranks_of(docid)
            if not any(map(values.__getitem__, ranks)):
                taken.append(docid)
                for rank in ranks:
                    values[rank] = 1
        return from_docids(taken)

    def counts(self, docids: DocIds) -> Counts:
        """rank -> how many documents of a set have the value; a mapping leaves out what none has."""
        if docids.bit_count() * _THIN < self.size:
            return Counter(self._all_ranks(docids))
        counts = _zeros("I", self.size)
        for rank in self._all_ranks(docids):
            counts[rank] += 1
        return counts


def value_order(value: Any) -> Any:
    """By this values of one kind ascend, and equal ones are one: -0.0 stands before 0.0."""
    return value if isinstance(value, str) else (value, copysign(1, value))


def _typecode(size: int) -> str:
    return "B" if size <= 1 << 8 else "H" if size <= 1 << 16 else "I"


def _zeros(typecode: str, size: int) -> array[int]:
    return array(typecode, [0]) * size


def _is_dense(docids: DocIds) -> bool:
    return docids.bit_count() * _DENSE > docids.bit_length()


def _listed(docids: DocIds) -> Iterable[int]:
    return compress(range(docids.bit_length()), membership_bytes(docids)) if _is_dense(docids) else to_docids(docids)
