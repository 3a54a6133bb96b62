"""Can the results of these queries be merged? Which rules order each list, and whether two lists agree in them.

Knows relevance.md 10.6 and the words for queries that disagree; refuses to know what a rule does.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from svcd.query.sort_expressions import SortRule

RELEVANCY, ASCENDING, DESCENDING = "relevancy", "ascending sort", "descending sort"
GEO_ASCENDING, GEO_DESCENDING = "ascending geo sort", "descending geo sort"

_WORDS, _SORT = "words", "sort"
_SORTS, _GEO_SORTS = (ASCENDING, DESCENDING), (GEO_ASCENDING, GEO_DESCENDING)
_UNNAMED = "default"  # so the reference engine calls a sort by distance


@dataclass(frozen=True, slots=True)
class Ordered:
    """One query, as far as its order goes.

    number: its place in the request. ranking_rules: the setting. sort: that of the request, None without any.
    keeps_all_words: is its matching strategy `all`? has_text: else it is a placeholder search.
    """

    number: int
    index_uid: str
    ranking_rules: Sequence[str]
    sort: Sequence[SortRule] | None
    keeps_all_words: bool = False
    has_text: bool = True


class Step(NamedTuple):
    """A rule of the order, or neighbouring rules of relevancy. shown: as messages name it."""

    kind: str
    shown: str


class Incompatible(ValueError):
    """Two lists that can't be merged; str() says why."""


class Compatibility:
    """Takes the queries one by one, and compares each with the longest order so far."""

    def __init__(self) -> None:
        self._longest: _Order | None = None

    def add(self, query: Ordered) -> None:
        """Raises Incompatible."""
        order, longest = _Order.of(query), self._longest
        if longest is None:
            self._longest = order
            return
        for before, now in zip(longest.steps, order.steps):
            reason = _reason(before.kind, now.kind)
            if reason:
                raise Incompatible(_message(longest, order, before, now, reason))
        if len(longest.steps) <= len(order.steps):
            self._longest = order


def _message(before: _Order, now: _Order, step_before: Step, step_now: Step, reason: str) -> str:
    numbers = f"#{before.query.number} and #{now.query.number}"
    return (
        f"The results of queries {numbers} are incompatible: \n"
        f"  1. {step_before.shown}\n  2. {step_now.shown}\n  - {reason}\n{before.notes()}{now.notes()}"
    )


def _reason(left: str, right: str) -> str:
    """Why two steps can't be compared; "" when they can."""
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


@dataclass(slots=True)
class _Order:
    """The order of one query, with what was changed to make it canonical."""

    query: Ordered
    steps: Sequence[Step]
    changes: Sequence[str]

    @classmethod
    def of(cls, query: Ordered) -> _Order:
        """The canonical order of a query."""
        canonical = _Canonical(query)
        for number, entry in enumerate(query.ranking_rules):
            canonical.add(number, entry)
        return cls(query, list(_steps(query, canonical)), canonical.changes)

    def notes(self) -> str:
        """What was changed, "" for nothing."""
        if not self.changes:
            return ""
        header = f"  - note: The ranking rules of query #{self.query.number} were modified during canonicalization:\n"
        # One change is indented by less, in the reference engine too.
        return header + "".join(f"{'   ' if change.startswith('Removed rule `sort`') else '    '}{number}. {change}\n"
                                for number, change in enumerate(self.changes, 1))


# canonical rules


