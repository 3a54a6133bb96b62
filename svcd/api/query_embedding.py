"""Vectors of queries: embedded by the services or local models of the settings while a search waits.

A service may be slow, or gone. A search that waits for one gives up its slot of the search queue, its cutoff stands still, and
only so many may wait at once, so that searches by words go on. Of searches that can do without the vector, only one at a time
waits for a service that did not answer in time before (docs/http.md#search-queue).

Threads: every request thread comes here; the `_lock` of Trust guards what it knows of services.
"""
from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

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
# A service that fails later than this keeps people waiting.
SLOW_S = 1.0


def no_services() -> Embedders:
    """Embedders with the environment of this process, and no allowed networks beyond the default."""
    from svcd.embedding import Embedders, Environment  # loaded with the first query that is embedded

    return Embedders(Environment())


class Trust:
    """Knows which services did not answer in time when they were asked last; each is named by a number.

    One search at a time may find out whether such a service is back; others need not wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slow: set[int] = set()
        self._tried: set[int] = set()

    @contextmanager
    def trying(self, service: int) -> Iterator[bool]:
        """True if the service may be asked in this block, and False if another search finds out whether it is back."""
        with self._lock:
            is_slow = service in self._slow
            is_allowed = not is_slow or service not in self._tried
            if is_slow and is_allowed:
                self._tried.add(service)
        try:
            yield is_allowed
        finally:
            if is_slow and is_allowed:
                with self._lock:
                    self._tried.discard(service)

    def note(self, service: int, is_slow: bool) -> None:
        """A service has answered, or failed: did it keep the search waiting?"""
        with self._lock:
            (self._slow.add if is_slow else self._slow.discard)(service)


class QueryEmbedding:
    """Embeds queries for all searches of a process. Any thread may call it.

    make_embedders: called when the first query is embedded. searches: the queue whose slots are given up.
    """

    def __init__(self, searches: SearchQueue, make_embedders: Callable[[], Embedders] = no_services,
                 most: int = MAX_WAITING) -> None:
        self._searches = searches
        self._make_embedders = make_embedders
        self._waiting = ConcurrencyLimit(most)
        self._trust = Trust()

    @cached_property
    def _embedders(self) -> Embedders:
        return self._make_embedders()

    def for_search(self, timer: Timer) -> SearchEmbedding:
        """What one search calls to embed its query. timer: its cutoff, which stands still meanwhile."""
        return SearchEmbedding(self, timer)

    def vector(self, wanted: QueryInput, timer: Timer) -> array[float]:
        """The vector of a query. Raises vector_embedding_error, too_many_search_requests."""
        from svcd.embedding import EmbeddingError

        with self._searches.one_of(self._waiting), self._searches.paused(), timer.paused():
            try:
                return self._embed(wanted)
            except EmbeddingError as error:
                raise ApiError("vector_embedding_error", error.while_generating()) from None

    def _embed(self, wanted: QueryInput) -> array[float]:
        """Raises EmbeddingError, too_many_search_requests."""
        from svcd.embedding import EmbeddingError

        embedder = self._embedders.get(wanted.settings, wanted.dimensions)
        if wanted.is_needed:
            return embedder.embed_query(wanted.q, wanted.media, NEEDED_WITHIN_S)
        with self._trust.trying(id(embedder)) as is_allowed:
            if not is_allowed:
                raise self._searches.too_many_searches()
            started, is_slow = time.monotonic(), False
            try:
                return embedder.embed_query(wanted.q, wanted.media, USEFUL_WITHIN_S)
            except EmbeddingError:
                is_slow = time.monotonic() - started > SLOW_S
                raise
            finally:
                self._trust.note(id(embedder), is_slow)


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
            if not wanted.is_needed and error.code == "vector_embedding_error":
                logs.warn("a query was searched by its words alone", embedder=wanted.embedder, failure=error.message)
            raise
