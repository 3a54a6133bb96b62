"""The facets of a federated search, counted index by index (relevance.md 10.7).

Knows which indexes are asked for facets, in which order they are refused, and that hits are rejected after they are
counted; refuses to know how values are counted, and how counts are merged and shown.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from svcd.base.bitmaps import DocIds
from svcd.base.errors import ApiError
from svcd.facets.distribution import facets_of, subtract
from svcd.facets.fields import check_facets, order_of
from svcd.facets.merging import FacetOrders, Facets
from svcd.query.reader import Reader
from svcd.search.request import Federation


class FederatedFacets:
    """What one federated search counts. Told of each index when it is opened, and when its documents are known.

    counted: index uid -> its facets.
    """

    def __init__(self, federation: Federation) -> None:
        self.counted: dict[str, Facets] = {}
        self._asked = federation.facets
        self._orders = FacetOrders() if federation.merges_facets else None

    def open(self, index_uid: str, reader: Reader) -> None:
        """Raises invalid_multi_search_facet_order when facets that are to be merged are ordered otherwise here."""
        with _inside(index_uid):
            self._check_order(index_uid, reader)

    def count(self, index_uid: str, reader: Reader, docids: DocIds) -> None:
        """Count the values of the documents that the queries of an index found. Raises invalid_search_facets."""
        patterns = self._asked.get(index_uid)
        if patterns is not None:
            with _inside(index_uid):
                self.counted[index_uid] = facets_of(reader, patterns, docids)

    def reject(self, index_uid: str, reader: Reader, docid: int) -> None:
        """A document that was counted is not among the hits after all."""
        if index_uid in self.counted:
            subtract(self.counted[index_uid], reader, docid)

    def check_others(self, opened: Mapping[str, Any], read: Callable[[str], Reader]) -> None:
        """Refuse facets of indexes that no query has opened if they would be refused there; the index must exist."""
        for index_uid in sorted(self._asked.keys() - opened.keys()):
            with _inside(index_uid, f"\n - Note: index `{index_uid}` is not used in queries"):
                reader = read(index_uid)
                self._check_order(index_uid, reader)
                check_facets(reader.settings, self._asked[index_uid] or ())

    def _check_order(self, index_uid: str, reader: Reader) -> None:
        if self._orders is not None:
            for pattern in self._asked.get(index_uid) or ():
                self._orders.add(index_uid, pattern, order_of(reader.settings, pattern))


@contextmanager
def _inside(index_uid: str, note: str = "") -> Iterator[None]:
    """What is refused in this block is told of the facets of one index."""
    try:
        yield
    except ApiError as error:
        refused = error.inside(f"Inside `.federation.facetsByIndex.{index_uid}`")
        refused.message += note
        raise refused from None
