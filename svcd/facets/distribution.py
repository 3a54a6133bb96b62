"""Facet distribution and facet stats: count the documents of each value of a field, in an order, up to a limit.

Source: docs/filters-and-facets.md#facet-distribution.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from sys import maxsize

from svcd.base import tracing
from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.base.quantities import shown_number
from svcd.facets.counting import FieldCounter, ValueCount, ValueCounts
from svcd.query.reader import Reader, Value
from svcd.schema.attributes import is_matched, is_related, matches, pattern_test, patterns_of, rule_of, with_parents
from svcd.schema.field_values import stored_form
from svcd.schema.index_settings import IndexSettings

# (value as shown -> count, the smallest and the largest number)
_Distribution = tuple[dict[str, int], tuple[Value, Value] | None]

# Up to SORTED_AS_TEXTS counted documents, `alpha` sorts numbers as texts: clients see this, so it is part of the interface.
SORTED_AS_TEXTS = 3000


def check_facets(settings: IndexSettings, patterns: Iterable[str]) -> None:
    """Check that every pattern can match a filterable attribute.

    Raises invalid_search_facets for the first pattern that cannot; the caller adds index and parameter to the message.
    """
    filterable = settings.filterable
    for pattern in dict.fromkeys(patterns):
        for number, entry in enumerate(filterable.listed):
            rule = rule_of(number, entry)
            # A rule with filtering decides if some attribute may match both, or be inside the other; else if it matches all.
            if is_matched(pattern, entry) or rule.is_filterable and any(
                    matches(other, pattern) or is_related(pattern, other) for other in patterns_of(entry)):
                break
        else:
            known = filterable.patterns()
            available = (f"Available filterable attributes patterns are: `{', '.join(known)}`." if known
                         else "This index does not have configured filterable attributes.")
            raise _invalid_facets(f"Pattern `{pattern}` is not filterable. {available}")
        if not rule.is_filterable:
            raise _invalid_facets(
                f"Attribute `{pattern}` matched rule #{rule.number} in filterableAttributes, but this rule does not enable"
                f" filtering.\nHint: enable filtering in rule #{rule.number} by modifying the features.filter object"
                f"\nHint: prepend another rule matching `{pattern}` with appropriate filter features before rule #{rule.number}")


def _invalid_facets(reason: str) -> ApiError:
    return ApiError("invalid_search_facets", f"Invalid facet distribution: {reason}")


def selected_fields(settings: IndexSettings, known: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the fields that patterns select, in byte order: filterable fields that match, and filterable fields inside them.

    known: all attributes that some document has had.
    """
    filterable, fields, is_wanted = settings.filterable, list(known), pattern_test(patterns)
    chosen = {field for field in fields if is_wanted(field) and field in filterable}
    return sorted(field for field in fields if not chosen.isdisjoint(with_parents(field)) and field in filterable)


def facets_of(reader: Reader, patterns: Sequence[str], counted: DocIds) -> Facets:
    """Return the distribution and stats of the fields that patterns select. Raises invalid_search_facets.

    Distributions of all documents, which the start page of many sites shows, are cached: all fields in one entry, which enters
    the cache after the values that were read for it, and so is not evicted before them.
    """
    tracing.begin("facet distribution")
    check_facets(reader.settings, patterns)
    names, faceting = selected_fields(reader.settings, reader.fields(), patterns), reader.settings.faceting
    facets = Facets(orders={name: faceting.order_of(name) for name in names})

    def find() -> tuple[_Distribution, ...]:
        return tuple(_Field(reader, name, order).found(counted) for name, order in facets.orders.items())

    if counted != reader.all_docids():
        found = find()
    else:
        found = reader.cached(("facets", *facets.orders.items(), faceting.max_values), find)
    for name, (shown, extremes) in zip(names, found):
        facets.distribution[name] = dict(shown)
        if extremes is not None:
            facets.stats[name] = {"min": float(extremes[0]), "max": float(extremes[1])}
    return facets


