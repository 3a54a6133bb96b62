"""The parameters of a search after validation, and its result."""
from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Protocol, Sequence

from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.facets.distribution import Facets
from svcd.filters.tree import Condition
from svcd.query.parser import ParsedQuery
from svcd.query.reader import Reader

if TYPE_CHECKING:
    from svcd.ranking.bucket_sort import Hit


class QueryInput(NamedTuple):
    """What the vector of a query is made of, and by which embedder.

    settings: of the embedder, defaults filled in. dimensions: None while they are not known. q, media: None if not given.
    is_needed: False if words alone will do when there is no vector.
    """

    embedder: str
    settings: Mapping[str, Any]
    dimensions: int | None
    q: str | None
    media: Any
    is_needed: bool


# Makes the vector of a query. Raises vector_embedding_error and other errors of the interface.
Embed = Callable[[QueryInput], "array[float]"]


class Reranking(NamedTuple):
    """How the hits of a page are ordered for the user.

    order: documents of the hits as JSON texts -> positions in the new order; some may be missing or repeated. Called with no
    hits, too. Raises errors of the interface. shows_source: do the documents have the member `_federation`?
    """

    order: Callable[[Sequence[str]], Sequence[int]]
    shows_source: bool = True


def no_embedding(_wanted: QueryInput) -> array[float]:
    """For searches that bring their vectors with them."""
    raise ApiError("vector_embedding_error", "There is no service that could embed the query.")


class PinningRules(Protocol):
    """The search rules that are in force for one query on one index. Implemented by svcd.rules."""

    def pins(self, reader: Reader, parsed: ParsedQuery, condition: Condition | None, docids: DocIds) -> Sequence[tuple[int, int]]:
        """(position, docid) of the documents that they pin for the query, each once, as the rules name them.

        condition: the filter; docids: the documents that it leaves.
        """


class Hybrid(NamedTuple):
    """How much meaning counts: 0 for words alone, 1 for vectors alone; and whose vectors are searched."""

    embedder: str
    ratio: float = 0.5


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """One query on one index. Sequences are None if the request does not give them."""

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
    filter: Condition | None = None  # with _foreign already resolved
    hybrid: Hybrid | None = None
    vector: Sequence[float] | None = None
    media: Any = None
    retrieve_vectors: bool = False
    rules: PinningRules | None = None  # None: nothing is pinned


@dataclass(frozen=True, slots=True)
class IndexedQuery:
    """A query with its index. weight: factor of its scores when lists are merged.

    position: the query number that its hits report; None for its index in the request.
    """

    index_uid: str
    query: SearchQuery
    weight: float = 1.0
    position: int | None = None


@dataclass(frozen=True)
class Federation:
    """The requested page of the merged list, and what is computed over the list. `page` or `hits_per_page` mean page mode.

    distinct: a field of which no two hits may share a value. facets: index uid -> patterns of fields to count, None for an
    index that is named without patterns. merges_facets: are the facets of all indexes merged, and so need one order?
    is_single: is it a search of one query, whose errors do not name it? is_proxied: will another instance merge the hits with
    its own, and so needs to know how they compare?
    """

    offset: int = 0
    limit: int = 20
    page: int | None = None
    hits_per_page: int | None = None
    distinct: str | None = None
    facets: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    merges_facets: bool = False
    is_single: bool = False
    is_proxied: bool = False

    @cached_property
    def is_paged(self) -> bool:
        """Is it page mode, with an exact total?"""
        return self.page is not None or self.hits_per_page is not None

    @cached_property
    def window(self) -> tuple[int, int]:
        """(first, end) of the requested hits in the list; equal if there are none."""
        if not self.is_paged:
            return self.offset, self.offset + self.limit
        page, size = self.page_and_size
        return max(page - 1, 0) * size, page * size

    def pagination(self, total: int) -> dict[str, int]:
        """The pagination members of the answer, in their order."""
        if not self.is_paged:
            return {"limit": self.limit, "offset": self.offset, "estimatedTotalHits": total}
        page, size = self.page_and_size
        pages = -(-total // size) if size else 0
        return {"hitsPerPage": size, "page": page, "totalPages": pages, "totalHits": total}

    @property
    def page_and_size(self) -> tuple[int, int]:
        """(number of the page, hits of a page) in page mode."""
        return 1 if self.page is None else self.page, 20 if self.hits_per_page is None else self.hits_per_page


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search.

    hits: JSON texts, best first; a LongPage (svcd.search.hits) renders them on access.
    pagination: members of the answer, in their order. facets: index uid -> facets of that index. semantic_hits: how many of the
    hits were found by their vectors, None if no query searched vectors. query_vectors: number of a query -> its vector, of
    those that retrieve vectors. ranked: the hits of the page with their docids; () for merged lists.
    """

    hits: Sequence[str]
    pagination: dict[str, int]
    facets: Mapping[str, Facets] = field(default_factory=dict)
    semantic_hits: int | None = None
    query_vectors: Mapping[int, Sequence[float]] = field(default_factory=dict)
    ranked: Sequence[Hit] = ()
