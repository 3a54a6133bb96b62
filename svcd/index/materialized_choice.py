"""Chooses which terms, prefixes and pairs of terms get materialized sets, from the vocabulary and a sample of the documents.

Each word of a document belongs to one *group*: its term if that is common, else the longest of its prefixes that may be common.
So a term has the documents of its group, and the documents of a prefix are the union of the groups that begin with it.
In the same way a common term and the term after it form a group of a pair. Groups are gathered from the documents
(svcd.index.materialized_groups) and joined family by family (svcd.index.materialized_sets): the groups of one family share no
prefix with the groups of another, single letters aside.
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
from svcd.index.materialized_pairs import LONGEST_PREFIX as _LONGEST_IN_PAIR, ChosenPairs

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

    # Terms

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
        self.pairs = _pair_groups(choice.pairs)
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


def _pair_groups(pairs: ChosenPairs) -> dict[str, PairGroups]:
    terms: defaultdict[str, set[str]] = defaultdict(set)
    prefixes: defaultdict[str, set[str]] = defaultdict(set)
    for key in pairs.keys:
        kind, _, pair = key.partition(":")
        left, _, right = pair.partition(" ")
        (prefixes if "*" in kind else terms)[left].add(right)
    complete = frozenset(pairs.complete)
    return {left: PairGroups(left, terms[left], prefixes[left], complete if left in complete else frozenset())
            for left in sorted(complete.union(terms, prefixes))}


def chosen_from_vocabulary(connection: sqlite3.Connection, start: str, end: str, least: int) -> Iterable[tuple[str, int, bool]]:
    """Yield the terms from `start` to before `end` with at least `least` documents, and the prefixes with as many occurrences.

    They come as (term, documents, False) and (prefix, occurrences, True).
    """
    opened: list[list[int]] = []  # for each prefix of the last term, by length: occurrences, words
    last = ""
    for term, documents in connection.execute("SELECT term, doc FROM vocabulary WHERE term >= ? AND term < ? AND term <> ?",
                                              (start, end, fts_encoding.POSITION_GAP)):
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
