"""All search rules of an instance, compiled for searches: which are in force for a query, and what they pin.

A rule's number is its rank: rules of smaller precedence first, then by docid, those without precedence last. Sets of rules are
integers, with the bit of each number. Source: docs/search-rules.md#rules-in-force.
"""
from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import comb
from typing import Any, NamedTuple

from svcd.base.docids import DocIds
from svcd.base.quantities import parse_utc
from svcd.filters.tree import Condition
from svcd.query.parser import ParsedQuery
from svcd.query.reader import Reader
from svcd.rules.limits import Limits
from svcd.rules.values import Rules, ValueTable
from svcd.text.analyzer import Analyzer
from svcd.text.term_positions import TermPositionBuilder

Document = Mapping[str, Any]


class _Pin(NamedTuple):
    """What an action of a rule pins. index_uid: None for every index."""

    index_uid: str | None
    document_id: str
    position: int


class _Rule(NamedTuple):
    """A rule as searches need it. start, end: moments, None without bound. words: repetitions included."""

    start: int | None
    end: int | None
    is_empty: bool | None
    words: Sequence[str]
    values: Mapping[str, Any]
    pins: Sequence[_Pin]


class RuleSet:
    """The active rules. key: equal for equal states of the stored rules."""

    def __init__(self, documents: Iterable[tuple[int, Document]], analyzer: Analyzer, limits: Limits, key: tuple[Any, ...] = ()
                 ) -> None:
        """documents: (docid, rule as it is stored). A rule that cannot be read, as of a strange dump, is left out."""
        self.key = key
        self._limits = limits
        self._rules = list(_compiled(documents, TermPositionBuilder(analyzer)))
        self._empty = self._where(lambda rule: rule.is_empty is True)
        self._not_empty = self._where(lambda rule: rule.is_empty is False)
        self._with_words = self._where(lambda rule: bool(rule.words))
        self._by_word: dict[str, list[int]] = {}
        for number, rule in enumerate(self._rules):
            if len(set(rule.words)) == len(rule.words):  # no query has a word twice
                for word in rule.words:
                    self._by_word.setdefault(word, []).append(number)
        self._values = ValueTable((number, rule.values) for number, rule in enumerate(self._rules))
        # The moments at which a rule comes into force or ceases to be in it; times between two of them are alike.
        self._changes = sorted({moment for rule in self._rules for moment in _moments(rule)})
        self._by_interval: dict[int, Rules] = {}
        self._by_index: dict[str, tuple[Rules, dict[int, list[_Pin]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def interval(self, now: int) -> int:
        """The number of a span of time in which no rule comes into force or ceases to be in it."""
        return bisect_right(self._changes, now)

    def of_query(self, index_uid: str, now: int) -> IndexRules | None:
        """The rules for a query on an index at a moment; None if none of them can pin a document there."""
        at_moment = self._at(now)
        return IndexRules(self, index_uid, at_moment) if at_moment & self._pins_of(index_uid)[0] else None

    def in_force(self, at_moment: Rules, parsed: ParsedQuery, condition: Condition | None) -> list[int]:
        """The numbers of the rules in force for a query, of those in their time, by rank."""
        rules = at_moment & ~(self._not_empty if not parsed.parts else self._empty)
        if wanting := rules & self._with_words:
            rules ^= wanting & ~self._of_words(parsed)
        if wanting := rules & self._values.all:
            rules ^= wanting & ~self._values.met(condition, self._limits)
        return _numbers(rules)[:self._limits.active_rules]

    def pins(self, reader: Reader, index_uid: str, numbers: Iterable[int], docids: DocIds) -> list[tuple[int, int]]:
        """(position, docid) of the documents that rules pin: each once, by the first rule that names it."""
        of_rule = self._pins_of(index_uid)[1]
        docid_of: Mapping[str, int] = reader.cached(("pinned", index_uid, self.key), lambda: _docids(reader, of_rule.values()))
        found: dict[int, int] = {}  # docid -> position
        for number in numbers:
            for pin in of_rule.get(number, ()):
                docid = docid_of.get(pin.document_id)
                if docid is None or docid in found or docid not in docids:
                    continue
                if len(found) == self._limits.pin_actions:
                    return _by_rule(found)
                found[docid] = pin.position
        return _by_rule(found)

    def _where(self, is_wanted: Any) -> Rules:
        return sum(1 << number for number, rule in enumerate(self._rules) if is_wanted(rule))

    def _at(self, now: int) -> Rules:
        """The rules that are in their time at a moment."""
        interval = self.interval(now)
        if interval not in self._by_interval:
            self._by_interval[interval] = self._where(
                lambda rule: (rule.start is None or rule.start <= now) and (rule.end is None or now <= rule.end))
        return self._by_interval[interval]

    def _of_words(self, parsed: ParsedQuery) -> Rules:
        """The rules whose words are all words of a query."""
        distinct = sorted({part.words[0] for part in parsed.parts if not part.is_phrase and part.words[0] is not None})
        words = distinct[:self._limits.counted_words]
        most = _most_words(len(words), self._limits.word_fuel)
        counts: dict[int, int] = {}
        for word in words:
            for number in self._by_word.get(word, ()):
                counts[number] = counts.get(number, 0) + 1
        return sum(1 << number for number, count in counts.items() if count == len(self._rules[number].words) <= most)

    def _pins_of(self, index_uid: str) -> tuple[Rules, dict[int, list[_Pin]]]:
        """(the rules that have pins for an index, number of a rule -> these pins)."""
        known = self._by_index.get(index_uid)
        if known is None:
            pins = {number: own for number, rule in enumerate(self._rules)
                    if (own := [pin for pin in rule.pins if pin.index_uid in (None, index_uid)])}
            known = sum(1 << number for number in pins), pins
            if len(self._by_index) < _MOST_INDEXES:
                self._by_index[index_uid] = known
        return known


_MOST_INDEXES = 1000  # whose pins are remembered


class IndexRules(NamedTuple):
    """The rules for one query on one index at one moment, as svcd.search.request.PinningRules."""

    rules: RuleSet
    index_uid: str
    at_moment: Rules

    def pins(self, reader: Reader, parsed: ParsedQuery, condition: Condition | None, docids: DocIds) -> list[tuple[int, int]]:
        """(position, docid) of the documents that they pin for the query; see PinningRules."""
        numbers = self.rules.in_force(self.at_moment, parsed, condition)
        return self.rules.pins(reader, self.index_uid, numbers, docids) if numbers else []


def _docids(reader: Reader, pins: Iterable[Sequence[_Pin]]) -> dict[str, int]:
    """Identifier -> docid, of those documents of rules that the index has."""
    return dict(reader.identified_docids(list({pin.document_id: None for of_rule in pins for pin in of_rule})))


def _by_rule(found: Mapping[int, int]) -> list[tuple[int, int]]:
    return [(position, docid) for docid, position in found.items()]


def _numbers(rules: Rules) -> list[int]:
    """The numbers in a set of rules, ascending."""
    return [number for number, bit in enumerate(reversed(bin(rules)[2:])) if bit == "1"]


def _most_words(words: int, fuel: int) -> int:
    """Rules of how many words can be tried: each combination of so many words of the query takes one unit."""
    for size in range(1, words + 1):
        fuel -= comb(words, size)
        if fuel < 0:
            return size - 1
    return words


def _moments(rule: _Rule) -> Iterator[int]:
    if rule.start is not None:
        yield rule.start
    if rule.end is not None:
        yield rule.end + 1  # the end itself belongs to its time


# Stored rules


def _compiled(documents: Iterable[tuple[int, Document]], words: TermPositionBuilder) -> Iterator[_Rule]:
    """The active rules by rank."""
    documents = list(documents)
    has_active = any("active" in document for _, document in documents)
    for _, document in sorted(documents, key=_rank):
        if document.get("active", not has_active) is not True:
            continue
        try:
            yield _rule(document, words)
        except (TypeError, ValueError, KeyError, AttributeError):
            continue


def _rank(row: tuple[int, Document]) -> tuple[float, int]:
    docid, document = row
    precedence = document.get("precedence")
    return (precedence if isinstance(precedence, int) else math.inf), docid


def _rule(document: Document, words: TermPositionBuilder) -> _Rule:
    conditions = document.get("conditions") or {}
    time, query, held = (conditions.get(name) or {} for name in ("time", "query", "filter"))
    return _Rule(
        _moment(time.get("start")), _moment(time.get("end")), query.get("isEmpty"),
        [word for word in words.of(query.get("words") or "") if word], held.get("values") or {},
        [_pin(action) for action in document.get("actions") or ()],
    )


def _moment(text: str | None) -> int | None:
    return None if text is None else parse_utc(text)


def _pin(action: Document) -> _Pin:
    selector = action["selector"]
    return _Pin(selector.get("indexUid"), str(selector["id"]), int(action["action"]["position"]))