@dataclass(slots=True)
class _Canonical:
    """Rules without those that change nothing.

    rules: entries of the setting that are left. sort: the expressions in place of `sort`. changes: in words.
    A rule that is met again is called as where it was met first; `words` is told to be removed where it had been
    prepended, but stays: so does the reference engine.
    """

    query: Ordered
    rules: list[str] = field(default_factory=list)
    sort: list[SortRule] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    _met: dict[str, tuple[str, str]] = field(default_factory=dict)  # rule, or sorted field: (its name, where it was met)
    _is_prepended: bool = False

    def add(self, number: int, entry: str) -> None:
        """An entry of the setting; number: its place there."""
        place = f"#{number} in ranking rules"
        if entry == _SORT:
            self._add_sort(number, place)
        elif ":" in entry:
            self._add_once(entry, _sorted_field(entry), place)
        elif not self.query.has_text:
            self.changes.append(f"Removed relevancy rule `{entry}` at position {place}"
                                " because the query is a placeholder search (`q`: \"\")")
        elif entry == _WORDS:
            self._add_words(place)
        else:
            self._prepend_words(entry, place)
            self._add_once(entry, entry, place)

    def _add_once(self, entry: str, key: str, place: str) -> None:
        if not self._is_duplicate(key, place):
            self._met[key] = entry, place
            self.rules.append(entry)

    def _is_duplicate(self, key: str, place: str) -> bool:
        """Was it met before? Then that is told."""
        if key not in self._met:
            return False
        name, first = self._met[key]
        self.changes.append(f"Removed duplicate rule `{name}` at position {place} as it already appears at position {first}")
        return True

    def _add_words(self, place: str) -> None:
        is_all = self.query.keeps_all_words
        if is_all or (self._is_prepended and _WORDS not in self._met):
            reason = "`query.matchingWords` is set to `all`" if is_all else "it was previously prepended"
            self.changes.append(f"Removed rule `{_WORDS}` at position {place} because {reason}")
        if not is_all:
            self._add_once(_WORDS, _WORDS, place)

    def _prepend_words(self, entry: str, place: str) -> None:
        if _WORDS not in self._met and not self.query.keeps_all_words and not self._is_prepended:
            self._is_prepended = True
            self.rules.append(_WORDS)
            self.changes.append(f"Prepended rule `{_WORDS}` before first relevancy rule `{entry}` at position {place}")

    def _add_sort(self, number: int, place: str) -> None:
        if self._is_duplicate(_SORT, place):
            return
        if self.query.sort is None:
            self.changes.append(f"Removed rule `{_SORT}` at position {place} because `query.sort` is empty")
        else:
            self._add_once(_SORT, _SORT, place)
            for among, rule in enumerate(self.query.sort):
                self._add_expression(rule, f"#{among} in `query.sort` (as `sort` is {place})")

    def _add_expression(self, rule: SortRule, place: str) -> None:
        key = _key(rule.field)
        if not self._is_duplicate(key, place):
            field_name = "_geo(..)" if rule.point else rule.field
            self._met[key] = f"{field_name}:{'asc' if rule.is_ascending else 'desc'}", place
            self.sort.append(rule)


def _key(field: str) -> str:
    """Of a sorted field; no rule without direction has such a name."""
    return f"{field}:"


def _sorted_field(entry: str) -> str:
    return _key(entry.rpartition(":")[0])


def _sort_name(rule: SortRule) -> str:
    return _UNNAMED if rule.point else f"on field `{rule.field}`"


# steps


def _steps(query: Ordered, canonical: _Canonical) -> Iterator[Step]:
    """The rules with the expressions in place of `sort`, neighbours of relevancy as one."""
    first = last = None  # of a run of relevancy
    for number, entry in enumerate(canonical.rules):
        if entry != _SORT and ":" not in entry:
            first, last = number if first is None else first, number
            continue
        if first is not None and (entry != _SORT or canonical.sort):
            yield _relevancy(query, canonical.rules, first, last or first)
            first = None
        yield from _sort_steps(query, canonical.sort, number) if entry == _SORT else (_custom(query, entry, number),)
    if first is not None:
        yield _relevancy(query, canonical.rules, first, last or first)


def _relevancy(query: Ordered, rules: Sequence[str], first: int, last: int) -> Step:
    which = str(first) if first == last else f"{first}..={last}"
    return _step(query, RELEVANCY, which, ", ".join(rules[first:last + 1]))


def _custom(query: Ordered, entry: str, number: int) -> Step:
    return _step(query, ASCENDING if entry.endswith(":asc") else DESCENDING, str(number), entry)


_SORT_KINDS: Mapping[tuple[bool, bool], str] = {  # (by distance, ascending): kind
    (False, True): ASCENDING, (False, False): DESCENDING, (True, True): GEO_ASCENDING, (True, False): GEO_DESCENDING,
}


def _sort_steps(query: Ordered, sort: Sequence[SortRule], number: int) -> Iterator[Step]:
    for among, rule in enumerate(sort):
        kind = _SORT_KINDS[rule.point is not None, rule.is_ascending]
        yield _step(query, kind, str(number), _sort_name(rule), f".sort[{among}]")


def _step(query: Ordered, kind: str, which: str, names: str, expression: str = "") -> Step:
    source = f"`queries[{query.number}]{expression}`, `{query.index_uid}.rankingRules[{which}]`"
    return Step(kind, f"{source}: {kind} rule(s) {names}")
