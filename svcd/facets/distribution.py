"""How often the documents of an answer have each value of chosen fields, and the range of their numbers.

Knows relevance.md 6.2 and 6.3: what a value is shown as, limits and their quirks; refuses to know which documents
count and how answers of several indexes are merged.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain, islice
from sys import maxsize

from svcd.base import tracing
from svcd.base.bitmaps import DocIds
from svcd.facets.fields import check_facets, selected_fields
from svcd.facets.merging import Facets, subtract_values
from svcd.facets.strategies import FieldCounter
from svcd.facets.value_counts import ValueCount, ValueCounts
from svcd.query.reader import Reader, Value
from svcd.schema.field_values import stored_form

# text -> count; the smallest and the largest number.
_Found = tuple[dict[str, int], tuple[Value, Value] | None]

# Up to so many counted documents `alpha` sorts numbers as texts (relevance.md 0.2).
_SORTED_AS_TEXTS = 3000


def facets_of(reader: Reader, patterns: Sequence[str], counted: DocIds) -> Facets:
    """What the counted documents have under the fields that patterns select. Raises invalid_search_facets."""
    tracing.begin("facet distribution")
    check_facets(reader.settings, patterns)
    names = selected_fields(reader.settings, reader.fields(), patterns)
    facets = Facets(orders={name: reader.settings.faceting.order_of(name) for name in names})
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
    return reader.cached(("facets", *orders.items(), reader.settings.faceting.max_values), find)


def subtract(facets: Facets, reader: Reader, docid: int) -> None:
    """Take the values of one document out of the counts, as far as they are shown; what nobody has left is not."""
    for name, shown in facets.distribution.items():
        for _, values in reader.values.field_values(name, [docid]):
            numbers = {number_text(value) for value in values if isinstance(value, float)}
            subtract_values(shown, [text for text in shown if text in numbers or stored_form(text) in values])


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
        self._most = reader.settings.faceting.max_values

    def found(self, counted: DocIds) -> _Found:
        """What the counted documents have."""
        counting = FieldCounter(self._reader, self._name, counted)
        numbers, texts = counting.of(float), counting.of(str)
        return self._shown(numbers, texts, counted.bit_count()), numbers.extremes()

    def _shown(self, numbers: ValueCounts, texts: ValueCounts, counted: int) -> dict[str, int]:
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

    def _cut_first(self, numbers: ValueCounts, texts: ValueCounts) -> dict[str, int]:
        """The first numbers, sorted as texts, and as many texts as are missing to the limit."""
        shown = dict(sorted(self._numbers(numbers, numbers.ascending()))[: self._most])
        room = self._most - len(shown)
        shown.update(self._texts(texts, islice(texts.ascending(room), room)))
        return shown

    def _ordered(self, counting: ValueCounts) -> Iterator[ValueCount]:
        if not self._is_by_count:
            return counting.ascending(self._most or None)
        return by_count(counting, self._most or maxsize)

    def _numbers(self, numbers: ValueCounts, entries: Iterable[ValueCount]) -> Iterator[tuple[str, int]]:
        return ((number_text(numbers.value(entry)), entry.count) for entry in entries)  # type: ignore[arg-type]  # floats

    def _texts(self, texts: ValueCounts, entries: Iterable[ValueCount]) -> Iterator[tuple[str, int]]:
        spelling, name = self._reader.values.spelling, self._name
        return ((spelling(name, str(texts.value(entry)), texts.first(entry)), entry.count) for entry in entries)


# In which order the values of a field are shown (relevance.md 6.2).
#
# Knows `alpha` and `count` with their ties; refuses to know limits and how counts are found.


# A tree stands over the values of a field: groups of four, groups of four groups and so on, as long as there are
# twenty on the level beneath.
GROUP = 4
LEAST = 20


def by_count(counting: ValueCounts, most: int) -> Iterator[ValueCount]:
    """By count, the highest first; of equal ones the largest value first, but for what the tree makes of it.

    most: see Counting.by_count.

    The reference opens the tree from above: always what counts most, of equals what is on the lowest level, there the
    largest value. A value is met when the groups around it are open, and a group that counts no more than the value
    is opened when nothing of this count is left on the levels beneath. So of equal values come first those whose
    groups all count more, then those whose group on the first level counts no more, then those of which the second
    level says so.
    """
    for together in counting.by_count(most):
        yield from _met(counting, iter(together))


def _met(counting: ValueCounts, together: Iterator[ValueCount]) -> Iterator[ValueCount]:
    """Entries of equal count, which come descending, in the order in which they are met; asks no more than needed."""
    first = list(islice(together, 2))
    waiting: Iterable[ValueCount] = chain(first, together)
    if len(first) > 1:
        for width in _group_widths(counting.values_of_field()):
            equal: list[ValueCount] = []
            for entry in waiting:
                if counting.is_alone(entry, width):
                    equal.append(entry)
                else:
                    yield entry
            waiting = equal
    yield from waiting


def _group_widths(values: int) -> Iterator[int]:
    """How many values a group holds, level by level upwards."""
    width = 1
    while values >= LEAST:
        values = -(-values // GROUP)
        width *= GROUP
        yield width
