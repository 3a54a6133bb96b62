"""How often the documents of an answer have each value of chosen fields, and the range of their numbers.

Knows relevance.md 6.2 and 6.3: what a value is shown as, limits and their quirks; refuses to know which documents
count and how answers of several indexes are merged.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from sys import maxsize

from svcd.engine import steps
from svcd.engine.facets.counting import Counting, Entry
from svcd.engine.facets.field_counting import FieldCounting
from svcd.engine.facets.fields import check_facets, order_of, selected_fields
from svcd.engine.facets.orders import by_count
from svcd.engine.field_values import stored_form
from svcd.engine.merged_facets import take_from
from svcd.engine.reader import DocIds, Reader, Value
from svcd.engine.request import Facets

# text -> count; the smallest and the largest number.
_Found = tuple[dict[str, int], tuple[Value, Value] | None]

# Up to so many counted documents `alpha` sorts numbers as texts (relevance.md 0.2).
_SORTED_AS_TEXTS = 3000


def facets_of(reader: Reader, patterns: Sequence[str], counted: DocIds) -> Facets:
    """What the counted documents have under the fields that patterns select. Raises invalid_search_facets."""
    steps.begin("facet distribution")
    check_facets(reader.settings, patterns)
    names = selected_fields(reader.settings, reader.fields(), patterns)
    facets = Facets(orders={name: order_of(reader.settings, name) for name in names})
    for name, (shown, extremes) in zip(names, _found(reader, facets.orders, counted)):
        facets.distribution[name] = dict(shown)
        if extremes is not None:
            facets.stats[name] = {"min": float(extremes[0]), "max": float(extremes[1])}
    return facets


def _found(reader: Reader, orders: Mapping[str, str], counted: DocIds) -> Sequence[_Found]:
    """What the counted documents have under some fields.

    What all documents have, as the first page of many a site shows it, is remembered: for all fields together, so that
    it is put away behind what was read to find it, and does not go before that.
    """
    def find() -> tuple[_Found, ...]:
        return tuple(_Field(reader, name, order).found(counted) for name, order in orders.items())

    if counted != reader.all_docids():
        return find()
    return reader.remembered(("facets", *orders.items(), reader.settings["faceting"]["maxValuesPerFacet"]), find)


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

    def found(self, counted: DocIds) -> _Found:
        """What the counted documents have."""
        counting = FieldCounting(self._reader, self._name, counted)
        numbers, texts = counting.of(float), counting.of(str)
        return self._shown(numbers, texts, counted.bit_count()), numbers.extremes()

    def _shown(self, numbers: Counting, texts: Counting, counted: int) -> dict[str, int]:
        """text -> count, numbers first; a text that looks like a number has its place, and its own count."""
        if not self._is_by_count and counted <= _SORTED_AS_TEXTS:
            return self._cut_first(numbers, texts)
        shown: dict[str, int] = {}
        for entries in (self._numbers(numbers, self._ordered(numbers)), self._texts(texts, self._ordered(texts))):
            for text, count in entries:
                shown[text] = count
                # Numbers that fill it let all texts in, as does a limit of 0 (relevance.md 6.2: quirk).
                if len(shown) == self._most:
                    break
        return shown

    def _cut_first(self, numbers: Counting, texts: Counting) -> dict[str, int]:
        """The first numbers, sorted as texts, and as many texts as are missing to the limit."""
        shown = dict(sorted(self._numbers(numbers, numbers.ascending()))[: self._most])
        room = self._most - len(shown)
        shown.update(self._texts(texts, islice(texts.ascending(room), room)))
        return shown

    def _ordered(self, counting: Counting) -> Iterator[Entry]:
        if not self._is_by_count:
            return counting.ascending(self._most or None)
        return by_count(counting, self._most or maxsize)

    def _numbers(self, numbers: Counting, entries: Iterable[Entry]) -> Iterator[tuple[str, int]]:
        return ((number_text(numbers.value(entry)), entry.count) for entry in entries)  # type: ignore[arg-type]  # floats

    def _texts(self, texts: Counting, entries: Iterable[Entry]) -> Iterator[tuple[str, int]]:
        spelling, name = self._reader.spelling, self._name
        return ((spelling(name, str(texts.value(entry)), texts.first(entry)), entry.count) for entry in entries)
