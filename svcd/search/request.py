"""The parameters of a search after validation, the limits on formatting its hits, and its result."""
from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Sequence

from svcd.base.errors import ApiError
from svcd.facets.distribution import Facets

if TYPE_CHECKING:
    from svcd.filters.tree import Condition
    from svcd.ranking.bucket_sort import Hit
    from svcd.rules.rule_set import IndexRules  # few instances use search rules


class QueryInput(NamedTuple):
    """The input from which an embedder makes the vector of a query.

    settings: of the embedder, defaults filled in. dimensions: None while they are unknown. q, media: None if not given.
    is_needed: False if the search can fall back to words alone.
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
    """A service that orders the hits of a page for the user.

    order: documents of the hits as JSON texts -> positions in the new order, which may omit or repeat positions. It is also
    called without hits. Raises errors of the interface. shows_source: the documents have the member `_federation`.
    """

    order: Callable[[Sequence[str]], Sequence[int]]
    shows_source: bool = True


def no_embedding(_wanted: QueryInput) -> array[float]:
    """Refuse to embed: the query brings its vector, or needs none."""
    raise ApiError("vector_embedding_error", "No service is available to embed the query.")


class Hybrid(NamedTuple):
    """The weight of vectors in a hybrid search, from 0 (words alone) to 1 (vectors alone), and the embedder to search by.

    fusion: a name of svcd.search.fusion, None to compare the hits of both lists by their weighted scores. k: for `rrf`.
    """

    embedder: str
    ratio: float = 0.5
    fusion: str | None = None
    k: int = 60


class SearchQuery(NamedTuple):
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
    matching_strategy: str | None = None  # None: the setting `defaultMatchingStrategy`
    sort: Sequence[str] | None = None  # `field:asc`, `field:desc`
    distinct: str | None = None
    locales: Sequence[str] | None = None
    filter: Condition | None = None  # with _foreign already resolved
    hybrid: Hybrid | None = None
    vector: Sequence[float] | None = None
    media: Any = None
    retrieve_vectors: bool = False
    rules: IndexRules | None = None  # None: nothing is pinned


class IndexedQuery(NamedTuple):
    """A query with its index. weight: factor of its scores when lists are merged.

    position: the query number that its hits report; None for its index in the request.
    """

    index_uid: str
    query: SearchQuery
    weight: float = 1.0
    position: int | None = None


@dataclass
class Federation:
    """The requested page of the merged list, and the facets to count. Page mode: `page` or `hits_per_page` is given.

    distinct: the field whose values no two hits may share. facets: index uid -> patterns of fields to count, None for an
    index that is named without patterns. merges_facets: the facets of all indexes are merged, and need one order. is_single:
    a search of one query, whose errors do not name it. is_proxied: another instance will merge the hits with its own, and
    needs the values to compare them by. is_paged: the request is in page mode, with an exact total. window: (first, end) of the
    requested hits in the list; equal for an empty page.
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

    is_paged: bool = field(init=False)
    window: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.is_paged = self.page is not None or self.hits_per_page is not None
        self.window = self.offset, self.offset + self.limit
        if self.is_paged:
            page, size = self.page_and_size
            self.window = max(page - 1, 0) * size, page * size

    def pagination(self, total: int) -> dict[str, int]:
        """Return the pagination members of the answer, in their order."""
        if not self.is_paged:
            return {"limit": self.limit, "offset": self.offset, "estimatedTotalHits": total}
        page, size = self.page_and_size
        pages = -(-total // size) if size else 0
        return {"hitsPerPage": size, "page": page, "totalPages": pages, "totalHits": total}

    @property
    def page_and_size(self) -> tuple[int, int]:
        """(page number, hits per page) in page mode."""
        return 1 if self.page is None else self.page, 20 if self.hits_per_page is None else self.hits_per_page


class SearchResult(NamedTuple):
    """The result of a search.

    hits: JSON texts, best first; a LongPage (svcd.search.hits) renders them on access.
    pagination: members of the answer, in their order. facets: index uid -> facets of that index. semantic_hits: the number of
    hits that were found by their vectors, None if no query searched vectors. query_vectors: query number -> its vector, for
    queries that retrieve vectors. ranked: the hits of the page with their docids; () for merged lists.
    """

    hits: Sequence[str]
    pagination: dict[str, int]
    facets: Mapping[str, Facets] = {}
    semantic_hits: int | None = None
    query_vectors: Mapping[int, Sequence[float]] = {}
    ranked: Sequence[Hit] = ()


# Limits on formatting

# Characters of text that one search may read after its time limit: enough for the hits of most pages. Reading them takes a tenth
# of a second, half a second where a segmenter finds the words.
GUARANTEED_CHARACTERS = 65_536
# Bytes that tags and markers may add to the answer of one search: clients choose them, and they may be long.
MAX_ADDED_BYTES = 16_777_216


class FormattingBudget:
    """The work that the formatting of one search may still do. expired: has the time limit passed? None for no limit.

    Formatting counts towards the time limit of the search, so that a hit of 20 MB cannot occupy a search slot for a minute. A
    fixed amount is always allowed, so that hits of usual size are formatted however long ranking took. A page that is rendered in
    portions has one budget, which each portion renews.
    """

    def __init__(self, expired: Callable[[], bool] | None = None) -> None:
        self._expired = expired
        self._guaranteed = GUARANTEED_CHARACTERS
        self._addable = MAX_ADDED_BYTES
        self._is_over = False

    def renew(self) -> None:
        """Allow the fixed amount again, for the next portion of a page."""
        self._guaranteed = GUARANTEED_CHARACTERS

    def allows(self, characters: int) -> bool:
        """Return whether `characters` more may be read, or a step of similar cost be made; if so, count them."""
        if self._guaranteed > 0:
            self._guaranteed -= characters
            return True
        if not self._is_over and self._expired is not None:
            self._is_over = self._expired()
        return not self._is_over

    def adds(self, size: int) -> bool:
        """Return whether `size` bytes may be added to the texts of hits; if so, count them."""
        if size > self._addable:
            return False
        self._addable -= size
        return True
