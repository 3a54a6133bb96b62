"""Count the facets of a federated search by index, and add the counts of remotes (docs/search.md#facets-of-a-federation)."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.base.quantities import shown_number
from svcd.facets.distribution import FacetOrders, Facets, check_facets, facets_of, merged_facets, subtract, subtract_values
from svcd.query.reader import Reader
from svcd.schema.field_values import normal_form
from svcd.schema.index_settings import Faceting
from svcd.search.keyword import values_at
from svcd.search.request import Federation


class FederatedFacets:
    """Counts the facets of a federated search, index by index. counted: index uid -> its facets.

    Call open() when an index is opened, count() with the documents found, check_others() once, add_remote() if there are remotes,
    and finally reject() or reject_remote() for each hit that is dropped.
    """

    def __init__(self, federation: Federation) -> None:
        self.counted: dict[str, Facets] = {}
        self._patterns = federation.facets
        self._orders = FacetOrders() if federation.merges_facets else None
        self._is_single = federation.is_single
        self._faceting: dict[str, Faceting] = {}

    def open(self, index_uid: str, reader: Reader) -> None:
        """Register an index. Raises invalid_multi_search_facet_order if merged facets have another order in it."""
        with self._error_context(index_uid):
            self._check_order(index_uid, reader)

    def count(self, index_uid: str, reader: Reader, docids: DocIds) -> None:
        """Count the values of the documents that the queries of an index found. Raises invalid_search_facets."""
        patterns = self._patterns.get(index_uid)
        if patterns is not None:
            with self._error_context(index_uid):
                self.counted[index_uid] = facets_of(reader, patterns, docids)

    def check_others(self, opened: Mapping[str, Any], read: Callable[[str], Reader]) -> None:
        """Check the facets of indexes without a query; these indexes must exist. Raises as open() and count()."""
        for index_uid in sorted(self._patterns.keys() - opened.keys()):
            with self._error_context(index_uid, f"\n - Note: index `{index_uid}` is not used in queries"):
                reader = read(index_uid)
                self._check_order(index_uid, reader)
                check_facets(reader.settings, self._patterns[index_uid] or ())

    def add_remote(self, remotes: Iterable[Mapping[str, Facets]]) -> None:
        """Add the counts of remotes; the values of an index that exists here get its order and its limit."""
        by_index: dict[str, list[Facets]] = {}
        for remote in remotes:
            for index_uid, facets in remote.items():
                by_index.setdefault(index_uid, []).append(facets)
        for index_uid, several in by_index.items():
            if index_uid in self.counted:
                several.insert(0, self.counted[index_uid])
            faceting = self._faceting.get(index_uid)
            if faceting is None:
                self.counted[index_uid] = merged_facets(several)
                continue
            for facets in several:
                facets.orders = {field: faceting.order_of(field) for field in facets.distribution}
            self.counted[index_uid] = merged_facets(several, faceting.max_values)
        self.counted = dict(sorted(self.counted.items()))

    def reject(self, index_uid: str, reader: Reader, docid: int) -> None:
        """Subtract the values of a document that was counted, then rejected by distinct."""
        if index_uid in self.counted:
            subtract(self.counted[index_uid], reader, docid)

    def reject_remote(self, index_uid: str, documents: Iterable[Any]) -> None:
        """Subtract the values of a rejected hit of a remote. documents: the parts of its document that are known here."""
        if index_uid not in self.counted:
            return
        parts = list(documents)
        for field, shown in self.counted[index_uid].distribution.items():
            # Values as a distribution shows them, except that texts are in normal form.
            values = {normal_form(value) if isinstance(value, str) else ("true" if value else "false")
                      if isinstance(value, bool) else shown_number(float(value)) for value in values_at(parts, field)}
            subtract_values(shown, [text for text in shown if text in values or normal_form(text) in values])

    def _check_order(self, index_uid: str, reader: Reader) -> None:
        self._faceting[index_uid] = reader.settings.faceting
        if self._orders is not None:
            for pattern in self._patterns.get(index_uid) or ():
                self._orders.add(index_uid, pattern, reader.settings.faceting.order_of(pattern))

    @contextmanager
    def _error_context(self, index_uid: str, note: str = "") -> Iterator[None]:
        """Name the facets of the index in the messages of errors in this block, unless it is a single search."""
        try:
            yield
        except ApiError as error:
            if self._is_single:
                raise
            located = error.inside(f"Inside `.federation.facetsByIndex.{index_uid}`")
            located.message += note
            raise located from None
            raise located from None
