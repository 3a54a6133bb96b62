"""Chooses the pairs of adjacent terms that get materialized sets: the queries that take FTS5 longest.

FTS5 finds "of the" in 0.04 s among a million documents, and "the f" of someone who types in 0.2 s. The pairs of a common term and
a term or a short prefix after it are found in a sample of the documents, and their documents in one pass over the forward
index. See docs/storage.md#materialized-postings.
"""
from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from svcd.base.docids import DocIds
from svcd.index.fts_encoding import SEPARATOR_MARK
from svcd.index.materialized_reader import materialized_key

LONGEST_PREFIX = 4
# Pairs are counted in a sample of about _SAMPLE documents; pairs that occur only once in _PORTION documents are dropped.
_SAMPLE, _PORTION = 4_096, 2_048
# A pair is chosen if at least LEAST documents have it, and 1 / _SHARE of all. From 1 / LEFT_SHARE of the documents on a term may
# be the first of a pair; from 1 / COMPLETE_SHARE on it has the sets of all pairs with other such terms.
LEAST, _SHARE = 256, 1024
LEFT_SHARE, COMPLETE_SHARE = 128, 64
_KIND = "adjacent"


class ChosenPairs(NamedTuple):
    """The pairs that have sets.

    keys: of the pairs that were found to be common. complete: terms so common that every pair of two of them has a set, unless
    no document has the pair.
    """

    keys: Sequence[str] = ()
    complete: Collection[str] = ()


def pairs_in(forward: str) -> Iterator[tuple[str, str]]:
    """Yield two adjacent terms of a field, for a row of the forward index; "" for a position gap."""
    for line in forward.split("\n"):
        yield from pairwise(line.partition("\t")[2].replace(SEPARATOR_MARK, "  ").split(" "))


def pair_keys(left: str, right: str) -> list[str]:
    """Return the keys of the sets that have a document in which `right` follows `left`."""
    pair = f"{left} {right}"
    start = len(left) + 2
    return [materialized_key(_KIND, pair, False),
            *(materialized_key(_KIND, pair[:end], True) for end in range(start, min(start + LONGEST_PREFIX, len(pair) + 1)))]


def common_pairs(rows: Iterable[str], lefts: Collection[str], step: int, documents: int) -> list[str]:
    """Return the keys of the common pairs.

    rows: of the forward index, one row per `step` documents. lefts: the terms that may be the first of a pair. documents: total
    number.
    """
    counts: Counter[str] = Counter()
    for number, forward in enumerate(rows, 1):
        pairs = {pair for pair in pairs_in(forward) if pair[0] in lefts and pair[1]}
        counts.update({key for pair in pairs for key in pair_keys(*pair)})
        if number % _PORTION == 0:
            counts = Counter({key: count for key, count in counts.items() if count > 1})
    least = max(LEAST, documents // _SHARE) / step
    return sorted(key for key, count in counts.items() if count >= least)


def sample_step(documents: int) -> int:
    """Return the step of the sample: one of `step` documents is examined for pairs."""
    return max(1, documents // _SAMPLE)


def adjacent_docids(rows: Iterable[tuple[int, str]], chosen: ChosenPairs) -> dict[str, DocIds]:
    """Return key -> the documents in which the pair is adjacent. rows: (docid, forward index row) of the documents to examine."""
    found: defaultdict[str, array[int]] = defaultdict(lambda: array("I"))
    # By left term: the found documents by right term, and by prefix of right terms.
    after: dict[str, tuple[dict[str, array[int]], dict[str, array[int]]]] = {left: ({}, {}) for left in chosen.complete}
    for key in chosen.keys:
        letter, _, pair = key.partition(":")
        left, _, right = pair.partition(" ")
        after.setdefault(left, ({}, {}))["*" in letter][right] = found[key]
    complete = chosen.complete
    for docid, forward in rows:
        for left, right in pairs_in(forward):
            if right and left in after:
                terms, prefixes = after[left]
                if right not in terms and right in complete and left in complete:
                    terms[right] = found[materialized_key(_KIND, f"{left} {right}", False)]
                if right in terms:
                    terms[right].append(docid)
                for length in range(1, min(LONGEST_PREFIX, len(right)) + 1) if prefixes else ():
                    prefix = right[:length]
                    if prefix in prefixes:
                        prefixes[prefix].append(docid)
    return {key: DocIds(docids) for key, docids in found.items() if docids}
