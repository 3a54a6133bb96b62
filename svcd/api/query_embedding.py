"""Vectors of queries: services or local models of the settings embed them while a search waits.

A service may be slow or unreachable. A search that waits for it gives up its slot of the search queue, its cutoff is paused, and
at most MAX_WAITING searches wait at once, so that searches by words continue. If a service did not answer in time, only one
search at a time waits for it again, unless a search needs the vector (docs/http.md#search-queue).

Threads: all request threads use it; the `_lock` of Trust guards its sets of services.
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
# Most seconds that a search waits: a search that needs the vector, and a search that has words as well.
NEEDED_WITHIN_S, USEFUL_WITHIN_S = 10.0, 3.0
# A service that fails after more than this many seconds counts as slow.
SLOW_S = 1.0


def no_services() -> Embedders:
    """Embedders with the environment of this process, and no allowed networks beyond the default."""
    from svcd.embedding import Embedders, Environment  # loaded with the first query that is embedded

    return Embedders(Environment())


class Trust:
    """Services that did not answer in time at their last call; each is identified by a number.

    One search at a time may find out whether such a service works again; other searches do not wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slow: set[int] = set()
        self._tried: set[int] = set()

    @contextmanager
    def trying(self, service: int) -> Iterator[bool]:
        """True if this block may call the service; False while another search finds out whether it works again."""
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
        """A service has answered, or failed. is_slow: it kept the search waiting."""
        with self._lock:
            (self._slow.add if is_slow else self._slow.discard)(service)


class QueryEmbedding:
    """Embeds queries for all searches of a process. Any thread may call it.

    make_embedders: called when the first query is embedded. searches: the queue whose slots waiting searches give up.
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
        """Return the function with which one search embeds its query. timer: its cutoff, which is paused during the call."""
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
    """Embeds the queries of one search. has_failed: whether a query was not embedded, and only its words were searched."""

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
                logs.warn("no query vector; fell back to keyword search", embedder=wanted.embedder, failure=error.message)
            raise
