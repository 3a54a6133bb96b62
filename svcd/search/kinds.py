"""The kind of a search: by words, by vectors, or by both (docs/search.md#kinds-of-search)."""
from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from svcd.base.errors import ApiError
from svcd.query.reader import Reader
from svcd.ranking.bucket_sort import RankingLimits
from svcd.search.hybrid import hybrid_search
from svcd.search.keyword import Found, keyword_search
from svcd.search.request import Embed, SearchQuery
from svcd.search.semantic import QueryTarget, semantic_search


class Kind(Enum):
    """What a search looks at: words, vectors or both."""

    KEYWORD = "keyword"
    SEMANTIC = "semantic"
    HYBRID = "hybrid"


def kind_of(query: SearchQuery) -> Kind:
    """The kind of a search. Raises missing_search_hybrid, invalid_search_media_and_vector."""
    if query.media is not None and query.vector is not None:
        raise ApiError("invalid_search_media_and_vector", "Invalid request: both `media` and `vector` parameters are present.")
    if query.hybrid is None:
        if query.media is not None or query.vector is not None:
            raise ApiError("missing_search_hybrid",
                           "Invalid request: missing `hybrid` parameter when `vector` or `media` are present.")
        return Kind.KEYWORD
    if query.hybrid.ratio == 0 or query.q is None and query.vector is None and query.media is None:
        return Kind.KEYWORD
    return Kind.SEMANTIC if query.hybrid.ratio == 1 or query.q is None else Kind.HYBRID


class Search(NamedTuple):
    """A query on one index whose kind is known. target: what documents are compared with, None for a search by words."""

    reader: Reader
    query: SearchQuery
    kind: Kind
    target: QueryTarget | None

    @classmethod
    def of(cls, reader: Reader, query: SearchQuery, embed: Embed) -> Search:
        """The search that a query asks for. Raises as kind_of() and QueryTarget() do."""
        kind = kind_of(query)
        if kind is Kind.KEYWORD or query.hybrid is None:
            return cls(reader, query, kind, None)
        return cls(reader, query, kind, QueryTarget(reader, query, query.hybrid, embed))

    def run(self, limits: RankingLimits, expired: Callable[[], bool], index_uid: str) -> Found:
        """Rank the documents. Raises the codes of search parameters, with messages that begin with the index, and
        vector_embedding_error."""
        # Before the block: its error does not name the index. In a hybrid search nobody sees it.
        target = self.target.get(is_needed=True) if self.target is not None and self.kind is Kind.SEMANTIC else None
        try:
            if target is not None:
                return semantic_search(self.reader, self.query, target, limits, expired)
            if self.target is not None:
                return hybrid_search(self.reader, self.query, self.target, limits, expired)
            return keyword_search(self.reader, self.query, limits, expired)
        except ApiError as error:
            raise error.inside(f"Index `{index_uid}`") from None
