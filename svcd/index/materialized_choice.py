"""Chooses which terms, prefixes and pairs of terms get materialized sets, from the vocabulary and a sample of the documents.

Each word of a document belongs to one *group*: its term if that is common, else the longest of its prefixes that may be common.
So a term has the documents of its group, and the documents of a prefix are the union of the groups that begin with it.
In the same way a common term and the term after it form a group of a pair: FTS5 finds "of the" in 0.04 s among a million
documents, and "the f" of someone who types in 0.2 s. svcd.index.materialized_groups gathers groups from the documents and joins
them family by family: the groups of one family share no prefix with the groups of another, single letters aside.
See docs/storage.md#materialized-postings.
"""
from __future__ import annotations

import json
import sqlite3
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from svcd.base.docids import DocIds
from svcd.index import fts
from svcd.index.fts import SEPARATOR_MARK
from svcd.index.materialized_reader import materialized_key

_LONGEST_IN_PAIR = 4
# Pairs are counted in a sample of about _SAMPLE documents; pairs that occur only once in _PORTION documents are dropped.
_SAMPLE, _PORTION = 4_096, 2_048
# A pair is chosen if at least LEAST documents have it, and 1 / _SHARE of all. From 1 / LEFT_SHARE of the documents on a term may
# be the first of a pair; from 1 / COMPLETE_SHARE on it has the sets of all pairs with other such terms.
_LEAST_OF_PAIR, _SHARE = 256, 1024
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
            *(materialized_key(_KIND, pair[:end], True) for end in range(start, min(start + _LONGEST_IN_PAIR, len(pair) + 1)))]


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
    least = max(_LEAST_OF_PAIR, documents // _SHARE) / step
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
                for length in range(1, min(_LONGEST_IN_PAIR, len(right)) + 1) if prefixes else ():
                    prefix = right[:length]
                    if prefix in prefixes:
                        prefixes[prefix].append(docid)
    return {key: DocIds(docids) for key, docids in found.items() if docids}


# Longer prefixes are chosen only if they have more words than a reader looks up one by one.
_SHORT_PREFIX = 4
_MANY_WORDS = 100
_LONGEST_PREFIX = 6
# Letters with sets by position; their sets by field are in the table of prefix postings.
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
# The portions in which the vocabulary is read: (first term, term after the last).
RANGES = tuple(pairwise(("", *LETTERS[:10], ":", *LETTERS[10:], "{", "\U0010ffff")))
# A family of terms holds at least 1 / _FAMILIES of all words.
_FAMILIES = 64
# A group is named by its term, or by its prefix and REST, which no term contains. A group of a pair is named by the left term, a
# space, and the name for the right term.
REST = " "

Node = tuple[str, bool]  # a term, a prefix or a pair, and whether it is a prefix


@dataclass
class Choice:
    """The chosen sets.

    terms: term -> number of documents, for common terms and for terms that may be the first of a pair. prefixes: prefix -> number
    of occurrences, which is at least its number of documents; without single letters.
    """

    terms: dict[str, int] = field(default_factory=dict)
    prefixes: dict[str, int] = field(default_factory=dict)
    pairs: ChosenPairs = field(default_factory=ChosenPairs)

    @classmethod
    def parse(cls, text: str) -> Choice:
        """Decode as_json()."""
        stored = json.loads(text)
        return cls(stored["terms"], stored["prefixes"], ChosenPairs(*stored["pairs"]))

    def as_json(self) -> str:
        """Encode the choice, to be stored during a build."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @cached_property
    def families(self) -> Families:
        """The groups in families."""
        return Families(self)

    def group(self, term: str, least: int) -> str | None:
        """Return the group of a term; None if no set has the term. least: number of documents from which a term is common."""
        if self.terms.get(term, -1) >= least:
            return term
        plain = plain_start(term)
        for size in range(len(plain), 1, -1):
            if plain[:size] in self.prefixes:
                return plain[:size] + REST
        return plain[0] + REST if plain and plain[0] in LETTERS else None

    def nodes(self, group: str) -> Iterator[Node]:
        """Yield the sets that the documents of a group belong to, without single letters."""
        if not group.endswith(REST):
            yield group, False
        plain = plain_start(group.rstrip(REST))
        for size in range(2, len(plain) + 1):
            if plain[:size] in self.prefixes:
                yield plain[:size], True


def plain_start(term: str) -> str:
    """Return the characters of a term that a chosen prefix may have; an escape must not be cut."""
    return term.partition("~")[0][:_LONGEST_PREFIX]


class PairGroups:
    """The groups of the pairs with a certain left term."""

    def __init__(self, left: str, terms: set[str], prefixes: set[str], complete: frozenset[str]) -> None:
        self.left = left
        self._terms, self._prefixes, self._complete = terms, prefixes, complete

    def group(self, right: str) -> str | None:
        """Return the group of the pair with a right term; None if no set has the pair."""
        if right in self._terms or right in self._complete:
            return f"{self.left} {right}"
        for size in range(min(len(right), _LONGEST_IN_PAIR), 0, -1):
            if right[:size] in self._prefixes:
                return f"{self.left} {right[:size]}{REST}"
        return None

    def nodes(self, group: str) -> Iterator[Node]:
        """Yield the sets that the documents of a group belong to."""
        start = len(self.left) + 1
        right = group[start:].rstrip(REST)
        if not group.endswith(REST):
            yield group, False
        for size in range(1, min(len(right), _LONGEST_IN_PAIR) + 1):
            if right[:size] in self._prefixes:
                yield group[:start + size], True


class Families:
    """The families of groups, the most needed first: single letters, then pairs by their left term, then terms.

    Without pairs most searches of several words are slow, and all pairs take a tenth of the time of the terms.
    pairs: left term -> its groups. first_of_terms: the number of the first family of terms.
    """

    LETTERS = 0

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        # For each family of terms, the two characters with which its first group begins.
        self._starts = [""]
        least = sum(weight for prefix, weight in choice.prefixes.items() if len(prefix) == 2) // _FAMILIES
        gathered = 0
        for start in sorted({name[:2] for name in (*choice.terms, *choice.prefixes)}):
            if gathered > least:
                self._starts.append(start)
                gathered = 0
            gathered += choice.prefixes.get(start, 0)
        weights = [0] * len(self._starts)
        for prefix, weight in choice.prefixes.items():
            if len(prefix) == 2:
                weights[self._start_of(prefix)] += weight
        ordered = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)
        terms: defaultdict[str, set[str]] = defaultdict(set)
        prefixes: defaultdict[str, set[str]] = defaultdict(set)
        for key in choice.pairs.keys:
            kind, _, pair = key.partition(":")
            left, _, right = pair.partition(" ")
            (prefixes if "*" in kind else terms)[left].add(right)
        complete = frozenset(choice.pairs.complete)
        self.pairs = {left: PairGroups(left, terms[left], prefixes[left], complete if left in complete else frozenset())
                      for left in sorted(complete.union(terms, prefixes))}
        lefts = sorted(self.pairs, key=lambda left: -choice.terms.get(left, 0))
        self._lefts = dict(enumerate(lefts, self.LETTERS + 1))
        self._pair_numbers = {left: number for number, left in self._lefts.items()}
        self.first_of_terms = self.LETTERS + 1 + len(lefts)
        self._numbers = {start: number for number, start in enumerate(ordered, self.first_of_terms)}
        self.count = self.first_of_terms + len(self._starts)

    def _start_of(self, group: str) -> int:
        return bisect_right(self._starts, group[:2]) - 1

    def of_group(self, group: str) -> int:
        """Return the number of the family of a group of terms."""
        return self._numbers[self._start_of(group)]

    def of_pairs(self, left: str) -> int:
        """Return the number of the family of the pairs with a left term."""
        return self._pair_numbers[left]

    def pair_groups(self, number: int) -> PairGroups | None:
        """Return the pairs of a family; None for a family of terms or letters."""
        left = self._lefts.get(number)
        return None if left is None else self.pairs[left]


def chosen_from_vocabulary(connection: sqlite3.Connection, start: str, end: str, least: int) -> Iterable[tuple[str, int, bool]]:
    """Yield the terms from `start` to before `end` with at least `least` documents, and the prefixes with as many occurrences.

    They come as (term, documents, False) and (prefix, occurrences, True).
    """
    opened: list[list[int]] = []  # for each prefix of the last term, by length: occurrences, words
    last = ""
    for term, documents in connection.execute("SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? AND term <> ?",
                                              (start, end, fts.POSITION_GAP)):
        plain = plain_start(term)
        shared = next((length for length, (one, other) in enumerate(zip(plain, last)) if one != other),
                      min(len(plain), len(last)))
        yield from _closed(opened, last, shared, least)
        opened += ([0, 0] for _ in range(len(opened), len(plain)))
        last = plain
        for counts in opened:
            counts[0] += documents
            counts[1] += 1
        if documents >= least:
            yield term, documents, False
    yield from _closed(opened, last, 0, least)


def _closed(opened: list[list[int]], term: str, length: int, least: int) -> Iterator[tuple[str, int, bool]]:
    """Close the prefixes of a term that are longer than `length`, and yield the chosen ones."""
    while len(opened) > length:
        size, (occurrences, words) = len(opened), opened.pop()
        if size > 1 and occurrences >= least and (size <= _SHORT_PREFIX or words > _MANY_WORDS):
            yield term[:size], occurrences, True


def frequent_terms(choice: Choice, least: int) -> Sequence[str]:
    """Return the terms with at least `least` documents."""
    return [term for term, documents in choice.terms.items() if documents >= least]
