"""Facet search: find the texts of one field that begin with a query, typos allowed, and count their documents.

Source: docs/filters-and-facets.md#facet-search.
"""
from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
from typing import Any, NamedTuple

from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.facets.counting import DOCUMENT_COST, FieldCounter, ValueCount, ValueCounts
from svcd.facets.values import Packed, SortedTexts, pack, sorted_values
from svcd.query.reader import Reader
from svcd.query.stems import stem_and_start
from svcd.schema.attributes import attribute_list, is_everything
from svcd.schema.index_settings import IndexSettings
from svcd.text.analyzer import lemma_of
from svcd.text.scripts import detect_language, script_of_whole
from svcd.text.stemming import stems
from svcd.validation.names import long_form

# Find the texts of a sorted list that begin with a term, up to a number of typos.
#
# The list is not compared text by text: a prefix within the distance decides for all texts that begin with it, and so
# does a prefix that is too far away. (svcd.query finds words with typos by other means; tests compare the two.)

_LOWEST, _HIGHEST = "\0", "\U0010ffff"
_FIRST_WORD = re.compile(r"\w+")

# The verdict of a prefix of a text: about all texts with the prefix, or about this text alone.
_ALL_NEAR, _NONE_NEAR, _THIS_NEAR, _THIS_NOT = range(4)


def values_near_prefix(texts: SortedTexts, term: str, most: int) -> Iterator[str]:
    """Yield the texts with a prefix within `most` typos of the term, in ascending order.

    A typo in the first letter counts like any other. With `most` 0: the texts that begin with the term.
    """
    alignment = _Alignment(term, most)
    ordinal, text = texts.seek("")
    while text is not None:
        length, verdict = alignment.look(text)
        if verdict == _ALL_NEAR:
            prefix = text[:length]
            yield from takewhile(lambda found: found.startswith(prefix), texts.from_ordinal(ordinal))  # noqa: B023 (consumed in this iteration)
        elif verdict == _THIS_NEAR:
            yield text
        following = text + _LOWEST
        if verdict in (_ALL_NEAR, _NONE_NEAR):  # the smallest text that is larger than all texts with this prefix
            trimmed = text[:length].rstrip(_HIGHEST)
            following = trimmed[:-1] + chr(ord(trimmed[-1]) + 1) if trimmed else ""
        if not following:
            return
        ordinal, text = texts.seek(following)


def values_with_stem(texts: SortedTexts, word: str, languages: Sequence[str]) -> Iterator[str]:
    """Yield the texts whose first word has the stem of a word in any of some languages; a text may come more than once."""
    for language in languages:
        stem, start = stem_and_start(word, language)
        if start:
            ordinal, _ = texts.seek(start)
            for text in takewhile(lambda found: found.startswith(start), texts.from_ordinal(ordinal)):  # noqa: B023 (consumed in this iteration)
                first = _FIRST_WORD.match(text)
                if first and stems(first[0], (language,)) == (stem,):
                    yield text


class _Alignment:
    """The edit distances between prefixes of the term and prefixes of the current text.

    A column belongs to one prefix of the text, of i characters; its cell k belongs to the first i + k - most characters of
    the term. Other prefixes of the term are more than `most` away, so a long term costs no more than a short one. Columns of
    the prefix that a text shares with the previous text are kept.
    """

    def __init__(self, term: str, most: int) -> None:
        self._term = term
        self._most = most
        self._far = most + 1
        self._text = ""
        self._columns = [[row if 0 <= row <= len(term) else self._far for row in range(-most, most + 1)]]

    def look(self, text: str) -> tuple[int, int]:
        """Return the length of the prefix that decides, and its verdict."""
        common, known = 0, min(len(text), len(self._columns) - 1)
        while common < known and text[common] == self._text[common]:
            common += 1
        del self._columns[common + 1 :]
        self._text = text
        while True:
            length = len(self._columns) - 1
            cells = self._columns[-1]
            place = len(self._term) - length + self._most
            whole = cells[place] if 0 <= place < len(cells) else self._far  # distance from the whole term to the prefix
            nearest = min(cells)
            if whole == nearest <= self._most:
                return length, _ALL_NEAR
            # A transposition reaches back two columns at the cost of one.
            if length and nearest > self._most <= min(self._columns[-2]):
                return length, _NONE_NEAR
            if length == len(text):
                return length, _THIS_NEAR if whole <= self._most else _THIS_NOT
            self._columns.append(self._next(text, length))

    def _next(self, text: str, length: int) -> list[int]:
        """Return the column after the column of `length` characters: optimal string alignment distance."""
        term, far, last = self._term, self._far, self._columns[-1]
        cells: list[int] = []
        above = far
        for place, row in enumerate(range(length + 1 - self._most, length + 2 + self._most)):
            if row < 0 or row > len(term):
                above = far
            elif row and term[row - 1] == text[length]:
                above = last[place]
            else:
                distances = [above + 1, far if place + 1 == len(last) else last[place + 1] + 1]
                if row:
                    distances.append(last[place] + 1)
                if row > 1 and length and term[row - 2 : row] == text[length] + text[length - 1]:
                    distances.append(self._columns[-2][place] + 1)
                above = min(*distances, far)
            cells.append(above)
        return cells


