"""All search rules of an instance, compiled for searches: find the rules in force for a query, and the documents that they pin.

The number of a rule is its rank: rules are ordered by precedence, then by docid; rules without precedence are last. A set of
rules is an integer with one bit for each number. Source: docs/search-rules.md#rules-in-force.
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
from svcd.query.graph import ParsedQuery
from svcd.query.reader import Reader
from svcd.rules.values import Limits, Rules, ValueTable
from svcd.text.analyzer import Analyzer
from svcd.text.term_positions import TermPositionBuilder

Document = Mapping[str, Any]


class _Pin(NamedTuple):
    """A document that an action pins. index_uid: None for all indexes."""

    index_uid: str | None
    document_id: str
    position: int


class _Rule(NamedTuple):
    """A rule, compiled for searches. start, end: moments; None for no bound. words: with repetitions."""

    start: int | None
    end: int | None
    is_empty: bool | None
    words: Sequence[str]
    values: Mapping[str, Any]
    pins: Sequence[_Pin]


class RuleSet:
    """The active rules. key: equal for equal states of the stored rules."""

    def __init__(self, documents: Iterable[tuple[int, Document]], analyzer: Analyzer, limits: Limits,
                 key: tuple[Any, ...] = ()) -> None:
        """documents: (docid, stored rule). Unreadable rules, which only unusual dumps contain, are skipped."""
        self.key = key
        self._limits = limits
        self._rules = list(_compiled(documents, TermPositionBuilder(analyzer)))
        self._empty = self._where(lambda rule: rule.is_empty is True)
        self._not_empty = self._where(lambda rule: rule.is_empty is False)
        self._with_words = self._where(lambda rule: bool(rule.words))
        self._by_word: dict[str, list[int]] = {}
        for number, rule in enumerate(self._rules):
            if len(set(rule.words)) == len(rule.words):  # a query counts each word once
                for word in rule.words:
                    self._by_word.setdefault(word, []).append(number)
        self._values = ValueTable((number, rule.values) for number, rule in enumerate(self._rules))
        # The moments at which a rule starts to be in force or ends. Between two moments, the same rules are in their time.
        starts = {rule.start for rule in self._rules if rule.start is not None}
        ends = {rule.end + 1 for rule in self._rules if rule.end is not None}  # a rule is still in force at its end
        self._changes = sorted(starts | ends)
        self._by_interval: dict[int, Rules] = {}
        self._by_index: dict[str, tuple[Rules, dict[int, list[_Pin]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def interval(self, now: int) -> int:
        """Return the number of the span of time in which no rule starts or ends."""
        return bisect_right(self._changes, now)

    def of_query(self, index_uid: str, now: int) -> IndexRules | None:
        """Return the rules for a query on an index at a moment; None if none of them can pin a document of this index."""
        interval = self.interval(now)
        if interval not in self._by_interval:
            self._by_interval[interval] = self._where(
                lambda rule: (rule.start is None or rule.start <= now) and (rule.end is None or now <= rule.end))
        at_moment = self._by_interval[interval]
        return IndexRules(self, index_uid, at_moment) if at_moment & self._pins_of(index_uid)[0] else None

    def in_force(self, at_moment: Rules, parsed: ParsedQuery, condition: Condition | None) -> list[int]:
        """Return the numbers of the rules in force for a query, by rank. at_moment: the rules in their time."""
        rules = at_moment & ~(self._not_empty if not parsed.parts else self._empty)
        if wanting := rules & self._with_words:
            rules ^= wanting & ~self._of_words(parsed)
        if wanting := rules & self._values.all:
            rules ^= wanting & ~self._values.met(condition, self._limits)
        numbers = [number for number, bit in enumerate(reversed(bin(rules)[2:])) if bit == "1"]
        return numbers[:self._limits.active_rules]

    def pins(self, reader: Reader, index_uid: str, numbers: Iterable[int], docids: DocIds) -> list[tuple[int, int]]:
        """Return (position, docid) of the documents that rules pin, each once, by the first rule that pins it."""
        of_rule = self._pins_of(index_uid)[1]

        def docids_of_pins() -> Mapping[str, int]:
            return dict(reader.identified_docids(list({pin.document_id: None for pins in of_rule.values() for pin in pins})))

        docid_of = reader.cached(("pinned", index_uid, self.key), docids_of_pins)
        found: dict[int, tuple[int, int]] = {}  # by docid
        for number in numbers:
            for pin in of_rule.get(number, ()):
                docid = docid_of.get(pin.document_id)
                if docid is None or docid in found or docid not in docids:
                    continue
                if len(found) == self._limits.pin_actions:
                    return list(found.values())
                found[docid] = pin.position, docid
        return list(found.values())

    def _where(self, is_wanted: Any) -> Rules:
        return sum(1 << number for number, rule in enumerate(self._rules) if is_wanted(rule))

    def _of_words(self, parsed: ParsedQuery) -> Rules:
        """Return the rules whose words are all words of a query."""
        distinct = sorted({part.words[0] for part in parsed.parts if not part.is_phrase and part.words[0] is not None})
        words = distinct[:self._limits.counted_words]
        # The largest number of words of a rule that the fuel allows: each combination of words of a size takes one unit.
        fuel, most = self._limits.word_fuel, 0
        while most < len(words) and (fuel := fuel - comb(len(words), most + 1)) >= 0:
            most += 1
        counts: dict[int, int] = {}
        for word in words:
            for number in self._by_word.get(word, ()):
                counts[number] = counts.get(number, 0) + 1
        return sum(1 << number for number, count in counts.items() if count == len(self._rules[number].words) <= most)

    def _pins_of(self, index_uid: str) -> tuple[Rules, dict[int, list[_Pin]]]:
        """Return the rules with pins for an index, and these pins by the number of the rule."""
        known = self._by_index.get(index_uid)
        if known is None:
            pins = {number: own for number, rule in enumerate(self._rules)
                    if (own := [pin for pin in rule.pins if pin.index_uid in (None, index_uid)])}
            known = sum(1 << number for number in pins), pins
            if len(self._by_index) < _MOST_INDEXES:
                self._by_index[index_uid] = known
        return known


_MOST_INDEXES = 1000  # maximum number of indexes with cached pins


class IndexRules(NamedTuple):
    """The rules for one query on one index at one moment."""

    rules: RuleSet
    index_uid: str
    at_moment: Rules

    def pins(self, reader: Reader, parsed: ParsedQuery, condition: Condition | None, docids: DocIds) -> list[tuple[int, int]]:
        """Return (position, docid) of the documents that the rules pin for the query, each once, in the order of the rules.

        condition: the filter; docids: the documents that it leaves.
        """
        numbers = self.rules.in_force(self.at_moment, parsed, condition)
        return self.rules.pins(reader, self.index_uid, numbers, docids) if numbers else []


# Stored rules


def _compiled(documents: Iterable[tuple[int, Document]], words: TermPositionBuilder) -> Iterator[_Rule]:
    """Yield the active rules by rank."""
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
    pins: list[_Pin] = []
    for action in document.get("actions") or ():
        selector = action["selector"]
        pins.append(_Pin(selector.get("indexUid"), str(selector["id"]), int(action["action"]["position"])))
    start, end = (None if text is None else parse_utc(text) for text in (time.get("start"), time.get("end")))
    return _Rule(start, end, query.get("isEmpty"), [word for word in words.of(query.get("words") or "") if word],
                 held.get("values") or {}, pins)
