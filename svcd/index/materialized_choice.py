"""Which sets are materialized: of which terms, prefixes and pairs of terms. The vocabulary and a sample of the documents say it.

Each word of a document belongs to one *leaf*: its term if that is common, else the longest prefix of it that may be common.
So the documents of a term are those of its leaf, and the documents of a prefix are the union of the leaves that begin with it. In
the same way the term after a common one makes a leaf of a pair. Leaves are gathered from the documents
(svcd.index.materialized_leaves) and joined family by family (svcd.index.materialized_sets): the leaves of a family share no
prefix with those of another, single letters aside.
"""
from __future__ import annotations

import json
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise

from svcd.index import fts_encoding
from svcd.index.materialized_pairs import LONGEST_PREFIX as _LONGEST_IN_PAIR
from svcd.index.materialized_pairs import ChosenPairs

# Longer prefixes are kept only if they have more words than a reader looks up one by one.
_SHORT_PREFIX = 4
_MANY_WORDS = 100
_LONGEST_PREFIX = 6
# Letters with sets of the documents by position; those by field are in the table of prefix postings.
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
# The portions in which the vocabulary is read: (first term, term after the last).
RANGES = tuple(pairwise(("", *LETTERS[:10], ":", *LETTERS[10:], "{", "\U0010ffff")))
# Families of terms hold at least such a part of all words.
_FAMILIES = 64
# A leaf is named by its term, or by its prefix and a space, which no term has; that of a pair by the left term, a space, and the
# name of the right one.
REST = " "

Node = tuple[str, bool]  # a term, a prefix or a pair, and whether it is a prefix