# Characters of a query that are used. No value is longer: an index stores 468 bytes of each.
LONGEST_QUERY = 4096


class FacetQuery(NamedTuple):
    """A facet query. field: the field to search. text: None for all values. locales: languages of the text."""

    field: str
    text: str | None = None
    locales: Sequence[str] | None = None


class FacetHit(NamedTuple):
    """A value as the document with the smallest docid spells it, and the number of counted documents that have it."""

    value: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used


def check_enabled(settings: IndexSettings) -> None:
    """Check that the index has facet search. Raises facet_search_disabled."""
    if not settings.has_facet_search:
        raise ApiError("facet_search_disabled", "The facet search is disabled for this index")


def check_searchable(settings: IndexSettings, field: str) -> None:
    """Check that the values of an attribute may be searched. Raises invalid_facet_search_facet_name."""
    rule = settings.filterable.rule(field)
    if rule is not None and rule.facet_search:
        return
    if rule is not None:
        reason = (f"Note: this attribute matches rule #{rule.number} in filterableAttributes, but this rule does not enable"
                  f' facetSearch.\nHint: enable facetSearch in rule #{rule.number} by adding `"facetSearch": true` to the rule.'
                  f"\nHint: prepend another rule matching {field} with facetSearch: true before rule #{rule.number}")
    else:
        known, displayed = settings.filterable.patterns(lambda rule: rule.facet_search), settings.displayed_attributes
        available = "This index does not have configured facet-searchable attributes."
        if any(is_everything(displayed) or pattern in (displayed or ()) for pattern in known):
            available = f"Available facet-searchable attributes patterns are: `{attribute_list(known, displayed)}`."
        reason = f"{available} To make it facet-searchable add it to the `filterableAttributes` index settings."
    raise ApiError("invalid_facet_search_facet_name", f"Attribute `{field}` is not facet-searchable. {reason}")


