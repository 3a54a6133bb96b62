"""How often the documents of an answer have each value of chosen fields, and the range of their numbers.

Knows relevance.md 6.2 and 6.3: what a value is shown as, limits and their quirks; refuses to know which documents
count and how answers of several indexes are merged.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from sys import maxsize

from svcd.engine import steps
from svcd.engine.facets.counting import Counting, Entry
from svcd.engine.facets.field_counting import FieldCounting
from svcd.engine.facets.fields import check_facets, order_of, selected_fields
from svcd.engine.facets.orders import by_count
from svcd.engine.facets.values import ranks
from svcd.engine.field_values import stored_form
from svcd.engine.merged_facets import take_from
from svcd.engine.reader import DocIds, Reader, Value
from svcd.engine.request import Facets

# Up to so many counted documents `alpha` sorts numbers as texts (relevance.md 0.2).
_SORTED_AS_TEXTS = 3000


def facets_of(reader: Reader, patterns: Sequence[str], counted: DocIds) -> Facets:
    """What the counted documents have under the fields that patterns select. Raises invalid_search_facets."""
    steps.begin("facet distribution")
    check_facets(reader.settings, patterns)
    facets = Facets()
    for name in selected_fields(reader.settings, reader.fields(), patterns):
        facets.orders[name] = order_of(reader.settings, name)
        counting = FieldCounting(reader, name, counted)
        numbers, texts = counting.of(float), counting.of(str)
        facets.distribution[name] = _Field(reader, name, facets.orders[name]).shown(numbers, texts, counted.bit_count())
        extremes = numbers.extremes()
        if extremes is not None:
            facets.stats[name] = {"min": extremes[0], "max": extremes[1]}
    return facets


def subtract(facets: Facets, reader: Reader, docid: int) -> None:
    """Take the values of one document out of the counts, as far as they are shown; what nobody has left is not."""
    for name, shown in facets.distribution.items():
        for _, values in reader.field_values(name, [docid]):
            numbers = {number_text(value) for value in values if isinstance(value, float)}
            take_from(shown, [text for text in shown if text in numbers or stored_form(text) in values])


def number_text(number: float) -> str:
    """The shortest decimal digits of a number, with neither exponent nor `.0`."""
    digits = repr(number)
    if "e" in digits:
        digits = format(Decimal(digits), "f")
    return digits.removesuffix(".0")


class _Field:
    """One field of an index, whose values are shown in one order."""

    def __init__(self, reader: Reader, name: str, order: str) -> None:
        self._reader = reader
        self._name = name
        self._is_by_count = order == "count"
        self._most = reader.settings["faceting"]["maxValuesPerFacet"]

    def shown(self, numbers: Counting, texts: Counting, counted: int) -> dict[str, int]:
        """text -> count, numbers first; a text that looks like a number has its place, and its own count."""
        if not self._is_by_count and counted <= _SORTED_AS_TEXTS:
            return self._cut_first(numbers, texts)
        shown: dict[str, int] = {}
        for entries in (self._numbers(self._ordered(numbers, float)), self._texts(texts, self._ordered(texts, str))):
            for text, count in entries:
                shown[text] = count
                # Numbers that fill it let all texts in, as does a limit of 0 (relevance.md 6.2: quirk).
                if len(shown) == self._most:
                    break
        return shown

    def _cut_first(self, numbers: Counting, texts: Counting) -> dict[str, int]:
        """The first numbers, sorted as texts, and as many texts as are missing to the limit."""
        shown = dict(sorted(self._numbers(numbers.ascending()))[: self._most])
        room = self._most - len(shown)
        shown.update(self._texts(texts, islice(texts.ascending(room), room)))
        return shown

    def _ordered(self, counting: Counting, kind: type[Value]) -> Iterator[Entry]:
        if not self._is_by_count:
            return counting.ascending(self._most or None)
        return by_count(counting, lambda: ranks(self._reader, self._name, kind), self._most or maxsize)

    def _numbers(self, entries: Iterable[Entry]) -> Iterator[tuple[str, int]]:
        return ((number_text(entry.value), entry.count) for entry in entries)  # type: ignore[arg-type]

    def _texts(self, texts: Counting, entries: Iterable[Entry]) -> Iterator[tuple[str, int]]:
        spelling, name = self._reader.spelling, self._name
        return ((spelling(name, entry.value, texts.first(entry)), entry.count) for entry in entries)  # type: ignore