@dataclass
class Choice:
    """Which sets are made.

    terms: term -> number of documents, of the common ones and of those that may be the first of a pair. prefixes: prefix ->
    number of occurrences, at least as many as documents; single letters are not among them.
    """

    terms: dict[str, int] = field(default_factory=dict)
    prefixes: dict[str, int] = field(default_factory=dict)
    pairs: ChosenPairs = field(default_factory=ChosenPairs)

    @classmethod
    def parse(cls, text: str) -> Choice:
        """The inverse of as_json()."""
        stored = json.loads(text)
        return cls(stored["terms"], stored["prefixes"], ChosenPairs(*stored["pairs"]))

    def as_json(self) -> str:
        """The form in which it is stored while sets are made."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @cached_property
    def families(self) -> Families:
        """Its leaves in families."""
        return Families(self)

    # Terms

    def leaf(self, term: str, least: int) -> str | None:
        """The leaf of a term; None if it is in no set. least: so many documents make a term common."""
        if self.terms.get(term, -1) >= least:
            return term
        plain = plain_start(term)
        for size in range(len(plain), 1, -1):
            if plain[:size] in self.prefixes:
                return plain[:size] + REST
        return plain[0] + REST if plain and plain[0] in LETTERS else None

    def nodes(self, leaf: str) -> Iterator[Node]:
        """The sets that the documents of a leaf of terms belong to, single letters aside."""
        if not leaf.endswith(REST):
            yield leaf, False
        plain = plain_start(leaf.rstrip(REST))
        for size in range(2, len(plain) + 1):
            if plain[:size] in self.prefixes:
                yield plain[:size], True


def plain_start(term: str) -> str:
    """The characters of a term of which prefixes are kept; an escape must not be cut."""
    return term.partition("~")[0][:_LONGEST_PREFIX]


class PairLeaves:
    """The leaves of the pairs with a certain left term."""

    def __init__(self, left: str, terms: set[str], prefixes: set[str], complete: frozenset[str]) -> None:
        self.left = left
        self._terms, self._prefixes, self._complete = terms, prefixes, complete

    def leaf(self, right: str) -> str | None:
        """The leaf of the pair with a right term; None if it is in no set."""
        if right in self._terms or right in self._complete:
            return f"{self.left} {right}"
        for size in range(min(len(right), _LONGEST_IN_PAIR), 0, -1):
            if right[:size] in self._prefixes:
                return f"{self.left} {right[:size]}{REST}"
        return None

    def nodes(self, leaf: str) -> Iterator[Node]:
        """The sets that the documents of a leaf belong to."""
        start = len(self.left) + 1
        right = leaf[start:].rstrip(REST)
        if not leaf.endswith(REST):
            yield leaf, False
        for size in range(1, min(len(right), _LONGEST_IN_PAIR) + 1):
            if right[:size] in self._prefixes:
                yield leaf[:start + size], True


class Families:
    """The families of leaves, those that searches miss most first: single letters, pairs by their left term, and terms.

    Without pairs most searches of several words are slow, and all pairs are made in a tenth of the time that terms take.
    pairs: left term -> its leaves. first_of_terms: the number of the first family of terms.
    """

    LETTERS = 0

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._starts = _family_starts(choice)
        weights = [0] * len(self._starts)
        for prefix, weight in choice.prefixes.items():
            if len(prefix) == 2:
                weights[self._start_of(prefix)] += weight
        ordered = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)
        self.pairs = _pair_leaves(choice.pairs)
        lefts = sorted(self.pairs, key=lambda left: -choice.terms.get(left, 0))
        self._lefts = dict(enumerate(lefts, self.LETTERS + 1))
        self._pair_numbers = {left: number for number, left in self._lefts.items()}
        self.first_of_terms = self.LETTERS + 1 + len(lefts)
        self._numbers = {start: number for number, start in enumerate(ordered, self.first_of_terms)}
        self.count = self.first_of_terms + len(self._starts)

    def _start_of(self, leaf: str) -> int:
        return bisect_right(self._starts, leaf[:2]) - 1

    def of_leaf(self, leaf: str) -> int:
        """The number of the family of a leaf of terms."""
        return self._numbers[self._start_of(leaf)]

    def of_pairs(self, left: str) -> int:
        """The number of the family of the pairs with a left term."""
        return self._pair_numbers[left]

    def pair_leaves(self, number: int) -> PairLeaves | None:
        """The pairs of a family; None if it is one of terms or letters."""
        left = self._lefts.get(number)
        return None if left is None else self.pairs[left]


def _family_starts(choice: Choice) -> list[str]:
    """Of each family of terms the two characters from which on its leaves begin."""
    least = sum(weight for prefix, weight in choice.prefixes.items() if len(prefix) == 2) // _FAMILIES
    starts, gathered = [""], 0
    for start in sorted({name[:2] for name in (*choice.terms, *choice.prefixes)}):
        if gathered > least:
            starts.append(start)
            gathered = 0
        gathered += choice.prefixes.get(start, 0)
    return starts


def _pair_leaves(pairs: ChosenPairs) -> dict[str, PairLeaves]:
    terms: defaultdict[str, set[str]] = defaultdict(set)
    prefixes: defaultdict[str, set[str]] = defaultdict(set)
    for key in pairs.keys:
        kind, _, pair = key.partition(":")
        left, _, right = pair.partition(" ")
        (prefixes if "*" in kind else terms)[left].add(right)
    complete = frozenset(pairs.complete)
    return {left: PairLeaves(left, terms[left], prefixes[left], complete if left in complete else frozenset())
            for left in sorted(complete.union(terms, prefixes))}


def chosen_from_vocabulary(connection: sqlite3.Connection, start: str, end: str, least: int) -> Iterable[tuple[str, int, bool]]:
    """The terms from `start` to before `end` with at least so many documents, and the prefixes with as many occurrences.

    (term, documents, False) and (prefix, occurrences, True).
    """
    opened: list[list[int]] = []  # of each prefix of the last term, by length: occurrences, words
    last = ""
    for term, documents in connection.execute("SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? AND term <> ?",
                                              (start, end, fts_encoding.POSITION_GAP)):
        plain = plain_start(term)
        yield from _closed(opened, last, _shared_length(plain, last), least)
        opened += ([0, 0] for _ in range(len(opened), len(plain)))
        last = plain
        for counts in opened:
            counts[0] += documents
            counts[1] += 1
        if documents >= least:
            yield term, documents, False
    yield from _closed(opened, last, 0, least)


def _shared_length(left: str, right: str) -> int:
    """How many characters two texts begin with in common."""
    for length, (one, other) in enumerate(zip(left, right)):
        if one != other:
            return length
    return min(len(left), len(right))


def _closed(opened: list[list[int]], term: str, length: int, least: int) -> Iterator[tuple[str, int, bool]]:
    """Close the prefixes of a term that are longer than `length`."""
    while len(opened) > length:
        size, (occurrences, words) = len(opened), opened.pop()
        if size > 1 and occurrences >= least and (size <= _SHORT_PREFIX or words > _MANY_WORDS):
            yield term[:size], occurrences, True


def frequent_terms(choice: Choice, least: int) -> Sequence[str]:
    """The terms that at least so many documents hold."""
    return [term for term, documents in choice.terms.items() if documents >= least]