def search_values(reader: Reader, query: FacetQuery, counted: DocIds) -> list[FacetHit]:
    """Return the values of a field that a facet query finds, with their counts among some documents.

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
    # The highest counts; equal counts in descending order of their text. The order in which equal counts are found decides
    # which are kept: a full list drops its smallest text for a new one.
    best: list[tuple[int, str]] = []
    for value, count in search.commonest(most):
        if len(best) < most or best[0][0] <= count:
            hit = search.hit(value, count)
            (heapq.heapreplace if len(best) == most else heapq.heappush)(best, (hit.count, hit.value))
    return [FacetHit(value, count) for count, value in sorted(best, reverse=True)]


class _Search:
    """One facet query among the values of some documents. Values without such documents are left out."""

    def __init__(self, reader: Reader, query: FacetQuery, documents: DocIds) -> None:
        self._reader = reader
        self._field = query.field
        locales = reader.settings.locales_of(query.field)
        if locales is not None and query.locales is not None:
            codes = set(map(long_form, query.locales))
            locales = [locale for locale in locales if long_form(locale) in codes]
        self._term = None if query.text is None else search_form(query.text[:LONGEST_QUERY], locales)
        self._counter = FieldCounter(reader, query.field, documents)
        with_text = reader.values.kind_docids(query.field, str)
        self._documents = documents & with_text
        self._is_whole = self._documents == with_text

    def in_order(self, most: int | None = None) -> Iterator[tuple[str, int]]:
        """Yield values and counts in the order of their search forms, or of the values without a query. most: read at most."""
        if not self._documents:
            return iter(())
        if self._term is not None:
            return self._counted(self._values_near(self._term))
        counts = self._counter.of(str)
        return _found(counts, counts.ascending(most))

    def commonest(self, most: int) -> list[tuple[str, int]]:
        """Return the `most` values with the highest counts, and all values with the count of the last one, in order."""
        if self._term or not self._documents:
            found = list(self.in_order())
            least = min(heapq.nlargest(most, (count for _, count in found)), default=0)
            return [(value, count) for value, count in found if count >= least]
        entries: list[ValueCount] = []
        counts = self._counter.of(str)
        for equal in counts.by_count(most):
            entries += equal
            if len(entries) >= most:
                break
        locales_of, is_by_form = self._reader.settings.locales_of, self._term is not None
        return sorted(_found(counts, entries), key=lambda found: (
            search_form(found[0], locales_of(self._field)) if is_by_form else "", found[0]))

    def hit(self, value: str, count: int) -> FacetHit:
        """Return the hit of a value, as spelled by the first document of the whole index that has it."""
        docid = self._reader.values.value_docids(self._field, value).min()
        return FacetHit(self._reader.values.spelling(self._field, value, docid), count)

    def _values_near(self, term: str) -> Iterator[str]:
        """Return the values whose search form begins with the term, typos allowed, in the order of their forms."""
        typo_tolerance, forms = self._reader.settings.typo_tolerance, normalized_values(self._reader, self._field)
        has_typos = typo_tolerance.is_enabled and self._field not in typo_tolerance.exact_attributes
        if has_typos and term in typo_tolerance.exact_words:
            return iter(forms.values(term) if forms.has(term) else ())
        # In bytes, although the words of a search are measured in characters (6.4).
        most = typo_tolerance.budget_of_length(len(term.encode())) if has_typos else 0
        found = values_near_prefix(forms.forms, term, most)
        languages = self._reader.settings.stemming.languages_of(self._field)
        if languages and term.isalpha():
            found = iter(sorted({*found, *values_with_stem(forms.forms, term, languages)}))
        return chain.from_iterable(map(forms.values, found))

    def _counted(self, values: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Yield values with their counts: looked up one by one, until reading all documents is cheaper."""
        count_of: Callable[[str], int] = lambda value: (  # noqa: E731
            self._reader.values.value_docids(self._field, value).intersection_cardinality(self._documents))
        most_lookups = len(self._documents) * DOCUMENT_COST
        if self._is_whole:
            all_counts = self._reader.values.value_counts(self._field, str)
            all_values = sorted_values(self._reader, self._field, str)
            count_of, most_lookups = (lambda value: all_counts[all_values.ordinal(value)]), len(all_counts)
        for lookups, value in enumerate(values):
            if lookups == most_lookups:
                counts = self._counter.by_documents(str)
                found = dict(_found(counts, counts.ascending()))
                count_of = lambda value: found.get(value, 0)  # noqa: E731, B023 (assigned once)
            count = count_of(value)
            if count:
                yield value, count


def _found(counts: ValueCounts, entries: Iterable[ValueCount]) -> Iterator[tuple[str, int]]:
    return ((str(counts.value(entry)), entry.count) for entry in entries)


# Search forms

def search_form(text: str, locales: Sequence[str] | None) -> str:
    """Return the lemma of a text taken as one token. locales: the languages to detect its own among; None to detect none."""
    if text.isascii() and text.isprintable():
        return text.lower()
    script = script_of_whole(text)
    return lemma_of(text, script, detect_language(text, script, locales) if locales else None)


class NormalizedValues(NamedTuple):
    """The search forms of the values of a field.

    forms: each once. others: form -> its values, unless the form itself is its only value.
    """

    forms: SortedTexts
    others: Mapping[str, Sequence[str]]

    def has(self, form: str) -> bool:
        """Return whether any value has this form."""
        ordinal = self.forms.ordinal(form)
        return ordinal < len(self.forms) and self.forms[ordinal] == form

    def values(self, form: str) -> Sequence[str]:
        """Return the values of a form, in byte order."""
        return self.others.get(form) or (form,)


def normalized_values(reader: Reader, field: str) -> NormalizedValues:
    """Return the search forms of the texts of a field; cached."""
    locales = reader.settings.locales_of(field)

    def find() -> tuple[Packed, dict[str, list[str]]]:
        values_of: dict[str, list[str]] = {}
        values: Sequence[Any] = reader.values.distinct_values(field, str)
        for value in values:
            values_of.setdefault(search_form(value, locales), []).append(value)
        others = {form: several for form, several in values_of.items() if several != [form]}
        return pack(sorted(values_of)), others

    packed, others = reader.cached(("facet forms", field, *(locales or ())), find)
    return NormalizedValues(SortedTexts(packed), others)
