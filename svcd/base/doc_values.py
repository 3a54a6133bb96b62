"""The values of one field by document (doc values): each value as its ordinal among all values of the field.

A set per value answers which documents have it. What the documents of a large set have is faster to read here: a million of
them in some hundredths of a second, where a million sets or rows would take minutes. An ordinal is called rank.
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

# With more than one document in so many, ranks are read from end to end: 20 ns per docid, instead of 300 ns per member.
_DENSE = 16
# With fewer documents than one for so many values, counts are a dictionary: an array would be mostly zeros.
_THIN = 8


class DocValues:
    """The values of one kind (numbers, texts) of a field. Documents that are asked for have at least one of them.

    size: the number of distinct values. samples: rank -> the smallest docid that has the value.
    """

    __slots__ = ("size", "samples", "_ranks", "_starts")

    def __init__(self, docids: Sequence[int], counts: Sequence[int]) -> None:
        """docids: those of the smallest value, ascending, then those of the next one. counts: the number of them by value."""
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
        """Bytes with all arrays, for caches."""
        arrays = (self.samples, self._ranks, self._starts or ())
        return super().__sizeof__() + sum(each.__sizeof__() for each in arrays)

    @property
    def is_single(self) -> bool:
        """True when no document has more than one value."""
        return self._starts is None

    def ranks_of(self, docid: int) -> Sequence[int]:
        """The ranks of the values of one document, ascending."""
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
            return zip(docids.to_array(), self._all_ranks(docids))
        return ((docid, rank) for docid in docids.to_array() for rank in self.ranks_of(docid))

    def _all_ranks(self, docids: DocIds) -> Iterator[int]:
        """The ranks of all documents of a set, document by document."""
        starts = self._starts
        if not _is_dense(docids):
            listed = docids.to_array()
            return chain.from_iterable(map(self.ranks_of, listed)) if starts else map(self._ranks.__getitem__, listed)
        wanted: Iterable[int] = membership_bytes(docids)
        if starts:
            wanted = chain.from_iterable(map(repeat, wanted, map(sub, islice(starts, 1, None), starts)))
        return compress(self._ranks, wanted)

    def sharing(self, values: bytearray, docids: DocIds) -> DocIds:
        """The documents of a set that have at least one of some values. values: 1 at the rank of each of them."""
        if self._starts is None:
            return DocIds(array("I", compress(docids.to_array(), map(values.__getitem__, self._all_ranks(docids)))))
        return DocIds(array("I", (docid for docid, rank in self.pairs(docids) if values[rank])))

    def first_of_each(self, docids: DocIds, values: bytearray) -> DocIds:
        """The documents of a set, by docid, that share no value with one taken before them.

        values: 1 at the rank of each value that is taken already; those of the result are added to it.
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
        """rank -> the number of documents of a set with this value; if it is a mapping, without zeros."""
        if len(docids) * _THIN < self.size:
            return Counter(self._all_ranks(docids))
        counts = _zeros("I", self.size)
        for rank in self._all_ranks(docids):
            counts[rank] += 1
        return counts


def value_order(value: Any) -> Any:
    """The sort key of values of one kind; -0.0 and 0.0 are two values, in this order."""
    return value if isinstance(value, str) else (value, copysign(1, value))


def _typecode(size: int) -> str:
    return "B" if size <= 1 << 8 else "H" if size <= 1 << 16 else "I"


def _zeros(typecode: str, size: int) -> array[int]:
    return array(typecode, [0]) * size


def _is_dense(docids: DocIds) -> bool:
    return bool(docids) and len(docids) * _DENSE > docids.max()
