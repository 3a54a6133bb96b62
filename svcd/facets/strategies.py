"""One field among the candidates: in which way its values are found.

Knows what each way costs; refuses to know how it goes, and what is done with the values.
"""
from __future__ import annotations

from svcd.facets.by_document import NOTHING, Gathered, looked_into, tried
from svcd.facets.by_value import Walked
from svcd.facets.value_counts import DOCUMENT_COST, FEW_CANDIDATES, SURELY_FEW, Counting, cost_of_values
from svcd.facets.values import few_values, standings
from svcd.query.reader import DocIds, Reader, Value


class FieldCounting:
    """The values of both kinds. Documents are looked into once for both."""

    def __init__(self, reader: Reader, field: str, candidates: DocIds) -> None:
        self._reader = reader
        self._field = field
        self._candidates = candidates
        self._size = candidates.bit_count()
        self._looked_into: dict[type[Value], Gathered] | None = None

    def of(self, kind: type[Value]) -> Counting:
        """The values of a kind, found in the quickest way."""
        if self._size <= SURELY_FEW:
            return self.in_documents(kind)
        values, sets = few_values(self._reader, self._field, kind)
        if values is None:
            if self._size <= FEW_CANDIDATES:
                return self.in_documents(kind)
            return self._walked(kind, has_way_out=True)
        if not values:
            return NOTHING
        documents = self._reader.all_docids().bit_length()
        if self._size * DOCUMENT_COST <= cost_of_values(values, sets is not None, documents):
            return self.in_documents(kind)
        if sets is None:
            return self._walked(kind, has_way_out=False)
        return tried(values, sets, self._candidates, lambda: standings(self._reader, self._field, kind))

    def _walked(self, kind: type[Value], has_way_out: bool) -> Walked:
        look_into = (lambda: self.in_documents(kind)) if has_way_out else None
        return Walked(self._reader, self._field, kind, self._candidates, self._size, look_into)

    def in_documents(self, kind: type[Value]) -> Gathered:
        """The values of a kind, found by looking into every candidate."""
        if self._looked_into is None:
            self._looked_into = looked_into(self._reader, self._field, self._candidates)
        return self._looked_into[kind]