def frequent_values(reader: Reader, names: Iterable[str], counted: DocIds, most: int) -> dict[str, list[str]]:
    """Return field -> its values as shown, numbers first, the most frequent of each kind first; at most `most` of a field.

    Values among all documents are cached, because a chat sends them to its model again and again.
    """
    fields = tuple(names)

    def find() -> tuple[list[str], ...]:
        return tuple(_Field(reader, name, COUNT, most).frequent(counted) for name in fields)

    found = find() if counted != reader.all_docids() else reader.cached(("frequent values", fields, most), find)
    return dict(zip(fields, found))


def subtract(facets: Facets, reader: Reader, docid: int) -> None:
    """Subtract the values of one document from the shown counts; values that reach 0 are removed."""
    for name, shown in facets.distribution.items():
        for _, values in reader.values.field_values(name, [docid]):
            numbers = {shown_number(value) for value in values if isinstance(value, float)}
            subtract_values(shown, [text for text in shown if text in numbers or stored_form(text) in values])


class _Field:
    """The distribution of one field in one order."""

    def __init__(self, reader: Reader, name: str, order: str, most: int | None = None) -> None:
        """most: the number of values to show; None for the setting."""
        self._reader = reader
        self._name = name
        self._is_by_count = order == "count"
        self._most = reader.settings.faceting.max_values if most is None else most

    def found(self, counted: DocIds) -> _Distribution:
        """Return the distribution among some documents."""
        counts = FieldCounter(self._reader, self._name, counted)
        numbers, texts = counts.of(float), counts.of(str)
        return self._shown(numbers, texts, len(counted)), numbers.extremes()

    def frequent(self, counted: DocIds) -> list[str]:
        """Return the values as shown, in their order, numbers first, up to the limit."""
        counts = FieldCounter(self._reader, self._name, counted)
        numbers, texts = counts.of(float), counts.of(str)
        ordered = chain(self._numbers(numbers, self._ordered(numbers)), self._texts(texts, self._ordered(texts)))
        shown: dict[str, int] = {}
        for text, count in ordered:
            shown[text] = count
            if len(shown) == self._most:
                break
        return list(shown)

    def _shown(self, numbers: ValueCounts, texts: ValueCounts, counted: int) -> dict[str, int]:
        """Return value as shown -> count, numbers first. A text that equals a shown number replaces its count in place."""
        shown: dict[str, int] = {}
        if not self._is_by_count and counted <= SORTED_AS_TEXTS:
            # All numbers sorted as texts and cut to the limit, then texts up to the limit.
            shown = dict(sorted(self._numbers(numbers, numbers.ascending()))[: self._most])
            room = self._most - len(shown)
            shown.update(self._texts(texts, islice(texts.ascending(room), room)))
            return shown
        for ordered in (self._numbers(numbers, self._ordered(numbers)), self._texts(texts, self._ordered(texts))):
            for text, count in ordered:
                shown[text] = count
                # The test for equality, after an insertion, is part of the interface: numbers that fill the limit
                # exactly let all texts in, and so does a limit of 0.
                if len(shown) == self._most:
                    break
        return shown

    def _ordered(self, counts: ValueCounts) -> Iterator[ValueCount]:
        if not self._is_by_count:
            return counts.ascending(self._most or None)
        return by_count(counts, self._most or maxsize)

    def _numbers(self, numbers: ValueCounts, ordered: Iterable[ValueCount]) -> Iterator[tuple[str, int]]:
        return ((shown_number(numbers.value(counted)), counted.count) for counted in ordered)  # type: ignore[arg-type]  # floats

    def _texts(self, texts: ValueCounts, ordered: Iterable[ValueCount]) -> Iterator[tuple[str, int]]:
        values, name = self._reader.values, self._name
        known = values.spellings(name)
        for counted in ordered:
            text = str(texts.value(counted))
            yield known.get(text) or values.spelling(name, text, texts.first_docid(counted)), counted.count


# Order by count

# Equal counts come in the order of a tree over the values of a field: groups of four values, groups of four groups
# and so on, while the level below has at least twenty entries. Clients see this order, so it is part of the interface.
GROUP_SIZE = 4
LEAST_GROUPED = 20


