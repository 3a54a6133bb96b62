"""Semantic search: rank documents by the distance of their vectors to the vector of a query (docs/search.md#semantic-search)."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from svcd.base import tracing
from svcd.base.docids import DocIds
from svcd.base.errors import ApiError
from svcd.query.reader import Reader
from svcd.ranking.bucket_sort import Hit, RankingLimits, chain, rank
from svcd.ranking.vector_sort import Target, VectorSort
from svcd.schema.embedder_settings import distribution_of
from svcd.search.keyword import Found, Scope, among_pins, empty_graph, scope_of, without_pins
from svcd.search.request import Embed, Hybrid, QueryInput, SearchQuery
from svcd.vectors.vector import vector_of


class QueryTarget:
    """The vector that one query compares documents with; made when it is needed."""

    def __init__(self, reader: Reader, query: SearchQuery, hybrid: Hybrid, embed: Embed) -> None:
        """Raises invalid_search_embedder, and invalid_vector_dimensions for a given vector."""
        self.ratio = hybrid.ratio
        self._name = hybrid.embedder
        self._settings = embedder_settings(reader, hybrid.embedder, "invalid_search_embedder")
        self._query = query
        self._embed = embed
        self._dimensions = reader.vectors.dimensions(hybrid.embedder)
        if query.vector is not None:
            self._check(query.vector)

    def _check(self, vector: Any) -> None:
        if self._dimensions is not None and len(vector) != self._dimensions:
            raise ApiError("invalid_vector_dimensions",
                           f"Invalid vector dimensions: expected: `{self._dimensions}`, found: `{len(vector)}`.")

    def get(self, is_needed: bool) -> Target:
        """Return the target. is_needed: False if words alone will do. Raises the errors of `embed`."""
        query = self._query
        if query.vector is not None:
            vector = vector_of(query.vector)
        else:
            tracing.begin("embed query")
            try:
                vector = self._embed(
                    QueryInput(self._name, self._settings, self._dimensions, query.q, query.media, is_needed))
            finally:
                tracing.end()
            self._check(vector)
        return Target(self._name, vector, distribution_of(self._settings))


def embedder_settings(reader: Reader, name: str, code: str) -> Mapping[str, Any]:
    """Return the settings of an embedder. Raises `code` if none has this name."""
    settings: Mapping[str, Any] | None = reader.settings.embedders.get(name)
    if settings is None:
        raise ApiError(code, f"Cannot find embedder with name `{name}`.")
    return settings


def semantic_search(
    reader: Reader, query: SearchQuery, target: Target, limits: RankingLimits, expired: Callable[[], bool]
) -> Found:
    """Rank the documents of one index by their vectors, not by the words of the query. Raises as scope_of() does."""
    scope = scope_of(reader, query)
    pins = () if query.rules is None else scope.pins(scope.parse())  # the words of the query decide which rules apply
    return rank_by_vectors(scope, scope.docids, target, limits, expired, pins)


def rank_by_vectors(
    scope: Scope, docids: DocIds, target: Target, limits: RankingLimits, expired: Callable[[], bool],
    pins: Sequence[tuple[int, Hit]] = (),
) -> Found:
    """Rank documents by their vectors and the rules that sort; documents without vectors come last. pins: see rank_by_words()."""
    vector_sort = VectorSort(scope.reader, target, limits.hits)
    ranking_rules, sort = scope.reader.settings.ranking_rules, scope.query.sort or ()
    rules = chain(scope.context, ranking_rules, sort, has_terms=False, vector_sort=vector_sort)
    tracing.begin("semantic ranking")
    ranking = rank(rules, empty_graph(), without_pins(docids, pins) if pins else docids, limits, expired, scope.distinct)
    tracing.end()
    return Found(among_pins(ranking, pins, limits) if pins else ranking, scope.context.terms, [], is_semantic=True,
                 vector=target.vector)
