"""Decide whether the result lists of several queries can be merged: compare the kinds of rules that order each list.

See docs/search.md#compatible-orders. Messages, including the notes on the changes by the canonical form, are the same as in the
reference engine.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from svcd.ranking.sort import SortRule
from svcd.schema.ranking_rules import SORT, WORDS

RELEVANCY, ASCENDING, DESCENDING = "relevancy", "ascending sort", "descending sort"
GEO_ASCENDING, GEO_DESCENDING = "ascending geo sort", "descending geo sort"

_SORTS, _GEO_SORTS = (ASCENDING, DESCENDING), (GEO_ASCENDING, GEO_DESCENDING)
_UNNAMED = "default"  # the name of a distance sort in messages


@dataclass(frozen=True, slots=True)
class QueryOrder:
    """The settings and parameters that decide the order of the hits of one query.

    number: of the query in the request, from 0. ranking_rules: the setting. sort: parsed `sort` of the request, None without.
    keeps_all_words: the matching strategy is `all`. has_text: False for a placeholder search. is_semantic: a search by vectors
    alone, which has one relevancy rule.
    """

    number: int
    index_uid: str
    ranking_rules: Sequence[str]
    sort: Sequence[SortRule] | None
    keeps_all_words: bool = False
    has_text: bool = True
    is_semantic: bool = False


class Step(NamedTuple):
    """A sort rule, or neighbouring relevancy rules. kind: see the constants; text: its name in messages."""

    kind: str
    text: str


class Incompatible(ValueError):
    """Two lists that cannot be merged; str() is the message for the client."""


class Compatibility:
    """Compares queries, one after the other, with the longest order so far."""

    def __init__(self) -> None:
        self._longest: _Order | None = None

    def add(self, query: QueryOrder) -> None:
        """Check a query. Raises Incompatible."""
        order, longest = _Order(query), self._longest
        if longest is None:
            self._longest = order
            return
        for before, now in zip(longest.steps, order.steps):
            reason = _reason(before.kind, now.kind)
            if reason:
                raise Incompatible(
                    f"The results of queries #{longest.query.number} and #{order.query.number} are incompatible: \n"
                    f"  1. {before.text}\n  2. {now.text}\n  - {reason}\n{longest.notes()}{order.notes()}")
        if len(longest.steps) <= len(order.steps):
            self._longest = order


def _reason(left: str, right: str) -> str:
    """Return why steps of two kinds cannot be compared; "" if they can."""
    if left == right:
        return ""
    if RELEVANCY in (left, right):
        other = right if left == RELEVANCY else left
        return f"cannot compare a relevancy rule with a {'sort' if other in _SORTS else 'geosort'} rule"
    if left in _SORTS and right in _SORTS:
        return "cannot compare two sort rules in opposite directions"
    if left in _GEO_SORTS and right in _GEO_SORTS:
        return "cannot compare two geosort rules in opposite directions"
    return "cannot compare a sort rule with a geosort rule"


class _Order:
    """The canonical form of the rules of one query, and its steps.

    rules: the entries that remain. sort: the remaining expressions that replace `sort`. changes: sentences for messages.
    As in the reference engine, a message spells a duplicate like its first occurrence, and reports `words` as
    removed after it was prepended, although it stays.
    """

    def __init__(self, query: QueryOrder) -> None:
        self.query = query
        self.rules: list[str] = []
        self.sort: list[SortRule] = []
        self.changes: list[str] = []
        self._seen: dict[str, tuple[str, str]] = {}  # rule, or sort field with a colon -> (its name, its position)
        self._is_prepended = False
        self._vector_position: str | None = None  # the position of the rule that vectors replace
        self._is_complete = False
        for number, entry in enumerate(query.ranking_rules):
            self._add(number, entry)
        self.steps = list(_steps(query, self))

    def notes(self) -> str:
        """Return the note about changes for a message, "" without changes."""
        if not self.changes:
            return ""
        header = f"  - note: The ranking rules of query #{self.query.number} were modified during canonicalization:\n"
        # This one change has a smaller indent in the reference engine.
        return header + "".join(f"{'   ' if change.startswith('Removed rule `sort`') else '    '}{number}. {change}\n"
                                for number, change in enumerate(self.changes, 1))

    def _add(self, number: int, entry: str) -> None:
        """Add an entry of the setting; number: its index."""
        position = f"#{number} in ranking rules"
        if self._is_complete:
            return
        if entry == SORT:
            self._add_sort(number, position)
        elif ":" in entry:
            self._add_once(entry, entry[:entry.rindex(":") + 1], position)
        elif self.query.is_semantic:
            self._add_relevancy_of_vectors(entry, position)
        elif not self.query.has_text:
            self.changes.append(f"Removed relevancy rule `{entry}` at position {position}"
                                " because the query is a placeholder search (`q`: \"\")")
        elif entry == WORDS:
            is_all = self.query.keeps_all_words
            if is_all or (self._is_prepended and WORDS not in self._seen):
                reason = "`query.matchingWords` is set to `all`" if is_all else "it was previously prepended"
                self.changes.append(f"Removed rule `{WORDS}` at position {position} because {reason}")
            if not is_all:
                self._add_once(WORDS, WORDS, position)
        else:
            if WORDS not in self._seen and not self.query.keeps_all_words and not self._is_prepended:
                self._is_prepended = True
                self.rules.append(WORDS)
                self.changes.append(f"Prepended rule `{WORDS}` before first relevancy rule `{entry}` at position {position}")
            self._add_once(entry, entry, position)

    def _add_once(self, entry: str, key: str, position: str) -> None:
        if not self._is_duplicate(key, position):
            self._seen[key] = entry, position
            self.rules.append(entry)

    def _is_duplicate(self, key: str, position: str) -> bool:
        """Return whether the rule was seen before; if so, record its removal as a change."""
        if key not in self._seen:
            return False
        name, first = self._seen[key]
        self.changes.append(f"Removed duplicate rule `{name}` at position {position} as it already appears at position {first}")
        return True

    def _add_relevancy_of_vectors(self, entry: str, position: str) -> None:
        """Keep the first relevancy rule, in place of vectors; remove later ones, and after a sort rule all following rules."""
        if self._vector_position is None:
            self._vector_position = position
            self.rules.append(entry)
        elif any(":" in key for key in self._seen):
            self._is_complete = True
            self.changes.append(f"Truncated relevancy rule `{entry}` at position {position} and later rules because the query is"
                                f" a vector search and `vector` was inserted at position {self._vector_position}")
        else:
            self.changes.append(f"Removed relevancy rule `{entry}` at position {position} because the query is a vector search"
                                f" and `vector` was already inserted at position {self._vector_position}")

    def _add_sort(self, number: int, position: str) -> None:
        if self._is_duplicate(SORT, position):
            return
        if self.query.sort is None:
            self.changes.append(f"Removed rule `{SORT}` at position {position} because `query.sort` is empty")
        else:
            self._add_once(SORT, SORT, position)
            for among, rule in enumerate(self.query.sort):
                expression_position, key = f"#{among} in `query.sort` (as `sort` is {position})", f"{rule.field}:"
                if not self._is_duplicate(key, expression_position):
                    name = f"{'_geo(..)' if rule.point else rule.field}:{'asc' if rule.is_ascending else 'desc'}"
                    self._seen[key] = name, expression_position
                    self.sort.append(rule)


_SORT_KINDS: Mapping[tuple[bool, bool], str] = {  # (by distance, ascending): kind
    (False, True): ASCENDING, (False, False): DESCENDING, (True, True): GEO_ASCENDING, (True, False): GEO_DESCENDING,
}


def _steps(query: QueryOrder, canonical: _Order) -> Iterator[Step]:
    """Yield the steps: sort expressions in place of `sort`, neighbouring relevancy rules as one step."""
    first = last = None  # indexes of the current run of relevancy rules
    for number, entry in enumerate(canonical.rules):
        if entry != SORT and ":" not in entry:
            first, last = number if first is None else first, number
            continue
        if first is not None and (entry != SORT or canonical.sort):
            yield _relevancy(query, canonical.rules, first, last or first)
            first = None
        if entry != SORT:
            yield _step(query, ASCENDING if entry.endswith(":asc") else DESCENDING, str(number), entry)
            continue
        for among, rule in enumerate(canonical.sort):
            kind = _SORT_KINDS[rule.point is not None, rule.is_ascending]
            name = _UNNAMED if rule.point else f"on field `{rule.field}`"
            yield _step(query, kind, str(number), name, f".sort[{among}]")
    if first is not None:
        yield _relevancy(query, canonical.rules, first, last or first)


def _relevancy(query: QueryOrder, rules: Sequence[str], first: int, last: int) -> Step:
    which = str(first) if first == last else f"{first}..={last}"
    return _step(query, RELEVANCY, which, ", ".join(rules[first:last + 1]))


def _step(query: QueryOrder, kind: str, which: str, names: str, expression: str = "") -> Step:
    source = f"`queries[{query.number}]{expression}`, `{query.index_uid}.rankingRules[{which}]`"
    return Step(kind, f"{source}: {kind} rule(s) {names}")
