"""Which two terms stand side by side in many documents: the part of the materialized postings that FTS5 takes longest for.

FTS5 finds "of the" in 0.04 s among a million documents, and "the f" of someone who types in 0.2 s. The pairs of a common term and
a term or a short prefix after it are found in a sample of the documents, and their documents in one walk through the forward
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
# Pairs are looked for in about so many documents; those met but once in a portion of them are forgotten.
_SAMPLE, _PORTION = 4_096, 2_048
# A pair is kept if so many documents have it, or this share of all if that is more. Terms are the first one of a pair, and have
# sets of all pairs with each other, from such a share on.
LEAST, _SHARE = 256, 1024
LEFT_SHARE, COMPLETE_SHARE = 128, 64
_KIND = "adjacent"


class ChosenPairs(NamedTuple):
    """Which pairs have sets.

    keys: of the pairs that were found to be common. complete: terms so common that all pairs of two of them have one; a pair
    without has no document.
    """

    keys: Sequence[str] = ()
    complete: Collection[str] = ()


def pairs_in(forward: str) -> Iterator[tuple[str, str]]:
    """Two terms side by side in a field, of a row of the forward index; "" stands for position gaps."""
    for line in forward.split("\n"):
        yield from pairwise(line.partition("\t")[2].replace(SEPARATOR_MARK, "  ").split(" "))


def pair_keys(left: str, right: str) -> list[str]:
    """The keys of the sets that a document belongs to in which the right term follows the left one."""
    pair = f"{left} {right}"
    start = len(left) + 2
    return [materialized_key(_KIND, pair, False),
            *(materialized_key(_KIND, pair[:end], True) for end in range(start, min(start + LONGEST_PREFIX, len(pair) + 1)))]


def common_pairs(rows: Iterable[str], lefts: Collection[str], step: int, documents: int) -> list[str]:
    """The keys of the pairs of many documents.

    rows: of the forward index, one of `step` documents. lefts: the terms that may be the first one. documents: how many there
    are in all.
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
    """Of so many documents one is looked at to find pairs."""
    return max(1, documents // _SAMPLE)


def adjacent_docids(rows: Iterable[tuple[int, str]], chosen: ChosenPairs) -> dict[str, DocIds]:
    """Key -> those of some documents in which the pair stands side by side. rows: (docid, forward index row)."""
    found: defaultdict[str, array[int]] = defaultdict(lambda: array("I"))
    # By left term: what is found for each right term, and for each prefix of right terms.
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
