"""Vectors of queries: embedded by the services or local models of the settings while a search waits.

A service may be slow, or gone. A search that waits for one gives up its slot of the search queue, its time limit stands still,
and only so many may wait at once, so that searches by words go on (docs/http.md#search-queue).
"""
from __future__ import annotations

from array import array
from collections.abc import Callable
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Iterator

from svcd.api.admission import SearchQueue, Timer
from svcd.api.streaming import ConcurrencyLimit
from svcd.base import logs
from svcd.base.errors import ApiError

if TYPE_CHECKING:
    from svcd.embedding import Embedders
    from svcd.search.request import QueryInput

MAX_WAITING = 64
# Seconds that a search waits at most: one that cannot do without the vector, and one with words as well.
NEEDED_WITHIN_S, USEFUL_WITHIN_S = 10.0, 3.0


def no_services() -> Embedders:
    """Embedders with the environment of this process and no allowed networks beyond the default."""
    from svcd.embedding import Embedders, Environment  # loaded with the first query that is embedded

    return Embedders(Environment())


class QueryEmbedding:
    """Embeds queries for all searches of a process. Any thread may call it.

    make_embedders: called when the first query is embedded. searches: the queue whose slots are given up.
    """

    def __init__(self, searches: SearchQueue, make_embedders: Callable[[], Embedders] = no_services,
                 most: int = MAX_WAITING) -> None:
        self._searches = searches
        self._make_embedders = make_embedders
        self._waiting = ConcurrencyLimit(most)

    @cached_property
    def _embedders(self) -> Embedders:
        return self._make_embedders()

    def for_search(self, timer: Timer) -> SearchEmbedding:
        """What one search calls to embed its query. timer: its cutoff, which stands still meanwhile."""
        return SearchEmbedding(self, timer)

    def vector(self, wanted: QueryInput, timer: Timer) -> array[float]:
        """The vector of a query. Raises vector_embedding_error, too_many_search_requests."""
        from svcd.embedding import EmbeddingError

        within_s = NEEDED_WITHIN_S if wanted.is_needed else USEFUL_WITHIN_S
        with self._place(), self._searches.paused(), timer.paused():
            try:
                embedder = self._embedders.get(wanted.settings, wanted.dimensions)
                return embedder.embed_query(wanted.q, wanted.media, within_s)
            except EmbeddingError as error:
                raise ApiError("vector_embedding_error", error.while_generating()) from None

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._waiting.try_acquire():
            raise self._searches.too_many_searches()
        try:
            yield
        finally:
            self._waiting.release()


class SearchEmbedding:
    """Embeds the queries of one search. has_failed: was one not embedded, so that its words alone had to do?"""

    def __init__(self, embedding: QueryEmbedding, timer: Timer) -> None:
        self.has_failed = False
        self._embedding = embedding
        self._timer = timer

    def __call__(self, wanted: QueryInput) -> array[float]:
        """The vector of a query. Raises vector_embedding_error, too_many_search_requests."""
        try:
            return self._embedding.vector(wanted, self._timer)
        except ApiError as error:
            self.has_failed = True
            if not wanted.is_needed:
                logs.warn("a query was searched by its words alone", embedder=wanted.embedder, failure=error.message)
            raise
