"""One field among the candidates: in which way its values are found.

Knows what each way costs; refuses to know how it goes, and what is done with the values.
"""
from __future__ import annotations

from svcd.base.bitmaps import DocIds
from svcd.facets.by_document import NO_COUNTS, CountsByDocument, counts_by_documents, counts_by_value_sets
from svcd.facets.large_fields import CountsByValueScan
from svcd.facets.value_counts import DOCUMENT_COST, FEW_CANDIDATES, SURELY_FEW, ValueCounts, cost_of_values
from svcd.facets.values import few_values, ordinal_lookup
from svcd.query.reader import Reader, Value


class FieldCounter:
    """The values of both kinds. Documents are looked into once for both."""

    def __init__(self, reader: Reader, field: str, candidates: DocIds) -> None:
        self._reader = reader
        self._field = field
        self._candidates = candidates
        self._size = candidates.bit_count()
        self._looked_into: dict[type[Value], CountsByDocument] | None = None

    def of(self, kind: type[Value]) -> ValueCounts:
        """The values of a kind, found in the quickest way."""
        if self._size <= SURELY_FEW:
            return self.in_documents(kind)
        values, sets = few_values(self._reader, self._field, kind)
        if values is None:
            if self._size <= FEW_CANDIDATES:
                return self.in_documents(kind)
            return self._walked(kind, has_way_out=True)
        if not values:
            return NO_COUNTS
        documents = self._reader.all_docids().bit_length()
        if self._size * DOCUMENT_COST <= cost_of_values(values, sets is not None, documents):
            return self.in_documents(kind)
        if sets is None:
            return self._walked(kind, has_way_out=False)
        return counts_by_value_sets(values, sets, self._candidates, lambda: ordinal_lookup(self._reader, self._field, kind))

    def _walked(self, kind: type[Value], has_way_out: bool) -> CountsByValueScan:
        look_into = (lambda: self.in_documents(kind)) if has_way_out else None
        return CountsByValueScan(self._reader, self._field, kind, self._candidates, self._size, look_into)

    def in_documents(self, kind: type[Value]) -> CountsByDocument:
        """The values of a kind, found by looking into every candidate."""
        if self._looked_into is None:
            self._looked_into = counts_by_documents(self._reader, self._field, self._candidates)
        return self._looked_into[kind]
