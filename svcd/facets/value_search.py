"""Search among the texts of one field: which of them begin almost like a query, and how many documents have them.

Knows relevance.md 6.4; refuses to know how the documents are found that are counted.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from svcd.base.bitmaps import DocIds
from svcd.facets.fields import check_searchable
from svcd.facets.fuzzy_prefix import normalized_values, query_locales, search_form, values_near_prefix
from svcd.facets.strategies import FieldCounter
from svcd.facets.value_counts import DOCUMENT_COST, ValueCount, ValueCounts, lowest_docid
from svcd.facets.values import sorted_values
from svcd.query.reader import Reader

# Characters of a query that are read. No value has so many: what an index keeps of one has 468 bytes.
LONGEST_QUERY = 4096


@dataclass(frozen=True, slots=True)
class FacetQuery:
    """field: where to search. text: what to search, None for all values. locales: languages it may be in."""

    field: str
    text: str | None = None
    locales: Sequence[str] | None = None


class FacetHit(NamedTuple):
    """A text as the document of the smallest docid spells it, and how many of the counted documents have it."""

    value: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of a hit


def search_values(reader: Reader, query: FacetQuery, counted: DocIds) -> list[FacetHit]:
    """The texts of a field that a query finds, with their counts among some documents.

    Raises invalid_facet_search_facet_name.
    """
    check_searchable(reader.settings, query.field)
    if not reader.values.kind_docids(query.field, str):
        return []
    search, most = _Search(reader, query, counted), reader.settings.faceting.max_values
    if not most:
        return []
    if reader.settings.faceting.order_of(query.field) == "alpha":
        return [search.hit(*found) for found in islice(search.in_order(most), most)]
    return _best(search, most)


def _best(search: _Search, most: int) -> list[FacetHit]:
    """The hits with the highest counts, of equal ones the last text first.

    Which ones of equal count stay depends on their order: a full list gives its smallest text for a new one.
    """
    best: list[tuple[int, str]] = []
    for value, count in search.commonest(most):
        if len(best) < most or best[0][0] <= count:
            hit = search.hit(value, count)
            (heapq.heapreplace if len(best) == most else heapq.heappush)(best, (hit.count, hit.value))
    return [FacetHit(value, count) for count, value in sorted(best, reverse=True)]


class _Search:
    """One query among the values that some documents have. Values come with their counts, none of which is 0."""

    def __init__(self, reader: Reader, query: FacetQuery, documents: DocIds) -> None:
        self._reader = reader
        self._field = query.field
        locales = query_locales(reader.settings, query.field, query.locales)
        self._term = None if query.text is None else search_form(query.text[:LONGEST_QUERY], locales)
        self._counting = FieldCounter(reader, query.field, documents)
        everything = reader.values.kind_docids(query.field, str)
        self._documents = documents & everything
        self._is_whole = self._documents == everything

    def in_order(self, most: int | None = None) -> Iterator[tuple[str, int]]:
        """The values found by their search forms, without a query by themselves. most: as many as will be looked at."""
        if not self._documents:
            return iter(())
        if self._term is None:
            counting = self._counting.of(str)
            return _found(counting, counting.ascending(most))
        return self._counted(self._matching(self._term))

    def commonest(self, most: int) -> list[tuple[str, int]]:
        """At least the `most` with the highest counts and all of equal count, in order."""
        if self._term or not self._documents:
            found = list(self.in_order())
            least = min(heapq.nlargest(most, (count for _, count in found)), default=0)
            return [(value, count) for value, count in found if count >= least]
        entries: list[ValueCount] = []
        counting = self._counting.of(str)
        for together in counting.by_count(most):
            entries += together
            if len(entries) >= most:
                break
        return sorted(_found(counting, entries), key=self._order)

    def _order(self, found: tuple[str, int]) -> tuple[str, str]:
        """By the search form of a value, then by the value; by the value alone where there is no query."""
        value = found[0]
        if self._term is None:
            return "", value
        return search_form(value, self._reader.settings.locales_of(self._field)), value

    def hit(self, value: str, count: int) -> FacetHit:
        """A value as it is shown."""
        docid = lowest_docid(self._reader.values.value_docids(self._field, value))
        return FacetHit(self._reader.values.spelling(self._field, value, docid), count)

    def _matching(self, term: str) -> Iterator[str]:
        """The values whose search form begins almost like the term, by their forms."""
        typo_tolerance, forms = self._reader.settings.typo_tolerance, normalized_values(self._reader, self._field)
        has_typos = typo_tolerance.is_enabled and self._field not in typo_tolerance.exact_attributes
        if has_typos and term in typo_tolerance.exact_words:
            return iter(forms.values(term) if forms.has(term) else ())
        # Bytes, where the words of a search count characters (6.4).
        most = typo_tolerance.budget_of_length(len(term.encode())) if has_typos else 0
        return chain.from_iterable(map(forms.values, values_near_prefix(forms.forms, term, most)))

    def _counted(self, values: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Values with their counts: one by one, from the documents themselves if that becomes too much."""
        count_of, patience = self._count, self._documents.bit_count() * DOCUMENT_COST
        if self._is_whole:
            counts, every = self._reader.values.value_counts(self._field, str), sorted_values(self._reader, self._field, str)
            count_of, patience = (lambda value: counts[every.rank(value)]), len(counts)
        for asked, value in enumerate(values):
            if asked == patience:
                counting = self._counting.in_documents(str)
                found = dict(_found(counting, counting.ascending()))
                count_of = partial(_count_in, found)
            count = count_of(value)
            if count:
                yield value, count

    def _count(self, value: str) -> int:
        return (self._reader.values.value_docids(self._field, value) & self._documents).bit_count()


def _found(counting: ValueCounts, entries: Iterable[ValueCount]) -> Iterator[tuple[str, int]]:
    return ((str(counting.value(entry)), entry.count) for entry in entries)


def _count_in(found: Mapping[str, int], value: str) -> int:
    return found.get(value, 0)