def by_count(counts: ValueCounts, most: int) -> Iterator[ValueCount]:
    """Yield values by descending count, equal counts in the order of the tree. most: see ValueCounts.by_count.

    The order follows a best-first search. It starts with the highest groups, and always opens the group (or emits the
    value) with the largest count; among equal counts the lowest level first, and there the largest value. A group whose
    count equals the count of one of its values is opened after all values with this count in opened groups. So equal counts
    come in this order: values whose groups all count more, then values whose group on the first level counts no more, then
    values whose group on the second level counts no more, and so on.
    """
    for equal in counts.by_count(most):
        descending = iter(equal)
        two = list(islice(descending, 2))
        pending: Iterable[ValueCount] = chain(two, descending)
        values, width = counts.number_of_values() if len(two) > 1 else 0, 1
        while values >= LEAST_GROUPED:
            values, width = -(-values // GROUP_SIZE), width * GROUP_SIZE  # groups of the level, values in each
            later: list[ValueCount] = []
            for counted in pending:
                if counts.is_alone_in_group(counted, width):
                    later.append(counted)
                else:
                    yield counted
            pending = later
        yield from pending


# Merge the facets of several indexes: add up counts, and require equal orders of a facet.
# Source: docs/filters-and-facets.md#merging-across-indexes.

ALPHA, COUNT = "alpha", "count"
_ORDER_TEXTS = {ALPHA: "alphabetically", COUNT: "by count"}


@dataclasses.dataclass(slots=True)
class Facets:
    """The facets of one index.

    distribution: field -> value as shown -> count. stats: field -> "min" and "max" of its numbers. orders: field ->
    `alpha` or `count`. Fields are in byte order, values in the order of their field.
    """

    distribution: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    stats: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    orders: dict[str, str] = dataclasses.field(default_factory=dict)


class FacetOrders:
    """The order of the values of each facet, which must be the same in all indexes."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, str]] = {}  # facet: (the first index that has it, its order)

    def add(self, index_uid: str, facet: str, order: str) -> None:
        """Check the order of a facet of an index, ALPHA or COUNT. Raises invalid_multi_search_facet_order."""
        before, expected = self._first.setdefault(facet, (index_uid, order))
        if order != expected:
            raise ApiError(
                "invalid_multi_search_facet_order",
                f"Inconsistent order for values in facet `{facet}`: index `{before}` orders {_ORDER_TEXTS[expected]},"
                f" but index `{index_uid}` orders {_ORDER_TEXTS[order]}.\n"
                " - Hint: Remove `federation.mergeFacets` or change `faceting.sortFacetValuesBy` to be consistent in settings.",
            )


def merged_facets(by_index: Iterable[Facets], most: int | None = None) -> Facets:
    """Return facets with counts added up by the value as shown, and the smallest and largest numbers of all indexes.

    most: the number of values to show for a field, None for all. Equal counts ascend by text.
    """
    counted = list(by_index)
    orders = {field: order for facets in reversed(counted) for field, order in facets.orders.items()}
    totals: dict[str, dict[str, int]] = {}
    stats: dict[str, dict[str, float]] = {}
    for facets in counted:
        for field, counts in facets.distribution.items():
            total = totals.setdefault(field, {})
            for text, count in counts.items():
                total[text] = total.get(text, 0) + count
        for field, own in facets.stats.items():
            known = stats.setdefault(field, own)
            stats[field] = {"min": min(known["min"], own["min"]), "max": max(known["max"], own["max"])}
    distribution: dict[str, dict[str, int]] = {}
    for field in sorted(totals):
        listed = sorted(totals[field].items())
        if orders.get(field) == COUNT:
            listed.sort(key=lambda counted: -counted[1])
        distribution[field] = dict(listed[:most])
    return Facets(distribution, {field: stats[field] for field in sorted(stats)}, orders)


def subtract_values(counts: dict[str, int], texts: Iterable[str]) -> None:
    """Subtract a document with these values from the counts; values that reach 0 are removed."""
    for text in texts:
        if text in counts:
            counts[text] -= 1
            if not counts[text]:
                del counts[text]
