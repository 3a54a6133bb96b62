"""What a search asks for, in the words of the interface, after all checks of form.

Knows names and defaults; refuses to know how they are answered.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Sequence

from svcd.facets.merging import Facets
from svcd.filters.tree import Condition


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """One query on one index. Sequences are None where the request gives none."""

    q: str | None = None
    attributes_to_retrieve: Sequence[str] | None = None
    attributes_to_search_on: Sequence[str] | None = None
    attributes_to_highlight: Sequence[str] | None = None
    attributes_to_crop: Sequence[str] | None = None
    crop_length: int = 10
    crop_marker: str = "…"
    highlight_pre_tag: str = "<em>"
    highlight_post_tag: str = "</em>"
    show_matches_position: bool = False
    show_ranking_score: bool = False
    show_ranking_score_details: bool = False
    ranking_score_threshold: float | None = None
    matching_strategy: str = "last"
    sort: Sequence[str] | None = None  # `field:asc`, `field:desc`
    distinct: str | None = None
    locales: Sequence[str] | None = None
    filter: Condition | None = None  # without joins


@dataclass(frozen=True, slots=True)
class IndexedQuery:
    """A query with its index, and how much its scores weigh when lists are merged.

    position: under which number its hits say that they are found; None for its place in the request.
    """

    index_uid: str
    query: SearchQuery
    weight: float = 1.0
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Federation:
    """Which part of the merged list is wanted; `page` or `hits_per_page` make it pages.

    distinct: a field of which no two hits of the list share a value. facets: index uid -> patterns of the fields whose
    values are counted; None for an index that is only named. merges_facets: must those of all indexes be in one order?
    """

    offset: int = 0
    limit: int = 20
    page: int | None = None
    hits_per_page: int | None = None
    distinct: str | None = None
    facets: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    merges_facets: bool = False

    @property
    def is_paged(self) -> bool:
        """Counted in pages, with an exact total?"""
        return self.page is not None or self.hits_per_page is not None

    def window(self) -> tuple[int, int]:
        """The numbers of the first hit wanted and of the first one behind; equal when none is."""
        if not self.is_paged:
            return self.offset, self.offset + self.limit
        page, size = self._page(), self._hits_per_page()
        return max(page - 1, 0) * size, page * size

    def pagination(self, total: int) -> dict[str, int]:
        """The members of the answer that say where the hits stand, in their order."""
        if not self.is_paged:
            return {"limit": self.limit, "offset": self.offset, "estimatedTotalHits": total}
        size = self._hits_per_page()
        pages = -(-total // size) if size else 0
        return {"hitsPerPage": size, "page": self._page(), "totalPages": pages, "totalHits": total}

    def _page(self) -> int:
        return 1 if self.page is None else self.page

    def _hits_per_page(self) -> int:
        return 20 if self.hits_per_page is None else self.hits_per_page


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What one search found.

    hits: JSON texts of objects, best first; those of a long page (pages.LongPage) are made when they are asked for.
    pagination: members of the answer, in their order.
    facets: index uid -> what was asked for of that index.
    """

    hits: Sequence[str]
    pagination: dict[str, int]
    facets: Mapping[str, Facets] = field(default_factory=dict)
